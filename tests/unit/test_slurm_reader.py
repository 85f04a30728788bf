"""What Slurm's words mean, what sbatch's complaints mean, and how often it may be asked."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from kbslurm.backends.slurm.call_pace import CallPace
from kbslurm.backends.slurm.reader import (
    Phase,
    ending_of,
    phase_of,
    read_sacct,
    read_squeue,
    read_test_only,
    reason_text,
)
from kbslurm.backends.slurm.refusals import refusal_in
from kbslurm.domain.run import Ending
from kbslurm.domain.site import Poll


@pytest.mark.parametrize(
    ("state", "phase"),
    [
        ("PENDING", Phase.WAITING),
        ("CONFIGURING", Phase.WAITING),
        ("REQUEUE_HOLD", Phase.WAITING),
        ("RUNNING", Phase.RUNNING),
        ("SUSPENDED", Phase.RUNNING),
        ("COMPLETING", Phase.RUNNING),
        ("STAGE_OUT", Phase.RUNNING),
        ("COMPLETED", Phase.ENDED),
        ("CANCELLED by 1000", Phase.ENDED),
        ("CANCELLED+", Phase.ENDED),
        ("PREEMPTED", Phase.ENDED),
        ("NODE_FAIL", Phase.ENDED),
        ("REVOKED", Phase.ELSEWHERE),
        ("OUT_OF_MEMORY", Phase.ENDED),
        ("", Phase.INDETERMINATE),
        ("SOMETHING_OF_SLURM_99", Phase.INDETERMINATE),
    ],
)
def test_a_state_means_one_thing_and_an_unknown_one_nothing(state: str, phase: Phase) -> None:
    assert phase_of(state) is phase


@pytest.mark.parametrize(
    ("state", "claimed", "ending"),
    [
        ("TIMEOUT", True, Ending.TIMEOUT),
        ("OUT_OF_MEMORY", True, Ending.MEMORY),
        ("NODE_FAIL", True, Ending.NODE_FAILURE),
        ("PREEMPTED", True, Ending.PREEMPTED),
        ("CANCELLED by 0", True, Ending.CANCELLED),
        ("FAILED", True, Ending.NO_REPORT),
        ("FAILED", False, Ending.BOOT_FAILURE),
        ("COMPLETED", True, Ending.NO_REPORT),
        ("BOOT_FAIL", False, Ending.BOOT_FAILURE),
    ],
)
def test_an_ending_without_a_report_has_its_class(state: str, claimed: bool, ending: Ending) -> None:
    assert ending_of(state, claimed=claimed) is ending


def test_squeue_is_read_and_noise_is_left_out() -> None:
    text = (
        "CLUSTER: c1\n"
        "12|kb-abc|RUNNING|1700000000|1700000005|n1|None\n"
        "13|kb-def|PENDING|1700000000|N/A||(QOSMaxJobsPerUserLimit)\n"
        "16|kb-jkl|PENDING|1700000000|1700009000||(Priority)\n"
        "14|kb-ghi|PENDING|2026-01-02T03:04:05|Unknown|(null)|Nodes required | for job are DOWN\n"
        "slurm_load_jobs error: something\n"
        "15|cut off\n"
    )
    running, waiting, planned, third = read_squeue(text)
    assert (running.id, running.name, running.node) == ("12", "kb-abc", "n1")
    assert running.started_at == datetime.fromtimestamp(1700000005, UTC)
    assert (waiting.phase, waiting.node, waiting.started_at) == (Phase.WAITING, None, None)
    assert (running.expected_at, waiting.expected_at, third.expected_at) == (None, None, None)
    assert (planned.started_at, planned.expected_at) == (None, datetime.fromtimestamp(1700009000, UTC))
    assert reason_text(waiting.reason) == "the account's limit on running jobs is reached"
    assert third.reason == "Nodes required | for job are DOWN"
    assert third.submitted_at_s > 0


AT = datetime.fromtimestamp(1700009000, UTC)
ONE = "sbatch: Job 3 to start at 1700009000 using 1 processors on nodes h1 in partition p"


@pytest.mark.parametrize(
    ("said", "at"),
    [
        ("sbatch: Job 12 to start at 1700009000 using 4 processors on nodes h1 in partition gpu-h100", AT),
        ("sbatch: Job 12 to start at 1700009000 using 64 processors on nodes h[1-3,7] in partition a,b", AT),
        ("sbatch: Job 3 to start at 1700009000 using 1 cpus on h1 in partition debug", AT),
        (f"sbatch: lua: remember the maintenance\n{ONE}\nsbatch:   Preempts: 4,5", AT),
        ("sbatch: Job 12 to start at Unknown using 4 processors on nodes h1 in partition p", None),
        ("sbatch: Job 12 to start at 0 using 4 processors on nodes h1 in partition p", None),
        ("sbatch: Job 12 to start at 1700009000", None),
        (ONE.removeprefix("sbatch: "), None),
        (f"{ONE}\n{ONE.replace('17000', '17001')}", None),
        ("allocation failure: Requested node configuration is not available", None),
        ("sbatch: error: Unable to contact slurm controller (connect failure)", None),
        ("", None),
    ],
)
def test_a_trial_tells_when_in_one_plain_line_or_not_at_all(said: str, at: datetime | None) -> None:
    assert read_test_only(f"{said}\n") == at


def test_a_slurm_that_writes_a_date_means_its_own_clocks_hour() -> None:
    said = "sbatch: Job 12 to start at 2026-11-23T01:02:03 using 4 processors on nodes h1 in partition p"
    assert read_test_only(said) == datetime(2026, 11, 23, 1, 2, 3).astimezone()


def test_of_a_requeued_job_the_newest_incarnation_counts() -> None:
    text = (
        "7|kb-a|NODE_FAIL|0:0|100|101|110|n1|None\n"
        "7|kb-a|COMPLETED|0:0|200|201|210|n2|None\n"
        "8|kb-b|FAILED|3:0|100|101|110|n1|NonZeroExitCode\n"
        "9|kb-c|FAILED|0:9|100|101|110|n1|None\n"
        "7.batch|batch|FAILED|1:0|100|101|110|n1|None\n"
    )
    found = {row.id: row for row in read_sacct(text)}
    assert found["7"].state == "COMPLETED"
    assert found["8"].exit_code == 3
    assert found["9"].exit_code == 137
    assert set(found) == {"7", "8", "9"}


@pytest.mark.parametrize(
    ("said", "permanent"),
    [
        ("sbatch: error: Batch job submission failed: Invalid partition name specified", True),
        ("sbatch: error: invalid partition specified: gpu9", True),
        (
            "sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified",
            True,
        ),
        ("sbatch: error: Batch job submission failed: Invalid qos specification", True),
        ("sbatch: error: Batch job submission failed: Invalid generic resource (gres) specification", True),
        ("sbatch: error: Batch job submission failed: Requested node configuration is not available", True),
        ("sbatch: error: Batch job submission failed: Invalid feature specification", True),
        ("sbatch: unrecognized option '--gpu-freqq=high'", True),
        (
            (
                "sbatch: error: AssocMaxSubmitJobLimit\n"
                "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit limit, ...)"
            ),
            False,
        ),
        ("sbatch: error: QOSMaxSubmitJobPerUserLimit", False),
    ],
)
def test_a_definite_no_is_known(said: str, permanent: bool) -> None:
    refusal = refusal_in(said)
    assert refusal is not None
    assert refusal.permanent is permanent
    assert "sbatch:" not in refusal.message


@pytest.mark.parametrize(
    "said",
    [
        "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation",
        "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)",
        "sbatch: error: Batch job submission failed: Unexpected message received",
        "sbatch: error: Batch job submission failed: A sentence that nobody has seen before",
        "ssh: connect to host login port 22: Connection timed out",
        "Invalid partition name specified",  # not sbatch's own line
        "",
    ],
)
def test_what_isnt_a_definite_no_is_unclear(said: str) -> None:
    assert refusal_in(said) is None


class Watch:
    def __init__(self) -> None:
        self.at = 1000.0

    def __call__(self) -> float:
        return self.at


def test_the_scheduler_is_asked_at_the_sites_pace_and_more_rarely_when_it_is_slow_or_silent() -> None:
    watch = Watch()
    pace = CallPace(Poll(min_interval_s=10, calls_per_minute=60, slow_s=2), watch)
    assert pace.may_look()
    assert not pace.may_look()
    watch.at += 10
    assert pace.may_look()
    pace.called(5.0)
    watch.at += 10
    assert not pace.may_look(), "a slow answer halves the pace"
    watch.at += 10
    assert pace.may_look()
    pace.called(0.1)
    for _ in range(3):
        pace.called(0.1, failed=True)
    assert pace.report().failing == 3
    watch.at += 40
    assert not pace.may_look(), "after failures it is left alone for longer"
    watch.at += 120
    assert pace.may_look()


def test_the_budget_is_kept_whatever_the_interval() -> None:
    watch = Watch()
    pace = CallPace(Poll(min_interval_s=0, calls_per_minute=5, slow_s=2), watch)
    looks = 0
    for _ in range(100):
        if pace.may_look():
            looks += 1
            pace.called(0.01)
    assert looks == 5
    watch.at += 12  # a minute's fifth
    assert pace.may_look()


def test_submissions_keep_to_the_budget_and_leave_the_last_call_for_a_look() -> None:
    watch = Watch()
    pace = CallPace(Poll(min_interval_s=0, calls_per_minute=5, slow_s=2), watch)
    sent = 0
    while pace.has_room():
        sent += 1
        pace.called(0.01)
    assert sent == 4
    assert pace.may_look()
    for _ in range(1000):  # ends that couldn't wait
        pace.called(0.01)
    assert not pace.may_look()
    watch.at += 73
    assert pace.may_look(), "an hour of calls isn't an hour of silence"
