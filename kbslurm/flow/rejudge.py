"""Rejudge: hosts choose runs, new verdicts are made next to the old ones, and count only when they are applied.

The new runs go through the same eight steps as all others; they queue behind everyone's own runs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

from kbslurm.domain.keepers import STARTS_WARM_S
from kbslurm.errors import Invalid
from kbslurm_eval.shared.wire import Mode, VerdictName

MOST_DIGITS = 18
KEYS = ("submission", "gpu", "verdict", "mode", "person")


@dataclass(frozen=True, kw_only=True)
class Filter:
    """A selection of a board's runs; a person by name."""

    submission: int | None = None
    gpu: str | None = None
    verdict: str | None = None
    mode: str | None = None
    person: str | None = None


def parsed(words: Sequence[str]) -> Filter:
    """`gpu=H100 verdict=wrong` as a filter; no words: every finished run of the board."""
    found: dict[str, str] = {}
    for word in words:
        key, sep, value = word.partition("=")
        if not sep or key not in KEYS or not value or key in found:
            raise Invalid(f"{word!r} isn't a valid filter", hint=f"Write KEY=VALUE, each key once: {', '.join(KEYS)}.")
        found[key] = value
    _check(found, "verdict", get_args(VerdictName))
    _check(found, "mode", get_args(Mode))
    number = found.pop("submission", None)
    if number is not None and not (number.isascii() and number.isdecimal() and len(number) <= MOST_DIGITS):
        raise Invalid(f"{number!r} isn't a submission number")
    return Filter(submission=None if number is None else int(number), **found)


def durations(runs: int, run_s: float, slots: int, cold_s: float | None, workers: int) -> dict[str, float | int | None]:
    """How long so many runs take, which together take `run_s`: by jobs of their own, of which `slots` are open at a
    time and wait `cold_s` each, and with so many warm workers. Other runs in the queue go before them."""
    each_s = run_s / runs if runs else 0.0
    by_jobs = None if cold_s is None or slots < 1 else math.ceil(runs / slots) * (each_s + cold_s)
    in_workers = None if workers < 1 else (run_s + runs * STARTS_WARM_S) / workers
    return {"cold_s": by_jobs, "warm_workers": workers, "warm_s": in_workers}


def _check(found: Mapping[str, str], key: str, known: Sequence[str]) -> None:
    if key in found and found[key] not in known:
        raise Invalid(f"there is no {key} {found[key]!r}", hint=f"Choose one of: {', '.join(known)}.")


def rows(matrix: Mapping[tuple[str, str], int]) -> tuple[list[str], list[list[str]]]:
    """The matrix as a table: (headings, rows); a row per old verdict, a column per new verdict."""
    after = sorted({now for _, now in matrix}, key=lambda name: (name == "open", name))
    before = sorted({old for old, _ in matrix})
    lines = [[old, *(str(matrix.get((old, now), "")) for now in after)] for old in before]
    return ["was", *(f"→ {now}" for now in after)], lines
