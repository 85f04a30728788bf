"""What a profiler around a runner leaves in the folder of its link, by name. It is known on both sides of the link."""

from __future__ import annotations

from kbslurm_eval.shared.wire import ARTIFACT_CAP

LOG = "profile.log"
FILE_CAP = ARTIFACT_CAP
LEFT = {
    "ncu": (
        *("profile.details.txt", "profile.details.csv", "profile.raw.csv", "profile.source.csv"),
        *("profile.ncu-rep", LOG),
    ),
    "rocprof": ("profile_kernel_stats.csv", "profile_kernel_trace.csv", "profile_results.pftrace", LOG),
}


def short(name: str) -> str:
    """What it is, without the prefix that they share."""
    return name.removeprefix("profile").lstrip("._").removeprefix("results.")
