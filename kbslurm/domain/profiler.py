"""The programs that a site may start around a runner for a profile, as argv. Pure.

They look at GPU counters from outside of the submission's process and leave their file in the folder of the link. Which
of them a site has, and whether its driver lets an ordinary user read counters, its configuration says.
"""

from __future__ import annotations

from typing import assert_never

from kbslurm.domain.site import Profiler

MOST_KERNELS = 60
LEFT_AS = "profile"


def around(profiler: Profiler, link: str) -> tuple[str, ...]:
    """What stands before the runner's own command; nothing without a profiler."""
    match profiler:
        case "none":
            return ()
        case "ncu":
            return _ncu(link)
        case "rocprof":
            return _rocprof(link)
        case _:
            assert_never(profiler)


def _ncu(link: str) -> tuple[str, ...]:
    """Nsight Compute: only kernels between cuProfilerStart and cuProfilerStop, so many, with what bounds
    them; clocks as they are, for the site sets those."""
    return (
        *("ncu", "--target-processes", "all", "--profile-from-start", "off", "--set", "basic"),
        *("--section", "SpeedOfLight", "--section", "MemoryWorkloadAnalysis", "--launch-count", str(MOST_KERNELS)),
        *("--clock-control", "none", "--force-overwrite", "--export", f"{link}/{LEFT_AS}"),
    )


def _rocprof(link: str) -> tuple[str, ...]:
    """rocprofv3: each kernel's time, as tables."""
    return (
        *("rocprofv3", "--kernel-trace", "--stats", "--truncate-kernels", "--output-format", "csv"),
        *("--output-directory", link, "--output-file", LEFT_AS, "--"),
    )
