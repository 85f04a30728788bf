"""The profilers that a site may run around a runner, as argv. Pure.

They read GPU counters from outside the submission's process and leave their file in the link's folder. The site's
configuration says which of them it has, and whether its driver lets ordinary users read counters.
"""

from __future__ import annotations

from typing import assert_never

from kbslurm.domain.site import Profiler

MOST_KERNELS = 60
LEFT_AS = "profile"


def around(profiler: Profiler, link: str) -> tuple[str, ...]:
    """The prefix of the runner's command; empty without a profiler."""
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
    """Nsight Compute: only kernels between cuProfilerStart and cuProfilerStop, up to a number, with what limits them;
    it leaves the clocks alone, since the site sets them."""
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
