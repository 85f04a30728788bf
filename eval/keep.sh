# shellcheck shell=sh
# What a keeper does on its node: POSIX sh, the same bytes for every site. A keeper is a job of ours that holds one GPU and
# runs attempts in its allocation, one after another, each as a step of its own: with its own cores, memory, GPU and
# control group, its own container and its own supervisor. Its script makes its claim, reads this file, compares its
# digest, evaluates what it read and calls keep.
#
# What the job script tells it:
#   DIR JOB NODE        the keeper's own folder, the job's number, the node's name
#   ATTEMPTS            the folder of the attempts
#   SRUN STEP STEP_MB   the command, its options for a step (shell text), and the step's memory in MiB
#   IDLE_S LIFE_S       it ends itself after so long without work, and before its time limit
#   ENDING_S            beyond an attempt's own limit: what srun, supervisor and the end of a step take
#   LAST_S              with so little time left it is offered nothing any more
#   VENDOR IMAGE        nvidia or none; the image whose bytes are kept in the page cache
#
# Nobody connects to it and it listens nowhere. An attempt is handed over by a file below mail/, named like the attempt,
# that holds its time limit in seconds. Whoever moves it decides: the keeper to taken/, the service back to back/. One that
# was taken and couldn't be started is closed by taking its claim: it never runs then.
#
#   DIR/beat          what it says of itself, rewritten every few seconds
#   DIR/drain         written by the service: no more work
#   DIR/done/NAME     srun's status, once nothing of that attempt is left here
#   DIR/exit.json     why it left; it takes nothing after that
#
# It keeps no interpreter and no process between attempts: only the driver, open, and files in the page cache.
# Plain ASCII, since shells differ in what they make of anything else.

BEAT_S=2    # between attempts; during one every 5 s, since every process that is started disturbs what is measured
SERVED=0
BEATS=0
BEAT_AT=0
LEAVING=
STEP_PID=
WARMING=
FLOOR=

say() { printf 'kbslurm: %s\n' "$*" >&2; }

# clock: NOW, in seconds that only ever go on; no process is started for it
clock() {
    read -r NOW _ </proc/uptime
    NOW=${NOW%.*}
}

# beat BUSY: what it says of itself; in one write
beat() {
    BEATS=$((BEATS + 1))
    BEAT_AT=$NOW
    printf '{"beat":%d,"served":%d,"idle_s":%d,"busy":"%s"}\n' "$BEATS" "$SERVED" "$((NOW - QUIET))" "$1" >"$DIR/beat"
}

# plainly TEXT: only what can stand in a string of JSON
plainly() { printf %s "$1" | tr '\n' ' ' | tr -cd '[:alnum:] ._:/=+,@%()-' | cut -c -300; }

stop_warming() {
    [ -z "$WARMING" ] || kill -s TERM -- "-$WARMING" 2>/dev/null || kill -TERM "$WARMING" 2>/dev/null
    WARMING=
}

# finish CAUSE STATUS EXIT [WHY]: leave; the same four words as in an attempt's supervisor
finish() {
    trap '' TERM INT HUP
    [ -z "$STEP_PID" ] || kill -TERM "$STEP_PID" 2>/dev/null
    stop_warming
    why=$(plainly "${4-}")
    say "leaves: $1${why:+, $why}; it served $SERVED"
    printf '{"cause":"%s","status":%d,"began":true,"why":"%s","job":"%s","node":"%s","served":%d}\n' \
        "$1" "$2" "$why" "$JOB" "$NODE" "$SERVED" >"$DIR/exit.json"
    exit "$3"
}

# ---------------------------------------------------------------------------------------------------------- the device

# hold_device: the driver takes seconds to begin again for a GPU that nobody has open
hold_device() {
    [ "$VENDOR" = nvidia ] || return 0
    device=/dev/nvidia${SLURM_JOB_GPUS-}
    if [ -c "$device" ] && (: <>"$device") 2>/dev/null; then exec 9<>"$device"; fi
}

# look_at_device: PIDS that use the GPU, and the memory USED in MiB; false if nobody can say
look_at_device() {
    which=${CUDA_VISIBLE_DEVICES:-0}
    PIDS=$(nvidia-smi -i "$which" --query-compute-apps=pid --format=csv,noheader 2>/dev/null) || return 1
    USED=$(nvidia-smi -i "$which" --query-gpu=memory.used --format=csv,noheader,nounits 2>/dev/null) || return 1
    case $USED in '' | *[!0-9]*) return 1 ;; esac
}

# is_fit: whether the device is as it was at the beginning: nobody on it, its memory at its floor. UNFIT says why not.
is_fit() {
    UNFIT=
    [ "$VENDOR" = nvidia ] || return 0
    for look in 1 2 3; do
        if ! look_at_device; then
            UNFIT="the device can not be looked at with nvidia-smi"
        elif [ -n "$PIDS" ]; then
            UNFIT="a process is on the device: $(plainly "$PIDS")"
        elif [ "$USED" -gt "$((${FLOOR:-$USED} + 64))" ]; then
            UNFIT="$USED MiB of the device are in use where there were $FLOOR"
        else
            : "${FLOOR:=$USED}"
            return 0
        fi
        [ "$look" = 3 ] || sleep 0.5 # what has just ended may still be going
    done
    return 1
}

# warm_cache: the image, or of a directory torch's files, are read once and stay in the page cache. In a session of its
# own, so that whoever reads can be ended with all that it started: no run is measured beside it.
warm_cache() {
    if [ -f "$IMAGE" ]; then
        exec setsid cat "$IMAGE" >/dev/null
    elif [ -d "$IMAGE" ]; then
        exec setsid find "$IMAGE" -xdev -path '*/torch/*' -type f \( -name '*.so*' -o -name '*.py*' \) -exec cat {} + >/dev/null
    fi 2>/dev/null
}

# ----------------------------------------------------------------------------------------------------------- one attempt

# lives NAME: whether a process of that attempt is left on this node
lives() { grep -qszxF -e "KB_STEP=$1" /proc/[0-9]*/environ; }

# end_left NAME: end what a step left behind; false if it can't be ended
end_left() {
    for end_try in 1 2 3 4 5 6 7 8; do
        lives "$1" || return 0
        # shellcheck disable=SC2013 # words of /proc hold no space
        [ "$end_try" -lt 3 ] || for end_file in $(grep -lszxF -e "KB_STEP=$1" /proc/[0-9]*/environ); do
            end_pid=${end_file%/environ}
            kill -KILL "${end_pid#/proc/}" 2>/dev/null
        done
        sleep 0.5
    done
    return 1
}

# forbid NAME WHY: take its claim, so that it never starts. False: it has started.
forbid() {
    mkdir "$ATTEMPTS/$1/claim" 2>/dev/null || return 1
    say "$1 was not started: $2"
    printf '{"cause":"unstarted","status":0,"began":false,"why":"%s","job":"%s","node":"%s"}\n' \
        "$(plainly "$2")" "$JOB" "$NODE" >"$ATTEMPTS/$1/exit.json"
    printf '0\n' >"$DIR/done/$1"
}

# step NAME: become srun. What the step is given is what an attempt of a job of its own is given, no more.
step() {
    SLURM_MEM_PER_NODE=$STEP_MB
    export SLURM_MEM_PER_NODE
    eval "exec \"\$SRUN\" --exact --immediate=10 --nodes=1 --ntasks=1 $STEP --job-name=\"\$1\" --chdir=\"\$ATTEMPTS/\$1\"" \
        '--output="$ATTEMPTS/$1/log" --open-mode=append --export="KB_KEEPER=${DIR##*/},KB_STEP=$1" --kill-on-bad-exit=1' \
        '--quit-on-interrupt /bin/sh "$ATTEMPTS/$1/job.sh"'
}

# take NAME: false: the service took it back, or it can't be moved. A network file system that repeats a rename, since its
# answer was lost, says that it failed.
take() { mv "$DIR/mail/$1" "$DIR/taken/$1" 2>/dev/null || { [ ! -e "$DIR/mail/$1" ] && [ -e "$DIR/taken/$1" ]; }; }

# serve NAME: that attempt, which was taken, to its end
serve() {
    clock
    needs_s=
    read -r needs_s _ <"$DIR/taken/$1"
    case $needs_s in '' | *[!0-9]*) forbid "$1" "its mail can not be read"; return 0 ;; esac
    if [ "$((NOW + needs_s + ENDING_S))" -gt "$ENDS" ]; then
        forbid "$1" "its warm worker ends before $needs_s s are over"
        return 0
    fi
    is_fit || { forbid "$1" "$UNFIT"; finish unfit 1 0 "$UNFIT"; }
    stop_warming
    beat "$1"
    step "$1" </dev/null >/dev/null 2>"$DIR/srun.err" 9<&- &
    STEP_PID=$!
    (
        trap 'exit 0' TERM
        while sleep 5 && kill -0 "$$" 2>/dev/null; do
            clock
            beat "$1"
        done
    ) 9<&- &
    beater=$!
    while :; do # a signal ends a wait; and bash may know of the end before the first one
        wait "$STEP_PID"
        status=$?
        kill -0 "$STEP_PID" 2>/dev/null || break
    done
    STEP_PID=
    kill "$beater" 2>/dev/null
    [ -z "$LEAVING" ] || finish "$LEAVING" 143 0 "while an attempt ran"
    settle "$1" "$status"
}

# settle NAME STATUS: nothing of it is left, or this keeper is no good any more
settle() {
    SERVED=$((SERVED + 1))
    if [ ! -e "$ATTEMPTS/$1/exit.json" ]; then
        read -r said <"$DIR/srun.err" || said="srun ended with status $2"
        forbid "$1" "$said" && return 0
        # Only its srun may be gone: its supervisor still ends it at its limit, and says how it ended.
        settle_until=$((NOW + needs_s + ENDING_S))
        while lives "$1" && [ "$NOW" -lt "$settle_until" ] && [ -z "$LEAVING" ]; do
            beat "$1"
            sleep 1
            clock
        done
    fi
    if ! end_left "$1"; then
        UNFIT="processes of an attempt can not be ended"
    elif is_fit; then
        printf '%d\n' "$2" >"$DIR/done/$1"
        return 0
    fi
    printf '%d\n' "$2" >"$DIR/done/$1"
    finish unfit 1 0 "$UNFIT"
}

# ------------------------------------------------------------------------------------------------------------------ all

# first_mail: NEXT; a look at the whole folder makes a network file system look anew
first_mail() {
    NEXT=
    for mail in "$DIR"/mail/kb-*; do
        [ -e "$mail" ] || continue
        NEXT=${mail##*/}
        return 0
    done
    return 1
}

keep() {
    set -u
    clock
    QUIET=$NOW
    # What was asked for, or less by Slurm's word on when the job ends; in seconds of our clock. This node's may be late.
    ENDS=$((NOW + LIFE_S))
    case ${SLURM_JOB_END_TIME-} in
        '' | *[!0-9]*) ;;
        *) left_s=$((SLURM_JOB_END_TIME - $(date +%s))) && [ "$left_s" -ge "$LIFE_S" ] || ENDS=$((NOW + left_s)) ;;
    esac
    command -v "$SRUN" >/dev/null || SRUN=srun
    trap 'LEAVING=term; [ -z "$STEP_PID" ] || kill -TERM "$STEP_PID" 2>/dev/null' TERM INT HUP
    hold_device
    is_fit || finish unfit 1 0 "$UNFIT"
    warm_cache 9<&- &
    WARMING=$!
    beat ''
    while [ -z "$LEAVING" ]; do
        clock
        if [ -e "$DIR/drain" ]; then
            finish drained 0 0
        elif first_mail && take "$NEXT"; then
            serve "$NEXT"
            clock
            QUIET=$NOW
            beat ''
        elif [ "$((NOW - QUIET))" -ge "$IDLE_S" ]; then
            finish idle 0 0
        elif [ "$NOW" -ge "$((ENDS - LAST_S))" ]; then
            finish life 0 0
        else
            [ "$NOW" -lt "$((BEAT_AT + BEAT_S))" ] || beat ''
            # runs come in bursts, the next one mostly within a second, and each look starts a process
            nap=0.1
            [ "$((NOW - QUIET))" -ge 60 ] || nap=0.05
            [ "$((NOW - QUIET))" -ge 2 ] || nap=0.02
            sleep "$nap"
        fi
    done
    finish "$LEAVING" 143 0
}
