#!/bin/sh
#SBATCH --partition=gpu
#SBATCH --gres=gpu:a100:1
#SBATCH --exclude=n7,n8
#SBATCH --job-name=kb-abcdefghijklmnopqrstuvwxyz
#SBATCH --nodes=1 --ntasks=1 --cpus-per-task=8
#SBATCH --mem=65536M --time=18
#SBATCH --chdir=/shared/attempts/kb-abcdefghijklmnopqrstuvwxyz
#SBATCH --output=/shared/attempts/kb-abcdefghijklmnopqrstuvwxyz/log --open-mode=append
#SBATCH --no-requeue --export=NIL

# One attempt of a submission. It holds no secret and no user code; docs/site-admin.md says what it does.
umask 077
export PATH=/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin LC_ALL=C.UTF-8
DIR=/shared/attempts/kb-abcdefghijklmnopqrstuvwxyz
EVAL=/shared/eval-0123456789abcdef
IMAGE=/shared/images/cuda.sif
JOB=${SLURM_JOB_ID:-0}${KB_KEEPER:+.$SLURM_STEP_ID} NODE=${SLURMD_NODENAME:-$(uname -n)}

# The claim: whoever makes this folder runs; everybody else, for ever, doesn't. That holds for this very job, too: one
# that Slurm requeued comes back under its old number, and what ran the first time may live on.
if ! mkdir "$DIR/claim"; then
    [ -d "$DIR/claim" ] || exit 70
    [ -f "$DIR/claim/job" ] && read -r owner <"$DIR/claim/job"
    [ "${owner-}" = "$JOB" ] && left=restart || left=duplicate
    echo "kbslurm: job ${owner:-?} claimed this attempt before; job $JOB ends" >&2
    echo "$NODE" >"$DIR/$left-$JOB"
    exit 0
fi
echo "$JOB" >"$DIR/claim/job" && echo "{\"job\":\"$JOB\",\"node\":\"$NODE\"}" >"$DIR/claim/owner.json" || exit 70
finish() { # CAUSE STATUS EXIT WHY, until the supervisor brings its own
    echo "{\"cause\":\"$1\",\"status\":$2,\"why\":\"${4-}\",\"job\":\"$JOB\",\"node\":\"$NODE\"}" >"$DIR/exit.json"
    exit "$3"
}
trap 'finish term 143 76' TERM INT HUP

# The supervisor: what runs is what was read here, and only if it is what the service sent this job with.
SUPERVISOR=$(cat "$EVAL/supervise.sh") || finish setup 1 71 "${EVAL##*/}/supervise.sh is gone"
[ "$(printf '%s\n' "$SUPERVISOR" | sha256sum)" = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef  -" ] ||
    finish setup 1 71 "${EVAL##*/}/supervise.sh was changed after this job was sent"
eval "$SUPERVISOR"
LIMIT_S=975 SHM_ROOT=/dev/shm SCRATCH_MB=1024 SCRATCH_ROOT="${TMPDIR-}" SCRATCH_NEEDS=TMPDIR
RUNTIME=apptainer PYTHON=python3 VENDOR=nvidia GPU_OPTION=--nv WHOLE=yes
CONTAINER='apptainer --silent exec --no-home --no-mount home,cwd,hostfs,bind-paths --no-eval --no-privs --net --network none'
PINNED='' PROFILER='' PROFILE=''
set_up
supervise
