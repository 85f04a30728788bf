"""The Modal backend: the Backend contract with the real client on a loopback platform, and what only it promises."""

from __future__ import annotations

import base64
import json
import os
import pickle
import signal
import subprocess
import sys
import time
import urllib.request
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from kbslurm.backends.modal import deploy, results
from kbslurm.backends.modal.backend import ModalBackend, ModalGpu, function_name
from kbslurm.backends.modal.connection import CallFailed, Connection
from kbslurm.domain.finding import Grade
from kbslurm.domain.run import Ending, Handle, JobName, OpenAttempt, Seen
from kbslurm.errors import BackendRefused, BackendTrouble, BackendUnclear
from kbslurm.ports import JobSpec
from kbslurm_eval.shared import wire
from tests.contract import submitter
from tests.contract.backend_suite import (
    REPOSITORY,
    BackendContract,
    attempt_of,
    executions,
    make_eval,
    make_job,
    wait_counted,
    wait_seen,
    wait_until,
)
from tests.fakes.modal import TOKEN, FakeModal

GPU = "T4"
DIGEST = "d" * 64
TIMEOUT_S = 900.0


@dataclass
class ModalCase:
    """The Modal backend as the suite wants it. Its clock can be put forward: a lost call is waited out so."""

    folder: Path
    fake: FakeModal
    connection: Connection
    name: str = "modal"
    gpu: str = GPU
    wait_s: float = 120.0
    time_limit_s: float = 1.0
    enforces_memory: bool = False
    steps: Sequence[str] = ("intent", "placed", "spawned", "started")
    lost_at: Sequence[str] = ("spawned",)
    later_s: float = 0.0
    made: list[Connection] = field(default_factory=list)

    def backend(self, *, connection: Connection | None = None, **told: Any) -> ModalBackend:
        return ModalBackend(
            connection or self.connection,
            app="kbslurm-test",
            gpus={GPU: ModalGpu(slots=2, timeout_s=TIMEOUT_S, memory_bytes=1 << 40)},
            **{
                "harness_digest": DIGEST,
                "start_within_s": 300.0,
                "margin_s": 60.0,
                "now": lambda: time.time() + self.later_s,
                **told,
            },
        )

    def finished(self, job: JobSpec) -> JobSpec:
        return job

    def submit_and_die(self, job: JobSpec, step: str) -> None:
        told = {
            "url": self.fake.url,
            "token": TOKEN,
            "app": "kbslurm-test",
            "digest": DIGEST,
            "timeout_s": TIMEOUT_S,
            "start_within_s": 300.0 + self.later_s,
            "margin_s": 60.0,
        }
        process = submitter.started("tests.contract.modal_submitter", told, job, step)
        assert process.wait(timeout=self.wait_s) == -signal.SIGKILL

    def submit_unstarted(self, job: JobSpec) -> None:
        self.submit_and_die(job, "placed")

    def let_start(self, job: JobSpec) -> None:
        with suppress(BackendUnclear):
            self.backend().submit(job)
        self.wait_out(job)

    def wait_out(self, job: JobSpec) -> None:
        wait_until(self, "what was sent has ended", lambda: all(call.output for call in self.fake.calls.values()))
        self.later_s += 300.0 + job.time_limit_s + 60.0

    def paths(self, name: JobName) -> None:
        return None


def deployed(folder: Path, eval_dir: Path, *, digest: str = DIGEST, app: str = "kbslurm-test") -> Path:
    """The folder as `kbslurm modal deploy` writes it."""
    function = {"gpu": "", "timeout_s": TIMEOUT_S, "cpu": 1.0, "memory_mib": 1024, "slots": 2}
    facts = deploy.told(app=app, image="", python="3.12", packages=(), functions={GPU: function}, digest=digest)
    return deploy.render(folder, facts, eval_dir=eval_dir, app_file=REPOSITORY / "containers" / "modal_app.py").parent


@pytest.fixture
def case(tmp_path: Path) -> Iterator[ModalCase]:
    with FakeModal(deployed(tmp_path / "app", make_eval(tmp_path / "eval"))) as fake:
        connection = Connection(*TOKEN, api_url=fake.url)
        found = ModalCase(folder=tmp_path, fake=fake, connection=connection)
        yield found
        for one in (connection, *found.made):
            one.close()


def started(case: ModalCase, do: str = "sleep", **config: Any) -> tuple[JobSpec, OpenAttempt]:
    """A job that has really begun."""
    job = make_job(case, do, **config)
    attempt = attempt_of(case, job, case.backend().submit(job))
    wait_counted(case, job)
    return job, attempt


def ended_as(case: ModalCase, how: str) -> tuple[ModalBackend, OpenAttempt, Any]:
    """A job whose result was spoilt so, and how it is seen."""
    case.fake.spoil(how)
    backend = case.backend()
    job = make_job(case, "report")
    attempt = attempt_of(case, job, backend.submit(job))
    return backend, attempt, wait_seen(case, backend, attempt, Seen.ENDED)


class TestTheContract(BackendContract):
    """The suite that every backend passes."""


# ------------------------------------------------------------------------------------------- law 6: what comes back


@pytest.mark.parametrize("how", ["hostile", "oversized", "empty", "text"])
def test_a_result_that_isnt_ours_is_no_report_and_runs_nothing(case: ModalCase, how: str) -> None:
    backend, attempt, ended = ended_as(case, how)
    assert ended.ending is Ending.BAD_REPORT and ended.node
    assert "isn't an envelope" in ended.reason
    assert backend.collect(attempt) is None and backend.artifacts(attempt, ["trace.json"]) == {}
    assert not (case.fake.app / "pwned").exists()


def test_the_hostile_pickle_would_have_run_where_it_is_unpickled(case: ModalCase) -> None:
    """Else the test above could not fail."""
    ended_as(case, "hostile")
    (call,) = case.fake.calls.values()
    pickle.loads(call.output.result.data)
    assert (case.fake.app / "pwned").exists()


def test_a_remote_exception_is_told_in_our_own_words(case: ModalCase) -> None:
    backend, attempt, ended = ended_as(case, "hostile exception")
    assert (ended.ending, ended.reason) == (Ending.NO_REPORT, "the function failed; see Modal's logs")
    assert backend.collect(attempt) is None
    assert not (case.fake.app / "pwned").exists()


@pytest.mark.parametrize(
    ("status", "ending"),
    [
        ("TIMEOUT", Ending.TIMEOUT),
        ("INIT_FAILURE", Ending.IMAGE),
        ("INTERNAL_FAILURE", Ending.NODE_FAILURE),
        ("KERNEL_OOM_KILL", Ending.MEMORY),
        ("MEMORY_MANAGER_EVICTION", Ending.PREEMPTED),
        ("UNSPECIFIED", Ending.NO_REPORT),
    ],
)
def test_each_end_that_modal_knows_has_its_class(case: ModalCase, status: str, ending: Ending) -> None:
    assert ended_as(case, status)[2].ending is ending


def enveloped(told: dict[str, Any]) -> bytes:
    return pickle.dumps(zlib.compress(json.dumps(told).encode()))


def test_a_result_that_grows_without_end_is_nothing() -> None:
    bomb = zlib.compress(b"0" * (results.RESULT_CAP + 1), 9)
    assert len(bomb) < 1 << 20
    for told in (bomb, bomb[:-9], b"{}", zlib.compress(b"{}") + b"x"):
        with pytest.raises(results.NoResult):
            results.envelope_of(pickle.dumps(told), results.PICKLE)


SECRET = "the hidden case is 4711"


@pytest.mark.parametrize(
    "changed",
    [
        {"why": SECRET},
        {"ending": SECRET},
        {"exit_code": 4711},
        {"exit_code": True},
        {"more": SECRET},
        {"version": 1},
        {"report": None},
        {"report": 1},
        {"ending": "node_failure", "report": None},
        {"ending": "no_report"},
    ],
)
def test_an_envelope_says_nothing_in_words_of_its_own(changed: dict[str, Any]) -> None:
    """What is told of a run its person may read: a container that was taken over can't speak to it."""
    fine = {"version": 2, "ending": "reported", "why": "", "exit_code": 0, "report": "sealed", "artifacts": {}}
    assert results.envelope_of(enveloped(fine), results.PICKLE).report == b"sealed"
    with pytest.raises(results.NoResult) as refusal:
        results.envelope_of(enveloped({**fine, **changed}), results.PICKLE)
    assert "4711" not in str(refusal.value)


def test_artifacts_that_cant_be_are_left_out() -> None:
    told = {"trace.json": "eHg=", "broken": "!", "empty": "", "number": 7, "large": "A" * 12_000_000}
    fine = {"version": 2, "ending": "reported", "why": "", "exit_code": 0, "report": "sealed", "artifacts": told}
    found = results.envelope_of(enveloped(fine), results.PICKLE)
    assert found.artifacts == {"trace.json": b"xx"}


def test_what_a_job_prints_is_in_modals_logs_alone(case: ModalCase) -> None:
    backend = case.backend()
    job = make_job(case, "print")
    attempt = attempt_of(case, job, backend.submit(job))
    wait_seen(case, backend, attempt, Seen.ENDED)
    (call,) = case.fake.calls.values()
    assert call.log == b"x" * 65_536
    assert b"xxxx" not in (backend.collect(attempt) or b"")


# --------------------------------------------------------------------------------- law 2: what was perhaps started


def test_a_lost_answer_leaves_an_attempt_that_nobody_sends_again_too_early(case: ModalCase) -> None:
    backend = case.backend()
    job = make_job(case, "report")
    case.fake.lose("FunctionMap")
    with pytest.raises(BackendUnclear, match="may have been started"):
        backend.submit(job)
    assert case.fake.asked["FunctionMap"] == 1, "it was sent twice"
    assert case.backend().find(job.name).seen is Seen.UNKNOWN
    with pytest.raises(BackendUnclear):
        case.backend().submit(job)
    assert case.backend().collect(attempt_of(case, job)) is None
    case.wait_out(job)
    assert case.backend().find(job.name).seen is Seen.ABSENT
    attempt = attempt_of(case, job, case.backend().submit(job))
    assert wait_seen(case, backend, attempt, Seen.ENDED).ending is Ending.REPORTED
    assert len(case.fake.calls) == 2


@pytest.mark.parametrize("gone_at", ["NaN", "1e300", "Infinity", "null"])
def test_an_entry_whose_time_cant_be_read_never_runs_out(case: ModalCase, gone_at: str) -> None:
    job = make_job(case, "report")
    text = f'{{"by": "", "gone_at": {gone_at}, "call": "", "cancelled": false}}'
    case.connection.write(case.connection.dict_id("kbslurm-test-attempts"), job.name, text.encode())
    assert case.backend().find(job.name).seen is Seen.UNKNOWN


def test_a_call_that_waited_too_long_refuses_to_begin(case: ModalCase) -> None:
    """So that what was called absent never runs beside its successor."""
    case.fake.held = True
    backend = case.backend(start_within_s=0.0)
    job = make_job(case, "report")
    attempt = attempt_of(case, job, backend.submit(job))
    assert wait_seen(case, backend, attempt, Seen.WAITING).reason
    case.fake.let_go()
    ended = wait_seen(case, backend, attempt, Seen.ENDED)
    assert (ended.ending, ended.reason) == (Ending.CANCELLED, "no GPU became free in time, so it wasn't started")
    assert executions(case, job) == 0


def test_what_modal_starts_again_by_itself_is_ended_and_never_counts(case: ModalCase) -> None:
    """Its container is taken away, and the same input goes to another: an attempt runs once (law 2)."""
    job, attempt = started(case)
    backend = case.backend()
    seen = wait_seen(case, backend, attempt, Seen.RUNNING)
    (call,) = case.fake.calls.values()
    attempt = replace(attempt, node=call.task)
    assert seen.node == attempt.node
    case.fake.preempt()
    wait_until(case, "it was started again", lambda: call.task != attempt.node)
    again = backend.poll([attempt])[job.name]
    assert (again.seen, again.node) == (Seen.RUNNING, attempt.node), "the row keeps where it ran first"
    ended = wait_seen(case, backend, attempt, Seen.ENDED)
    assert (ended.ending, ended.node, ended.started_at) == (Ending.PREEMPTED, attempt.node, None)
    assert call.ended_at, "it isn't let run to its end"
    assert case.backend().collect(attempt) is None and case.backend().artifacts(attempt, ["a"]) == {}


def test_a_report_of_another_container_than_the_rows_is_never_taken(case: ModalCase) -> None:
    job = make_job(case, "report")
    backend = case.backend()
    attempt = attempt_of(case, job, backend.submit(job))
    node = wait_seen(case, backend, attempt, Seen.ENDED).node
    assert backend.collect(replace(attempt, node=node)) is not None
    elsewhere = replace(attempt, node="ta-0123456789abcdef")
    for looking in (backend, case.backend()):  # one that remembers what came back, and one that doesn't
        assert looking.collect(elsewhere) is None
        seen = looking.poll([elsewhere])[job.name]
        assert (seen.seen, seen.ending, seen.node) == (Seen.ENDED, Ending.PREEMPTED, elsewhere.node)


def test_a_lost_answer_to_the_intent_hinders_nothing(case: ModalCase) -> None:
    case.fake.lose("DictUpdate")
    backend = case.backend()
    job = make_job(case, "report")
    attempt = attempt_of(case, job, backend.submit(job))
    assert wait_seen(case, backend, attempt, Seen.ENDED).ending is Ending.REPORTED
    assert len(case.fake.calls) == 1


@pytest.mark.parametrize(
    ("rpc", "status", "permanent"),
    [
        ("FunctionGet", "NOT_FOUND", True),
        ("FunctionGet", "UNAUTHENTICATED", False),
        ("DictUpdate", "RESOURCE_EXHAUSTED", False),
        ("FunctionMap", "RESOURCE_EXHAUSTED", False),
        ("FunctionMap", "NOT_FOUND", True),
    ],
)
def test_a_clear_no_starts_nothing_and_is_forgotten(case: ModalCase, rpc: str, status: str, permanent: bool) -> None:
    job = make_job(case, "report")
    case.fake.fail(rpc, status=status)
    with pytest.raises(BackendRefused) as refusal:
        case.backend().submit(job)
    assert refusal.value.permanent is permanent and refusal.value.away is not permanent
    assert case.backend().find(job.name).seen is Seen.ABSENT
    attempt = attempt_of(case, job, case.backend().submit(job))
    assert wait_seen(case, case.backend(), attempt, Seen.ENDED).ending is Ending.REPORTED
    assert executions(case, job) == 1


def test_nothing_is_sent_when_what_comes_before_has_no_answer(case: ModalCase) -> None:
    job = make_job(case, "report")
    case.fake.fail("DictUpdate", times=10)
    with pytest.raises(BackendRefused, match="nothing was sent") as refusal:
        case.backend().submit(job)
    assert not refusal.value.permanent
    assert case.fake.calls == {}


def test_an_unavailable_moment_is_outlived_where_asking_twice_is_harmless(case: ModalCase) -> None:
    job, attempt = started(case, "report")
    case.fake.fail("FunctionGetOutputs", times=2)
    assert wait_seen(case, case.backend(), attempt, Seen.ENDED).ending is Ending.REPORTED
    assert executions(case, job) == 1


# ------------------------------------------------------------------------------------------------ looking, ending


def test_trouble_says_nothing_about_attempts(case: ModalCase) -> None:
    _, attempt = started(case)
    case.fake.fail("FunctionGetOutputs", times=100)
    with pytest.raises(BackendTrouble):
        case.backend().poll([attempt])
    with pytest.raises(BackendTrouble):
        case.backend().collect(attempt)
    case.fake.fail("FunctionGetOutputs", times=0)
    assert case.backend().poll([attempt])[attempt.name].seen is Seen.RUNNING


def test_an_id_that_modal_doesnt_know_is_absent_and_hides_no_other(case: ModalCase) -> None:
    _, attempt = started(case)
    stranger = attempt_of(case, make_job(case, "report"), Handle("fc-nowhere"))
    seen = case.backend().poll([attempt, stranger])
    assert (seen[attempt.name].seen, seen[stranger.name].seen) == (Seen.RUNNING, Seen.ABSENT)


def test_what_was_ended_from_outside_is_cancelled(case: ModalCase) -> None:
    _, attempt = started(case)
    case.fake.end_from_outside()
    assert wait_seen(case, case.backend(), attempt, Seen.ENDED).ending is Ending.CANCELLED


def test_a_cancel_that_comes_first_keeps_the_job_from_ever_starting(case: ModalCase) -> None:
    backend = case.backend()
    job = make_job(case, "report")
    backend.cancel(attempt_of(case, job))
    attempt = attempt_of(case, job, backend.submit(job))
    assert wait_seen(case, backend, attempt, Seen.ENDED).ending is Ending.CANCELLED
    assert case.fake.calls == {}


@pytest.mark.parametrize(("sent", "brought"), [(100_000, 10), (10, 100_000), (1_300_000, 1_300_000)])
def test_no_size_needs_the_store_of_blobs_which_a_container_without_a_network_cant_reach(
    case: ModalCase, sent: int, brought: int
) -> None:
    backend = case.backend()
    job = make_job(case, "report_much", filler=noise(sent), size=brought)
    attempt = attempt_of(case, job, backend.submit(job))
    ended = wait_seen(case, backend, attempt, Seen.ENDED)
    sealed = case.backend().collect(attempt)
    assert sealed is not None and wire.unseal(sealed, job.key).token == job.name, ended
    assert (case.fake.asked["BlobCreate"], case.fake.asked["BlobGet"], case.fake.blobs) == (0, 0, {})


def test_what_no_container_can_be_given_is_refused_before_it_is_sent(case: ModalCase) -> None:
    job = make_job(case, "report", filler=noise(3_000_000))
    with pytest.raises(BackendRefused, match=r"2\.\d MiB, and a .* without a network gets at most 2\.0") as refused:
        case.backend().submit(job)
    assert refused.value.permanent and not refused.value.away and case.fake.calls == {}


def test_files_that_dont_fit_are_left_behind_and_a_report_that_doesnt_is_told(case: ModalCase) -> None:
    backend = case.backend()
    beside = make_job(case, "report_much", size=10, artifact=3_000_000)
    attempt = attempt_of(case, beside, backend.submit(beside))
    wait_seen(case, backend, attempt, Seen.ENDED)
    assert backend.collect(attempt) is not None and backend.artifacts(attempt, ["trace.bin"]) == {}
    small = make_job(case, "report_much", size=10, artifact=300_000)
    attempt = attempt_of(case, small, backend.submit(small))
    wait_seen(case, backend, attempt, Seen.ENDED)
    assert len(backend.artifacts(attempt, ["trace.bin"])["trace.bin"]) == 300_000
    large = make_job(case, "report_much", size=3_000_000)
    ended = wait_seen(case, backend, attempt_of(case, large, backend.submit(large)), Seen.ENDED)
    assert (ended.ending, "without a network" in ended.reason) == (Ending.BAD_REPORT, True), ended


def noise(size: int) -> str:
    """Text that can't be made smaller than this."""
    return base64.b85encode(os.urandom(size)).decode()


def test_a_token_that_isnt_taken_is_one_sentence(case: ModalCase) -> None:
    connection = Connection("ak-other", "as-other", api_url=case.fake.url)
    case.made.append(connection)
    with pytest.raises(BackendRefused, match="token") as refusal:
        case.backend(connection=connection).submit(make_job(case, "report"))
    assert "MODAL_TOKEN_ID" in str(refusal.value.hint)
    (finding,) = deploy.findings(connection, case.fake.told())
    assert (finding.name, finding.grade) == ("token", Grade.FAIL)


# ----------------------------------------------------------------------------------------------- what is deployed


def test_an_app_with_another_harness_judges_nothing(case: ModalCase) -> None:
    backend = case.backend(harness_digest="e" * 64)
    job = make_job(case, "report")
    attempt = attempt_of(case, job, backend.submit(job))
    ended = wait_seen(case, backend, attempt, Seen.ENDED)
    assert ended.ending is Ending.IMAGE and "kbslurm modal deploy" in ended.reason
    assert executions(case, job) == 0


def test_an_app_that_couldnt_read_what_is_sent_is_sent_nothing(case: ModalCase) -> None:
    """Such was deployed before payloads were compressed, under the name without a version."""
    facts = case.fake.told()
    facts["functions"]["judge-T4"] = facts["functions"].pop(function_name("T4"))
    (case.fake.app / "told.json").write_text(json.dumps(facts))
    with pytest.raises(BackendRefused, match="run kbslurm modal deploy") as refused:
        case.backend().submit(make_job(case, "report"))
    assert "isn't of this kbslurm" in refused.value.message
    assert case.fake.calls == {}


def test_the_check_tells_what_is_missing(case: ModalCase) -> None:
    facts = case.fake.told()
    assert {one.grade for one in deploy.findings(case.connection, facts)} == {Grade.PASS}
    other = {**facts, "harness_digest": "e" * 64}
    assert [one.name for one in deploy.findings(case.connection, other) if one.grade is Grade.FAIL] == ["harness"]
    more = {**facts, "functions": {**facts["functions"], "judge-v2-H100": facts["functions"]["judge-v2-T4"]}}
    assert [one.where for one in deploy.findings(case.connection, more) if one.grade is Grade.FAIL] == ["judge-v2-H100"]
    nowhere = {**facts, "app": "another"}
    assert [(one.name, one.remedy) for one in deploy.findings(case.connection, nowhere) if one.grade is Grade.FAIL] == [
        ("app", "Run kbslurm modal deploy.")
    ]


def test_a_job_that_the_function_cant_hold_is_refused_before_it_is_sent(case: ModalCase) -> None:
    for told in ({"time_limit_s": TIMEOUT_S}, {"memory_bytes": 1 << 50}):
        with pytest.raises(BackendRefused) as refusal:
            case.backend().submit(make_job(case, "report", **told))
        assert refusal.value.permanent and "modal.gpus.T4" in str(refusal.value.hint)
    assert case.fake.calls == {}


# ------------------------------------------------------------------------------------------- bytes, and only bytes


@pytest.mark.parametrize("protocol", [3, 4, 5])
@pytest.mark.parametrize("size", [0, 1, 255, 256, 70_000])
def test_one_bytes_object_is_read_from_any_pickle_of_it(protocol: int, size: int) -> None:
    data = bytes(i % 251 for i in range(size))
    assert results.bytes_of(pickle.dumps(data, protocol=protocol), results.PICKLE) == data


@pytest.mark.parametrize(
    "found", [b"", "text", 7, None, [b"x"], (b"x",), {"a": b"x"}, bytearray(b"x"), print, ValueError("x"), [b"x", b"y"]]
)
def test_nothing_else_is_read(found: Any) -> None:
    data = pickle.dumps(found, protocol=4)
    if found == b"" and isinstance(found, bytes):
        assert results.bytes_of(data, results.PICKLE) == b""
        return
    with pytest.raises(results.NoResult):
        results.bytes_of(data, results.PICKLE)


def test_a_cut_or_lengthened_pickle_is_nothing() -> None:
    whole = pickle.dumps(b"x" * 1000, protocol=4)
    for broken in (*(whole[:n] for n in range(len(whole))), whole + b"N.", whole[:-1] + whole):
        with pytest.raises(results.NoResult):
            results.bytes_of(broken, results.PICKLE)


def test_cbor_is_read_as_strictly() -> None:
    assert results.bytes_of(b"\x43abc", results.CBOR) == b"abc"
    assert results.bytes_of(b"\x58\x03abc", results.CBOR) == b"abc"
    for broken in (b"", b"\x43ab", b"\x43abcd", b"\x63abc", b"\x5f\x43abc\xff", b"\xd8\x23\x63abc", b"\x81\x41a"):
        with pytest.raises(results.NoResult):
            results.bytes_of(broken, results.CBOR)
    with pytest.raises(results.NoResult):
        results.bytes_of(b"\x43abc", "format 2")


# ------------------------------------------------------------------------------------------ the file that is deployed


def test_the_app_has_one_function_per_gpu_type_shut_off_from_everything(tmp_path: Path) -> None:
    """By the real client, in a process of its own: importing an app file registers its functions."""
    folder = deployed(tmp_path / "app", make_eval(tmp_path / "eval"))
    (folder / "look.py").write_text(LOOK)
    done = subprocess.run(
        [sys.executable, "look.py"], cwd=folder, capture_output=True, text=True, timeout=120, check=True
    )
    told = json.loads(done.stdout)
    assert told == {"name": "kbslurm-test", "functions": ["judge-v2-T4"], "returns": "image"}


LOOK = """
import json, sys, zlib
from pathlib import Path
import kbslurm_app
stale = {"version": 2, "start_by": 4e9, "harness_digest": "another"}
found = json.loads(zlib.decompress(kbslurm_app.judge(zlib.compress(json.dumps(stale).encode()))))
names = sorted(kbslurm_app.app.registered_functions)
print(json.dumps({"name": kbslurm_app.app.name, "functions": names, "returns": found["ending"]}))
"""


def test_the_platform_starts_by_itself_and_ends_when_told(tmp_path: Path) -> None:
    """For whoever wants to see it work: MODAL_SERVER_URL leads there."""
    folder = deployed(tmp_path / "app", make_eval(tmp_path / "eval"))
    with subprocess.Popen(
        [sys.executable, "-m", "tests.fakes.modal", "--app", folder], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True
    ) as platform:
        assert platform.stdout is not None
        told = json.loads(platform.stdout.readline())
        connection = Connection(*told["token"], api_url=told["url"])
        assert {one.grade for one in deploy.findings(connection, json.loads((folder / "told.json").read_text()))} == {
            Grade.PASS
        }
        fault = json.dumps({"fail": ["ClientHello", 1]}).encode()
        with urllib.request.urlopen(urllib.request.Request(told["faults"], data=fault), timeout=60) as answer:
            assert answer.status == 200
        with pytest.raises(CallFailed):
            connection.hello()
        connection.close()
        platform.terminate()
        assert platform.wait(60) == 0


def test_a_token_that_was_rotated_is_taken_once_the_old_one_is_rejected(case: ModalCase) -> None:
    asked: list[str] = []

    def renew() -> tuple[str, str]:
        asked.append("again")
        return case.fake.token

    connection = Connection("ak-old", "as-old", api_url=case.fake.url, renew=renew)
    case.made.append(connection)
    with pytest.raises(CallFailed) as rejected:
        connection.hello()
    assert rejected.value.status == "UNAUTHENTICATED" and "as-old" not in str(rejected.value)
    connection.hello()
    assert asked == ["again"]
