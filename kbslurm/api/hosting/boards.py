"""Hosts' acts about boards: create, edit, close, delete, export."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from kbslurm.api.hosting.host_acts import HostActs, iso
from kbslurm.config import shared_folders
from kbslurm.domain import board as boards
from kbslurm.domain import contest, lateness, places
from kbslurm.errors import Invalid, NoGpuType, NotFound
from kbslurm.trial.inputs import with_checked_inputs

if TYPE_CHECKING:
    from kbslurm.domain.access import NamesShown, StandingsShown, Visibility
    from kbslurm.domain.problem import Problem
    from kbslurm.store.views import Board


MOST_WARNINGS = 20


class Loaded(Protocol):
    """A problem that was read from its files."""

    @property
    def problem(self) -> Problem: ...


class BoardActs(HostActs):
    """Boards."""

    def new_board(
        self,
        name: str,
        *,
        sent: Loaded | None = None,
        problem: str | None = None,
        gpus: Sequence[str] = (),
        deadline: str | None = None,
        zone: str = "UTC",
        description: str | None = None,
        visibility: Visibility = "public",
        min_isolation: int | None = None,
        confirm: bool = True,
        course: str | None = None,
        teams: bool = False,
        teams_only: bool = False,
        practice: bool = False,
        names: NamesShown = "real",
        standings: StandingsShown = "shown",
        publishes_reference: bool = False,
    ) -> Mapping[str, Any]:
        """Create a board on a problem that comes along, or on the newest version of the one with that name."""
        known = contest.board_name(contest.within("name", name, contest.NAME_CAP))
        check_texts(description, gpus, deadline, zone)
        closes = None if deadline is None else contest.coming_deadline(deadline, zone, self.now)
        if self.store.boards.find(known, counted=False) is not None:
            raise Invalid(f"there is already a board {known!r}", hint="Pick another name.")
        if (sent is None) == (problem is None):
            raise Invalid("a board needs exactly one problem", hint="Send one, or name an existing one.")
        of_course = self.known_course(course) if course else None
        found = sent.problem if sent is not None else self.newest_problem(problem or "")
        types = contest.as_known(gpus or found.gpus, self.offered())
        if not types:
            raise NoGpuType(f"board {known} has no GPU type", hint="Choose at least one.")
        self.check_memory(found, types)
        if sent is not None:
            found = with_checked_inputs(found, eval_dir=shared_folders.eval_dir())
        made = self.store.boards.add(
            known,
            found,
            gpus=types,
            deadline_at=closes,
            zone=zone,
            description=description,
            visibility=visibility,
            min_isolation=self.config.policy.ranked_min_isolation if min_isolation is None else min_isolation,
            confirm=confirm,
            course=of_course,
            teams=teams,
            teams_only=teams_only,
            practice=practice,
            names=names,
            standings=standings,
            publishes_reference=publishes_reference,
            created_by=self.creator,
            by=self.by,
            now=self.now,
        )
        warnings = [*found.warnings, *contest.unknown_gpus(made.gpus, self.offered())]
        return {
            **self.named(made), "gpu_types": list(made.gpus), "warnings": warnings[:MOST_WARNINGS], "board": told(made),
        }  # fmt: skip

    def edit_board(
        self,
        board: str,
        *,
        description: str | None = None,
        gpus: Sequence[str] | None = None,
        deadline: str | None = None,
        zone: str | None = None,
        visibility: Visibility | None = None,
        min_isolation: int | None = None,
        version: int | None = None,
        cold: bool | None = None,
        course: str | None = None,
        teams: bool | None = None,
        teams_only: bool | None = None,
        practice: bool | None = None,
        names: NamesShown | None = None,
        standings: StandingsShown | None = None,
        publishes_reference: bool | None = None,
        reopen: bool = False,
    ) -> Mapping[str, Any]:
        """Change what is given; a deadline may also be `never`, and a course empty: none. The answer says what changed.
        What is wrong changes nothing."""
        held, store = self.held(board), self.store.boards
        check_texts(description, gpus or (), deadline, zone)
        home = held.zone if zone is None else zone
        contest.zone(home)
        until = held.deadline_at if deadline is None else None
        if deadline is not None and deadline != "never":
            until = contest.coming_deadline(deadline, home, self.now)
        if version is not None:
            self._check_version(held, version)
        of_course = self.known_course(course) if course else course
        types = None if gpus is None else contest.as_known(gpus, self.offered())
        if types is not None or version is not None:
            problem = held.problem if version is None else self.store.problems.of_version(version)
            self.check_memory(problem, held.gpus if types is None else types)
        changed = store.edit(
            held.name,
            by=self.by,
            description=description,
            gpus=types,
            min_isolation=min_isolation,
            cold=cold,
            course=of_course,
            teams=teams,
            teams_only=teams_only,
            practice=practice,
            names=names,
            standings=standings,
            publishes_reference=publishes_reference,
            reopen=reopen,
            now=self.now,
        )
        if deadline is not None or zone is not None:
            store.set_deadline(held.name, until, home, by=self.by, now=self.now)
            changed.append("deadline")
        if visibility is not None and visibility != held.visibility:
            store.set_visibility(held.name, visibility, by=self.by, now=self.now)
            changed.append("visibility")
        if version is not None and version != held.problem_version_id:
            store.set_live(held.name, version, by=self.by, now=self.now)
            changed.append("version")
        warnings = [] if types is None else contest.unknown_gpus(types, self.offered())
        return {**self.named(held), "changed": changed, "warnings": warnings[:MOST_WARNINGS]}

    def close_board(self, board: str) -> Mapping[str, Any]:
        """Stop accepting submissions to a board; its standings stay."""
        held = self.held(board)
        self.store.boards.close(held.name, by=self.by, now=self.now)
        return self.named(held)

    def delete_board(self, board: str, *, force: bool = False, only: int | None = None) -> Mapping[str, Any]:
        """Delete a board; with submissions only by force."""
        held = self.held(board)
        self.store.boards.delete(held.name, force=force, only=only, by=self.by, now=self.now)
        return {**self.named(held), "force": force}

    def set_visibility(self, board: str, visibility: Visibility) -> Mapping[str, Any]:
        """Show a board to everyone, or only to invited people."""
        held = self.held(board)
        self.store.boards.set_visibility(held.name, visibility, by=self.by, now=self.now)
        return {**self.named(held), "visibility": visibility}

    def places(self, board: str, *, live: bool = False) -> Sequence[Mapping[str, Any]]:
        """A board's standings: each person's best per GPU type, with unrounded scores. Of a frozen, hidden or anonymous
        board what everybody may see, since such tables are handed on; `live`: all of it, by people's own names."""
        held = self.held(board)
        rows = [
            places.row(held.name, gpu, one, paired=held.problem.baseline is not None)
            for gpu in held.gpus
            for one in boards.ranked(self.store.standings.best(held.name, gpu, live=live))
        ]
        self.store.events.audit(
            self.by, "export", f"board:{held.id}", {"places": len(rows), "live": live}, now=self.now
        )
        return rows

    def shown_names(self, board: str) -> Sequence[Mapping[str, Any]]:
        """As whom others see the people, or teams, who have submitted to a board: by what they are shown as."""
        held = self.held(board)
        rows = self.who_is_who(held)
        self.store.events.audit(self.by, "names", f"board:{held.id}", {"people": len(rows)}, now=self.now)
        return rows

    def who_is_who(self, held: Board) -> Sequence[Mapping[str, Any]]:
        """The same to look at."""
        disguise, rows = self.store.boards.disguise(held), []
        for one in self.store.boards.who_submitted(held):
            shown = disguise.name_of(one["person_id"], one["team"]) or one["team"] or one["person"]
            rows.append({"shown_as": shown, **one})
        return sorted(rows, key=lambda row: (row["shown_as"].lower(), row["person"].lower()))

    def _check_version(self, board: Board, version: int) -> None:
        known = [one.id for one in self.store.problems.all() if one.name == board.problem_name]
        if version not in known:
            raise NotFound(f"version of problem {board.problem_name}", str(version), known=[str(one) for one in known])

    def newest_problem(self, name: str) -> Problem:
        """The newest version of the problem with that name, or NotFound with the existing ones."""
        known = self.store.problems.all()
        ids = [version.id for version in known if version.name.lower() == name.lower()]
        if not ids:
            raise NotFound("problem", name, known=sorted({version.name for version in known}))
        return self.store.problems.of_version(max(ids))

    @staticmethod
    def named(board: Board) -> dict[str, Any]:
        """How an answer about a board begins."""
        return {"status": "ok", "leaderboard": board.name}


def check_texts(
    description: str | None,
    gpus: Sequence[str],
    deadline: str | None,
    zone: str | None,
    *,
    until: str | None = None,
) -> None:
    """Invalid if one of them is longer than a board keeps; the API's models have the same limits."""
    contest.within("description", description or "", contest.DESCRIPTION_CAP)
    for what, text in (("deadline", deadline), ("zone", zone), ("until", until), *(("gpus", gpu) for gpu in gpus)):
        contest.within(what, text or "", contest.NAME_CAP)
    if len(gpus) > contest.MOST_GPUS:
        raise Invalid(f"{len(gpus)} GPU types are too many for a board: at most {contest.MOST_GPUS}")


def told(board: Board) -> dict[str, Any]:
    """What anyone may know about a board: no seed, no hidden case."""
    return {
        "board": board.name,
        "description": board.description,
        "problem": board.problem_name,
        "problem_digest": board.problem_digest,
        "gpus": list(board.gpus),
        "deadline_at": iso(board.deadline_at),
        "zone": board.zone,
        "visibility": board.visibility,
        "closed_at": iso(board.closed_at),
        "late_until": iso(board.late.until),
        "late": lateness.in_words(board.late, board.zone),
        "frozen_at": iso(board.frozen_at),
        "finalised_at": iso(board.finalised_at),
        "submissions": board.submissions,
        "confirm": board.confirm,
        "cold": board.cold,
        "course": board.course,
        "teams": board.teams,
        "teams_only": board.teams_only,
        "practice": board.practice,
        "names": board.names,
        "standings": board.standings,
        "publishes_reference": board.publishes_reference,
        "modes": list(board.problem.modes),
    }
