"""Calibrated, ranked, confirmed, and head to head in a final: the whole of it for real, by the real harness."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from kbslurm.daemon.clock import WallClock
from kbslurm.daemon.loop import Daemon
from kbslurm.problems import loading
from kbslurm_eval.shared.wire import Budget
from tests.flow.stage import QUICK, Stage, running
from tests.flow.test_walk import TRANSPOSE, local

# Loops alone take some three times as long, which a busy machine's noise can hide.
AGAIN = """

once = custom_kernel


def custom_kernel(data):
    for _ in range(3):
        once(data)
    return once(data)
"""


def test_a_board_is_calibrated_ranked_confirmed_and_decided_in_a_final(database_url: str, tmp_path: Path) -> None:
    columns, loops = ((TRANSPOSE / "submissions/accepted" / name).read_text() for name in ("columns.py", "loops.py"))
    loops += AGAIN
    problem = dataclasses.replace(
        loading.load(TRANSPOSE),
        config={"baseline": columns},
        benchmarks=({"rows": 512, "cols": 384, "seed": 7},),
        budget=Budget(launches=3, calls=5, max_calls=5),
    )
    stage = Stage.build(
        database_url, problem=problem, gpus=("H100",), clock=WallClock(), board="transpose", confirm=True
    )
    try:
        ada = stage.submit(columns, by="ada", mode="leaderboard").submission_id
        bob = stage.submit(loops, by="bob", mode="leaderboard").submission_id
        with running(Daemon(stage.store, [local(tmp_path, "H100")], timing=QUICK)):
            stage.wait_until(lambda: stage.open_runs() == 0)
            held = stage.store.boards.find("transpose")
            assert held is not None
            calibration = stage.store.calibrations.of_board(held)["H100"]
            assert calibration.state == "calibrated" and calibration.b_ref_s is not None, stage.runs()
            first, second = stage.store.standings.scored("transpose", "H100")
            assert (first.submission_id, second.submission_id) == (ada, bob)
            # The baseline's own text, measured against itself: its score is the reference time, but for noise.
            assert calibration.b_ref_s[0] / 2 < first.score_s < calibration.b_ref_s[0] * 2 < second.score_s
            kinds = [(run["second"], run["counts"], run["verdict"]) for run in stage.runs()]
            assert sorted(kinds) == sorted(
                [(False, False, "passed"), (True, True, "passed")] * 2 + [(False, True, "passed")]
            )
            kept = stage.rows("SELECT count(*) AS n FROM raw_samples")
            assert kept == [{"n": 5}]
            stage.store.finals.order("transpose", "H100", 2, by="host")
            stage.wait_until(lambda: stage.open_runs() == 0)
        final = stage.store.finals.open("transpose", "H100")
        assert final is not None and final.is_done, stage.runs()
        scores = [rival.outcome.score_s for rival in final.rivals if rival.outcome is not None]
        assert scores[0] is not None and scores[1] is not None and scores[0] < scores[1]
        (gap,) = final.gaps
        assert (gap.ahead, gap.behind, gap.separated) == (0, 1, True)
        stage.store.finals.apply("transpose", "H100", by="host")
        assert [entry.score_s for entry in stage.store.standings.scored("transpose", "H100")] == scores
    finally:
        stage.close()
