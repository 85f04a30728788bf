"""A final: several submissions measured head to head in one job, in turns.

The manifest's `config.rivals` holds their texts. In the ranked phase each has a runner of its own in every launch, and
after every go of the manifest's own submission (and of the baseline) each rival has one too, in an order drawn anew
each time: one call, or several where those are short, as in any other run. A rival that fails is out, with its verdict;
it ends nothing for the others.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kbslurm_eval.shared import timing
from kbslurm_eval.shared.time_limits import rivals_of

if TYPE_CHECKING:
    from kbslurm_eval.judge.reference import Case
    from kbslurm_eval.shared.wire import LaunchSamples, PhaseName

_DICE = random.SystemRandom()
Call = Callable[[Any, "Case", tuple[int, int], tuple[str, ...], int], "tuple[Exception | None, list[int]]"]


def many(config: Mapping[str, Any]) -> int:
    """How many runners a final's limits must cover, including the lead and the baseline; 1 in an ordinary run."""
    return len(rivals_of(config)) + 2 if rivals_of(config) else 1


def lead_is_finalist(config: Mapping[str, Any]) -> bool:
    """Whether this is a final without a trusted lead: its lead is the first of the finalists, whose fault ends nothing
    for the others, in whatever phase."""
    return bool(rivals_of(config)) and not isinstance(config.get("baseline"), str)


LEAD = -1  # among finalists by number, where it is one of them


def without_room(builds: Mapping[int, int], each: int, room: int) -> list[int]:
    """Whose builds have no place where all links lie, the largest first: `builds` says how much each finalist's takes,
    and `each` what one's link takes. Nobody where all that leave something would have to go: then it isn't a build that
    is too large, but too little for this problem."""
    out: list[int] = []
    wanted = sum(builds.values()) + each * len(builds)
    for who in sorted(builds, key=lambda who: (-builds[who], who)):
        if wanted <= room:
            return out
        if not builds[who]:
            return []
        out.append(who)
        wanted -= builds[who] + each
    return out if wanted <= room else []


@dataclass(kw_only=True)
class Rivals:
    """The finalists that are still in, over all launches of the phase."""

    sources: list[str]
    out: dict[int, dict[str, str]] = field(default_factory=dict)

    def fell(self, rival: int, fault: Exception) -> None:
        """Drop this finalist, and say why."""
        verdict, reason = getattr(fault, "verdict", "error"), getattr(fault, "bare_reason", str(fault))
        self.out.setdefault(rival, {"verdict": str(verdict), "reason": str(reason)})

    def told(self) -> list[dict[str, Any]]:
        """What the report says about them besides their samples."""
        return [{"rival": n, **self.out.get(n, {"verdict": "passed", "reason": ""})} for n in range(len(self.sources))]


@dataclass(kw_only=True)
class RivalLaunches:
    """One launch of everybody. `open_one` gives a runner with the text in it and its null calls' times, or raises."""

    rivals: Rivals
    open_one: Callable[[int, str], tuple[Any, dict[int, timing.LaunchTimes]]]
    call: Call
    fault: type[Exception]
    launches: dict[int, Any] = field(default_factory=dict)
    times: dict[int, dict[int, timing.LaunchTimes]] = field(default_factory=dict)

    def begin(self) -> None:
        """Start the finalists that are still in."""
        for rival, source in enumerate(self.rivals.sources):
            if rival in self.rivals.out:
                continue
            try:
                self.launches[rival], self.times[rival] = self.open_one(rival, source)
            except self.fault as fault:
                self.rivals.fell(rival, fault)

    def step(self, case: Case, parts: tuple[int, int], *, wanted: int) -> None:
        """One go of each on this case, of whose calls so many may count."""
        for rival in _DICE.sample(sorted(self.launches), len(self.launches)):
            try:
                fault, counted = self.call(self.launches[rival], case, parts, ("rival", str(rival)), wanted)
            except self.fault as raised:
                fault, counted = raised, []
            if fault is not None:
                self.rivals.fell(rival, fault)
                self.launches.pop(rival).close()
            else:
                self.times[rival][case.index].calls_ns += counted

    def had(self, index: int, calls: int) -> int:
        """How many of so many calls of this case those that are still in have had."""
        return min((len(self.times[rival][index].calls_ns) for rival in self.launches), default=calls)

    def samples(self, phase: PhaseName, number: int, base: Mapping[int, timing.LaunchTimes]) -> list[LaunchSamples]:
        """This launch's samples of the finalists that are still in."""
        rows = []
        for rival in sorted(self.launches):
            for index, times in self.times[rival].items():
                times.baseline = base.get(index)
                rows.append(timing.of_launch(phase, index, number, times, 1 + rival))
        return rows

    def close(self) -> None:
        """End all its runners."""
        for launch in self.launches.values():
            launch.close()
