"""Leaderboards: created, changed, closed and deleted by hosts."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from psycopg.rows import DictRow

from kbslurm.domain import access, contest
from kbslurm.domain.access import NamesShown, StandingsShown, Visibility
from kbslurm.domain.finals import FINAL
from kbslurm.domain.lateness import LatePolicy
from kbslurm.domain.problem import Problem
from kbslurm.domain.pseudonyms import Disguise
from kbslurm.domain.run import PersonId
from kbslurm.errors import Invalid, NoGpuType, NotFound
from kbslurm.store.connect import Pool
from kbslurm.store.problems import Problems, make_version
from kbslurm.store.rows import Rows, note_event, or_now
from kbslurm.store.views import Board, RankBy

_BOARD = """
SELECT b.id, b.name, b.description, pr.name AS problem_name, b.problem_version_id, b.deadline_at, b.zone, b.visibility,
    b.gpus, b.ranking, b.secret_seed, b.min_isolation, b.confirm, b.cold, b.created_by, b.created_at, b.closed_at,
    b.late_until, b.late_grace_s, b.late_percent, b.late_per, b.slip_days, b.frozen_at, fixed.id AS finalisation,
    fixed.at AS finalised_at, b.course, b.teams, b.teams_only, b.practice, b.names, b.standings,
    b.publishes_reference, {submissions} AS submissions
FROM leaderboard b JOIN problem pr ON pr.id = b.problem_id
LEFT JOIN LATERAL (
    SELECT f.id, f.at FROM finalisation f WHERE f.board_id = b.id AND f.withdrawn_at IS NULL ORDER BY f.id DESC LIMIT 1
) fixed ON true
WHERE b.deleted_at IS NULL
"""

# Submissions, of which there may be a million, aren't counted for callers who only read standings.
_COUNTED = _BOARD.format(
    submissions="(SELECT count(*) FROM submission s WHERE s.board_id = b.id AND s.removed_at IS NULL)"
)

_UNCOUNTED = _BOARD.format(submissions="NULL::bigint")


class Boards(Rows):
    """Every board that isn't deleted."""

    def __init__(self, pool: Pool, problems: Problems) -> None:
        super().__init__(pool)
        self._problems = problems

    def add(
        self,
        name: str,
        problem: Problem | None = None,
        *,
        problem_version_id: int | None = None,
        gpus: Sequence[str] = (),
        description: str | None = None,
        deadline_at: datetime | None = None,
        zone: str = "UTC",
        visibility: Visibility = "public",
        ranking: RankBy = "best",
        min_isolation: int = 0,
        confirm: bool = True,
        course: str | None = None,
        teams: bool = False,
        teams_only: bool = False,
        practice: bool = False,
        names: NamesShown = "real",
        standings: StandingsShown = "shown",
        publishes_reference: bool = False,
        created_by: PersonId | None = None,
        by: str | None = None,
        now: datetime | None = None,
    ) -> Board:
        """Create a board on a problem, stored as a version if it is new, or on an existing version.

        `gpus` empty: the problem's own list. `confirm`: rank improvements are measured a second time.
        """
        known = contest.board_name(name)
        check_teams(known, teams=teams, teams_only=teams_only)
        if problem is None:
            if problem_version_id is None:
                raise Invalid(f"board {known} has no problem", hint="Choose one.")
            problem = self._problems.of_version(problem_version_id)
        types = tuple(dict.fromkeys(contest.gpu_name(gpu) for gpu in (gpus or problem.gpus)))
        if not types:
            raise NoGpuType(f"board {known} has no GPU type", hint="Choose at least one.")
        contest.zone(zone)
        at = or_now(now)
        with self._pool.transaction() as connection:
            version = make_version(connection, problem, at) if problem_version_id is None else problem_version_id
            told = {
                "name": known,
                "description": problem.description if description is None else description,
                "version": version,
                "deadline_at": deadline_at,
                "zone": zone,
                "visibility": visibility,
                "gpus": list(types),
                "ranking": ranking,
                "seed": secrets.token_hex(16),
                "min_isolation": min_isolation,
                "confirm": confirm,
                "course": course,
                "teams": teams,
                "teams_only": teams_only,
                "practice": practice,
                "names": names,
                "standings": standings,
                "publishes_reference": publishes_reference,
                "by": created_by,
                "now": at,
            }
            found = connection.execute(
                b"INSERT INTO leaderboard (name, description, problem_id, problem_version_id, deadline_at, zone,"
                b" visibility, gpus, ranking, secret_seed, min_isolation, confirm, course, teams, teams_only, practice,"
                b" names, standings, publishes_reference, created_by, created_at)"
                b" SELECT %(name)s, %(description)s, problem_id, id, %(deadline_at)s, %(zone)s, %(visibility)s,"
                b" %(gpus)s, %(ranking)s, %(seed)s, %(min_isolation)s, %(confirm)s, %(course)s, %(teams)s,"
                b" %(teams_only)s, %(practice)s, %(names)s, %(standings)s, %(publishes_reference)s, %(by)s, %(now)s"
                b" FROM problem_version WHERE id = %(version)s"
                b" ON CONFLICT (lower(name)) WHERE deleted_at IS NULL DO NOTHING RETURNING id",
                told,
            ).fetchone()
            if found is None:
                raise Invalid(f"there is already a board {known!r}", hint="Choose another name, or delete that one.")
            subject = f"board:{found['id']}"
            note_event(connection, "board.created", subject, {"name": known, "by": created_by}, at)
            if by is not None:
                note_event(connection, "staff.create_board", subject, {"name": known, "by": by}, at)
        return self.get(known)

    def all(self, *, public_only: bool = False, counted: bool = True) -> list[Board]:
        """Every board that isn't deleted, newest first."""
        wanted = " AND b.visibility = 'public'" if public_only else ""
        statement = _COUNTED if counted else _UNCOUNTED
        return [self._board(found) for found in self._all(f"{statement}{wanted} ORDER BY b.id DESC")]

    def names(self, *, public_only: bool = False) -> list[str]:
        wanted = " AND visibility = 'public'" if public_only else ""
        found = self._all(f"SELECT name FROM leaderboard WHERE deleted_at IS NULL{wanted} ORDER BY name")
        return [row["name"] for row in found]

    def names_of(self, boards: Collection[int]) -> dict[int, str]:
        """What these are called, by their numbers; also those that were deleted."""
        found = self._all("SELECT id, name FROM leaderboard WHERE id = ANY(%(boards)s)", {"boards": list(boards)})
        return {row["id"]: row["name"] for row in found}

    def find(self, name: str, *, counted: bool = True) -> Board | None:
        """The board with this name, in any case."""
        statement = _COUNTED if counted else _UNCOUNTED
        found = self._one(f"{statement} AND lower(b.name) = lower(%(name)s)", {"name": name.strip()})
        return None if found is None else self._board(found)

    def get(self, name: str, *, counted: bool = True) -> Board:
        found = self.find(name, counted=counted)
        if found is None:
            raise NotFound("board", name, known=self.names(public_only=True))
        return found

    def disguise(self, board: Board) -> Disguise:
        """As whom others see the people on it. Holds a secret: never show it."""
        if access.names_people(board.names):
            return Disguise()
        found = self._one("SELECT names_key FROM leaderboard WHERE id = %(id)s", {"id": board.id})
        assert found is not None
        chosen = {}
        if board.names == "nicknames":
            rows = self._all("SELECT person_id, name FROM nickname WHERE board_id = %(id)s", {"id": board.id})
            chosen = {row["person_id"]: row["name"] for row in rows}
        return Disguise(names=board.names, key=found["names_key"], nicknames=chosen)

    def who_submitted(self, board: Board) -> list[dict[str, Any]]:
        """Everybody who has submitted to it, with the team that it counts for where teams count together."""
        return self._all(
            "SELECT DISTINCT p.name AS person, p.id AS person_id, CASE WHEN b.teams THEN s.team END AS team"
            " FROM submission s JOIN person p ON p.id = s.person_id JOIN leaderboard b ON b.id = s.board_id"
            " WHERE b.id = %(id)s AND s.via <> %(final)s",
            {"id": board.id, "final": FINAL},
        )

    def _board(self, row: DictRow) -> Board:
        digest, problem = self._problems.version(row["problem_version_id"])
        late = LatePolicy(
            until=row.pop("late_until"),
            grace_s=row.pop("late_grace_s"),
            percent=row.pop("late_percent"),
            per=row.pop("late_per"),
            slip_days=row.pop("slip_days"),
        )
        more = {"gpus": tuple(row["gpus"]), "problem": problem, "problem_digest": digest, "late": late}
        return Board(**{**row, **more})

    def set_live(self, board: str, version: int, *, by: str | None = None, now: datetime | None = None) -> None:
        """Make the board rank by this version of its problem. This alone doesn't judge anything again."""
        held = self.get(board)
        found = self._change(
            "board",
            "UPDATE leaderboard b SET problem_version_id = v.id FROM problem_version v"
            " WHERE b.id = %(id)s AND v.id = %(version)s AND v.problem_id = b.problem_id RETURNING b.id",
            {"id": held.id, "version": version},
            (by, "set_live", f"board:{held.id}", {"from": held.problem_version_id, "to": version}),
            now,
            required=False,
        )
        if not found:
            raise NotFound(f"version of problem {held.problem_name}", str(version))

    def set_deadline(
        self,
        board: str,
        deadline_at: datetime | None,
        zone: str = "UTC",
        *,
        by: str | None = None,
        now: datetime | None = None,
    ) -> None:
        contest.zone(zone)
        held = self.get(board)
        said = None if deadline_at is None else deadline_at.isoformat()
        self._change(
            "board",
            "UPDATE leaderboard SET deadline_at = %(deadline_at)s, zone = %(zone)s WHERE id = %(id)s RETURNING id",
            {"id": held.id, "deadline_at": deadline_at, "zone": zone},
            (by, "deadline", f"board:{held.id}", {"deadline_at": said, "zone": zone}),
            now,
        )

    def set_visibility(
        self, board: str, visibility: Visibility, *, by: str | None = None, now: datetime | None = None
    ) -> None:
        held = self.get(board)
        self._change(
            "board",
            "UPDATE leaderboard SET visibility = %(visibility)s WHERE id = %(id)s RETURNING id",
            {"id": held.id, "visibility": visibility},
            (by, "visibility", f"board:{held.id}", {"visibility": visibility}),
            now,
        )

    def edit(
        self,
        board: str,
        *,
        by: str,
        description: str | None = None,
        gpus: Sequence[str] | None = None,
        min_isolation: int | None = None,
        cold: bool | None = None,
        course: str | None = None,
        teams: bool | None = None,
        teams_only: bool | None = None,
        practice: bool | None = None,
        names: NamesShown | None = None,
        standings: StandingsShown | None = None,
        publishes_reference: bool | None = None,
        reopen: bool = False,
        now: datetime | None = None,
    ) -> list[str]:
        """Change what is given and different; returns the names of what changed. Queued runs keep their GPU type.
        `cold`: its runs are jobs of their own, also where a warm worker is free. `course` empty: of no course."""
        held, at = self.get(board), or_now(now)
        types = None if gpus is None else list(dict.fromkeys(contest.gpu_name(gpu) for gpu in gpus))
        if types is not None and not types:
            raise Invalid(f"board {held.name} needs a GPU type", hint="Choose at least one.")
        wanted: dict[str, tuple[Any, Any]] = {
            "description": (description, held.description),
            "gpus": (types, list(held.gpus)),
            "min_isolation": (min_isolation, held.min_isolation),
            "cold": (cold, held.cold),
            "course": (course, held.course or ""),
            "teams": (teams, held.teams),
            "teams_only": (teams_only, held.teams_only),
            "practice": (practice, held.practice),
            "names": (names, held.names),
            "standings": (standings, held.standings),
            "publishes_reference": (publishes_reference, held.publishes_reference),
        }
        changed = {name: new for name, (new, old) in wanted.items() if new is not None and new != old}
        together = changed.get("teams", held.teams)
        check_teams(held.name, teams=together, teams_only=changed.get("teams_only", held.teams_only))
        if changed.get("course") == "":
            changed["course"] = None
        if reopen and held.closed_at is not None:
            changed["closed_at"] = None
        if not changed:
            return []
        # The names come only from `wanted`: no caller's text gets into the statement.
        sets = ", ".join(f"{name} = %({name})s" for name in changed)
        with self._pool.transaction() as connection:
            connection.execute(f"UPDATE leaderboard SET {sets} WHERE id = %(id)s".encode(), {**changed, "id": held.id})
            said: dict[str, Any] = {
                name: changed[name] for name in ("names", "standings", "publishes_reference") if name in changed
            }  # who may see what
            said |= {"changed": sorted(changed), "by": by}
            note_event(connection, "staff.edit_board", f"board:{held.id}", said, at)
        return sorted(changed)

    def close(self, board: str, *, by: str | None = None, now: datetime | None = None) -> None:
        """Stop accepting submissions, except from staff; the standings stay."""
        held = self.get(board)
        self._change(
            "board",
            "UPDATE leaderboard SET closed_at = coalesce(closed_at, %(now)s) WHERE id = %(id)s RETURNING id",
            {"id": held.id, "now": or_now(now)},
            (by, "close", f"board:{held.id}", {}),
            now,
        )

    def delete(
        self,
        board: str,
        *,
        force: bool = False,
        only: int | None = None,
        by: str | None = None,
        now: datetime | None = None,
    ) -> None:
        """Delete it; with submissions only by `force`. Its data stays, its name can be used again. `only`: the ID that
        it must have, since another board may have the name by now."""
        held = self.get(board)
        if only is not None and held.id != only:
            raise Invalid(
                f"board {held.name} is a different one now: the original was deleted and this one created since",
                hint="Check it before you delete it.",
            )
        if held.submissions and not force:
            raise Invalid(
                f"board {held.name} has {held.submissions} submissions", hint="Delete it by force, or close it."
            )
        self._change(
            "board",
            "UPDATE leaderboard SET deleted_at = %(now)s WHERE id = %(id)s AND deleted_at IS NULL RETURNING id",
            {"id": held.id, "now": or_now(now)},
            (by, "delete_board", f"board:{held.id}", {"name": held.name, "force": force}),
            now,
        )


def check_teams(board: str, *, teams: bool, teams_only: bool) -> None:
    """Invalid if only teams may take part where they don't count together."""
    if teams_only and not teams:
        raise Invalid(
            f"teams don't count together on board {board}, so it can't be for teams alone",
            hint="Pass --teams as well, or --no-teams-only.",
        )
