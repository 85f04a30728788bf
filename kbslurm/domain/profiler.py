"""The profilers that a site may run around a runner, as argv. Pure.

They read GPU counters from outside the submission's process and leave their files in the link's folder. The site's
configuration says which of them it has, and whether its driver lets ordinary users read counters. What they are asked
for is the harness's business (`kbslurm_eval.runner.profiled`).
"""

from __future__ import annotations

from kbslurm.domain.site import Profiler


def around(profiler: Profiler, link: str) -> tuple[str, ...]:
    """The prefix of the runner's command in a container; empty without a profiler."""
    return () if profiler == "none" else ("python3", "-I", "-B", "/eval", "--profiled", profiler, link)
