"""Semaphores and memory by name without /dev/shm: what Python's own promise, promised by ours."""

from __future__ import annotations

import errno
import importlib
import os
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kbslurm_eval.runner import named_files, semaphores, sharing

EVAL = Path(__file__).resolve().parents[2] / "eval"
RECURSIVE, PLAIN = 0, 1


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(named_files, "folder", str(tmp_path / named_files.FOLDER))
    return tmp_path / named_files.FOLDER


@pytest.fixture(params=["ours", "Python's"])
def kind_of_lock(request: pytest.FixtureRequest, place: Path) -> Iterator[Any]:
    """The same must hold of both."""
    if request.param == "ours":
        yield semaphores.SemLock
    else:
        yield importlib.import_module("_multiprocessing").SemLock


@pytest.fixture
def made(kind_of_lock: Any) -> Callable[..., Any]:
    def make(kind: int = PLAIN, value: int = 1, most: int = 1) -> Any:
        return kind_of_lock(kind, value, most, f"/kb-{secrets.token_hex(8)}", True)

    return make


def test_a_lock_is_taken_once_and_given_back_once(made: Callable[..., Any]) -> None:
    lock = made()
    assert (lock.kind, lock.maxvalue, lock.name, lock.SEM_VALUE_MAX) == (PLAIN, 1, None, 2**31 - 1)
    assert lock.acquire() is True
    assert lock._is_mine() and lock._count() == 1 and lock._is_zero() and lock._get_value() == 0
    assert lock.acquire(False) is False
    assert lock.acquire(True, 0.01) is False
    assert lock.acquire(block=True, timeout=-1) is False
    lock.release()
    assert (lock._count(), lock._get_value(), lock._is_mine()) == (0, 1, False)
    with pytest.raises(ValueError, match="released too many times"):
        lock.release()
    with lock as got:
        assert got is True
    with pytest.raises(ValueError, match="unrecognized kind"):
        made(kind=2)
    with pytest.raises((OSError, OverflowError)):
        made(value=2**31)


def test_a_recursive_lock_is_its_owners(made: Callable[..., Any]) -> None:
    lock, found = made(kind=RECURSIVE), []
    with pytest.raises(AssertionError, match="not owned by thread"):
        lock.release()
    assert lock.acquire() and lock.acquire(False) and lock._count() == 2

    def another() -> None:
        found.append(lock.acquire(False))
        try:
            lock.release()
        except AssertionError as error:
            found.append(str(error))

    thread = threading.Thread(target=another)
    thread.start()
    thread.join()
    assert found == [False, "attempt to release recursive lock not owned by thread"]
    lock.release()
    assert lock._is_mine()
    lock.release()
    assert not lock._is_mine()


def test_the_last_owner_never_takes_the_next_ones_lock_for_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    lock, last = semaphores.SemLock(RECURSIVE, 1, 1, "/kb-x", True), threading.get_ident()
    lock.acquire()
    lock.release()
    seen = []

    def looked() -> int:  # while the next one is in the midst of `acquire`
        seen.append(lock._count() > 0 and lock._owner == last)
        return threading.get_ident()

    monkeypatch.setattr(semaphores, "get_ident", looked)
    thread = threading.Thread(target=lock.acquire)
    thread.start()
    thread.join()
    assert seen and not any(seen)


def test_a_semaphore_counts_across_processes(made: Callable[..., Any]) -> None:
    counted, full, empty = made(value=0, most=3), made(value=2, most=2), made(value=0)
    pid = os.fork()
    if pid == 0:
        try:
            counted._after_fork()
            for _ in range(3):
                counted.release()
            os._exit(0 if full.acquire(False) and empty.acquire() else 1)
        finally:
            os._exit(2)
    assert all(counted.acquire(True, 60) for _ in range(3))
    assert not counted.acquire(False)
    empty.release()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert full._get_value() == 1


def test_handlers_of_signals_run_while_it_waits(made: Callable[..., Any]) -> None:
    lock, seen = made(value=0), []

    def ring(number: int, frame: object) -> None:
        seen.append(number)
        if len(seen) == 2:
            lock.release()
        if len(seen) == 3:
            raise KeyError("enough")

    before = signal.signal(signal.SIGALRM, ring)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
        assert lock.acquire()
        with pytest.raises(KeyError):
            lock.acquire(True, 60)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert len(seen) >= 3


def test_by_its_name_another_process_finds_it_until_that_is_given_back(place: Path) -> None:
    lock = semaphores.SemLock(PLAIN, 0, 1, "/mp-one", False)
    assert lock.name == "/mp-one"
    assert [path.name for path in place.iterdir()] == ["sem.mp-one"]
    assert place.stat().st_mode & 0o777 == 0o700
    with pytest.raises(FileExistsError):
        semaphores.SemLock(PLAIN, 0, 1, "/mp-one", False)
    again = semaphores.SemLock._rebuild(lock.handle, PLAIN, 1, "/mp-one")
    assert again.handle != lock.handle
    again.release()
    assert lock.acquire(False)
    semaphores.sem_unlink("/mp-one")
    assert list(place.iterdir()) == []
    for gone in (lambda: semaphores.sem_unlink("/mp-one"), lambda: semaphores.SemLock._rebuild(0, 1, 1, "/mp-one")):
        with pytest.raises(FileNotFoundError):
            gone()


def test_many_by_name_use_up_no_descriptors(place: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    held = [semaphores.SemLock(PLAIN, 1, 1, f"/mp-{n}", False) for n in range(50)]
    assert len(os.listdir("/proc/self/fd")) == before
    assert len({lock.handle for lock in held}) == 50


@pytest.mark.parametrize("name", ["", "/", "a/b", "/../x", "//a/../../b", "x" * 300, "/" + "x" * 252])
def test_a_name_leads_nowhere_else(place: Path, name: str) -> None:
    for make in (
        lambda: sharing.shm_open(name, os.O_RDWR | os.O_CREAT, mode=0o600),
        lambda: semaphores.SemLock(PLAIN, 1, 1, name, False),
        lambda: sharing.shm_unlink(name),
    ):
        with pytest.raises(OSError) as refused:
            make()
        assert refused.value.errno in (errno.EINVAL, errno.ENAMETOOLONG)
    with pytest.raises(ValueError, match="null"):
        sharing.shm_open("a\0b", os.O_RDWR | os.O_CREAT)
    (place / "shm.link").symlink_to("/etc/passwd")
    with pytest.raises(OSError, match=os.strerror(errno.ELOOP)):
        sharing.shm_open("link", os.O_RDONLY)


PROGRAM = """
import sys

if __name__ == "__main__":
    sys.path.insert(0, EVAL)
    from kbslurm_eval.runner import sharing
    sharing.install(PLACE)
    sys.path.remove(EVAL)

import multiprocessing, subprocess
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.shared_memory import SharedMemory


def work(n):
    import _multiprocessing, _posixshmem
    assert "kbslurm_eval" in _multiprocessing.SemLock.__module__, _multiprocessing
    assert "kbslurm_eval" in _posixshmem.shm_open.__module__, _posixshmem
    return n + 1


def main():
    context = multiprocessing.get_context(sys.argv[1])
    with context.Pool(2) as pool:
        assert pool.map(work, range(4)) == [1, 2, 3, 4]
    with ProcessPoolExecutor(1, mp_context=context) as executor:
        assert list(executor.map(work, range(4))) == [1, 2, 3, 4]
    numbers, queue = context.Array("d", 5), context.Queue()
    queue.put(1)
    assert queue.get() == 1 and numbers[:] == [0] * 5
    memory = SharedMemory(create=True, size=100)
    memory.close()
    memory.unlink()
    told = "import _multiprocessing; assert 'kbslurm_eval' in _multiprocessing.SemLock.__module__, _multiprocessing"
    subprocess.run([sys.executable, "-c", told], check=True)


if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_every_way_to_start_processes_finds_ours(tmp_path: Path, method: str) -> None:
    """What is started, too, and the tracker of names: neither says a word of trouble, and nothing is left."""
    place, program = tmp_path / "place", tmp_path / "program.py"
    place.mkdir()
    program.write_text(PROGRAM.replace("EVAL", repr(str(EVAL))).replace("PLACE", repr(str(place))))
    env = {**os.environ, "TMPDIR": str(place)}
    done = subprocess.run(
        [sys.executable, "-B", str(program), method], capture_output=True, text=True, timeout=120, check=False, env=env
    )
    assert (done.returncode, done.stderr) == (0, "")
    left = {path.relative_to(place) for path in place.rglob("*") if sharing.PYTHONS not in path.parts}
    assert left <= {Path(named_files.FOLDER)}


def test_who_shares_nothing_imports_nothing_for_it() -> None:
    code = f"""
import sys, importlib.util
sys.path.insert(0, {str(EVAL)!r})
from kbslurm_eval.runner import sharing
sharing.install("/nowhere")
sharing.install("/nowhere")
assert [type(finder).__name__ for finder in sys.meta_path].count("_Finder") == 1
for name in ("ctypes", "mmap", "multiprocessing", "kbslurm_eval.runner.semaphores"):
    assert name not in sys.modules, name
import json, multiprocessing.context
assert multiprocessing.context.__spec__.loader.get_source("multiprocessing.context")
"""
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
