"""Judge again: hosts choose runs, new verdicts are made beside the old ones, and count only when they are applied.

The new runs walk through the same eight rooms as every other; they wait behind everybody's own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

from kbslurm.errors import Invalid
from kbslurm_eval.wire import Mode, VerdictName

KEYS = ("submission", "gpu", "verdict", "mode", "person")


@dataclass(frozen=True, kw_only=True)
class Filter:
    """Which runs of a board are meant; a person by name."""

    submission: int | None = None
    gpu: str | None = None
    verdict: str | None = None
    mode: str | None = None
    person: str | None = None


def parsed(words: Sequence[str]) -> Filter:
    """`gpu=H100 verdict=wrong` as a filter; no words: every run of the board that has ended."""
    found: dict[str, str] = {}
    for word in words:
        key, sep, value = word.partition("=")
        if not sep or key not in KEYS or not value or key in found:
            raise Invalid(f"{word!r} chooses nothing", hint=f"Write KEY=VALUE, once each: {', '.join(KEYS)}.")
        found[key] = value
    _check(found, "verdict", get_args(VerdictName))
    _check(found, "mode", get_args(Mode))
    number = found.pop("submission", None)
    if number is not None and not (number.isascii() and number.isdecimal()):
        raise Invalid(f"{number!r} is no submission's number")
    return Filter(submission=None if number is None else int(number), **found)


def _check(found: Mapping[str, str], key: str, known: Sequence[str]) -> None:
    if key in found and found[key] not in known:
        raise Invalid(f"there is no {key} {found[key]!r}", hint=f"Choose one of: {', '.join(known)}.")


def rows(matrix: Mapping[tuple[str, str], int]) -> tuple[list[str], list[list[str]]]:
    """The matrix as a table: (headings, lines); a line per verdict before, a column per verdict now."""
    after = sorted({now for _, now in matrix}, key=lambda name: (name == "open", name))
    before = sorted({old for old, _ in matrix})
    lines = [[old, *(str(matrix.get((old, now), "")) for now in after)] for old in before]
    return ["was", *(f"→ {now}" for now in after)], lines
