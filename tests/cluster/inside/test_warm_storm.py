"""A storm over runs in keepers: the daemon, keepers, their scripts and their sruns are killed at random. Every run has
one verdict, and none ran twice as the same attempt."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from kbslurm.config import sites
from kbslurm.domain.run import is_step
from tests.chaos import zygote, zygote_warm
from tests.chaos.history import check
from tests.chaos.killing import Killer
from tests.cluster.inside import control
from tests.cluster.inside.walk import Walk, place_of, walk_at
from tests.cluster.inside.warming import OpenKeeper
from tests.contract.backend_suite import REPOSITORY
from tests.flow.stage import QUICK
from tests.services import sized

# One job of its own at a time, beside keepers.
WARM = """
max_open = 4
[gpus.H100.warm]
max = 3
idle = "5m"
life = "1h"
"""
RUNS, DEATHS, KEEPERS_KILLED = sized(120, 60), sized(20, 12), 3


def test_a_storm_of_kills_over_runs_in_keepers(database_url: str) -> None:
    folder, dice = Path("/shared/warm-storm"), random.Random(20261126)
    with walk_at(database_url, folder, runtime="none", more=WARM, start="30s") as walk:
        zygote_warm.harness_at(folder / "harness")
        hand = Killer(
            "tests.cluster.inside.test_warm_storm",
            database_url,
            str(folder / "site.toml"),
            root=folder,
            checkout=REPOSITORY,
        )
        try:
            _storm(walk, hand, dice)
        finally:
            hand.close()
            subprocess.run(["scancel", "--me"], check=False)
            control.settle()
        check(walk.stage, folder / "attempts")
        runs = walk.stage.runs()
        assert {(run["state"], run["verdict"]) for run in runs} == {("scored", "passed")}, runs
        assert walk.verdicts() == len(runs) == RUNS
        warm = [row for row in walk.attempts() if row["keeper_id"] is not None]
        assert sum(is_step(row["handle"]) for row in warm) >= RUNS // 20, "it was a storm over other runs"
        kinds = {row["ending"] for row in walk.attempts()}
        assert kinds <= {"reported", "withdrawn", "keeper_left", "cancelled", "no_report"}, kinds


def _storm(walk: Walk, hand: Killer, dice: random.Random) -> None:
    store, victims = walk.stage.store.keepers, KEEPERS_KILLED
    for death in range(DEATHS):
        for number in range(RUNS // DEATHS):
            walk.stage.submit("# passed\n", by=f"p{number % 7}", mode="test", gpus=["H100"])
        if len(store.open()) < 2:
            now = walk.stage.clock.now()
            store.order("test", "H100", life_s=3600, idle_s=300, most=3, why="a storm", now=now, by="host")
        hand.start()
        if death % 2 == 0:  # on a slow machine hardly any keeper would live to serve a run
            walk.stage.wait_until(lambda: any(one.node for one in store.open()))
        if hand.wait(dice.uniform(1.0, 4.0)) is None:
            hand.end()
        holding = [OpenKeeper(keeper=one, site=walk.site) for one in store.open() if one.node and one.handle]
        if death % 3 == 2 and holding and victims:
            victims -= 1
            _kill(dice.choice(holding), dice)
    hand.start()
    walk.wait_ended(RUNS)
    hand.end()


def _kill(one: OpenKeeper, dice: random.Random) -> None:
    """Its job, its script, or the srun of what runs in it."""
    match dice.choice(["job", "script", "srun"]):
        case "job":
            subprocess.run(["scancel", "--quiet", one.job], check=False)
        case "script":
            with suppress(AssertionError, ProcessLookupError):
                os.kill(one.script_pid(), signal.SIGKILL)
        case _:
            mine = f"KB_KEEPER={one.keeper.name},".encode()
            for file in Path("/proc").glob("[0-9]*/cmdline"):
                with suppress(OSError):
                    if mine in file.read_bytes():
                        os.kill(int(file.parent.name), signal.SIGKILL)


def main(url: str, file: Path) -> None:
    """The daemons of the storm."""
    place = place_of(sites.load(file), file.with_name("harness"))[0]
    zygote.main(lambda: zygote.serve(url, place, file.with_name("daemon.log"), QUICK))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
