"""Recomputes an archive: scores from raw samples, standings from scores, and grades, by the code that the service runs.

Pure: rows in, differences out. There is no database, and nothing but numbers is kept of a row.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby
from typing import Any, NamedTuple

from kbslurm.domain import finals, lateness, measure, problem
from kbslurm.domain.archive import Row
from kbslurm.domain.board import Entry, ranked
from kbslurm.domain.grades import Basis, Handed, Student
from kbslurm.domain.lateness import LatePolicy
from kbslurm.domain.problem import Problem
from kbslurm.domain.run import RunState
from kbslurm.domain.verdict import Verdict
from kbslurm.flow import recount
from kbslurm_eval.shared import timing
from kbslurm_eval.shared.wire import WIRE_VERSION, CallTimes, LaunchSamples, Report, WireError, read_report

Read = Callable[[str], Iterator[Row]]
MOST_TOLD = 100
ENDED = frozenset({RunState.SCORED, RunState.FAILED, RunState.CANCELLED})
_TIMES = ("calls_ns", "trusted_null_ns", "null_ns", "bare_null_ns", "leeway_ns")


class Score(NamedTuple):
    """A score with its interval."""

    score_s: float
    low_s: float
    high_s: float


class Sub(NamedTuple):
    """A submission, as far as ranking and grades ask."""

    person: int
    team: str | None
    mode: str
    via: str
    at: datetime
    removed: bool
    late_s: float


class Run(NamedTuple):
    """A run, likewise."""

    submission: int
    version: int
    gpu: str
    state: str
    counts: bool
    may_rank: bool
    rejudging: int
    ended_at: datetime | None


class Judged(NamedTuple):
    """A run's verdict, likewise. `light`: its share of the speed of light."""

    name: str
    ranked: bool
    score: Score | None
    light: float | None


@dataclass(kw_only=True)
class Findings:
    """What was checked, and every difference as a sentence (the first `MOST_TOLD`; `different` counts all)."""

    scores: int = 0
    samples: int = 0
    standings: int = 0
    final_scores: int = 0
    calibrations: int = 0
    sources: int = 0
    unchecked: int = 0
    carried: int = 0
    different: int = 0
    differences: list[str] = field(default_factory=list)

    def differs(self, what: str) -> None:
        """Note a difference."""
        self.different += 1
        if len(self.differences) < MOST_TOLD:
            self.differences.append(what)


@dataclass(frozen=True, kw_only=True)
class Index:
    """An archive's rows by number: what ranking and grades follow from."""

    board: Row
    problems: Mapping[int, Problem]
    b_ref_s: Mapping[tuple[int, str], tuple[float, ...]]
    people: Mapping[int, Row]
    submissions: Mapping[int, Sub]
    runs: Mapping[int, Run]
    verdicts: Mapping[int, Judged]
    finals: Mapping[int, Row]
    final_scores: Mapping[int, Score]  # by run, in the latest final of it
    measured_in: Sequence[tuple[int, int, tuple[int, str] | str | None]]  # finals, oldest first, each run, and whose
    fixed: Mapping[int, Score]
    judged_at: Mapping[tuple[int, int, str], datetime]  # by submission, version and GPU type

    @property
    def live(self) -> int:
        """The version of the problem whose results count."""
        return int(self.board["problem_version"])

    def standings(self, gpu: str) -> list[Entry]:
        """What ranks on this GPU type, as the service selects it."""
        if self.board["finalised_at"] is not None:
            found = [self._entry(run, score) for run, score in self.fixed.items() if self.runs[run].gpu == gpu]
            return [one for one in found if not self._is_banned(one.person_id)]
        shown = [run for run, held in self.runs.items() if held.gpu == gpu and held.counts and self._ranks(run, held)]
        if self.board["ranking"] == "last":
            latest: dict[tuple[int, str] | str, int] = {}
            for run in shown:
                side = self._side(self.runs[run].submission)
                latest[side] = max(latest.get(side, 0), self.runs[run].submission)
            shown = [run for run in shown if latest[self._side(self.runs[run].submission)] == self.runs[run].submission]
        bound = self._bound(gpu)
        shown = [run for run in shown if self._binding(bound, run) is None]
        return [self._entry(run, self._score(run)) for run in shown if not self._is_banned(self._author(run))]

    def _ranks(self, run: int, held: Run) -> bool:
        """Whether it ranks if it counts."""
        sub, verdict = self.submissions.get(held.submission), self.verdicts.get(run)
        return (
            sub is not None
            and verdict is not None
            and verdict.ranked
            and held.version == self.live
            and held.may_rank
            and not sub.removed
            and sub.late_s <= 0
        )

    def _bound(self, gpu: str) -> dict[tuple[int, str] | str, tuple[datetime, int]]:
        """Whom finals bind there: the latest of each side's, with when it was ordered and the run that was measured."""
        finals, found = {int(row["final"]): row for row in self.finals.values()}, {}
        if self.board["ranking"] != "last":
            for number, run, side in self.measured_in:
                final, held = finals[number], self.runs.get(run)
                if (final["gpu"], int(final["problem_version"])) != (gpu, self.live):
                    continue
                sub = None if held is None else self.submissions.get(held.submission)
                if held is not None and sub is not None and not sub.removed:
                    if not self._ranks(run, held) or self._is_banned(self._author(run)):
                        continue
                    side = self._side(held.submission)
                if side is not None:  # of what was removed only the row says whether it binds
                    found[side] = datetime.fromisoformat(final["created_at"]), run
        return found

    def _binding(self, bound: Mapping[tuple[int, str] | str, tuple[datetime, int]], run: int) -> int | None:
        """The run by whose final another submission counts instead of this one, which had been judged before; if any
        does."""
        held = self.runs[run]
        ordered_at, binding = bound.get(self._side(held.submission), (None, None))
        judged_at = self.judged_at.get((held.submission, held.version, held.gpu))
        if binding is None or ordered_at is None or judged_at is None or judged_at > ordered_at:
            return None
        return None if binding in self.runs and self.runs[binding].submission == held.submission else binding

    def _side(self, submission: int) -> tuple[int, str] | str:
        sub = self.submissions[submission]
        return (sub.person, "") if sub.team is None else sub.team

    def _author(self, run: int) -> int:
        return self.submissions[self.runs[run].submission].person

    def _is_banned(self, person: int) -> bool:
        return bool(self.people[person]["banned"]) if person in self.people else False

    def _score(self, run: int) -> Score:
        found = self.final_scores.get(run) or self.verdicts[run].score
        assert found is not None
        return found

    def _limited(self, run: int, bound: Mapping[tuple[int, str] | str, tuple[datetime, int]]) -> Score | None:
        """A run's score, no better than that of the final which binds its author."""
        own, binding = self.final_scores.get(run) or self.verdicts[run].score, None
        if (other := self._binding(bound, run)) is not None:
            binding = self._score(other)
        return binding if own is not None and binding is not None and binding.score_s > own.score_s else own

    def _entry(self, run: int, score: Score) -> Entry:
        number = self.runs[run].submission
        sub = self.submissions[number]
        return Entry(
            person_id=sub.person,
            person=sub.team or str(self.people[sub.person]["name"] if sub.person in self.people else sub.person),
            submission_id=number,
            run_id=run,
            score_s=score.score_s,
            low_s=score.low_s,
            high_s=score.high_s,
            at=sub.at,
            file_name="",
            team=sub.team,
        )

    def basis(self, gpu: str) -> Basis:
        """What grades on this GPU type follow from."""
        baseline_s = self.baseline_s(gpu)
        handed, bound = [], self._bound(gpu)
        for run, held in self.runs.items():
            sub = self.submissions[held.submission]
            if not self._is_handed_in(sub, held, gpu) or self._is_banned(sub.person):
                continue
            verdict = self.verdicts.get(run)
            score = None
            if verdict is not None and verdict.ranked and held.may_rank:
                score = self.fixed.get(run) or self._limited(run, bound)
            handed.append(
                Handed(
                    submission=held.submission,
                    side=f"person:{sub.person}" if sub.team is None else f"team:{sub.team}",
                    person=str(self.people[sub.person]["name"]),
                    at=sub.at,
                    verdict=held.state if verdict is None else verdict.name,
                    late_s=sub.late_s,
                    score_s=None if score is None else score.score_s,
                    low_s=None if score is None else score.low_s,
                    high_s=None if score is None else score.high_s,
                    baseline_s=baseline_s,
                    light=None if verdict is None else verdict.light,
                )
            )
        students = [_student(row) for row in self.people.values() if row["student"]]
        return Basis(students=tuple(students), handed=tuple(handed), late=late_policy(self.board))

    def _is_handed_in(self, sub: Sub, held: Run, gpu: str) -> bool:
        return (
            held.version == self.live
            and held.counts
            and held.gpu == gpu
            and sub.mode == "leaderboard"
            and not sub.removed
            and RunState(held.state) in ENDED
        )

    def baseline_s(self, gpu: str) -> float | None:
        """What the problem's baseline took there, combined over the cases as scores are."""
        found = self.b_ref_s.get((self.live, gpu))
        return timing.launch_scores([[one] for one in found], self.problems[self.live].ranking_by)[0] if found else None

    def open_runs(self, gpu: str) -> int:
        """How many runs hadn't ended."""
        return sum(
            held.version == self.live
            and held.counts
            and held.gpu == gpu
            and self.submissions[held.submission].mode == "leaderboard"
            and not self.submissions[held.submission].removed
            and RunState(held.state) not in ENDED
            for held in self.runs.values()
        )


def indexed(read: Read) -> Index:
    """The archive's rows by number."""
    in_finals = sorted(read("final_scores"), key=lambda row: (int(row["final"]), int(row["run"])))
    runs = {int(row["run"]): _run(row) for row in read("runs")}
    verdicts = {int(row["run"]): _judged(row) for row in read("verdicts")}
    return Index(
        board=next(read("board")),
        problems={int(row["problem_version"]): problem.from_json(row["content"]) for row in read("problems")},
        b_ref_s={(int(row["problem_version"]), str(row["gpu"])): tuple(row["b_ref_s"]) for row in read("calibrations")},
        people={int(row["person_id"]): row for row in read("people")},
        submissions={int(row["submission"]): _sub(row) for row in read("submissions")},
        runs=runs,
        verdicts=verdicts,
        finals={int(row["run"]): row for row in read("finals")},
        final_scores={int(row["run"]): _score_of(row) for row in in_finals},
        measured_in=[(int(row["final"]), int(row["run"]), _side_of(row)) for row in in_finals],
        fixed={int(row["run"]): _score_of(row) for row in read("fixed_places")},
        judged_at=_judged_at(runs, verdicts),
    )


def _judged_at(runs: Mapping[int, Run], verdicts: Mapping[int, Judged]) -> dict[tuple[int, int, str], datetime]:
    """When each submission had been judged, as `store.final_scores` has it: once all measurements for one score had
    ended, the first time that one ranked."""
    ended: dict[tuple[int, int, str, int], datetime] = {}
    scored: set[tuple[int, int, str, int]] = set()
    for number, run in runs.items():
        which = (run.submission, run.version, run.gpu, run.rejudging)
        if run.ended_at is not None:
            ended[which] = max(run.ended_at, ended.get(which, run.ended_at))
        if number in verdicts and verdicts[number].ranked:
            scored.add(which)
    found: dict[tuple[int, int, str], datetime] = {}
    for which in scored & ended.keys():
        found[which[:3]] = min(ended[which], found.get(which[:3], ended[which]))
    return found


def _side_of(row: Row) -> tuple[int, str] | str | None:
    """Whose score of a final this is, where that is said."""
    if row["team"] is not None:
        return str(row["team"])
    return None if row["person_id"] is None else (int(row["person_id"]), "")


def verify(read: Read) -> Findings:
    """Recompute every score from the raw samples, and the standings from the scores."""
    index, found = indexed(read), Findings()
    for row in read("submissions"):
        if row["source"] is not None and row["sha256"] is not None:
            found.sources += 1
            if hashlib.sha256(str(row["source"]).encode()).hexdigest() != row["sha256"]:
                found.differs(f"submission {row['submission']}: its source isn't the one that was submitted")
    _Scores(index, found).check(read)
    for gpu in index.board["gpus"]:
        _check_standings(index, [row for row in read("standings") if row["gpu"] == gpu], str(gpu), found)
    return found


@dataclass(frozen=True, kw_only=True)
class _Recomputed:
    """A report from the archive, and the scores that it may have: raw, and in units of reference times."""

    report: Report
    raw: Score | None
    in_units: Score | None


class _Scores:
    """Walks verdicts and samples side by side."""

    def __init__(self, index: Index, found: Findings) -> None:
        self._index, self._found = index, found
        self._gone: dict[tuple[int, int, str], list[Score]] = {}
        self._calibrated: set[int] = set()
        self._final_scores: dict[int, dict[int, Score]] = {}
        self._dropped_out: dict[int, set[int]] = {}

    def check(self, read: Read) -> None:
        launches = groupby(read("samples"), key=lambda row: int(row["run"]))
        run, rows = next(launches, (None, iter(())))
        for row in read("verdicts"):
            number = int(row["run"])
            while run is not None and run < number:
                self._found.differs(f"run {run}: it has raw samples and no verdict")
                run, rows = next(launches, (None, iter(())))
            mine: list[LaunchSamples] = []
            if run == number:
                mine = [_launch(one) for one in rows]
                run, rows = next(launches, (None, iter(())))
            self._found.samples += len(mine)
            self._check_run(row, mine)
        if run is not None:
            self._found.differs(f"run {run}: it has raw samples and no verdict")
        self._check_rest(read)

    def _check_run(self, row: Row, samples: list[LaunchSamples]) -> None:
        number = int(row["run"])
        held = self._index.runs.get(number)
        if held is None or held.submission not in self._index.submissions:
            self._found.differs(f"run {number}: it has a verdict, and the run or its submission isn't in the archive")
            return
        said = None if row["score_s"] is None else _score_of(row)
        if said is None:
            if row["ranked"]:
                self._found.differs(f"run {number}: it ranks without a score")
            if number not in self._index.finals:
                return  # a final whose lead failed has scores of the others
        sub = self._index.submissions[held.submission]
        if sub.removed and said is not None:
            self._gone.setdefault((sub.person, held.version, held.gpu), []).append(said)
        detail = row["detail"] or {}
        if not samples and not detail.get("samples_sha256"):
            self._found.unchecked += 1  # from before raw samples were kept
            return
        if detail.get("version") not in _READ:
            self._found.unchecked += 1  # by a harness whose reports this version doesn't read
            return
        try:
            again = self._recomputed(row, held, samples)
        except (WireError, ValueError, ArithmeticError, LookupError) as error:
            self._found.differs(f"run {number}: its report doesn't follow from its raw samples: {error}")
            return
        if said is not None:
            self._compare(row, held, sub, said, again)
        self._note(number, held, sub, again.report)

    def _recomputed(self, row: Row, held: Run, samples: list[LaunchSamples]) -> _Recomputed:
        """What the service does with a report, once it is opened."""
        task = self._index.problems[held.version].for_gpu(held.gpu)
        report = _report(row["detail"], samples)
        if self._index.board["private"]:
            digest = recount.archived(report)[1]
            if digest != row["detail"]["samples_sha256"]:
                raise WireError("they aren't the ones that were sealed")
        recount.check_figures(report, task)
        if report.score_s is None or report.interval_s is None:
            return _Recomputed(report=report, raw=None, in_units=None)
        raw = Score(report.score_s, *report.interval_s)
        units = self._index.b_ref_s.get((held.version, held.gpu))
        if task.baseline is None or units is None:
            return _Recomputed(report=report, raw=raw, in_units=None)
        verdict = Verdict(name="passed", reason="", score_s=raw.score_s, low_s=raw.low_s, high_s=raw.high_s)
        told = measure.in_reference_units(verdict, report, task, units) if report.mode == "leaderboard" else verdict
        in_units = None
        if told.score_s is not None and told.low_s is not None and told.high_s is not None:
            in_units = Score(told.score_s, told.low_s, told.high_s)
        return _Recomputed(report=report, raw=raw, in_units=in_units)

    def _compare(self, row: Row, held: Run, sub: Sub, said: Score, again: _Recomputed) -> None:
        """A score that ranks is in the board's units; any other may be raw."""
        number = int(row["run"])
        may = [one for one in (again.in_units, again.raw) if one is not None]
        if row["ranked"] and again.in_units is not None:
            may = [again.in_units]
        if row["reason"] == measure.AS_TAKEN_BACK:
            earlier = self._gone.get((sub.person, held.version, held.gpu), [])
            if self._index.board["private"] and not any(_same(said, one) for one in earlier):
                self._found.differs(f"run {number}: no deleted submission of its author has its score")
            self._found.carried += 1
            return
        self._found.scores += 1
        if not any(_same(said, one) for one in may):
            what = f"{may[0].score_s!r} s" if may else "none"
            self._found.differs(f"run {number}: its score is {said.score_s!r} s, and its raw samples give {what}")

    def _note(self, number: int, held: Run, sub: Sub, report: Report) -> None:
        task, units = self._index.problems[held.version].for_gpu(held.gpu), self._index.b_ref_s
        if sub.via == measure.CALIBRATION:
            stored = units.get((held.version, held.gpu))
            found = measure.reference_times(report)
            if stored is not None and len(stored) == len(found) and all(map(timing.same, stored, found)):
                self._calibrated.add(number)
        final = self._index.finals.get(number)
        if final is not None and sub.via == finals.FINAL:
            told = finals.outcomes(report, task, units.get((held.version, held.gpu)))
            self._dropped_out[int(final["final"])] = {
                int(final["rivals"][one.rival]) for one in told if one.failed and one.rival < len(final["rivals"])
            }
            self._final_scores[int(final["final"])] = {
                int(final["rivals"][one.rival]): Score(one.score_s, one.low_s, one.high_s)
                for one in told
                if one.score_s is not None
                and one.low_s is not None
                and one.high_s is not None
                and one.rival < len(final["rivals"])
            }

    def _check_rest(self, read: Read) -> None:
        for row in read("calibrations"):
            self._found.calibrations += 1
            if int(row["run"]) in self._index.verdicts and int(row["run"]) not in self._calibrated:
                self._found.differs(f"the reference times on {row['gpu']} don't follow from run {row['run']}")
        in_finals: dict[int, list[Score]] = {}
        for row in read("final_scores"):
            self._found.final_scores += 1
            final, run = int(row["final"]), int(row["run"])
            in_finals.setdefault(run, []).append(_score_of(row))
            if not self._follows(final, run, _score_of(row)):
                self._found.differs(f"run {run}: its score in final {final} doesn't follow from the final's samples")
        for row in read("fixed_places"):
            run, said = int(row["run"]), _score_of(row)
            verdict = self._index.verdicts.get(run)
            may = [verdict.score if verdict else None, *(one.get(run) for one in self._final_scores.values())]
            may += in_finals.get(run, ())
            if not any(one is not None and _same(said, one) for one in may):
                self._found.differs(f"run {run}: its fixed score is neither its verdict's nor a final's")

    def _follows(self, final: int, run: int, said: Score) -> bool:
        """Whether this is what it came to in that final, or, if it failed there, the slow end of what counted
        before."""
        again = self._final_scores.get(final, {}).get(run)
        if again is not None:
            return _same(again, said)
        verdict = self._index.verdicts.get(run)
        before = [verdict.score if verdict else None, *(one.get(run) for one in self._final_scores.values())]
        ends = [Score(one.high_s, one.low_s, one.high_s) for one in before if one is not None]
        return run in self._dropped_out.get(final, ()) and any(_same(said, one) for one in ends)


def _check_standings(index: Index, rows: Sequence[Row], gpu: str, found: Findings) -> None:
    again = ranked(index.standings(gpu))
    found.standings += len(rows)
    if len(again) != len(rows):
        found.differs(f"standings on {gpu}: there are {len(rows)} places, and the scores give {len(again)}")
        return
    for row, one in zip(rows, again, strict=True):
        said = (row["rank"], row["best_rank"], row["worst_rank"], row["tied_with"], row["ranks"], row["run"])
        gives = (one.rank, one.best_rank, one.worst_rank, [*one.tied_with], [*one.ranks], one.entry.run_id)
        score = Score(one.entry.score_s, one.entry.low_s, one.entry.high_s)
        whose = (row["person_id"], row["person"], row["submission"], datetime.fromisoformat(row["submitted_at"]))
        theirs = (one.entry.person_id, one.entry.person, one.entry.submission_id, one.entry.at)
        if said != gives or whose != theirs or not _same(score, _score_of(row)):
            found.differs(f"standings on {gpu}: place {row['rank']} doesn't follow from the scores")


def late_policy(board: Row) -> LatePolicy:
    """What the board does about late submissions."""
    told = dict(board["late"])
    until = told.pop("until")
    return LatePolicy(until=None if until is None else datetime.fromisoformat(until), **told)


def late_in_words(board: Row) -> str:
    """The same in words."""
    return lateness.in_words(late_policy(board), str(board["zone"]))


def _student(row: Row) -> Student:
    names = ("person_id", "side", "name", "full_name", "email", "student_id", "section", "team", "banned", "extra")
    return Student(**{name: row[name] for name in names})


def _sub(row: Row) -> Sub:
    return Sub(
        person=int(row["person_id"]),
        team=row["team"],
        mode=str(row["mode"]),
        via=str(row["via"]),
        at=datetime.fromisoformat(row["accepted_at"]),
        removed=row["removed_at"] is not None,
        late_s=float(row["late_s"]),
    )


def _run(row: Row) -> Run:
    return Run(
        submission=int(row["submission"]),
        version=int(row["problem_version"]),
        gpu=str(row["gpu"]),
        state=str(row["state"]),
        counts=bool(row["counts"]),
        may_rank=bool(row["may_rank"]),
        rejudging=int(row["rejudging"]),
        ended_at=None if row["ended_at"] is None else datetime.fromisoformat(row["ended_at"]),
    )


def _judged(row: Row) -> Judged:
    light = ((row["detail"] or {}).get("speed_of_light") or {}).get("share")
    return Judged(
        name=str(row["verdict"]),
        ranked=bool(row["ranked"]),
        score=None if row["score_s"] is None else _score_of(row),
        light=float(light) if isinstance(light, int | float) else None,
    )


def _score_of(row: Row) -> Score:
    score_s = float(row["score_s"])
    low, high = (score_s if row[name] is None else float(row[name]) for name in ("low_s", "high_s"))
    return Score(score_s, low, high)


def _same(one: Score, other: Score) -> bool:
    return all(map(timing.same, one, other))


def _launch(row: Row) -> LaunchSamples:
    base = None
    if row["baseline_calls_ns"] is not None:
        base = CallTimes(**{name: list(row[f"baseline_{name}"] or ()) for name in _TIMES})
    return LaunchSamples(
        phase=row["phase"],
        index=row["index"],
        launch=row["launch"],
        rival=row["rival"],
        own=CallTimes(**{name: list(row[name] or ()) for name in _TIMES}),
        baseline=base,
        alone_ns=list(row["alone_ns"] or ()),
    )


# Reports of these versions have the same figures: what 4 added to 3 is which case wrote what, a report before 5 has no
# leeway, which is none, and one before 6 no calls of the baseline alone.
_READ = (3, 4, 5, WIRE_VERSION)

# What a report needs beside what an archive that is handed on has of it.
_BLANK: Mapping[str, Any] = {
    "token": "", "attempt": 0, "nonce": "", "reason": "", "tests": [], "started_at_ns": 0, "ended_at_ns": 0, "log": "",
    "secret_log": "", "host": {}, "flags": [], "paired": False, "submission_sha256": "", "seed_commitment": "",
    "budget": {}, "profile": "", "artifacts": [], "digests": [], "log_parts": [],
}  # fmt: skip


def _report(detail: Row, samples: Iterable[LaunchSamples]) -> Report:
    """The report, read as strictly as one that comes from a job."""
    known = {name: detail[name] for name in Report.__dataclass_fields__ if name in detail}
    told = {**_BLANK, **known, "samples": [], "version": WIRE_VERSION}
    told["phases"] = [{"started_at_ns": 0, "ended_at_ns": 0, **row} for row in told["phases"]]
    found = read_report(json.dumps(told))
    found.samples.extend(samples)
    return found
