"""Named points between commits where a process can be killed on purpose, to prove that dying there loses nothing.

`crash_point("launch.after_submit")` does nothing, unless KBSLURM_PROBE names it: `name` kills this process with SIGKILL
the first time it gets there, `name:3` the third time. CRASH_POINTS lists those of the walk on this machine, and a test
reaches each; the other lists cover submitting to a cluster, GitHub and Modal, moving runs between places, and keepers.
"""

from __future__ import annotations

import os
import signal
from collections import Counter

VARIABLE = "KBSLURM_PROBE"
CRASH_POINTS = (
    "accept.before_commit",
    "accept.after_commit",
    "queue.before_claim",
    "queue.after_claim",
    "launch.before_submit",
    "local.folder",
    "local.placed",
    "local.held",
    "local.forked",
    "local.started",
    "launch.after_submit",
    "launch.after_note",
    "collect.before_poll",
    "collect.after_poll",
    "collect.after_read",
    "score.before_commit",
    "score.after_commit",
    "give_up.before_commit",
    "give_up.after_commit",
    "recover.before_find",
    "recover.after_find",
    "recover.after_resend",
    "cancel.before_effect",
    "cancel.after_effect",
    "cancel.after_commit",
)
SLURM_CRASH_POINTS = ("slurm.folder", "slurm.sent", "slurm.submitted")
SLURM_KEEPER_CRASH_POINTS = ("slurm.keeper_folder", "slurm.keeper_sent", "slurm.keeper_submitted")
GITHUB_CRASH_POINTS = ("github.payload", "github.sending", "github.sent")
MODAL_CRASH_POINTS = ("modal.intent", "modal.placed", "modal.spawned", "modal.started")
RAY_CRASH_POINTS = ("ray.offering", "ray.sending", "ray.sent")
OVERFLOW_CRASH_POINTS = (
    "breaker.before_commit",
    "breaker.after_commit",
    "withdraw.before_wish",
    "withdraw.after_wish",
    "withdraw.before_commit",
    "withdraw.after_commit",
)
KEEPER_CRASH_POINTS = (
    "keeper.before_order",
    "keeper.after_order",
    "keeper.before_submit",
    "keeper.after_submit",
    "keeper.after_note",
    "keeper.before_drain",
    "keeper.before_cancel",
    "keeper.before_end",
)

passed: Counter[str] = Counter()


def crash_point(name: str) -> None:
    """Continue, or die here if the environment says so."""
    passed[name] += 1
    wanted = os.environ.get(VARIABLE)
    if wanted and _is_due(wanted, name):
        os.kill(os.getpid(), signal.SIGKILL)


def _is_due(wanted: str, name: str) -> bool:
    place, _, nth = wanted.partition(":")
    return place == name and passed[name] == int(nth or 1)
