# shellcheck shell=sh
# The supervisor of one attempt on a Slurm node: POSIX sh, the same bytes for every attempt and every site. A job script
# makes the claim, reads this file, compares its digest and evaluates what it read. It then calls set_up and supervise,
# which start the judge, start a fresh runner whenever the judge asks for one by a line in a FIFO, and leave exit.json
# when nothing of it is left.
#
# What the job script tells it:
#   DIR EVAL                      the attempt's folder, the harness
#   JOB NODE                      the job's number, with the step's if it is one of a keeper; the node's name
#   LIMIT_S                       when the watchdog ends it all
#   SHM_ROOT SCRATCH_ROOT         where its folders are made: in memory, and on the node's disk if it has one
#   SCRATCH_NEEDS                 the variables of the job in that path
#   SCRATCH_MB                    all that one runner may write
#   RUNTIME CONTAINER             none, apptainer or singularity; how that is called, as shell text
#   IMAGE PINNED                  the image, and its digest where the site's file pins one
#   VENDOR GPU_OPTION WHOLE       nvidia, amd or none; the option that shows the GPU; whether the job asks for all of it
#   PROFILER PROFILE              the site's profiler, and the words before a runner's command that call it
#   PYTHON                        what runs the harness where there is no container
# and what it may be told:
#   MIN_ISOLATION                 the level below which nothing of a submission runs in a container
#   KNOWN_ROOT                    where what it finds out about images is remembered, if not below SHM_ROOT
#
# What the shell can do by itself starts no process: a node that runs short jobs does little else than start processes.
# Plain ASCII, since shells differ in what they make of anything else.

SHM=
SCRATCH=
WATCH=
MARK=

say() { printf 'kbslurm: %s\n' "$*" >&2; }

# note FILE TEXT...: in one write; half a line or half an object, which a full disk leaves, is nothing to its readers
note() {
    note_to=$1
    shift
    printf '%s\n' "$*" >"$note_to"
}

# put FILE TEXT...: the whole text under this name, or nothing
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

# remove FOLDER...: whether they are gone
remove() {
    rm -rf -- "$@" 2>/dev/null && return
    # a runner may have taken its own folders' rights away
    chmod -R u+rwX -- "$@" 2>/dev/null
    rm -rf -- "$@" 2>/dev/null && return
    # and whoever waits for one that was just ended writes its status still
    sleep 1
    rm -rf -- "$@" || { say "can't remove $*"; return 1; }
}

# sweep: remove what a killed script of ours left on this node: its process is gone, its shared memory isn't. Everybody
# writes there: only what is ours is looked into, and however much there is, each step has a few seconds of a processor.
sweep() (
    # shellcheck disable=SC3045
    ulimit -t 5 && ulimit -v 1000000
    for left in "$SHM_ROOT"/kb-*; do
        # shellcheck disable=SC3067
        { [ -O "$left" ] && [ ! -L "$left" ] && [ -f "$left/script" ] && read -r left_pid <"$left/script"; } || continue
        kill -0 "$left_pid" || remove "$left" || break
    done
) 2>/dev/null

# Every runner and the judge lead a session of their own: what they started is ended with them. Who has ended already
# is left alone: its number may be that of another job's process by now. (dash knows no `kill -KILL --`.)
end_one() {
    [ -e "${1%.pid}.status" ] && return 0
    read -r end_pid <"$1" || return 0
    case $end_pid in '' | *[!0-9]* | 0 | 1) return 0 ;; esac
    kill -s KILL -- "-$end_pid" 2>/dev/null || kill -KILL "$end_pid" 2>/dev/null
}

# No container holds them together, only what they inherited: whoever bears this attempt's name is ended.
end_marked() {
    # shellcheck disable=SC2013 # words of /proc hold no space
    for end_file in $(KB_ATTEMPT='' grep -lszxF -e "$MARK" /proc/[0-9]*/environ); do
        end_pid=${end_file%/environ}
        kill -KILL "${end_pid#/proc/}" 2>/dev/null
    done
}

end_all() {
    trap '' TERM INT HUP
    # Only folders of ours: a cluster's modules set SCRATCH to the account's own, and that must never be removed.
    case ${SHM##*/} in kb-*) ;; *) SHM= ;; esac
    case ${SCRATCH##*/} in "kb-$JOB-"*) ;; *) SCRATCH= ;; esac
    for end_pid in ${WATCH:+"$WATCH"}; do
        kill -TERM "$end_pid" 2>/dev/null
    done
    if [ -n "$SHM" ]; then
        for end_file in "$SHM"/ask/run.*.pid "$SHM"/judge.pid; do
            [ -f "$end_file" ] && end_one "$end_file"
        done
    fi
    # twice: one that is being started is missed by a single look
    [ -z "$MARK" ] || { end_marked; end_marked; }
    [ -z "$SHM$SCRATCH" ] || remove ${SHM:+"$SHM"} ${SCRATCH:+"$SCRATCH"}
}

# finish CAUSE STATUS EXIT [WHY]: end what is left, say how it ended, end. Of WHY only plain characters are told.
finish() {
    began=false
    [ -e "$DIR/out/heartbeat.json" ] && began=true
    # whether the judge was looking at an answer when it ended; it takes this file away with its report
    checking=false
    [ -f "$DIR/out/checking" ] && read -r looked <"$DIR/out/checking" && [ "$looked" = 1 ] && checking=true
    # What is left may take longer to end than Slurm waits. That it was told to end before it was over is said at once;
    # the judge is told so, too, and its end may be seen first.
    case $1$2 in term* | judge143) note "$DIR/claim/told_to_end" 1 ;; esac
    end_all
    why=
    [ -n "${4-}" ] && why=$(printf %s "$4" | tr -cd '[:alnum:] ._:/=+,@%()-')
    say "ends: $1, status $2${why:+, $why}"
    note "$DIR/exit.json" \
        "{\"cause\":\"$1\",\"status\":$2,\"began\":$began,\"checking\":$checking,\"why\":\"$why\",\"job\":\"$JOB\"," \
        "\"node\":\"$NODE\"}"
    exit "$3"
}

# set_up: the folders. What else must hold on this node is the site's to look at, once they are there.
set_up() {
    SHM='' SCRATCH='' WATCH='' MARK=''
    set -u
    # Not the hard one too: the harness allows one byte (`forbid_cores` says why), which who isn't root can't then.
    # shellcheck disable=SC3045
    ulimit -S -c 0 2>/dev/null
    [ -f "$EVAL/__main__.py" ] || finish setup 1 71 "the harness is not there"
    # A job that is killed for its memory use is only to blame if Slurm gave it what was requested.
    [ -z "${SLURM_MEM_PER_NODE-}" ] || note "$DIR/claim/granted_mb" "$SLURM_MEM_PER_NODE"
    sweep
    # Everybody writes to these places: a name that nobody could guess, and a folder that is made here or not taken.
    dice || finish setup 1 71 "no random name for shared memory"
    SHM=$SHM_ROOT/kb-$diced
    mkdir -m 700 "$SHM" "$SHM/ask" "$SHM/link" "$SHM/home" ||
        { rmdir "$SHM"/* "$SHM" 2>/dev/null; SHM=; finish setup 1 71 "no shared memory"; }
    note "$SHM/script" "$$" || finish setup 1 71 "shared memory is full"
    [ -n "$SCRATCH_ROOT$SCRATCH_NEEDS" ] || return 0
    for name in $SCRATCH_NEEDS; do
        eval "[ -n \"\${$name-}\" ]" || finish setup 1 71 "a variable of the path of the scratch folder is not set"
    done
    [ -d "$SCRATCH_ROOT" ] || mkdir -p "$SCRATCH_ROOT"
    dice || finish setup 1 71 "no random name for scratch"
    SCRATCH=$SCRATCH_ROOT/kb-$JOB-$diced
    mkdir -m 700 "$SCRATCH" "$SCRATCH/judge" "$SCRATCH/tmp" "$SCRATCH/room" ||
        { rmdir "$SCRATCH"/* "$SCRATCH" 2>/dev/null; SCRATCH=; finish setup 1 71 "no scratch can be made"; }
}

# ------------------------------------------------------------------------------------------------------- the containers

# contained HOW OPTION... IMAGE COMMAND...: become the container program. HOW and CONTAINER are shell text.
contained() {
    contained_how=$1
    shift
    eval "exec $contained_how $CONTAINER \"\$@\""
}

is_program() { command -v "$1" >/dev/null; }

# can_contain: whether there is an image and a program; what that program wants to know
can_contain() {
    [ -e "$IMAGE" ] || finish image 1 72 "there is no image ${IMAGE##*/}"
    eval "is_program $CONTAINER" || finish image 1 72 "there is no container program"
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
    [ -n "$SCRATCH" ] || return 0
    APPTAINER_TMPDIR=$SCRATCH/tmp
    SINGULARITY_TMPDIR=$SCRATCH/tmp
    export APPTAINER_TMPDIR SINGULARITY_TMPDIR
}

# is_ours FOLDER: whether it is one, and this account's
# shellcheck disable=SC3067
is_ours() { [ -O "$1" ] && [ -d "$1" ] && [ ! -L "$1" ]; }

# known_in PLACE: KNOWN, our folder there, made if there is none, or nothing. Everybody may write to such a place: whoever
# takes its name has us take another, which nobody can guess and which is found again by its owner.
known_in() {
    KNOWN=$1/.kb-images-$me
    is_ours "$KNOWN" && return
    [ -e "$KNOWN" ] || [ -L "$KNOWN" ] || { mkdir -m 700 "$KNOWN" 2>/dev/null && return; }
    # where somebody has left more names than a second is enough for, none is added to them
    # shellcheck disable=SC3045
    KNOWN=$(
        ulimit -t 1 && ulimit -v 1000000
        for known in "$1/.kb-images-$me-"*; do
            is_ours "$known" && { printf %s "$known"; exit 0; }
        done
        exit 0
    ) 2>/dev/null || { KNOWN=; return; }
    [ -z "$KNOWN" ] || return
    dice && KNOWN=$1/.kb-images-$me-$diced && mkdir -m 700 "$KNOWN" 2>/dev/null || KNOWN=
}

# What will run is what the image is, not what somebody meant it to be: a digest over its bytes. It is taken once per
# node and remembered, where no submission can write, for as long as no inode, size or time of it changes; so is that
# this account can't read all of it (status 77).
# looks_of_image: by one look at that folder, which must be ours alone, and at the image, behind a link or not
looks_of_image() {
    if [ "$SEEN" = tree ]; then
        # b2sum starts in less than half of sha256sum's time where that one loads OpenSSL
        command -v b2sum >/dev/null && summed=b2sum || summed=sha256sum
        looks=$(find "$KNOWN" "$IMAGE/." -xdev -path "$KNOWN" -prune -printf '%U %m %y:\n' -o \
            -printf '%i %s %m %C@ %P\n' 2>/dev/null | { read -r whose; printf %s "$whose"; exec "$summed"; })
    elif [ -L "$IMAGE" ]; then
        looks=$(stat --printf='%u %a %F:' "$KNOWN" 2>/dev/null; stat -L -c '%d-%i-%s-%.9Y-%.9Z' "$IMAGE")
    else
        looks=$(stat -c '%u %a %F:%d-%i-%s-%.9Y-%.9Z' "$KNOWN" "$IMAGE" 2>/dev/null)
    fi
    case $looks in "$me 700 d:"* | "$me 700 directory:"*) ;; *) KNOWN= ;; esac
    looks=${looks##*:}
    looks=${looks%% *}
    [ -n "$looks" ] || KNOWN=
    looks=$SEEN-$looks
}

measured() {
    if [ "$SEEN" = tree ]; then
        contained '' --containall --pwd / --bind "$EVAL:/eval:ro" --bind "$IMAGE:/image:ro" \
            "$IMAGE" python3 -I -B /eval --image-digest /image </dev/null
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

# identify_image: DIGEST, PINNED and how it was SEEN; one that isn't what is pinned never runs
identify_image() {
    SEEN="file"
    [ -d "$IMAGE" ] && SEEN=tree
    me=
    while read -r field me _; do
        [ "$field" = Uid: ] && break
    done </proc/self/status
    : "${KNOWN_ROOT:=$SHM_ROOT}"
    KNOWN=
    # A job's /dev/shm may be its own (job_container/tmpfs) and gone with it: what is remembered would be lost each time.
    if [ "$KNOWN_ROOT" = /dev/shm ] && ! is_ours "/dev/shm/.kb-images-$me"; then
        known_in /var/tmp
    fi
    [ -n "$KNOWN" ] || known_in "$KNOWN_ROOT"
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
    [ -n "$PINNED" ] || { digest_beside; PINNED=$written; }
    if [ -z "$DIGEST" ]; then # files in it that this account can't read: what is written down beside it has to do
        digest_beside
        DIGEST=$written
        SEEN=record
    fi
    [ -z "$PINNED" ] || [ "$PINNED" = "$DIGEST" ] ||
        finish image 1 72 "the image ${IMAGE##*/} is ${DIGEST:-unreadable} and ${PINNED} is pinned"
}

# All that a runner may write, its /tmp, /var/tmp and /dev/shm, is memory of a fixed size: a file system of its own in a
# mount namespace of its own, gone with it. Where a node doesn't let us make one (tried once per node and image), its
# scratch is the node's disk, and whoever takes more of that than is allowed is ended.
# Apptainer binds nothing below /dev to /dev/shm, so it is mounted elsewhere; only the runner sees it.
# shellcheck disable=SC2016
IN_ROOM='unshare --user --map-current-user --keep-caps --mount sh -c "$ENTER" room "$ROOM"'
LOOK='import os, sys; sizes = {s.f_blocks * s.f_frsize for s in map(os.statvfs, ("/tmp", "/var/tmp", "/dev/shm"))}; '
LOOK="$LOOK"'raise SystemExit(sizes != {int(sys.argv[1]) << 20})'

# find_room: CAN, whether such a file system can be made here, and ROOM, where; CLEARS, whether the node's disk is a
# runner's scratch instead, and has to be cleared when it has ended
find_room() {
    ROOM=$DIR/scratch
    [ -z "$SCRATCH" ] || ROOM=$SCRATCH/room
    [ -d "$ROOM" ] || mkdir -p "$ROOM"
    # shellcheck disable=SC2016,SC2034 # IN_ROOM uses it
    ENTER="mount -t tmpfs -o size=${SCRATCH_MB}m,nr_inodes=100k,mode=700,nosuid,nodev"' room "$1" && mkdir "$1/shm" &&
        chmod 1777 "$1/shm" && shift && exec "$@"'
    CAN=
    [ -n "$KNOWN" ] && [ -f "$KNOWN/room-$looks" ] && read -r CAN <"$KNOWN/room-$looks"
    if [ -z "$CAN" ]; then
        CAN=no
        (
            contained "$IN_ROOM" ${GPU_OPTION:+"$GPU_OPTION"} --containall --workdir "$ROOM" --pwd /tmp \
                --bind "$EVAL:/eval:ro" --bind "$ROOM/shm:/dev/shm:rw" \
                "$IMAGE" python3 -I -c "$LOOK" "$SCRATCH_MB"
        ) </dev/null >/dev/null 2>&1 && CAN=yes
        [ -n "$KNOWN" ] && put "$KNOWN/room-$looks" "$CAN"
    fi
    CLEARS=
    if [ "$CAN" = yes ]; then
        scratch="memory of $SCRATCH_MB MiB at most"
    elif [ -n "$SCRATCH" ]; then
        scratch="the node's disk, ended beyond $SCRATCH_MB MiB"
        CLEARS=1
        # What a runner may write to the node's disk must be there: a submission would be blamed for what isn't.
        free=$(df -k --output=avail "$SCRATCH" 2>/dev/null)
        free=${free##*[!0-9]}
        [ -z "$free" ] || [ "$free" -ge $((SCRATCH_MB * 1024)) ] ||
            finish setup 1 71 "the disk for scratch has less than $SCRATCH_MB MiB left"
    else
        scratch="as large as the container program makes it"
    fi
}

# is_alone: whether this node keeps the job apart: a cgroup of its own, no core but its own, no GPU but its own
is_alone() {
    alone_group=
    while IFS= read -r alone_line; do
        case $alone_line in
            */job_"${JOB%.*}"/*) alone_group=found; break ;;
        esac
    done </proc/self/cgroup
    [ -n "$alone_group" ] || return 1
    alone_cores=$(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc) || return 1
    [ "$alone_cores" -le "${SLURM_CPUS_ON_NODE:-0}" ] || return 1
    case $VENDOR in
        nvidia) set -- /dev/nvidia[0-9]* ;;
        amd) set -- /dev/dri/renderD[0-9]* ;;
        *) return 0 ;;
    esac
    alone_gpus=0
    for device in "$@"; do
        if (: <"$device") 2>/dev/null; then alone_gpus=$((alone_gpus + 1)); fi
    done
    [ "$alone_gpus" -le "${SLURM_GPUS_ON_NODE:-1}" ]
}

# tell_facts: what the judge is told of this node. Nobody reads it before the judge is started.
tell_facts() {
    printf '%s\n' "container=$RUNTIME" looks=1 "image=$IMAGE" "image_digest=$DIGEST" "image_pinned=$PINNED" \
        "image_seen=$SEEN" "scratch=$scratch" ${CLEARS:+clears=1} ${PROFILER:+"profiler=$PROFILER"} \
        >"$SHM/ask/facts" || finish setup 1 71
    [ -n "$WHOLE" ] || return 0
    # The highest isolation is claimed where this node keeps it.
    if is_alone; then
        printf 'exclusive=1\n' >>"$SHM/ask/facts"
    else
        say "no cgroup of the job's own, or cores or GPUs of others in reach: isolation level 2 at most"
    fi
}

# ---------------------------------------------------------------------------------------------------- judge and runners

# judge: become it. It sees, stops, resumes and ends the runners, so it gets no PID namespace of its own.
judge() {
    if [ "$RUNTIME" = none ]; then
        exec setsid "$PYTHON" -I "$EVAL" "$DIR/manifest.json" --key "$DIR/key" --out "$DIR/out"
    fi
    contained setsid ${GPU_OPTION:+"$GPU_OPTION"} --contain --ipc --cleanenv \
        ${SCRATCH:+--workdir "$SCRATCH/judge"} --pwd / --bind "$EVAL:/eval:ro" \
        --bind "$DIR/manifest.json:/kb/manifest.json:ro" --bind "$DIR/key:/kb/key:ro" --bind "$DIR/out:/kb/out:rw" \
        --bind "$SHM/ask:/kb/ask:rw" --bind "$SHM/link:/kb/link:rw" \
        "$IMAGE" python3 -I /eval /kb/manifest.json --key /kb/key --out /kb/out --supervisor /kb/ask --link /kb/link \
        ${MIN_ISOLATION:+--min-isolation "$MIN_ISOLATION"}
}

start_judge() {
    (
        trap : TERM
        judge </dev/null 3<&- &
        pid=$!
        note "$SHM/judge.pid" "$pid"
        wait "$pid"
        ended=$?
        kill -s KILL -- "-$pid" 2>/dev/null
        printf 'ended %s\n' "$ended" >&3
    ) &
}

# Our own watchdog: Slurm's comes up to a minute late.
start_watchdog() {
    (
        early=
        trap 'early=yes' TERM # a job may be over before its sleep's number is known
        sleep "$LIMIT_S" &
        nap=$!
        trap 'kill "$nap" 2>/dev/null; exit 0' TERM
        [ -z "$early" ] || { kill "$nap"; exit 0; }
        # a sleep that a signal ended isn't over: whoever signalled it means us all
        wait "$nap" && printf 'expired 0\n' >&3
    ) &
    WATCH=$!
}

# runner N HOW FOLDER WORD...: become it, in a container of its own that shows it its link and the harness and nothing
# else of this node. All that it may write is in FOLDER, or where the container program puts it; WORDs are a profiler's.
runner() {
    runner_link=$SHM/link/$1 runner_how=$2 runner_room=$3
    shift 3
    contained "$runner_how" ${GPU_OPTION:+"$GPU_OPTION"} --containall \
        ${runner_room:+--workdir "$runner_room"} --pwd /tmp \
        --bind "$EVAL:/eval:ro" --bind "$runner_link:/link:rw" --bind "$runner_link.built:/built:ro" \
        ${runner_room:+--bind "$runner_room/shm:/dev/shm:rw"} \
        "$IMAGE" "$@" python3 -I -B /eval --runner /link
}

# kernel_had_no_memory: whether the kernel ended a process of this job's control group for the group's memory use. It takes
# the largest one, and the judge lives on; without this it sees no more than a signal.
kernel_had_no_memory() {
    while IFS=: read -r _ kind group; do
        case ,$kind, in
            *,memory,*) counts=/sys/fs/cgroup/memory$group/memory.oom_control ;;
            ,,) counts=/sys/fs/cgroup$group/memory.events ;;
            *) continue ;;
        esac
        [ -r "$counts" ] || continue
        while read -r what count; do
            [ "$what" = oom_kill ] && [ "$count" -gt 0 ] && return 0
        done <"$counts"
    done </proc/self/cgroup
    return 1
}

# start_runner N WORD...: with a profiler's words around it a runner is timed for nobody
start_runner() {
    N=$1
    [ -d "$SHM/link/$N" ] || return 1
    [ -e "$SHM/ask/run.$N.pid" ] && return 0
    # what was built for this one; the judge has made it where something was
    [ -d "$SHM/link/$N.built" ] || mkdir "$SHM/link/$N.built" || return 1
    shift
    (
        trap : TERM
        how=setsid room=
        if [ "$CAN" = yes ]; then
            how="setsid $IN_ROOM" room=$ROOM
        elif [ -n "$CLEARS" ]; then
            room=$SCRATCH/run.$N
            mkdir -p "$room/shm" || { put "$SHM/ask/run.$N.status" 125; exit; }
        fi
        runner "$N" "$how" "$room" "$@" </dev/null >"$SHM/ask/run.$N.err" 2>&1 3<&- &
        pid=$!
        put "$SHM/ask/run.$N.pid" "$pid"
        [ -z "$CLEARS" ] || watch_scratch "$N" 3<&- &
        wait "$pid"
        ended=$?
        kill -s KILL -- "-$pid" 2>/dev/null
        if [ "$ended" = 137 ] && kernel_had_no_memory; then
            note "$DIR/claim/no_memory" 1
            put "$SHM/ask/run.$N.memory" 1
        fi
        put "$SHM/ask/run.$N.status" "$ended"
        [ -z "$CLEARS" ] || { remove "$room"; put "$SHM/ask/run.$N.cleared" 1; }
    ) 2>/dev/null &
}

# watch_scratch N: what that runner has written to the node's disk, looked at as long as it lives
watch_scratch() {
    while sleep 2 && [ -e "$SHM/ask/run.$1.pid" ] && [ ! -e "$SHM/ask/run.$1.status" ]; do
        used=$(du -sxk "$SCRATCH/run.$1" 2>/dev/null | cut -f 1)
        if [ "${used:-0}" -gt $((SCRATCH_MB * 1024)) ]; then
            put "$SHM/ask/run.$1.over" "$SCRATCH_MB"
            end_one "$SHM/ask/run.$1.pid"
            return
        fi
    done
}

# look N: what processes of that runner have open, which the judge names in look.N. Their container is beside its own, so
# that the kernel doesn't let it see that; here is above both. It waits for the answer, and so does all else.
look() {
    { read -r look_to look_word look_at <"$SHM/ask/look.$1"; } 2>/dev/null || return 0
    case $look_word in lock | scm_fds | tfd | pipe | Pss) ;; *) return 0 ;; esac
    case ${look_to#seen.} in '' | *[!0-9.]*) return 0 ;; esac
    case $look_at in *[!a-z0-9_/\ ]*) return 0 ;; esac
    (
        cd /proc || exit
        for look_place in $look_at; do
            [ ! -e "${look_place%%/*}/ns/mnt" ] || echo "${look_place%%/*}:"
        done
        # shellcheck disable=SC3045
        ulimit -f 16384 && ulimit -t 5 # as long as that takes on a busy node
        # shellcheck disable=SC2086 # words of /proc hold no space
        case $look_word in
            pipe) timeout --foreground 15 find $look_at -lname 'pipe:*' -printf '%p:%l\n' ;;
            tfd) timeout --foreground 15 grep -rsHc -e '^tfd:' -- $look_at ;;
            *) timeout --foreground 15 grep -rsH -e "^$look_word:" -- $look_at ;;
        esac
    ) >"$SHM/look.tmp" 2>/dev/null 3<&-
    echo "end $?" >>"$SHM/look.tmp"
    mv -f "$SHM/look.tmp" "$SHM/ask/seen.${look_to#seen.}"
}

# obey WHAT NUMBER: a line that the judge wrote about a runner
obey() {
    [ "$RUNTIME" != none ] || return 0
    # shellcheck disable=SC2086,SC2153 # none of a profiler's words needs quoting
    case $1 in
        run) start_runner "$2" || put "$SHM/ask/run.$2.status" 125 ;;
        prof) [ -z "$PROFILER" ] || start_runner "$2" $PROFILE || put "$SHM/ask/run.$2.status" 125 ;;
        look) look "$2" ;;
        stop) [ -f "$SHM/ask/run.$2.pid" ] && end_one "$SHM/ask/run.$2.pid" ;;
    esac
}

# supervise: all of it, to the end
supervise() {
    # Folders can be made on a disk that has no room for a single byte.
    [ -z "$SCRATCH" ] || { printf room >"$SCRATCH/tmp/.room"; } 2>/dev/null ||
        finish setup 1 71 "the disk for scratch is full"
    mkfifo -m 600 "$SHM/ask/ask" & # while the image is looked at
    fifo=$!
    if [ "$RUNTIME" != none ]; then
        can_contain
        identify_image
        find_room
    else
        KB_ATTEMPT=${DIR##*/}
        MARK=KB_ATTEMPT=$KB_ATTEMPT
        export KB_ATTEMPT
    fi
    wait "$fifo" || finish setup 1 71 "no FIFO in shared memory"
    exec 3<>"$SHM/ask/ask"
    [ "$RUNTIME" = none ] || tell_facts
    start_judge
    start_watchdog
    cause=judge
    status=1
    while read -r what number _ <&3; do
        case $number in
            *[!0-9]*) continue ;;
        esac
        case $what in
            ended) status=$number; break ;;
            expired) cause=expired; status=124; break ;;
            *) obey "$what" "$number" ;;
        esac
    done
    case $RUNTIME$cause$status in
        none*) ;;
        *judge255 | *judge126 | *judge127) # the container's own complaint: the judge never began
            [ -e "$DIR/out/heartbeat.json" ] || finish image "$status" 72
            ;;
    esac
    [ "$cause$status" = judge0 ] && finish judge 0 0
    finish "$cause" "$status" 73
}

: "$DIR"/* # a look at the whole folder makes a network file system look anew
[ ! -e "$DIR/cancelled" ] || finish cancelled 0 75
