"""Slurm's own growing: a node that stands in no file registers in mid-competition, takes runs, and is taken away."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cluster.conf_slurm import GROWN, MOST_NODES, NODES
from tests.cluster.inside import control
from tests.cluster.inside.site import site_text
from tests.cluster.inside.test_doctor import doctor, written
from tests.cluster.inside.walk import GOOD, Walk, sleeping, submission, walk_at

FULL = "h[1-2]"  # every node that has this GPU type


def states(node: str) -> set[str]:
    """What Slurm says of this node; nothing if it has no such node."""
    words = ["sinfo", "-h", "-N", "-n", node, "-o", "%T"]
    return set(subprocess.run(words, capture_output=True, text=True, check=True).stdout.split())


@contextmanager
def no_room() -> Iterator[None]:
    """No node of slurm.conf takes a job of this GPU type."""
    control.as_root("scontrol", "update", f"nodename={FULL}", "state=drain", "reason=test")
    try:
        yield
    finally:
        control.resume(FULL)


@contextmanager
def grown(walk: Walk) -> Iterator[None]:
    """The node registers itself; at the end it is deleted, which Slurm does to no node with a job."""
    control.daemon("start", f"slurmd:{GROWN.name}")
    try:
        walk.stage.wait_until(lambda: states(GROWN.name) & {"idle", "mixed", "allocated"} != set(), patience_s=60)
        yield
    finally:
        control.daemon("stop", f"slurmd:{GROWN.name}")
        control.as_root("scontrol", "delete", f"nodename={GROWN.name}")


def test_a_node_joins_in_mid_competition_and_takes_the_runs_that_wait(database_url: str) -> None:
    with walk_at(database_url, Path("/shared/growing")) as walk, walk.daemon():
        # Given a competition that goes on
        walk.stage.submit(submission(GOOD), by="ada", gpus=["H100"])
        (ada,) = walk.wait_ended()
        assert (ada["verdict"], walk.attempts()[0]["node"][0]) == ("passed", "h")
        with no_room():
            # When nothing is left for its GPU type, runs wait at Slurm
            for by in ("bob", "eve"):
                walk.stage.submit(submission(GOOD), by=by, gpus=["H100"])
            walk.stage.wait_until(lambda: [row["state"] for row in walk.attempts()[1:]] == ["submitted"] * 2)
            waiting = subprocess.run(["squeue", "--me", "-h", "-o", "%T"], capture_output=True, text=True, check=True)
            assert waiting.stdout.split() == ["PENDING"] * 2, waiting.stdout
            # and a node registers, they run there, with nothing of ours restarted
            with grown(walk):
                runs = walk.wait_ended(3)
                assert [(run["verdict"], run["attempts"]) for run in runs] == [("passed", 1)] * 3, runs
                assert [row["node"] for row in walk.attempts()[1:]] == [GROWN.name] * 2
        # Then, with it gone, the competition goes on where it was before
        assert states(GROWN.name) == set()
        walk.stage.submit(submission(GOOD), by="joe", gpus=["H100"])
        *_, joe = walk.wait_ended(4)
        assert (joe["verdict"], walk.attempts()[-1]["node"][0]) == ("passed", "h")
    assert walk.verdicts() == walk.claims() == 4
    control.settle()


def test_a_grown_node_that_loses_power_in_mid_run_costs_an_attempt(database_url: str) -> None:
    with walk_at(database_url, Path("/shared/growing-dies")) as walk, walk.daemon():
        with no_room():
            walk.stage.submit(sleeping(60), by="ada", gpus=["H100"])
            with grown(walk):
                assert walk.wait_began()["node"] == GROWN.name
                control.daemon("kill", f"node:{GROWN.name}")
                lost = walk.wait_attempt("dead")
                assert (lost["node"], lost["ending"]) == (GROWN.name, "node_failure"), lost
        again = walk.wait_attempt("running", number=2)
        assert again["node"][0] == "h"
        walk.is_well(attempts=2)
    control.settle()


def test_the_doctor_says_that_nodes_may_join_and_which_line_a_partition_lacks() -> None:
    file = written(Path("/shared/doctor/growing"), site_text(Path("/shared/doctor/growing")))
    code, found = doctor(file)
    told = found["", "dynamic nodes"]
    assert (code, told["grade"]) == (0, "PASS"), found
    assert f"(MaxNodeCount={MOST_NODES}, and {len(NODES)} are there)" in told["text"]
    assert "PartitionName=gpu-a100 Nodes=…,grown" in told["text"] and "gpu-h100" not in told["text"]
