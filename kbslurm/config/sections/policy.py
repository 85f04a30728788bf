"""[policy]: overflow, GPU classes, prices and budgets, and which isolation ranks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from kbslurm.domain import contest, placement
from kbslurm.errors import Invalid


def _prices(prices: Mapping[str, float]) -> Mapping[str, float]:
    for gpu, price in prices.items():
        contest.gpu_name(gpu)
        if not 0 <= price < math.inf:
            raise Invalid(f"{gpu} costs {price:g} an hour", hint="What an hour of one GPU costs, 0 or more.")
    return dict(prices)


def _classes(classes: Mapping[str, str]) -> Mapping[str, str]:
    for gpu, name in classes.items():
        contest.gpu_name(gpu)
        if not name.strip():
            raise Invalid(f"{gpu} has a class without a name", hint='Write H100 = "H100 SXM".')
    return {gpu: name.strip() for gpu, name in classes.items()}


def _bounds(bounds: Mapping[str, float]) -> Mapping[str, float]:
    for board, most in bounds.items():
        if not 0 <= most < math.inf:
            raise Invalid(f"board {board} may spend {most:g} a month", hint="0 or more.")
    return {contest.board_name(board): most for board, most in bounds.items()}


def _team_bounds(bounds: Mapping[str, float]) -> Mapping[str, float]:
    for team, most in bounds.items():
        if not 0 <= most < math.inf:
            raise Invalid(f"team {team} may spend {most:g} a month", hint="0 or more.")
    return {contest.team_name(team): most for team, most in bounds.items()}


@dataclass(frozen=True, kw_only=True)
class PlaceSection:
    """A place as the placement policy sees it."""

    role: placement.PlaceRole | None = field(
        default=None,
        metadata={"doc": "Whether runs go there first, or only for overflow; default: GitHub and Modal are overflow."},
    )
    classes: Mapping[str, str] = field(
        default_factory=dict,
        metadata={
            "doc": "The class of its GPUs, by type. Boards never mix classes. Default: the type's name at home, a class"
            " of its own elsewhere.",
            "check": _classes,
        },
    )
    cost_per_gpu_hour: Mapping[str, float] = field(
        default_factory=dict, metadata={"doc": "What an hour of one GPU costs, by type.", "check": _prices}
    )


@dataclass(frozen=True, kw_only=True)
class BudgetSection:
    """What overflow may cost in a month (UTC). What is open counts at its most."""

    month: float | None = field(default=None, metadata={"doc": "In all; not set: no bound.", "least": 0})
    boards: Mapping[str, float] = field(
        default_factory=dict, metadata={"doc": "For the runs of a board; others: no bound.", "check": _bounds}
    )
    team: float | None = field(
        default=None, metadata={"doc": "For the runs of each team; not set: no bound.", "least": 0}
    )
    teams: Mapping[str, float] = field(
        default_factory=dict,
        metadata={"doc": "For the runs of a team, instead of what each has.", "check": _team_bounds},
    )
    currency: str = field(default="EUR", metadata={"doc": "What all money here is in."})


@dataclass(frozen=True, kw_only=True)
class PolicySection:
    """What the hosts decided."""

    overflow: placement.Overflow = field(
        default_factory=partial(placement.Overflow, when="when_down"),
        metadata={
            "doc": 'When other places than the cluster take runs: never, when_down, or { when_wait_over = "10m" }.',
            "reads": placement.overflow_of,
            "schema": {
                "anyOf": [
                    {"enum": ["never", "when_down"]},
                    {
                        "type": "object",
                        "additionalProperties": False,
                        "required": ["when_wait_over"],
                        "properties": {"when_wait_over": {"type": "string"}},
                    },
                ],
                "default": "when_down",
            },
        },
    )
    other_class: placement.OtherClass = field(
        default="refuse",
        metadata={"doc": "Leaderboard runs on another class of GPU than the board's: refuse, or run them unranked."},
    )
    overflow_boards: Mapping[str, tuple[str, ...]] = field(
        default_factory=dict,
        metadata={
            "doc": "Which overflow places a board's runs may use; boards that aren't named may use all.",
            "check": placement.allowed_places,
        },
    )
    classes: Mapping[str, str] = field(
        default_factory=dict,
        metadata={
            "doc": "The class of GPU that boards are about, by type; default: the first home place's.",
            "check": _classes,
        },
    )
    budget: BudgetSection = field(default_factory=BudgetSection)
    shadow: float = field(
        default=0.0,
        metadata={
            "doc": "Which fraction of the runs that rank at home is measured at an overflow place, too: unranked and"
            " within the budget, to see how far apart the places are.",
            "least": 0,
            "most": 1,
        },
    )
    places: Mapping[str, PlaceSection] = field(
        default_factory=dict, metadata={"doc": "More about places, by their names."}
    )
    ranked_min_isolation: int = field(
        default=2, metadata={"doc": "The isolation level from which a run ranks on a new board.", "least": 0, "most": 3}
    )
