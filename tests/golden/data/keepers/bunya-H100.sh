#!/bin/sh
#SBATCH --account=contest
#SBATCH --partition=gpu_cuda
#SBATCH --qos=gpu
#SBATCH --gres=gpu:h100:1
#SBATCH --job-name=kbk-abcdefghijklmnopqrstuvwxyz
#SBATCH --nodes=1 --ntasks=1 --cpus-per-task=8
#SBATCH --mem=65792M --time=240
#SBATCH --chdir=/shared/keepers/kbk-abcdefghijklmnopqrstuvwxyz
#SBATCH --output=/shared/keepers/kbk-abcdefghijklmnopqrstuvwxyz/log --open-mode=append
#SBATCH --no-requeue --export=NIL

# A keeper: it holds a GPU for a while, and attempts run in it as steps. docs/site-admin.md says when it goes.
umask 077
export PATH=/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin LC_ALL=C.UTF-8
DIR=/shared/keepers/kbk-abcdefghijklmnopqrstuvwxyz
EVAL=/shared/eval-0123456789abcdef
IMAGE=/scratch/project/kbslurm/images/cuda.sif
JOB=${SLURM_JOB_ID:-0} NODE=${SLURMD_NODENAME:-$(uname -n)}

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
SUPERVISOR=$(cat "$EVAL/keep.sh") || finish setup 1 71 "${EVAL##*/}/keep.sh is gone"
[ "$(printf '%s\n' "$SUPERVISOR" | sha256sum)" = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef  -" ] ||
    finish setup 1 71 "${EVAL##*/}/keep.sh was changed after this job was sent"
eval "$SUPERVISOR"
ATTEMPTS=/scratch/project/kbslurm/attempts
SRUN=srun STEP='--cpus-per-task=8 --mem=65536M --gres=gpu:h100:1' STEP_MB=65536
IDLE_S=300 LIFE_S=14400 ENDING_S=30 LAST_S=120
VENDOR=nvidia
keep
