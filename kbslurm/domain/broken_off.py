"""Ranked runs that break off, and what that costs. Pure.

A kernel can time itself and end its process in a run that goes badly: only lucky runs would then have a score. So a run
that breaks off while it is being ranked counts as a measurement that was slower than any other. As many measurements of
the next improvement are added, and the slowest of them counts: the median of all, which stays the same whichever of
the slower half breaks off.

Instead of ending itself it can sleep: a score that is bad beyond doubt is improved by the next run, and so drawn anew.
So a measurement that came out slower than the next submission's first one, although its own first one was as fast,
counts in the same way. And a measurement that is faster than its own first one beyond doubt doesn't count: otherwise
first ones could be slow, one less than the other, and the second one of each a draw.

What is looked at are a person's (or team's) last measurements of a board on a GPU type, whatever their code: two
kernels that differ by a space can't be told from two that differ by an idea.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from math import comb

from kbslurm.domain.amounts import counted
from kbslurm.domain.board import Measured, Timed, separated
from kbslurm.domain.measure import Yardstick, settled
from kbslurm.domain.run import RunId
from kbslurm.domain.verdict import Verdict
from kbslurm_eval.shared.wire import Report

LAST = 20  # so many measurements are looked back on
MOST = 5  # so many measurements are added at most
USUAL = 0.05  # of an honest person's measurements break off, at most
CHANCE = 0.001  # what is less probable than this isn't chance
FEWEST = 3  # fewer may always be chance
PUBLIC = frozenset({"test", "benchmark"})


@dataclass(frozen=True, kw_only=True)
class Past(Measured):
    """An earlier measurement of the same submission."""

    run: RunId


@dataclass(frozen=True, kw_only=True)
class Repeated:
    """A second or later measurement of another submission of the same side, and that one's first."""

    first: Measured
    later: Measured


@dataclass(frozen=True, kw_only=True)
class Again:
    """What scoring a second or later measurement needs to know. `first`: its submission's first one; `past`: the later
    ones that are over, oldest first. `broke_off`: how many of its side's last measurements did; `others`: those among
    them that repeated one."""

    first: Past
    past: tuple[Past, ...] = ()
    broke_off: int = 0
    others: tuple[Repeated, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Counted:
    """A verdict, and what follows from it: another measurement, or that an earlier one, which was slower, counts."""

    verdict: Verdict
    again: bool = False
    instead: RunId | None = None


def failed(verdict: Verdict) -> bool:
    """Whether it failed through its own doing."""
    return verdict.name not in ("passed", "infrastructure")


def broke_off(report: Report) -> bool:
    """Whether a ranked run failed once its public phases had passed."""
    passed = {phase.name for phase in report.phases if phase.passed}
    return report.mode == "leaderboard" and report.verdict not in ("passed", "infrastructure") and passed >= PUBLIC


def relapses(first: Measured, others: Sequence[Repeated]) -> int:
    """How many measurements came out slower than this first one, although their own first ones weren't."""
    return sum(_is_slower(one.later, first) and not _is_slower(one.first, first) for one in others)


def _is_slower(one: Timed, other: Timed) -> bool:
    return one.score_s > other.score_s and separated(one, other)


def measurements_due(known: Again) -> int:
    """How many measurements it takes, after the first one."""
    return 1 + min(known.broke_off + relapses(known.first, known.others), MOST)


def counted_after(verdict: Verdict, yard: Yardstick, known: Again) -> Counted:
    """What a second or later measurement comes to: the slowest counts, once there are enough."""
    if not verdict.ranked or verdict.score_s is None:
        return Counted(verdict=verdict)
    if len(known.past) + 1 < measurements_due(known):
        return Counted(verdict=verdict, again=True)
    score_s = verdict.score_s
    own = Measured(score_s=score_s, low_s=verdict.low_s or score_s, high_s=verdict.high_s or score_s)
    slowest: Measured | Past = max((own, *known.past), key=lambda one: one.score_s)
    if _is_slower(known.first, slowest):
        slowest = known.first
    if not isinstance(slowest, Past):
        return Counted(verdict=settled(verdict, yard)[0])
    stands = dataclasses.replace(verdict, score_s=slowest.score_s, low_s=slowest.low_s, high_s=slowest.high_s)
    found = settled(stands, yard)[0]
    return Counted(verdict=found) if found != stands else Counted(verdict=verdict, instead=slowest.run)


def beyond_chance(broke_off: int, of: int) -> bool:
    """Whether so many of these measurements hardly ever break off by chance."""
    ways = (comb(of, n) * USUAL**n * (1 - USUAL) ** (of - n) for n in range(broke_off, of + 1))
    return sum(ways) < CHANCE


def attention(who: str, board: str, gpu: str, broke_off: int, of: int, submissions: Sequence[int]) -> str:
    """What hosts are told about somebody whose ranked runs break off more often than by chance, and what to do."""
    numbers = " ".join(map(str, submissions))
    return (
        f"{broke_off} of the last {counted(of, 'ranked measurement')} of {who} on {board} ({gpu}) broke off while being"
        f" ranked, which hardly happens by chance: look for clocks and exits in the code (kbslurm submission code"
        f" {numbers} --out DIR)"
    )


def remarks(*, broke_off: bool, is_second: bool, measurements: int, ranked: bool) -> list[str]:
    """What its author is told about a run, without full stops. `is_second`: it isn't its submission's first one, of
    `measurements`."""
    found = []
    if broke_off:
        though = ", although its first measurement had passed" if is_second else ""
        found.append(
            f"it broke off while it was being ranked{though}: for each such run among the last {LAST} ranked"
            " measurements of the same person or team here, an improvement is measured once more, and the slowest"
            " measurement counts"
        )
    if ranked and is_second and measurements > 2:
        found.append(
            f"it was measured {measurements} times, since ranked runs of the same person or team broke off before it,"
            " or came out slower when they were measured again; the slowest counts, the first one aside"
        )
    if ranked and not is_second and measurements > 1:
        found.append("measured again, it was faster beyond measurement error, so the slower first measurement counts")
    return found
