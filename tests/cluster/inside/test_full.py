"""Disks that fill up: a submission's own scratch, a node's, the shared root. Each is told as what it is."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.cluster.inside import control
from tests.cluster.inside.walk import GOOD, Walk, sleeping, submission, walk_at
from tests.flow.stage import overheard

GLUTTON = """
def custom_kernel(data):
    with open("/tmp/big", "wb") as file:
        while True:
            file.write(bytes(1 << 20))
"""
PAGE = bytes(4096)


@dataclasses.dataclass
class Disk:
    """A small file system of its own."""

    path: Path

    @property
    def filling(self) -> Path:
        return self.path / "filling"

    def fill(self) -> bool:
        """Not one page is left; called again, what became free since is taken, too."""
        with suppress(OSError), self.filling.open("ab", buffering=0) as file:
            while True:
                file.write(PAGE)
        return False

    def empty(self) -> None:
        self.filling.unlink(missing_ok=True)


@contextmanager
def disk(path: str, size: str) -> Iterator[Disk]:
    control.as_root("sh", "-c", f"mkdir -p {path} && mount -t tmpfs -o size={size},mode=1777 small {path}")
    try:
        yield Disk(Path(path))
    finally:
        control.as_root("sh", "-c", f"umount -l {path} && rmdir {path}")


def test_a_submission_that_fills_its_scratch_is_told_so_and_its_neighbours_notice_nothing(database_url: str) -> None:
    with walk_at(database_url, Path("/shared/full/own")) as walk:
        walk.site = dataclasses.replace(walk.site, paths=dataclasses.replace(walk.site.paths, scratch_mb=30))
        for text, by in ((GLUTTON, "eve"), (submission(GOOD), "ada"), (sleeping(2), "bob")):
            walk.stage.submit(text, by=by, gpus=["H100"])
        with walk.daemon():
            greedy, *others = walk.wait_ended(3)
    assert (greedy["state"], greedy["verdict"], greedy["attempts"]) == ("scored", "error", 1), greedy
    assert "No space left on device" in greedy["verdict_reason"]
    assert [(run["verdict"], run["attempts"]) for run in others] == [("passed", 1)] * 2


def test_a_node_without_room_passes_the_run_on_and_says_why(database_url: str) -> None:
    with (
        disk("/scratch/h1", "1m") as full,
        disk("/scratch/h2", "1m") as other,
        walk_at(database_url, Path("/shared/full/node")) as walk,
    ):
        paths = dataclasses.replace(walk.site.paths, node_scratch="/scratch/$SLURMD_NODENAME", scratch_mb=64)
        walk.site = dataclasses.replace(walk.site, paths=paths)
        full.fill()
        control.as_root("scontrol", "update", "nodename=h2", "state=drain", "reason=test")
        try:
            walk.stage.submit(submission(GOOD), gpus=["H100"])
            with walk.daemon():
                first = walk.wait_attempt("dead")
                control.resume("h2")
                walk.is_well(attempts=2)
                assert (first["ending"], first["node"]) == ("boot_failure", "h1")
                assert first["reason"] == "the node couldn't prepare the job: the disk for scratch is full on h1"
                assert walk.gave_up() == first["reason"]
                assert walk.attempts()[1]["node"] == "h2"
                other.fill()
                walk.stage.submit(submission(GOOD), by="bob", gpus=["H100"])
                last = walk.wait_ended(2)[-1]
        finally:
            control.resume("h2")
        assert (last["state"], last["verdict"], last["attempts"]) == ("failed", "infrastructure", 3), last
        assert "the disk for scratch is full on h" in last["verdict_reason"]
        (told,) = [one.text for one in walk.stage.store.overview.attention() if one.kind == "failed"]
        assert "the disk for scratch is full on h" in told


def test_a_shared_root_that_fills_up_in_mid_run_costs_at_most_an_attempt(database_url: str) -> None:
    with disk("/scratch/shared", "24m") as root, walk_at(database_url, root.path / "root") as walk:
        for seconds, by in ((3, "ada"), (14, "bob")):
            walk.stage.submit(sleeping(seconds), by=by, gpus=["H100"])
        with overheard() as told, walk.daemon():
            for run in walk.stage.runs():
                began(walk, run["id"])
            walk.stage.wait_until(lambda: root.fill() or any(row["state"] == "dead" for row in walk.attempts()))
            walk.stage.wait_until(lambda: "put off" in told.getvalue())
            assert walk.stage.open_runs() == 2
            root.empty()
            ada, bob = walk.wait_ended(2)
        lost, kept, again = walk.attempts()
        assert (ada["verdict"], ada["attempts"]) == ("passed", 2), ada
        assert (bob["verdict"], bob["attempts"]) == ("passed", 1), "what ends when there is room again lost nothing"
        assert kept["run_id"] == bob["id"]
        assert (lost["run_id"], again["run_id"], lost["ending"]) == (ada["id"], ada["id"], "no_report")
        assert "the shared root" in lost["reason"] and "full" in lost["reason"], lost
        assert walk.gave_up() == lost["reason"]
        assert "is full" in told.getvalue()
        assert walk.verdicts() == 2 and walk.claims() == 3


def began(walk: Walk, run: int) -> None:
    def is_so() -> bool:
        (row,) = walk.stage.rows("SELECT name, state FROM attempt WHERE run_id = %s", run) or [
            {"state": "", "name": ""}
        ]
        place = Path(walk.site.paths.shared_root) / "attempts" / row["name"] / "out" / "heartbeat.json"
        return bool(row["state"] == "running" and place.exists())

    walk.stage.wait_until(is_so)
