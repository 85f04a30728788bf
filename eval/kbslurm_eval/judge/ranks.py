"""How many ranks a problem has, and what that means for its limits."""

from __future__ import annotations

from dataclasses import replace

from kbslurm_eval.judge import finals
from kbslurm_eval.judge.reference import ProblemTrouble
from kbslurm_eval.shared.wire import Limits, Manifest

MOST = 64


def world_of(manifest: Manifest) -> int:
    """How many ranks every case of this problem has; 1 for problems without `world_size`."""
    cases = [*manifest.tests, *manifest.benchmarks, *manifest.hidden]
    found = {case.get("world_size") for case in cases}
    if found <= {None}:
        return 1
    if len(found) > 1:
        raise ProblemTrouble("the problem's cases differ in world_size, but all of them run in one launch")
    (world,) = found
    if type(world) is not int or not 1 <= world <= MOST:
        raise ProblemTrouble(f"world_size is {world!r}; it must be between 1 and {MOST}")
    return world


def ranks_of(manifest: Manifest) -> int:
    """The same, or 1 if it can't be determined; the judge's report says why."""
    try:
        return world_of(manifest)
    except ProblemTrouble:
        return 1


def limits_of(manifest: Manifest) -> Limits:
    """The limits of one launch: a problem's memory and processes are each rank's, and a final's memory is all its
    runners'."""
    world, limits = ranks_of(manifest), manifest.limits
    limits = replace(limits, memory_bytes=limits.memory_bytes // finals.many(manifest.config))
    if world == 1:
        return limits
    return replace(limits, memory_bytes=limits.memory_bytes * world, processes=(limits.processes + 1) * world)
