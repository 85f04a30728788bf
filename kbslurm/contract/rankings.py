"""A board's rankings: the standings, a final, and what `kbslurm export` writes."""

from __future__ import annotations

from pydantic import ConfigDict
from pydantic.config import JsonDict

from kbslurm.contract.base import Id, Shape


class FinalRival(Shape):
    """One participant: the place and score before, and the result."""

    place: int
    user_name: str
    submission_id: Id
    before: float
    verdict: str | None
    score: float | None
    interval: list[float] | None


class FinalGap(Shape):
    """The ratio of the time of the one behind to that of the one ahead, launch by launch."""

    ahead: Id
    behind: Id
    ratio: float
    interval: list[float]
    separated: bool


class FinalTold(Shape):
    """A final that counts."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "leaderboard_name": "transpose",
                "gpu_type": "H100",
                "rivals": [
                    {
                        "place": 1,
                        "user_name": "ada",
                        "submission_id": 412,
                        "before": 0.000041836,
                        "verdict": "passed",
                        "score": 0.0000419,
                        "interval": [0.0000418, 0.000042],
                    }
                ],
                "gaps": [],
            }
        },
    )
    leaderboard_name: str
    gpu_type: str
    rivals: list[FinalRival]
    gaps: list[FinalGap]


class Standing(Shape):
    """One line of a leaderboard; `interval` is the measurement's, `tied_with` the ranks that it is tied with within
    measurement error (the nearest fifty), `best_rank` and `worst_rank` the range that these ties allow. `ranks` is the
    first and last rank that it can have with 95 % confidence for all rows at once. Where teams count together, `team`
    is the row's, `user_name` what it is called, and `user_id` whoever submitted it. Of whoever is shown under a
    nickname or a pseudonym, the numbers are made up for this board, the time is only the day, and
    there is no file's name."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "submission_id": 412,
                "rank": 1,
                "submission_name": "kernel.py",
                "submission_time": "2026-05-01T12:00:00+00:00",
                "submission_score": 0.000041836,
                "leaderboard_name": "transpose",
                "user_id": "7",
                "user_name": "ada",
                "team": None,
                "gpu_type": "H100",
                "interval": [0.0000417, 0.000042],
                "tied_with": [2],
                "best_rank": 1,
                "worst_rank": 2,
                "ranks": [1, 2],
            }
        },
    )
    submission_id: Id
    rank: int
    submission_name: str
    submission_time: str
    submission_score: float
    leaderboard_name: str
    user_id: str
    user_name: str
    team: str | None
    gpu_type: str
    interval: list[float]
    tied_with: list[int]
    best_rank: int
    worst_rank: int
    ranks: list[int]


class PlaceRow(Shape):
    board: str
    gpu: str
    rank: int
    best_rank: int
    worst_rank: int
    person: str
    person_id: Id
    team: str | None
    submission: Id
    run: Id
    score_s: float
    low_s: float
    high_s: float
    paired: bool
    submitted_at: str
    file_name: str


class Places(Shape):
    """What `kbslurm export` writes."""

    leaderboard: str
    places: list[PlaceRow]


class NameRow(Shape):
    """Somebody who has submitted to a board. Where teams count together `team` is whom it counted for."""

    shown_as: str
    person: str
    person_id: Id
    team: str | None


class NamesTold(Shape):
    """What `kbslurm board names` writes, by what people are shown as."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "leaderboard": "transpose",
                "names": [{"shown_as": "Heron k7m2q9t", "person": "ada", "person_id": 7, "team": None}],
            }
        },
    )
    leaderboard: str
    names: list[NameRow]


class Rival(Shape):
    """Somebody else's place as everybody sees it. `ratio`: how many times faster one's own score is, under one: slower;
    `separated`: whether the two differ by more than measurement error."""

    rank: int
    shown_as: str
    score: float
    interval: list[float]
    ratio: float
    separated: bool


class OwnPlace(Shape):
    """One's own place among the `of` that rank on a GPU type; `shown_as`: what others see there; `submission_id`: the
    one that counts, unless somebody else of one's team made it. `neighbours`: at most two on either side; empty, as
    `leader` is null, where nobody sees the others."""

    gpu_type: str
    rank: int
    of: int
    best_rank: int
    worst_rank: int
    score: float
    interval: list[float]
    shown_as: str
    submission_id: Id | None
    neighbours: list[Rival]
    leader: Rival | None


LEADER: JsonDict = {
    "rank": 1,
    "shown_as": "Osprey p2d8n4x",
    "score": 0.0000371,
    "interval": [0.000037, 0.0000373],
    "ratio": 0.887,
    "separated": True,
}
OWN_PLACE: JsonDict = {
    "gpu_type": "H100",
    "rank": 3,
    "of": 57,
    "best_rank": 3,
    "worst_rank": 4,
    "score": 0.000041836,
    "interval": [0.0000417, 0.000042],
    "shown_as": "Heron k7m2q9t",
    "submission_id": 412,
    "neighbours": [LEADER],
    "leader": LEADER,
}


class OwnPlaces(Shape):
    """Empty where nobody sees standings, and for whoever hasn't ranked."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "leaderboard": "transpose",
                "places": [OWN_PLACE],
            }
        },
    )
    leaderboard: str
    places: list[OwnPlace]


class EarlierScore(Shape):
    """One's own best before a submission; `ratio` and `separated` as of a rival."""

    submission_id: Id
    score: float
    interval: list[float]
    ratio: float
    separated: bool


class SubmissionPlace(Shape):
    """What a ranked submission came to on a GPU type. `stands`: it is the one that counts in the standings; `place`:
    one's own place there now, by whichever submission; `leader`: null for the leader, and where nobody is shown;
    `remark`: what else holds, like a freeze."""

    gpu_type: str
    score: float
    interval: list[float]
    stands: bool
    place: OwnPlace | None
    before: EarlierScore | None
    leader: Rival | None
    remark: str | None


class SubmissionPlaces(Shape):
    """Empty for what doesn't rank."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "leaderboard": "transpose",
                "submission_id": 412,
                "places": [
                    {
                        "gpu_type": "H100",
                        "score": 0.000041836,
                        "interval": [0.0000417, 0.000042],
                        "stands": True,
                        "place": OWN_PLACE,
                        "before": {
                            "submission_id": 398,
                            "score": 0.0000548,
                            "interval": [0.0000545, 0.000055],
                            "ratio": 1.31,
                            "separated": True,
                        },
                        "leader": LEADER,
                        "remark": None,
                    }
                ],
            }
        },
    )
    leaderboard: str
    submission_id: Id
    places: list[SubmissionPlace]
