"""What a probe job and the login node saw together, before it is graded."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from kbslurm_eval.shared.wire import Report


@dataclass(kw_only=True)
class Sight:
    """What a probe job and we saw together. Times are in seconds since the epoch, each by its own side's clock."""

    facts: Mapping[str, list[str]] = field(default_factory=dict)
    ping_sent_at: float | None = None
    ping_seen_at: float | None = None
    pong_sent_at: float | None = None
    won_here: frozenset[int] = frozenset()
    won_there: tuple[int, ...] = ()
    raced: bool = False
    report: Report | None = None
    unreported: str = ""

    def fact(self, name: str) -> str | None:
        """The last fact with this name."""
        return self.facts[name][-1] if self.facts.get(name) else None

    def number(self, name: str) -> float | None:
        """The same as a number."""
        try:
            return float(self.fact(name) or "")
        except ValueError:
            return None


def read_facts(text: str) -> dict[str, list[str]]:
    """The lines of a probe job by name. Invalid lines are skipped."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        with suppress(ValueError, KeyError, TypeError):
            told = json.loads(line)
            found.setdefault(str(told["name"]), []).append(str(told["value"]))
    return found
