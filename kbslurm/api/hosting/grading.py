"""Hosts' acts about grades: everybody's points by a scheme, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kbslurm.api.hosting.host_acts import HostActs
from kbslurm.domain import contest, lateness
from kbslurm.domain.grades import Basis, Grade, Scheme, graded
from kbslurm.domain.grading_scheme import parsed_scheme
from kbslurm.errors import Invalid
from kbslurm_eval.shared.timing import launch_scores

if TYPE_CHECKING:
    from kbslurm.store.views import Board


class GradingActs(HostActs):
    """Grades. Nothing is stored: the same records and the same scheme give the same grades."""

    def grades(self, board: str, scheme: str) -> Mapping[str, Any]:
        """A grade for everybody on the roster, by this scheme in TOML, with what explains it."""
        held = self.held(board)
        wanted = parsed_scheme(scheme, counts="last" if held.ranking == "last" else "best")
        gpu = graded_gpu(held.name, held.gpus, wanted)
        baseline_s = self._baseline_s(held, gpu)
        check_baseline(held.name, wanted, gpu, baseline_s)
        store = self.store.gradebook
        basis = Basis(
            students=tuple(store.students(held)),
            handed=tuple(store.handed(held, gpu, baseline_s)),
            late=held.late,
        )
        found = grades_told(
            basis, wanted, board=held.name, gpu=gpu, zone=held.zone, open_runs=store.still_open(held, gpu)
        )
        said = {"people": len(found["grades"]), "by": wanted.by, "gpu": gpu}
        self.store.events.audit(self.by, "grades", f"board:{held.id}", {"scheme": said}, now=self.now)
        return found

    def _baseline_s(self, board: Board, gpu: str) -> float | None:
        """What the problem's baseline took, combined over the cases as scores are."""
        found = self.store.calibrations.of_board(board).get(gpu)
        if found is None or not found.b_ref_s:
            return None
        return launch_scores([[one] for one in found.b_ref_s], board.problem.ranking_by)[0]


def graded_gpu(board: str, gpus: Sequence[str], scheme: Scheme) -> str:
    """The GPU type that is graded: the scheme's, or the board's only one."""
    if scheme.gpu is not None:
        return contest.known_gpu(scheme.gpu, tuple(gpus))
    if len(gpus) != 1:
        raise Invalid(
            f"board {board} has {len(gpus)} GPU types, and the scheme has no `gpu`",
            hint=f'Grade by one of them, like gpu = "{gpus[0]}".' if gpus else None,
        )
    return gpus[0]


def check_baseline(board: str, scheme: Scheme, gpu: str, baseline_s: float | None) -> None:
    """Invalid if the scheme compares with a baseline and there is none."""
    if scheme.by == "speedup" and scheme.baseline_s is None and baseline_s is None:
        raise Invalid(
            f"the problem of board {board} has no baseline that was measured on {gpu}",
            hint='Give one in the scheme, like baseline = "12 ms".',
        )


def grades_told(basis: Basis, scheme: Scheme, *, board: str, gpu: str, zone: str, open_runs: int) -> dict[str, Any]:
    """Everybody's grade, with what explains it: from the service's records, or an archive's."""
    return {
        "leaderboard": board,
        "gpu": gpu,
        "by": scheme.by,
        "of": scheme.points,
        "late": lateness.in_words(basis.late, zone),
        "open_runs": open_runs,
        "grades": [_told(one, scheme) for one in graded(basis, scheme)],
    }


def _told(one: Grade, scheme: Scheme) -> dict[str, Any]:
    student = one.student
    return {
        "person_id": student.person_id,
        "name": student.name,
        "full_name": student.full_name,
        "email": student.email,
        "student_id": student.student_id,
        "section": student.section,
        "team": student.team,
        "extra": dict(student.extra),
        "points": one.points,
        "of": scheme.points,
        "submission": one.submission,
        "score_s": one.score_s,
        "late_s": one.penalty.late_s,
        "slip_days": one.penalty.slip_days,
        "lost_percent": one.penalty.percent,
        "before_penalty": one.before_penalty,
        "handed_in": one.handed_in,
        "why": list(one.why),
    }
