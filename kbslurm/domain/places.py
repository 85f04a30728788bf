"""A board's standings as rows: a table for grades and papers, with each person's best per GPU type and unrounded
scores; and somebody's own place among the others."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kbslurm.domain import spreadsheet
from kbslurm.domain.amounts import score
from kbslurm.domain.archive import Kind
from kbslurm.domain.board import Ranking, Standing, Timed, separated

COLUMNS = (
    "board", "gpu", "rank", "best_rank", "worst_rank", "person", "person_id", "team", "submission", "run", "score_s",
    "low_s", "high_s", "paired", "submitted_at", "file_name",
)  # fmt: skip
_KINDS: Mapping[str, Kind] = {
    **dict.fromkeys(("rank", "best_rank", "worst_rank", "person_id", "submission", "run"), "int"),
    **dict.fromkeys(("score_s", "low_s", "high_s"), "float"),
    "paired": "bool",
}
KINDS: Mapping[str, Kind] = {name: _KINDS.get(name, "text") for name in COLUMNS}
FORMATS = ("csv", "json", "parquet")
NAMES = ("shown_as", "person", "person_id", "team")
NEAR = 2  # neighbours on either side


def row(board: str, gpu: str, one: Standing, *, paired: bool) -> dict[str, Any]:
    """One line. `paired`: scores are in units of a baseline's times."""
    entry = one.entry
    values = (
        board, gpu, one.rank, one.best_rank, one.worst_rank, entry.person, entry.person_id, entry.team,
        entry.submission_id, entry.run_id, entry.score_s, entry.low_s, entry.high_s, paired, entry.at.isoformat(),
        entry.file_name,
    )  # fmt: skip
    return dict(zip(COLUMNS, values, strict=True))


def own_row(
    gpu: str, one: Standing, of: int, *, submission_id: int | None, others: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Somebody's own place among so many, as they are told it. `submission_id`: the one that counts, if it is theirs.
    `others`: the neighbours and the leader, as everybody sees them; nobody where the others aren't shown."""
    entry = one.entry
    return {
        "gpu_type": gpu,
        "rank": one.rank,
        "of": of,
        "best_rank": one.best_rank,
        "worst_rank": one.worst_rank,
        "score": entry.score_s,
        "interval": [entry.low_s, entry.high_s],
        "shown_as": entry.person,
        "submission_id": submission_id,
        "neighbours": [dict(row) for row in others if abs(row["rank"] - one.rank) <= NEAR],
        "leader": next((dict(row) for row in others if row["rank"] == 1), None),
    }


def others_near(ranking: Ranking, rank: int, shown_as: Callable[[int], str]) -> list[dict[str, Any]]:
    """The neighbours of this rank and the leader, without the one who has it. `shown_as`: the name at an index."""
    near = {*range(max(0, rank - 1 - NEAR), min(len(ranking), rank + NEAR)), 0} - {rank - 1}
    mine = ranking[rank - 1]
    found = []
    for index in sorted(near):
        told = rival(ranking[index], shown_as(index), mine.entry)
        # The board's own word on ties: pairs are tested together there.
        tied = mine.best_rank == 1 if index == 0 else index + 1 in mine.tied_with
        found.append({**told, "separated": not tied})
    return found


def rival(other: Standing, shown_as: str, mine: Timed) -> dict[str, Any]:
    """Somebody else's place, and how a score compares with theirs."""
    return {"rank": other.rank, "shown_as": shown_as, **compared(mine, other.entry)}


def compared(mine: Timed, other: Timed) -> dict[str, Any]:
    """Another score, and how many times faster than it this one is; under one: slower."""
    return {
        "score": other.score_s,
        "interval": [other.low_s, other.high_s],
        "ratio": other.score_s / mine.score_s,
        "separated": separated(mine, other),
    }


def in_words(told: Mapping[str, Any]) -> list[str]:
    """What a submission came to on one GPU type, in sentences: the rank, one's own best before it, the leader."""
    found = [told["remark"]] if told["remark"] else []
    place, before, leader = told["place"], told["before"], told["leader"]
    if place is not None:
        found.append(_rank_in_words(place, stands=told["stands"]))
    if before is not None:
        best = f"your best before it, #{before['submission_id']} ({score(before['score'])})"
        found.append(compared_in_words(before, best))
    elif not told["remark"]:
        found.append("your first score here")
    if leader is not None:
        found.append(compared_in_words(leader, f"the leader, {leader['shown_as']} ({score(leader['score'])})"))
    elif place is not None and told["stands"] and place["rank"] == 1:
        second = next((row for row in place["neighbours"] if row["rank"] == 2), None)
        if second is not None:
            whom = f"the second, {second['shown_as']} ({score(second['score'])})"
            found.append(f"you lead: {compared_in_words(second, whom)}")
    return found


def _rank_in_words(place: Mapping[str, Any], *, stands: bool) -> str:
    which = f"rank {place['rank']} of {place['of']}"
    if place["best_rank"] != place["worst_rank"]:
        which += f" ({place['best_rank']}–{place['worst_rank']} within measurement error)"
    if stands:
        return which
    by = "" if place["submission_id"] is None else f" with #{place['submission_id']}"
    return f"you stay at {which}{by}"


def compared_in_words(row: Mapping[str, Any], whom: str) -> str:
    """How one's score compares with that one: `1.31× faster than …`, or that they can't be told apart."""
    if not row["separated"]:
        return f"within measurement error of {whom}"
    ratio = row["ratio"]
    times = f"{max(ratio, 1 / ratio):.3g}"
    return f"{times}× {'faster' if ratio > 1 else 'slower'} than {whom}"


def as_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """The table as CSV, with a header."""
    return spreadsheet.as_csv(COLUMNS, rows)


def as_json(rows: Sequence[Mapping[str, Any]]) -> str:
    """The table as a JSON list."""
    return json.dumps(list(rows), indent=2) + "\n"


def names_as_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Who is who on a board, as CSV."""
    return spreadsheet.as_csv(NAMES, rows)
