"""Whether a site's Slurm takes in new nodes, and the lines of slurm.conf that it lacks for that."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest

from kbslurm.backends.slurm.doctor.growing import growth_finding
from kbslurm.domain.finding import Grade
from kbslurm.domain.site import GpuType, Paths, Site

OPEN = "PartitionName=all NodeSets=ALL Nodes=a[1-2]\nPartitionName=gpu NodeSets=h100s Nodes=a1\n"
NAMED = "PartitionName=all NodeSets=ALL Nodes=a[1-2]\nPartitionName=gpu Nodes=a1\nPartitionName=other Nodes=a2\n"
CAN = {"MaxNodeCount": "6", "SelectType": "select/cons_tres"}


def site(*partitions: str) -> Site:
    return Site(
        name="here",
        paths=Paths(shared_root=PurePosixPath("/shared")),
        gpus={f"G{n}": GpuType(name=f"G{n}", partition=name) for n, name in enumerate(partitions)},
    )


@pytest.mark.parametrize(
    ("settings", "nodes", "partitions", "said"),
    [
        (CAN, 5, OPEN, "1 more node can register with slurmd -Z (MaxNodeCount=6, and 5 are there); docs/add-a-gpu.md"),
        (CAN, 1, OPEN, "5 more nodes can register with slurmd -Z (MaxNodeCount=6, and 1 is there); docs"),
        (CAN, 6, OPEN, "(MaxNodeCount=6, and 6 are there); to allow it, in slurm.conf: MaxNodeCount=22; docs"),
        (
            {**CAN, "SelectType": "select/linear"},
            5,
            OPEN,
            (
                "can't register with slurmd -Z, and nothing of ours needs that (MaxNodeCount=6, and 5 are there);"
                " to allow it, in slurm.conf: SelectType=select/cons_tres; docs"
            ),
        ),
        (
            CAN,
            5,
            NAMED,
            (
                "but not in every partition of ours; for that, in slurm.conf: NodeSet=grown Feature=grown;"
                " PartitionName=gpu Nodes=…,grown; docs"
            ),
        ),
        (
            {**CAN, "MaxNodeCount": "5", "SelectType": "select/linear"},
            5,
            NAMED,
            (
                "in slurm.conf: SelectType=select/cons_tres; MaxNodeCount=21; NodeSet=grown Feature=grown;"
                " PartitionName=gpu Nodes=…,grown; docs"
            ),
        ),
        ({}, 5, OPEN, "this Slurm has none (22.05 or newer has)"),
        (CAN, None, OPEN, "sinfo doesn't say how many nodes"),
    ],
)
def test_it_says_whether_nodes_can_be_added_and_what_is_missing(
    settings: dict[str, str], nodes: int | None, partitions: str, said: str
) -> None:
    found = growth_finding(site("gpu", "gpu", "all", "elsewhere"), settings, nodes, partitions)
    assert found.grade is Grade.PASS, "no site needs this for anything"
    assert said in found.text
