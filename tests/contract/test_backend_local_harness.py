"""The local backend with the real harness: what the stand-in does in the contract suite, done by the program itself."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kbslurm.backends.local import supervise
from kbslurm.backends.local.backend import SHARED_MEMORY, LocalBackend
from kbslurm.backends.local.supervise import descendants
from kbslurm.domain.problem import Problem
from kbslurm.domain.run import (
    AttemptId,
    AttemptState,
    Ending,
    OpenAttempt,
    RunId,
    Seen,
    SubmissionId,
    Work,
    new_job_name,
)
from kbslurm.flow import render
from kbslurm.flow.place import Place
from kbslurm.ports import JobSpec
from kbslurm.problems.loading import load
from kbslurm_eval.shared import wire
from kbslurm_eval.shared.wire import Mode
from tests.contract.backend_suite import REPOSITORY, attempt_of, is_alive, key_of, wait_seen, wait_until
from tests.contract.test_backend_local import LocalCase, end_all, owner_of

SLEEPER = "import time\n\n\ndef custom_kernel(data):\n    time.sleep(600)\n    return data\n"
EXAMPLE = REPOSITORY / "examples" / "one_file" / "running_sum.py"


@dataclass
class HarnessCase(LocalCase):
    """The real eval/ folder on one of the examples."""

    wait_s: float = 300.0


@pytest.fixture
def case(tmp_path: Path) -> Iterator[HarnessCase]:
    found = HarnessCase(folder=tmp_path, root=tmp_path / "state", eval_dir=REPOSITORY / "eval")
    yield found
    for backend in found.made:
        backend.close()
    end_all(found)


def judged(case: HarnessCase, source: str, file: Path = EXAMPLE) -> tuple[JobSpec, OpenAttempt]:
    """This source as a job on the example in one file."""
    return sent(case, source, load(file), "test")


def sent(case: HarnessCase, source: str, problem: Problem, mode: Mode) -> tuple[JobSpec, OpenAttempt]:
    """This source as a job on this problem, as the room `render` makes it."""
    name, backend = new_job_name(), case.backend()
    attempt = OpenAttempt(
        id=AttemptId(1),
        run_id=RunId(1),
        number=1,
        name=name,
        backend=case.name,
        gpu=case.gpu,
        state=AttemptState.INTENT,
        handle=None,
        opened_at=datetime.now(UTC),
        deadline_at=None,
    )
    work = Work(
        attempt=attempt,
        submission_id=SubmissionId(1),
        person="somebody",
        by_staff=False,
        board="board",
        mode=mode,
        file_name="kernel.py",
        source=source,
        problem=problem,
        problem_digest=problem.digest,
        nonce="nonce",
        key=key_of(name),
        secret_seed="17",
    )
    job = render.job(work, Place(backend=backend))
    return job, attempt_of(case, job, backend.submit(job))


def example(path: str) -> str:
    return (REPOSITORY / "examples" / "one_file" / "submissions" / path).read_text()


def report_of(case: HarnessCase, job: JobSpec, attempt: OpenAttempt) -> wire.Report:
    backend = case.backend()
    ended = wait_seen(case, backend, attempt, Seen.ENDED)
    sealed = backend.collect(attempt)
    assert sealed is not None, ended
    assert ended.ending is Ending.REPORTED
    return wire.unseal(sealed, job.key)


def left_on_disk(case: HarnessCase, job: JobSpec) -> list[str]:
    """What of a job could still be read by another: its secrets, its working folders."""
    paths = case.paths(job.name)
    places = (*paths.secrets, SHARED_MEMORY / job.name, *paths.scratch.iterdir())
    return [str(place) for place in places if place.exists()]


def tree_that_runs(case: HarnessCase, job: JobSpec, attempt: OpenAttempt) -> list[int]:
    """The job's processes, once the submission itself is among them: supervisor, harness, runner, kernel."""
    backend = case.backend()
    wait_until(case, "it has a claim", lambda: case.paths(job.name).owner.exists())
    supervisor = int(str(owner_of(case, job)["pid"]))
    wait_until(case, "tests have begun", lambda: (backend.progress(attempt) or {}).get("phase") == "test")
    wait_until(case, "a runner runs", lambda: len(descendants(supervisor)) >= 2)
    return [supervisor, *descendants(supervisor)]


def test_a_right_and_a_wrong_submission_are_told_apart(case: HarnessCase) -> None:
    right = judged(case, example("accepted/accumulated.py"))
    wrong = judged(case, example("wrong_answer/off_by_one.py"))
    passed = report_of(case, *right)
    assert passed.verdict == "passed", passed.reason
    assert [test.status for test in passed.tests] == ["pass"] * len(passed.tests)
    assert passed.tests
    assert report_of(case, *wrong).verdict == "wrong"
    assert left_on_disk(case, right[0]) + left_on_disk(case, wrong[0]) == []


@pytest.mark.parametrize("level", ["0", "1"])
def test_a_judge_that_is_root_has_runners_of_other_users_below_its_supervisors_folder(
    case: HarnessCase, level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container whose filter refuses namespaces; without root the runners are the judge's own user."""
    given = case.backend()._environment
    monkeypatch.setattr(LocalBackend, "_environment", lambda _, paths: {**given(paths), "KBSLURM_EVAL_LEVEL": level})
    report = report_of(case, *judged(case, example("accepted/accumulated.py")))
    assert (report.verdict, report.isolation.level) == ("passed", int(level)), report.reason


def test_a_cancel_reaches_the_submission_itself(case: HarnessCase) -> None:
    job, attempt = judged(case, SLEEPER)
    tree = tree_that_runs(case, job, attempt)
    case.backend().cancel(attempt)
    assert wait_seen(case, case.backend(), attempt, Seen.ENDED).ending is Ending.CANCELLED
    assert [pid for pid in tree[1:] if is_alive(pid)] == []
    assert left_on_disk(case, job) == []


def test_nothing_outlives_a_supervisor_that_was_killed(case: HarnessCase) -> None:
    job, attempt = judged(case, SLEEPER)
    tree = tree_that_runs(case, job, attempt)
    os.kill(tree[0], signal.SIGKILL)
    assert wait_seen(case, case.backend(), attempt, Seen.ENDED).ending is Ending.NO_REPORT
    wait_until(case, "all of it is dead", lambda: not any(is_alive(pid) for pid in tree))
    assert left_on_disk(case, job) == []


def test_an_answer_that_brings_the_check_down_is_wrong_and_not_tried_again(case: HarnessCase) -> None:
    """By the supervisor's word on the harness itself; a stand-in says the same at every place (backend_suite)."""
    file = case.folder / "fragile.py"
    file.write_text(
        "import ctypes\n"
        + EXAMPLE.read_text().replace("output == reference", "output == reference or ctypes.string_at(8)")
    )
    _, attempt = judged(case, example("wrong_answer/off_by_one.py"), file)
    ended = wait_seen(case, case.backend(), attempt, Seen.ENDED)
    assert (ended.ending, ended.exit_code) == (Ending.CHECK_DIED, -signal.SIGSEGV)
    assert case.backend().collect(attempt) is None


def test_a_submission_below_its_limit_has_room_beside_a_baseline_that_is_below_it(case: HarnessCase) -> None:
    """What each may use is the judge's to hold it to; the supervisor sees both."""
    large = f"held = bytearray(b'1') * {192 << 20}\n\n\n" + example("accepted/accumulated.py")
    found = load(EXAMPLE)
    limits, budget = replace(found.limits, memory_bytes=320 << 20), replace(found.budget, launches=1)
    problem = replace(found, limits=limits, budget=budget, config={**found.config, "baseline": large})
    report = report_of(case, *sent(case, large, problem, "benchmark"))
    assert report.verdict == "passed", report.reason
    assert report.benchmarks and all(one.baseline_ns for one in report.benchmarks), "both were there"


def test_the_harness_leaves_no_core_and_may_allow_a_byte_of_one(tmp_path: Path) -> None:
    """As in a site's job (`unit/test_supervise.py` says why)."""
    reads, writes = os.pipe()
    program = "import resource; print(*resource.getrlimit(resource.RLIMIT_CORE))"
    order = {"scratch": str(tmp_path), "argv": ["-c", program], "environment": {}}
    os.waitpid(supervise.start(order, writes), 0)
    os.close(writes)
    with open(reads) as said:
        assert said.read() == f"0 {resource.getrlimit(resource.RLIMIT_CORE)[1]}\n"
