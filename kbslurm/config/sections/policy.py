"""[policy]: overflow, GPU classes, prices and budgets, and which isolation ranks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from kbslurm.domain import contest, placement, scripts
from kbslurm.errors import Invalid


def _prices(prices: Mapping[str, float]) -> Mapping[str, float]:
    for gpu, price in prices.items():
        contest.gpu_name(gpu)
        if not 0 <= price < math.inf:
            raise Invalid(f"{gpu} has the price {price:g} per hour", hint="Write the price of one GPU-hour, 0 or more.")
    return dict(prices)


def _classes(classes: Mapping[str, str]) -> Mapping[str, str]:
    for gpu, name in classes.items():
        contest.gpu_name(gpu)
        if not name.strip():
            raise Invalid(f"{gpu} has an empty class name", hint='Write H100 = "H100 SXM".')
    return {gpu: name.strip() for gpu, name in classes.items()}


def _bounds(bounds: Mapping[str, float]) -> Mapping[str, float]:
    for board, most in bounds.items():
        if not 0 <= most < math.inf:
            raise Invalid(f"board {board} has the monthly budget {most:g}", hint="Write 0 or more.")
    return {contest.board_name(board): most for board, most in bounds.items()}


def _team_bounds(bounds: Mapping[str, float]) -> Mapping[str, float]:
    for team, most in bounds.items():
        if not 0 <= most < math.inf:
            raise Invalid(f"team {team} has the monthly budget {most:g}", hint="Write 0 or more.")
    return {contest.team_name(team): most for team, most in bounds.items()}


@dataclass(frozen=True, kw_only=True)
class PlaceSection:
    """A place as the placement policy sees it."""

    role: placement.PlaceRole | None = field(
        default=None,
        metadata={
            "doc": "Whether runs go there first (home) or only for overflow; default: overflow for GitHub and Modal."
        },
    )
    classes: Mapping[str, str] = field(
        default_factory=dict,
        metadata={
            "doc": "The class of its GPUs, by type. Boards never mix classes."
            " Default: the type's name at home, a separate class elsewhere.",
            "check": _classes,
        },
    )
    cost_per_gpu_hour: Mapping[str, float] = field(
        default_factory=dict, metadata={"doc": "The price of one GPU-hour, by type.", "check": _prices}
    )


@dataclass(frozen=True, kw_only=True)
class BudgetSection:
    """The monthly budget for overflow (UTC). Open runs count at their maximum."""

    month: float | None = field(default=None, metadata={"doc": "In total; not set: no limit.", "least": 0})
    boards: Mapping[str, float] = field(
        default_factory=dict, metadata={"doc": "For the runs of single boards; others: no limit.", "check": _bounds}
    )
    team: float | None = field(
        default=None, metadata={"doc": "For the runs of each team; not set: no limit.", "least": 0}
    )
    teams: Mapping[str, float] = field(
        default_factory=dict,
        metadata={"doc": "For the runs of single teams, instead of the common value.", "check": _team_bounds},
    )
    currency: str = field(default="EUR", metadata={"doc": "The currency of all amounts."})


@dataclass(frozen=True, kw_only=True)
class PolicySection:
    """The hosts' rules."""

    overflow: placement.Overflow = field(
        default_factory=partial(placement.Overflow, when="when_down"),
        metadata={
            "doc": 'When places other than the cluster take runs: never, when_down, or { when_wait_over = "10m" }.',
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
        metadata={
            "doc": "Leaderboard runs on a different class of GPU than the board's: refuse, or run them unranked."
        },
    )
    overflow_boards: Mapping[str, tuple[str, ...]] = field(
        default_factory=dict,
        metadata={
            "doc": "The overflow places that a board's runs may use; boards not listed may use all.",
            "check": placement.allowed_places,
        },
    )
    classes: Mapping[str, str] = field(
        default_factory=dict,
        metadata={
            "doc": "The GPU class of leaderboards, by type; default: the first home place's.",
            "check": _classes,
        },
    )
    budget: BudgetSection = field(default_factory=BudgetSection)
    shadow: float = field(
        default=0.0,
        metadata={
            "doc": "The fraction of runs ranked at home that is also measured at an overflow place:"
            " unranked and within the budget, to compare the places.",
            "least": 0,
            "most": 1,
        },
    )
    places: Mapping[str, PlaceSection] = field(default_factory=dict, metadata={"doc": "Settings of places, by name."})
    keep_people_days: int | None = field(
        default=None,
        metadata={
            "doc": "How long a participant's personal data is kept after their last submission or sign-in; then"
            " `kbslurm user delete --due` erases it. Not set: until a host deletes them.",
            "least": 1,
            "most": 36_500,
        },
    )
    script_gpu_s_per_day: float = field(
        default=scripts.DEFAULT_GPU_S_PER_DAY,
        metadata={
            "doc": "How many GPU-seconds each host may use within a day for scripts without a board (`kbslurm run`); 0:"
            " none.",
            "least": 0,
        },
    )
    ranked_min_isolation: int = field(
        default=2,
        metadata={"doc": "The minimum isolation level for a run to rank on a new board.", "least": 0, "most": 3},
    )
