"""Warm workers where clocks, other people's jobs and a second service say what a test cluster's don't: the folders are
a keeper's own, the scheduler's commands are stand-ins."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kbslurm.backends.paths import AttemptPaths
from kbslurm.backends.slurm.backend import SlurmBackend
from kbslurm.backends.slurm.reader import SQUEUE_FORMAT
from kbslurm.backends.slurm.warm.attempts import CLOSED
from kbslurm.backends.slurm.warm.keeper_folder import KeeperFolder
from kbslurm.domain.run import Ending, InKeeper, KeeperId, KeeperName, OpenAttempt, Seen
from kbslurm.flow.script import keepers_folder
from kbslurm.ports import JobSpec
from tests.contract.test_slurm_standins import Rig

KEEPER = KeeperName("kbk-" + "a" * 26)
IN = InKeeper(id=KeeperId(1), name=KEEPER, job=None)


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


@dataclasses.dataclass
class Handed:
    """An attempt that was handed over to a keeper whose script these tests play."""

    backend: SlurmBackend
    folder: KeeperFolder
    job: JobSpec
    attempt: OpenAttempt
    paths: AttemptPaths
    beats: int = 0

    @classmethod
    def over(cls, rig: Rig, *, monotonic: Callable[[], float] = time.monotonic) -> Handed:
        backend = SlurmBackend(rig.site, eval_dir=rig.eval_dir, environ=rig.environ, monotonic=monotonic)
        folder = KeeperFolder(root=keepers_folder(rig.site), name=KEEPER)
        folder.create()
        folder.beat.write_text("0")
        keeper = dataclasses.replace(IN, job="71")  # type: ignore[arg-type]
        job = dataclasses.replace(rig.finished(rig.job()), keeper=keeper)
        attempt = dataclasses.replace(rig.attempt(job, backend.submit(job)), keeper=keeper)
        paths = AttemptPaths(root=backend.root, name=job.name)
        return cls(backend=backend, folder=folder, job=job, attempt=attempt, paths=paths)

    def take(self) -> None:
        (self.folder.dir / "mail" / self.job.name).rename(self.folder.dir / "taken" / self.job.name)

    def claim(self, *, hours_ago: float = 0.0) -> None:
        assert self.paths.take_claim(b'{"job":"71.3","node":"n1"}')
        at = time.time() - 3600 * hours_ago
        os.utime(self.paths.owner, (at, at))

    def seen(self) -> tuple[Seen, Ending | None]:
        self.beats += 1
        self.folder.beat.write_text(str(self.beats))
        found = self.backend.poll([self.attempt])[self.job.name]
        return found.seen, found.ending


def shows(rig: Rig, steps: str) -> None:
    """squeue shows the keeper's job as running, and these steps."""
    row = f"71|{KEEPER}|RUNNING|2026-11-26T10:00:00|2026-11-26T10:00:00|n1|None"
    assert row.count("|") == SQUEUE_FORMAT.count("|")
    rig.says("squeue", f"case \"$*\" in *' -s '*) echo '{steps}';; *) echo '{row}';; esac")


@pytest.mark.parametrize("steps", ["71.3|job.sh", ""])
def test_a_node_whose_clock_is_late_has_no_overdue_runs(rig: Rig, steps: str) -> None:
    """What a file says of when it was written is its node's word, or its file server's. A run that has just begun is
    not ended for it, nor taken for ended."""
    shows(rig, steps)
    handed = Handed.over(rig)
    handed.take()
    handed.claim(hours_ago=1)
    assert handed.seen() == (Seen.RUNNING, None)
    assert rig.calls("scancel") == []
    assert rig.calls("squeue") == [], "its keeper says that it lives"


def test_a_run_that_is_overdue_by_our_clock_is_ended_whatever_its_keeper_says(rig: Rig) -> None:
    now = [1_000.0]
    shows(rig, "71.3|job.sh")
    handed = Handed.over(rig, monotonic=lambda: now[0])
    handed.take()
    handed.claim()
    assert handed.seen() == (Seen.RUNNING, None)
    now[0] += 3_600
    assert handed.seen() == (Seen.RUNNING, None)
    assert rig.calls("scancel") == ["--quiet 71.3"]
    shows(rig, "")
    assert handed.seen() == (Seen.ENDED, Ending.NO_REPORT)


def test_a_claim_that_a_service_took_and_died_over_is_closed_by_the_next(rig: Rig) -> None:
    handed = Handed.over(rig)
    assert handed.paths.take_claim(CLOSED)
    assert handed.seen() == (Seen.ENDED, Ending.WITHDRAWN)


def test_what_was_taken_back_never_starts_though_another_service_posts_it_again(rig: Rig) -> None:
    """Two services for a moment: one looked for the mail before the other posted it and took it back."""
    handed = Handed.over(rig)
    assert handed.folder.take_back(handed.job.name)
    assert handed.seen() == (Seen.ENDED, Ending.WITHDRAWN)
    (handed.folder.dir / "mail" / handed.job.name).write_text("60\n")
    handed.take()
    assert not handed.paths.take_claim(b"{}"), "a run that was queued again can't start here, too"


def test_who_waits_in_another_partition_for_the_same_nodes_waits_too_unless_it_is_for_what_is_left_over(
    rig: Rig,
) -> None:
    kind = dataclasses.replace(rig.site.gpus["T4"], partition="gpu")
    rig.site = dataclasses.replace(rig.site, gpus={"T4": kind})
    rows = [("n1", "gpu"), ("n1", "short"), ("n1", "scavenge"), ("n2", "cpu")]
    line = "printf '%-80s%-80s%-40s%-400s%-400s%-120s\\n' {} {} idle gpu:1 gpu:0 none\n"
    rig.says("sinfo", "".join(line.format(*row) for row in rows))
    tiers = {"gpu": 10, "short": 10, "scavenge": 1, "cpu": 10}
    shown = "".join(
        f"echo 'PartitionName={name} Nodes=n1 PriorityTier={tier} State=UP'\n" for name, tier in tiers.items()
    )
    rig.says("scontrol", f'case "$*" in *partition*) {shown};; *) echo "PrivateData = (null)";; esac')
    rig.says("squeue", "echo 'other|PENDING|Resources|short|train'")
    backend = rig.backend()
    seen = backend.others_wait("T4")
    assert seen == (True, "1 of other people's jobs wait there, some in short on the same nodes")
    assert [call.split()[-1] for call in rig.calls("squeue")] == ["gpu,short"], (
        "cpu shares no node, scavenge gets the rest"
    )
    before = sum(backend.calls().values())
    assert backend.others_wait("T4")[0] is True
    assert sum(backend.calls().values()) - before == 1, "what they share is learnt once an hour"


@pytest.mark.parametrize(("hidden", "others"), [("(null)", False), ("accounts,jobs", None), ("jobs", None)])
def test_who_sees_some_of_other_peoples_jobs_need_not_see_them_all(rig: Rig, hidden: str, others: bool | None) -> None:
    """An account's coordinator sees its members' jobs on a site that hides everybody else's."""
    rig.says("squeue", "echo 'other|RUNNING|None|gpu|train'")
    rig.says("scontrol", f"echo 'PrivateData             = {hidden}'")
    assert rig.backend().others_wait("T4")[0] is others
