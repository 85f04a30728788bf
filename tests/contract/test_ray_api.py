"""Ray's API when it isn't as it should be: behind TLS, slow, endless, somebody else's. Nothing is concluded from it."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from kbslurm.backends.ray.api import ANSWER_CAP, Api
from kbslurm.backends.ray.backend import RayBackend, RayGpu, RayNodes
from kbslurm.backends.ray.node_program import UNDELIVERED
from kbslurm.domain.run import Ending, Handle, JobName, Seen, new_job_name
from kbslurm.errors import BackendRefused, BackendTrouble, BackendUnclear, Misconfigured
from kbslurm.flow.collect import AttemptNotes, collect
from kbslurm.flow.place import Place
from kbslurm.ports import JobSpec
from kbslurm.store.connect import Pool
from kbslurm.store.node_jobs import NodeJobs
from kbslurm.store.postgres import PostgresStore
from tests.contract.backend_suite import REPOSITORY
from tests.contract.store_rig import Rig

Answer = Callable[[BaseHTTPRequestHandler], None]


def told(status: int, body: str) -> Answer:
    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(status)
        request.send_header("content-length", str(len(body)))
        request.end_headers()
        request.wfile.write(body.encode())

    return answer


@contextmanager
def answering(*answers: Answer, tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """A server with one answer after another; the last one stays. Its address."""
    left = list(answers)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("content-length") or 0))
            (left.pop(0) if len(left) > 1 else left[0])(self)

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.handle_error = lambda *_: None  # type: ignore[method-assign]  # a client hung up, as it should
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), name="ray")
        thread.start()
        try:
            yield f"{'https' if tls else 'http'}://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def jobs(database_url: str) -> Iterator[NodeJobs]:
    with closing(Pool(database_url)) as pool:
        yield NodeJobs(pool)


@pytest.fixture
def rig(database_url: str) -> Iterator[Rig]:
    with closing(PostgresStore(database_url)) as store:
        yield Rig.on(store)


def backend(
    url: str, jobs: NodeJobs, *, timeout_s: float = 20.0, now: Callable[[], datetime] = lambda: datetime.now(UTC)
) -> RayBackend:
    return RayBackend(
        Api("pool", url=url, token="t", timeout_s=timeout_s),
        lambda: jobs,
        name="pool",
        gpus={"H100": RayGpu(num_gpus=1, resources={}, slots=1, memory_bytes=1 << 30)},
        nodes=RayNodes(service_url="http://127.0.0.1:9", key_file="/etc/kbslurm/run-key"),
        key=b"k" * 32,
        eval_dir=REPOSITORY / "eval",
        now=now,
    )


def job(name: JobName | None = None, *, memory_bytes: int = 1 << 20) -> JobSpec:
    return JobSpec(
        name=name or new_job_name(),
        gpu="H100",
        manifest=json.dumps({"mode": "test", "hidden": []}),
        key=b"k" * 32,
        time_limit_s=60.0,
        memory_bytes=memory_bytes,
    )


def drip(request: BaseHTTPRequestHandler) -> None:
    request.send_response(200)
    request.end_headers()
    while True:  # until the client hangs up
        request.wfile.write(b" ")
        threading.Event().wait(0.05)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (drip, "didn't answer within 1 s"),
        (told(200, "x" * (ANSWER_CAP + 1)), "gave no answer"),
        (told(200, "<html>"), "which isn't known here"),
        (told(200, '{"status": "LATE"}'), "Ray says 'LATE' of a job"),
        (told(200, '["RUNNING"]'), "which isn't known here"),
        (told(404, "no such page"), "isn't Ray's Jobs API"),
        (told(302, ""), "answered with status 302"),
        (told(503, "Traceback:\nKeyError: gone\n"), "answered with status 503: KeyError: gone"),
    ],
)
def test_what_isnt_an_answer_of_rays_concludes_nothing(jobs: NodeJobs, answer: Answer, said: str) -> None:
    name = new_job_name()
    jobs.offer(name, "pool", b"sealed", 120.0, datetime.now(UTC))
    with (
        answering(answer) as url,
        closing(backend(url, jobs, timeout_s=1.0)) as ray,
        pytest.raises(BackendTrouble) as trouble,
    ):
        ray.find(name)
    assert said in trouble.value.message
    assert jobs.look([name])[name].can_start


@pytest.mark.parametrize(
    ("answers", "raised", "permanent"),
    [
        ((told(400, "Traceback:\nValueError: entrypoint_num_gpus is wrong\n"),), BackendRefused, True),
        ((told(404, "Not Found"),), BackendRefused, False),
        ((told(403, "Forbidden"),), BackendRefused, False),
        ((told(500, "no agent"), told(404, "Job x does not exist")), BackendUnclear, None),
        ((drip,), BackendUnclear, None),
    ],
)
def test_what_a_refused_or_unclear_job_is_taken_for(
    jobs: NodeJobs, answers: tuple[Answer, ...], raised: type[BackendTrouble], permanent: bool | None
) -> None:
    with (
        answering(*answers) as url,
        closing(backend(url, jobs, timeout_s=1.0)) as ray,
        pytest.raises(raised) as trouble,
    ):
        ray.submit(job())
    if isinstance(trouble.value, BackendRefused):
        assert (trouble.value.permanent, trouble.value.away) == (permanent, not permanent)


def test_a_name_that_ray_knows_already_is_that_job(jobs: NodeJobs) -> None:
    there = told(200, '{"status": "PENDING"}')
    with answering(told(500, "ValueError: it already exists"), there) as url, closing(backend(url, jobs)) as ray:
        sent = job()
        assert ray.submit(sent) == Handle(sent.name)
        assert ray.find(sent.name).seen is Seen.WAITING


def test_nothing_is_sent_that_was_cancelled_or_is_too_large(jobs: NodeJobs) -> None:
    with closing(backend("http://127.0.0.1:9", jobs)) as ray:
        sent = job()
        jobs.forbid(sent.name, "pool", datetime.now(UTC))
        assert ray.submit(sent) == Handle(sent.name), "nobody was asked"
        assert ray.find(sent.name).seen is Seen.ENDED
        with pytest.raises(BackendRefused, match="a run there 1024 MiB") as refusal:
            ray.submit(job(memory_bytes=2 << 30))
        assert refusal.value.permanent
        with pytest.raises(BackendRefused, match="can't be reached") as refusal:
            ray.submit(job())
        assert refusal.value.away, "it certainly wasn't sent"


def test_https_is_held_to_the_named_certificates(tmp_path: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name, now = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ray")]), datetime.now(UTC)
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    made = made.serial_number(1).not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    made = made.add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
    made = made.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    ca_file, both = tmp_path / "ca.pem", tmp_path / "both.pem"
    ca_file.write_bytes(made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    both.write_bytes(secret + ca_file.read_bytes())
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(both)
    with answering(told(200, "[]"), tls=tls) as url:
        with closing(Api("pool", url=url, token="t", timeout_s=20.0, ca_file=ca_file)) as right:
            assert right.get("/api/jobs/").data == []
        wrong = Api("pool", url=url, token="t", timeout_s=20.0)
        with closing(wrong), pytest.raises(BackendTrouble, match="can't be reached"):
            wrong.get("/api/jobs/")
    (tmp_path / "ca.pem").write_text("not one")
    with pytest.raises(Misconfigured, match="certificates can't be read"):
        Api("pool", url="https://127.0.0.1", token="t", timeout_s=20.0, ca_file=ca_file)


# ---------------------------------------------------------------------------------- two processes for one attempt


def ended_by(status: str, code: int | None) -> Answer:
    return told(200, json.dumps({"status": status, "driver_exit_code": code, "message": "Ray's words"}))


@pytest.mark.parametrize(
    ("status", "code"), [("SUCCEEDED", 0), ("FAILED", 6), ("FAILED", 75), ("FAILED", -9), ("STOPPED", None)]
)
def test_an_exit_that_may_be_the_losers_ends_nothing(rig: Rig, status: str, code: int | None) -> None:
    """Ray knows one process of a name of which it started two; the one that got the order lives."""
    rig.accept()
    attempt = rig.launched("H100")
    jobs = rig.store.node_jobs
    jobs.offer(attempt.name, "pool", b"sealed", 120.0, rig.now)
    jobs.claim(attempt.name, "pool", who="winner", node="n1", number=1, now=rig.now)
    with answering(ended_by(status, code)) as url, closing(backend(url, jobs, now=lambda: rig.now)) as ray:
        place, notes = Place(backend=ray, grace_s=10.0), AttemptNotes()
        for number in range(2, 7):
            assert jobs.hear(attempt.name, "pool", who="winner", number=number, progress={}, now=rig.later(5))
            (alive,) = rig.store.attempts.open()
            assert ray.poll([alive])[alive.name].seen is Seen.RUNNING
            collect(rig.store, place, [alive], notes, rig.now)
        rig.later(100)  # cut off from us, but within its lease
        assert ray.poll([alive])[alive.name].seen is Seen.UNKNOWN
        rig.later(60)
        ended = ray.poll([alive])[alive.name]
        assert ended.seen is Seen.ENDED
        assert ended.ending is (Ending.CANCELLED if status == "STOPPED" else Ending.NODE_FAILURE)


def test_a_claimant_that_could_deliver_nothing_has_ended_at_once(rig: Rig) -> None:
    rig.accept()
    attempt = rig.launched("H100")
    jobs = rig.store.node_jobs
    jobs.offer(attempt.name, "pool", b"sealed", 120.0, rig.now)
    jobs.claim(attempt.name, "pool", who="a", node="n1", number=1, now=rig.now)
    with answering(ended_by("FAILED", UNDELIVERED)) as url, closing(backend(url, jobs, now=lambda: rig.now)) as ray:
        assert ray.find(attempt.name).ending is Ending.NO_REPORT


def test_closing_closes_the_connections_to_the_database(database_url: str) -> None:
    pool = Pool(database_url)
    with answering(told(200, "{}")) as url:
        ray = backend(url, NodeJobs(pool))
        assert ray.find(new_job_name()).seen is Seen.ABSENT
        assert pool._idle
        ray.close()
    assert pool._closed and not pool._idle
