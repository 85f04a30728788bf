"""A daemon killed on a cluster at every crash point: nothing is lost, nothing is repeated, no job is left behind."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

from kbslurm.domain.run import SubmissionId
from kbslurm.flow.cancel import cancel
from kbslurm.observe.crash_points import CRASH_POINTS, SLURM_CRASH_POINTS
from tests.chaos.history import check
from tests.chaos.killing import Killer
from tests.cluster.inside.walk import GOOD, Walk, sleeping, submission, walk_at

LOST = """
[gpus.LOST]
request = "--gres=gpu:h100:1"
partition = "gpu-h100"
vendor = "none"
image = "there-is-none.sif"
memory = "2G"
"""
# An attempt that is left as an intent is looked for, found nowhere twice, and sent again.
LOOKED_FOR = ("queue.after_claim", "recover.before_find", "recover.after_find", "recover.after_resend")
# The steps of a run that goes well, each with a run of its own to die over.
ON_ITS_WAY = (
    "queue.before_claim",
    "launch.before_submit",
    "slurm.folder",
    "slurm.sent",
    "slurm.submitted",
    "launch.after_submit",
    "launch.after_note",
    "collect.before_poll",
    "collect.after_poll",
    "collect.after_read",
    "score.before_commit",
    "score.after_commit",
)
GIVEN_UP = ("give_up.before_commit", "give_up.after_commit")
CANCELLED = ("cancel.before_effect", "cancel.after_effect", "cancel.after_commit")


def test_every_crash_point_that_a_daemon_passes_on_a_cluster_is_died_at_here() -> None:
    elsewhere = ("accept.", "local.")
    assert sorted((*LOOKED_FOR, *ON_ITS_WAY, *GIVEN_UP, *CANCELLED)) == sorted(
        name for name in (*CRASH_POINTS, *SLURM_CRASH_POINTS) if not name.startswith(elsewhere)
    )


def test_a_daemon_killed_at_every_crash_point_loses_nothing_and_repeats_nothing(database_url: str) -> None:
    with (
        walk_at(database_url, Path("/shared/kills"), gpus=("H100", "LOST"), more=LOST, start="30s") as walk,
        walk.killer() as hand,
    ):
        well = [submit(walk, submission(GOOD))]
        for place in LOOKED_FOR:
            die(hand, place)
        for place in ON_ITS_WAY:
            well.append(submit(walk, submission(GOOD)))
            die(hand, place)
        lost = submit(walk, submission(GOOD), gpu="LOST")
        for place in GIVEN_UP:
            die(hand, place)
        taken_back = submit(walk, sleeping(60))
        hand.start(CANCELLED[0])
        walk.stage.wait_until(lambda: state_of(walk, taken_back) == "running")
        cancel(walk.stage.store.submissions, taken_back, None, walk.stage.clock.now())
        assert hand.died_at_its_crash_point(), hand.log()[-3000:]
        for place in CANCELLED[1:]:
            die(hand, place)
        hand.start()
        runs = {run["submission_id"]: run for run in walk.wait_ended(len(well) + 2)}
        assert hand.end(signal.SIGTERM) == 0, hand.log()[-3000:]
        check(walk.stage)
        for number in well:
            run = runs[number]
            assert (run["state"], run["verdict"], run["attempts"]) == ("scored", "passed", 1), run
        assert (runs[lost]["state"], runs[lost]["attempts"]) == ("failed", 3), runs[lost]
        assert (runs[taken_back]["state"], runs[taken_back]["verdict"]) == ("cancelled", None)
        assert walk.verdicts() == len(well) + 1
        assert walk.claims() == len(well) + 3 + 1
        left = subprocess.run(["squeue", "--me", "-h"], capture_output=True, text=True, check=True)
        assert left.stdout == ""


def submit(walk: Walk, text: str, gpu: str = "H100") -> SubmissionId:
    return walk.stage.submit(text, by=f"p{len(walk.stage.runs())}", gpus=[gpu]).submission_id


def die(hand: Killer, place: str) -> None:
    hand.start(place)
    assert hand.died_at_its_crash_point(), (place, hand.log()[-3000:])


def state_of(walk: Walk, submission: SubmissionId) -> str:
    (run,) = walk.stage.rows("SELECT state FROM run WHERE submission_id = %s", submission)
    return str(run["state"])
