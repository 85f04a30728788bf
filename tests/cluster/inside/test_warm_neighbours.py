"""Whether other people's jobs wait for what a keeper holds: one call, and where it can't be seen, that is said."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kbslurm.backends.slurm.backend import SlurmBackend
from kbslurm.domain.run import Seen
from tests.cluster.inside import control
from tests.cluster.inside.site import site_at
from tests.cluster.inside.warming import OpenKeeper, opened, wait_keeper
from tests.contract.backend_suite import make_eval

CONF = "/etc/slurm/slurm.conf"


@pytest.fixture
def backend(request: pytest.FixtureRequest) -> Iterator[SlurmBackend]:
    folder = Path("/shared/neighbours") / request.node.name
    eval_dir = make_eval(folder / "eval")
    yield SlurmBackend(site_at(folder / "root", runtime="none"), eval_dir=eval_dir)
    control.as_root("scancel", "-u", "other")
    control.as_root("scancel", "-u", "kb")
    control.settle()


@pytest.fixture
def keeper(backend: SlurmBackend) -> OpenKeeper:
    return opened(backend, backend._eval_dir, "H100")


def others_submit(*options: str, partition: str = "gpu-h100") -> None:
    words = f"cd /tmp && exec sbatch --parsable -p {partition} --mem=100M -o /dev/null --wrap 'sleep 300' "
    control.as_root("runuser", "-u", "other", "--", "sh", "-c", words + " ".join(options))


def test_nobody_waits_then_somebody_does(backend: SlurmBackend, keeper: OpenKeeper) -> None:
    asked = backend.calls().get("squeue", 0)
    assert backend.others_wait("H100") == (False, "nobody else's job waits there")
    others_submit("--hold", "--gres=gpu:h100:1")  # it waits, but for no GPU
    assert backend.others_wait("H100")[0] is False
    for _ in range(2):
        others_submit("--gres=gpu:h100:3", "-N1", "--exclusive")  # the keeper's node isn't free for the second
    seen = [backend.others_wait("H100")]
    while seen[-1] != (True, "1 of other people's jobs wait there"):  # for a moment both of them do
        seen.append(backend.others_wait("H100"))
        assert len(seen) < 200, seen
    assert backend.calls()["squeue"] - asked <= len(seen) + 3


def test_somebody_waits_in_another_partition_for_the_same_nodes(backend: SlurmBackend, keeper: OpenKeeper) -> None:
    assert backend.others_wait("H100") == (False, "nobody else's job waits there")
    told = sum(backend.calls().values())
    node = keeper.script_node()
    others_submit(
        "--gres=gpu:h100:3", "-w", node, "--exclusive", partition="low"
    )  # a tier below: for what is left over
    assert backend.others_wait("H100")[0] is False
    others_submit("--gres=gpu:h100:3", "-w", node, "--exclusive", partition="all")
    waits = (True, "1 of other people's jobs wait there, some in all on the same nodes")
    seen = [backend.others_wait("H100")]
    while seen[-1] != waits:  # it hasn't been looked at yet
        seen.append(backend.others_wait("H100"))
        assert len(seen) < 200, seen
    assert sum(backend.calls().values()) - told == 1 + len(seen), "one call each: which partitions these are was known"


def test_a_site_that_hides_other_peoples_jobs_says_nothing_about_them(backend: SlurmBackend) -> None:
    control.as_root("sh", "-c", f"echo PrivateData=jobs >>{CONF}; scontrol reconfigure")
    try:
        others_submit("--gres=gpu:h100:1")
        assert backend.others_wait("H100") == (None, "this site hides other people's jobs, so they may be waiting")
    finally:
        control.as_root("sh", "-c", f"sed -i /PrivateData=jobs/d {CONF}; scontrol reconfigure")


def test_a_keeper_that_is_drained_goes_without_a_call(backend: SlurmBackend, keeper: OpenKeeper) -> None:
    before = dict(backend.calls())
    backend.drain_keeper(keeper.keeper)
    ended = wait_keeper(backend, keeper, lambda seen: seen.seen is Seen.ENDED)
    assert (ended.ending, keeper.folder.drain.exists(), backend.calls()) == ("drained", True, before)
    backend.end_keeper(keeper.keeper)  # safe when it is over
    assert backend.find_keeper(keeper.keeper.name).ending == "drained"
