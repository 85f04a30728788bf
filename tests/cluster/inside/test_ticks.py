"""Without a daemon that stays: each visit is a daemon of its own with an empty memory, on a real Slurm."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from kbslurm.daemon.loop import Daemon
from tests.cluster.inside.walk import GOOD, PATIENCE_S, place_of, submission, walk_at
from tests.flow.stage import QUICK


def test_visits_alone_take_a_submission_from_accept_to_its_verdict(database_url: str) -> None:
    with walk_at(database_url, Path("/shared/ticks"), gpus=("H100",)) as walk:
        walk.stage.submit(submission(GOOD), gpus=["H100"])
        visits, until = 0, time.monotonic() + PATIENCE_S
        while walk.stage.open_runs():
            assert time.monotonic() < until, walk.stage.runs()
            place, _ = place_of(walk.site)
            assert Daemon(walk.stage.store, [place], timing=QUICK).visit(threading.Event(), for_s=45, stay=False)
            visits += 1
        (run,) = walk.stage.runs()
        assert (run["state"], run["verdict"], run["attempts"]) == ("scored", "passed", 1), run
        assert walk.claims() == 1
        assert visits > 1, "one visit submits, a later one collects"
        assert walk.stage.rows("SELECT 1 FROM lease") == []
