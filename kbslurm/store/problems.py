"""Problems and their versions, each identified by its digest. A version never changes."""

from __future__ import annotations

from datetime import datetime

from psycopg.types.json import Jsonb

from kbslurm.domain import scripts
from kbslurm.domain.problem import Problem, as_json, from_json
from kbslurm.errors import NotFound
from kbslurm.store.connect import Connection, Pool
from kbslurm.store.rows import Rows, note_event, or_now
from kbslurm.store.views import ProblemVersion

PROBLEMS_KEPT = 64


class Problems(Rows):
    """Every version of every problem."""

    def __init__(self, pool: Pool) -> None:
        super().__init__(pool)
        self._problems: dict[int, tuple[str, Problem]] = {}

    def add(self, problem: Problem, *, by: str | None = None, now: datetime | None = None) -> int:
        """The ID of the version with this problem's digest, created if needed. Versions never change."""
        with self._pool.transaction() as connection:
            version = make_version(connection, problem, or_now(now))
            if by is not None:
                told = {"version": version, "digest": problem.digest, "by": by}
                note_event(connection, "staff.problem.add", f"problem:{problem.name}", told, or_now(now))
        return version

    def all(self) -> list[ProblemVersion]:
        """Every version of every problem, by name and then oldest first."""
        found = self._all(
            "SELECT v.id, v.problem_id, p.name, v.digest, v.created_at, coalesce(v.content->>'inputs', '') AS inputs"
            " FROM problem_version v JOIN problem p ON p.id = v.problem_id WHERE p.name <> %(built_in)s"
            " ORDER BY p.name, v.id",
            {"built_in": scripts.NAME},
        )
        return [ProblemVersion(**row) for row in found]

    def of_version(self, version: int) -> Problem:
        return self.version(version)[1]

    def digest(self, version: int) -> str:
        """The recorded digest, which the harness must report whatever newer code would compute."""
        return self.version(version)[0]

    def version(self, version: int) -> tuple[str, Problem]:
        known = self._problems.get(version)
        if known is None:
            found = self._one("SELECT digest, content FROM problem_version WHERE id = %(id)s", {"id": version})
            if found is None:
                raise NotFound("problem version", str(version))
            known = (found["digest"], from_json(found["content"]))
            if len(self._problems) >= PROBLEMS_KEPT:
                self._problems.clear()
            self._problems[version] = known
        return known


def make_version(connection: Connection, problem: Problem, now: datetime) -> int:
    told = {"name": problem.name, "digest": problem.digest, "content": Jsonb(as_json(problem)),
            "ranks": problem.world_size, "paired": problem.baseline is not None, "now": now}  # fmt: skip
    connection.execute("INSERT INTO problem (name) VALUES (%(name)s) ON CONFLICT (name) DO NOTHING", told)
    connection.execute(
        "INSERT INTO problem_version (problem_id, digest, content, ranks, paired, created_at)"
        " SELECT id, %(digest)s, %(content)s, %(ranks)s, %(paired)s, %(now)s FROM problem WHERE name = %(name)s"
        " ON CONFLICT (problem_id, digest) DO NOTHING",
        told,
    )
    found = connection.execute(
        "SELECT v.id FROM problem_version v JOIN problem p ON p.id = v.problem_id"
        " WHERE p.name = %(name)s AND v.digest = %(digest)s",
        told,
    ).fetchone()
    assert found is not None
    return int(found["id"])
