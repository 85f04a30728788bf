"""What a rejudge would change."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from kbslurm.contract.base import Id, Shape, Wanted


class RejudgeWanted(Wanted):
    """`filter`: KEY=VALUE, with submission, gpu, verdict, mode or person. `version` of the problem; null: the live
    one."""

    model_config = ConfigDict(json_schema_extra={"example": {"filter": ["mode=leaderboard"], "version": 7}})
    filter: Annotated[list[Annotated[str, Field(max_length=200)]], Field(max_length=5)] | None = None
    version: Annotated[int, Field(ge=1, le=2**63 - 1)] | None = None


class RejudgeCostRow(Shape):
    """The runs of one GPU type at the first place that has it: GPU-seconds and price by what the runs took before, and
    how long it takes by jobs of their own or with warm workers; null where that isn't known or none are allowed."""

    gpu: str
    place: str | None
    runs: int
    gpu_s: float
    money: float
    cold_s: float | None
    warm_workers: int
    warm_s: float | None


class RejudgeCost(Shape):
    """What a rejudge would come to. Nothing is ordered."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "board": "transpose",
                "version": 7,
                "runs": 300,
                "gpu_s": 5400.0,
                "money": 0.0,
                "currency": "EUR",
                "rows": [
                    {
                        "gpu": "H100",
                        "place": "dgx",
                        "runs": 300,
                        "gpu_s": 5400.0,
                        "money": 0.0,
                        "cold_s": 9000.0,
                        "warm_workers": 2,
                        "warm_s": 2850.0,
                    }
                ],
            }
        },
    )
    board: str
    version: Id
    runs: int
    gpu_s: float
    money: float
    currency: str
    rows: list[RejudgeCostRow]


class Change(Shape):
    before: str
    after: str
    runs: int


class RejudgingTold(Shape):
    """How many runs would change from which verdict to which; `open` ones are not judged yet."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "board": "transpose",
                "rejudging": 3,
                "state": "preview",
                "version": 7,
                "matrix": [{"before": "passed", "after": "wrong", "runs": 2}],
                "open": 0,
                "changed": 2,
                "spent_gpu_s": 80.5,
                "expected_gpu_s": 96.0,
            }
        },
    )
    board: str
    rejudging: Id
    state: Literal["preview", "applied", "cancelled"]
    version: Id
    matrix: list[Change]
    open: int
    changed: int
    spent_gpu_s: float
    expected_gpu_s: float
