"""What keeps a stopped runner's core awake: at its core, of the lowest class, silent while a runner is at work, gone
with its judge."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kbslurm_eval.cage import core_warmer, judge_children, process_tree, processes
from kbslurm_eval.judge import launch
from kbslurm_eval.judge.heartbeat import Heartbeat
from kbslurm_eval.judge.reference import Case, Prepared
from kbslurm_eval.shared import values
from kbslurm_eval.shared.layouts import Layout
from tests.adversarial import trial
from tests.flow import harness_ground as ground
from tests.services import PYTHON, SYSTEM_PYTHON, USER_NAMESPACES, need, needs, pointless


@pytest.fixture
def warmer() -> Iterator[core_warmer.CoreWarmer]:
    made = core_warmer.CoreWarmer()
    yield made
    made.close()


def started(made: core_warmer.CoreWarmer) -> int:
    made.turn(min(os.sched_getaffinity(0)))
    assert made._process is not None
    return made._process.pid


def ticks(pid: int) -> int:
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(words[11]) + int(words[12])


def until(good: Callable[[], bool], said: str) -> None:
    deadline = time.monotonic() + 60
    while not good():
        if time.monotonic() > deadline:
            pytest.fail(said)  # not two moments that pytest would show as what is wrong
        time.sleep(0.005)


def asleep(pid: int) -> bool:
    return processes.state_of(pid) == "S"


def test_it_turns_at_the_core_that_it_is_told_and_yields_to_everybody(warmer: core_warmer.CoreWarmer) -> None:
    pid = started(warmer)
    until(lambda: os.sched_getscheduler(pid) == os.SCHED_IDLE, "it isn't of the lowest class")
    until(lambda: asleep(pid), "it never waits for its bell")
    for core in sorted(os.sched_getaffinity(0)):
        before = ticks(pid)

        def turned(core: int = core, before: int = before) -> bool:
            warmer.turn(core)
            return ticks(pid) > before

        until(turned, f"it doesn't turn on core {core}")
        assert os.sched_getaffinity(pid) == {core}


@contextlib.contextmanager
def of_anybody(folder: Path) -> Iterator[tuple[int, int]]:
    """The process of a judge who isn't root, and its bell."""
    if not Path("/proc/self/autogroup").exists():
        pointless("this kernel's scheduler doesn't group processes by session")
    user = None if os.getuid() else 65_534
    eventfd, shared = os.eventfd(0), os.memfd_create("warm")
    os.ftruncate(shared, 4096)
    program = folder / "eval"
    shutil.copytree(trial.EVAL, program, ignore=shutil.ignore_patterns("__pycache__"))
    for place in (folder, *folder.parents[:2]):
        place.chmod(0o755)
    argv = [SYSTEM_PYTHON, "-I", "-S", "-B", str(program), "--keep-awake", str(shared), str(eventfd), str(os.getpid())]
    with subprocess.Popen(argv, pass_fds=(shared, eventfd), start_new_session=True, user=user) as process:
        try:
            yield process.pid, eventfd
        finally:
            process.kill()
            os.close(eventfd)
            os.close(shared)


def light(pid: int, bell: int) -> bool:
    """Whether it weighs little, once it was rung for."""
    os.eventfd_write(bell, 1)
    return "nice 19" in Path(f"/proc/{pid}/autogroup").read_text()


@contextlib.contextmanager
def others_weighed() -> Iterator[None]:
    """The kernel takes so few words on weights from all users but root that nobody else's is heard meanwhile."""
    ours, over = Path("/proc/self/autogroup"), threading.Event()
    nice = (ours.read_text().split() or ["0"])[-1]  # nothing: whoever started us is in no session of its own

    def weigh() -> None:
        while not over.wait(0.01):
            with contextlib.suppress(OSError):  # refused, it counts as well
                ours.write_text(nice)

    thread = threading.Thread(target=weigh)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@needs(PYTHON)
def test_its_session_weighs_little_for_whoever_judges(tmp_path: Path) -> None:
    with of_anybody(tmp_path) as (pid, bell):
        until(lambda: light(pid, bell), "its weight is anybody's")


@needs(PYTHON)
def test_its_session_weighs_little_although_the_kernel_did_not_hear_it_at_first(tmp_path: Path) -> None:
    with contextlib.ExitStack() as at_last:
        with others_weighed():
            pid, bell = at_last.enter_context(of_anybody(tmp_path))
            os.eventfd_write(bell, 1)
            until(lambda: not select.select([bell], [], [], 0)[0], "it never hears its bell")
        until(lambda: light(pid, bell), "its weight is anybody's")


def test_it_falls_silent_at_once_when_a_runner_goes_on(warmer: core_warmer.CoreWarmer) -> None:
    pid = started(warmer)
    until(lambda: asleep(pid), "it never waits for its bell")
    warmer.turn(min(os.sched_getaffinity(0)))
    warmer.rest()
    until(lambda: asleep(pid), "it turns although it was told to rest")
    assert ticks(pid) < 100


def test_it_stops_by_itself_when_it_isn_t_asked_again(warmer: core_warmer.CoreWarmer) -> None:
    pid = started(warmer)
    until(lambda: asleep(pid), "it turns for ever")


def test_nothing_of_it_is_left_and_a_lost_one_costs_nothing(warmer: core_warmer.CoreWarmer) -> None:
    pid = started(warmer)
    os.kill(pid, signal.SIGKILL)
    core = min(os.sched_getaffinity(0))
    for _ in range(3):
        warmer.turn(core)
        warmer.rest()
    warmer.close()
    assert processes.has_ended(pid)
    # an orphan of a submission's may have the number next, and is to be stopped
    assert pid not in judge_children.OWN_CHILDREN
    warmer.turn(core)
    warmer.rest()


def test_it_ends_with_its_judge() -> None:
    told = f"import sys, time; sys.path.insert(0, {str(trial.EVAL)!r})\nfrom kbslurm_eval.cage import core_warmer\n"
    told += "w = core_warmer.CoreWarmer(); w.turn(0); print(w._process.pid, flush=True); time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", told], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        until(lambda: asleep(pid), "it never waits for its bell")
        process.kill()
        process.wait()
    until(lambda: processes.has_ended(pid), "it outlives its judge")


def test_the_judge_is_not_on_a_runner_s_core_when_it_calls_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two runners take turns, and one of them changes its core after each answer: the judge that left it alone there is
    on the core of the other, which is called next."""
    mine = os.sched_getaffinity(0)
    if len(mine) < 2:
        pointless("this machine has one processor")
    met: list[tuple[int | None, int | None]] = []
    goes_on = launch.Launch._go_on

    def noted(self: launch.Launch) -> None:
        met.append((core_warmer.here(), self._core))
        goes_on(self)

    with ground.runners_here(level=0) as runners:
        called = None
        try:
            called = launch.Launch(runners, launch.Allowance(left_s=120, whole_s=120), Heartbeat(None))
            monkeypatch.setattr(launch.Launch, "_go_on", noted)
            for _ in range(20):
                assert called._core is not None
                os.sched_setaffinity(0, {called._core})
                os.sched_setaffinity(0, mine)
                called.round_trip(dataclasses.replace(PREPARED, packed=values.pack(())))
        finally:
            os.sched_setaffinity(0, mine)
            if called is not None:
                called.close()
    there = [judge == runner for judge, runner in met]
    assert len(there) >= 20
    assert sum(there) <= len(there) // 4, met  # a busy machine may take it back at once


class Scripted:
    """Null calls that take what is written here, and then the last of it for ever."""

    awake = launch.Launch.awake

    def __init__(self, took_us: list[int], threads: int = 2) -> None:
        self.runner, self._threads = self, threads
        self._took, self.calls = took_us, 0
        self._allowance = launch.Allowance(left_s=10, whole_s=10)
        self.ran: list[tuple[int, float]] = []  # after how many calls it was let run, and for how long

    def threads(self) -> int:
        return self._threads

    def _go_on(self) -> None:
        self.ran.append((self.calls, time.monotonic()))

    def _stop(self) -> None:
        calls, began = self.ran.pop()
        self.ran.append((calls, time.monotonic() - began))

    def round_trip(self, prepared: Prepared) -> int:
        time.sleep(0.002)
        self._allowance.spend(0.002)
        self.calls += 1
        return 1000 * self._took[min(self.calls, len(self._took)) - 1]


PREPARED = Prepared(
    case=Case(index=0, params={}), packed=b"", layout=Layout(tree=["0"], size=0), expected=None, exact=False
)


@pytest.mark.parametrize("took", [[3000] * 3 + [40], [100_000, 40], [40, 40, 3000, 3000, 3000, 41]])
def test_null_calls_count_once_they_are_alike(took: list[int]) -> None:
    scripted = Scripted(took)
    launch.Launch.settle(scripted, PREPARED)  # type: ignore[arg-type]
    assert scripted.calls >= len(took) + launch.SETTLED - 1
    assert scripted._allowance.theirs_s == 0  # a busy machine's time is not the submission's


def test_libraries_come_to_rest_before_null_calls_count() -> None:
    scripted = Scripted([150_000] + [3000] * 10_000)  # threads of theirs that turn make each of them late, all alike
    launch.Launch.settle(scripted, PREPARED)  # type: ignore[arg-type]
    [(calls, seconds)] = scripted.ran
    assert calls == 1  # it has imported what it needs then
    assert seconds >= launch.SETTLE_LEAST_S


def test_nothing_is_waited_for_where_no_library_has_threads() -> None:
    scripted = Scripted([40], threads=1)
    launch.Launch.settle(scripted, PREPARED)  # type: ignore[arg-type]
    assert scripted.ran == [] and scripted.calls > launch.SETTLED
    scripted = Scripted([40, 3000] * 10_000, threads=1)  # a busy machine's, which won't be alike for long
    launch.Launch.settle(scripted, PREPARED)  # type: ignore[arg-type]
    assert scripted.ran == [] and scripted.calls <= 2 + launch.SETTLE_LEAST_S / 0.002


class Turning(Scripted):
    """A submission that has begun a thread which turns for so long, of what it gets of a core."""

    def __init__(self, turns_s: float, share: float) -> None:
        super().__init__([40])
        self._turns_s, self._share = turns_s, share
        self._rest_left_s = launch.REST_MOST_S
        self._began = time.monotonic()
        self.stopped_s = 0.0

    def ran_ns(self) -> int:
        return int((time.monotonic() - self._began) * self._share * 1e9)

    def threads(self, *, running: bool = False) -> int:
        return self.awake + (self.ran_ns() < self._turns_s * 1e9 if running else 1)

    def _stop(self) -> None:
        self.stopped_s = time.monotonic() - self._began

    def _look_at_link(self) -> None:
        assert self.stopped_s

    _rest = _look_at_link

    def _theirs(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()


@pytest.mark.parametrize(
    ("turns_s", "share", "least_s", "over"),
    [(0.05, 0.9, 0.05, True), (0.05, 0.1, 0.5, True), (600, 0.9, 0.2, False), (600, 0.1, 1.0, False)],
    ids=["a library's", "on a busy machine", "for ever", "for ever on a busy machine"],
)
def test_a_thread_that_turns_has_its_time_of_a_core_to_come_to_rest(
    turns_s: float, share: float, least_s: float, over: bool
) -> None:
    """It had a fifth of a second by the wall, in which it hadn't come to its thirty milliseconds on a busy machine."""
    turning = Turning(turns_s, share)
    launch.Launch.come_to_rest(turning)  # type: ignore[arg-type]
    assert least_s <= turning.stopped_s
    assert (turning.threads(running=True) == turning.awake) == over
    assert (turning._rest_left_s > 0) == over
    turning.stopped_s = 0
    launch.Launch.come_to_rest(turning)  # type: ignore[arg-type]
    assert (turning.stopped_s > 0) == over, "who has used it up has no more"


@pytest.mark.parametrize("level", [0, 1, 2])
def test_threads_are_counted_that_may_still_turn_and_no_keeper(level: int) -> None:
    if level == 2:
        need(USER_NAMESPACES)
    with subprocess.Popen(["sleep", "600"]) as others:
        try:
            with ground.runners_here(level=level) as runners:
                one = launch.Launch(runners, launch.Allowance(left_s=120, whole_s=120), Heartbeat(None))
                assert one.runner.threads() == launch.Launch.awake
                one.close()
            assert others.poll() is None, "the tests' own database would be ended, too"
        finally:
            others.kill()


def test_null_calls_that_are_never_alike_cost_a_moment_only() -> None:
    scripted = Scripted([40, 3000] * 10_000)
    began = time.monotonic()
    launch.Launch.settle(scripted, PREPARED)  # type: ignore[arg-type]
    assert scripted.calls > launch.SETTLED
    assert time.monotonic() - began < 60


def test_a_process_of_a_runner_s_is_listed_once() -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as process:
        try:
            tree = process_tree.ProcessTree([process.pid, os.getpid()], process.pid)
            found = tree.all()
            assert len(found) == len(set(found))
            assert {process.pid, os.getpid()} <= set(found)
            assert tree.core() in os.sched_getaffinity(0)
        finally:
            process.kill()


def looked(pages: processes.ProcessPages, pid: int) -> tuple[bool, list[int]]:
    threads, below = pages.look(pid)
    return processes.are_stopped(threads), below


@pytest.fixture
def sleeping() -> Iterator[subprocess.Popen[str]]:
    """A process that says who its child is."""
    told = "import subprocess, sys, time\n"
    told += "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
    told += "print(child.pid, flush=True)\ntime.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", told], stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            for pid in (*processes.descendants_of(process.pid), process.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def test_a_page_that_is_held_open_tells_what_is_now(sleeping: subprocess.Popen[str]) -> None:
    assert sleeping.stdout is not None
    child = int(sleeping.stdout.readline())
    pages = processes.ProcessPages()
    until(lambda: looked(pages, sleeping.pid) == (False, [child]), "it doesn't run with one child")
    os.kill(sleeping.pid, signal.SIGSTOP)
    until(lambda: looked(pages, sleeping.pid) == (True, [child]), "it isn't seen to have stopped")
    os.kill(child, signal.SIGKILL)
    until(lambda: looked(pages, child) == (True, []), "its child isn't seen to have ended")
    os.kill(sleeping.pid, signal.SIGCONT)
    until(lambda: looked(pages, sleeping.pid)[0] is False, "it isn't seen to go on")
    assert pages.resident(sleeping.pid) > 1 << 20
    os.kill(sleeping.pid, signal.SIGKILL)
    sleeping.wait()
    assert looked(pages, sleeping.pid) == (True, [])
    assert pages.stat(sleeping.pid) == b""
    assert pages.resident(sleeping.pid) == 0
    pages.close()


def test_the_number_of_one_that_has_gone_is_looked_up_anew(sleeping: subprocess.Popen[str]) -> None:
    assert sleeping.stdout is not None
    child = int(sleeping.stdout.readline())
    pages, number = processes.ProcessPages(), sleeping.pid
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as gone:
        looked(pages, gone.pid)
        pages.resident(gone.pid)
        gone.kill()
    # as if the living one had the number that the ended one had
    pages._folders[number] = pages._folders.pop(gone.pid)
    pages._held[number, str(number)] = pages._held.pop((gone.pid, str(gone.pid)))
    pages._sizes[number] = pages._sizes.pop(gone.pid)
    assert looked(pages, number) == (False, [child])
    assert pages.resident(number) > 1 << 20
    pages.close()


def test_no_more_pages_are_held_open_than_the_judge_can_spare(sleeping: subprocess.Popen[str]) -> None:
    pages = processes.ProcessPages()
    before = len(os.listdir("/proc/self/fd"))
    held = [subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE) for _ in range(30)]
    try:
        opened = len(os.listdir("/proc/self/fd"))
        for process in held:

            def runs(pid: int = process.pid) -> bool:
                return looked(pages, pid) == (False, [])

            until(runs, "one isn't seen")
            assert pages.resident(process.pid) > 0
        assert len(os.listdir("/proc/self/fd")) - opened <= 4 * processes.HELD_OPEN
    finally:
        for process in held:
            process.kill()
            process.communicate()
        pages.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_what_can_t_be_read_is_not_taken_for_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(os, "open", full)
    with pytest.raises(OSError, match="too many"):
        processes.ProcessPages().look(os.getpid())


RUNGS = 8
LADDER = """
import ctypes, os, sys, time
libc = ctypes.CDLL(None)
def rung(left):
    libc.prctl(36, 1, 0, 0, 0)  # orphans below come to it
    print(os.getpid(), flush=True)
    if not left:
        while True:
            pass
    if os.fork() == 0:
        rung(left - 1)
    time.sleep(600)
rung(int(sys.argv[1]))
"""


def test_who_climbs_past_the_looks_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    argv = [sys.executable, "-S", "-c", LADDER, str(RUNGS)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        rungs = [int(process.stdout.readline()) for _ in range(RUNGS + 1)]
        climber = rungs[-1]
        tree = process_tree.ProcessTree([process.pid], process.pid)
        look = tree._pages.look

        def parent() -> int:
            return int(Path(f"/proc/{climber}/stat").read_text().rpartition(")")[2].split()[1])

        def climbing(pid: int) -> tuple[processes.Threads, list[int]]:
            # whoever climbs ends its parent after that one's parent was looked at
            if pid == parent() != process.pid and processes.state_of(climber) == "R":
                os.kill(pid, signal.SIGKILL)
                until(lambda: parent() != pid, "it has its dead parent still")
            return look(pid)

        try:
            monkeypatch.setattr(tree._pages, "look", climbing)
            tree.freeze(None)
            assert processes.state_of(climber) == "T"
        finally:
            for pid in rungs:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            tree.close()


BUSY = """
import os, subprocess, sys, threading, time
def turn():
    while True:
        pass
def born():
    print(subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"]).pid, flush=True)
    time.sleep(600)
for _ in range(2):
    threading.Thread(target=turn, daemon=True).start()
if sys.argv[1] == "child":
    threading.Thread(target=born, daemon=True).start()
else:
    print(os.getpid(), flush=True)
turn()
"""


@contextlib.contextmanager
def busy(kind: str) -> Iterator[tuple[int, int]]:
    """A process with threads that turn, and its child if that was asked for, which another thread than the first
    started; otherwise itself."""
    with subprocess.Popen([sys.executable, "-S", "-c", BUSY, kind], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        other = int(process.stdout.readline())
        try:
            yield process.pid, other
        finally:
            for pid in {other, process.pid}:
                os.kill(pid, signal.SIGKILL)


def states(pid: int) -> set[str]:
    found = (path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/stat"))
    return {text.rpartition(")")[2].split()[0] for text in found}


def test_one_process_is_stopped_with_all_of_its_threads_and_few_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    with busy("alone") as (pid, _):
        tree = process_tree.ProcessTree([pid], pid)
        with monkeypatch.context() as patch:
            patch.setattr(process_tree, "STOPS_WITHIN_NS", 60 * 10**9)  # however busy this machine is
            patch.setattr(tree, "_look", lambda: pytest.fail("it was looked for as if it could be many"))
            for _ in range(20):
                tree.freeze(None)
                assert states(pid) == {"T"}
                assert tree.known() == [pid]
                tree.thaw()
                until(lambda: "R" in states(pid), "it doesn't go on")
        tree.close()


def test_one_that_has_a_child_is_not_taken_for_one_process() -> None:
    with busy("child") as (pid, child):
        tree = process_tree.ProcessTree([pid], pid)
        for _ in range(20):
            tree.freeze(None)
            assert states(pid) == states(child) == {"T"}
            tree.thaw()
            until(lambda: "R" in states(child), "its child doesn't go on")
        tree.close()


def test_one_beside_an_orphan_is_not_taken_for_one_process() -> None:
    with busy("alone") as (pid, _), busy("alone") as (orphan, _):
        tree = process_tree.ProcessTree([pid], pid, orphans=lambda: [orphan])
        tree.freeze(None)
        assert states(pid) == states(orphan) == {"T"}
        tree.close()


def test_one_beside_the_keepers_orphan_is_not_taken_for_one_process() -> None:
    with busy("alone") as (pid, _), busy("child") as (keeper, orphan):
        tree = process_tree.ProcessTree([pid, keeper], pid)
        tree.freeze(keeper)
        assert states(pid) == states(orphan) == {"T"}
        assert "R" in states(keeper)
        tree.close()


def test_one_that_has_ended_is_no_stopped_one() -> None:
    with subprocess.Popen([sys.executable, "-S", "-c", "pass"]) as process:
        until(lambda: processes.state_of(process.pid) == "Z", "it doesn't end")
        assert not process_tree.ProcessTree([process.pid], process.pid)._has_stopped(process.pid)
        process_tree.ProcessTree([process.pid], process.pid).freeze(None)  # nothing of it runs
