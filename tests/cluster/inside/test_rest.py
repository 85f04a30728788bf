"""slurmrestd as the way to Slurm: the same contract and words as with commands, and a sentence for each refusal."""

from __future__ import annotations

import dataclasses
import json
import os
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from kbslurm.backends.slurm.commands import Commands
from kbslurm.backends.slurm.doctor import login_node, rest_way
from kbslurm.backends.slurm.doctor.checkup import Checkup
from kbslurm.backends.slurm.fleet import TextFleet
from kbslurm.backends.slurm.reader import SACCT_FIELDS, SQUEUE_FORMAT
from kbslurm.backends.slurm.rest.commands import RestCommands
from kbslurm.backends.slurm.transport import commands_of
from kbslurm.config import shared_folders
from kbslurm.domain.run import Ending, Seen
from kbslurm.domain.site import Site, Submission
from kbslurm.errors import BackendRefused, BackendUnclear
from tests.cluster.conf_slurm import REST_PORT, REST_SOCKET
from tests.cluster.inside import control
from tests.cluster.inside.site import REST, SlurmCase, site_at
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

NEWEST = os.environ.get("KBSLURM_TEST_REST_API", "v0.0.42")  # of the API, as this Slurm's slurmrestd speaks it

OLDER = f"v0.0.{int(NEWEST.rpartition('.')[2]) - 1}"


def rest_site(root: Path, **options: object) -> Site:
    return site_at(root, runtime="none", more=REST, **options)


def with_submit(site: Site, **changed: str) -> Site:
    return dataclasses.replace(site, submit=dataclasses.replace(site.submit, **changed))  # type: ignore[arg-type]


@pytest.fixture
def case(request: pytest.FixtureRequest) -> SlurmCase:
    folder = Path("/shared/rest") / request.node.name.replace("[", "-").rstrip("]")
    (folder / "traces").mkdir(parents=True)
    return SlurmCase(folder=folder / "traces", eval_dir=make_eval(folder / "eval"), site=rest_site(folder / "root"))


class TestRest(BackendContract):
    """Every article."""

    def test_the_memory_limit_is_kept(self, case: SlurmCase) -> None:  # type: ignore[override]
        case.site = rest_site(Path(case.site.paths.shared_root), memory="200M")
        super().test_the_memory_limit_is_kept(case)


def in_accounts(case: SlurmCase, commands: Commands, handle: str) -> str:
    """sacct's line, once the database has the job's end."""
    said = ""

    def ended() -> bool:
        nonlocal said
        said = commands.run("sacct", ["-X", "-n", "-P", "-D", "-o", SACCT_FIELDS, "-j", handle]).out
        return bool(said) and "|Unknown|" not in said and "RUNNING" not in said

    wait_until(case, "sacct knows its end", ended)
    return said


def test_it_says_in_the_same_words_what_the_commands_say(case: SlurmCase) -> None:
    # Given jobs that wait, run, were cancelled, failed and are over
    backend, plain, rest = (
        case.backend(),
        Commands(dataclasses.replace(case.site, submit=Submission())),
        commands_of(case.site),
    )
    held, sleeper, dead = make_job(case, "sleep"), make_job(case, "sleep"), make_job(case, "die")
    case.submit_unstarted(held)
    running = backend.submit(sleeper)
    wait_counted(case, sleeper)
    over = backend.submit(dead)
    wait_seen(case, backend, attempt_of(case, dead, over), Seen.ENDED)
    ids = sorted([case.held[held.name], str(running), str(over)])
    asked = ["--me", "-h", "-r", "-t", "all", "-o", SQUEUE_FORMAT]
    # When both are asked; then each line is the same, however it is asked for
    ours = [line for line in plain.run("squeue", asked).out.splitlines() if line.split("|")[0] in ids]
    assert len(ours) == 3
    for which in ([], ["-j", ",".join(ids)]):
        told = rest.run("squeue", [*asked, *which]).out.splitlines()
        assert [line for line in sorted(told) if line.split("|")[0] in ids] == sorted(ours)
    named = rest.run("squeue", [*asked, f"--name={sleeper.name}"]).out
    assert [line.split("|")[0] for line in named.splitlines()] == [str(running)]
    assert in_accounts(case, rest, str(over)) == in_accounts(case, plain, str(over))
    pair = ["-X", "-n", "-P", "-D", "-o", SACCT_FIELDS, "-j", f"{over},{running}"]
    assert sorted(rest.run("sacct", pair).out.splitlines()) == sorted(plain.run("sacct", pair).out.splitlines())
    by_name = ["-X", "-n", "-P", "-D", "-o", SACCT_FIELDS, f"--name={dead.name}", "-S", "2026-01-01T00:00:00"]
    assert rest.run("sacct", by_name).out == plain.run("sacct", by_name).out != ""
    # And the nodes
    there, here = TextFleet(commands=rest), TextFleet(commands=plain)
    assert there.version() == here.version()
    control.as_root("scontrol", "update", "nodename=m1", "state=drain", "reason=fan")
    try:
        assert there.read().nodes == here.read().nodes
    finally:
        control.resume("m1")
    # A cancelled one has its own words, also when it is cancelled by its name
    for name in (sleeper.name, held.name):
        assert rest.run("scancel", ["--quiet", f"--name={name}"]).complaint == ""
    assert in_accounts(case, rest, str(running)).split("|")[2] == "CANCELLED"
    assert rest.run("scancel", ["--quiet", str(running), "999999"]).complaint == "", "as scancel --quiet"
    unknown = rest.run("scontrol", ["show", "job", "--oneliner", "999999"])
    assert "Invalid job id" in unknown.complaint


@contextmanager
def between(answer: bool | threading.Event, context: ssl.SSLContext | None = None) -> Iterator[int]:
    """A port before slurmrestd: it passes on what is sent; the answer to a POST only with `answer`, or once it is
    set."""
    listening = socket.create_server(("127.0.0.1", 0))
    over = threading.Event()

    def serve(client: socket.socket) -> None:
        with ExitStack() as ends:
            ends.callback(client.close)
            server = ends.enter_context(socket.create_connection(("127.0.0.1", REST_PORT)))
            try:
                speaking = context.wrap_socket(client, server_side=True) if context else client
                ends.callback(speaking.close)
                head = speaking.recv(1 << 20)
                server.sendall(head)
                posts = head.startswith(b"POST")
                speaking.settimeout(0.3)
                try:
                    while more := speaking.recv(1 << 20):
                        server.sendall(more)
                except TimeoutError:
                    pass
                while part := server.recv(1 << 20):
                    if not posts or (answer if isinstance(answer, bool) else answer.is_set()):
                        speaking.sendall(part)
                    elif b"job_id" in part or b"\r\n\r\n" in part:
                        return
            except OSError:
                return

    def accept() -> None:
        while not over.is_set():
            try:
                client, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(client,), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield listening.getsockname()[1]
    finally:
        over.set()
        # A thread that waits in accept() would go on with this number once a later test's socket has it.
        listening.shutdown(socket.SHUT_RDWR)
        thread.join(10)
        listening.close()


def test_an_answer_that_is_lost_is_looked_for_and_nothing_is_sent_twice(case: SlurmCase) -> None:
    with between(answer=False) as port:
        lossy = dataclasses.replace(case, site=with_submit(case.site, url=f"http://127.0.0.1:{port}"))
        job = make_job(case, "report")
        with pytest.raises(BackendUnclear, match="connection to slurmrestd broke"):
            lossy.backend().submit(job)
    backend = case.backend()
    wait_until(case, "it is found", lambda: backend.find(job.name).handle is not None)
    attempt = attempt_of(case, job, backend.find(job.name).handle)
    assert wait_seen(case, backend, attempt, Seen.ENDED).ending is Ending.REPORTED
    assert executions(case, job) == 1
    assert backend.submit(job) == attempt.handle, "it is there already"


def test_a_controller_that_hangs_or_is_away_leaves_it_open(case: SlurmCase) -> None:
    job, token = make_job(case, "report"), case.folder / "token"
    token.write_text(subprocess.run(["scontrol", "token"], capture_output=True, text=True, check=True).stdout)
    case.site = with_submit(case.site, token_command="", token_file=str(token))
    control.daemon("stop", "slurmctld")
    try:
        with pytest.raises(BackendUnclear, match="Unable to contact slurm controller"):
            case.backend().submit(job)
        assert case.backend().find(job.name).seen is Seen.UNKNOWN
    finally:
        control.daemon("start", "slurmctld")
        control.settle()
    backend = case.backend()
    assert backend.find(job.name).seen is Seen.ABSENT
    attempt = attempt_of(case, job, backend.submit(job))
    assert wait_seen(case, backend, attempt, Seen.ENDED).ending is Ending.REPORTED
    assert executions(case, job) == 1


# httpcore leaves a unix socket that it couldn't connect to the garbage collector
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_each_refusal_has_its_sentence_and_nothing_was_sent(case: SlurmCase, tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-days", "2"),
            *("-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    short = tmp_path / "short"
    short.write_text(
        subprocess.run(["scontrol", "token", "lifespan=1"], capture_output=True, text=True, check=True).stdout
    )
    forged = tmp_path / "forged"
    forged.write_text("eyJhbGciOiJIUzI1NiJ9.eyJzdW4iOiJrYiJ9.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA")
    until = time.time() + 3
    wait_until(case, "that token is over", lambda: time.time() > until)
    job = make_job(case, "report")
    with between(answer=True, context=tls) as port:
        secure = f"https://127.0.0.1:{port}"
        for changed, said in (
            ({"url": "http://127.0.0.1:1"}, "can't be reached: Connection refused"),
            ({"url": "unix:/run/nobody.sock"}, "can't be reached: No such file"),
            ({"url": "https://nowhere.invalid:6820"}, "can't be reached: "),
            ({"url": "http://nowhere.invalid:6820"}, "in clear text"),
            ({"url": secure}, "its certificate isn't valid here"),
            ({"api": "v0.0.99"}, "doesn't know its API's version v0.0.99"),
            ({"token_command": "", "token_file": str(short)}, f"token from {short} expired at "),
            ({"token_command": "", "token_file": str(forged)}, "refused the token from"),
            ({"token_command": "", "token_file": "/nonexistent"}, "can't be read from /nonexistent: No such file"),
            ({"token_command": "false"}, "token_command (false …) ended with status 1"),
        ):
            elsewhere = dataclasses.replace(case, site=with_submit(case.site, **changed)).backend()
            with pytest.raises(BackendRefused) as refused:
                elsewhere.submit(job)
            assert said in refused.value.message, (said, refused.value.message)
            assert (refused.value.away, refused.value.permanent) == (True, False)
            assert elsewhere.find(job.name).seen is Seen.UNKNOWN
            assert said in elsewhere.lapse()
        assert case.backend().find(job.name).seen is Seen.ABSENT
        trusted = with_submit(case.site, url=secure, ca_file=str(certificate), api=OLDER)
        backend = dataclasses.replace(case, site=trusted).backend()
        attempt = attempt_of(case, job, backend.submit(job))
        assert wait_seen(case, backend, attempt, Seen.ENDED).ending is Ending.REPORTED
        assert isinstance(backend.commands, RestCommands)
        assert backend.commands.connection.version == OLDER


def test_a_limit_on_jobs_and_a_wrong_request_are_refused_as_by_sbatch(case: SlurmCase) -> None:
    job = make_job(case, "report")
    assert job.script is not None
    where = ["user", "where", "name=kb", "account=contest", "set"]
    control.as_root("sacctmgr", "-i", "modify", *where, "MaxSubmitJobs=0")
    try:
        with pytest.raises(BackendRefused, match="the limit on our jobs there is reached") as refused:
            case.backend().submit(job)
        assert refused.value.together
        assert not refused.value.permanent
    finally:
        control.as_root("sacctmgr", "-i", "modify", *where, "MaxSubmitJobs=-1")
    for old, new, said in (
        ("--partition=gpu-h100", "--partition=no-such", "Invalid partition"),
        ("--gres=gpu:h100:1", "--gpu_cmode=shared", "no field for --gpu_cmode"),
    ):
        with pytest.raises(BackendRefused, match=said) as refused:
            case.backend().submit(dataclasses.replace(job, script=job.script.replace(old, new)))
        assert refused.value.permanent


def test_a_token_is_renewed_before_it_ends_and_every_request_is_counted(case: SlurmCase) -> None:
    case.site = with_submit(case.site, token_command="scontrol token lifespan=4")
    backend = case.backend()
    assert isinstance(backend.commands, RestCommands)
    first = backend.commands.tokens.current()
    until = time.time() + 5
    wait_until(case, "it is over", lambda: time.time() > until)
    job = make_job(case, "report")
    attempt = attempt_of(case, job, backend.submit(job))
    assert wait_seen(case, backend, attempt, Seen.ENDED).ending is Ending.REPORTED
    assert backend.commands.tokens.current().text != first.text
    assert first.text not in repr(first)
    assert backend.pace_report().calls >= sum(backend.calls().values()) > 3
    assert backend.commands.connection.version == NEWEST


def test_a_token_that_may_act_for_others_submits_as_the_user_that_the_site_names(case: SlurmCase) -> None:
    token = case.folder / "proxy"
    for whose in ((), ("username=slurm",)):
        token.write_text(control.as_root("scontrol", "token", "lifespan=600", *whose))
        acting = with_submit(case.site, token_command="", token_file=str(token), user="kb")
        backend = dataclasses.replace(case, site=acting).backend()
        job = make_job(case, "report")
        attempt = attempt_of(case, job, backend.submit(job))
        assert wait_seen(case, backend, attempt, Seen.ENDED).ending is Ending.REPORTED
        owner = ["squeue", "-h", "-t", "all", "-j", str(attempt.handle), "-o", "%u"]
        assert subprocess.run(owner, capture_output=True, text=True, check=True).stdout.strip() == "kb"
        running = make_job(case, "sleep")
        sleeper = attempt_of(case, running, backend.submit(running))
        wait_counted(case, running)
        assert wait_seen(case, backend, sleeper, Seen.RUNNING).node
        backend.cancel(sleeper)
        assert wait_seen(case, backend, sleeper, Seen.ENDED).ending is Ending.CANCELLED
        found = rest_way.token_finding(checkup_of(case, acting), RestCommands(acting))
        assert ", acting for kb, from" in found.text, found
    # An ordinary token acts for nobody else, and nothing is submitted
    case.site = with_submit(case.site, user="other")
    job = make_job(case, "report")
    with pytest.raises(BackendRefused) as refused:
        case.backend().submit(job)
    assert refused.value.away, refused.value.message


def test_a_controller_that_makes_no_token_is_named(case: SlurmCase) -> None:
    case.site = with_submit(case.site, token_command="scontrol token lifespan=3600")
    job = make_job(case, "report")
    control.daemon("stop", "slurmctld")
    try:
        with pytest.raises(BackendRefused) as refused:
            case.backend().submit(job)
    finally:
        control.daemon("start", "slurmctld")
        control.settle()
    assert "the cluster's controller, which makes the tokens, doesn't answer" in refused.value.message
    assert (refused.value.away, refused.value.permanent) == (True, False)
    backend = case.backend()
    attempt = attempt_of(case, job, backend.submit(job))
    assert wait_seen(case, backend, attempt, Seen.ENDED).ending is Ending.REPORTED


def checkup_of(case: SlurmCase, site: Site) -> Checkup:
    return Checkup(
        site=site,
        commands=commands_of(site),
        templates=shared_folders.path("sbatch_templates"),
        eval_dir=case.eval_dir,
    )


def test_the_doctor_names_the_way_the_version_and_the_token(case: SlurmCase) -> None:
    checkup = checkup_of(case, case.site)
    found = {one.name: one for one in login_node.login_findings(checkup)}
    assert "FAIL" not in {one.grade for one in found.values()}, found
    assert NEWEST in found["slurmrestd"].text
    assert (found["accounting"].grade, found["accounting"].text) == ("PASS", "accounting_storage/slurmdbd")
    assert REST_SOCKET in found["slurmrestd"].text
    assert "kb" in found["token"].text
    away = with_submit(case.site, url="http://127.0.0.1:1")
    found = {
        one.name: one
        for one in login_node.login_findings(dataclasses.replace(checkup, site=away, commands=commands_of(away)))
    }
    assert (found["slurmrestd"].grade, "Connection refused" in found["slurmrestd"].text) == ("FAIL", True)


def kbslurm(*words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "kbslurm", *words]
    return subprocess.run(argv, capture_output=True, text=True, timeout=400, check=False)


def test_a_site_is_described_checked_and_probed_through_it(case: SlurmCase) -> None:
    file = case.folder / "sites" / "first.toml"
    way = ("--rest", f"unix:{REST_SOCKET}", "--token-command", "scontrol token lifespan=3600")
    where = ("--out", str(file), "--shared-root", str(case.folder / "root"), "--image-dir", "/opt/kb/images")
    done = kbslurm("site", "init", *way, *where, "--image", "cpu", "--gpu", "A100", "--count", "1")
    assert done.returncode == 0, done.stderr
    assert "accounting = true" in file.read_text()
    checked = kbslurm("site", "check", str(file))
    assert (checked.returncode, "slurmrestd at" in checked.stdout) == (0, True), checked.stderr
    file.write_text(file.read_text().replace("[gpus.A100]", '[gpus.A100]\noptions = ["--gpu_cmode=shared"]'))
    refused = kbslurm("site", "check", str(file))
    assert (refused.returncode, "no field for --gpu_cmode" in refused.stderr) == (2, True), refused.stderr
    file.write_text(file.read_text().replace('options = ["--gpu_cmode=shared"]', ""))
    probed = kbslurm("doctor", "--site", str(file), "--live", "--json")
    found = {one["name"]: one for one in json.loads(probed.stdout)["findings"]}
    # the GPUs here are fake: a file that says nvidia is told so, and nothing else is wrong
    assert {one["name"] for one in found.values() if one["grade"] == "FAIL"} == {"GPU", "GPU in the container"}, found
    assert "container" in found, "a job ran"
    away = kbslurm("site", "init", "--rest", "http://127.0.0.1:1", *way[2:])
    assert (away.returncode, "Connection refused" in away.stderr) == (6, True), away.stderr
