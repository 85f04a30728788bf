#!/bin/sh
#SBATCH --account=def-yourpi_gpu
#SBATCH --gpus-per-node=nvidia_h100_80gb_hbm3_1g.10gb:1
#SBATCH --exclude=n7,n8
#SBATCH --job-name=kb-abcdefghijklmnopqrstuvwxyz
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=4
#SBATCH --mem=16384M
#SBATCH --time=18
#SBATCH --chdir=/shared/attempts/kb-abcdefghijklmnopqrstuvwxyz
#SBATCH --output=/shared/attempts/kb-abcdefghijklmnopqrstuvwxyz/log
#SBATCH --open-mode=append
#SBATCH --no-requeue
#SBATCH --export=NIL

# This script is the attempt's supervisor. It claims, starts the judge, starts a fresh runner whenever the judge asks
# for one by a line in a FIFO, and leaves exit.json when nothing of it is left. It holds no secret and no user code.
set -u
umask 077
# shellcheck disable=SC3045
ulimit -c 0 2>/dev/null
PATH=/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin
LC_ALL=C.UTF-8
export PATH LC_ALL
DIR=/shared/attempts/kb-abcdefghijklmnopqrstuvwxyz
EVAL=/shared/eval-0123456789abcdef
IMAGE=/scratch/kbslurm/images/cuda.sif
JOB=${SLURM_JOB_ID:-0}
NODE=${SLURMD_NODENAME:-$(uname -n)}
SHM=
SCRATCH=
WATCH=

say() { printf 'kbslurm: %s\n' "$*" >&2; }

# put FILE TEXT…: the whole text under this name, or nothing
put() {
    put_to=$1
    shift
    printf '%s\n' "$*" >"$put_to.$JOB.tmp" && mv -f "$put_to.$JOB.tmp" "$put_to"
}

# Every runner and the judge lead a session of their own: what they started is ended with them. Who has ended already
# is left alone: its number may be that of another job's process by now.
end_one() {
    [ -e "${1%.pid}.status" ] && return 0
    read -r end_pid <"$1" || return 0
    case $end_pid in '' | *[!0-9]* | 0 | 1) return 0 ;; esac
    kill -KILL -- "-$end_pid" 2>/dev/null || kill -KILL "$end_pid" 2>/dev/null
}

end_all() {
    trap '' TERM INT HUP
    for end_pid in ${WATCH:+"$WATCH"}; do
        kill -TERM "$end_pid" 2>/dev/null
    done
    if [ -n "$SHM" ]; then
        for end_file in "$SHM"/ask/run.*.pid "$SHM"/judge.pid; do
            [ -f "$end_file" ] && end_one "$end_file"
        done
        # a runner may have taken its own folders' rights away
        chmod -R u+rwX -- "$SHM" 2>/dev/null
        # and whoever waits for one that was just ended writes its status still
        rm -rf -- "$SHM" 2>/dev/null || { sleep 1; rm -rf -- "$SHM"; } || say "can't remove $SHM"
    fi
    if [ -n "$SCRATCH" ]; then
        chmod -R u+rwX -- "$SCRATCH" 2>/dev/null
        rm -rf -- "$SCRATCH" || say "can't remove $SCRATCH"
    fi
}

# finish CAUSE STATUS EXIT: end what is left, say how it ended, end
finish() {
    began=false
    [ -e "$DIR/out/heartbeat.json" ] && began=true
    end_all
    say "ends: $1, status $2"
    put "$DIR/exit.json" "{\"cause\":\"$1\",\"status\":$2,\"began\":$began,\"job\":\"$JOB\",\"node\":\"$NODE\",\"at\":$(date +%s)}"
    exit "$3"
}

# The claim: whoever makes this folder runs; everybody else, for ever, doesn't.
if mkdir "$DIR/claim"; then
    put "$DIR/claim/job" "$JOB" || exit 70
    put "$DIR/claim/owner.json" "{\"job\":\"$JOB\",\"node\":\"$NODE\",\"at\":$(date +%s)}" || exit 70
elif [ -d "$DIR/claim" ]; then
    owner=
    [ -f "$DIR/claim/job" ] && read -r owner <"$DIR/claim/job"
    if [ "$owner" != "$JOB" ] || [ -e "$DIR/exit.json" ]; then
        say "job $owner has claimed this attempt; job $JOB ends"
        put "$DIR/duplicate-$JOB" "$NODE"
        exit 0
    fi
else
    say "can't write to $DIR"
    exit 70
fi
trap 'finish term 143 76' TERM INT HUP
ls "$DIR" >/dev/null
[ -e "$DIR/cancelled" ] && finish cancelled 0 75

HOME=${HOME:-/}
USER=${USER:-$(id -un)}
export HOME USER
for init in /etc/profile.d/modules.sh /etc/profile.d/lmod.sh /etc/profile.d/z00_lmod.sh /usr/share/lmod/lmod/init/sh; do
    # shellcheck disable=SC1090
    [ -r "$init" ] && { set +u; . "$init"; set -u; break; }
done
set +u
module load apptainer || finish setup 1 71
set -u

[ -f "$EVAL/__main__.py" ] || { say "the harness $EVAL isn't there"; finish setup 1 71; }
SHM=$(mktemp -d /dev/shm/kb-XXXXXXXXXX) || { SHM=; say "no shared memory on $NODE"; finish setup 1 71; }
mkdir "$SHM/ask" "$SHM/link" "$SHM/home" && put "$SHM/script" "$$" || finish setup 1 71
# What a killed script of ours left on this node goes now: its process is gone, its shared memory isn't.
for left in /dev/shm/kb-*; do
    [ -f "$left/script" ] && [ -r "$left/script" ] && read -r left_pid <"$left/script" || continue
    kill -0 "$left_pid" 2>/dev/null || rm -rf -- "$left"
done
[ -n "${SLURM_TMPDIR-}" ] || { say "a variable of the scratch folder's path isn't set on $NODE"; finish setup 1 71; }
# A name that nobody could guess and take first: this may be a folder that everybody writes to.
mkdir -p "${SLURM_TMPDIR}" && SCRATCH=$(mktemp -d "${SLURM_TMPDIR}"/kb-"$JOB"-XXXXXXXXXX) && mkdir "$SCRATCH/judge" "$SCRATCH/tmp" ||
    { say "no scratch on $NODE"; finish setup 1 71; }
[ -d "${SLURM_TMPDIR:-}" ] || { say "this node gave no SLURM_TMPDIR"; finish setup 1 71; }
[ -e "$IMAGE" ] || { say "the image $IMAGE isn't there"; finish image 1 72; }
command -v apptainer >/dev/null || { say "there is no container program on $NODE"; finish image 1 72; }
for name in CUDA_VISIBLE_DEVICES ROCR_VISIBLE_DEVICES HIP_VISIBLE_DEVICES GPU_DEVICE_ORDINAL ZE_AFFINITY_MASK; do
    eval "value=\${$name-}"
    # shellcheck disable=SC2154
    [ -n "$value" ] && export "APPTAINERENV_$name=$value" "SINGULARITYENV_$name=$value"
done
HOME=$SHM/home
APPTAINER_CONFIGDIR=$SHM/home
APPTAINER_CACHEDIR=${SCRATCH:-$SHM}/tmp
SINGULARITY_CACHEDIR=$APPTAINER_CACHEDIR
export HOME APPTAINER_CONFIGDIR APPTAINER_CACHEDIR SINGULARITY_CACHEDIR
APPTAINER_TMPDIR=$SCRATCH/tmp
SINGULARITY_TMPDIR=$SCRATCH/tmp
export APPTAINER_TMPDIR SINGULARITY_TMPDIR

mkfifo -m 600 "$SHM/ask/ask" || finish setup 1 71
exec 3<>"$SHM/ask/ask"
put "$SHM/ask/facts" container=apptainer || finish setup 1 71
printf 'image=%s\nimage_digest=%s\n' "$IMAGE" '' >>"$SHM/ask/facts"


# The judge: it sees, stops, resumes and ends the runners, so it gets no PID namespace of its own.
(
    trap : TERM
    setsid apptainer --silent exec --contain --ipc --cleanenv --no-home --no-mount home,cwd,hostfs,bind-paths --no-eval --no-privs --net --network none --nv --workdir "${SCRATCH}"/judge --pwd / --bind "${EVAL}":/eval:ro --bind /shared/attempts/kb-abcdefghijklmnopqrstuvwxyz/manifest.json:/kb/manifest.json:ro --bind /shared/attempts/kb-abcdefghijklmnopqrstuvwxyz/key:/kb/key:ro --bind /shared/attempts/kb-abcdefghijklmnopqrstuvwxyz/out:/kb/out:rw --bind "${SHM}"/ask:/kb/ask:rw --bind "${SHM}"/link:/kb/link:rw "${IMAGE}" python3 -I /eval /kb/manifest.json --key /kb/key --out /kb/out --supervisor /kb/ask --link /kb/link </dev/null 3<&- &
    pid=$!
    put "$SHM/judge.pid" "$pid"
    wait "$pid"
    ended=$?
    kill -KILL -- "-$pid" 2>/dev/null
    printf 'ended %s\n' "$ended" >&3
) &

# Our own watchdog: Slurm's comes up to a minute late.
(
    nap=
    trap 'kill "$nap" 2>/dev/null; exit 0' TERM
    sleep 975 &
    nap=$!
    # a sleep that a signal ended isn't over: whoever signalled it means us all
    wait "$nap" && printf 'expired 0\n' >&3
) &
WATCH=$!

# A runner: in a container of its own, that shows it its link and the harness and nothing else of this node.
start_runner() {
    N=$1
    [ -d "$SHM/link/$N" ] || return 1
    [ -e "$SHM/ask/run.$N.pid" ] && return 0
    mkdir -p "$SCRATCH/run.$N" || return 1
    (
        trap : TERM
        setsid apptainer --silent exec --containall --no-home --no-mount home,cwd,hostfs,bind-paths --no-eval --no-privs --net --network none --nv --workdir "${SCRATCH}"/run."${N}" --pwd /tmp --bind "${EVAL}":/eval:ro --bind "${SHM}"/link/"${N}":/link:rw "${IMAGE}" python3 -I -B /eval --runner /link </dev/null >"$SHM/ask/run.$N.err" 2>&1 3<&- &
        pid=$!
        put "$SHM/ask/run.$N.pid" "$pid"
        wait "$pid"
        ended=$?
        kill -KILL -- "-$pid" 2>/dev/null
        put "$SHM/ask/run.$N.status" "$ended"
    ) 2>/dev/null &
}

cause=judge
status=1
while read -r what number _ <&3; do
    case $number in
        *[!0-9]*) continue ;;
    esac
    case $what in
        run) start_runner "$number" || put "$SHM/ask/run.$number.status" 125 ;;
        stop) [ -f "$SHM/ask/run.$number.pid" ] && end_one "$SHM/ask/run.$number.pid" ;;
        ended) status=$number; break ;;
        expired) cause=expired; status=124; break ;;
    esac
done
case $cause$status in
    judge255 | judge126 | judge127) # the container's own complaint: the judge never began
        [ -e "$DIR/out/heartbeat.json" ] || finish image "$status" 72
        ;;
esac
[ "$cause$status" = judge0 ] && finish judge 0 0
finish "$cause" "$status" 73
