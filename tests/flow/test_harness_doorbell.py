"""The judge with a job script as supervisor: a small sh script that keeps to the protocol starts plain processes as
its containers."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from kbslurm_eval.shared import wire
from tests import standin
from tests.flow import harness_ground as ground
from tests.flow.test_harness_device import HONEST, on_device
from tests.flow.test_harness_fence import FILLER
from tests.flow.test_harness_memory import SENT
from tests.flow.test_harness_shares import LOCKS, OF_ITS_OWN, OF_ONE_IN_PARTS
from tests.services import GXX, NAMESPACES, USER_NAMESPACES, needs
from tests.standin import profilers

SUPERVISOR = (ground.EVAL / "supervise.sh").read_text(encoding="utf-8")
SCRIPT = r"""
set -u
dir=$1 link=$2 python=$3 eval=$4
SHM=${dir%/*}
LOOK
exec 3<>"$dir/ask"
export TMPDIR="$dir"
start() {
  (
    number=$1 verb=$2
    set -- "$python" -I -B "$eval" --runner "$link/$number"
    [ "$verb" = prof ] && set -- "$python" -I -B "$eval" --profiled ncu "$link/$number" "$@"
    setsid ${KB_WRAP:-} "$@" </dev/null >"$dir/run.$number.err" 2>&1 3<&- &
    echo $! >"$dir/run.$number.pid.tmp" && mv "$dir/run.$number.pid.tmp" "$dir/run.$number.pid"
    wait $!
    ended=$?
    echo $ended >"$dir/run.$number.status.tmp" && mv "$dir/run.$number.status.tmp" "$dir/run.$number.status"
  ) &
}
while read -r verb number <&3; do
  case $verb in
    run | prof) start "$number" "$verb" ;;
    look) look "$number" ;;
    stop) kill -KILL "$(cat "$dir/run.$number.pid")" 2>/dev/null ;;
    end) break ;;
  esac
done
wait
""".replace("LOOK", "\n".join(re.findall(r"^look\(\) \{$.*?^\}$", SUPERVISOR, re.MULTILINE | re.DOTALL)))
RIGHT = "def custom_kernel(data):\n    return sorted(data)\n"


@pytest.fixture
def folders(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    asked = tmp_path / "ask"
    asked.mkdir(mode=0o700)
    os.mkfifo(asked / "ask", 0o600)
    link = Path(tempfile.mkdtemp(prefix="kbtest-", dir="/dev/shm"))
    yield asked, link
    shutil.rmtree(link)


# A container shows its runner the folder of its link: what stands there by the end is the submission's choice.
SPOILS = (
    """
import contextlib, os, sys
link = sys.argv[-1]
for name in ("bell", "in", "out", "log"):
    with contextlib.suppress(OSError):  # it can't where it has mounts of its own
        os.rename(f"{link}/{name}", f"{link}/{name}.old")
        os.makedirs(f"{link}/{name}/inner")
    with contextlib.suppress(OSError):
        os.chmod(f"{link}/{name}", 0)
here = os.open(link, os.O_RDONLY)
with contextlib.suppress(OSError):
    for _ in range(1500):
        os.mkdir("d", dir_fd=here)
        deeper = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = deeper
with contextlib.suppress(OSError):
    os.chmod(link, 0)
"""
    + RIGHT
)


def _judged(
    tmp_path: Path,
    folders: tuple[Path, Path],
    told: wire.Manifest,
    wrap: str = "",
    env: Mapping[str, str] | None = None,
    program: Path = ground.EVAL,
) -> ground.Outcome:
    asked, link = folders
    argv = ["sh", "-c", SCRIPT, "sh", str(asked), str(link), sys.executable, str(ground.EVAL)]
    script = subprocess.Popen(argv, env={**os.environ, **(env or {}), "KB_WRAP": wrap})
    try:
        return ground.judged(
            tmp_path / "attempt", told, "--supervisor", str(asked), "--link", str(link), env=env, program=program
        )
    finally:
        assert script.wait(timeout=ground.GENEROUS_S) == 0


def test_a_right_submission_passes(tmp_path: Path, folders: tuple[Path, Path]) -> None:
    facts = "container=a script\nexclusive=1\nimage=/images/cpu.sif\nimage_digest=sha256:abc\n"
    (folders[0] / "facts").write_text(facts)
    report = _judged(tmp_path, folders, ground.manifest(RIGHT)).told
    assert report.verdict == "passed", report.reason
    assert report.isolation.means == "a script"
    assert report.isolation.level == 0, "plain processes are no containers, whatever the script says"
    assert (report.host["image"], report.host["image_digest"]) == ("/images/cpu.sif", "sha256:abc")
    assert not list(folders[1].iterdir())


@needs(USER_NAMESPACES)
def test_runners_in_namespaces_of_their_own(tmp_path: Path, folders: tuple[Path, Path]) -> None:
    report = _judged(tmp_path / "right", folders, ground.manifest(RIGHT), NAMESPACES).told
    assert report.verdict == "passed", report.reason
    assert not any("pid namespace" in note or "net namespace" in note for note in report.isolation.notes)


@needs(GXX, USER_NAMESPACES)
def test_a_device_s_memory_is_lent_across_namespaces(tmp_path: Path, folders: tuple[Path, Path]) -> None:
    env = standin.device(tmp_path / "toolkit")
    report = _judged(tmp_path, folders, on_device(HONEST), NAMESPACES, env).told
    assert report.verdict == "passed", report.reason
    assert report.host["device"]["transport"] == "shared memory"


@pytest.mark.parametrize(
    ("source", "verdict", "said"),
    [
        ("def custom_kernel(data):\n    print('hello')\n    return data\n", "wrong", "an answer is wrong"),
        ("import os\nos._exit(0)\n", "error", "the submission's process ended (exit code 0)"),
        ("def custom_kernel(data):\n    while True:\n        pass\n", "timeout", "no answer within 5 s"),
        ("import socket\nsocket.socket()\n", "error", "PermissionError"),
    ],
)
def test_the_same_verdicts(tmp_path: Path, folders: tuple[Path, Path], source: str, verdict: str, said: str) -> None:
    told = ground.manifest(source, mode="test", limits=ground.limits(test_s=5.0 if verdict == "timeout" else 60.0))
    report = _judged(tmp_path, folders, told).told
    assert report.verdict == verdict, report.reason
    assert said in report.reason
    assert ("hello" in report.log) == ("hello" in source)


LOOPBACK = """
import os, sys
sys.path.insert(0, {eval!r})
from kbslurm_eval.cage import launcher
launcher._loopback_up()
os.execv(sys.argv[1], sys.argv[1:])
"""


@needs(GXX, USER_NAMESPACES)
@pytest.mark.parametrize(("loopback", "why"), [(False, "couldn't connect"), (True, "")])
def test_a_profiler_around_the_runner_leaves_its_files_when_the_runner_ends(
    tmp_path: Path, folders: tuple[Path, Path], loopback: bool, why: str
) -> None:
    """It speaks TCP with its target, which a submission may only where there is loopback and nothing else."""
    alone, program = tmp_path / "alone", tmp_path / "alone.py"
    program.write_text(LOOPBACK.format(eval=str(ground.EVAL)))
    alone.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {shlex.quote(str(program))} "$@"\n')
    alone.chmod(0o755)
    wrap = f"{NAMESPACES} {alone}" if loopback else NAMESPACES
    (folders[0] / "facts").write_text("container=a script\nprofiler=ncu\n")
    env = profilers.profiler(tmp_path / "toolkit", "ncu")
    outcome = _judged(tmp_path, folders, ground.manifest(RIGHT, mode="profile"), wrap, env)
    assert outcome.told.verdict == "passed", outcome.told.reason
    found = {one.name for one in outcome.told.artifacts}
    assert ("benchmark-0.ncu-rep" in found) is loopback, outcome.told.profile
    assert why in outcome.told.digests[-1].trouble


def test_no_answer_from_the_script_is_infrastructure(tmp_path: Path, folders: tuple[Path, Path]) -> None:
    asked, link = folders

    def script() -> None:
        """It says that the runner has started and ended, and there was none."""
        with (asked / "ask").open("r+b", buffering=0) as ask:
            number = ask.readline().split()[1].decode()
        (asked / f"run.{number}.status").write_text("255")
        (asked / f"run.{number}.pid").write_text("999999999")

    answering = threading.Thread(target=script, name="script")
    answering.start()
    report = ground.judged(tmp_path, ground.manifest(RIGHT), "--supervisor", str(asked), "--link", str(link)).told
    answering.join()
    assert report.verdict == "infrastructure"
    assert "before it had the submission" in report.reason


def test_what_a_submission_makes_of_its_links_folder_costs_nobody_anything(
    tmp_path: Path, folders: tuple[Path, Path]
) -> None:
    outcome = _judged(tmp_path, folders, ground.manifest(SPOILS, mode="test"))
    assert outcome.told.verdict == "passed", outcome.told.reason
    assert [path.name for path in folders[1].iterdir() if not path.name.endswith(".built")] == []


ARRAYS = """
import numpy as np


def generate_input(n, seed):
    r = np.random.default_rng(seed)
    return r.random(n), r.random(n), {more}


def ref_kernel(data):
    return data[0] + data[1]


def check_implementation(data, output):
    return bool(np.array_equal(output, data[0] + data[1])), ""
"""
TELLS_WHEN_IT_DECODES = """
import sys
import numpy as np
values = sys.modules["kbslurm_eval.shared.values"]
plain = values.unpack


def told(*given):
    print("decoded")
    return plain(*given)


values.unpack = told


def custom_kernel(data):
    return np.add(data[0], data[1])
"""


@pytest.mark.parametrize(
    ("more", "early"), [("0.5", True), ("seed", True), ("str(seed)", False), ("[1, 2, 3, 4]", False)]
)
def test_only_arrays_and_numbers_come_late_where_seeds_change_nothing_else(
    tmp_path: Path, more: str, early: bool
) -> None:
    told = ground.manifest(
        TELLS_WHEN_IT_DECODES,
        files={"reference.py": ARRAYS.format(more=more)},
        mode="benchmark",
        tests=[{"n": 50, "seed": 1}],
        budget=wire.Budget(launches=2, calls=4),
    )
    report = ground.judged(tmp_path, told).told
    assert report.verdict == "passed", report.reason
    of_tests, of_layouts = 2, 1  # the test twice, and its output's layout; the benchmark's is told before it is there
    of_benchmarks = 0 if early else 2 * (4 + 2)  # warm-ups, too
    assert report.log.count("decoded") == of_tests + of_layouts + of_benchmarks


# Unprivileged containers: judge and runner each have a user namespace, and the script is in the one above both.
BESIDE = """
import os, sys

words = ["unshare", "--user", "--map-current-user", sys.executable, "-I", EVAL, *sys.argv[1:]]
os.execvp(words[0], words)
"""
OF_A_POOL = """
import multiprocessing as mp

table = bytearray(b"x") * (150 << 20)


def part(data):
    return sorted(data), table[::4096].count(b"x")


def custom_kernel(data):
    return pool.map(part, [data] * 8)[0][0]


pool = mp.get_context("fork").Pool(4)
"""
WATCHES = """
import os, select, time


def custom_kernel(data):
    pipes = [os.pipe() for _ in range(5)]
    for reads, writes in pipes:
        if os.fork() == 0:
            events = [os.eventfd(0) for _ in range(400)]
            pollers = [select.epoll() for _ in range(400)]
            for poller in pollers:
                for event in events:
                    poller.register(event, select.EPOLLIN)
            os.write(writes, b"x")
            time.sleep(600)
        os.read(reads, 1)
    return sorted(data)
"""
HOARDS_OF_PIPES = """
import os, time


def custom_kernel(data):
    for _ in range(5):
        if os.fork() == 0:
            kept = [os.pipe() for _ in range(240)]
            time.sleep(600)
    time.sleep(9)  # the next look may be due late on a busy machine; it ends the call
    return sorted(data)
"""


def _judged_beside(
    tmp_path: Path, folders: tuple[Path, Path], source: str, memory_mb: int, *, looks: bool = True
) -> wire.Report:
    (folders[0] / "facts").write_text("container=a script\n" + ("looks=1\n" if looks else ""))
    program = tmp_path / "beside.py"
    program.write_text(BESIDE.replace("EVAL", repr(str(ground.EVAL))))
    told = ground.manifest(source, mode="test", limits=ground.limits(memory_bytes=memory_mb << 20))
    return _judged(tmp_path, folders, told, NAMESPACES, program=program).told


@needs(USER_NAMESPACES)
@pytest.mark.parametrize(
    ("source", "memory_mb", "verdict", "said"),
    [
        (LOCKS.replace("        HOW\n", OF_ONE_IN_PARTS.lstrip("\n")), 1024, "memory", "locks on ranges of files"),
        (LOCKS.replace("        HOW\n", OF_ITS_OWN.lstrip("\n")), 1024, "passed", ""),
        (SENT, 1024, "memory", "on their way through sockets"),
        (FILLER, 256, "memory", "more memory than allowed"),
        (WATCHES, 256, "memory", "more memory than allowed"),
        (OF_A_POOL, 512, "passed", ""),
    ],
    ids=["locks", "a database", "files on their way", "sockets", "pollers", "a pool that shares a table"],
)
def test_what_a_judge_beside_its_runner_may_not_see_the_script_looks_at(
    tmp_path: Path, folders: tuple[Path, Path], source: str, memory_mb: int, verdict: str, said: str
) -> None:
    """Whatever had no limit there passed, and what processes share counted once for each."""
    report = _judged_beside(tmp_path, folders, source, memory_mb)
    assert (report.verdict, said in report.reason) == (verdict, True), (report.reason, report.log[-500:])
    assert not any("can't be seen here" in note for note in report.isolation.notes)


@needs(USER_NAMESPACES)
def test_a_look_may_take_long_on_a_busy_node(
    tmp_path: Path, folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was held was counted as far as a look came in five seconds, and passed."""
    slow = tmp_path / "bin" / "grep"
    slow.parent.mkdir()
    slow.write_text(f'#!/bin/sh\nsleep 6\nexec {shutil.which("grep")} "$@"\n')
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{slow.parent}:{os.environ['PATH']}")
    report = _judged_beside(tmp_path, folders, WATCHES, 256)
    assert (report.verdict, "more memory than allowed" in report.reason) == ("memory", True), report.reason


@needs(USER_NAMESPACES)
def test_where_nobody_can_look_the_report_says_so(tmp_path: Path, folders: tuple[Path, Path]) -> None:
    report = _judged_beside(tmp_path, folders, RIGHT, 1024, looks=False)
    assert report.verdict == "passed", report.reason
    assert [note for note in report.isolation.notes if "can't be seen here" in note], report.isolation.notes


SHORT = """
import sys
sys.path.insert(0, EVAL)
from kbslurm_eval.cage import user_counts

user_counts.short = lambda: "pipes"
from kbslurm_eval import run
sys.argv[0] = EVAL
import runpy
runpy.run_path(EVAL, run_name="__main__")
"""


@needs(USER_NAMESPACES)
@pytest.mark.parametrize(
    ("source", "looks", "verdict"),
    [
        (RIGHT, True, "passed"),
        (RIGHT, False, "passed"),
        (HOARDS_OF_PIPES, True, "memory"),
        ("import os\n\ndef custom_kernel(data):\n    os._exit(3)\n", True, "infrastructure"),
        ("import os\n\ndef custom_kernel(data):\n    os._exit(3)\n", False, "infrastructure"),
    ],
)
def test_what_nobody_sees_is_nobodys_guilt(
    tmp_path: Path, folders: tuple[Path, Path], source: str, looks: bool, verdict: str
) -> None:
    """Whoever took a node's pipes for a moment gave strangers' runs the verdict `memory`, which is final."""
    short = tmp_path / "short.py"
    short.write_text(SHORT.replace("EVAL", repr(str(ground.EVAL))))
    (folders[0] / "facts").write_text("container=a script\n" + ("looks=1\n" if looks else ""))
    program = tmp_path / "beside.py"
    program.write_text(BESIDE.replace("EVAL", repr(str(short))))
    told = ground.manifest(source, mode="test", limits=ground.limits(memory_bytes=2 << 30))
    report = _judged(tmp_path, folders, told, NAMESPACES, program=program).told
    assert report.verdict == verdict, (report.reason, report.log[-500:])


DISTINCT = """
import numpy as np


def generate_input(n, seed):
    return np.random.default_rng(seed).integers(0, n, n)


def ref_kernel(data):
    return np.unique(data)


def check_implementation(data, output):
    return bool(np.array_equal(output, np.unique(data))), ""
"""
WORKS_WHEN_TOLD = """
import sys
import time
import numpy as np
link = sys.modules["kbslurm_eval.shared.runner_link"]
plain = link.RunnerEnd.answer


def answer(self, token, status, text=""):
    if self.words[link.KIND // 8] == link.Kind.DECLARE:
        time.sleep(0.03)
    plain(self, token, status, text)


link.RunnerEnd.answer = answer


def custom_kernel(data):
    return np.unique(data)
"""


@pytest.mark.parametrize("n", [500, 50_000])
def test_who_works_when_told_how_an_answer_is_laid_out_works_in_the_next_call(tmp_path: Path, n: int) -> None:
    """Where an answer's length goes by its input, nearly each call is told that before, in nobody's time."""
    told = ground.manifest(
        WORKS_WHEN_TOLD,
        files={"reference.py": DISTINCT},
        mode="benchmark",
        tests=[{"n": 50, "seed": 1}],
        benchmarks=[{"n": n, "seed": 1}],
        budget=wire.Budget(launches=2, calls=4),
    )
    report = ground.judged(tmp_path, told).told
    assert report.verdict == "passed", report.reason
    assert report.benchmarks[0].median_ns is not None
    assert report.benchmarks[0].median_ns > 20_000_000
