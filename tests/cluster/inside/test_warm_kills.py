"""A daemon killed at every crash point of a keeper's life and of a hand-over: no run is lost or repeated, no keeper is
sent twice, and none is left behind."""

from __future__ import annotations

import subprocess
from pathlib import Path

from kbslurm.domain.keepers import KeeperEnding, KeeperState
from kbslurm.domain.run import SubmissionId, is_step
from kbslurm.flow.cancel import cancel
from kbslurm.flow.script import keepers_folder
from kbslurm.observe.crash_points import SLURM_KEEPER_CRASH_POINTS
from tests.chaos.history import check
from tests.chaos.killing import Killer
from tests.cluster.inside.walk import GOOD, Walk, sleeping, submission, walk_at

WARM = """
[gpus.H100.warm]
max = 1
idle = "10m"
life = "1h"
"""
OPENED = ("keeper.before_submit", *SLURM_KEEPER_CRASH_POINTS, "keeper.after_submit", "keeper.after_note")
HANDED_OVER = (
    "launch.before_submit",
    "slurm.folder",
    "slurm.sent",
    "slurm.submitted",
    "launch.after_submit",
    "launch.after_note",
    "collect.before_poll",
    "collect.after_read",
    "score.before_commit",
    "score.after_commit",
)
CANCELLED = ("cancel.before_effect", "cancel.after_effect", "cancel.after_commit")


def test_a_daemon_killed_while_it_opens_a_keeper_opens_it_once(database_url: str) -> None:
    with walk_at(database_url, Path("/shared/warm-opened"), more=WARM, start="30s") as walk, walk.killer() as hand:
        for number, place in enumerate(OPENED, 1):
            order(walk)
            die(hand, place)
            hand.start()
            wait_holding(walk)
            (one,) = walk.stage.store.keepers.open()
            assert squeue() == [one.handle], place
            walk.stage.store.keepers.drain(one.id, KeeperEnding.DRAINED, "a test", walk.stage.clock.now())
            walk.stage.wait_until(lambda: not walk.stage.store.keepers.open(), patience_s=120)
            hand.end()
            assert len(list(keepers_folder(walk.site).glob("kbk-*/claim/job"))) == number
        walk.stage.wait_until(lambda: squeue() == [], patience_s=120)


def test_a_daemon_killed_while_it_hands_over_loses_nothing_and_repeats_nothing(database_url: str) -> None:
    with walk_at(database_url, Path("/shared/warm-kills"), more=WARM, start="30s") as walk, walk.killer() as hand:
        order(walk)
        hand.start()
        wait_holding(walk)
        (keeper,) = walk.stage.store.keepers.open()
        hand.end()
        well: list[SubmissionId] = []
        for place in HANDED_OVER:
            well.append(submit(walk, submission(GOOD)))
            die(hand, place)
            hand.start()  # the next run is handed over too only if this one is over
            walk.stage.wait_until(lambda: walk.stage.open_runs() == 0, patience_s=240)
            hand.end()
        taken_back = submit(walk, sleeping(60))
        hand.start(CANCELLED[0])
        walk.stage.wait_until(lambda: walk.attempts()[-1]["state"] == "running", patience_s=120)
        cancel(walk.stage.store.submissions, taken_back, None, walk.stage.clock.now())
        assert hand.died_at_its_crash_point(), hand.log()[-3000:]
        for place in CANCELLED[1:]:
            die(hand, place)
        hand.start()
        runs = {run["submission_id"]: run for run in walk.wait_ended(len(well) + 1)}
        check(walk.stage)
        for number in well:
            run = runs[number]
            assert (run["state"], run["verdict"], run["attempts"]) == ("scored", "passed", 1), run
        assert (runs[taken_back]["state"], runs[taken_back]["verdict"]) == ("cancelled", None)
        assert (walk.verdicts(), walk.claims()) == (len(well), len(well) + 1)
        # each ran as a step of the one keeper, which outlived all of this and isn't ended with an attempt of its own
        assert all(is_step(row["handle"]) for row in walk.attempts()), walk.attempts()
        assert squeue() == [keeper.handle]
        hand.end()
        subprocess.run(["scancel", "--me"], check=True)


def order(walk: Walk) -> None:
    now = walk.stage.clock.now()
    made = walk.stage.store.keepers.order(
        "test", "H100", life_s=3600, idle_s=600, most=1, why="a test", now=now, by="host"
    )
    assert made is not None


def wait_holding(walk: Walk) -> None:
    store = walk.stage.store.keepers
    walk.stage.wait_until(lambda: [one.state for one in store.open()] == [KeeperState.HOLDING], patience_s=240)


def submit(walk: Walk, text: str) -> SubmissionId:
    return walk.stage.submit(text, by=f"p{len(walk.stage.runs())}", gpus=["H100"]).submission_id


def die(hand: Killer, place: str) -> None:
    hand.start(place)
    assert hand.died_at_its_crash_point(), (place, hand.log()[-3000:])


def squeue() -> list[str]:
    done = subprocess.run(["squeue", "--me", "-h", "-o", "%A"], capture_output=True, text=True, check=True)
    return done.stdout.split()
