"""Whether a site's Slurm takes in nodes that aren't in slurm.conf (`slurmd -Z`), and the lines it lacks. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kbslurm.backends.slurm.doctor.partitions import node_sets
from kbslurm.domain.finding import Finding, passed
from kbslurm.domain.site import Site

NAME = "dynamic nodes"
NODE_SET = "grown"
SPARE = 16
COUNT_FORMAT = "%D"  # asked for alone: how many nodes there are, each once
_PAGE = "docs/add-a-gpu.md has the rest"


def growth_finding(site: Site, settings: Mapping[str, str], nodes: int | None, partitions: str) -> Finding:
    """Whether nodes can be added without a restart. Nothing of ours needs that, so it is never more than said.

    `nodes`: how many there are; `partitions`: what `scontrol -o show partition` prints.
    """
    most = settings.get("MaxNodeCount", "")
    if not most.isdigit():
        return passed(NAME, "this Slurm has none (22.05 or newer has); a node is added in slurm.conf")
    if nodes is None:
        return passed(NAME, "unknown: sinfo doesn't say how many nodes there are")
    lacks = list(_lacking(site, settings, int(most), nodes, partitions))
    spare = int(most) - nodes
    here = f"MaxNodeCount={most}, and {nodes} {'is' if nodes == 1 else 'are'} there"
    if not lacks:
        some = f"{spare} more {'node' if spare == 1 else 'nodes'} can register with slurmd -Z ({here})"
        return passed(NAME, f"{some}; {_PAGE}")
    if spare > 0 and _can_choose(settings):
        told = f"can register with slurmd -Z ({here}), but not in every partition of ours; for that"
    else:
        told = f"can't register with slurmd -Z, and nothing of ours needs that ({here}); to allow it"
    return passed(NAME, f"{told}, in slurm.conf: {'; '.join(lacks)}; {_PAGE}")


def _can_choose(settings: Mapping[str, str]) -> bool:
    """Whether Slurm's choice of nodes copes with new ones: cons_tres alone does."""
    return settings.get("SelectType", "") == "select/cons_tres"


def _lacking(site: Site, settings: Mapping[str, str], most: int, nodes: int, partitions: str) -> Iterator[str]:
    """The lines of slurm.conf that would have to be there."""
    if not _can_choose(settings):
        yield "SelectType=select/cons_tres"
    if most <= nodes:
        yield f"MaxNodeCount={nodes + SPARE}"
    sets = node_sets(partitions)
    ours = dict.fromkeys(gpu.partition for gpu in site.gpus.values() if gpu.partition in sets)
    closed = [name for name in ours if not sets[name]]
    if closed:
        yield f"NodeSet={NODE_SET} Feature={NODE_SET}"
    for name in closed:
        yield f"PartitionName={name} Nodes=…,{NODE_SET}"
