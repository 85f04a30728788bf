"""Level 1: processes of a launch share locks and memory by name, and end one another; nothing of it gets out or stays.

The corpus has what passes there and what attacks it (`tests/adversarial`); here is what needs another user, a runner's
death, an older kernel or the words of a verdict.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kbslurm_eval.cage import landlock, syscall_filter
from kbslurm_eval.runner import isolation_hints
from tests.adversarial import corpus
from tests.flow import harness_ground as ground
from tests.services import LANDLOCK, PYTHON, ROOT, USER_NAMESPACES, needs, pointless

AT_1 = {"KBSLURM_EVAL_LEVEL": "1"}
# Everything that is shared by name is made, and a process started that holds it.
MAKES = """
import multiprocessing, os, time
from multiprocessing.shared_memory import SharedMemory

spawn = multiprocessing.get_context("spawn")
memory, lock, numbers = SharedMemory("kb-marker", create=True, size=1 << 20), spawn.Lock(), spawn.Array("d", 1000)
memory.buf[:] = b"x" * len(memory.buf)
multiprocessing.get_context("fork").Process(target=time.sleep, args=[600], daemon=True).start()


def custom_kernel(data):
    END
    return sorted(data)
"""


@needs(LANDLOCK, ROOT, PYTHON)
@pytest.mark.parametrize("name", ["process_pool", "processes_spawned", "memory_by_name", "processes_ended"])
def test_an_ordinary_users_processes_share_as_well(tmp_path: Path, name: str) -> None:
    (entry,) = (one for one in corpus.honest() if one.name == name)
    if lack := entry.lacks(1):
        pointless(lack)
    place = tmp_path / "place"
    place.mkdir()
    tmp_path.chmod(0o711)
    report = ground.judged_for_an_ordinary_user(place, ground.manifest(entry.source, mode="test"))
    assert (report.verdict, report.isolation.level) == ("passed", 1), f"{report.reason}\n{report.log[-2000:]}"
    assert report.log == ""


@needs(LANDLOCK)
@pytest.mark.parametrize("end", ["pass", "os.kill(os.getpid(), 9)", "os._exit(3)", "while True: pass"])
def test_nothing_of_it_is_left_however_the_runner_ends(tmp_path: Path, end: str) -> None:
    before = {place: set(os.listdir(place)) for place in ("/dev/shm", "/tmp")}
    told = ground.manifest(MAKES.replace("END", end), mode="test", limits=ground.limits(test_s=8.0))
    tmp_path.chmod(0o711)
    report = ground.judged(tmp_path, told, "--work", str(tmp_path / "work"), env=AT_1).told
    assert report.verdict == {"pass": "passed", "while True: pass": "timeout"}.get(end, "error"), report.reason
    assert list((tmp_path / "work").iterdir()) == []
    for place, names in before.items():
        assert not [name for name in set(os.listdir(place)) - names if "marker" in name or name.startswith("sem.")]


@needs(LANDLOCK)
def test_a_piece_is_no_larger_than_a_file_may_be(tmp_path: Path) -> None:
    source = MAKES.replace("1 << 20", "64 << 20").replace("END", "pass")
    report = ground.judged(tmp_path, ground.manifest(source, mode="test"), env=AT_1).told
    assert (report.verdict, "File too large" in report.reason) == ("error", True), report.reason


C_CODE = """
import ctypes, os

libc = ctypes.CDLL(None, use_errno=True)


def custom_kernel(data):
    if libc.shm_open(b"/torch_1", os.O_RDWR | os.O_CREAT, 0o600) < 0:
        why = os.strerror(ctypes.get_errno())
        raise RuntimeError(f"unable to open shared memory object </torch_1> in read-write mode: {why} (13)")
    return sorted(data)
"""
MANAGER = """
import multiprocessing


def custom_kernel(data):
    with multiprocessing.get_context("fork").Manager() as manager:
        return list(manager.list(sorted(data)))
"""
TMP = """
def custom_kernel(data):
    with open("/tmp/of-its-own", "w") as file:
        file.write("x")
    return sorted(data)
"""


@needs(LANDLOCK)
@pytest.mark.parametrize(
    ("source", "sentence"),
    [(C_CODE, isolation_hints.NAMED), (MANAGER, isolation_hints.SOCKETS), (TMP, isolation_hints.FILES)],
)
def test_what_is_not_to_be_had_is_said_with_the_reason(tmp_path: Path, source: str, sentence: str) -> None:
    report = ground.judged(tmp_path, ground.manifest(source, mode="test"), env=AT_1).told
    assert (report.verdict, report.isolation.level) == ("error", 1), report.isolation.notes
    assert report.reason.endswith(f" - {sentence}")


FORKS = """
import os, time


def custom_kernel(data):
    while True:
        if os.fork() == 0:
            time.sleep(600)
            os._exit(0)
"""
THREADS = """
import threading, time


def custom_kernel(data):
    while True:
        threading.Thread(target=time.sleep, args=[600], daemon=True).start()
"""


@needs(LANDLOCK)
@pytest.mark.parametrize("source", [FORKS, THREADS])
def test_whoever_meets_the_limit_of_processes_is_told_that_others_count_too(tmp_path: Path, source: str) -> None:
    report = ground.judged(tmp_path, ground.manifest(source, mode="test"), env=AT_1).told
    assert (report.verdict, report.isolation.level) == ("error", 1), report.isolation.notes
    assert report.reason.endswith(f" - {isolation_hints.CROWDED}")


PLAIN_FILE = """
def custom_kernel(data):
    with open("/dev/shm/of-its-own", "w") as file:
        file.write("x")
    return sorted(data)
"""
CONTINUES = """
import os, signal, subprocess


def custom_kernel(data):
    child = subprocess.Popen(["sleep", "600"])
    try:
        os.kill(child.pid, signal.SIGCONT)
    finally:
        child.kill()
    return sorted(data)
"""
IN_A_POOL = """
import multiprocessing, socket


def work(data):
    socket.socket(socket.AF_UNIX)


def custom_kernel(data):
    with multiprocessing.get_context("fork").Pool(1) as pool:
        return pool.apply(work, [data])
"""


@needs(LANDLOCK)
@pytest.mark.parametrize(
    ("source", "sentence"),
    [(PLAIN_FILE, isolation_hints.FILES), (IN_A_POOL, isolation_hints.SOCKETS)]
    + ([(CONTINUES, isolation_hints.ANOTHERS)] if landlock.keeps_signals() else []),
)
def test_the_sentence_is_about_what_was_refused(tmp_path: Path, source: str, sentence: str) -> None:
    report = ground.judged(tmp_path, ground.manifest(source, mode="test"), env=AT_1).told
    assert (report.verdict, report.isolation.level) == ("error", 1), report.isolation.notes
    assert report.reason.endswith(f" - {sentence}")


ENDS = """
import subprocess


def custom_kernel(data):
    subprocess.Popen(["sleep", "600"]).terminate()
    return sorted(data)
"""


POOLS = """
import multiprocessing, os, signal, time


def deaf(ready):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    ready.set()
    time.sleep(600)


def tidy(ready):
    signal.signal(signal.SIGTERM, lambda *_: os._exit(7))
    ready.set()
    while True:
        time.sleep(0.01)


def custom_kernel(data):
    found = []
    for method in ("fork", "spawn") if data else ():
        context = multiprocessing.get_context(method)
        with context.Pool(2) as pool:
            found.append(pool.apply(sorted, [data]))
            pool.apply_async(time.sleep, [600])
        with context.Pool(1):
            pass
        for target, ends in ((deaf, -signal.SIGKILL), (tidy, 7), (time.sleep, -signal.SIGTERM)):
            ready = context.Event()
            child = context.Process(target=target, args=(ready if target is not time.sleep else 600,))
            child.start()
            if target is not time.sleep:
                ready.wait(60)
            child.terminate()
            if target is deaf:
                child.join(0.3)
                assert child.is_alive()
                child.kill()
            child.join()
            assert child.exitcode == ends, (method, target, child.exitcode)
    return sorted(data)
"""


@pytest.fixture
def older(tmp_path: Path) -> Path:
    """The harness as it is on a Linux before 6.12: its launcher believes that Landlock keeps no signals inside."""
    launcher, judge = tmp_path / "launcher.py", tmp_path / "judge.py"
    first = f"import subprocess, sys\nsys.path.insert(0, {str(ground.EVAL)!r})\n"
    launcher.write_text(
        f"{first}from kbslurm_eval.cage import landlock, launcher\n"
        "landlock.keeps_signals = lambda: False\nraise SystemExit(launcher.launch())\n"
    )
    judge.write_text(
        f"{first}from kbslurm_eval import run\nfrom kbslurm_eval.cage import local_runners\nreal = subprocess.Popen\n"
        "def popen(argv, **more):\n"
        f"    return real([*argv[:-2], {str(launcher)!r}] if argv[-1] == '--jail' else argv, **more)\n"
        "local_runners.subprocess.Popen = popen\nraise SystemExit(run.main())\n"
    )
    return judge


@needs(LANDLOCK)
def test_where_the_kernel_keeps_no_signals_inside_that_is_said(tmp_path: Path, older: Path) -> None:
    report = ground.judged(tmp_path / "run", ground.manifest(ENDS, mode="test"), env=AT_1, program=older).told
    assert (report.verdict, report.isolation.level) == ("error", 1), report.isolation.notes
    assert report.reason.endswith(f" - {isolation_hints.SIGNALS}")
    if landlock.keeps_signals():
        report = ground.judged(tmp_path / "now", ground.manifest(ENDS, mode="test"), env=AT_1).told
        assert report.verdict == "passed", report.reason


@needs(LANDLOCK)
@pytest.mark.parametrize("kernel", ["this", "older"])
def test_processes_of_pythons_are_ended_on_every_kernel(tmp_path: Path, older: Path, kernel: str) -> None:
    program = older if kernel == "older" else ground.EVAL
    report = ground.judged(tmp_path / "run", ground.manifest(POOLS, mode="test"), env=AT_1, program=program).told
    assert (report.verdict, report.log) == ("passed", ""), report.reason


def test_below_namespaces_only_the_fence_lets_signals_go() -> None:
    own = os.getpid()
    strict = syscall_filter.seccomp_filter(bare=True, own_pid=own)
    assert len(syscall_filter.seccomp_filter(bare=True, own_pid=own, scoped=True)) < len(strict)
    assert syscall_filter.seccomp_filter(bare=False, own_pid=own, scoped=True) == syscall_filter.seccomp_filter(
        bare=False, own_pid=own
    )


LARGE = """
from multiprocessing.shared_memory import SharedMemory


def custom_kernel(data):
    memory = SharedMemory(create=True, size=SIZE << 20)
    memory.buf[-1] = 1
    memory.close()
    memory.unlink()
    return sorted(data)
"""


@needs(LANDLOCK, USER_NAMESPACES)
@pytest.mark.parametrize("level", ["1", "2"])
@pytest.mark.parametrize(("size", "verdict"), [(100, "passed"), (200, "error")])
def test_shared_memory_is_as_large_as_a_file_may_be_at_each_level(
    tmp_path: Path, level: str, size: int, verdict: str
) -> None:
    """It was 64 MiB at level 2, and the first page beyond that was the end of the process."""
    told = ground.manifest(LARGE.replace("SIZE", str(size)), mode="test", limits=ground.limits(file_bytes=128 << 20))
    report = ground.judged(tmp_path, told, env={"KBSLURM_EVAL_LEVEL": level}).told
    assert report.verdict == verdict, report.reason
    assert verdict == "passed" or "File too large" in report.reason
