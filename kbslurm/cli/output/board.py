"""Boards and their standings, as text and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from kbslurm.cli.output.printing import escape, say, table, when
from kbslurm.domain import contest, places
from kbslurm.domain.amounts import score

if TYPE_CHECKING:
    from kbslurm.domain.board import Standing
    from kbslurm.store.views import Board

SAME = ("late_until", "late", "frozen_at", "finalised_at", "teams_only", "practice", "names", "standings",
        "publishes_reference")  # fmt: skip


def print_standings(
    board: str, by_gpu: Mapping[str, Sequence[Standing]], *, limit: int, notes: Mapping[str, str] | None = None
) -> None:
    """A board, one table per GPU type. `notes`: remarks on its scores."""
    for gpu, rows in by_gpu.items():
        if note := (notes or {}).get(gpu):
            say(f"{board} · {gpu}: {note}")
        if not rows:
            say(f"{board} · {gpu}: nobody has ranked yet")
            continue
        cells = [
            (
                _rank(row),
                escape(row.entry.person),
                score(row.entry.score_s, row.entry.low_s, row.entry.high_s, ranked=True),
                when(row.entry.at),
                f"#{row.entry.submission_id}",
                escape(row.entry.file_name),
            )
            for row in rows[:limit]
        ]
        table(("rank", "person", "score", "when", "submission", "file"), cells, title=f"{board} · {gpu}")
        if len(rows) > limit:
            say(f"and {len(rows) - limit} more; --limit shows them")


def print_own(board: str, own: Sequence[Mapping[str, Any]]) -> None:
    """Somebody's own places, for whom others see them as."""
    for one in own:
        shown = score(one["score"], *one["interval"], ranked=True)
        say(f"{board} · {one['gpu_type']}: you are {one['rank']} of {one['of']}, as {escape(one['shown_as'])}, {shown}")


def print_mine(board: str, gpu: str, own: Sequence[Mapping[str, Any]]) -> None:
    """Somebody's own places on one GPU type, each with its neighbours and the leader."""
    if not own:
        say(f"{board} · {gpu}: you haven't ranked yet; kbslurm submit FILE -l {board} -g {gpu}")
    for one in own:
        print_own(board, [one])
        others = {row["rank"]: row for row in (*one.get("neighbours", ()), *filter(None, (one.get("leader"),)))}
        if not others:
            continue
        mine = f"#{one['submission_id']}" if one.get("submission_id") else "your team's"
        you = (escape(one["shown_as"]), score(one["score"], *one["interval"]), f"you, {mine}")
        rows = {one["rank"]: tuple(f"[bold]{cell}[/]" for cell in (str(one["rank"]), *you))}
        for rank, row in others.items():
            rows[rank] = (str(rank), escape(row["shown_as"]), score(row["score"], *row["interval"]), _beside_you(row))
        table(("rank", "person", "score", "compared with you"), [rows[rank] for rank in sorted(rows)])


def _beside_you(row: Mapping[str, Any]) -> str:
    """How a rival's score compares with one's own."""
    if not row["separated"]:
        return "[dim]within measurement error[/]"
    ratio = row["ratio"]
    return f"{1 / ratio:.3g}× faster" if ratio < 1 else f"{ratio:.3g}× slower"


def print_places(told: Sequence[Mapping[str, Any]]) -> None:
    """What a submission came to, per GPU type."""
    for one in told:
        for line in places.in_words(one):
            say(f"{one['gpu_type']:>6}  {line}")


def _rank(row: Standing) -> str:
    """The rank, with the range of possible places if it is tied within measurement error."""
    return f"{row.rank}" if not row.tied_with else f"{row.rank} ({row.best_rank}–{row.worst_rank})"


def closing_time(board: Board, now: datetime | None) -> str:
    """When a board closes, in its own time zone; with `now` also whether it has closed."""
    if board.closed_at is not None:
        return "closed by a host"
    if board.deadline_at is None:
        return "never"
    over = now is not None and contest.closed(board.deadline_at, now)
    return closing_time_of(board.deadline_at.isoformat(), board.zone) + (" (closed)" if over else "")


def closing_time_of(deadline: str | None, zone: str) -> str:
    """A board's deadline in its own time zone."""
    return contest.at_home(datetime.fromisoformat(deadline), zone) if deadline else "never"


def closing_time_over_http(row: Mapping[str, Any]) -> str:
    """The same from the service's answer."""
    if not row["deadline"]:
        return "never" if row["is_open"] else "closed by a host"
    return closing_time_of(row["deadline"], row["zone"]) + ("" if row["is_open"] else " (closed)")


def board_json(board: Board) -> dict[str, Any]:
    """What anyone may know about a board: no seed, no hidden case."""
    from kbslurm.api.hosting.boards import told

    return told(board)


def board_json_over_http(row: Mapping[str, Any]) -> dict[str, Any]:
    """The service's description of a board, with the same keys as from the database."""
    return {
        "board": row["name"],
        "description": row["description"],
        "problem": row["task"].get("name"),
        "gpus": row["gpu_types"],
        "deadline_at": row["deadline"],
        "zone": row["zone"],
        "visibility": row["visibility"],
        "is_open": row["is_open"],
        **{name: row.get(name) for name in SAME},
        "paired": row["paired"],
        "calibration": {gpu: {"state": state} for gpu, state in row["calibration"].items()},
        "modes": row["task"].get("modes", []),
    }
