"""A run that waits says what for and what happens next, at the default pace: a limit, a full disk, a controller that
doesn't answer. The clock is hurried, never the configuration."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from kbslurm.backends.paths import AttemptPaths
from kbslurm.daemon.lane import Lane
from kbslurm.daemon.wake import Wake
from kbslurm.domain import why
from kbslurm.domain.waterfall import waterfall
from kbslurm.observe.metrics import Metrics
from kbslurm.store.quarantine import INFRASTRUCTURE
from tests.flow.puppet import sealed_report
from tests.flow.stage import Stage
from tests.flow.test_slurm_pace import Cluster

LIMIT = (
    "echo 'sbatch: error: QOSMaxSubmitJobPerUserLimit' >&2;"
    " echo 'sbatch: error: Batch job submission failed: Job violates accounting/QOS policy"
    " (job submit limit, user'\"'\"'s size and/or time limits)' >&2; exit 1"
)
AWAY = "echo 'sbatch: error: Batch job submission failed: Unable to contact slurm controller' >&2; exit 1"
MUTE = "echo 'slurm_load_jobs error: Unable to contact slurm controller (connect failure)' >&2; exit 1"


class Led(Cluster):
    """The cluster with the daemon's lane, whose turns the test takes one by one."""

    def __init__(self, stage: Stage, folder: Path, *, accounting: bool = False, more: str = "") -> None:
        super().__init__(stage, folder, accounting=accounting, more=more)
        self.lane = Lane(
            store=stage.store, place=self.place, clock=self.clock, wake=Wake(), metrics=Metrics(), places=(self.place,)
        )

    def submit(self, count: int) -> None:
        self.stage.person("ada", staff=True)
        for _ in range(count):
            self.stage.submit()

    def take_turns(self, seconds: float, *, step_s: float | None = None) -> None:
        """What the daemon's main loop does: claim, then give the lane its turn, whenever something is due."""
        until = self.clock.now().timestamp() + seconds
        while self.clock.now().timestamp() < until:
            claimed = []
            while self.stage.rows("SELECT FROM run WHERE state = 'queued'"):
                claimed.append(self.stage.claim(self.place))
            opened = [one for one in self.stage.store.attempts.open() if one.id not in {new.id for new in claimed}]
            now = self.clock.now()
            turn = self.lane.next_turn(opened, claimed, (), now) if now >= self.lane.ready_at else None
            if turn is not None:
                self.lane._take(turn)
            self.clock.go(step_s or self.place.poll_s)

    def waits(self) -> list[str]:
        """Why each run's attempt hasn't started."""
        found = [self.stage.store.submissions.get(row["submission_id"]) for row in self.stage.runs()]
        return [run.waits_for for view in found for run in view.runs]

    def told(self, run: int) -> str:
        return "\n".join(why.sentences(self.stage.store.runs.why(run, self.clock.now())))


@pytest.fixture
def led(database_url: str, tmp_path: Path) -> Iterator[Led]:
    stage = Stage.build(database_url)
    cluster = Led(stage, tmp_path)
    yield cluster
    cluster.lane.close(1)
    stage.close()


def test_a_limit_puts_off_all_runs_together_and_one_at_a_time_is_tried(led: Led) -> None:
    led.rig.says("sbatch", LIMIT)
    led.submit(4)
    led.take_turns(600)
    tries = len(led.rig.calls("sbatch"))
    assert 5 <= tries <= 18, "one probe, at intervals of up to a minute, for all four runs"
    (said,) = set(led.waits())
    assert "limit" in said and "QOSMaxSubmitJobPerUserLimit" in said and "one run at a time is tried again" in said
    runs = [row["id"] for row in led.stage.runs()]
    assert all(said in led.told(run) and "intent" not in led.told(run) for run in runs)
    (line,) = led.stage.store.overview.waits()
    assert (line.reason, line.attempts, line.submitted) == (said, 4, False), "status says the same"
    assert led.lane.told()["shut"] == {"A100": said}
    led.rig.says("sbatch", f"echo $(({tries} + $(wc -l <{led.rig.folder}/sbatch.calls)))")
    led.rig.says("squeue", MUTE)
    led.take_turns(61)
    assert all(row["handle"] for row in led.stage.rows("SELECT handle FROM attempt")), "the others follow at once"
    assert len(led.rig.calls("sbatch")) == tries + 4
    assert not any("limit" in said for said in led.waits())
    assert led.lane.told()["shut"] == {}


def test_a_full_root_is_what_every_face_says(led: Led) -> None:
    led.rig.says("sbatch", "echo 7")
    root = Path(led.site.paths.shared_root)
    root.rmdir()
    root.write_text("a disk that takes no folder")
    led.submit(2)
    led.take_turns(30)
    said = led.waits()
    assert len(set(said)) == 1 and said[0].startswith("not submitted yet: ") and "tried again" in said[0]
    assert led.rig.calls("sbatch") == []


def test_a_controller_that_is_down_is_said_before_and_after_the_submission(led: Led) -> None:
    led.rig.says("sbatch", "echo 7")
    led.submit(1)
    led.take_turns(2)
    led.rig.says("sbatch", AWAY)
    for tool in ("squeue", "scontrol"):
        led.rig.says(tool, MUTE)
    led.submit(3)
    led.take_turns(120)
    first, *others = led.waits()
    assert (
        first.startswith("submitted, but nothing is known about its job at the moment: the scheduler can't be reached")
        and "Unable to contact" in first
    )
    assert any(said.startswith("it isn't clear whether its job was submitted") for said in others)
    assert all("Unable to contact" in said or "can't be reached" in said for said in others), others
    assert len(led.rig.calls("sbatch")) < 8, "one try at a time, and none while the controller rests"
    pace = led.lane.told()["pace"]
    assert pace["failing"] > 0 and "Unable to contact" in pace["why"]
    run = led.stage.runs()[0]["id"]
    assert first in led.told(run)


@pytest.mark.parametrize(("granted", "verdict"), [("1500", "infrastructure"), ("5120", "memory")])
def test_a_job_that_was_given_too_little_memory_isnt_its_submissions_fault(
    led: Led, granted: str, verdict: str
) -> None:
    """Slurm's word on what it granted decides, which no submission can choose."""
    led.started()
    (attempt,) = led.stage.store.attempts.open()
    claim = (led.place.root or Path()) / attempt.name / "claim"
    (claim / "granted_mb").write_text(f"{granted}\n")
    (claim.parent / "out").mkdir(exist_ok=True)
    (claim.parent / "out" / "heartbeat.json").write_text("{}")
    led.rig.says("squeue", f"echo '7|{attempt.name}|OUT_OF_MEMORY|1|2|n1|OutOfMemory'")
    led.go(120)
    run = led.stage.run()
    assert (run["verdict"], run["attempts"]) == (verdict, 1), "no retry either way"
    (closed,) = led.stage.rows("SELECT ending, state FROM attempt")
    assert closed["ending"] == ("memory" if verdict == "memory" else "misconfigured")
    if verdict == "infrastructure":
        assert "had given it 1500 MB where its problem needs 5120 MB" in run["verdict_reason"]
        told = led.stage.store.overview.attention(now=led.clock.now())
        assert any(run["verdict_reason"] in line.text for line in told)
        assert "misconfigured" not in INFRASTRUCTURE, "the node isn't to blame either"


@pytest.mark.parametrize(("left", "ending"), [("told_to_end", "boot_failure"), ("", "timeout")])
def test_a_job_whose_node_took_too_long_to_prepare_it_isnt_late_by_its_submissions_fault(
    led: Led, left: str, ending: str
) -> None:
    """The watchdog in it ends a run in time. Slurm's limit comes first only if the watchdog could start too late."""
    led.started()
    (attempt,) = led.stage.store.attempts.open()
    folder = (led.place.root or Path()) / attempt.name
    (folder / "out").mkdir(exist_ok=True)
    (folder / "out" / "heartbeat.json").write_text("{}")
    if left:
        (folder / "claim" / left).write_text("1\n")
    led.rig.says("squeue", f"echo '7|{attempt.name}|TIMEOUT|1|2|n1|TimeLimit'")
    led.go(120)
    first = led.stage.rows("SELECT ending, reason FROM attempt ORDER BY id")[0]
    assert first["ending"] == ending
    assert led.stage.run()["verdict"] == ("timeout" if ending == "timeout" else None), "it is tried again"
    assert ending == "timeout" or "took long to prepare it" in first["reason"]


@pytest.mark.parametrize(("granted", "by_kernel"), [("1500", True), ("1500", False), ("5120", True)])
def test_a_report_of_memory_that_ran_out_too_early_blames_the_site(led: Led, granted: str, by_kernel: bool) -> None:
    """With control groups the kernel ends the submission's process, and the judge lives on and reports it."""
    led.started()
    (attempt,) = led.stage.store.attempts.open()
    folder = (led.place.root or Path()) / attempt.name
    (folder / "claim" / "granted_mb").write_text(f"{granted}\n")
    if by_kernel:
        (folder / "claim" / "no_memory").write_text("1\n")
    (folder / "out").mkdir(exist_ok=True)
    work = led.stage.store.attempts.work(attempt.id)
    report = sealed_report(work, verdict="memory", reason="the submission used more memory than allowed")
    (folder / "out" / "report.json").write_bytes(report)
    told = {"cause": "judge", "status": 0, "began": True, "why": "", "job": "7", "node": "n1"}
    (folder / "exit.json").write_text(json.dumps(told))
    led.go(60)
    run = led.stage.run()
    blamed = granted == "5120" or not by_kernel
    assert (run["verdict"], run["attempts"]) == ("memory" if blamed else "infrastructure", 1)
    if not blamed:
        assert "had given it 1500 MB where its problem needs 5120 MB" in run["verdict_reason"]


def test_a_requeue_from_outside_is_told_as_one(led: Led) -> None:
    """Slurm puts it back with a time before which it doesn't start, we cancel it there, and that isn't the reason."""
    led.started()
    (attempt,) = led.stage.store.attempts.open()
    folder = (led.place.root or Path()) / attempt.name
    told = {"cause": "term", "status": 143, "began": True, "why": "", "job": "7", "node": "a2"}
    (folder / "exit.json").write_text(json.dumps(told))
    led.rig.says("squeue", f"echo '7|{attempt.name}|PENDING|1|2|(null)|BeginTime'")
    led.go(16)
    assert led.rig.calls("scancel") == ["--quiet 7"]
    led.rig.says("squeue", f"echo '7|{attempt.name}|CANCELLED|1|2|a2|BeginTime'")
    led.go(120)
    (closed,) = led.stage.rows("SELECT ending, reason FROM attempt")
    assert closed["ending"] == "cancelled"
    assert "requeued from outside" in closed["reason"] and "set time" not in closed["reason"]


def test_attention_names_its_runs_and_agrees_in_number(led: Led) -> None:
    led.rig.says("sbatch", LIMIT)
    led.submit(1)
    led.take_turns(700)
    (row,) = led.stage.runs()
    (line,) = led.stage.store.overview.attention(now=led.clock.now())
    assert line.text.startswith(f"run {row['id']}: attempt 1 was given to usual, which has not taken it so far: not")
    assert "QOSMaxSubmitJobPerUserLimit" in line.text
    for count in (1, 3):
        while led.stage.open_runs() < count + 1:
            led.stage.submit()
        texts = [one.text for one in led.stage.store.overview.attention(now=led.clock.now() + timedelta(hours=7))]
        queued = [row["id"] for row in led.stage.runs() if row["state"] == "queued"]
        said = "1 run has" if count == 1 else "3 runs have"
        assert f"{said} waited for A100 for more than 6 hours: run {', '.join(map(str, queued))}" in texts


def test_a_job_that_is_found_again_after_its_start_has_an_honest_waterfall(led: Led) -> None:
    led.rig.says("sbatch", AWAY)
    led.submit(1)
    led.take_turns(1)
    (attempt,) = led.stage.store.attempts.open()
    assert attempt.state == "ambiguous"
    paths = AttemptPaths(root=led.place.root or Path(), name=attempt.name)
    paths.claim.mkdir()
    paths.owner.write_text(json.dumps({"job": "7", "node": "n1"}))
    led.rig.says("squeue", f"echo '7|{attempt.name}|RUNNING|1|2|n1|None'")
    led.take_turns(120)
    (found,) = [row["submission_id"] for row in led.stage.runs()]
    (run,) = led.stage.store.submissions.get(found).runs
    (last,) = run.attempts
    assert last.state == "running" and last.submitted_at is not None and last.known_at is None
    node = {
        "harness_started_at_ns": int((led.clock.now() - timedelta(seconds=90)).timestamp() * 1e9),
        "harness_ended_at_ns": int((led.clock.now() - timedelta(seconds=60)).timestamp() * 1e9),
    }
    ended = dataclasses.replace(run, attempts=(dataclasses.replace(last, telemetry={**last.telemetry, **node}),))
    took = {stage.name: stage.took_s for stage in waterfall(ended.stamps)}
    assert took["run"] == pytest.approx(30.0) and "launch" not in took
