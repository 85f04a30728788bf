"""A problem for several GPUs on a real site: one job that has them, one container that holds all ranks."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from tests.cluster.inside.walk import walk_at
from tests.contract.backend_suite import REPOSITORY

ALLREDUCE = REPOSITORY / "examples" / "allreduce"
WANTED = {"crash/one_rank_dies.py": "error", "cheat/another_ranks_token.py": "violation"}


def test_ranks_meet_on_loopback_in_one_container_on_the_gpus_that_the_job_asked_for(database_url: str) -> None:
    with walk_at(database_url, Path("/shared/walk/ranks"), problem=ALLREDUCE) as walk:
        # this image has no ncu: a profile goes without it, and says so
        kind = dataclasses.replace(
            walk.site.gpus["H100"], multi="--gres=gpu:h100:{n}", per_node=2, cpus=1, profiler="ncu"
        )
        walk.site = dataclasses.replace(walk.site, gpus={"H100": kind})
        receipts = {
            int(walk.stage.submit((ALLREDUCE / "submissions" / name).read_text(), by=f"p{n}").submission_id): verdict
            for n, (name, verdict) in enumerate(WANTED.items())
        }
        good = (ALLREDUCE / "submissions/accepted/by_rank_zero.py").read_text()
        drawn = walk.stage.submit(good, mode="profile").submission_id
        with walk.daemon():
            runs = walk.wait_ended(len(WANTED) + 1)
        verdicts = {run["submission_id"]: run["verdict"] for run in runs}
        assert verdicts == {**receipts, drawn: "passed"}, [run["reason"] for run in runs]
        assert {attempt["gpus"] for attempt in walk.attempts()} == {2}
        for row in walk.stage.rows("SELECT a.telemetry, v.detail FROM verdict v JOIN attempt a ON a.id = v.attempt_id"):
            assert row["detail"]["isolation"]["level"] == 2, row["detail"]["isolation"]
            assert row["telemetry"]["host"]["interfaces"] == ["lo"], row["telemetry"]
        kept = {one.name for one in walk.stage.store.artifacts.of_submission(drawn)}
        assert kept == {f"benchmark-0.rank{n}.{slot}" for n in (0, 1) for slot in ("table.txt", "functions.json")}
        (told,) = walk.stage.rows("SELECT detail ->> 'profile' AS text FROM verdict WHERE detail ->> 'profile' <> ''")
        assert "no profile by ncu" in told["text"]
