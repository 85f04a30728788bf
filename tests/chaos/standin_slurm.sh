#!/bin/sh
# A Slurm that is a folder: what sbatch, srun, squeue, sacct, scancel and scontrol do for a job of ours, on this machine
# and at once. For storms of kills, which a real cluster takes minutes for; what Slurm itself does with keepers and steps
# is tried on the test cluster.
#
#   STANDIN             the folder; below it jobs/NUMBER/ with script, name, state, when, pid and steps/NUMBER
#   standin_slurm.sh TOOL ARGUMENT...
#
# What a job started bears STANDIN_JOB in its environment and is killed with it, as by a control group.
set -u
JOBS=$STANDIN/jobs
tool=$1
shift

# take_number FOLDER: NUMBER, whose folder is made there and is ours alone
take_number() {
    NUMBER=0
    [ ! -f "$1/next" ] || read -r NUMBER <"$1/next"
    until mkdir "$1/$NUMBER" 2>/dev/null; do NUMBER=$((NUMBER + 1)); done
    echo "$((NUMBER + 1))" >"$1/next"
}

# put FILE WORD: whole, for whoever reads it meanwhile
put() { printf '%s\n' "$2" >"$1.$$" && mv "$1.$$" "$1"; }

# asked_for SQUEUE'S OR SACCT'S ARGUMENTS: the numbers of the jobs that are asked for
asked_for() {
    while [ $# -gt 0 ]; do
        case $1 in
            --name=*) [ ! -f "$STANDIN/names/${1#--name=}" ] || cat "$STANDIN/names/${1#--name=}"; return ;;
            -j) echo "$2" | tr , '\n'; return ;;
        esac
        shift
    done
    for job in "$JOBS"/[0-9]*; do echo "${job##*/}"; done
}

is_running() { read -r state 2>/dev/null <"$JOBS/$1/state" && [ "$state" = RUNNING ]; }

kill_left() {
    # shellcheck disable=SC2013 # words of /proc hold no space
    for file in $(grep -lszxF -e "STANDIN_JOB=$JOBS/$1" /proc/[0-9]*/environ); do
        pid=${file%/environ}
        kill -KILL "${pid#/proc/}" 2>/dev/null
    done
}

case $tool in
    sbatch)
        for script in "$@"; do :; done
        take_number "$JOBS"
        job=$JOBS/$NUMBER
        mkdir "$job/steps"
        cp "$script" "$job/script"
        name=$(sed -n 's/^#SBATCH --job-name=//p' "$script")
        directory=$(sed -n 's/^#SBATCH --chdir=//p' "$script")
        date +%Y-%m-%dT%H:%M:%S >"$job/when"
        put "$job/name" "$name"
        put "$job/state" RUNNING
        echo "$NUMBER" >>"$STANDIN/names/$name"
        cd "$directory" || exit 1
        STANDIN=$STANDIN setsid /bin/sh "$0" run "$NUMBER" </dev/null >>log 2>&1 &
        echo "$NUMBER"
        ;;
    run)
        put "$JOBS/$1/pid" "$$"
        trap : TERM # the script's to heed
        env -i PATH="$PATH" STANDIN_JOB="$JOBS/$1" SLURM_JOB_ID="$1" SLURMD_NODENAME=n1 /bin/sh "$JOBS/$1/script" &
        script=$!
        while :; do
            wait "$script"
            status=$?
            kill -0 "$script" 2>/dev/null || break
        done
        kill_left "$1"
        kill_left "$1" # one that was being started is missed by a single look
        if [ -e "$JOBS/$1/cancelled" ]; then
            put "$JOBS/$1/state" CANCELLED
        elif [ "$status" = 0 ]; then
            put "$JOBS/$1/state" COMPLETED
        else
            put "$JOBS/$1/state" FAILED
        fi
        ;;
    srun)
        while [ $# -gt 2 ]; do
            case $1 in
                --export=*) passed=${1#--export=} ;;
                --output=*) output=${1#--output=} ;;
                --chdir=*) directory=${1#--chdir=} ;;
            esac
            shift
        done
        take_number "$JOBS/$SLURM_JOB_ID/steps"
        cd "$directory" || exit 1
        # shellcheck disable=SC2046 # a word for each variable
        env -i PATH="$PATH" $(echo "$passed" | tr , ' ') STANDIN_JOB="$STANDIN_JOB" SLURM_JOB_ID="$SLURM_JOB_ID" \
            SLURM_STEP_ID="$NUMBER" SLURMD_NODENAME=n1 setsid "$@" </dev/null >>"$output" 2>&1 &
        step=$!
        put "$JOBS/$SLURM_JOB_ID/steps/$NUMBER/pid" "$step"
        trap 'kill -s TERM -- "-$step" 2>/dev/null' TERM
        while :; do
            wait "$step"
            status=$?
            kill -0 "$step" 2>/dev/null || break
        done
        exit "$status"
        ;;
    squeue)
        case " $* " in
            *" -s "* | *"%u|"*) exit 0 ;; # no step is overdue here, and no job is anybody else's
        esac
        asked_for "$@" | while read -r number; do
            is_running "$number" || continue
            read -r name <"$JOBS/$number/name"
            read -r when <"$JOBS/$number/when"
            echo "$number|$name|RUNNING|$when|$when|n1|None"
        done
        ;;
    sacct)
        asked_for "$@" | while read -r number; do
            read -r state 2>/dev/null <"$JOBS/$number/state" || continue
            read -r name <"$JOBS/$number/name"
            read -r when <"$JOBS/$number/when"
            echo "$number|$name|$state|0:0|$when|$when|$when|n1|None"
        done
        ;;
    scancel)
        for which in "$@"; do
            case $which in
                --name=*) [ -f "$STANDIN/names/${which#--name=}" ] && read -r which <"$STANDIN/names/${which#--name=}" ;;
            esac
            is_running "${which%.*}" || continue
            case $which in
                *.*)
                    read -r pid <"$JOBS/${which%.*}/steps/${which#*.}/pid"
                    grep -qszxF -e "STANDIN_JOB=$JOBS/${which%.*}" "/proc/$pid/environ" || continue
                    ;;
                *)
                    : >"$JOBS/$which/cancelled"
                    read -r pid <"$JOBS/$which/pid"
                    ;;
            esac
            kill -s TERM -- "-$pid" 2>/dev/null
        done
        exit 0
        ;;
    scontrol)
        for which in "$@"; do :; done
        if [ -d "$JOBS/$which" ]; then
            read -r name <"$JOBS/$which/name"
            echo "JobId=$which JobName=$name"
        else
            echo 'slurm_load_jobs error: Invalid job id specified' >&2
            exit 1
        fi
        ;;
esac
