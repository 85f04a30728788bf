"""The tests that failed, for people: those that failed alike are one line. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kbslurm_eval.shared import test_numbers

QUIET = ("pass", "skipped")


def in_words(rows: Iterable[Mapping[str, Any]], most: int) -> list[str]:
    """`test 2 (n: 40): MESSAGE`, `tests 1-8, first (n: 40): MESSAGE`; at most so many lines."""
    alike: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        if row.get("status") not in QUIET and row.get("message"):
            alike.setdefault((str(row["phase"]), str(row["message"])), []).append(row)
    return [_line(phase, message, found) for (phase, message), found in list(alike.items())[:most]]


def once(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Each row's message; one that stood before is `as in test N`."""
    first: dict[str, int] = {}
    told: list[str] = []
    for row in rows:
        message = str(row.get("message") or "")
        is_test = row.get("phase") == "test" and row.get("status") not in QUIET
        number = int(row.get("index", 0)) + 1
        said_at = first.setdefault(message, number) if message and is_test else number
        told.append(message if said_at == number else f"as in test {said_at}")
    return told


def _line(phase: str, message: str, rows: list[Mapping[str, Any]]) -> str:
    spec = f"({rows[0]['spec']})"
    if phase != "test":
        return f"{phase} {int(rows[0]['index']) + 1} {spec}: {message}"
    which = test_numbers.in_words(int(row["index"]) + 1 for row in rows)
    return f"{which}, first {spec}: {message}" if len(rows) > 1 else f"{which} {spec}: {message}"
