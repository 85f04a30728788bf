"""Similar sources."""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict

from kbslurm.contract.base import Id, Shape

SOURCE: dict[str, Any] = {
    "submission": 12,
    "person_id": 3,
    "name": "ada",
    "section": "A",
    "team": None,
    "leaderboard": "transpose",
    "submitted_at": "2026-11-26T09:00:00+00:00",
}


class SimilarSource(Shape):
    """One of two similar submissions. `section` and `team`: its author's now."""

    submission: Id
    person_id: Id
    name: str
    section: str | None
    team: str | None
    leaderboard: str
    submitted_at: str


class SimilarPair(Shape):
    """Two people's most similar submissions. `similarity`: which part of the smaller one the other has too, in per
    cent; `pairs`: how many pairs of their submissions are so similar."""

    similarity: float
    pairs: int
    left: SimilarSource
    right: SimilarSource


class SimilarTold(Shape):
    """Pairs to look at, the most similar first. `left_out`: older sources of those who have many; `cut`: submissions of
    which only the beginning was compared."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "leaderboard": "transpose",
                "others": [],
                "section": None,
                "at_least": 45.0,
                "sources": 400,
                "people": 60,
                "left_out": 0,
                "cut": [],
                "note": "A similarity is a reason to look, never a verdict: read both sources before you ask anybody.",
                "pairs": [
                    {
                        "similarity": 92.5,
                        "pairs": 2,
                        "left": SOURCE,
                        "right": {**SOURCE, "submission": 34, "name": "bob"},
                    }
                ],
            }
        },
    )
    leaderboard: str
    others: list[str]
    section: str | None
    at_least: float
    sources: int
    people: int
    left_out: int
    cut: list[Id]
    note: str
    pairs: list[SimilarPair]


class MarkedFile(Shape):
    """A file, and its lines that the other submission has too: first and last of each region."""

    name: str
    text: str
    marked: list[tuple[int, int]]


class SideTold(Shape):
    """One of the two. `cut`: only its beginning is compared and shown."""

    submission: Id
    name: str
    leaderboard: str
    submitted_at: str
    cut: bool
    files: list[MarkedFile]


class PairTold(Shape):
    """Two submissions side by side."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "note": "A similarity is a reason to look, never a verdict: read both sources before you ask anybody.",
                **{
                    side: {
                        "submission": number,
                        "name": name,
                        "leaderboard": "transpose",
                        "submitted_at": "2026-11-26T09:00:00+00:00",
                        "cut": False,
                        "files": [{"name": "a.py", "text": "x = 1\n", "marked": [[1, 1]]}],
                    }
                    for side, number, name in (("left", 12, "ada"), ("right", 34, "bob"))
                },
            }
        },
    )
    note: str
    left: SideTold
    right: SideTold
