"""What a final that was applied means for whatever else its participants had submitted, on real Postgres."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from kbslurm.domain.board import ranked
from kbslurm.domain.run import PersonId, SubmissionId
from kbslurm.flow.score import Scored, score
from kbslurm.store import migrate
from kbslurm.store.rejudgings import Wanted
from tests.command_line import CommandLine
from tests.flow.puppet import sealed_report
from tests.flow.stage import Stage
from tests.flow.test_measuring import PAIRED, judge, led_by_a_failure, next_attempt


@pytest.fixture
def stage(database_url: str) -> Iterator[Stage]:
    with closing(Stage.build(database_url, problem=PAIRED, confirm=False)) as built:
        assert judge(built, 0.5, baseline_s=0.5) is Scored.VERDICT
        yield built


def entered(stage: Stage, by: str, took: float) -> SubmissionId:
    stage.clock.go(1)  # type: ignore[attr-defined]
    number = stage.submit(by=by, mode="leaderboard").submission_id
    stage.clock.go(1)  # type: ignore[attr-defined]
    assert judge(stage, took, baseline_s=0.5) is Scored.VERDICT
    return number


def final(stage: Stage, *rivals: float | None) -> None:
    """One with so many, in the order of their places; None fails."""
    stage.clock.go(1)  # type: ignore[attr-defined]
    stage.store.finals.order("board", "A100", len(rivals), by="host", now=stage.clock.now())
    stage.clock.go(1)  # type: ignore[attr-defined]
    attempt = next_attempt(stage)
    report = sealed_report(stage.store.attempts.work(attempt.id), score_s=0.5, baseline_s=0.5, rivals=rivals)
    assert score(stage.store, attempt, report, stage.clock.now()) is Scored.VERDICT
    stage.store.finals.apply("board", "A100", by="host", now=stage.clock.now())


def shown(stage: Stage) -> list[tuple[str, float]]:
    rows = ranked(stage.store.standings.best("board", "A100"))
    again = ranked(stage.store.standings.scored_of("board", "A100", [PersonId(row.entry.person_id) for row in rows]))
    assert [row.entry for row in again] == [row.entry for row in rows], "one by one they are the same"
    return [(row.entry.person, round(row.entry.score_s, 3)) for row in rows]


def twice(stage: Stage) -> tuple[SubmissionId, SubmissionId]:
    """ada has submitted one kernel twice, bob one a little slower."""
    first = entered(stage, "ada", 0.395)
    entered(stage, "bob", 0.401)
    second = entered(stage, "ada", 0.396)
    assert shown(stage) == [("ada", 0.395), ("bob", 0.401)]
    return first, second


@pytest.mark.parametrize(("told", "hers"), [(0.8, 0.8), (None, 0.403)], ids=["slower", "ended itself"])
def test_who_submitted_twice_has_what_the_final_says_too(
    stage: Stage, tmp_path: Path, told: float | None, hers: float
) -> None:
    twice(stage)
    final(stage, told, 0.401)
    assert shown(stage) == [("bob", 0.401), ("ada", hers)]
    kbslurm = CommandLine(cwd=tmp_path, env={"DATABASE_URL": stage.store.url})
    listed = kbslurm("board", "board", "--json").json()["standings"]["A100"]
    assert [row["entry"]["person"] for row in listed] == ["bob", "ada"], listed
    assert kbslurm("archive", "board", "-o", str(tmp_path / "kept")).code == 0
    told_of_it = kbslurm("archive", "verify", str(tmp_path / "kept"), "--json")
    assert told_of_it.code == 0, told_of_it.out


def test_what_comes_after_a_final_competes_as_ever_and_a_later_one_binds_it(stage: Stage) -> None:
    twice(stage)
    final(stage, 0.8, 0.401)
    entered(stage, "ada", 0.3)
    assert shown(stage) == [("ada", 0.3), ("bob", 0.401)]
    final(stage, 0.9, 0.402)
    assert shown(stage) == [("bob", 0.402), ("ada", 0.9)], "neither of the older ones is back"


def test_who_takes_back_what_was_measured_has_none_of_the_others(stage: Stage, tmp_path: Path) -> None:
    first, _ = twice(stage)
    final(stage, 0.8, 0.401)
    stage.store.submissions.take_back(first, "ada", stage.clock.now(), stage.person("ada"))
    assert shown(stage) == [("bob", 0.401)]
    kbslurm = CommandLine(cwd=tmp_path, env={"DATABASE_URL": stage.store.url})
    assert kbslurm("archive", "board", "-o", str(tmp_path / "kept")).code == 0
    told = kbslurm("archive", "verify", str(tmp_path / "kept"), "--json")
    assert told.code == 0 and told.json()["standings"] == 1, told.out
    entered(stage, "ada", 0.7)
    assert shown(stage) == [("bob", 0.401), ("ada", 0.7)]


def queued_when_ordered(stage: Stage, *, again: bool = False) -> SubmissionId:
    """ada's faster kernel waits in the queue while a final is ordered, and is judged before that is measured; `again`:
    only its second measurement does."""
    entered(stage, "ada", 0.45)
    entered(stage, "bob", 0.401)
    if again:
        stage.rows("UPDATE leaderboard SET confirm = true RETURNING id")
    stage.clock.go(1)  # type: ignore[attr-defined]
    number = stage.submit(by="ada", mode="leaderboard").submission_id
    if again:
        assert judge(stage, 0.3, baseline_s=0.5) is Scored.VERDICT
    faster = next_attempt(stage)
    stage.clock.go(1)  # type: ignore[attr-defined]
    ordered = stage.store.finals.order("board", "A100", 2, by="host", now=stage.clock.now())
    assert [one.person for one in ordered.rivals] == ["bob", "ada"]
    stage.clock.go(1)  # type: ignore[attr-defined]
    report = sealed_report(stage.store.attempts.work(faster.id), score_s=0.3, baseline_s=0.5)
    assert score(stage.store, faster, report, stage.clock.now()) is Scored.VERDICT
    attempt = next_attempt(stage)
    report = sealed_report(stage.store.attempts.work(attempt.id), score_s=0.5, baseline_s=0.5, rivals=(0.402, 0.45))
    assert score(stage.store, attempt, report, stage.clock.now()) is Scored.VERDICT
    stage.store.finals.apply("board", "A100", by="host", now=stage.clock.now())
    return number


@pytest.mark.parametrize("again", [False, True], ids=["its only measurement", "its second one"])
def test_what_was_in_the_queue_when_a_final_was_ordered_is_bound_by_none(
    stage: Stage, tmp_path: Path, again: bool
) -> None:
    number = queued_when_ordered(stage, again=again)
    assert shown(stage) == [("ada", 0.3), ("bob", 0.402)]
    board = stage.store.boards.get("board")
    handed = {one.submission: one for one in stage.store.gradebook.handed(board, "A100", 0.5)}
    assert handed[number].score_s == pytest.approx(0.3, rel=1e-3)
    fed = {one.submission_id: one for one in stage.store.contests.page(board, (0, ""), 10, until=None, viewer=None)}
    assert fed[number].score_s == pytest.approx(0.3, rel=1e-3)
    verified(stage, tmp_path)
    verified(stage, tmp_path, "--private")
    final(stage, 0.8, 0.41)
    assert shown(stage) == [("bob", 0.41), ("ada", 0.8)], "the next one binds it"


def test_measuring_an_older_one_anew_is_no_way_around_a_final(stage: Stage, tmp_path: Path) -> None:
    """It had been judged when the final was ordered, and what a rejudge measures later is the same kernel."""
    _, second = twice(stage)
    final(stage, 0.8, 0.401)
    stage.store.rejudgings.preview("board", Wanted(submission=second), None, by="host", now=stage.clock.now())
    stage.clock.go(1)  # type: ignore[attr-defined]
    assert judge(stage, 0.39, baseline_s=0.5) is Scored.VERDICT
    stage.store.rejudgings.apply("board", by="host", now=stage.clock.now())
    assert shown(stage) == [("bob", 0.401), ("ada", 0.8)]
    verified(stage, tmp_path)


@pytest.mark.parametrize("again", [0.79, None], ids=["slower", "failed"])
def test_judging_what_was_measured_anew_unbinds_nobody(stage: Stage, tmp_path: Path, again: float | None) -> None:
    """Its new score counts, and none of its author's others; nor where it fails then."""
    first, second = twice(stage)
    final(stage, 0.8, 0.401)
    rejudging = stage.store.rejudgings.preview(
        "board", Wanted(submission=first), None, by="host", now=stage.clock.now()
    )
    stage.clock.go(1)  # type: ignore[attr-defined]
    attempt = next_attempt(stage)
    work = stage.store.attempts.work(attempt.id)
    told = {"score_s": again, "baseline_s": 0.5} if again else {"verdict": "wrong", "reason": "it is"}
    report = sealed_report(work, **told)
    assert score(stage.store, attempt, report, stage.clock.now()) is Scored.VERDICT
    would = stage.store.standings.rejudged("board", "A100", rejudging=rejudging.id, version=rejudging.version)
    stage.store.rejudgings.apply("board", by="host", now=stage.clock.now())
    hers = [("ada", again)] if again else []
    assert shown(stage) == [("bob", 0.401), *hers]
    assert [(one.person, round(one.score_s, 3)) for one in would] == shown(stage), "as it was said beforehand"
    board = stage.store.boards.get("board")
    handed = {one.submission: one.score_s for one in stage.store.gradebook.handed(board, "A100", 0.5)}
    assert handed[second] == pytest.approx(0.8, rel=1e-3)
    verified(stage, tmp_path)
    verified(stage, tmp_path, "--private")
    stage.store.submissions.take_back(first, "ada", stage.clock.now(), stage.person("ada"))
    assert shown(stage) == [("bob", 0.401)]
    verified(stage, tmp_path)


def test_the_comparison_of_versions_has_the_live_ones_standings(stage: Stage) -> None:
    twice(stage)
    final(stage, 0.8, 0.401)
    board = stage.store.boards.get("board")
    compared = stage.store.past_versions.best(board, "A100", board.problem_version_id)
    assert compared == stage.store.standings.best("board", "A100")


def test_an_archive_of_a_finalist_who_came_too_late_after_all_verifies(stage: Stage, tmp_path: Path) -> None:
    """The deadline is set before what was measured, which its author takes back."""
    entered(stage, "ada", 0.396)
    until = stage.clock.now()
    first = entered(stage, "ada", 0.395)
    entered(stage, "bob", 0.401)
    final(stage, 0.8, 0.401)
    stage.store.boards.set_deadline("board", until, by="host", now=stage.clock.now())
    stage.store.submissions.take_back(first, "ada", stage.clock.now(), stage.person("ada"))
    assert shown(stage) == [("ada", 0.396)]
    verified(stage, tmp_path)
    verified(stage, tmp_path, "--private")


def test_whoever_orders_a_final_is_told_of_what_is_still_in_the_queue(stage: Stage, tmp_path: Path) -> None:
    entered(stage, "ada", 0.45)
    entered(stage, "bob", 0.401)
    for name in ("ada", "eve"):
        stage.clock.go(1)  # type: ignore[attr-defined]
        stage.submit(by=name, mode="leaderboard")
    kbslurm = CommandLine(cwd=tmp_path, env={"DATABASE_URL": stage.store.url})
    told = kbslurm("final", "board")
    assert told.code == 0 and "2 ranked runs accepted before this final are still open" in told.err, told.err
    assert kbslurm("final", "board", "--json").json()["unjudged"] == 2
    stage.clock.go(1)  # type: ignore[attr-defined]
    assert judge(stage, 0.3, baseline_s=0.5) is Scored.VERDICT
    assert "a ranked run accepted before this final is still open" in kbslurm("final", "board").err
    assert kbslurm("final", "board", "--forget").code == 0
    assert stage.store.finals.order("board", "A100", 2, by="host", now=stage.clock.now()).unjudged == 1
    stage.clock.go(1)  # type: ignore[attr-defined]
    stage.submit(by="bob", mode="leaderboard")
    known = stage.store.finals.open("board", "A100")
    assert known is not None and known.unjudged == 1, "what came after it doesn't matter"


@pytest.mark.parametrize("taken_back", [False, True], ids=["there", "taken back"])
def test_an_archive_of_a_team_whose_finalist_is_banned_verifies(stage: Stage, tmp_path: Path, taken_back: bool) -> None:
    """A final that measured somebody banned binds nobody, a mate of theirs neither."""
    ada, bob, eve = (stage.person(name) for name in ("ada", "bob", "eve"))
    for person, team in ((ada, "t"), (eve, "t"), (bob, "u")):
        stage.store.people.set_team(person, team, by="host")
    stage.rows("UPDATE leaderboard SET teams = true RETURNING id")
    first = entered(stage, "ada", 0.395)
    entered(stage, "bob", 0.401)
    entered(stage, "eve", 0.41)
    final(stage, 0.45, 0.402)
    assert shown(stage) == [("u", 0.402), ("t", 0.45)]
    if taken_back:
        stage.store.submissions.take_back(first, "ada", stage.clock.now(), ada)
        assert shown(stage) == [("u", 0.402)]
        verified(stage, tmp_path)
    stage.store.people.ban(ada, "x", by="host", now=stage.clock.now())
    assert shown(stage) == [("u", 0.402), ("t", 0.41)]
    verified(stage, tmp_path)
    verified(stage, tmp_path, "--private")


def test_where_staff_remove_what_was_measured_the_others_count(stage: Stage, tmp_path: Path) -> None:
    """They know what they remove it for; whoever had it taken back before stays bound."""
    first, _ = twice(stage)
    final(stage, 0.397, 0.401)
    stage.store.submissions.take_back(first, "host", stage.clock.now(), None)
    assert shown(stage) == [("ada", 0.396), ("bob", 0.401)]
    verified(stage, tmp_path)
    verified(stage, tmp_path, "--private")
    mine = entered(stage, "ada", 0.39)
    final(stage, 0.8, 0.402)
    for by, person in (("ada", stage.person("ada")), ("host", None)):
        stage.store.submissions.take_back(mine, by, stage.clock.now(), person)
    assert shown(stage) == [("bob", 0.402)]
    verified(stage, tmp_path)
    verified(stage, tmp_path, "--private")


def test_where_the_latest_counts_it_does_whatever_a_final_said(stage: Stage) -> None:
    twice(stage)
    final(stage, 0.8, 0.401)
    stage.rows("UPDATE leaderboard SET ranking = 'last' RETURNING id")
    assert shown(stage) == [("ada", 0.396), ("bob", 0.401)]


def test_what_improves_is_what_is_better_than_the_final(stage: Stage) -> None:
    """0.5 s would be no improvement on 0.396 s, and is one on what the final says."""
    twice(stage)
    final(stage, 0.8, 0.401)
    stage.rows("UPDATE leaderboard SET confirm = true RETURNING id")
    stage.clock.go(1)  # type: ignore[attr-defined]
    stage.submit(by="ada", mode="leaderboard")
    assert judge(stage, 0.5, baseline_s=0.5) is Scored.VERDICT
    assert stage.open_runs() == 1, "so it is measured again"


def test_grades_and_the_contest_feed_have_no_better_score_either(stage: Stage) -> None:
    first, second = twice(stage)
    final(stage, 0.8, 0.401)
    board = stage.store.boards.get("board")
    handed = {one.submission: one for one in stage.store.gradebook.handed(board, "A100", 0.5)}
    found = [handed[number].score_s for number in (first, second)]
    assert found == [pytest.approx(0.8, rel=1e-3)] * 2
    fed = stage.store.contests.page(board, (0, ""), 10, until=None, viewer=None)
    assert [round(one.score_s or 0, 3) for one in fed] == [0.8, 0.401, 0.8]
    assert all((one.low_s or 0) <= (one.score_s or 0) <= (one.high_s or 0) for one in fed)


def test_an_archive_of_a_final_whose_lead_failed_verifies(stage: Stage, tmp_path: Path) -> None:
    """Each score of it didn't follow from its samples, which weren't looked at."""
    for name, took in (("ada", 0.40), ("bob", 0.41), ("eve", 0.42)):
        entered(stage, name, took)
    stage.store.finals.order("board", "A100", 3, by="host", now=stage.clock.now())
    attempt = next_attempt(stage)
    work = stage.store.attempts.work(attempt.id)
    report = led_by_a_failure(sealed_report(work, score_s=1.0, baseline_s=1.0, rivals=(None, 0.9, 0.78)), work)
    assert score(stage.store, attempt, report, stage.clock.now()) is Scored.VERDICT
    stage.store.finals.apply("board", "A100", by="host", now=stage.clock.now())
    kbslurm = CommandLine(cwd=tmp_path, env={"DATABASE_URL": stage.store.url})
    for more in ((), ("--private",)):
        place = str(tmp_path / f"kept{len(more)}")
        assert kbslurm("archive", "board", "-o", place, *more).code == 0
        told = kbslurm("archive", "verify", place, "--json")
        assert told.code == 0 and told.json()["final_scores"] == 3, told.out


def test_a_finals_baseline_is_in_no_chart(stage: Stage) -> None:
    """There it always follows somebody else's call, and takes longer: the final was measured again, and failed."""
    for n in range(12):
        entered(stage, f"p{n % 4}", 0.5)
    points = len(stage.rows("SELECT id FROM baseline_point"))
    stage.store.finals.order("board", "A100", 2, by="host", now=stage.clock.now())
    attempt = next_attempt(stage)
    report = sealed_report(stage.store.attempts.work(attempt.id), score_s=0.5, baseline_s=0.9, rivals=(0.5, 0.6))
    assert score(stage.store, attempt, report, stage.clock.now()) is Scored.VERDICT
    assert len(stage.rows("SELECT id FROM baseline_point")) == points > 10


def verified(stage: Stage, at: Path, *more: str) -> None:
    """An archive of the board as it is now holds."""
    kbslurm = CommandLine(cwd=at, env={"DATABASE_URL": stage.store.url})
    place = str(at / f"kept{len([*at.iterdir()])}")
    written = kbslurm("archive", "board", "-o", place, *more)
    assert written.code == 0, written.out
    told = kbslurm("archive", "verify", place, "--json")
    assert told.code == 0, told.out


def test_another_final_behind_a_freeze_changes_nothing_of_what_others_see(stage: Stage, tmp_path: Path) -> None:
    entered(stage, "ada", 0.395)
    entered(stage, "bob", 0.401)
    final(stage, 0.45, 0.41)
    stage.clock.go(10)  # type: ignore[attr-defined]
    stage.store.times.freeze("board", stage.clock.now(), by="host", now=stage.clock.now())
    before = stage.store.standings.best("board", "A100")
    assert [(one.person, round(one.score_s, 2)) for one in before] == [("bob", 0.41), ("ada", 0.45)]
    final(stage, None, 0.39)
    assert stage.store.standings.best("board", "A100") == before
    live = stage.store.standings.best("board", "A100", live=True)
    assert [(one.person, round(one.score_s, 2)) for one in live] == [("ada", 0.39), ("bob", 0.41)]
    assert live[1].score_s == before[0].high_s, "bob failed in it"
    verified(stage, tmp_path)
    verified(stage, tmp_path, "--private")
    board = stage.store.boards.get("board")
    handed = stage.store.gradebook.handed(board, "A100", 0.5)
    assert [one.score_s for one in handed] == [live[0].score_s, live[1].score_s], "one row of each"


def test_a_database_from_before_has_the_latest_finals_scores(stage: Stage) -> None:
    entered(stage, "ada", 0.395)
    entered(stage, "bob", 0.401)
    final(stage, 0.45, 0.41)
    final(stage, 0.42, 0.39)
    before, kept = shown(stage), "SELECT run_id, final_id, score_s FROM final_score ORDER BY 1, 2"
    assert before == [("ada", 0.39), ("bob", 0.42)] and len(stage.rows(kept)) == 4
    migrate.downgrade(stage.store.url, "0039")
    rows = stage.rows(kept)
    assert len(rows) == 2 and len({row["final_id"] for row in rows}) == 1
    migrate.upgrade(stage.store.url)
    assert stage.rows(kept) == rows and shown(stage) == before
