"""Usage and cost, as shown by the command line and the API. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Literal

from kbslurm.domain.placement import Budget

By = Literal["board", "person", "team", "place", "run"]


@dataclass(frozen=True, kw_only=True)
class Usage:
    """The usage of one person, board or other group. Open attempts count at their maximum. `name`: None for no team."""

    name: str | None
    attempts: int
    open: int
    runs: int
    gpu_s: float
    money: float
    paid_gpu_s: float


@dataclass(frozen=True, kw_only=True)
class Held:
    """What keepers of a GPU type held at a place, and how much of it runs used, in GPU-seconds."""

    backend: str
    gpu: str
    keepers: int
    open: int
    runs: int
    held_s: float
    used_s: float

    @property
    def idle_s(self) -> float:
        """What was held and not used."""
        return max(0.0, self.held_s - self.used_s)


def told(
    rows: Sequence[Usage],
    *,
    begins: datetime,
    by: By,
    board: str | None,
    budget: Budget,
    held: Sequence[Held] = (),
) -> Mapping[str, Any]:
    """As JSON: the sums, and each row with its monthly budget, if there is one; and what warm workers held."""
    return {
        "month": f"{begins:%Y-%m}",
        "by": by,
        "board": board,
        "currency": budget.currency,
        "budget": budget.month if board is None else budget.boards.get(board),
        "gpu_s": sum(row.gpu_s for row in rows),
        "money": sum(row.money for row in rows),
        "warm": [
            {
                "place": one.backend,
                "gpu": one.gpu,
                "workers": one.keepers,
                "runs": one.runs,
                "held_s": one.held_s,
                "used_s": one.used_s,
                "idle_s": one.idle_s,
            }
            for one in held
        ],
        "rows": [{**asdict(row), "budget": _bound(row.name, by, board, budget)} for row in rows],
    }


def _bound(name: str | None, by: By, board: str | None, budget: Budget) -> float | None:
    """A team's usage of a single board has no budget."""
    if by == "board" and name is not None:
        return budget.boards.get(name)
    if by == "team" and board is None:
        return budget.of_team(name)
    return None
