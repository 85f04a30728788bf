"""Hosts' acts that hand a board's work on: its archive, and one person's work log."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Generator, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from kbslurm import __version__, wiring
from kbslurm.api.hosting.host_acts import HostActs, iso
from kbslurm.config.sections.ray import image_of
from kbslurm.domain import access, archive, contest, work_logs
from kbslurm.domain.verdict import why_unranked
from kbslurm.errors import Invalid, KbslurmError, NotFound
from kbslurm.store.archives import Archive

if TYPE_CHECKING:
    from kbslurm.domain.archive import Row
    from kbslurm.domain.run import SubmissionId
    from kbslurm.store.views import Board, RunView, SubmissionView

Rows = Generator[tuple[str, "Row"], None, None]
PLACE_CAP = 500
TEAM = "team:"
TOO_LONG = f"(not compared: the sources before it have {work_logs.LINES_AT_ONCE:,} lines together)"


class ArchivingActs(HostActs):
    """Archives and work logs."""

    def archive(self, board: str, *, private: bool, place: str) -> Rows:
        """Every row of a board's archive with its table, all as of one moment; at last that there are no more. It is
        noted as written at `place` before that: whoever has the end has all of it."""
        held = self.held(board)
        if not private and not access.may_be_handed_on(held.names, held.standings):
            raise Invalid(
                f"{held.name} hides names or standings, and an archive that may be handed on would tell them",
                hint="Show them first, or write a private archive.",
            )
        where = contest.within("place", place, PLACE_CAP)
        return self._archived(held, private=private, place=where)

    def _archived(self, board: Board, *, private: bool, place: str) -> Rows:
        count = 0
        handed = None if private else archive.Handed()
        for table, rows in self._tables(board, private=private):
            if handed is None:
                chosen = iter(rows)
            else:
                chosen = iter(handed.rows(table, (row for row in rows if archive.is_handed_on(table, row))))
            for row in chosen:
                count += 1
                yield table, row if table == "samples" else _plain(row)  # most rows, and all of them numbers
        number = self.store.archives.note(board, private=private, place=place, by=self.by, now=self.now)
        yield archive.END, {"rows": count, "archive": number}

    def _tables(self, board: Board, *, private: bool) -> Iterator[tuple[str, Iterator[Row]]]:
        yield "board", iter([self._board(board, private=private)])
        yield "images", self._images()
        yield from self.store.archives.rows(board, private=private)

    def _board(self, board: Board, *, private: bool) -> dict[str, Any]:
        return {
            "format": archive.FORMAT,
            "private": private,
            "written_at": self.now,
            "version": __version__,
            "leaderboard": board.name,
            "description": board.description,
            "problem": board.problem_name,
            "problem_version": board.problem_version_id,
            "deadline_at": board.deadline_at,
            "zone": board.zone,
            "visibility": board.visibility,
            "gpus": list(board.gpus),
            "ranking": board.ranking,
            "teams": board.teams,
            "course": board.course,
            "min_isolation": board.min_isolation,
            "created_at": board.created_at,
            "closed_at": board.closed_at,
            "frozen_at": board.frozen_at,
            "shown_until": access.shown_until(board.frozen_at, host=private),
            "finalised_at": board.finalised_at,
            "late": {**dataclasses.asdict(board.late), "until": iso(board.late.until)},
        }

    def _images(self) -> Iterator[Row]:
        """What the clusters' runs are given now; an attempt's own harness is with the attempt."""
        try:
            found = wiring.sites(self.config)
        except KbslurmError:
            return  # a site's file that can't be read is reported by whoever uses it
        for site in found:
            for gpu, kind in site.gpus.items():
                yield {"place": site.name, "gpu": gpu, "image": site.image_of(kind), "digest": kind.image_digest}
        for place, cluster in self.config.ray.items():
            for gpu in cluster.gpus:
                if (image := image_of(cluster, gpu)) is not None:
                    yield {"place": place, "gpu": gpu, "image": image.path, "digest": image.digest}

    def work_log(self, board: str, whom: str, *, after: int = 0) -> Mapping[str, Any]:
        """What a person, or with team:NAME a team, has submitted to a board, oldest first: when, what changed, how it
        went. It is told in parts: those with numbers above `after`, at most `work_logs.AT_ONCE`."""
        held = self.held(board)
        person, team = None, None
        if whom.startswith(TEAM):
            team = contest.within("team", whom.removeprefix(TEAM), contest.NAME_CAP)
        else:
            person = self.whom_at([held], whom)
        numbers = self.store.archives.work_of(held.id, person=None if person is None else person.id, team=team)
        if team is not None and not numbers:
            raise NotFound("team's submission", team, hint=f"Nobody has submitted to {held.name} for it.")
        earlier, later = [one for one in numbers if one <= after], [one for one in numbers if one > after]
        entries: list[dict[str, Any]] = []
        before, lines, characters = self._last_source(earlier), 0, 0
        for number in later[: work_logs.AT_ONCE]:
            view = self.store.submissions.get(number)
            lines += (view.source or "").count("\n")
            entries.append(_entry(view, before, may_compare=lines <= work_logs.LINES_AT_ONCE, characters=characters))
            characters += len(entries[-1]["diff"])
            before = view if view.source else before
        said = {"leaderboard": held.name, "submissions": len(entries), **({} if team is None else {"team": team})}
        subject = f"board:{held.id}" if person is None else f"person:{person.id}"
        self.store.events.audit(self.by, "worklog", subject, said, now=self.now)
        return {
            "leaderboard": held.name,
            "problem": held.problem_name,
            "deadline": iso(held.deadline_at),
            "zone": held.zone,
            "person": None if person is None else person.name,
            "person_id": None if person is None else person.id,
            "team": team,
            "written_at": self.now.isoformat(),
            "of": len(numbers),
            "earlier": len(earlier),
            "next_after": entries[-1]["submission"] if len(entries) < len(later) else None,
            "submissions": entries,
        }

    def _last_source(self, numbers: Sequence[SubmissionId]) -> SubmissionView | None:
        """The last of these that still has its source; of the very last ones, if many were deleted."""
        for number in list(reversed(numbers))[: work_logs.AT_ONCE]:
            view = self.store.submissions.get(number)
            if view.source:
                return view
        return None


def archive_told(one: Archive) -> dict[str, Any]:
    """An archive that was written, as hosts see it."""
    return {**dataclasses.asdict(one), "at": one.at.isoformat()}


def _plain(row: Row) -> dict[str, Any]:
    """Moments as text: the same row from the database and over HTTP."""
    return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in row.items()}


def _entry(
    view: SubmissionView, before: SubmissionView | None, *, may_compare: bool, characters: int
) -> dict[str, Any]:
    text, added, removed = _changes(before, view) if may_compare or not view.source else (TOO_LONG, 0, 0)
    return {
        "submission": view.id,
        "person": view.person,
        "at": view.accepted_at.isoformat(),
        "mode": view.mode,
        "file_name": view.file_name,
        "via": view.via,
        "late_s": view.late_s,
        "deleted": view.removed_at is not None,
        "compared_with": None if before is None or not view.source else before.id,
        "lines_added": added,
        "lines_removed": removed,
        "diff": work_logs.told(text, characters),
        "runs": [_run(run, view.mode) for run in view.runs],
    }


def _run(run: RunView, mode: str) -> dict[str, Any]:
    verdict, stamps = run.verdict, run.stamps
    started, ended = stamps.harness_started_at, stamps.harness_ended_at
    detail = (verdict.detail if verdict else None) or {}
    return {
        "gpu": run.gpu,
        "state": run.shown_state,
        "verdict": verdict.name if verdict else None,
        "reason": (why_unranked(verdict, mode) or verdict.reason) if verdict else run.reason,
        "score_s": verdict.score_s if verdict else None,
        "low_s": verdict.low_s if verdict else None,
        "high_s": verdict.high_s if verdict else None,
        "ranked": bool(verdict and verdict.ranked),
        "ended_at": iso(run.ended_at),
        "waited_s": None if started is None else max(0.0, (started - run.queued_at).total_seconds()),
        "ran_s": None if started is None or ended is None else max(0.0, (ended - started).total_seconds()),
        "profile": [
            f"{one.get('spec', '')}: {said}"
            for one in detail.get("digests") or ()
            for said in (*(one.get("limits") or ()), *(one.get("hints") or ()))
        ],
    }


def _changes(before: SubmissionView | None, after: SubmissionView) -> tuple[str, int, int]:
    """The changed lines since the submission before, and how many were added and removed."""
    if not after.source:
        return "", 0, 0
    old = (before.source or "").splitlines() if before is not None else []
    new = after.source.splitlines()
    if max(len(old), len(new)) > work_logs.MOST_LINES:
        return f"(not compared: more than {work_logs.MOST_LINES:,} lines)", 0, 0
    names = (f"#{before.id}/{before.file_name}" if before is not None else "nothing", f"#{after.id}/{after.file_name}")
    lines = list(difflib.unified_diff(old, new, *names, lineterm=""))
    body = lines[2:]
    return (
        "\n".join(lines),
        sum(line.startswith("+") for line in body),
        sum(line.startswith("-") for line in body),
    )
