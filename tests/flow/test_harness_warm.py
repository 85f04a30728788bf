"""What keeps a stopped runner's core awake: at its core, of the lowest class, silent while a runner is at work, gone
with its judge."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kbslurm_eval import judge, supervisor, warm
from kbslurm_eval.check import Case, Prepared
from kbslurm_eval.values import Layout
from tests.adversarial import trial


@pytest.fixture
def warmer() -> Iterator[warm.Warmer]:
    made = warm.Warmer()
    yield made
    made.close()


def started(made: warm.Warmer) -> int:
    made.turn(min(os.sched_getaffinity(0)))
    assert made._process is not None
    return made._process.pid


def ticks(pid: int) -> int:
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(words[11]) + int(words[12])


def until(good: Callable[[], bool], said: str) -> None:
    deadline = time.monotonic() + 60
    while not good():
        assert time.monotonic() < deadline, said
        time.sleep(0.005)


def asleep(pid: int) -> bool:
    return supervisor._state(pid) == "S"


def test_it_turns_at_the_core_that_it_is_told_and_yields_to_everybody(warmer: warm.Warmer) -> None:
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


def test_its_session_weighs_little_for_whoever_judges(tmp_path: Path) -> None:
    if not Path("/proc/self/autogroup").exists():
        pytest.skip("sessions are no groups of the scheduler here")
    python, user = "/usr/bin/python3", None if os.getuid() else 65_534
    if not os.access(python, os.X_OK):
        pytest.skip("no Python that any user may run")
    eventfd, shared = os.eventfd(0), os.memfd_create("warm")
    os.ftruncate(shared, 4096)
    program = tmp_path / "eval"
    shutil.copytree(trial.EVAL, program, ignore=shutil.ignore_patterns("__pycache__"))
    for place in (tmp_path, *tmp_path.parents[:2]):
        place.chmod(0o755)
    argv = [python, "-I", "-S", "-B", str(program), "--warm", str(shared), str(eventfd), str(os.getpid())]
    with subprocess.Popen(argv, pass_fds=(shared, eventfd), start_new_session=True, user=user) as process:
        try:
            until(lambda: "nice 19" in Path(f"/proc/{process.pid}/autogroup").read_text(), "its weight is anybody's")
        finally:
            process.kill()
            os.close(eventfd)
            os.close(shared)


def test_it_falls_silent_at_once_when_a_runner_goes_on(warmer: warm.Warmer) -> None:
    pid = started(warmer)
    until(lambda: asleep(pid), "it never waits for its bell")
    warmer.turn(min(os.sched_getaffinity(0)))
    warmer.rest()
    until(lambda: asleep(pid), "it turns although it was told to rest")
    assert ticks(pid) < 100


def test_it_stops_by_itself_when_it_isn_t_asked_again(warmer: warm.Warmer) -> None:
    pid = started(warmer)
    until(lambda: asleep(pid), "it turns for ever")


def test_nothing_of_it_is_left_and_a_lost_one_costs_nothing(warmer: warm.Warmer) -> None:
    pid = started(warmer)
    os.kill(pid, signal.SIGKILL)
    core = min(os.sched_getaffinity(0))
    for _ in range(3):
        warmer.turn(core)
        warmer.rest()
    warmer.close()
    assert supervisor._gone(pid)
    assert pid not in supervisor._MAINS  # an orphan of a submission's may have the number next, and is to be stopped
    warmer.turn(core)
    warmer.rest()


def test_it_ends_with_its_judge() -> None:
    told = f"import sys, time; sys.path.insert(0, {str(trial.EVAL)!r})\nfrom kbslurm_eval import warm\n"
    told += "w = warm.Warmer(); w.turn(0); print(w._process.pid, flush=True); time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", told], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        until(lambda: asleep(pid), "it never waits for its bell")
        process.kill()
        process.wait()
    until(lambda: supervisor._gone(pid), "it outlives its judge")


class Scripted:
    """Null calls that take what is written here, and then the last of it for ever."""

    def __init__(self, took_us: list[int]) -> None:
        self._took, self.calls = took_us, 0
        self._allowance = judge.Allowance(left_s=10, whole_s=10)

    def null(self, prepared: Prepared) -> int:
        time.sleep(0.002)
        self._allowance.spend(0.002)
        self.calls += 1
        return 1000 * self._took[min(self.calls, len(self._took)) - 1]


PREPARED = Prepared(
    case=Case(index=0, params={}), packed=b"", layout=Layout(tree=["0"], size=0), expected=None, exact=False
)


@pytest.mark.parametrize("took", [[3000] * 20 + [40], [100_000, 40], [40, 40, 3000, 3000, 3000, 41]])
def test_null_calls_count_once_they_are_alike(took: list[int]) -> None:
    scripted = Scripted(took)
    judge.Launch.settle(scripted, PREPARED)  # type: ignore[arg-type]
    assert scripted.calls >= len(took) + judge.SETTLED - 1
    assert scripted._allowance.theirs_s == 0  # a busy machine's time is not the submission's


def test_null_calls_that_are_never_alike_cost_a_moment_only() -> None:
    scripted = Scripted([40, 3000] * 10_000)
    began = time.monotonic()
    judge.Launch.settle(scripted, PREPARED)  # type: ignore[arg-type]
    assert scripted.calls > judge.SETTLED
    assert time.monotonic() - began < 60


def test_a_process_of_a_runner_s_is_listed_once() -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as process:
        try:
            tree = supervisor._Tree([process.pid, os.getpid()], process.pid)
            found = tree.all()
            assert len(found) == len(set(found))
            assert {process.pid, os.getpid()} <= set(found)
            assert tree.core() in os.sched_getaffinity(0)
        finally:
            process.kill()
