#!/bin/sh
#SBATCH --account=a_yourgroup
#SBATCH --partition=gpu_cuda
#SBATCH --qos=gpu
#SBATCH --gres=gpu:a100:1
#SBATCH --exclude=n7,n8
#SBATCH --job-name=kb-abcdefghijklmnopqrstuvwxyz
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=8
#SBATCH --mem=65536M
#SBATCH --time=18
#SBATCH --chdir=/shared/attempts/kb-abcdefghijklmnopqrstuvwxyz
#SBATCH --output=/shared/attempts/kb-abcdefghijklmnopqrstuvwxyz/log
#SBATCH --open-mode=append
#SBATCH --no-requeue
#SBATCH --export=NIL

# This script is the attempt's supervisor. It claims, starts the judge, starts a fresh runner whenever the judge asks
# for one by a line in a FIFO, and leaves exit.json when nothing of it is left. It holds no secret and no user code.
# What the shell can do by itself starts no process: a node that runs short jobs does little else than start processes.
set -u
umask 077
# shellcheck disable=SC3045
ulimit -c 0 2>/dev/null
PATH=/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin
LC_ALL=C.UTF-8
export PATH LC_ALL
DIR=/shared/attempts/kb-abcdefghijklmnopqrstuvwxyz
EVAL=/shared/eval-0123456789abcdef
IMAGE=/scratch/project/kbslurm/images/cuda.sif
JOB=${SLURM_JOB_ID:-0}
NODE=${SLURMD_NODENAME:-$(uname -n)}
SHM=
SCRATCH=
WATCH=

say() { printf 'kbslurm: %s\n' "$*" >&2; }

# note FILE TEXT…: in one write; half a line or half an object, which a full disk leaves, is nothing to whoever reads it
note() {
    note_to=$1
    shift
    printf '%s\n' "$*" >"$note_to"
}

# put FILE TEXT…: the whole text under this name, or nothing
put() {
    put_to=$1
    shift
    printf '%s\n' "$*" >"$put_to.$JOB.tmp" && mv -f "$put_to.$JOB.tmp" "$put_to"
}

# dice: a word that nobody can guess
dice() {
    { read -r diced </proc/sys/kernel/random/uuid; } 2>/dev/null
    case ${diced-} in
        ????????-????-????-????-????????????) ;;
        *) diced=$(mktemp -u XXXXXXXXXXXXXXXXXXXX) && [ -n "$diced" ] ;;
    esac
}

# remove FOLDER…
remove() {
    rm -rf -- "$@" 2>/dev/null && return
    # a runner may have taken its own folders' rights away
    chmod -R u+rwX -- "$@" 2>/dev/null
    rm -rf -- "$@" 2>/dev/null && return
    # and whoever waits for one that was just ended writes its status still
    sleep 1
    rm -rf -- "$@" || say "can't remove $*"
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
    fi
    [ -z "$SHM$SCRATCH" ] || remove ${SHM:+"$SHM"} ${SCRATCH:+"$SCRATCH"}
}

# finish CAUSE STATUS EXIT [WHY]: end what is left, say how it ended, end. Of WHY only plain characters are told.
finish() {
    began=false
    [ -e "$DIR/out/heartbeat.json" ] && began=true
    end_all
    why=
    [ -n "${4-}" ] && why=$(printf %s "$4" | tr -cd '[:alnum:] ._:/=+,@%()-')
    say "ends: $1, status $2${why:+, $why}"
    put "$DIR/exit.json" "{\"cause\":\"$1\",\"status\":$2,\"began\":$began,\"why\":\"$why\",\"job\":\"$JOB\",\"node\":\"$NODE\"}"
    exit "$3"
}

# The claim: whoever makes this folder runs; everybody else, for ever, doesn't. That holds for this very job, too: one that
# Slurm requeued comes back under its old number, and what ran the first time may live on.
if mkdir "$DIR/claim"; then
    note "$DIR/claim/job" "$JOB" || exit 70
    note "$DIR/claim/owner.json" "{\"job\":\"$JOB\",\"node\":\"$NODE\"}" || exit 70
elif [ -d "$DIR/claim" ]; then
    owner=
    [ -f "$DIR/claim/job" ] && read -r owner <"$DIR/claim/job"
    if [ "$owner" = "$JOB" ]; then
        say "Slurm started job $JOB again (restart ${SLURM_RESTART_COUNT:-0}); its attempt was claimed before, so it ends"
        put "$DIR/restart-$JOB" "$NODE"
    else
        say "job $owner has claimed this attempt; job $JOB ends"
        put "$DIR/duplicate-$JOB" "$NODE"
    fi
    exit 0
else
    say "can't write to $DIR"
    exit 70
fi
trap 'finish term 143 76' TERM INT HUP
: "$DIR"/* # a look at the whole folder makes a network file system look anew
[ -e "$DIR/cancelled" ] && finish cancelled 0 75


[ -f "$EVAL/__main__.py" ] || finish setup 1 71 "the harness is not there"
# Everybody writes to these places: a name that nobody could guess, and a folder that is made here or not taken.
dice || finish setup 1 71 "no random name for shared memory"
SHM=/dev/shm/kb-$diced
mkdir -m 700 "$SHM" "$SHM/ask" "$SHM/link" "$SHM/home" ||
    { rmdir "$SHM"/* "$SHM" 2>/dev/null; SHM=; finish setup 1 71 "no shared memory"; }
note "$SHM/script" "$$" || finish setup 1 71 "shared memory is full"
# What a killed script of ours left on this node goes now: its process is gone, its shared memory isn't.
for left in /dev/shm/kb-*; do
    [ -f "$left/script" ] && [ -r "$left/script" ] && read -r left_pid <"$left/script" || continue
    kill -0 "$left_pid" 2>/dev/null || rm -rf -- "$left"
done
[ -n "${TMPDIR-}" ] || finish setup 1 71 "a variable of the path of the scratch folder is not set"
[ -d "${TMPDIR}" ] || mkdir -p "${TMPDIR}"
dice || finish setup 1 71 "no random name for scratch"
SCRATCH="${TMPDIR}"/kb-$JOB-$diced
mkdir -m 700 "$SCRATCH" "$SCRATCH/judge" "$SCRATCH/tmp" "$SCRATCH/room" ||
    { rmdir "$SCRATCH"/* "$SCRATCH" 2>/dev/null; SCRATCH=; finish setup 1 71 "no scratch can be made"; }
# A job that forgot its qos gets a node without a device: say so here instead of in the kernel's own error.
[ -e /dev/nvidiactl ] || { say "this node has no NVIDIA GPU"; finish setup 1 71; }
# Folders can be made on a disk that has no room for a single byte.
{ printf room >"$SCRATCH/tmp/.room"; } 2>/dev/null || finish setup 1 71 "the disk for scratch is full"
[ -e "$IMAGE" ] || finish image 1 72 "there is no image ${IMAGE##*/}"
command -v apptainer >/dev/null || finish image 1 72 "there is no container program"
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

# What will run is what the image is, not what somebody meant it to be: a digest over its bytes. It is taken once per node
# and remembered, where no submission can write, for as long as no inode, size or time of it changes; so is that this
# account can't read all of it (status 77).
SEEN="file"
[ -d "$IMAGE" ] && SEEN=tree
looks_of_image() {
    if [ "$SEEN" = tree ]; then
        looks=$(find -H "$IMAGE" -xdev -printf '%i %s %m %C@ %P\n' 2>/dev/null | sha256sum)
    else
        looks=$(stat -L -c '%d-%i-%s-%.9Y-%.9Z' "$IMAGE")
    fi
    looks=${looks%% *}
    [ -n "$looks" ] || KNOWN=
    looks=$SEEN-$looks
}

measured() {
    if [ "$SEEN" = tree ]; then
        apptainer --silent exec --containall --no-home --no-mount home,cwd,hostfs,bind-paths --no-eval --no-privs --net --network none --pwd / --bind "${EVAL}":/eval:ro --bind "${IMAGE}":/image:ro "${IMAGE}" python3 -I -B /eval --image-digest /image </dev/null
    else
        sha256sum <"$IMAGE" | sed 's/^/sha256:/; s/ .*//'
    fi
}

# What the lock beside the image says of it, as kbslurm image build and pull write it.
digest_beside() {
    written=
    beside=
    [ -r "${IMAGE%/*}/digests.lock" ] || return 0
    while IFS= read -r line; do
        case $line in
            "[images.\"${IMAGE##*/}\"]") beside=here ;;
            "["*) beside= ;;
            "digest = \""*) [ -n "$beside" ] && { line=${line#*\"}; written=${line%%\"*}; return 0; } ;;
        esac
    done <"${IMAGE%/*}/digests.lock"
}

me=
while read -r field me _; do
    [ "$field" = Uid: ] && break
done </proc/self/status
KNOWN=/dev/shm/.kb-images-$me
[ -e "$KNOWN" ] || mkdir -m 700 "$KNOWN" 2>/dev/null
[ "$(stat -c '%u %a %F' "$KNOWN" 2>/dev/null)" = "$me 700 directory" ] || KNOWN=
looks_of_image
DIGEST=
[ -n "$KNOWN" ] && [ -f "$KNOWN/$looks" ] && read -r DIGEST <"$KNOWN/$looks"
if [ -z "$DIGEST" ]; then
    DIGEST=$(measured 2>/dev/null)
    case $? in 0) ;; 77) DIGEST=unreadable ;; *) DIGEST= ;; esac
    # an image that changed meanwhile isn't remembered
    looked=$looks
    looks_of_image
    [ -n "$KNOWN" ] && [ -n "$DIGEST" ] && [ "$looks" = "$looked" ] && put "$KNOWN/$looks" "$DIGEST"
fi
[ "$DIGEST" = unreadable ] && DIGEST=
PINNED=''
[ -n "$PINNED" ] || { digest_beside; PINNED=$written; }
if [ -z "$DIGEST" ]; then # files in it that this account can't read: what is written down beside it has to do
    digest_beside
    DIGEST=$written
    SEEN=record
fi
[ -z "$PINNED" ] || [ "$PINNED" = "$DIGEST" ] ||
    finish image 1 72 "the image ${IMAGE##*/} is ${DIGEST:-unreadable} and ${PINNED} is pinned"

# All that a runner may write, its /tmp, /var/tmp and /dev/shm, is memory of a fixed size: a file system of its own in a
# mount namespace of its own, gone with it. Where a node doesn't let us make one (tried once per node and image), its
# scratch is the node's disk, and whoever takes more of that than is allowed is ended.
# Apptainer binds nothing below /dev to /dev/shm, so the place where it is mounted is elsewhere; only the runner sees it.
ROOM=$SCRATCH/room
[ -d "$ROOM" ] || mkdir -p "$ROOM"
# shellcheck disable=SC2016
ENTER='mount -t tmpfs -o size=1024m,nr_inodes=100k,mode=700,nosuid,nodev room "$1" && mkdir "$1/shm" && chmod 1777 "$1/shm" && shift && exec "$@"'
CAN=
[ -n "$KNOWN" ] && [ -f "$KNOWN/room-$looks" ] && read -r CAN <"$KNOWN/room-$looks"
if [ -z "$CAN" ]; then
    CAN=no
    unshare --user --map-current-user --keep-caps --mount sh -c "$ENTER" room "$ROOM" apptainer --silent exec --containall --no-home --no-mount home,cwd,hostfs,bind-paths --no-eval --no-privs --net --network none --nv --workdir "${ROOM}" --pwd /tmp --bind "${EVAL}":/eval:ro --bind "${ROOM}"/shm:/dev/shm:rw "${IMAGE}" python3 -I -c 'import os; raise SystemExit(any(s.f_blocks * s.f_frsize != 1073741824 for s in map(os.statvfs, ('"'"'/tmp'"'"', '"'"'/var/tmp'"'"', '"'"'/dev/shm'"'"'))))' </dev/null >/dev/null 2>&1 && CAN=yes
    [ -n "$KNOWN" ] && put "$KNOWN/room-$looks" "$CAN"
fi
case $CAN in
    yes) scratch="memory of 1024 MiB at most" ;;
    *) scratch="the node's disk, ended beyond 1024 MiB" ;;
esac

mkfifo -m 600 "$SHM/ask/ask" || finish setup 1 71 "no FIFO in shared memory"
exec 3<>"$SHM/ask/ask"
# Nobody reads this before the judge is started.
printf '%s\n' container=apptainer "image=$IMAGE" "image_digest=$DIGEST" "image_pinned=$PINNED" \
    "image_seen=$SEEN" "scratch=$scratch" >"$SHM/ask/facts" || finish setup 1 71
# The highest isolation is claimed where this node keeps it: a cgroup of the job's, no core but its own, no GPU but its own.
is_alone() {
    alone_group=
    while IFS= read -r alone_line; do
        case $alone_line in
            */job_"$JOB"/*) alone_group=found; break ;;
        esac
    done </proc/self/cgroup
    [ -n "$alone_group" ] || return 1
    alone_cores=$(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc) || return 1
    [ "$alone_cores" -le "${SLURM_CPUS_ON_NODE:-0}" ] || return 1
    alone_gpus=0
    for device in /dev/nvidia[0-9]*; do
        if (: <"$device") 2>/dev/null; then alone_gpus=$((alone_gpus + 1)); fi
    done
    [ "$alone_gpus" -le "${SLURM_GPUS_ON_NODE:-1}" ] || return 1
}
if is_alone; then
    printf 'exclusive=1\n' >>"$SHM/ask/facts"
else
    say "no cgroup of the job's own, or cores or GPUs of others in reach: isolation level 2 at most"
fi


# What a runner may write to the node's disk must be there: a submission would be blamed for what isn't.
if [ "$CAN" != yes ]; then
    free=$(df -k --output=avail "$SCRATCH" 2>/dev/null)
    free=${free##*[!0-9]}
    [ -z "$free" ] || [ "$free" -ge 1048576 ] ||
        finish setup 1 71 "the disk for scratch has less than 1024 MiB left"
fi

# The judge: it sees, stops, resumes and ends the runners, so it gets no PID namespace of its own.
(
    trap : TERM
    setsid apptainer --silent exec --contain --ipc --cleanenv --no-home --no-mount home,cwd,hostfs,bind-paths --no-eval --no-privs --net --network none --nv --workdir "${SCRATCH}"/judge --pwd / --bind "${EVAL}":/eval:ro --bind /shared/attempts/kb-abcdefghijklmnopqrstuvwxyz/manifest.json:/kb/manifest.json:ro --bind /shared/attempts/kb-abcdefghijklmnopqrstuvwxyz/key:/kb/key:ro --bind /shared/attempts/kb-abcdefghijklmnopqrstuvwxyz/out:/kb/out:rw --bind "${SHM}"/ask:/kb/ask:rw --bind "${SHM}"/link:/kb/link:rw "${IMAGE}" python3 -I /eval /kb/manifest.json --key /kb/key --out /kb/out --supervisor /kb/ask --link /kb/link </dev/null 3<&- &
    pid=$!
    note "$SHM/judge.pid" "$pid"
    wait "$pid"
    ended=$?
    kill -KILL -- "-$pid" 2>/dev/null
    printf 'ended %s\n' "$ended" >&3
) &

# Our own watchdog: Slurm's comes up to a minute late.
(
    early=
    trap 'early=yes' TERM # a job may be over before its sleep's number is known
    sleep 975 &
    nap=$!
    trap 'kill "$nap" 2>/dev/null; exit 0' TERM
    [ -z "$early" ] || { kill "$nap"; exit 0; }
    # a sleep that a signal ended isn't over: whoever signalled it means us all
    wait "$nap" && printf 'expired 0\n' >&3
) &
WATCH=$!

# A runner: in a container of its own, that shows it its link and the harness and nothing else of this node.
start_runner() {
    N=$1
    [ -d "$SHM/link/$N" ] || return 1
    [ -e "$SHM/ask/run.$N.pid" ] && return 0
    # what was built for this one; the judge has made it where something was
    [ -d "$SHM/link/$N.built" ] || mkdir "$SHM/link/$N.built" || return 1
    (
        trap : TERM
        if [ "$CAN" = yes ]; then
            setsid unshare --user --map-current-user --keep-caps --mount sh -c "$ENTER" room "$ROOM" apptainer --silent exec --containall --no-home --no-mount home,cwd,hostfs,bind-paths --no-eval --no-privs --net --network none --nv --workdir "${ROOM}" --pwd /tmp --bind "${EVAL}":/eval:ro --bind "${SHM}"/link/"${N}":/link:rw --bind "${SHM}"/link/"${N}".built:/built:ro --bind "${ROOM}"/shm:/dev/shm:rw "${IMAGE}" python3 -I -B /eval --runner /link </dev/null >"$SHM/ask/run.$N.err" 2>&1 3<&- &
        else
            mkdir -p "$SCRATCH/run.$N/shm" || { put "$SHM/ask/run.$N.status" 125; exit; }
            setsid apptainer --silent exec --containall --no-home --no-mount home,cwd,hostfs,bind-paths --no-eval --no-privs --net --network none --nv --workdir "${SCRATCH}"/run."${N}" --pwd /tmp --bind "${EVAL}":/eval:ro --bind "${SHM}"/link/"${N}":/link:rw --bind "${SHM}"/link/"${N}".built:/built:ro --bind "${SCRATCH}"/run."${N}"/shm:/dev/shm:rw "${IMAGE}" python3 -I -B /eval --runner /link </dev/null >"$SHM/ask/run.$N.err" 2>&1 3<&- &
        fi
        pid=$!
        put "$SHM/ask/run.$N.pid" "$pid"
        [ "$CAN" = yes ] || watch_scratch "$N" 3<&- &
        wait "$pid"
        ended=$?
        kill -KILL -- "-$pid" 2>/dev/null
        put "$SHM/ask/run.$N.status" "$ended"
    ) 2>/dev/null &
}

# What a runner has written to the node's disk, looked at as long as it lives.
watch_scratch() {
    while sleep 2 && [ -e "$SHM/ask/run.$1.pid" ] && [ ! -e "$SHM/ask/run.$1.status" ]; do
        used=$(du -sxk "$SCRATCH/run.$1" 2>/dev/null | cut -f 1)
        if [ "${used:-0}" -gt 1048576 ]; then
            put "$SHM/ask/run.$1.over" 1024
            end_one "$SHM/ask/run.$1.pid"
            return
        fi
    done
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
