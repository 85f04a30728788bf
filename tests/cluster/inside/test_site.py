"""The site's other ways: through ssh, its fleet, every shipped template before a real sbatch, and what a job leaves."""

from __future__ import annotations

import dataclasses
import os
import re
import signal
import subprocess
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from kbslurm.backends.slurm.commands import Commands
from kbslurm.backends.slurm.fleet import TextFleet
from kbslurm.config import shared_folders, sites
from kbslurm.domain.run import Ending, Handle, JobName, Seen, new_job_name
from kbslurm.domain.site import Submission
from kbslurm.errors import BackendRefused, BackendTrouble
from kbslurm.flow.script import SUPERVISOR, harness_folder, script_for
from tests.cluster.inside import control
from tests.cluster.inside.site import SlurmCase, site_at
from tests.contract.backend_suite import (
    REPOSITORY,
    attempt_of,
    executions,
    make_eval,
    make_job,
    wait_counted,
    wait_seen,
    wait_until,
)

HOME = Path("/home/kb")


@pytest.fixture
def case(request: pytest.FixtureRequest) -> SlurmCase:
    folder = Path("/shared/site") / request.node.name.replace("[", "-").rstrip("]")
    (folder / "traces").mkdir(parents=True)
    return SlurmCase(
        folder=folder / "traces",
        eval_dir=make_eval(folder / "eval"),
        site=site_at(folder / "root", runtime="none"),
    )


def test_a_site_behind_ssh_takes_keys_only_and_keeps_one_connection(case: SlurmCase) -> None:
    socket = Path("/tmp") / f"kb-ssh-{os.getpid()}"
    far = Submission(
        via="ssh",
        host="localhost",
        user="kb",
        identity=str(HOME / ".ssh" / "id_ed25519"),
        known_hosts=str(HOME / ".ssh" / "known_hosts"),
        control_path=str(socket),
    )
    case.site = dataclasses.replace(case.site, submit=far)
    try:
        backend = case.backend()
        job = make_job(case, "report")
        attempt = attempt_of(case, job, backend.submit(job))
        assert wait_seen(case, backend, attempt, Seen.ENDED).ending is Ending.REPORTED
        assert backend.collect(attempt) is not None
        assert socket.is_socket(), "no connection is kept"
        assert backend.foresee(job.script or "") is not None, "a script goes through ssh, too"
        sleeper = make_job(case, "sleep")
        running = attempt_of(case, sleeper, backend.submit(sleeper))
        wait_counted(case, sleeper)
        assert wait_seen(case, backend, running, Seen.RUNNING).node
        backend.cancel(running)
        assert wait_seen(case, backend, running, Seen.ENDED).ending is Ending.CANCELLED
    finally:
        subprocess.run(
            ["ssh", "-o", f"ControlPath={socket}", "-O", "exit", "localhost"], stderr=subprocess.DEVNULL, check=False
        )
    keyless = dataclasses.replace(far, identity="/nonexistent", control_path="", options=("IdentityAgent=none",))
    locked_out = dataclasses.replace(case.site, submit=keyless)
    answer = Commands(locked_out, environ={"PATH": os.environ["PATH"], "HOME": "/nonexistent"}).run("squeue", ["--me"])
    assert answer.status != 0
    assert "Permission denied" in answer.err or "nonexistent" in answer.err


def test_a_connection_that_is_opened_by_hand_is_used_and_its_end_is_told(case: SlurmCase) -> None:
    """Here a key opens it; how somebody proves who they are is between them and the host."""
    socket = Path("/tmp") / f"kb-hand-{os.getpid()}"
    far = Submission(
        via="ssh",
        host="localhost",
        user="kb",
        identity=str(HOME / ".ssh" / "id_ed25519"),
        control_path=str(socket),
        by_hand=True,
    )
    case.site = dataclasses.replace(case.site, submit=far)
    backend = case.backend()
    job = make_job(case, "report")
    with pytest.raises(BackendRefused, match="has lapsed; a host has to see to it") as refused:
        backend.submit(job)
    assert refused.value.away and not refused.value.permanent
    typed = backend.lapse().partition("has lapsed; log in again with: ")[2]
    assert typed.startswith("ssh -fNM"), backend.lapse()
    subprocess.run(["sh", "-c", f"{typed} -o BatchMode=yes"], check=True, stderr=subprocess.DEVNULL)
    backend = case.backend()
    attempt = attempt_of(case, job, backend.submit(job))
    assert wait_seen(case, backend, attempt, Seen.ENDED).ending is Ending.REPORTED
    assert backend.lapse() == ""
    end = ["ssh", "-o", f"ControlPath={socket}", "-O", "exit", "localhost"]
    subprocess.run(end, stderr=subprocess.DEVNULL, check=True)
    assert backend.find(new_job_name()).seen is Seen.UNKNOWN
    assert "has lapsed" in backend.lapse()


def test_the_fleet_is_read_with_gpus_in_use_reservations_and_what_is_out_of_service(case: SlurmCase) -> None:
    reader = TextFleet(commands=Commands(case.site))
    assert re.fullmatch(r"\d+\.\d+\.\d+", reader.version())
    job = make_job(case, "sleep")
    backend = case.backend()
    attempt = attempt_of(case, job, backend.submit(job))
    wait_counted(case, job)
    reserve = "scontrol create reservation ReservationName=contest users=kb nodes=a1 starttime=now+1hour duration=60"
    control.as_root("sh", "-c", reserve)
    control.as_root("scontrol", "update", "nodename=m1", "state=drain", "reason=fan")
    try:
        fleet = reader.read()
        nodes = {node.name: node for node in fleet.nodes}
        assert set(nodes) == {"h1", "h2", "a1", "a2", "m1"}
        assert nodes["h1"].gpus == {"h100": 3}
        assert "gpu-h100" in nodes["h1"].partitions
        assert fleet.gpus("h100") == (1, 6)
        assert fleet.gpus("a100") == (0, 6)
        assert fleet.gpus("1g.10gb") == (0, 0), "a drained node's GPUs aren't to be had"
        assert (nodes["m1"].usable, nodes["m1"].reason) == (False, "fan")
        assert [(one.name, one.nodes) for one in fleet.reservations] == [("contest", "a1")]
    finally:
        control.as_root("scontrol", "delete", "ReservationName=contest")
        control.resume("m1")
        backend.cancel(attempt)
        wait_seen(case, backend, attempt, Seen.ENDED)


# Options that a centre's own plugins (SPANK) add to sbatch: no other Slurm knows them.
OF_PLUGINS = {"sherlock": {"#SBATCH --gpu_cmode=shared"}}


@pytest.mark.parametrize("name", ["alliance", "bouchet", "bunya", "della", "engaging", "example", "sherlock"])
def test_a_real_sbatch_reads_every_line_of_a_shipped_template(name: str, tmp_path: Path) -> None:
    """`sbatch --test-only` on another cluster: it may refuse what that site has, never how it is said."""
    site = sites.load(shared_folders.path("site-configs") / f"{name}.toml")
    for gpu in site.gpus:
        file = tmp_path / f"{gpu}.sh"
        script = script_for(
            site,
            name=JobName("kb-test"),
            gpu=gpu,
            directory=tmp_path,
            harness=tmp_path,
            supervisor="0" * 64,
            time_limit_s=100,
            memory_bytes=1 << 30,
            templates=shared_folders.path("sbatch_templates"),
        )
        lines = script.splitlines(keepends=True)
        kept = [line for line in lines if line.strip() not in OF_PLUGINS.get(name, ())]
        assert len(lines) - len(kept) == len(OF_PLUGINS.get(name, ()))
        file.write_text("".join(kept))
        done = subprocess.run(["sbatch", "--test-only", str(file)], capture_output=True, text=True, check=False)
        said = done.stderr
        assert not re.search(
            r"unrecognized|Invalid .*argument|requires an argument|ambiguous|usage", said, re.IGNORECASE
        ), said
        assert re.search(r"to start at|partition|account|gres|feature|qos|node configuration", said, re.IGNORECASE), (
            said
        )


def test_slurm_tells_when_it_would_start_what_it_is_not_sent(case: SlurmCase) -> None:
    """A trial of the very script that a launch sends: at once while there is room, later while all GPUs are taken."""
    backend, job = case.backend(), make_job(case, "report")
    assert job.script is not None
    began = datetime.now(UTC)
    at = backend.foresee(job.script)
    assert at is not None
    assert began - timedelta(minutes=5) < at < began + timedelta(minutes=30), "all GPUs are free"
    wide = ["sbatch", "--parsable", "-p", "gpu-h100", "--gres=gpu:3", "--mem=100M", "-t", "120", "-o", "/dev/null"]
    taken = [
        subprocess.run([*wide, "-w", node, "--wrap", "sleep 600"], capture_output=True, text=True, check=True)
        for node in ("h1", "h2")
    ]
    ids = [done.stdout.strip() for done in taken]

    def ours(*states: str) -> set[str]:
        asked = ["squeue", "--me", "-h", "-o", "%A", *states]
        return set(subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split())

    try:
        wait_until(case, "no GPU is left", lambda: ours("-t", "R") >= set(ids))
        late = backend.foresee(job.script)
        assert late is not None
        assert late > began + timedelta(minutes=60), "these jobs may take two hours"
        for option, wrong in (("--partition=gpu-h100", "--partition=no-such"), ("gpu:h100:1", "gpu:h100:9")):
            assert option in job.script
            assert backend.foresee(job.script.replace(option, wrong)) is None
        assert ours() == set(ids), "nothing was submitted"
    finally:
        subprocess.run(["scancel", *ids], check=False)
        control.settle()
    assert backend.calls() == {"sbatch": 4}
    assert not case.paths(job.name).dir.exists()


def test_what_a_killed_job_left_in_shared_memory_goes_with_the_next(case: SlurmCase) -> None:
    job = make_job(case, "sleep")
    backend = case.backend()
    handle = backend.submit(job)
    wait_counted(case, job)
    before = set(Path("/dev/shm").glob("kb-*"))
    assert before
    for folder in before:
        os.kill(int((folder / "script").read_text()), signal.SIGKILL)
    wait_seen(case, backend, attempt_of(case, job, handle), Seen.ENDED)
    following = make_job(case, "report")
    wait_seen(case, backend, attempt_of(case, following, backend.submit(following)), Seen.ENDED)
    assert not before & set(Path("/dev/shm").glob("kb-*"))


@pytest.mark.parametrize("killed", [False, True], ids=["told", "killed"])
def test_a_job_that_an_admin_requeues_never_runs_its_attempt_again(case: SlurmCase, killed: bool) -> None:
    # Given a job in its middle; when killed, its script leaves no last word
    job = make_job(case, "sleep")
    backend = case.backend()
    handle = backend.submit(job)
    wait_counted(case, job)
    attempt, folder = attempt_of(case, job, handle), case.paths(job.name).dir
    if killed:
        folder.chmod(0o500)
    # When an administrator requeues it, against our --no-requeue
    control.as_root("sh", "-c", f"scontrol update jobid={handle} requeue=1 && scontrol requeue {handle}")
    if killed:
        wait_until(case, "it waits again", lambda: "PENDING" in control.as_root("squeue", "-h", "-j", handle, "-o%T"))
        assert not (folder / "exit.json").exists()
        folder.chmod(0o700)

        # Not at once: a node takes no order for a job that was signed in the second in which it was told to end it.
        nudged_at = time.monotonic() - 5

        def back() -> bool:
            # Not only once: Slurm puts it off by two minutes when it has cleared the first start away, after it waits.
            # Not all the time: a job that was just changed is looked at in the scheduler's next round.
            nonlocal nudged_at
            if time.monotonic() - nudged_at > 10:
                nudged_at = time.monotonic()
                control.as_root("sh", "-c", f"scontrol update jobid={handle} StartTime=now || true")
            return (folder / f"restart-{handle}").exists()

        wait_until(dataclasses.replace(case, wait_s=2 * case.wait_s), "it has come back", back)
    # Then the attempt ends, the reason is true, and nothing of it has run twice
    ended = wait_seen(case, backend, attempt, Seen.ENDED)
    assert (ended.ending, "requeued" in ended.reason) == (Ending.CANCELLED, True), ended
    assert executions(case, job) == 1
    wait_until(case, "it's gone", lambda: control.as_root("squeue", "-h", "-t", "PD,R", "-j", handle) == "")
    assert executions(case, job) == 1


@pytest.mark.parametrize("fate", ["changed", "pruned"])
def test_a_job_whose_supervisor_is_tampered_with_while_it_waits_never_runs(case: SlurmCase, fate: str) -> None:
    # Given a job that waits
    job = make_job(case, "report")
    case.submit_unstarted(job)
    harness = Path(harness_folder(case.site, case.eval_dir))
    # When its supervisor isn't any more what it was
    harness.chmod(0o700)
    if fate == "changed":
        (harness / SUPERVISOR).chmod(0o600)
        with (harness / SUPERVISOR).open("a") as file:
            file.write("# a comment\n")
    else:
        (harness / SUPERVISOR).unlink()
    case.let_start(job)
    # Then it ends as its node's fault, in one sentence, and nothing has run
    attempt = attempt_of(case, job, Handle(case.held[job.name]))
    ended = wait_seen(case, case.backend(), attempt, Seen.ENDED)
    assert ended.ending is Ending.BOOT_FAILURE, ended
    why = "was changed after this job was sent" if fate == "changed" else "is gone"
    assert f"{harness.name}/{SUPERVISOR} {why} on " in ended.reason
    assert executions(case, job) == 0


def test_a_command_that_isnt_there_is_said_plainly(case: SlurmCase) -> None:
    nowhere = dataclasses.replace(case.site, slurm=dataclasses.replace(case.site.slurm, bin_dir="/nowhere"))
    with pytest.raises(BackendTrouble, match="wasn't found"):
        TextFleet(commands=Commands(nowhere)).read()


def test_the_unit_that_the_documents_give_is_one_that_systemd_takes(tmp_path: Path) -> None:
    found = re.search(r"```ini\n(\[Unit\]\n.*?)```", (REPOSITORY / "docs" / "operate.md").read_text(), re.DOTALL)
    assert found is not None
    program = tmp_path / "kbslurm" / ".venv" / "bin" / "kbslurm"
    program.parent.mkdir(parents=True)
    program.touch(mode=0o755)
    verify = ["systemd-analyze", "--user", "verify", str(tmp_path / "kbslurm.service")]
    for text, status in ((found[1], 0), (found[1].replace("/bin/kbslurm ", "/bin/nothing "), 1)):
        (tmp_path / "kbslurm.service").write_text(text.replace("%h", str(tmp_path)))
        environ = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
        done = subprocess.run(verify, env=environ, capture_output=True, text=True, check=False)
        assert done.returncode == status, done.stderr
        assert status or not done.stderr, done.stderr
