"""The job script and its supervisor, run by sh with a stand-in for the container program: what they say and leave."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kbslurm.config import shared_folders, sites
from kbslurm.domain.run import JobName
from kbslurm.flow.script import SUPERVISOR, script_for, supervisor_digest
from kbslurm.images import pins
from kbslurm_eval.shared.image_digest import UNREADABLE
from tests.contract.backend_suite import is_alive

NOBODY = 65534
LIMIT_S = 4000 + os.getpid() % 4000  # its watchdog is found by it, among those of other sessions on this machine
NOW = datetime(2026, 11, 22, tzinfo=UTC)
SITE = """\
name = "standins"
{site}
[paths]
shared_root = "{root}"
shm = "{root}/shm"
{scratch}
[container]
program = "{root}/apptainer"
{container}
[gpus.T4]
request = "--gres=gpu:1"
vendor = "{vendor}"
image = "{root}/image"
{more}
"""
USUAL = {"site": "", "scratch": "", "container": "", "vendor": "none", "more": ""}
# Told by its binds whether it is the judge or a runner.
PROGRAM = """\
#!/bin/sh
printf '%s\\n' ARGV "$0" "$@" >>ROOT/argv
for word in "$@"; do
    case $word in
        */ask:/kb/ask:rw) SHM=${word%/ask:/kb/ask:rw} ;;
        */link/1:/link:rw) LINK=${word%:/link:rw} ;;
        --image-digest)
            echo looked >>ROOT/measured
            [ ! -e ROOT/says ] || exit "$(cat ROOT/says)"
            echo tree:measured
            exit 0
            ;;
        *statvfs*) [ -e ROOT/roomy ]; exit ;;
    esac
done
cd / || exit 1
if [ -n "${LINK-}" ]; then
    . ROOT/runner
    exit 0
fi
cp "$SHM/ask/facts" ROOT/facts
: >ROOT/attempt/out/heartbeat.json
. ROOT/judge
"""


@dataclass
class Rig:
    """A folder of somebody without rights, with a stand-in's judge and runner as shell text."""

    root: Path
    foreign: set[Path] = field(default_factory=set)

    def run(self, judge: str, runner: str = "", *, path: str = "", **told: str) -> dict[str, object]:
        """Run the script to its end, its programs taken from `path` first; its exit.json. `told`: lines for the site's
        file by the place where they stand (see SITE), and variables of the job."""
        file = self.root / "site.toml"
        lines = {place: told.pop(place, usual) for place, usual in USUAL.items()}
        file.write_text(SITE.format(root=self.root, **lines))
        directory = self.root / "attempt"
        text = script_for(
            sites.load(file),
            name=JobName("kb-abc"),
            gpu="T4",
            directory=directory,
            harness=self.root / "eval",
            supervisor=supervisor_digest(shared_folders.eval_dir()),
            time_limit_s=LIMIT_S,
            memory_bytes=1 << 30,
            templates=shared_folders.path("sbatch_templates"),
        )
        text = text.replace(" PATH=", f" PATH={path}:" if path else " PATH=", 1)
        for name, said in (("judge", judge), ("runner", runner), ("script", text)):
            (self.root / name).write_text(said)
        (self.root / "apptainer").write_text(PROGRAM.replace("ROOT", str(self.root)))
        (self.root / "apptainer").chmod(0o755)
        for folder in (self.root, *self.root.rglob("*")):
            # what is somebody's already stays as it is: a change would change the image's looks
            if os.getuid() == 0 and folder.lstat().st_uid != NOBODY and folder not in self.foreign:
                os.chown(folder, NOBODY, NOBODY, follow_symlinks=False)
        who = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.getuid() == 0 else {}
        subprocess.run(
            ["sh", str(self.root / "script")],
            cwd="/",
            env={"PATH": os.defpath, "SLURM_JOB_ID": "7", "SLURMD_NODENAME": "n1", **told},
            stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=120,
            check=False,
            **who,  # type: ignore[call-overload]
        )
        found: dict[str, object] = json.loads((directory / "exit.json").read_text())
        return found

    def left(self) -> list[str]:
        """What it left of its shared memory and scratch."""
        left = [path.name for name in ("shm", "disk") for path in (self.root / name).iterdir()]
        return sorted(name for name in left if not name.startswith(".kb-images-"))

    def started(self) -> list[list[str]]:
        """What the container program was called with, in turn; the names that nobody can guess are left out."""
        told = re.sub(r"kb(-7)?-[0-9a-f-]{36}", "kb", (self.root / "argv").read_text()).replace(str(self.root), "ROOT")
        return [one.splitlines() for one in told.split("ARGV\n")[1:]]

    def stand_in(self, name: str, text: str) -> str:
        """Have this program be this shell text; the folder to be taken first."""
        (self.root / "bin").mkdir(exist_ok=True)
        (self.root / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
        (self.root / "bin" / name).chmod(0o755)
        return f"{self.root}/bin"

    def facts(self) -> dict[str, str]:
        """What the judge was told."""
        return dict(line.split("=", 1) for line in (self.root / "facts").read_text().splitlines())


@pytest.fixture
def rig() -> Iterator[Rig]:
    root = Path(tempfile.mkdtemp(prefix="kb-script-"))
    for name in ("attempt/out", "eval", "image", "shm", "disk"):
        (root / name).mkdir(parents=True)
    (root / "eval" / "__main__.py").touch()
    shutil.copy(shared_folders.eval_dir() / SUPERVISOR, root / "eval")
    try:
        yield Rig(root)
    finally:
        _end_all_below(root)
        subprocess.run(["chmod", "-R", "u+rwX", str(root)], check=False)
        shutil.rmtree(root)


def _end_all_below(root: Path) -> None:
    """What a test that failed half-way left running: its folder's name is in its words and nobody else's."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if str(root).encode() in (process / "cmdline").read_bytes():
                os.kill(int(process.name), signal.SIGKILL)
        except OSError:
            continue  # it has ended meanwhile


RUN_ONE = """
mkdir "$SHM/link/1"
echo run 1 >"$SHM/ask/ask"
until [ -e "$SHM/ask/run.1.status" ]; do sleep 0.05; done
"""


def test_a_runner_that_locks_its_link_leaves_nothing_on_the_node(rig: Rig) -> None:
    locking = 'mkdir -p "$LINK/deep/er" && : >"$LINK/deep/er/file" && chmod 000 "$LINK/deep/er" "$LINK/deep"\n'
    told = rig.run(RUN_ONE, locking)
    assert (told["cause"], told["status"], told["began"]) == ("judge", 0, True)
    assert rig.left() == []


def test_what_a_killed_script_left_goes_with_the_next_job_whatever_a_runner_closed(rig: Rig) -> None:
    shm, who = rig.root / "shm", {"user": NOBODY} if os.getuid() == 0 else {}
    gone, runs = subprocess.Popen(["true"]), subprocess.Popen(["sleep", "100"], **who)  # type: ignore[call-overload]
    gone.wait()
    for name, pid in (("kb-dead", gone.pid), ("kb-alive", runs.pid)):
        (shm / name / "link" / "1" / "deep" / "er").mkdir(parents=True)
        (shm / name / "link" / "1" / "deep" / "er" / "file").touch()
        (shm / name / "script").write_text(f"{pid}\n")
        for closed in ("link/1/deep/er", "link/1/deep", "link/1"):
            (shm / name / closed).chmod(0)
    try:
        assert rig.run("exit 0")["status"] == 0
        assert rig.left() == ["kb-alive"], "as long as its script runs"
    finally:
        runs.kill()
        runs.wait()


def test_nothing_that_others_put_into_shared_memory_keeps_a_job_waiting(rig: Rig) -> None:
    """Their files are never read, and ours only as long as it takes few seconds."""
    shm = rig.root / "shm"
    for name in ("kb-theirs", "kb-ours"):
        (shm / name).mkdir(mode=0o755)
        with (shm / name / "script").open("w") as file:
            file.truncate(1 << 40)
    rig.foreign |= {shm / "kb-theirs", shm / "kb-theirs" / "script"}
    (shm / "kb-link").symlink_to("kb-ours")
    began = time.monotonic()
    assert rig.run("exit 0")["status"] == 0
    assert time.monotonic() - began < 60
    assert rig.left() == ["kb-link", "kb-ours", "kb-theirs"]


def test_a_scratch_folder_that_somebody_else_prepared_is_not_taken(rig: Rig) -> None:
    """On a node's /tmp everybody can make a folder of a name that they can guess."""
    (rig.root / "disk" / "kb-7" / "judge").mkdir(parents=True)
    (rig.root / "disk" / "kb-7" / "judge" / "trap").touch()
    told = rig.run('echo "$*" >ROOT/words'.replace("ROOT", str(rig.root)), scratch=f'node_scratch = "{rig.root}/disk"')
    assert told["cause"] == "judge"
    assert f"{rig.root}/disk/kb-7/judge" not in (rig.root / "words").read_text().split()
    assert rig.left() == ["kb-7"], "and what isn't ours stays"


def test_a_disk_with_less_room_than_a_submission_may_use_is_the_nodes_fault(rig: Rig) -> None:
    told = rig.run("exit 9", scratch=f'node_scratch = "{rig.root}/disk"\nscratch = "90000T"')
    assert (told["cause"], told["began"]) == ("setup", False), "nobody is blamed for room that isn't there"
    assert "the disk for scratch has less than" in str(told["why"])
    assert rig.left() == []


LEAVES = """\
while [ "$1" != --workdir ]; do shift; done
cd "$2" || exit 1
mkdir -p tmp/shut/deep
n=0
while [ $((n += 1)) -le 100 ]; do mkdir nest; cd nest; done
touch file
cd "$2"
ln -s ROOT/keep tmp/shut/link
chmod 0 tmp/shut nest
"""


def test_what_a_runner_left_on_the_nodes_disk_is_gone_before_the_next_one_starts(rig: Rig) -> None:
    """Each launch's stayed until the run ended, so that a run took as many times what one may write."""
    (rig.root / "keep").mkdir()
    (rig.root / "keep" / "kept").touch()
    judge = RUN_ONE + (
        "until [ -s $SHM/ask/run.1.cleared ]; do [ $((n += 1)) -lt 500 ] || exit 8; sleep 0.01; done\n"
        f"ls -A {rig.root}/disk/kb-7-* >{rig.root}/seen\n"
    )
    told = rig.run(judge, LEAVES.replace("ROOT", str(rig.root)), scratch=f'node_scratch = "{rig.root}/disk"')
    assert (told["cause"], told["status"]) == ("judge", 0)
    assert (rig.root / "seen").read_text().split() == ["judge", "room", "tmp"]
    assert rig.facts()["clears"] == "1"
    assert (rig.root / "keep" / "kept").exists()


def test_a_runner_that_has_ended_is_not_killed_again_by_a_number_that_is_anothers_now(rig: Rig) -> None:
    decoy = f"""
setsid sleep 100 &
other=$!
echo "$other" >"$SHM/ask/run.1.pid"
echo stop 1 >"$SHM/ask/ask"
echo run 2 >"$SHM/ask/ask"
until [ -e "$SHM/ask/run.2.status" ]; do sleep 0.05; done
kill -0 "$other" && echo lives >{rig.root}/other
kill -KILL "$other"
"""
    assert rig.run(RUN_ONE + decoy)["status"] == 0
    assert (rig.root / "other").read_text() == "lives\n"


HOLDS = """
import fcntl, os, select, socket, sys

kept = open(sys.argv[1], "w")
fcntl.lockf(kept, fcntl.LOCK_EX, 1, 5)
reads, writes = os.pipe()
poller = select.epoll()
for fd in (reads, writes):
    poller.register(fd)
here, there = socket.socketpair()
socket.send_fds(here, [b"x"], [reads, writes, 0])
open(sys.argv[1] + ".held", "w").close()
os.read(reads, 1)
"""


def test_a_judge_that_asks_is_told_what_processes_have_open(rig: Rig) -> None:
    asked = {"lock": "fdinfo", "scm_fds": "fdinfo", "tfd": "fdinfo", "pipe": "fd", "Pss": "smaps_rollup"}
    (rig.root / "holds.py").write_text(HOLDS)
    judge = f"{shutil.which('python3', path=os.defpath)} -I {rig.root}/holds.py {rig.root}/kept & holder=$!\n"
    judge += f"until [ -e {rig.root}/kept.held ]; do sleep 0.05; done\necho $holder >{rig.root}/holder\n"
    for n, (word, place) in enumerate(asked.items()):
        judge += f"echo seen.1.{n} {word} $holder/{place} 999999999/{place} >$SHM/ask/look.1\n"
        judge += f"echo look 1 >$SHM/ask/ask\nuntil [ -e $SHM/ask/seen.1.{n} ]; do sleep 0.02; done\n"
        judge += f"cp $SHM/ask/seen.1.{n} {rig.root}/told.{word}\n"
    evil = "echo look 2 >$SHM/ask/ask\n"
    wrong = ("$(touch gone) lock 1/fdinfo", "../x lock 1/fdinfo", "seen.8 root 1/fdinfo", "seen.8 lock ../x")
    for n, line in enumerate(wrong):
        evil += f"echo '{line}' >$SHM/ask/look.{n + 3}\necho look {n + 3} >$SHM/ask/ask\n"
    evil += "echo seen.9 lock $holder/fdinfo >$SHM/ask/look.9\necho look 9 >$SHM/ask/ask\n"
    evil += f"until [ -e $SHM/ask/seen.9 ]; do sleep 0.02; done\nls $SHM $SHM/ask >{rig.root}/listed\n"
    told = rig.run(f"{judge}{evil}echo end >$SHM/ask/ask\nkill $holder\n")
    assert (told["cause"], told["status"]) == ("judge", 0), "what can't be obeyed ends nothing"
    assert rig.facts()["looks"] == "1"
    listed = (rig.root / "listed").read_text().split()
    assert "x" not in listed and "seen.8" not in listed
    assert rig.left() == []
    holder = (rig.root / "holder").read_text().strip()
    found = {word: (rig.root / f"told.{word}").read_text().splitlines() for word in asked}
    for word, lines in found.items():
        assert (lines[0], lines[-1].split()[0]) == (f"{holder}:", "end"), word
    rest = {word: [line.partition(":") for line in lines[1:-1]] for word, lines in found.items()}
    assert all(place.startswith(f"{holder}/{asked[word]}") for word, lines in rest.items() for place, _, _ in lines)
    (lock,) = rest["lock"]
    assert lock[2].startswith("lock:") and "POSIX" in lock[2]
    assert sum(int(line.split()[1]) for _, _, line in rest["scm_fds"]) == 3
    assert sum(int(many) for _, _, many in rest["tfd"]) == 2
    assert len({line for _, _, line in rest["pipe"] if line.startswith("pipe:[")}) == 1
    (pages,) = rest["Pss"]
    assert int(pages[2].removeprefix("Pss:").split()[0]) > 100


def test_what_a_judge_started_is_ended_with_it(rig: Rig) -> None:
    """Its container keeps no process table of its own, and not every node has control groups to end a job's."""
    assert rig.run(f"sleep 300 & echo $! >{rig.root}/left-pid; exit 0")["status"] == 0
    left, until = int((rig.root / "left-pid").read_text()), time.monotonic() + 60
    while is_alive(left):
        assert time.monotonic() < until
        time.sleep(0.02)


def test_only_a_job_in_a_cgroup_of_its_own_on_its_own_cores_claims_to_be_alone(rig: Rig) -> None:
    """`whole` in a site's file says what was asked for; the highest isolation needs that the node keeps it."""
    assert rig.run("exit 0", SLURM_CPUS_ON_NODE="100000")["status"] == 0
    facts = (rig.root / "facts").read_text()
    assert "container=apptainer" in facts
    assert "exclusive" not in facts


def test_what_an_image_is_is_measured_once_and_never_what_somebody_pinned(rig: Rig) -> None:
    # Given a directory, which the stand-in measures
    assert rig.run("exit 0")["status"] == 0
    assert (rig.facts()["image_digest"], rig.facts()["image_seen"]) == ("tree:measured", "tree")
    (known,) = (rig.root / "shm").glob(".kb-images-*/tree-*")
    # When nothing of it has changed, the next job takes the same word for it; once something has, it looks again
    known.write_text("tree:remembered\n")
    shutil.rmtree(rig.root / "attempt" / "claim")
    assert rig.run("exit 0")["status"] == 0
    assert rig.facts()["image_digest"] == "tree:remembered"
    (rig.root / "image" / "new").touch()
    shutil.rmtree(rig.root / "attempt" / "claim")
    assert rig.run("exit 0")["status"] == 0
    assert rig.facts()["image_digest"] == "tree:measured"


@pytest.mark.parametrize(("status", "looks"), [(UNREADABLE, 1), (1, 2)])
def test_what_cant_be_read_is_asked_for_once_and_what_went_wrong_again(rig: Rig, status: int, looks: int) -> None:
    (rig.root / "says").write_text(str(status))
    for _ in range(2):
        assert rig.run("exit 0")["status"] == 0
        assert (rig.facts()["image_digest"], rig.facts()["image_seen"]) == ("", "record")
        shutil.rmtree(rig.root / "attempt" / "claim")
    assert len((rig.root / "measured").read_text().splitlines()) == looks


@pytest.mark.parametrize("by", ["site", "lock"])
def test_an_image_that_isnt_what_is_pinned_never_runs(rig: Rig, by: str) -> None:
    (rig.root / "image").rmdir()
    (rig.root / "image").write_text("a SIF, perhaps")
    true, false = f"sha256:{hashlib.sha256(b'a SIF, perhaps').hexdigest()}", f"sha256:{'0' * 64}"

    def run_pinned(digest: str) -> dict[str, object]:
        if by == "lock":
            pins.pin(rig.root / pins.LOCK, "other", pins.Pin(digest="tree:1", made_at=NOW, source="x"))
            pins.pin(rig.root / pins.LOCK, "image", pins.Pin(digest=digest, made_at=NOW, source="x"))
        shutil.rmtree(rig.root / "attempt" / "claim", ignore_errors=True)
        return rig.run("exit 0", more=f'image_digest = "{digest}"' if by == "site" else "")

    assert run_pinned(true)["cause"] == "judge"
    assert (rig.facts()["image_digest"], rig.facts()["image_pinned"], rig.facts()["image_seen"]) == (true, true, "file")
    (rig.root / "facts").unlink()
    told = run_pinned(false)
    assert (told["cause"], told["began"]) == ("image", True)
    assert told["why"] == f"the image image is {true} and {false} is pinned"
    assert not (rig.root / "facts").exists(), "the judge was never started"


def test_a_change_is_seen_below_a_link_to_an_image_too(rig: Rig) -> None:
    (rig.root / "image").rename(rig.root / "image-of-today")
    (rig.root / "image").symlink_to("image-of-today")
    assert rig.run("exit 0")["status"] == 0
    (known,) = (rig.root / "shm").glob(".kb-images-*/tree-*")
    known.write_text("tree:remembered\n")
    (rig.root / "image-of-today" / "new").touch()
    shutil.rmtree(rig.root / "attempt" / "claim")
    assert rig.run("exit 0")["status"] == 0
    assert rig.facts()["image_digest"] == "tree:measured"


@pytest.mark.parametrize("kind", ["tree", "file", "link"])
@pytest.mark.parametrize("flaw", ["", "open", "a link", *(["not ours"] if os.getuid() == 0 else [])])
def test_what_is_known_of_an_image_is_believed_only_where_nobody_else_could_write(
    rig: Rig, kind: str, flaw: str
) -> None:
    if kind != "tree":
        (rig.root / "image").rmdir()
        (rig.root / "sif").write_text("a SIF, perhaps")
        (rig.root / "sif").rename(rig.root / "image") if kind == "file" else (rig.root / "image").symlink_to("sif")
    assert rig.run("exit 0")["status"] == 0
    true = rig.facts()["image_digest"]
    (folder,) = (rig.root / "shm").glob(".kb-images-*")
    (known,) = folder.glob("[tf][ri]*-*")
    known.write_text("sha256:remembered\n")
    if flaw == "open":
        folder.chmod(0o777)
    elif flaw == "a link":
        folder.rename(rig.root / "elsewhere")
        folder.symlink_to(rig.root / "elsewhere")
    elif flaw:
        os.chown(folder, 0, 0)
        folder.chmod(0o755)
    shutil.rmtree(rig.root / "attempt" / "claim")
    rig.foreign.add(folder)
    assert rig.run("exit 0")["status"] == 0
    assert rig.facts()["image_digest"] == (true if flaw else "sha256:remembered")


@pytest.mark.parametrize("squatter", ["a link", "a link to nothing", *(["not ours"] if os.getuid() == 0 else [])])
def test_whoever_takes_that_folders_name_has_no_image_read_anew(rig: Rig, squatter: str) -> None:
    """Another account on the node could have every run read its whole image."""
    who = NOBODY if os.getuid() == 0 else os.getuid()
    taken = rig.root / "shm" / f".kb-images-{who}"
    more = rig.root / "shm" / f".kb-images-{who}-0"
    if squatter == "not ours":
        taken.mkdir()
        more.mkdir()
        rig.foreign |= {taken, more}
    else:
        (rig.root / "elsewhere").mkdir(mode=0o700)
        taken.symlink_to("../elsewhere" if squatter == "a link" else "../nowhere")
        more.symlink_to("../elsewhere")
    for digest in ("tree:measured", "tree:remembered"):
        assert rig.run("exit 0")["status"] == 0
        assert rig.facts()["image_digest"] == digest
        shutil.rmtree(rig.root / "attempt" / "claim")
        (known,) = (rig.root / "shm").glob(".kb-images-*/tree-*")
        known.write_text("tree:remembered\n")
    (own,) = (one for one in (rig.root / "shm").glob(".kb-images-*-*") if one != more)
    assert own == known.parent and (own.stat().st_mode & 0o777, own.stat().st_uid) == (0o700, who)


def test_its_folders_are_its_own_and_their_names_cant_be_guessed(rig: Rig) -> None:
    """Both places are everybody's: whoever could take the name first would own what the job writes."""
    look = 'stat -c "%F %a %u %n" "$SHM" "$SHM"/* ROOT/disk/kb-7-* ROOT/disk/kb-7-*/* | grep ^dir >ROOT/{}'
    mine = "directory 700 " + str(NOBODY if os.getuid() == 0 else os.getuid())
    seen = []
    for number in ("first", "second"):
        told = rig.run(look.replace("ROOT", str(rig.root)).format(number), scratch=f'node_scratch = "{rig.root}/disk"')
        assert told["status"] == 0
        lines = [line.rsplit(" ", 1) for line in (rig.root / number).read_text().splitlines()]
        assert {looks for looks, _ in lines} == {mine}
        seen.append({Path(name).relative_to(rig.root).parts[1] for _, name in lines})
        shutil.rmtree(rig.root / "attempt" / "claim")
    random = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
    for names in seen:
        assert re.fullmatch(f"kb-{random} kb-7-{random}", " ".join(sorted(names, key=len))), names
    assert not seen[0] & seen[1]


def test_a_node_without_shared_memory_is_said_plainly(rig: Rig) -> None:
    (rig.root / "shm").rmdir()
    told = rig.run("exit 0")
    (rig.root / "shm").mkdir()
    assert (told["cause"], told["why"], told["began"]) == ("setup", "no shared memory", False)


COUNTED = "b2sum cat chmod cut date find id ls mkdir mkfifo mktemp mv rm setsid sha256sum sleep stat tr"


def test_a_job_starts_no_process_that_its_shell_can_do_without(rig: Rig) -> None:
    """On a node of short jobs these are most of what a job costs."""
    for name in COUNTED.split():
        rig.stand_in(name, f'echo {name} >>{rig.root}/count\nexec /usr/bin/{name} "$@"')
    for _ in range(2):  # the first one on a node looks at the image
        shutil.rmtree(rig.root / "attempt" / "claim", ignore_errors=True)
        (rig.root / "count").write_text("")
        (rig.root / "count").chmod(0o666)
        assert rig.run("sleep 0.1", path=f"{rig.root}/bin")["status"] == 0
    counted = sorted((rig.root / "count").read_text().split())
    # the claim, the supervisor, the folder, the FIFO, what the image looks like, the judge, the watchdog, the end
    expected = "mkdir cat sha256sum mkdir mkfifo find b2sum setsid sleep rm".split()
    assert counted == sorted([*expected, "sleep"]), "and the judge's own sleep"


def test_a_signal_from_outside_is_never_taken_for_the_time_limit(rig: Rig) -> None:
    """scancel and preemption signal every process of a job; the watchdog's own sleep is often the first to go."""
    signal = """
until [ -n "${nap-}" ]; do
    for process in /proc/[0-9]*; do
        tr '\\0' ' ' <"$process/cmdline" 2>/dev/null | grep -qx 'sleep LIMIT ' && nap=${process#/proc/}
    done
done
watchdog=$(sed -n 's/^PPid:[^0-9]*//p' "/proc/$nap/status")
kill -TERM "$nap"
while grep -q '^State:[^A-Z]*[A-Y]' "/proc/$watchdog/status" 2>/dev/null; do sleep 0.05; done
"""
    told = rig.run(signal.replace("LIMIT", str(LIMIT_S + 60)))
    assert (told["cause"], told["status"]) == ("judge", 0)


# ------------------------------------------------------------------------------------------------ the supervisor's file


def test_a_supervisor_that_was_changed_while_the_job_waited_never_runs(rig: Rig) -> None:
    file = rig.root / "eval" / SUPERVISOR
    file.write_text(f": >{rig.root}/ran\n{file.read_text()}")
    told = rig.run("exit 0")
    why = "eval/supervise.sh was changed after this job was sent"
    assert told == {"cause": "setup", "status": 1, "why": why, "job": "7", "node": "n1"}
    assert not (rig.root / "ran").exists() and not (rig.root / "argv").exists()
    assert rig.left() == []


@pytest.mark.parametrize("gone", ["file", "folder"])
def test_a_job_whose_supervisor_was_pruned_while_it_waited_says_so(rig: Rig, gone: str) -> None:
    if gone == "folder":
        shutil.rmtree(rig.root / "eval")
    else:
        (rig.root / "eval" / SUPERVISOR).unlink()
    told = rig.run("exit 0")
    assert told == {"cause": "setup", "status": 1, "why": "eval/supervise.sh is gone", "job": "7", "node": "n1"}
    assert not (rig.root / "argv").exists()


def test_what_runs_are_the_bytes_whose_digest_was_taken(rig: Rig) -> None:
    """Whoever changes the file between the look and the start changes nothing."""
    late = f'[ -e {rig.root}/argv ] || echo ": >{rig.root}/ran" >{rig.root}/eval/{SUPERVISOR}\nexec /usr/bin/sha256sum'
    assert rig.run("exit 0", path=rig.stand_in("sha256sum", late))["cause"] == "judge"
    assert "ran" in (rig.root / "eval" / SUPERVISOR).read_text()
    assert not (rig.root / "ran").exists()


def test_of_two_jobs_of_one_attempt_the_second_ends_before_anything_else(rig: Rig) -> None:
    assert rig.run("exit 0")["job"] == "7"
    (rig.root / "argv").unlink()
    (rig.root / "eval" / SUPERVISOR).unlink()
    for job, left in (("8", "duplicate-8"), ("7", "restart-7")):
        assert rig.run("exit 0", SLURM_JOB_ID=job)["cause"] == "judge", "the first one's word stands"
        assert (rig.root / "attempt" / left).read_text() == "n1\n"
    assert not (rig.root / "argv").exists()


def test_a_job_that_was_cancelled_while_it_waited_starts_nothing(rig: Rig) -> None:
    (rig.root / "attempt" / "cancelled").touch()
    told = rig.run("exit 0")
    assert (told["cause"], told["status"], told["began"]) == ("cancelled", 0, False)
    assert not (rig.root / "argv").exists() and rig.left() == []


def test_a_module_that_isnt_there_is_the_nodes_fault_and_the_claim_is_made_before(rig: Rig) -> None:
    init = 'module() { test -d ROOT/attempt/claim && echo "$*" >ROOT/asked; return 1; }\n'
    (rig.root / "init").write_text(init.replace("ROOT", str(rig.root)))
    site = f'modules = ["apptainer", "cuda"]\nmodule_init = "{rig.root}/init"\n'
    told = rig.run("exit 0", site=site)
    assert (told["cause"], told["why"], told["began"]) == ("setup", "a module can not be loaded", False)
    assert (rig.root / "asked").read_text() == "load apptainer cuda\n"


# What each container is started with: what is shown to whom is the isolation of judge and runner.
HARDENED = (
    "ROOT/apptainer --silent exec --no-home --no-mount home,cwd,hostfs,bind-paths --no-eval --no-privs"
    " --net --network none --fakeroot --nv"
)
MEASURE = f"{HARDENED.removesuffix(' --nv')} --containall --pwd / --bind ROOT/eval:/eval:ro --bind ROOT/image:/image:ro"
JUDGE = (
    f"{HARDENED} --contain --ipc --cleanenv --workdir ROOT/disk/kb/judge --pwd / --bind ROOT/eval:/eval:ro"
    " --bind ROOT/attempt/manifest.json:/kb/manifest.json:ro --bind ROOT/attempt/key:/kb/key:ro"
    " --bind ROOT/attempt/out:/kb/out:rw --bind ROOT/shm/kb/ask:/kb/ask:rw --bind ROOT/shm/kb/link:/kb/link:rw"
    " ROOT/image python3 -I /eval /kb/manifest.json --key /kb/key --out /kb/out --supervisor /kb/ask --link /kb/link"
)
RUNNER = (
    f"{HARDENED} --containall --workdir ROOT/disk/kb/%(room)s --pwd /tmp --bind ROOT/eval:/eval:ro"
    " --bind ROOT/shm/kb/link/1:/link:rw --bind ROOT/shm/kb/link/1.built:/built:ro"
    " --bind ROOT/disk/kb/%(room)s/shm:/dev/shm:rw ROOT/image %(around)spython3 -I -B /eval --runner /link"
)
TRIAL = (
    f"{HARDENED} --containall --workdir ROOT/disk/kb/room --pwd /tmp --bind ROOT/eval:/eval:ro"
    " --bind ROOT/disk/kb/room/shm:/dev/shm:rw ROOT/image python3 -I -c"
)
NCU = "python3 -I -B /eval --profiled ncu /link "


@pytest.mark.parametrize("room", ["room", "run.1"])
def test_each_container_is_started_with_these_words_and_no_others(rig: Rig, room: str) -> None:
    if room == "room":  # a file system of the runner's own
        (rig.root / "roomy").touch()
    own = rig.stand_in("unshare", 'while [ "$1" != room ]; do shift; done\nmkdir -p "$2/shm"\nshift 2\nexec "$@"')
    started = []
    for what in ("run", "prof"):
        told = rig.run(
            RUN_ONE.replace("run 1", f"{what} 1", 1),
            scratch=f'node_scratch = "{rig.root}/disk"',
            container='options = ["--fakeroot"]',
            vendor="nvidia",
            more='profiler = "ncu"\nwhole = false',
            path=own,
        )
        assert (told["cause"], told["status"]) == ("judge", 0)
        shutil.rmtree(rig.root / "attempt" / "claim")
        started.append(rig.started())
        (rig.root / "argv").unlink()
    measure, trial, judge, runner = started[0]
    assert measure == [*MEASURE.split(), "ROOT/image", *"python3 -I -B /eval --image-digest /image".split()]
    assert (trial[:-2], trial[-1]) == (TRIAL.split(), "1024")
    assert judge == JUDGE.split()
    assert runner == (RUNNER % {"room": room, "around": ""}).split()
    # what was found out of image and node is remembered, and only a profile's runner has a profiler around it
    assert started[1] == [judge, (RUNNER % {"room": room, "around": NCU}).split()]


def test_a_sites_options_are_words_whatever_is_in_them(rig: Rig) -> None:
    odd = "it's $HOME `id` \\* x"
    assert rig.run("exit 0", container=f'options = ["--comment", {json.dumps(odd)}]')["cause"] == "judge"
    for words in rig.started():
        assert words[words.index("--comment") + 1] == odd


@pytest.mark.parametrize("mark", ["1", "0", ""])
def test_a_job_says_whether_its_judge_was_looking_at_an_answer(rig: Rig, mark: str) -> None:
    out = rig.root / "attempt/out"
    told = rig.run(f"printf '{mark}\\n' >{out}/checking; kill -SEGV $$" if mark else "kill -SEGV $$")
    assert (told["cause"], told["status"], told["checking"]) == ("judge", 139, mark == "1")


@pytest.mark.parametrize("signalled", ["script", "judge", ""])
def test_a_job_says_at_once_that_it_was_told_to_end_before_it_was_over(rig: Rig, signalled: str) -> None:
    """Slurm doesn't wait until all that is left was removed."""
    rig.stand_in("rm", f'ls {rig.root}/attempt/claim >{rig.root}/claim\nexec /usr/bin/rm "$@"')
    (rig.root / "claim").touch(mode=0o666)
    (rig.root / "claim").chmod(0o666)
    script = 'read -r script <"$SHM/script"; kill -TERM "$script"; sleep 100'
    told = rig.run({"script": script, "judge": "kill -TERM $$", "": "exit 3"}[signalled], path=f"{rig.root}/bin")
    assert told["cause"] == ("term" if signalled == "script" else "judge")
    assert ("told_to_end" in (rig.root / "claim").read_text().split()) is bool(signalled)


def test_no_pipe_in_the_marks_place_keeps_a_job_waiting(rig: Rig) -> None:
    assert rig.run(f"mkfifo {rig.root}/attempt/out/checking; exit 3")["checking"] is False
