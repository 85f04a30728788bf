"""Places as pages show them: what a row says beside its score, for boards, what is found on them, and archives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kbslurm.api.pages.charts.intervals import Intervals, intervals
from kbslurm.api.pages.rendering import took
from kbslurm.domain.amounts import score
from kbslurm.domain.board import Entry, Standing, Timed
from kbslurm.domain.tracks import Moves, Side, Track
from kbslurm.store.standings import Light

LANGUAGES: Mapping[str, str] = {"py": "Python", "cu": "CUDA", "cuh": "CUDA", "cpp": "C++"}
MEDALS: Mapping[int, str] = {1: "gold", 2: "silver", 3: "bronze"}
TIMES_FROM = 2.0  # gaps are said in percent below that, and as a multiple from there on


@dataclass(frozen=True, kw_only=True)
class Around:
    """What the rows of a board are compared with. Everything may be missing: then its column is."""

    leader: Entry | None = None
    first: Side | None = None  # who was the first to rank
    record: Side | None = None
    base_s: float | None = None  # what the baseline would score
    lights: Mapping[int, Light] = field(default_factory=dict)
    tracks: Mapping[Side, Track] = field(default_factory=dict)
    moves: Moves | None = None  # None: nothing has changed since the day before
    codes: Mapping[int, str] = field(default_factory=dict)  # where the published code of a submission is
    is_final: bool = False  # then the first three have medals
    names_people: bool = False  # by their own names, each for themselves: then a row leads to its person


@dataclass(frozen=True, kw_only=True)
class Shown:
    """Rows with one axis, and which columns they fill."""

    rows: Sequence[Mapping[str, Any]]
    axis: Intervals
    moved: bool
    files: bool
    based: bool
    lit: bool
    counted: bool


def rows_shown(found: Sequence[tuple[Standing, Entry | None]], around: Around) -> Shown:
    """These places, each with the entry that is one place ahead."""
    axis = intervals([row.entry for row, _ in found], written=took)
    moved = around.moves is not None
    rows = [
        {**place(row), **_beside(row, ahead, around, moved=moved), "bar": bar}
        for (row, ahead), bar in zip(found, axis.bars, strict=True)
    ]
    return Shown(
        rows=rows,
        axis=axis,
        moved=moved,
        files=any(row["file"] for row in rows),
        based=around.base_s is not None,
        lit=any(row["light"] for row in rows),
        counted=bool(around.tracks),
    )


def place(row: Standing) -> dict[str, Any]:
    """A place, whose it is and its score."""
    entry = row.entry
    tied = f"{row.best_rank}–{row.worst_rank}" if row.tied_with else ""
    ranks = "" if row.ranks[0] == row.ranks[1] else f"{row.ranks[0]}–{row.ranks[1]}"
    return {"rank": row.rank, "tied": tied, "ranks": ranks, "person": entry.person, "at": entry.at, **amount(entry)}


def amount(timed: Timed) -> dict[str, str]:
    """A score in two pieces: the value, and how sure it is."""
    told = score(timed.score_s, timed.low_s, timed.high_s, ranked=True)
    value, comma, rest = told.partition(", ")
    if not comma:
        value, _, rest = told.partition(" +")
        rest = f"+{rest}" if rest else ""
    return {"score": told, "value": value, "doubt": rest}


def language(file_name: str) -> str:
    """The language of a submission, by its file's name; empty if that isn't shown."""
    return LANGUAGES.get(file_name.rpartition(".")[2].lower(), "")


def languages(entries: Iterable[Entry]) -> list[str]:
    """Those that one may choose from: none where all write in the same."""
    found = {language(f".{ending}") for ending in {one.file_name.rpartition(".")[2] for one in entries}} - {""}
    return sorted(found) if len(found) > 1 else []


def gap(mine: Timed, other: Timed) -> str:
    """How much slower than that one this is: `+6.1 %`, or `3.2×`."""
    if other.score_s <= 0:
        return "–"
    ratio = mine.score_s / other.score_s
    return times(ratio) if ratio >= TIMES_FROM else f"+{max(0.0, 100 * (ratio - 1)):.1f} %"


def times(ratio: float) -> str:
    """A multiple with as many digits as help: `3.20×`, `32.0×`, `320×`."""
    return f"{ratio:,.{0 if ratio >= 100 else 1 if ratio >= 10 else 2}f}×"


def percent(share: float) -> str:
    """`39.3 %`, `0.39 %`."""
    return f"{100 * share:.1f} %" if share >= 0.01 else f"{100 * share:.2g} %"


def _beside(row: Standing, ahead: Entry | None, around: Around, *, moved: bool) -> dict[str, Any]:
    entry, side = row.entry, row.entry.side
    leader = around.leader
    is_first = leader is None or row.rank == 1
    track, light = around.tracks.get(side), around.lights.get(entry.run_id)
    before = around.moves.ranks.get(side) if around.moves is not None else None
    return {
        "side": side,
        "medal": MEDALS.get(row.rank, "") if around.is_final else "",
        "code": around.codes.get(entry.submission_id, ""),
        "page": f"/person/{entry.person_id}" if around.names_people else "",
        "file": entry.file_name,
        "language": language(entry.file_name),
        "behind": "" if is_first or leader is None else gap(entry, leader),
        "as_leader": row.best_rank == 1,
        "next": "" if ahead is None else gap(entry, ahead),
        "as_next": row.rank - 1 in row.tied_with,
        "speed": "" if around.base_s is None or entry.score_s <= 0 else times(around.base_s / entry.score_s),
        "light": "" if light is None else percent(light.share),
        "light_score": "" if light is None or light.score is None else f"{light.score:.3f}",
        "entries": None if track is None else track.entries,
        "move": None if not moved or before is None else before - row.rank,
        "is_new": moved and before is None,
        "is_record": side == around.record,
        "was_first": side == around.first,
        "improved": around.moves is not None and side == around.moves.improved,
    }
