"""A GitHub Enterprise Server as a backend: it takes no artifacts, so results come as git objects. All else is as at
github.com, where the contract is tested."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from kbslurm.backends.github import repository_files, runner_program
from kbslurm.backends.github.check import findings
from kbslurm.domain.finding import Grade
from kbslurm.domain.run import Ending, Seen
from kbslurm.errors import BackendTrouble
from kbslurm_eval.shared import wire
from tests.contract.backend_suite import attempt_of, make_eval, make_job, wait_seen, wait_until
from tests.contract.test_backend_github import GithubCase, handed_over
from tests.fakes.github import FakeGithub, Fault


@pytest.fixture
def case(tmp_path: Path) -> Iterator[GithubCase]:
    eval_dir, key = make_eval(tmp_path / "eval"), secrets.token_bytes(32)
    files = repository_files.files(eval_dir)
    fake = FakeGithub(tmp_path / "github", files, secrets_={"KBSLURM_RUN_KEY": key.hex()}, enterprise=True)
    found = GithubCase(folder=tmp_path, fake=fake, eval_dir=eval_dir, run_key=key)
    yield found
    for backend in found.made:
        backend.close()
    fake.close()


def result_of(case: GithubCase, name: str) -> str:
    """The hash of the file that an attempt's reference leads to."""
    return case.fake.trees[case.fake.commits[case.fake.refs[f"refs/kbslurm/result/{name}"]]]["result"]


def test_the_result_is_a_commit_that_tells_its_readers_nothing(case: GithubCase) -> None:
    job, attempt = handed_over(case)
    run = case.fake.run_named(job.name)
    steps = {step.name: step.conclusion for step in run.steps}
    assert (steps["Hand it over"], steps["Hand it over on an Enterprise Server"]) == ("skipped", "success")
    assert case.fake.artifacts == []
    sealed = case.backend().collect(attempt)
    assert sealed is not None
    assert wire.unseal(sealed, job.key).token == job.name
    for data in (*case.fake.blobs.values(), run.log, json.dumps(run.inputs).encode()):
        for secret in (job.key.hex(), case.run_key.hex(), "stand-in", '"nonce"'):
            assert secret.encode() not in data


def test_the_action_for_artifacts_is_refused_there_as_by_the_real_one(case: GithubCase) -> None:
    """Should the workflow use it after all, the run has no report, and the reason is the step's."""
    case.fake.hold = True
    backend, job = case.backend(), make_job(case, "report")
    attempt = attempt_of(case, job, backend.submit(job))
    path = ".github/workflows/kbslurm-run.yml"
    case.fake.files[path] = case.fake.files[path].replace(b"!endsWith(", b"endsWith(")
    case.fake.files[path] = case.fake.files[path].replace(b"carry.py keep", b"carry.py")
    case.fake.release()
    ended = wait_seen(case, backend, attempt, Seen.ENDED)
    assert (ended.ending, ended.reason) == (
        Ending.NO_REPORT,
        "its workflow's step 'Hand it over' failed on GitHub",
    )
    assert "not currently supported on GHES" in backend.excerpt(job.name)


def test_a_profile_too_large_for_a_git_object_leaves_its_files_out(
    case: GithubCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, attempt = handed_over(case, "profile")
    assert case.backend().artifacts(attempt, ["trace.json"]) == {"trace.json": b"{}"}
    path = "kbslurm/carry.py"
    case.fake.hold = True
    backend, job = case.backend(), make_job(case, "profile")
    attempt = attempt_of(case, job, backend.submit(job))
    case.fake.files[path] = case.fake.files[path].replace(b"OBJECT_CAP = 20 << 20", b"OBJECT_CAP = 16")
    case.fake.release()
    assert wait_seen(case, backend, attempt, Seen.ENDED).ending is Ending.REPORTED
    assert backend.artifacts(attempt, ["trace.json"]) == {}
    assert backend.collect(attempt) is not None, "the report comes"
    monkeypatch.setattr(runner_program, "OBJECT_CAP", 16)
    ended = case.backend().poll([attempt])[job.name]
    assert (ended.ending, ended.reason.startswith("its result has ")) == (Ending.BAD_REPORT, True)


@pytest.mark.parametrize("lost", ["blobs", "trees", "commits", "refs$"])
def test_an_answer_that_is_lost_while_it_is_stored_costs_nothing(case: GithubCase, lost: str) -> None:
    case.fake.hold = True
    backend, job = case.backend(), make_job(case, "report")
    attempt = attempt_of(case, job, backend.submit(job))
    case.fake.release()
    wait_until(case, "it is claimed", lambda: f"refs/kbslurm/claim/{job.name}" in case.fake.refs)  # a reference as well
    case.fake.fail.append(Fault("POST", f"/git/{lost}", lose=True))
    assert wait_seen(case, backend, attempt, Seen.ENDED).ending is Ending.REPORTED


def test_a_result_that_isnt_one_is_never_a_report(case: GithubCase) -> None:
    first, first_attempt = handed_over(case)
    second, attempt = handed_over(case)
    mine, other = result_of(case, second.name), result_of(case, first.name)
    for spoilt in (case.fake.blobs[other], b"", b"no result"):
        case.fake.blobs[mine] = spoilt
        ended = case.backend().poll([attempt])[second.name]
        assert (ended.ending, "can't be opened" in ended.reason) == (Ending.BAD_REPORT, True)
    case.fake.trees[case.fake.commits[case.fake.refs[f"refs/kbslurm/result/{second.name}"]]] = {}
    assert case.backend().poll([attempt])[second.name].ending is Ending.BAD_REPORT
    del case.fake.refs[f"refs/kbslurm/result/{second.name}"]
    assert case.backend().poll([attempt])[second.name].ending is Ending.NO_REPORT
    assert case.backend().collect(first_attempt) is not None


def test_a_result_that_may_not_be_looked_for_is_not_missing(case: GithubCase) -> None:
    job, attempt = handed_over(case)
    for path, status in (("/git/ref/", 404), ("/git/ref/", 403), ("/git/trees/", 404), ("/git/blobs/", 404)):
        case.fake.fail.append(Fault("GET", path, status=status, times=4))
        backend = case.backend()
        assert backend.poll([attempt])[job.name].seen is Seen.UNKNOWN
        with pytest.raises(BackendTrouble, match=f"can't be read: the API answered with status {status}"):
            backend.collect(attempt)
        case.fake.fail.clear()
    assert case.backend().poll([attempt])[job.name].ending is Ending.REPORTED


def test_pruning_removes_results_with_their_claims(case: GithubCase) -> None:
    job, _ = handed_over(case)
    assert len([ref for ref in case.fake.refs if ref.endswith(job.name)]) == 2
    assert case.backend().prune(datetime.now(UTC) + timedelta(days=1), keep=[]) == 1
    assert case.fake.refs == {}


def test_the_check_says_what_such_a_server_needs(case: GithubCase) -> None:
    found = {one.name: one for one in findings(case.backend(), case.eval_dir)}
    assert found["server"].grade is Grade.CAUTION
    assert "GitHub Connect" in str(found["server"].remedy)
    assert found["harness"].grade is Grade.PASS
