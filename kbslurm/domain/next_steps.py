"""What to try after a verdict, in sentences: for agents, who read nothing else. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_AFTER = {
    "wrong": "Read the failures: they name the case and what differs. Fix that, and submit in mode test.",
    "error": "It crashed or didn't build: read the reason and the log, fix the code, and submit in mode test.",
    "timeout": "It took too long: check for an endless loop or a far too slow path on the largest case.",
    "memory": "It used too much memory: allocate less, and don't keep inputs or outputs of earlier calls.",
    "violation": (
        "It did something that isn't allowed. Don't look for another way around the task: remove that part, and compute"
        " the result within the call."
    ),
    "infrastructure": "The cluster failed, not the code. Submit the same code again; ask a host if that fails too.",
    "cancelled": "It was cancelled, so it has no verdict. Submit again if that wasn't meant.",
}
_PASSED = {
    "test": "It is correct on the public cases. Submit in mode benchmark to see its times.",
    "benchmark": (
        "Compare the time with your earlier ones. Mode profile says what limits it; mode leaderboard makes it count."
    ),
    "profile": "Call profile with this number: it says what limits the kernel and what to try.",
}


def after(verdict: str | None, mode: str, *, not_ranked: str | None = None, is_local: bool = False) -> str:
    """What to try after a run's verdict; None: it has none yet. `is_local`: it was judged here, not submitted."""
    if verdict is None:
        return "It isn't finished. Wait, and call status with its number; don't submit the same code again."
    if verdict != "passed":
        return _AFTER.get(verdict, "Read the reason.")
    if is_local:
        return "It passed here. Submit it: first in mode test, then benchmark; this machine's times say little."
    if mode == "leaderboard":
        if not_ranked:
            return f"It passed but doesn't rank: {not_ranked}."
        return "It counts on the leaderboard. Mode profile says what limits it, if it should get faster."
    return _PASSED.get(mode, "It passed.")


def after_all(runs: Sequence[tuple[str | None, str | None]], mode: str) -> list[str]:
    """The same of a submission's runs, given as (verdict, why it isn't ranked): each sentence once."""
    return list(dict.fromkeys(after(verdict, mode, not_ranked=why) for verdict, why in runs))


def of_profile(digests: Sequence[Mapping[str, Any]]) -> list[str]:
    """The profilers' hints: each once."""
    hints = list(dict.fromkeys(str(hint) for row in digests for hint in row.get("hints") or ()))
    return hints or ["The profile has no hint. Look at the kernels that take most of the time."]
