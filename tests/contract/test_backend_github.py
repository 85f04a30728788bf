"""GitHub Actions as a backend: the Backend contract, on a loopback GitHub that does the steps of the real workflow."""

from __future__ import annotations

import base64
import io
import json
import secrets
import signal
import subprocess
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from kbslurm.backends.github import api, repository_files, runner_program
from kbslurm.backends.github import backend as github_backend
from kbslurm.backends.github.backend import GithubBackend
from kbslurm.backends.github.check import findings
from kbslurm.backends.paths import AttemptPaths
from kbslurm.domain.finding import Grade
from kbslurm.domain.run import Ending, JobName, OpenAttempt, Seen
from kbslurm.errors import BackendRefused, BackendTrouble, BackendUnclear, Invalid
from kbslurm.observe.crash_points import GITHUB_CRASH_POINTS
from kbslurm.ports import JobSpec
from kbslurm_eval.shared import wire
from tests.contract import submitter
from tests.contract.backend_suite import (
    BackendContract,
    attempt_of,
    executions,
    make_eval,
    make_job,
    wait_counted,
    wait_seen,
    wait_until,
)
from tests.fakes.github import REPOSITORY as RUNS
from tests.fakes.github import TOKEN, FakeGithub, Fault
from tests.flow.stage import overheard

GPU = "T4"


@dataclass
class GithubCase:
    """GitHub as the suite wants it."""

    folder: Path
    fake: FakeGithub
    eval_dir: Path
    run_key: bytes
    name: str = "github"
    gpu: str = GPU
    wait_s: float = 120.0
    time_limit_s: float = 1.0
    enforces_memory: bool = True
    steps: Sequence[str] = ("sending", "sent")
    lost_at: Sequence[str] = ()
    made: list[GithubBackend] = field(default_factory=list)

    def backend(self, **changed: Any) -> GithubBackend:
        told: dict[str, Any] = {
            "tokens": [TOKEN],
            "key": self.run_key,
            "eval_dir": self.eval_dir,
            "api_url": self.fake.url,
            "min_isolation": 0,
            **changed,
        }
        made = GithubBackend(RUNS, {GPU: ["ubuntu-latest"]}, {GPU: 4}, **told)
        self.made.append(made)
        return made

    def finished(self, job: JobSpec) -> JobSpec:
        return job

    def submitter(self, job: JobSpec, step: str) -> subprocess.Popen[str]:
        told = {
            "repository": RUNS,
            "tokens": [TOKEN],
            "run_key": self.run_key.hex(),
            "eval_dir": str(self.eval_dir),
            "api_url": self.fake.url,
        }
        return submitter.started("tests.contract.github_submitter", told, job, step)

    def submit_and_die(self, job: JobSpec, step: str) -> None:
        assert self.submitter(job, step).wait(timeout=self.wait_s) == -signal.SIGKILL

    def submit_unstarted(self, job: JobSpec) -> None:
        self.fake.hold = True
        self.backend().submit(job)

    def let_start(self, job: JobSpec) -> None:
        self.fake.release()

    def wait_out(self, job: JobSpec) -> None:
        raise AssertionError("every run there is found by its title")

    def paths(self, name: JobName) -> AttemptPaths | None:
        return None


@pytest.fixture
def case(tmp_path: Path) -> Iterator[GithubCase]:
    eval_dir, key = make_eval(tmp_path / "eval"), secrets.token_bytes(32)
    fake = FakeGithub(tmp_path / "github", repository_files.files(eval_dir), secrets_={"KBSLURM_RUN_KEY": key.hex()})
    found = GithubCase(folder=tmp_path, fake=fake, eval_dir=eval_dir, run_key=key)
    yield found
    for backend in found.made:
        backend.close()
    fake.close()


class TestTheContract(BackendContract):
    """The suite that every backend passes."""


def handed_over(case: GithubCase, do: str = "report", **config: Any) -> tuple[JobSpec, OpenAttempt]:
    """A job that has ended, and that no process has looked at since."""
    job = make_job(case, do, **config)
    attempt = attempt_of(case, job, case.backend().submit(job))
    wait_until(case, "its run is over", lambda: case.fake.run_named(job.name).status == "completed")
    return job, attempt


# ------------------------------------------------------------------------------------------------- starting, or not


def test_a_dispatch_whose_answer_was_lost_is_unclear_and_found_by_its_name(case: GithubCase) -> None:
    case.fake.hold = True
    case.fake.fail.append(Fault("POST", "dispatches", lose=True))
    job = make_job(case, "report")
    backend = case.backend()
    with pytest.raises(BackendUnclear):
        backend.submit(job)
    found = case.backend().find(job.name)
    assert (found.seen, found.handle) == (Seen.WAITING, str(case.fake.run_named(job.name).id))
    case.fake.release()
    assert wait_seen(case, case.backend(), attempt_of(case, job), Seen.ENDED).ending is Ending.REPORTED


def test_a_server_without_run_numbers_in_its_answer_is_served_by_name(case: GithubCase) -> None:
    case.fake.knows = ("2022-11-28",)
    backend = case.backend()
    job = make_job(case, "report")
    handle = backend.submit(job)
    assert str(handle) == str(job.name), "an older server answers 204"
    assert case.fake.seen_versions == {"2026-03-10", "2022-11-28"}
    assert wait_seen(case, backend, attempt_of(case, job, handle), Seen.ENDED).ending is Ending.REPORTED


@pytest.mark.parametrize(
    ("fault", "permanent"),
    [
        (Fault("POST", "dispatches", status=422, message="Unexpected inputs provided"), True),
        (Fault("POST", "dispatches", status=404, message="Not Found"), False),
        (Fault("POST", "dispatches", status=403, message="Resource not accessible by personal access token"), False),
        (Fault("GET", r"kernel-runs$", status=502), False),
    ],
    ids=["inputs", "no workflow", "no right", "its trouble before anything was sent"],
)
def test_what_certainly_started_nothing_is_refused(case: GithubCase, fault: Fault, permanent: bool) -> None:
    case.fake.fail.append(fault)
    job = make_job(case, "report")
    with pytest.raises(BackendRefused) as refusal:
        case.backend().submit(job)
    assert refusal.value.permanent is permanent
    assert refusal.value.away is not permanent, "whoever has other places takes the run back"
    assert case.fake.runs == []
    assert case.backend().find(job.name).seen is Seen.ABSENT


def test_a_server_error_at_the_dispatch_is_unclear(case: GithubCase) -> None:
    case.fake.fail.append(Fault("POST", "dispatches", status=502))
    backend = case.backend()
    with pytest.raises(BackendUnclear):
        backend.submit(make_job(case, "report"))


def test_an_api_that_cant_be_reached_started_nothing_and_says_nothing_of_what_runs(case: GithubCase) -> None:
    job = make_job(case, "report")
    backend = case.backend(api_url="http://127.0.0.1:9")
    with pytest.raises(BackendRefused) as refusal:
        backend.submit(job)
    assert not refusal.value.permanent
    with pytest.raises(BackendTrouble):
        backend.find(job.name)
    with pytest.raises(BackendTrouble):
        backend.poll([attempt_of(case, job)])


def test_an_order_over_the_limit_of_inputs_travels_as_a_git_object(case: GithubCase) -> None:
    job = make_job(case, "report", filler=secrets.token_hex(80_000))
    backend = case.backend()
    attempt = attempt_of(case, job, backend.submit(job))
    assert wait_seen(case, backend, attempt, Seen.ENDED).ending is Ending.REPORTED
    assert len(case.fake.blobs) == 1
    assert case.fake.run_named(job.name).inputs["order"] == ""
    assert not [ref for ref in case.fake.refs if "payload" in ref], "nothing refers to it: git forgets it by itself"


def test_killed_between_object_and_dispatch_it_never_ran(case: GithubCase) -> None:
    job = make_job(case, "report", filler=secrets.token_hex(80_000))
    for step in ("payload", "sending"):
        case.submit_and_die(job, step)
        assert case.backend().find(job.name).seen is Seen.ABSENT
    case.backend().submit(job)
    assert wait_seen(case, case.backend(), attempt_of(case, job), Seen.ENDED).ending is Ending.REPORTED
    assert executions(case, job) == 1


def test_racing_dispatches_run_once_whichever_comes_first(case: GithubCase) -> None:
    """Not even the service's own order of runs is relied on: the claim is the law."""
    case.fake.hold = True
    job = make_job(case, "report")
    for _ in range(3):
        case.backend().submit(job)
    for run in case.fake.runs:
        run.group = f"{run.group} {run.id}"  # as if it had let them run beside each other
        run.status = "queued" if run.status == "pending" else run.status
    case.fake.room = 1  # one after the other: nothing else could keep the second one from running
    case.fake.release()
    wait_until(case, "all are over", lambda: all(run.status == "completed" for run in case.fake.runs))
    assert wait_seen(case, case.backend(), attempt_of(case, job), Seen.ENDED).ending is Ending.REPORTED
    assert executions(case, job) == 1


def test_a_cancel_that_comes_before_the_dispatch_keeps_it_from_running(case: GithubCase) -> None:
    job = make_job(case, "report")
    attempt = attempt_of(case, job)
    case.backend().cancel(attempt)
    assert case.backend().find(job.name).ending is Ending.CANCELLED
    case.backend().submit(job)
    wait_until(case, "its run is over", lambda: case.fake.run_named(job.name).status == "completed")
    assert wait_seen(case, case.backend(), attempt, Seen.ENDED).ending is Ending.CANCELLED
    assert executions(case, job) == 0


# ------------------------------------------------------------------------------------------------- what became of it


def test_a_run_that_no_runner_takes_waits(case: GithubCase) -> None:
    case.fake.labels = ()
    backend = case.backend()
    job = make_job(case, "report", time_limit_s=0.01)
    attempt = attempt_of(case, job, backend.submit(job))
    seen = wait_seen(case, backend, attempt, Seen.WAITING)
    assert seen.started_at is None, "waiting is no time of the run's"
    assert "no runner" in seen.reason


def test_a_run_cancelled_on_the_web_page_is_told_so(case: GithubCase) -> None:
    backend = case.backend()
    job = make_job(case, "sleep")
    attempt = attempt_of(case, job, backend.submit(job))
    wait_counted(case, job)
    case.fake.cancel_run(case.fake.run_named(job.name))
    assert wait_seen(case, backend, attempt, Seen.ENDED).ending is Ending.CANCELLED


def test_a_runner_that_dies_is_infrastructure(case: GithubCase) -> None:
    backend = case.backend()
    job = make_job(case, "sleep")
    attempt = attempt_of(case, job, backend.submit(job))
    wait_counted(case, job)
    case.fake.kill_runner(case.fake.run_named(job.name))
    ended = wait_seen(case, backend, attempt, Seen.ENDED)
    assert ended.ending is Ending.NO_REPORT
    assert ended.node
    assert backend.collect(attempt) is None


@pytest.mark.parametrize(
    ("spoil", "ending"),
    [
        ({"expired": True}, Ending.NO_REPORT),
        ({"name": "another"}, Ending.NO_REPORT),
        ({"size": 1 << 40}, Ending.BAD_REPORT),
        ({"data": b"no archive"}, Ending.BAD_REPORT),
        ({"data": b""}, Ending.BAD_REPORT),
    ],
    ids=["expired", "missing", "oversized", "corrupt", "empty"],
)
def test_a_result_that_isnt_one_is_never_a_report(case: GithubCase, spoil: dict[str, Any], ending: Ending) -> None:
    _, attempt = handed_over(case)
    case.fake.artifacts[0] |= spoil
    backend = case.backend()
    assert wait_seen(case, backend, attempt, Seen.ENDED).ending is ending
    assert backend.collect(attempt) is None


def test_another_attempts_result_doesnt_pass_for_this_ones(case: GithubCase) -> None:
    _, first = handed_over(case)
    _, second = handed_over(case)
    case.fake.artifacts[1]["data"] = case.fake.artifacts[0]["data"]
    backend = case.backend()
    ended = wait_seen(case, backend, second, Seen.ENDED)
    assert ended.ending is Ending.BAD_REPORT
    assert "wasn't sealed with this key" in ended.reason
    assert backend.collect(first) is not None


def test_an_archive_that_unpacks_without_end_is_left_alone(case: GithubCase) -> None:
    job, attempt = handed_over(case)
    bomb = runner_program.sealed(bytes(runner_program.RESULT_CAP + 2), case.run_key, job.name, "result")
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("result", bomb)
    case.fake.artifacts[0]["data"] = packed.getvalue()
    assert wait_seen(case, case.backend(), attempt, Seen.ENDED).ending is Ending.BAD_REPORT


def test_a_repository_with_another_harness_is_sent_nothing_until_it_has_ours(case: GithubCase) -> None:
    ours = case.fake.files["kbslurm/eval/__main__.py"]
    case.fake.files["kbslurm/eval/__main__.py"] = b"# another\n"
    job = make_job(case, "report")
    with pytest.raises(BackendRefused, match="this version's workflow and harness") as refusal:
        case.backend().submit(job)
    assert not refusal.value.permanent
    case.fake.files["kbslurm/eval/__main__.py"] = ours
    backend = case.backend()
    attempt = attempt_of(case, job, backend.submit(job))
    assert wait_seen(case, backend, attempt, Seen.ENDED).ending is Ending.REPORTED


def test_a_harness_that_was_changed_meanwhile_doesnt_run(case: GithubCase) -> None:
    case.fake.hold = True
    backend = case.backend()
    job = make_job(case, "report")
    attempt = attempt_of(case, job, backend.submit(job))
    case.fake.files["kbslurm/eval/__main__.py"] += b"# edited\n"
    case.fake.release()
    ended = wait_seen(case, backend, attempt, Seen.ENDED)
    assert ended.ending is Ending.NO_REPORT
    assert "kbslurm github install" in ended.reason
    assert executions(case, job) == 0
    assert "kbslurm github install" in backend.excerpt(job.name)


def test_a_runner_whose_python3_is_old_uses_the_newer_one_beside_it(case: GithubCase) -> None:
    case.fake.has_old_python = True
    backend = case.backend()
    job = make_job(case, "report")
    attempt = attempt_of(case, job, backend.submit(job))
    assert wait_seen(case, backend, attempt, Seen.ENDED).ending is Ending.REPORTED
    assert backend.collect(attempt) is not None


def test_a_repository_without_the_secret_says_which_step_failed(case: GithubCase) -> None:
    case.fake.secrets.clear()
    job, attempt = handed_over(case)
    backend = case.backend()
    with overheard() as told:
        ended = wait_seen(case, backend, attempt, Seen.ENDED)
        backend.poll([attempt])
    assert (ended.ending, ended.reason) == (Ending.NO_REPORT, "its workflow's step 'Open the order' failed on GitHub")
    assert "KBSLURM_RUN_KEY isn't a 32-byte key" in backend.excerpt(job.name)
    assert told.getvalue().count("KBSLURM_RUN_KEY isn't a 32-byte key") == 1, "the operator's log has it, once"


# ---------------------------------------------------------------------------------------------------- secrets


def test_who_reads_the_repository_reads_no_secret(case: GithubCase) -> None:
    job, attempt = handed_over(case)
    run = case.fake.run_named(job.name)
    with zipfile.ZipFile(io.BytesIO(case.fake.artifacts[0]["data"])) as archive:
        handed = archive.read("result")
    for public in (json.dumps(run.inputs).encode(), run.log, handed, json.dumps(list(case.fake.blobs)).encode()):
        for secret in (job.key.hex(), case.run_key.hex(), "stand-in", '"nonce"'):
            assert secret.encode() not in public
    sealed = case.backend().collect(attempt)
    assert sealed is not None
    host = wire.unseal(sealed, job.key).host
    assert not {"KBSLURM_RUN_KEY", "GH_TOKEN", "ORDER", "RUNNER_TEMP"} & set(host["environment"])
    assert not (case.folder / "github" / f"run-{run.id}").exists()


def test_a_token_never_goes_where_a_redirect_leads(case: GithubCase) -> None:
    _, attempt = handed_over(case)
    assert case.backend().collect(attempt) is not None
    assert case.fake.leaked == []


@pytest.mark.parametrize("why", ["public", "ranked"])
def test_what_others_can_read_gets_no_hidden_case_and_ranks_nothing(case: GithubCase, why: str) -> None:
    """Where everybody reads the repository, and where submissions aren't kept from the key that opens all orders."""
    case.fake.private = why == "ranked"
    backend = case.backend(ranked=why != "ranked")
    job = make_job(case, "report")
    told = json.loads(job.manifest) | {"hidden": [{"n": 4711}]}
    ranked = replace(job, manifest=json.dumps(told | {"mode": "leaderboard"}))
    with pytest.raises(BackendRefused, match=f"{why}.*nothing from there ranks") as refusal:
        backend.submit(ranked)
    assert refusal.value.permanent
    backend.submit(replace(job, manifest=json.dumps(told)))
    order = base64.b64decode(case.fake.run_named(job.name).inputs["order"])
    opened = json.loads(runner_program.opened(order, case.run_key, job.name, "order", runner_program.ORDER_CAP))
    assert json.loads(opened["manifest"])["hidden"] == []
    assert wait_seen(case, backend, attempt_of(case, job), Seen.ENDED).ending is Ending.REPORTED


def test_an_order_opens_for_its_own_name_and_direction_only() -> None:
    key = bytes(range(32))
    sealed = runner_program.sealed(b"all of it", key, "kb-a", "order")
    assert runner_program.opened(sealed, key, "kb-a", "order", 100) == b"all of it"
    wrong = [
        (sealed, key, "kb-b", "order"),
        (sealed, key, "kb-a", "result"),
        (sealed, bytes(32), "kb-a", "order"),
        (sealed[:-1], key, "kb-a", "order"),
        (b"", key, "kb-a", "order"),
    ]
    for arguments in wrong:
        with pytest.raises(runner_program.OrderFailed, match="wasn't sealed with this key"):
            runner_program.opened(*arguments, 100)
    with pytest.raises(runner_program.OrderFailed, match="larger than 3 bytes"):
        runner_program.opened(sealed, key, "kb-a", "order", 3)
    assert runner_program.key_in(key.hex() + "\n") == runner_program.key_in(base64.b64encode(key).decode()) == key
    for text in ("", "abc", "zz" * 32, key.hex()[:-2]):
        with pytest.raises(runner_program.OrderFailed):
            runner_program.key_in(text)


# ------------------------------------------------------------------------------------------------- tokens and limits


def test_an_expired_token_is_put_aside_and_the_next_one_asks(case: GithubCase) -> None:
    case.fake.tokens = ["second"]
    backend = case.backend(tokens=["expired", "second"])
    job = make_job(case, "report")
    attempt = attempt_of(case, job, backend.submit(job))
    assert wait_seen(case, backend, attempt, Seen.ENDED).ending is Ending.REPORTED
    assert sum(1 for *_, status in case.fake.asked if status == 401) == 1


def test_a_token_that_was_rotated_is_asked_for_once_the_old_one_is_rejected(case: GithubCase) -> None:
    case.fake.tokens = ["second"]
    asked: list[str] = []

    def renew() -> list[str]:
        asked.append("again")
        return ["second"]

    backend = case.backend(tokens=["expired"], renew=renew)
    job = make_job(case, "report")
    attempt = attempt_of(case, job, backend.submit(job))
    assert wait_seen(case, backend, attempt, Seen.ENDED).ending is Ending.REPORTED
    assert (asked, sum(1 for *_, status in case.fake.asked if status == 401)) == (["again"], 1)


def test_a_token_that_nobody_rotated_is_not_asked_for_again_and_again(case: GithubCase) -> None:
    asked: list[str] = []

    def renew() -> list[str]:
        asked.append("again")
        return ["expired"]

    backend = case.backend(tokens=["expired"], renew=renew)
    for _ in range(3):
        with pytest.raises(BackendTrouble, match="token was rejected"):
            backend.find(make_job(case, "report").name)
    assert (len(asked), len(case.fake.asked)) == (1, 1)


def test_without_a_token_that_is_taken_it_says_what_to_do(case: GithubCase) -> None:
    backend = case.backend(tokens=["expired"])
    job = make_job(case, "report")
    with pytest.raises(BackendRefused, match="token was rejected") as refusal:
        backend.submit(job)
    assert not refusal.value.permanent
    assert refusal.value.hint is not None and "GITHUB_TOKEN" in refusal.value.hint
    with pytest.raises(BackendTrouble, match="token was rejected"):
        backend.find(job.name)
    assert len(case.fake.asked) == 1, "a token that was refused isn't shown again at once"


@pytest.mark.parametrize(
    "limit",
    [
        Fault("GET", "runs", status=403, headers={"x-ratelimit-remaining": "0", "x-ratelimit-reset": "99999999999"}),
        Fault("GET", "runs", status=429, headers={"retry-after": "30"}),
        Fault("GET", "runs", status=403, message="You have exceeded a secondary rate limit."),
    ],
    ids=["primary", "retry after", "secondary"],
)
def test_a_rate_limit_is_kept_to_and_another_token_asks_meanwhile(case: GithubCase, limit: Fault) -> None:
    now = 1_000.0
    limited, job = replace(limit, times=1 << 30, token="first"), make_job(case, "report")
    case.fake.tokens = ["first", "second"]
    case.fake.fail.append(limited)
    alone = case.backend(tokens=["first"], monotonic=lambda: now)
    with pytest.raises(BackendTrouble, match="rate limit") as trouble:
        alone.find(job.name)
    assert trouble.value.retry_after_s is not None and trouble.value.retry_after_s >= 29
    before = len(case.fake.asked)
    with pytest.raises(BackendTrouble, match="rate limit"):
        alone.find(job.name)
    assert len(case.fake.asked) == before
    case.fake.fail.remove(limited)
    now += 4_000.0
    assert alone.find(job.name).seen is Seen.ABSENT
    case.fake.fail.append(limited)
    assert case.backend(tokens=["first", "second"]).find(job.name).seen is Seen.ABSENT


def test_what_creates_something_is_paced_to_the_limits_by_minute_and_hour(case: GithubCase) -> None:
    now = 1_000.0
    case.fake.creating.clock = lambda: now
    api = case.backend(monotonic=lambda: now).api

    def created() -> int:
        """How many go through now, at once."""
        before = len(case.fake.creating.at)
        with suppress(BackendRefused):
            for _ in range(100):
                api.act("POST", "/git/blobs", {"content": "x", "encoding": "utf-8"})
        with pytest.raises(BackendRefused, match="the next can go in"):
            api.act("POST", "/git/blobs", {"content": "x", "encoding": "utf-8"})
        return len(case.fake.creating.at) - before

    assert [(one.left, one.most) for one in api.limits()] == [(80, 80), (500, 500)], "nothing is asked for it"
    counts = []
    for _ in range(8):
        counts.append(created())
        assert next(one.left for one in api.limits() if one.what == "creating calls per minute") == 80 - counts[-1]
        now += 61.0
    assert (counts, case.fake.creating.locked_out) == ([80, 80, 80, 80, 80, 80, 20, 0], 0)
    calls, _, hour = api.limits()
    assert (calls.left, calls.most, calls.resets_at) == (4000, 5000, datetime(2030, 1, 1, tzinfo=UTC))
    assert (hour.left, hour.most) == (0, 500)
    now += 3_600.0
    assert (created(), case.fake.creating.locked_out) == (80, 0)


def test_a_service_in_trouble_is_left_alone_for_longer_and_longer(case: GithubCase) -> None:
    now = 1_000.0
    backend = case.backend(monotonic=lambda: now)
    attempt = attempt_of(case, make_job(case, "report"))
    case.fake.fail.append(Fault("GET", "runs", status=503, times=5))
    waits = []
    for _ in range(5):
        with pytest.raises(BackendTrouble) as trouble:
            backend.poll([attempt])
        waits.append(trouble.value.retry_after_s or 0.0)
        now += waits[-1]
    assert waits == sorted(waits) and waits[-1] > waits[0]
    assert backend.poll([attempt])[attempt.name].seen is Seen.ABSENT


def test_many_open_attempts_are_one_conditional_call(case: GithubCase) -> None:
    case.fake.hold = True
    backend = case.backend()
    attempts = []
    for _ in range(12):
        job = make_job(case, "report")
        attempts.append(attempt_of(case, job, backend.submit(job)))
    assert {one.seen for one in backend.poll(attempts).values()} == {Seen.WAITING}
    before, unchanged = len(case.fake.asked), case.fake.etags
    for _ in range(3):
        assert {one.seen for one in backend.poll(attempts).values()} == {Seen.WAITING}
    assert len(case.fake.asked) - before == 3
    assert case.fake.etags - unchanged == 3, "and each is answered with 304, which costs nothing of the limit"


def test_runs_on_later_pages_are_found_too(case: GithubCase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kbslurm.backends.github.backend.PER_PAGE", 1)
    case.fake.hold = True
    backend = case.backend()
    jobs = [make_job(case, "report") for _ in range(5)]
    attempts = [attempt_of(case, job, backend.submit(job)) for job in jobs]
    unnumbered = [replace(attempt, handle=None) for attempt in attempts]
    assert {one.seen for one in backend.poll(attempts).values()} == {Seen.WAITING}
    assert {one.seen for one in backend.poll(unnumbered).values()} == {Seen.WAITING}
    assert backend.find(jobs[0].name).seen is Seen.WAITING
    monkeypatch.setattr("kbslurm.backends.github.backend.PAGES", 2)
    assert backend.find(jobs[0].name).seen is Seen.UNKNOWN, "what wasn't listed whole proves nothing"
    assert backend.poll(unnumbered[:1])[jobs[0].name].seen is Seen.UNKNOWN
    assert backend.poll(attempts[:1])[jobs[0].name].seen is Seen.WAITING, "its number still finds it"
    backend.cancel(attempts[0])
    assert backend.poll(attempts[:1])[jobs[0].name].ending is Ending.CANCELLED
    assert backend.poll(unnumbered[:1])[jobs[0].name].ending is Ending.CANCELLED


def test_the_crash_points_stand_where_they_are_said_to(case: GithubCase) -> None:
    passed: list[str] = []
    case.backend(crash_point=passed.append).submit(make_job(case, "report", filler=secrets.token_hex(80_000)))
    assert tuple(f"github.{step}" for step in passed) == GITHUB_CRASH_POINTS


def test_pruning_removes_the_marks_of_what_ended_long_ago(case: GithubCase) -> None:
    job, _ = handed_over(case)
    kept, _ = handed_over(case)
    backend = case.backend()
    assert backend.prune(datetime.now(UTC) - timedelta(days=1), keep=[]) == 0
    assert backend.prune(datetime.now(UTC) + timedelta(days=1), keep=[kept.name]) == 1
    assert list(case.fake.refs) == [f"refs/kbslurm/claim/{kept.name}"]
    assert job.name not in str(case.fake.refs)


def test_what_a_profile_left_comes_along(case: GithubCase) -> None:
    _, attempt = handed_over(case, "profile")
    assert case.backend().artifacts(attempt, ["trace.json", "other", "../key"]) == {"trace.json": b"{}"}


# -------------------------------------------------------------------------------------------- what others may do to it


def test_a_run_that_somebody_runs_again_starts_nothing_and_hides_nothing(case: GithubCase) -> None:
    job, attempt = handed_over(case)
    run = case.fake.run_named(job.name)
    case.fake.refs.clear()  # as long afterwards
    case.fake.hold = True
    case.fake.run_again(run)
    backend = case.backend()
    assert backend.poll([attempt])[job.name].ending is Ending.REPORTED, "it is there, whatever waits beside it"
    assert backend.collect(attempt) is not None
    case.fake.release()
    wait_until(case, "it is over again", lambda: run.status == "completed")
    assert executions(case, job) == 1
    assert case.fake.refs == {}


def test_a_report_is_taken_at_once_however_often_it_was_asked_for_before(case: GithubCase) -> None:
    case.fake.hold = True
    backend = case.backend(monotonic=lambda: 1_000.0)
    job = make_job(case, "report")
    attempt = attempt_of(case, job, backend.submit(job))
    assert backend.collect(attempt) is None
    case.fake.release()
    assert wait_seen(case, backend, attempt, Seen.ENDED).ending is Ending.REPORTED
    assert backend.collect(attempt) is not None


def test_a_result_that_may_not_be_looked_for_is_not_missing(case: GithubCase) -> None:
    job, attempt = handed_over(case)
    for status in (403, 404):
        case.fake.fail.append(Fault("GET", "/actions/artifacts$", status=status, times=2))
        backend = case.backend()
        assert backend.poll([attempt])[job.name].seen is Seen.UNKNOWN
        with pytest.raises(BackendTrouble, match=f"can't be listed: the API answered with status {status}"):
            backend.collect(attempt)
    assert case.backend().poll([attempt])[job.name].ending is Ending.REPORTED


def test_a_token_that_may_read_no_references_doesnt_make_an_attempt_absent(case: GithubCase) -> None:
    job = make_job(case, "report")
    case.fake.fail.append(Fault("GET", "/git/ref/", status=404, message="Not Found", times=2))
    backend = case.backend()
    assert backend.find(job.name).seen is Seen.UNKNOWN
    assert backend.find(job.name).seen is Seen.ABSENT


def archive_of(data: bytes, members: int = 1) -> bytearray:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("result", data)
        for number in range(members - 1):
            archive.writestr(f"{number}", b"")
    return bytearray(packed.getvalue())


def encrypted(case: GithubCase, name: JobName) -> bytes:
    packed = archive_of(b"x" * 100)
    for mark, at in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        packed[packed.index(mark) + at] |= 1
    return bytes(packed)


def torn(case: GithubCase, name: JobName) -> bytes:
    packed = archive_of(secrets.token_bytes(100))
    packed[packed.index(b"result") + len("result")] = 0xFF  # no block of a deflated stream begins so
    return bytes(packed)


def crowded(case: GithubCase, name: JobName) -> bytes:
    sealed = zipfile.ZipFile(io.BytesIO(case.fake.artifacts[0]["data"])).read("result")
    return bytes(archive_of(sealed, members=1_000))


def misshapen(case: GithubCase, name: JobName) -> bytes:
    told: dict[str, Any] = {"form": 1, "name": name, "node": "", "log": "", "exit": [1], "report": None}
    told["artifacts"] = {}
    return bytes(archive_of(runner_program.sealed(json.dumps(told).encode(), case.run_key, name, "result")))


def timeless(case: GithubCase, name: JobName) -> bytes:
    told: dict[str, Any] = {"form": 1, "name": name, "node": "", "log": "", "report": None, "artifacts": {}}
    told["exit"] = {"ending": "timeout", "started_at": 1e300}
    return bytes(archive_of(runner_program.sealed(json.dumps(told).encode(), case.run_key, name, "result")))


def test_one_hostile_archive_hinders_no_other_attempt(case: GithubCase) -> None:
    job, attempt = handed_over(case)
    _, other = handed_over(case)
    true = case.fake.artifacts[0]["data"]
    makers: list[Callable[[GithubCase, JobName], bytes]] = [encrypted, torn, crowded, misshapen, timeless]
    for made in makers:
        case.fake.artifacts[0]["data"] = true
        case.fake.artifacts[0]["data"] = made(case, job.name)
        backend = case.backend()
        seen = backend.poll([attempt, other])
        assert seen[job.name].ending is Ending.BAD_REPORT, made
        assert seen[other.name].ending is Ending.REPORTED
        assert backend.collect(attempt) is None


# ------------------------------------------------------------------------------------------- what a server may say


@pytest.mark.parametrize("wait", ["9" * 12, "9" * 5_000, "-5", "Wed, 21 Oct 2099 07:28:00 GMT", "soon"])
def test_no_wait_that_is_asked_for_is_longer_than_an_hour(case: GithubCase, wait: str) -> None:
    now = 1_000.0
    backend = case.backend(monotonic=lambda: now)
    case.fake.fail.append(Fault("GET", "runs", status=429, headers={"retry-after": wait}))
    with pytest.raises(BackendTrouble, match="rate limit") as trouble:
        backend.find(make_job(case, "report").name)
    assert trouble.value.retry_after_s is not None and 1 <= trouble.value.retry_after_s <= 3_600
    now += 3_601.0
    assert backend.find(make_job(case, "report").name).seen is Seen.ABSENT


@pytest.mark.parametrize(
    ("body", "why"),
    [(b"[" * 200_000, "isn't valid JSON"), (b"\xff\xfe{}", "isn't valid JSON"), (b" " * ((32 << 20) + 1), "too long")],
    ids=["deep", "no UTF-8", "long"],
)
def test_an_answer_that_cant_be_read_is_trouble(case: GithubCase, body: bytes, why: str) -> None:
    case.fake.fail.append(Fault("GET", "runs", body=body))
    with pytest.raises(BackendTrouble, match=why):
        case.backend().find(make_job(case, "report").name)


def test_an_answer_that_drips_is_trouble(case: GithubCase) -> None:
    ticks = iter(range(0, 1 << 20, 40))
    case.fake.fail.append(Fault("GET", "runs", body=b" " * 4_000_000))
    with pytest.raises(BackendTrouble, match="doesn't end"):
        case.backend(monotonic=lambda: float(next(ticks))).find(make_job(case, "report").name)


@pytest.mark.parametrize("what", ["runs", "artifacts/1/zip"])
def test_headers_that_drip_are_trouble_too(case: GithubCase, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """No single read of it takes long; whoever waits for the end of the headers waits for as long as a server likes."""
    monkeypatch.setattr(api, "ANSWER_S", 0.5)
    monkeypatch.setattr(api, "FILE_S", 0.5)
    case.fake.fail.append(Fault("GET", what, drips_s=12.0))
    asked = case.backend().api
    with pytest.raises(BackendTrouble, match="doesn't end"):
        asked.bytes_of("/actions/artifacts/1/zip", 1 << 20) if "zip" in what else asked.get("/actions/runs")


def test_an_order_whose_answer_drips_was_perhaps_given(case: GithubCase, monkeypatch: pytest.MonkeyPatch) -> None:
    backend, job = case.backend(), make_job(case, "report")
    backend.is_public()
    monkeypatch.setattr(api, "ANSWER_S", 0.5)
    case.fake.fail.append(Fault("POST", "dispatches", drips_s=12.0))
    with pytest.raises(BackendUnclear, match="doesn't end"):
        backend.submit(job)
    monkeypatch.undo()
    assert backend.find(job.name).seen is not Seen.ABSENT


@pytest.mark.parametrize("status", [301, 307])
def test_a_repository_that_was_renamed_is_told_so(case: GithubCase, status: int) -> None:
    moved = {"location": f"{case.fake.url}/repositories/1"}
    case.fake.fail.append(Fault("GET", ".", status=status, message="Moved", headers=moved, times=2))
    backend, job = case.backend(), make_job(case, "report")
    with pytest.raises(BackendRefused, match="was renamed or isn't at") as refusal:
        backend.submit(job)
    assert not refusal.value.permanent and "repository" in (refusal.value.hint or "")
    with pytest.raises(BackendTrouble, match="was renamed or isn't at"):
        backend.find(job.name)


def test_one_trouble_now_and_then_doesnt_add_up(case: GithubCase) -> None:
    case.fake.hold = True
    backend, job = case.backend(monotonic=lambda: 1_000.0), make_job(case, "report")
    attempt = attempt_of(case, job, backend.submit(job))
    for _ in range(4):
        assert backend.poll([attempt])[job.name].seen is Seen.WAITING, "but for the first one a 304"
        case.fake.fail.append(Fault("GET", "runs", status=502))
        with pytest.raises(BackendTrouble) as trouble:
            backend.poll([attempt])
        assert trouble.value.retry_after_s is None


def test_what_answers_and_isnt_github_is_told_by_the_check(case: GithubCase) -> None:
    case.fake.fail.append(Fault("GET", ".", body=b"[1]"))
    (only,) = findings(case.backend(), case.eval_dir)
    assert only.grade is Grade.FAIL and "not like GitHub" in only.text


def test_a_working_copy_that_cant_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "kbslurm").write_text("a file of that name")
    with pytest.raises(Invalid, match="can't be written: File exists"):
        repository_files.install(tmp_path, make_eval(tmp_path / "eval"))


@pytest.mark.parametrize(
    "link", ["kbslurm", "kbslurm/eval", ".github", ".github/workflows", ".github/workflows/kbslurm-run.yml"]
)
def test_nothing_is_written_or_removed_through_a_link(tmp_path: Path, link: str) -> None:
    """A repository that somebody else made may bring links along to whatever they would like to have overwritten."""
    copy, elsewhere = tmp_path / "copy", tmp_path / "elsewhere"
    for folder in (copy / ".git", elsewhere, (copy / link).parent):
        folder.mkdir(parents=True, exist_ok=True)
    (elsewhere / "mine.py").write_text("mine")
    target = elsewhere / "mine.py" if link.endswith(".yml") else elsewhere
    (copy / link).symlink_to(target)
    with pytest.raises(Invalid, match="is a symbolic link") as refusal:
        repository_files.install(copy, make_eval(tmp_path / "eval"))
    assert str(copy / link) in refusal.value.message and "git rm" in (refusal.value.hint or "")
    assert [(one.name, one.read_text()) for one in elsewhere.iterdir()] == [("mine.py", "mine")]
    assert not [one for one in copy.rglob("*") if one.is_file() and not one.is_symlink()]


def test_what_was_handed_over_is_kept_by_its_size_not_only_by_its_number(
    case: GithubCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(github_backend, "RESULTS_BYTES", 3_000)
    backend = case.backend()
    attempts = []
    for n in range(4):
        job = make_job(case, "report")
        told = {"ending": "reported", "exit_code": 0, "reason": "", "started_at": 1.0, "ended_at": 2.0}
        came = {
            "form": runner_program.FORM,
            "name": job.name,
            "node": "x",
            "log": "." * 1_200,
            "exit": told,
            "artifacts": {},
        }
        came["report"] = base64.b64encode(b"r" * (5_000 if n == 3 else 100)).decode()
        sealed = runner_program.sealed(json.dumps(came).encode(), case.run_key, job.name, "result")
        case.fake.artifacts.append(
            {"id": n + 1, "name": job.name, "data": bytes(archive_of(sealed)), "run": 1, "expired": False}
        )
        attempts.append(attempt_of(case, job, None))

    def fetched() -> int:
        return sum(path.endswith("/zip") for _, path, _ in case.fake.asked)

    for attempt in attempts[:3]:
        assert backend.collect(attempt) == b"r" * 100
    assert (fetched(), len(backend._results)) == (3, 2), "two of them fit"
    assert backend.collect(attempts[2]) is not None and fetched() == 3
    for _ in range(2):  # one that is over it alone isn't fetched at every look
        assert backend.collect(attempts[3]) == b"r" * 5_000 and fetched() == 4
    assert len(backend._results) == 1
    assert backend.collect(attempts[0]) == b"r" * 100, "and what was let go is fetched again"
