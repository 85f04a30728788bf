"""What grades are computed from: everybody who gets one, and how their submissions went."""

from __future__ import annotations

from kbslurm.domain.grades import Handed, Student
from kbslurm.store.connect import Pool
from kbslurm.store.deadlines import late_s, practice
from kbslurm.store.final_scores import NEWEST_SCORES, SIDE, bound, limited
from kbslurm.store.rows import Rows
from kbslurm.store.views import Board

# On a board of a course its roster; else everybody who has made a ranked submission, except staff.
STUDENTS = f"""
SELECT p.id AS person_id, p.name, p.banned_at IS NOT NULL AS banned, d.full_name, d.email, d.student_id,
    coalesce(d.extra, '{{}}') AS extra, r.section, coalesce(r.team, CASE WHEN r.course IS NULL THEN p.team END) AS team,
    CASE WHEN b.teams AND kb_team_of(p.id, b.id) IS NOT NULL THEN 'team:' || kb_team_of(p.id, b.id)
        ELSE 'person:' || p.id END AS side
FROM leaderboard b JOIN person p ON true
LEFT JOIN roster r ON r.course = b.course AND r.person_id = p.id
LEFT JOIN personal_data d ON d.person_id = p.id
WHERE b.id = %(board)s AND CASE
    WHEN b.course IS NOT NULL THEN r.role = 'student'
    ELSE p.role = 'participant' AND EXISTS (
        SELECT 1 FROM submission s WHERE s.board_id = b.id AND s.person_id = p.id AND s.mode = 'leaderboard'
            AND s.removed_at IS NULL AND NOT {practice("s")})
    END
ORDER BY lower(coalesce(r.section, '')), lower(coalesce(d.full_name, p.name)), p.id
"""

_OWN = "coalesce(fs.{name}, v.{name})"
_HANDED = f"""
SELECT s.id AS submission, p.name AS person, s.accepted_at AS at, coalesce(v.name, r.state) AS verdict,
    CASE WHEN b.teams AND s.team IS NOT NULL THEN 'team:' || s.team ELSE 'person:' || s.person_id END AS side,
    {late_s("s")} AS late_s,
    CASE WHEN v.ranked AND r.may_rank THEN coalesce(x.score_s, {limited("score_s", _OWN, "s.id")}) END AS score_s,
    CASE WHEN v.ranked AND r.may_rank THEN coalesce(x.low_s, {limited("low_s", _OWN, "s.id")}) END AS low_s,
    CASE WHEN v.ranked AND r.may_rank THEN coalesce(x.high_s, {limited("high_s", _OWN, "s.id")}) END AS high_s,
    CASE WHEN jsonb_typeof(v.detail -> 'speed_of_light' -> 'share') = 'number'
        THEN (v.detail -> 'speed_of_light' ->> 'share')::float8 END AS light
FROM submission s JOIN leaderboard b ON b.id = s.board_id JOIN person p ON p.id = s.person_id
JOIN run r ON r.submission_id = s.id AND r.problem_version_id = b.problem_version_id AND r.counts AND r.gpu = %(gpu)s
LEFT JOIN verdict v ON v.run_id = r.id
LEFT JOIN ({NEWEST_SCORES}) fs ON fs.run_id = r.id
{bound(side=SIDE.format(s="s"), run="r", until=False)}
LEFT JOIN fixed_place x ON x.run_id = r.id AND x.finalisation_id = %(finalisation)s
WHERE s.board_id = %(board)s AND s.mode = 'leaderboard' AND s.removed_at IS NULL AND p.banned_at IS NULL
    AND r.ended_at IS NOT NULL AND NOT {practice("s")}
ORDER BY s.accepted_at, s.id
"""

_OPEN = f"""
SELECT count(*) AS n FROM submission s JOIN leaderboard b ON b.id = s.board_id
JOIN run r ON r.submission_id = s.id AND r.problem_version_id = b.problem_version_id AND r.gpu = %(gpu)s
WHERE s.board_id = %(board)s AND s.mode = 'leaderboard' AND s.removed_at IS NULL AND r.ended_at IS NULL AND r.counts
    AND NOT {practice("s")}
"""


class Gradebook(Rows):
    """A board's students and their ranked submissions, as `domain.grades` takes them."""

    def __init__(self, pool: Pool) -> None:
        super().__init__(pool)

    def students(self, board: Board) -> list[Student]:
        """Everybody who gets a grade, by section and name."""
        return [Student(**row) for row in self._all(STUDENTS, {"board": board.id})]

    def handed(self, board: Board, gpu: str, baseline_s: float | None) -> list[Handed]:
        """The ranked submissions on this GPU type whose runs have ended, oldest first."""
        told = {"board": board.id, "gpu": gpu, "finalisation": board.finalisation}
        return [Handed(**row, baseline_s=baseline_s) for row in self._all(_HANDED, told)]

    def still_open(self, board: Board, gpu: str) -> int:
        """How many of their runs haven't ended: until then grades can change."""
        found = self._one(_OPEN, {"board": board.id, "gpu": gpu})
        assert found is not None
        return int(found["n"])
