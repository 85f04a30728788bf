"""Slurm's faults at the default pace: the clock is hurried, never the configuration.

Between two looks at the controller the daemon goes by files and memory; what it concludes then must not undo what the
controller said. Tests that look ten times a second never have such a moment.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbslurm.backends.paths import AttemptPaths
from kbslurm.backends.slurm.backend import SlurmBackend
from kbslurm.backends.slurm.commands import Commands
from kbslurm.backends.slurm.ssh_login import INSTEAD_OF_CONNECTING, NOT_OPEN
from kbslurm.config import shared_folders, sites
from kbslurm.errors import BackendTrouble
from kbslurm.flow.cancel import cancel
from kbslurm.flow.collect import AttemptNotes, collect
from kbslurm.flow.launch import Launched, launch
from kbslurm.flow.place import Place
from kbslurm.flow.script import script_writer
from kbslurm.ports import TellsLapse
from kbslurm.wiring import slurm_place
from tests.contract.test_slurm_standins import UNHEARD_OF, Rig
from tests.flow.stage import HandClock, Stage

# Nothing is said about the pace: these are the defaults that an admin starts with.
SITE = """\
name = "usual"
untrusted = false
ranked_min_isolation = 0
[paths]
shared_root = "{root}"
[container]
runtime = "none"
[slurm]
bin_dir = "{bin_dir}"
accounting = {accounting}
[gpus.A100]
request = "--gres=gpu:1"
"""


class Cluster:
    """A site of stand-in commands at the default pace, and a stage whose clock it shares."""

    def __init__(self, stage: Stage, folder: Path, *, accounting: bool, more: str = "") -> None:
        self.stage, self.rig = stage, Rig(folder)
        file = folder / "usual.toml"
        told = {"root": folder / "root", "bin_dir": self.rig.bin_dir, "accounting": str(accounting).lower()}
        file.write_text(SITE.format(**told) + more)
        self.site = sites.load(file)
        self.place, self.notes = self.fresh(), AttemptNotes()

    @property
    def clock(self) -> HandClock:
        assert isinstance(self.stage.clock, HandClock)
        return self.stage.clock

    def fresh(self) -> Place:
        """The place as a new process sees it."""
        usual = slurm_place(self.site)
        backend = SlurmBackend(
            self.site,
            eval_dir=shared_folders.eval_dir(),
            environ=self.rig.environ,
            monotonic=lambda: self.clock.now().timestamp(),
        )
        script = script_writer(
            self.site, templates=shared_folders.path("sbatch_templates"), eval_dir=shared_folders.eval_dir()
        )
        return Place(
            backend=backend, root=backend.root, script=script, untrusted=False,
            poll_s=usual.poll_s, grace_s=usual.grace_s, sweep_gap_s=usual.sweep_gap_s, needs_mb=usual.needs_mb,
        )  # fmt: skip

    def started(self) -> None:
        """A run whose job took its claim on a node and is shown running."""
        self.rig.says("sbatch", "echo 7")
        self.stage.person("ada", staff=True)
        self.stage.submit()
        attempt = self.stage.claim(self.place)
        assert launch(self.stage.store.attempts, self.place, attempt, self.clock.now()) is Launched.SUBMITTED, (
            self.stage.rows("SELECT reason FROM attempt")
        )
        paths = AttemptPaths(root=self.place.root or Path(), name=attempt.name)
        paths.claim.mkdir()
        paths.owner.write_text(json.dumps({"job": "7", "node": "n1"}))
        self.rig.says("squeue", f"echo '7|{attempt.name}|RUNNING|1|2|n1|None'")
        self.go(1)
        assert self.stage.run()["state"] == "running"

    def go(self, seconds: int) -> None:
        """Let the clock go, with the daemon's looks as often as it takes them."""
        looks = round(seconds / self.place.poll_s)
        for _ in range(looks):
            self.clock.go(self.place.poll_s)
            collect(self.stage.store, self.place, self.stage.store.attempts.open(), self.notes, self.clock.now())


# What our ssh says if nobody has logged in (the file), what a host says that wants a second factor, or what is sent.
SSH = """\
for word; do last=$word; done
echo "$last" >>"{folder}/ssh.calls"
[ ! -e "{folder}/wants" ] || {{ echo 'kb@login: Permission denied (publickey,keyboard-interactive).' >&2; exit 255; }}
[ -e "{folder}/open" ] || {{ echo 'kbslurm: no connection is open' >&2; exit 255; }}
exec sh -c "$last"
"""


@pytest.fixture(params=[False, True], ids=["without accounting", "with accounting"])
def cluster(database_url: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    stage = Stage.build(database_url)
    yield Cluster(stage, tmp_path, accounting=request.param)
    stage.close()


def test_a_job_that_every_source_has_forgotten_is_given_up(cluster: Cluster) -> None:
    """Its whole process tree was killed, its claim stays, and MinJobAge was short: nothing knows of it any more."""
    cluster.started()
    cluster.rig.says("squeue", "")
    cluster.go(180)
    assert [row["state"] for row in cluster.stage.rows("SELECT state FROM attempt")] == ["dead"]
    assert cluster.stage.run()["state"] == "queued"


def revoked(cluster: Cluster, *, started: bool) -> AttemptPaths:
    """Slurm once said that another cluster of the federation took the run's job, and then forgot it."""
    cluster.started()
    (attempt,) = cluster.stage.store.attempts.open()
    paths = AttemptPaths(root=cluster.place.root or Path(), name=attempt.name)
    if not started:
        paths.owner.unlink()
        paths.claim.rmdir()
    cluster.rig.says("squeue", f"echo '7|{attempt.name}|REVOKED|1|2||None'")
    cluster.go(30)
    cluster.rig.says("squeue", "")
    cluster.place, cluster.notes = cluster.fresh(), AttemptNotes()  # another process knows it, too
    cluster.go(300)
    return paths


@pytest.mark.parametrize("started", [False, True])
def test_a_job_that_another_cluster_took_isnt_missing_when_its_copy_is_forgotten(
    cluster: Cluster, started: bool
) -> None:
    paths = revoked(cluster, started=started)
    assert [row["state"] for row in cluster.stage.rows("SELECT state FROM attempt")] == ["running"]
    assert cluster.rig.calls("scontrol") == [], "this cluster's controller can't know"
    # Its own files tell its end, though none of them says why a signal came
    paths.claim.mkdir(exist_ok=True)
    paths.owner.write_text(json.dumps({"job": "7", "node": "far1"}))
    told = {"cause": "term", "status": 143, "began": True, "why": "", "job": "7", "node": "far1"}
    (paths.dir / "exit.json").write_text(json.dumps(told))
    cluster.go(120)
    (closed,) = cluster.stage.rows("SELECT ending, reason FROM attempt")
    assert closed == {"ending": "no_report", "reason": "it was killed from outside on far1"}


def test_a_cancelled_job_that_another_cluster_took_ends_when_it_cant_start_any_more(cluster: Cluster) -> None:
    revoked(cluster, started=False)
    submission = cluster.stage.run()["submission_id"]
    cancel(cluster.stage.store.submissions, submission, None, cluster.clock.now())
    (attempt,) = cluster.stage.store.attempts.open()
    cluster.rig.says("scancel", "")
    cluster.place.backend.cancel(attempt)
    cluster.go(180)
    assert cluster.stage.run()["state"] == "cancelled"


def test_a_job_that_a_new_leader_never_saw_is_given_up(cluster: Cluster) -> None:
    cluster.started()
    cluster.rig.says("squeue", "")
    for _ in range(6):  # each leader dies before it has looked twice
        cluster.place, cluster.notes = cluster.fresh(), AttemptNotes()
        cluster.go(20)
    cluster.go(60)
    assert cluster.stage.run()["state"] == "queued"


def test_a_controller_that_denies_a_job_and_then_falls_silent_brings_it_back_to_nobody(cluster: Cluster) -> None:
    cluster.started()
    cluster.rig.says("squeue", "")
    cluster.go(20)
    cluster.rig.says("squeue", "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1")
    cluster.go(60)
    assert cluster.stage.run()["state"] == "running", "silence is no second denial"
    cluster.rig.says("squeue", "")
    cluster.go(180)
    assert cluster.stage.run()["state"] == "queued"


def test_a_job_that_is_shown_again_is_running(cluster: Cluster) -> None:
    """A list that was empty by mistake, twice: whoever is shown is alive, whatever was said before."""
    cluster.started()
    (name,) = (attempt.name for attempt in cluster.stage.store.attempts.open())
    cluster.rig.says("squeue", "")
    cluster.rig.says("scontrol", f"echo 'JobId=7 JobName={name} UserId=kb(1) JobState=RUNNING NodeList=n1'")
    cluster.go(120)
    assert cluster.stage.run()["state"] == "running"
    cluster.rig.says("scontrol", UNHEARD_OF)
    cluster.go(20)
    cluster.rig.says("squeue", f"echo '7|{name}|RUNNING|1|2|n1|None'")
    cluster.go(180)
    assert cluster.stage.run()["state"] == "running"
    assert cluster.stage.attempt().clean_sweeps == 0


def test_a_job_that_was_killed_is_given_up_though_no_process_ever_looks_twice(cluster: Cluster) -> None:
    """Run by a timer, each tick is a process of its own: when it was first seen ended must outlive it."""
    cluster.started()
    (attempt,) = cluster.stage.store.attempts.open()
    cluster.rig.says("squeue", f"echo '7|{attempt.name}|CANCELLED|1|2|n1|None'")
    looks = 0
    while cluster.stage.run()["state"] == "running" and looks < 5:
        cluster.place, cluster.notes, looks = cluster.fresh(), AttemptNotes(), looks + 1
        cluster.clock.go(60 - cluster.place.poll_s)
        cluster.go(1)
    assert cluster.stage.run()["state"] == "queued"
    assert looks == 2, "its report may only be late, so it has the grace period"


FAR = """
[submit]
via = "ssh"
host = "login"
user = "kb"
control_path = "/run/kb-%C"
by_hand = true
"""
TYPE = "ssh -fNM -o ServerAliveInterval=30 -o ServerAliveCountMax=4 -o ControlPath=/run/kb-%C -l kb login"


@pytest.fixture
def far(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """A site behind a login that somebody keeps by hand: it is open while there is a file `open`."""
    stage = Stage.build(database_url)
    cluster = Cluster(stage, tmp_path, accounting=False, more=FAR)
    cluster.rig.says("ssh", SSH.format(folder=tmp_path))
    path = f"{cluster.rig.bin_dir}:/usr/bin:/bin"
    monkeypatch.setenv("PATH", path)  # submitit starts sbatch's ssh in our own environment
    cluster.rig.environ["PATH"] = path
    cluster.place = cluster.fresh()
    (tmp_path / "open").touch()
    yield cluster
    stage.close()


def test_a_login_that_lapses_is_told_with_what_to_type_and_nothing_is_lost(far: Cluster) -> None:
    far.started()
    (far.rig.folder / "open").unlink()
    trouble = []
    far.go(14)  # it goes by files until the next look is due
    for _ in range(30):
        far.clock.go(10)
        try:
            far.go(1)
        except BackendTrouble as error:
            trouble.append(error.message)
    assert len(trouble) == 30, "each look says so, whether it asks or not"
    assert set(trouble) == {f"usual: the login to login has lapsed; log in again with: {TYPE}"}
    assert isinstance(far.place.backend, TellsLapse) and TYPE in far.place.backend.lapse()
    assert [run["state"] for run in far.stage.runs()] == ["running"], "five minutes of silence are no evidence"

    before = len(far.rig.calls("sbatch"))
    far.stage.submit()
    waits = far.stage.claim(far.place)
    for _ in range(3):
        far.clock.go(300)
        assert launch(far.stage.store.attempts, far.place, waits, far.clock.now()) is Launched.AWAY
    assert far.stage.rows("SELECT state FROM attempt WHERE id = %s", waits.id) == [{"state": "intent"}]
    assert len(far.rig.calls("sbatch")) == before
    (said,) = [one.reason for one in far.stage.store.overview.waits() if "lapsed" in one.reason]
    assert "the login to login has lapsed; a host has to see to it" in said, "not the command that only a host can type"

    (far.rig.folder / "open").touch()
    far.clock.go(300)
    assert launch(far.stage.store.attempts, far.place, waits, far.clock.now()) is Launched.SUBMITTED
    far.go(60)
    assert far.place.backend.lapse() == ""
    assert [run["attempts"] for run in far.stage.runs()] == [1, 1]


def test_a_host_that_wants_a_second_factor_has_started_nothing_and_a_broken_connection_may_have(far: Cluster) -> None:
    far.stage.person("ada", staff=True)
    far.stage.submit()
    attempt = far.stage.claim(far.place)
    (far.rig.folder / "wants").touch()
    assert launch(far.stage.store.attempts, far.place, attempt, far.clock.now()) is Launched.AWAY
    assert "keyboard-interactive" in far.place.backend.lapse()  # type: ignore[attr-defined]
    far.rig.says("ssh", "echo 'client_loop: send disconnect: Broken pipe' >&2; exit 255")
    far.clock.go(600)
    assert launch(far.stage.store.attempts, far.place, attempt, far.clock.now()) is Launched.AMBIGUOUS


def test_a_login_kept_by_hand_is_never_tried_by_us(far: Cluster) -> None:
    argv = Commands(far.site).argv("squeue", ["--me"], timeout_s=30)
    assert argv[argv.index("ControlMaster=no") + 2] == "ControlPath=/run/kb-%C"
    assert any(word.startswith("ProxyCommand=sh -c") for word in argv)
    found = subprocess.run(
        ["/usr/bin/env", "-i", "sh", "-c", INSTEAD_OF_CONNECTING], capture_output=True, text=True, check=False
    )
    assert found.stderr.strip() == NOT_OPEN
