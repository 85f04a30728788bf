"""Scripts that hosts run on a GPU without a board: a built-in problem whose run is the script itself. Pure.

Such a run is a run like any other: queued, placed, caged, retried by class, with one verdict. It never ranks, and no
list has it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kbslurm.domain.intake import Offer
from kbslurm.domain.policy import QUOTA_WINDOW, RUNS_END
from kbslurm.domain.problem import Problem
from kbslurm.domain.source import Source, checked_source
from kbslurm.errors import Invalid, QuotaSpent, Refused
from kbslurm_eval.shared.scripts import SCRIPT
from kbslurm_eval.shared.wire import Build, Limits

NAME = "(script)"  # of the built-in problem and of what stands in its board's place: no name that anybody can give
DEFAULT_S, MOST_S = 60, 600
MEMORY_BYTES = 8 << 30
PROCESSES = 512
FILE_BYTES = 1 << 30
DEFAULT_GPU_S_PER_DAY = 600.0


@dataclass(frozen=True, kw_only=True)
class Spent:
    """What somebody's scripts have used within a day, what open ones may still take, and when the first one ended."""

    used_s: float = 0.0
    open_s: float = 0.0
    oldest_use_at: datetime | None = None


def problem(timeout_s: int) -> Problem:
    """The problem whose only run is a script that may take this long. Each limit is a version of its own."""
    return Problem(
        name=NAME,
        description="A script of a host's: run once, and never ranked.",
        files={},
        config={SCRIPT: True},
        tests=(),
        cold="no",
        modes=("test",),
        build=Build(when="never"),
        limits=Limits(
            test_s=float(timeout_s), memory_bytes=MEMORY_BYTES, processes=PROCESSES, file_bytes=FILE_BYTES
        ),
    )  # fmt: skip


def checked_script(file_name: str, data: bytes) -> Source:
    """The file as a script, or Invalid."""
    if not file_name.lower().endswith(".py"):
        raise Invalid(
            f"{file_name[:80]!r} isn't a Python file",
            hint="A script is one .py file; compile CUDA or C++ from there, with nvcc or torch's load_inline.",
        )
    return checked_source(file_name, data)


def checked_timeout(seconds: int) -> int:
    """The limit, or Invalid."""
    if not 1 <= seconds <= MOST_S:
        raise Invalid(f"a script may take 1 to {MOST_S} s, not {seconds}", hint="Choose a shorter time limit.")
    return seconds


def chosen_gpu(asked: str, offers: tuple[Offer, ...], place: str | None, *, staff: bool) -> tuple[str, str | None]:
    """The GPU type and, if one was named, the place, as the service writes them; Invalid if that isn't on offer."""
    mine = [one for one in offers if one.is_for(staff=staff)]
    if place is not None:
        named = [one for one in mine if one.name.lower() == place.strip().lower()]
        if not named:
            known = ", ".join(one.name for one in mine) or "none"
            raise Invalid(f"there is no place {place[:64]!r} for scripts", hint=f"Choose one of: {known}.")
        mine = named
    types = {gpu.lower(): gpu for one in mine for gpu in one.gpus}
    found = types.get(asked.strip().lower())
    if found is None:
        where = "no place" if place is None else mine[0].name
        known = ", ".join(sorted(types.values()))
        raise Invalid(
            f"{where} has {'a' if place is None else 'no'} GPU of type {asked[:64]!r}",
            hint=f"Choose one of: {known}." if known else "No place offers any GPU at the moment.",
        )
    return found, mine[0].name if place is not None else None


def check_budget(spent: Spent, timeout_s: int, most_gpu_s: float, now: datetime) -> None:
    """Refuse a script that could take more than is left of a person's day. Open ones count at their limit."""
    if most_gpu_s <= 0:
        raise Refused(
            "scripts are turned off here", hint="Set [policy] script_gpu_s_per_day in kbslurm.toml to allow them."
        )
    held_s = spent.used_s + spent.open_s
    if held_s + timeout_s <= most_gpu_s:
        return
    what = f"GPU-seconds for your scripts within a day, with {timeout_s} s for this one"
    if timeout_s > most_gpu_s:
        raise QuotaSpent(
            what, used=round(held_s, 1), limit=most_gpu_s, resets_at=None, hint="Choose a shorter time limit."
        )
    soonest = now + RUNS_END if spent.oldest_use_at is None else spent.oldest_use_at + QUOTA_WINDOW
    at = now + RUNS_END if spent.open_s and spent.used_s + timeout_s <= most_gpu_s else max(soonest, now)
    left = max(0, int(most_gpu_s - held_s))
    hint = f"Choose a time limit of {left} s or less, or try again after {at:%Y-%m-%d %H:%M %Z}." if left else None
    raise QuotaSpent(what, used=round(held_s, 1), limit=most_gpu_s, resets_at=at, hint=hint)


def since(now: datetime) -> datetime:
    """From when on use counts."""
    return now - QUOTA_WINDOW


def output_of(detail: dict[str, Any] | None) -> str:
    """What the script wrote, out of its verdict's detail."""
    found = (detail or {}).get("log")
    return found if isinstance(found, str) else ""
