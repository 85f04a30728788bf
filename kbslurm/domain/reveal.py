"""A frozen board opened from the bottom up, one result at a time, as programming contests do it. Pure.

Whoever has submitted since the freeze waits. Each step opens the lowest of those who wait: their result takes the place
of the frozen one, and they move to where it belongs. People who have a place only since the freeze come first. What a
step shows follows from what was opened up to it, so nobody learns anything of those who still wait.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from kbslurm.domain.board import Entry, Ranking

Side = int | str


@dataclass(frozen=True, kw_only=True)
class Opened:
    """The result that a step has opened. `before` and `after`: the places, None: without one; `was`: the frozen
    result."""

    side: Side
    entry: Entry | None
    was: Entry | None
    before: int | None
    after: int | None

    @property
    def rises(self) -> int:
        """By how many places they rise; below zero, they fall."""
        return 0 if self.before is None or self.after is None else self.before - self.after


@dataclass(frozen=True, kw_only=True)
class Revealed:
    """The standings after so many steps. `waiting`: those of them who still wait; `following`: whose result is opened
    next, None where that is a newcomer's or nobody's."""

    step: int
    rows: Ranking
    opened: Opened | None
    waiting: frozenset[Side]
    following: Side | None
    is_over: bool


def revealed(frozen: Iterable[Entry], true: Iterable[Entry], since: Collection[Side], step: int) -> Revealed:
    """What is shown after this step; beyond the last one, what that shows. `frozen` and `true`: the standings as
    everybody sees them and as they are; `since`: who has submitted since the freeze."""
    before, after = _by_side(frozen), _by_side(true)
    order = _order(before, after, since)
    step = min(step, len(order))
    rows = Ranking(_shown(before, after, order[:step]).values())
    return Revealed(
        step=step,
        rows=rows,
        opened=_opened(before, after, order[:step]) if step else None,
        waiting=frozenset(side for side in order[step:] if side in before),
        following=order[step] if step < len(order) and order[step] in before else None,
        is_over=step == len(order),
    )


def step_of_top(frozen: Iterable[Entry], true: Iterable[Entry], since: Collection[Side], top: int) -> int:
    """The step after which only those still wait who stood among the first `top` when the board froze."""
    before = _by_side(frozen)
    first = set(list(before)[:top])
    return sum(side not in first for side in _order(before, _by_side(true), since))


def _order(before: Mapping[Side, Entry], after: Mapping[Side, Entry], since: Collection[Side]) -> list[Side]:
    """Whose results are opened, in this order. Those who wait keep theirs among themselves whatever is opened."""
    newcomers = [side for side in reversed(list(after)) if side not in before]
    waiting = [side for side in reversed(list(before)) if side in since or after.get(side) != before[side]]
    return [*newcomers, *waiting]


def _shown(before: Mapping[Side, Entry], after: Mapping[Side, Entry], opened: Iterable[Side]) -> dict[Side, Entry]:
    shown = dict(before)
    for side in opened:
        shown.pop(side, None)
        if side in after:
            shown[side] = after[side]
    return shown


def _opened(before: Mapping[Side, Entry], after: Mapping[Side, Entry], opened: list[Side]) -> Opened:
    side = opened[-1]
    return Opened(
        side=side,
        entry=after.get(side),
        was=before.get(side),
        before=_place(_shown(before, after, opened[:-1]), side),
        after=_place(_shown(before, after, opened), side),
    )


def _place(shown: Mapping[Side, Entry], side: Side) -> int | None:
    sides = [one.side for one in Ranking(shown.values()).entries]
    return sides.index(side) + 1 if side in shown else None


def _by_side(entries: Iterable[Entry]) -> dict[Side, Entry]:
    """Each one's best, in order."""
    return {one.side: one for one in Ranking(entries).entries}
