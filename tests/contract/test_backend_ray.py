"""The Ray backend: the Backend contract on a real Ray, and what Ray gets to know."""

from __future__ import annotations

import shlex
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest

from kbslurm.backends.ray import calls, check
from kbslurm.backends.ray.node_program import NOT_MINE
from kbslurm.domain.finding import Grade
from kbslurm.domain.run import Ending, Handle, OpenAttempt, Seen, Sighting
from kbslurm.domain.secret_names import of_ray
from kbslurm.errors import BackendRefused, BackendTrouble, BackendUnclear, Refused
from tests import databases
from tests.command_line import CommandLine
from tests.contract.backend_suite import (
    SECRET,
    BackendContract,
    attempt_of,
    executions,
    is_alive,
    make_job,
    wait_seen,
    wait_until,
)
from tests.contract.dropping import dropping
from tests.contract.ray_rig import GPU, KEY, RayCase, ray_case
from tests.flow.held import held
from tests.ray_cluster import RayCluster
from tests.services import RAY_CLUSTER, needs

pytestmark = needs(RAY_CLUSTER)


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    with RayCluster() as ray:
        ray.add_worker(resources={GPU: 3})
        yield ray


@pytest.fixture(scope="module")
def whole_case(postgres_server: databases.Server, template_database: str, cluster: RayCluster) -> Iterator[RayCase]:
    with ray_case(postgres_server, template_database, cluster) as found:
        yield found


@pytest.fixture
def case(whole_case: RayCase) -> Iterator[RayCase]:
    yield whole_case
    whole_case.later_s = 0.0


def wait_seen_ended(case: RayCase, attempt: OpenAttempt) -> Sighting:
    """However it is seen on the way."""
    backend = case.backend()
    wait_until(case, "it has ended", lambda: backend.poll([attempt])[attempt.name].seen is Seen.ENDED)
    return backend.poll([attempt])[attempt.name]


class TestTheContract(BackendContract):
    """The suite that every backend passes."""


def test_ray_keeps_the_name_and_nothing_else(case: RayCase) -> None:
    backend = case.backend()
    job = make_job(case, "report", hidden=SECRET)
    attempt = attempt_of(case, job, backend.submit(job))
    assert wait_seen(case, backend, attempt, Seen.ENDED).ending is Ending.REPORTED
    stored = case.ray.stored()
    assert job.name in stored
    assert httpx.get(f"{case.ray.url}/api/jobs/").status_code == 401, "only with the token is anything read"
    for secret in (SECRET, job.key.hex(), KEY.hex(), "stand-in", "manifest"):
        assert secret not in stored.replace("manifest.json", ""), secret


# ------------------------------------------------------------------------------------------------------ started once


def test_one_name_posted_by_two_at_once_runs_once(case: RayCase) -> None:
    job = make_job(case, "report")
    told = list[Handle | str]()

    def post() -> None:
        try:
            told.append(case.backend().submit(job))
        except BackendUnclear as error:  # which the flow settles by looking for it
            told.append(error.message)

    threads = [threading.Thread(target=post) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(told) == 4 and Handle(job.name) in told
    attempt = attempt_of(case, job)
    assert wait_seen(case, case.backend(), attempt, Seen.ENDED).ending is Ending.REPORTED
    assert executions(case, job) == 1


def test_a_driver_that_starts_although_its_job_has_failed_runs_nothing(case: RayCase) -> None:
    backend = case.backend()
    job = make_job(case, "report")
    case.key_file.rename(case.folder / "away")  # the entrypoint fails before it has claimed anything
    try:
        attempt = attempt_of(case, job, backend.submit(job))
        ended = wait_seen(case, backend, attempt, Seen.ENDED)
    finally:
        (case.folder / "away").rename(case.key_file)
    assert ended.ending is Ending.BOOT_FAILURE and "the run key can't be read" not in ended.reason
    rays = case.ray.job(job.name)
    assert rays is not None and rays["status"] == "FAILED" and rays["driver_exit_code"] == 6
    late = subprocess.run(rays["entrypoint"], shell=True, capture_output=True, text=True, check=False)
    assert f"{job.name} isn't to be started" in late.stdout, late
    assert executions(case, job) == 0
    assert backend.find(job.name).ending is Ending.CANCELLED, "it stays so"


def test_a_second_start_by_ray_ends_at_once_and_disturbs_nothing(case: RayCase) -> None:
    backend, job, attempt = case.started()
    rays = case.ray.job(job.name)
    assert rays is not None
    second = subprocess.run(shlex.split(rays["entrypoint"])[1:], capture_output=True, text=True, check=False)
    assert second.returncode == NOT_MINE and "isn't to be started" in second.stdout
    assert wait_seen(case, backend, attempt, Seen.RUNNING).node
    backend.cancel(attempt)
    assert wait_seen(case, backend, attempt, Seen.ENDED).ending is Ending.CANCELLED
    assert executions(case, job) == 1


def test_lost_answers_on_either_side_change_nothing(case: RayCase) -> None:
    with dropping(case.ray.url) as rays, dropping(case.api.url) as ours:
        case.service_url = ours.url
        try:
            backend = case.backend(url=rays.url)
            job = make_job(case, "report")
            rays.lose("jobs")
            for verb in ("kit", "claim", "result"):
                ours.lose(verb)
            with pytest.raises(BackendUnclear):
                backend.submit(job)
            assert backend.find(job.name).seen is not Seen.ABSENT
            assert backend.submit(job) == Handle(job.name)
            attempt = attempt_of(case, job, Handle(job.name))
            assert wait_seen(case, backend, attempt, Seen.ENDED).ending is Ending.REPORTED
            wait_until(case, "the result is delivered again", lambda: ours.passed["result"] == 2)
        finally:
            case.service_url = ""
        assert ours.passed["claim"] == 2 and +ours.losing == {}
        assert executions(case, job) == 1


def test_a_token_that_is_wrong_or_has_expired_starts_and_ends_nothing(case: RayCase) -> None:
    _, job, attempt = case.started()
    stranger = case.backend(token="0" * 64)
    with pytest.raises(BackendRefused) as refusal:
        stranger.submit(make_job(case, "report"))
    assert refusal.value.away and not refusal.value.permanent
    with pytest.raises(BackendTrouble):
        stranger.find(job.name)
    assert stranger.poll([attempt])[attempt.name].seen is Seen.RUNNING, "its node says so, without Ray"
    with pytest.raises(BackendTrouble):
        stranger.cancel(attempt)
    # The claim is forbidden all the same, and its node is told so.
    ended = wait_seen_ended(case, attempt)
    assert ended.ending is Ending.CANCELLED and executions(case, job) == 1


def test_a_job_that_somebody_stops_on_ray_has_one_end(case: RayCase) -> None:
    backend, job, attempt = case.started()
    assert case.ray.call("POST", f"/api/jobs/{job.name}/stop").status_code == 200
    ended = wait_seen_ended(case, attempt)
    assert ended.ending in (Ending.CANCELLED, Ending.NO_REPORT)
    assert backend.collect(attempt) is None and executions(case, job) == 1


# ------------------------------------------------------------------------------------------------- who may call us


def test_only_the_run_key_opens_the_nodes_calls(case: RayCase) -> None:
    job = make_job(case, "report")
    case.submit_and_die(job, "sending")
    url = f"{case.api.url}/nodes/pool/{job.name}/claim"
    me, you, body = "a" * 32, "b" * 32, b'{"number": 1}'
    digest = calls.digest_of(body)
    right = {
        calls.WHO: me,
        calls.SUM: digest,
        calls.MAC: calls.mac(KEY, "claim", "pool", job.name, me, digest),
    }
    others = make_job(case, "report")
    split = calls.mac(KEY, "claim", "pool", job.name, f"{me} x", digest)  # another split of one text
    wrong = [
        {calls.WHO: f"{me} x", calls.SUM: digest, calls.MAC: split},
        {},
        {**right, calls.MAC: calls.mac(b"0" * 32, "claim", "pool", job.name, me, digest)},
        {**right, calls.WHO: you},
        {**right, calls.MAC: calls.mac(KEY, "beat", "pool", job.name, me, digest)},
        {**right, calls.MAC: calls.mac(KEY, "claim", "pool", others.name, me, digest)},
    ]
    for headers in wrong:
        assert httpx.post(url, headers=headers, content=body).status_code == 401, headers
    assert httpx.post(url, headers=right, content=b'{"node": "x"}').status_code == 401, "another body"
    assert httpx.post(url.replace("pool", "lake"), headers=right, content=body).status_code == 401
    assert case.jobs.look([job.name])[job.name].can_start
    assert httpx.post(url, headers=right, content=body).status_code == 200
    assert httpx.post(url, headers=right, content=body).status_code == 200, "the same process asks again"
    with pytest.raises(Refused):
        case.jobs.claim(job.name, "pool", who=you, node="", number=1, now=case.api.now)


# ------------------------------------------------------------------------------------------------- silence, and looks


def test_a_node_that_loses_its_way_to_us_ends_its_run_itself(case: RayCase) -> None:
    with held(case.api.url) as ours:
        case.service_url = ours.url
        try:
            _, job, attempt = case.started(lease_s=8.0)
        finally:
            case.service_url = ""
        (pid,) = (case.folder / f"{job.name}.count").read_text().split()
        ours.hold()
        wait_until(case, "its harness is gone", lambda: not is_alive(int(pid)))
        ours.let_go()
        ended = wait_seen_ended(case, attempt)
    assert ended.ending is Ending.NO_REPORT and "couldn't reach the service for 8 s" in ended.reason
    assert executions(case, job) == 1


def test_the_check_says_what_holds_and_what_to_do(case: RayCase) -> None:
    told = {one.name: one for one in check.findings(case.backend(), KEY, of_ray("pool")) if one.name != "service"}
    assert {name: one.grade for name, one in told.items()} == {
        "reach": Grade.PASS,
        "version": Grade.PASS,
        "token": Grade.PASS,
        "workers": Grade.PASS,
        "image": Grade.PASS,
        "key": Grade.PASS,
        "nodes": Grade.UNSEEN,
    }
    assert told["workers"].text == "3 at once with T4 1" and told["workers"].where == GPU


@pytest.mark.parametrize(
    ("changed", "name", "grade", "said"),
    [
        ({"token": "no"}, "token", Grade.FAIL, "Ray rejected the token (403)"),
        ({"token": ""}, "token", Grade.FAIL, "Ray rejected the token (401)"),
        ({"url": "http://127.0.0.1:9"}, "reach", Grade.FAIL, "Ray can't be reached"),
        ({"resources": {"H200": 1}}, "workers", Grade.CAUTION, "no worker that is up has H200 1"),
        ({"key": b"0" * 32}, "key", Grade.FAIL, "has another run key"),
    ],
)
def test_the_check_says_what_is_wrong(
    case: RayCase, changed: dict[str, Any], name: str, grade: Grade, said: str
) -> None:
    found = list(check.findings(case.backend(**changed), changed.get("key", KEY), of_ray("pool")))
    (one,) = [one for one in found if one.name == name]
    assert one.grade is grade and said in one.text and one.remedy


def test_the_command_prints_it_and_exits_with_1_on_a_fail(case: RayCase) -> None:
    (case.folder / "kbslurm.toml").write_text(
        f"[ray.pool]\nurl = '{case.ray.url}'\nservice_url = '{case.api.url}'\n"
        f"[ray.pool.gpus.{GPU}]\nnum_gpus = 0\nresources = {{ {GPU} = 1 }}\n"
    )
    line = CommandLine(cwd=case.folder, env={"RAY_POOL_KEY": KEY.hex(), "RAY_POOL_TOKEN": case.ray.token})
    good, bad = line("ray", "check", "--json"), line("ray", "check", RAY_POOL_TOKEN="no")
    assert (good.code, bad.code) == (0, 1)
    assert {one["grade"] for one in good.json()["findings"]} == {"PASS", "CAUTION", "not looked at"}, good.out
    assert "Ray rejected the token (403)" in bad.out
    for said in (good, bad):
        assert KEY.hex() not in said.out + said.err and case.ray.token not in said.out + said.err
    assert line("ray", "check", "lake").code == 2


def test_a_submission_that_is_not_for_the_board_gets_nothing_hidden(case: RayCase) -> None:
    backend = case.backend(ranked=False)
    job = make_job(case, "report")
    ranking = replace(job, manifest=job.manifest.replace('"mode":"test"', '"mode":"leaderboard"'))
    assert ranking.manifest != job.manifest
    with pytest.raises(BackendRefused, match="ranked is false") as refusal:
        backend.submit(ranking)
    assert refusal.value.permanent and case.jobs.look([job.name]) == {}
