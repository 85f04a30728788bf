"""Claims by policy: conditions of slots, classes of GPU, money, and what is wanted back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import pytest

from kbslurm.domain.breaker import CLOSED, Breaker, State
from kbslurm.domain.placement import Budget, Rules, month_of
from kbslurm.domain.run import Ending, Handle, OpenAttempt, RunState, Seen, Sighting, Slot
from kbslurm.errors import NotFound
from kbslurm.store.postgres import PostgresStore
from tests.contract.store_rig import HELLO, PASSED, WRONG, Rig, at_once

AWAY = Slot(backend="modal", gpu="H100", free=9, overflow=True, gpu_class="H100", why="the cluster is down")
DEAR = replace(AWAY, price=0.01)  # 0.6 for each run of the rig at its most


@pytest.fixture
def rig(database_url: str) -> Iterator[Rig]:
    store = PostgresStore(database_url)
    yield Rig.on(store)
    store.close()


def claim(rig: Rig, *slots: Slot, rules: Rules | None = None) -> OpenAttempt | None:
    return rig.store.queue.claim(slots, rig.now, rules=rules or Rules())


def claimed(rig: Rig, *slots: Slot, rules: Rules | None = None) -> OpenAttempt:
    found = claim(rig, *slots, rules=rules)
    assert found is not None
    return found


def test_why_it_went_there_is_written_with_the_attempt(rig: Rig) -> None:
    rig.accept()
    attempt = claimed(rig, DEAR)
    (row,) = rig.rows("SELECT backend, why_here, gpu_class, price, reserve_s, ranks FROM attempt")
    assert row == {
        "backend": "modal",
        "why_here": "the cluster is down",
        "gpu_class": "H100",
        "price": 0.01,
        "reserve_s": 60.0,
        "ranks": True,
    }
    assert attempt.ranks


def test_the_fairest_goes_first_and_home_is_preferred(rig: Rig) -> None:
    first = rig.accept("ada")
    rig.later(1)
    second = rig.accept("bob")
    home = Slot(backend="cluster", gpu="H100", free=1)
    found = claimed(rig, home, AWAY)
    assert (found.run_id, found.backend) == (first.run_ids[0], "cluster")
    found = claimed(rig, AWAY)
    assert (found.run_id, found.backend) == (second.run_ids[0], "modal")
    assert claim(rig, home, AWAY) is None


def test_only_those_who_have_waited_long_enough_go(rig: Rig) -> None:
    rig.accept()
    assert claim(rig, replace(AWAY, queued_before=rig.now - timedelta(minutes=10))) is None
    rig.later(600)
    assert claim(rig, replace(AWAY, queued_before=rig.now - timedelta(minutes=10))) is not None


def test_a_board_uses_the_overflow_places_that_it_may(rig: Rig) -> None:
    rig.accept()
    assert claim(rig, AWAY, rules=Rules(boards={"main": ()})) is None
    assert claim(rig, AWAY, rules=Rules(boards={"main": ("github",)})) is None
    at_home = replace(AWAY, overflow=False)
    assert claim(rig, at_home, rules=Rules(boards={"main": ()})) is not None, "at home they always may"
    rig.accept()
    assert claim(rig, AWAY, rules=Rules(boards={"main": ("modal",), "other": ()})) is not None


def test_on_another_class_leaderboard_runs_are_not_taken_or_do_not_rank(rig: Rig) -> None:
    rig.accept()
    assert claim(rig, replace(AWAY, leaderboard="no")) is None
    rig.accept(mode="benchmark")
    assert claim(rig, replace(AWAY, leaderboard="no")) is not None, "what never ranks goes anywhere"
    attempt = claimed(rig, replace(AWAY, leaderboard="unranked"))
    assert not attempt.ranks
    assert rig.score(attempt, PASSED), "whoever says that it ranks"
    (verdict,) = rig.rows("SELECT name, ranked FROM verdict")
    assert verdict == {"name": "passed", "ranked": False}
    assert rig.store.standings.best("main", "H100") == []
    (event,) = rig.rows("SELECT data FROM event WHERE kind = 'run.scored'")
    assert event["data"]["ranked"] is False


@pytest.mark.parametrize("what", ["via = 'calibration'", "via = 'final'"])
def test_what_others_are_measured_by_is_never_measured_on_another_class(rig: Rig, what: str) -> None:
    rig.accept()
    rig.store._do("ALTER TABLE submission DISABLE TRIGGER submission_kept")
    rig.store._do(f"UPDATE submission SET {what}")
    assert claim(rig, replace(AWAY, leaderboard="unranked")) is None
    assert claim(rig, AWAY) is not None, "the same class is the same class"


@pytest.mark.parametrize("what", ["second = true", "rejudging_id = 7"])
def test_neither_is_what_was_measured_on_the_boards_own(rig: Rig, what: str) -> None:
    rig.accept()
    rig.store._do(f"UPDATE run SET {what}")
    assert claim(rig, replace(AWAY, leaderboard="unranked")) is None
    assert claim(rig, AWAY) is not None


def test_a_run_that_was_ordered_to_a_place_goes_nowhere_else_and_there_whatever_the_rule(rig: Rig) -> None:
    rig.accept()
    rig.store._do("UPDATE run SET pinned = 'modal'")
    home = Slot(backend="cluster", gpu="H100", free=1)
    assert rig.store.queue.claim([home], rig.now) is None
    assert rig.store.queue.claim([home, replace(home, backend="other")], rig.now) is None
    assert claim(rig, home, replace(AWAY, backend="github")) is None
    only = replace(AWAY, pinned_only=True, leaderboard="no", queued_before=rig.now - timedelta(days=1))
    assert claimed(rig, home, only).backend == "modal"
    rig.accept()
    assert claim(rig, only) is None, "that was for the one that was ordered"


def test_an_order_to_a_place_goes_past_neither_the_budget_nor_whose_runs_it_takes(rig: Rig) -> None:
    rig.accept(mode="test", place="modal")
    assert claim(rig, DEAR, rules=Rules(budget=Budget(month=0.5))) is None, "it may come to 0.6"
    assert claim(rig, replace(AWAY, staff_only=True)) is None
    assert rig.store.queue.claim([Slot(backend="modal", gpu="H100", free=1, staff_only=True)], rig.now) is None
    assert claimed(rig, DEAR, rules=Rules(budget=Budget(month=0.7))).backend == "modal"


def test_what_is_submitted_for_a_place_is_ordered_there_when_it_must_be_looked_at_again_too(rig: Rig) -> None:
    seen = rig.store.intake.admission(rig.person("bob"), rig.board.name, "test")
    rig.accept("ada", mode="test", place="modal")
    rig.accept("bob", mode="test", place="modal", basis=seen.basis)
    rig.accept("eve", mode="test")
    found = rig.store._all("SELECT pinned FROM run ORDER BY id")
    assert [row["pinned"] for row in found] == ["modal", "modal", None]


def test_who_is_next_is_told_without_being_claimed(rig: Rig) -> None:
    assert rig.store.queue.next_up("H100", "cluster", rig.now) is None
    rig.accept("ada")
    rig.later(1)
    rig.accept("bob", mode="test")
    pinned = rig.accept("eve", gpus=("A100",), mode="test", place="modal")
    before = rig.everything()
    found = rig.store.queue.next_up("H100", "cluster", rig.now)
    assert found is not None
    assert (found.person, found.mode, found.attempt.number, found.attempt.gpu) == ("ada", "leaderboard", 1, "H100")
    assert (found.problem.name, found.problem.limits) == (HELLO.name, HELLO.limits)
    assert (found.key, found.nonce, found.secret_seed, found.source) == (b"", "", "", ""), "no secret is needed"
    assert rig.store.queue.next_up("A100", "cluster", rig.now) is None, "it was ordered elsewhere"
    there = rig.store.queue.next_up("A100", "modal", rig.now)
    assert there is not None and there.attempt.run_id == pinned.run_ids[0]
    assert rig.everything() == before


def test_who_is_next_avoids_the_nodes_that_its_launch_would(rig: Rig) -> None:
    rig.accept()
    failed = rig.claimed()
    rig.store.attempts.note_handle(failed, Handle("1"), rig.now + timedelta(hours=1), rig.now)
    rig.store.attempts.note_seen(failed, Sighting(seen=Seen.RUNNING, node="n7"), rig.now)
    assert rig.give_up(failed) is RunState.QUEUED
    found = rig.store.queue.next_up("H100", "local", rig.now)
    assert found is not None
    assert (found.attempt.number, found.avoid_nodes) == (2, ("n7",))


# --------------------------------------------------------------------------------------------------------------- money


def test_a_burst_stops_at_the_budget_with_what_is_open_counted_at_its_most(rig: Rig) -> None:
    rules = Rules(budget=Budget(month=2.0))
    for n in range(6):
        rig.accept(f"p{n}")
    went = []
    while (attempt := claim(rig, DEAR, rules=rules)) is not None:
        went.append(attempt)
    assert len(went) == 3, "0.6 each; a fourth might come to 2.4"
    assert rig.store.queue.demand(rig.now).spent == pytest.approx(1.8)
    for attempt in went:  # each took a tenth of its time
        rig.store.attempts.note_handle(attempt, Handle("1"), rig.now + timedelta(hours=1), rig.now)
        rig.store.attempts.note_seen(attempt, Sighting(seen=Seen.RUNNING, started_at=rig.now), rig.now)
    rig.later(6)
    for attempt in went:
        assert rig.score(attempt)
    assert rig.store.queue.demand(rig.now).spent == pytest.approx(0.18)
    assert claim(rig, DEAR, rules=rules) is not None


def test_eight_at_once_do_not_overshoot_the_budget(rig: Rig) -> None:
    rules = Rules(budget=Budget(month=2.0))
    for n in range(16):
        rig.accept(f"p{n}")
    found: list[OpenAttempt | None] = []

    def claim_twice() -> None:
        for _ in range(2):
            found.append(rig.store.queue.claim([DEAR], rig.now, rules=rules))

    at_once([claim_twice] * 8)
    assert sum(one is not None for one in found) == 3


def test_a_boards_own_bound_holds_for_it_alone_and_the_month_ends(rig: Rig) -> None:
    other = rig.store.boards.add("other", HELLO, gpus=["H100"], now=rig.now)
    rules = Rules(budget=Budget(boards={"main": 0.7}))
    rig.accept("ada")
    rig.accept("bob")
    rig.accept("eve", board_id=other.id, problem_version_id=other.problem_version_id)
    boards = [rig.store.attempts.work(claimed(rig, DEAR, rules=rules).id).board for _ in range(2)]
    assert sorted(boards) == ["main", "other"]
    assert claim(rig, DEAR, rules=rules) is None
    left = rig.rows("SELECT id FROM run WHERE state = 'queued'")[0]["id"]
    told = rig.store.runs.why(left, rig.now)
    assert (told.board, told.most_gpu_s) == ("main", 60.0)
    assert told.spent == pytest.approx(1.2)
    assert told.spent_of_board == pytest.approx(0.6)
    assert rig.store.queue.demand(rig.now).demand["H100"].least_by_board == {"main": 60.0}
    assert claim(rig, replace(DEAR, price=0.0), rules=rules) is not None, "what costs nothing is never bounded"
    rig.accept("dan")
    assert claim(rig, DEAR, rules=rules) is None
    rig.later(31 * 86_400)
    assert claim(rig, DEAR, rules=rules) is not None


def test_who_waits_for_a_boards_or_a_teams_budget_alone_is_told_so(rig: Rig) -> None:
    other = rig.store.boards.add("other", HELLO, gpus=["H100"], now=rig.now)
    mine = rig.accept("ada")
    others = rig.accept("eve", board_id=other.id, problem_version_id=other.problem_version_id)
    rig.store.people.set_team(rig.person("dan"), "blue")
    teams = rig.accept("dan", board_id=other.id, problem_version_id=other.problem_version_id)
    told = {"held_up": {}, "held_boards": {"H100": {"main": "board's"}}, "held_teams": {"H100": {"blue": "team's"}}}
    assert rig.store.leases.hold("daemon", "me", 60.0, rig.now, info={"overflow": told})
    for receipt, said in ((mine, "board's"), (others, None), (teams, "team's")):
        (run,) = rig.store.submissions.get(receipt.submission_id).runs
        assert rig.store.queue.now("H100", rig.now, before=(run.id, run.fair_at)).held_up == said
    assert rig.store.queue.now("H100", rig.now).held_up is None


def test_a_teams_bound_holds_for_what_it_submitted_alone(rig: Rig) -> None:
    for who, team in (("ada", "blue"), ("bob", "blue"), ("eve", "red"), ("dan", None)):
        rig.store.people.set_team(rig.person(who), team)
        rig.accept(who)
        rig.accept(who)
    rules = Rules(budget=Budget(team=0.7, teams={"red": 0.0}))
    went = []
    while (attempt := claim(rig, DEAR, rules=rules)) is not None:
        went.append(rig.store.attempts.work(attempt.id).person)
    assert sorted(went) == ["ada", "dan", "dan"], "one of blue's four, red's none, and who is in no team has no bound"
    facts = rig.store.queue.demand(rig.now)
    assert facts.spent_by_team == {"blue": pytest.approx(0.6)}
    assert facts.demand["H100"].least_by_team == {"blue": 60.0, "red": 60.0}
    left = rig.rows("SELECT run.id FROM run JOIN person p ON p.id = run.person_id WHERE p.name = 'bob' ORDER BY 1")
    told = rig.store.runs.why(left[0]["id"], rig.now)
    assert told.team == "blue"
    assert told.spent_of_team == pytest.approx(0.6)
    rig.store.people.set_team(rig.person("bob"), None)
    assert claim(rig, DEAR, rules=rules) is None, "what was submitted for a team is the team's"
    assert claim(rig, DEAR, rules=Rules(budget=Budget(team=1.3))) is not None


def test_eight_at_once_do_not_overshoot_a_teams_budget(rig: Rig) -> None:
    for n in range(16):
        rig.store.people.set_team(rig.person(f"p{n}"), "blue")
        rig.accept(f"p{n}")
    found: list[OpenAttempt | None] = []

    def claim_twice() -> None:
        for _ in range(2):
            found.append(rig.store.queue.claim([DEAR], rig.now, rules=Rules(budget=Budget(teams={"blue": 2.0}))))

    at_once([claim_twice] * 8)
    assert sum(one is not None for one in found) == 3


def test_usage_is_told_by_the_team_of_then(rig: Rig) -> None:
    other = rig.store.boards.add("other", HELLO, gpus=["H100"], now=rig.now)
    rig.store.people.set_team(rig.person("ada"), "blue")
    rig.accept("ada")
    rig.accept("ada", board_id=other.id, problem_version_id=other.problem_version_id)
    rig.store.people.set_team(rig.person("ada"), "red")
    rig.accept("ada")
    rig.accept("bob")
    for _ in range(4):
        claimed(rig, DEAR)
    month = month_of(rig.now)
    used = {row.name: row.runs for row in rig.store.costs.usage("team", *month, rig.now)}
    assert used == {"blue": 2, "red": 1, None: 1}
    on_main = {row.name: row.money for row in rig.store.costs.usage("team", *month, rig.now, board="main")}
    assert on_main == {name: pytest.approx(0.6) for name in ("blue", "red", None)}
    rig.store.boards.delete("other", by="host", force=True)
    gone = rig.store.costs.usage("board", *month, rig.now, board="other")
    assert [row.name for row in gone] == ["other"], "it cost what it cost"
    with pytest.raises(NotFound, match="nope"):
        rig.store.costs.usage("board", *month, rig.now, board="nope")


def test_what_never_began_costs_nothing_and_what_perhaps_ran_costs_its_most(rig: Rig) -> None:
    for who in ("ada", "bob", "eve"):
        rig.accept(who)
    refused, withdrawn, lost = (claimed(rig, DEAR) for _ in range(3))
    assert rig.store.queue.demand(rig.now).spent == pytest.approx(1.8)
    rig.refuse(refused)
    rig.give_up(withdrawn, Ending.WITHDRAWN)
    rig.give_up(lost, Ending.VANISHED)
    assert rig.store.queue.demand(rig.now).spent == pytest.approx(0.6)
    assert rig.store.queue.demand(rig.now).spent_by_board == {"main": pytest.approx(0.6)}
    used = rig.store.costs.usage("person", *month_of(rig.now), rig.now)
    assert {row.name: row.runs for row in used} == {"ada": 0, "bob": 0, "eve": 1}, "nothing of the others ran there"


# -------------------------------------------------------------------------------------------------------------- shadows


def test_what_ranked_lately_can_be_shadowed_once(rig: Rig) -> None:
    assert rig.store.shadows.candidates(rig.now) == []
    for who, mode, verdict in (("ada", "leaderboard", PASSED), ("bob", "test", PASSED), ("eve", "leaderboard", WRONG)):
        rig.accept(who, mode=mode)
        assert rig.score(rig.running(), verdict)
    (found,) = rig.store.shadows.candidates(rig.now)
    assert (found.board, found.gpu, found.backend, found.gpu_s) == ("main", "H100", "local", 60.0)
    came: list[bool] = []
    at_once([lambda: came.append(rig.store.shadows.order_once(found, "modal", rig.now))] * 6)
    assert sorted(came) == [False] * 5 + [True]
    (row,) = rig.rows("SELECT sh.*, run.* FROM shadow sh JOIN run ON run.id = sh.run_id")
    assert (row["of_run_id"], row["pinned"], row["counts"], row["may_rank"]) == (found.run, "modal", False, False)
    assert row["created_by"] == "the policy"
    assert rig.store.shadows.candidates(rig.now) == []
    assert not rig.rows("SELECT 1 FROM event WHERE kind = 'staff.shadow'"), "no host did that"


def test_what_ranked_long_ago_is_no_news_of_a_place(rig: Rig) -> None:
    rig.accept()
    assert rig.score(rig.running())
    assert len(rig.store.shadows.candidates(rig.now)) == 1
    assert rig.store.shadows.candidates(rig.later(3_601)) == []


# --------------------------------------------------------------------------------------------------------- wanted back


def test_what_has_not_begun_is_wanted_back_once_and_its_run_waits_again(rig: Rig) -> None:
    rig.accept()
    attempt = claimed(rig, AWAY)
    home = [Slot(backend="cluster", gpu="H100", free=1)]
    assert not rig.store.attempts.withdraw(attempt, home, "home", rig.now), "it wasn't even taken"
    rig.store.attempts.note_handle(attempt, Handle("1"), rig.now + timedelta(hours=1), rig.now)
    assert rig.store.attempts.withdraw(attempt, home, "home", rig.now)
    assert not rig.store.attempts.withdraw(attempt, home, "home", rig.now)
    (again,) = rig.store.attempts.open()
    assert again.withdraw_at == rig.now
    assert rig.give_up(again, Ending.WITHDRAWN) is RunState.QUEUED
    (row,) = rig.rows("SELECT state, ending FROM attempt")
    assert row == {"state": "cancelled", "ending": "withdrawn"}
    found = claimed(rig, *home)
    assert (found.number, found.backend) == (2, "cluster")


def test_what_runs_and_what_home_never_takes_is_not_wanted_back(rig: Rig) -> None:
    rig.accept()
    attempt = claimed(rig, AWAY)
    rig.store.attempts.note_handle(attempt, Handle("1"), rig.now + timedelta(hours=1), rig.now)
    for home in (
        Slot(backend="cluster", gpu="H100", free=1, most=0),
        Slot(backend="cluster", gpu="H100", free=1, staff_only=True),
    ):
        assert not rig.store.attempts.withdraw(attempt, [home], "home", rig.now)
    assert not rig.store.attempts.withdraw(attempt, [], "home", rig.now)
    rig.store.attempts.note_seen(attempt, Sighting(seen=Seen.RUNNING), rig.now)
    assert not rig.store.attempts.withdraw(attempt, [Slot(backend="cluster", gpu="H100", free=1)], "home", rig.now)


def test_being_moved_costs_none_of_the_three_tries(rig: Rig) -> None:
    rig.accept()
    for _ in range(5):
        assert rig.give_up(claimed(rig, AWAY), Ending.WITHDRAWN) is RunState.QUEUED
    for _ in range(2):
        assert rig.give_up(claimed(rig, AWAY), Ending.NODE_FAILURE) is RunState.QUEUED
    assert rig.give_up(claimed(rig, AWAY), Ending.NODE_FAILURE) is RunState.FAILED


# ------------------------------------------------------------------------------------------------------------ breakers


def test_breakers_are_kept_and_outcomes_tell_whose_runs_failed(rig: Rig) -> None:
    found = Breaker(state=State.OPEN, why="no answer", since=rig.now, try_at=rig.now, times=2)
    rig.store.places.keep_breaker("cluster", found)
    rig.store.places.keep_breaker("modal", found)
    rig.store.places.keep_breaker("modal", CLOSED)
    assert rig.store.places.breakers() == {"cluster": found, "modal": CLOSED}
    for who in ("ada", "ada", "bob"):
        rig.accept(who)
    for attempt in [claimed(rig, AWAY) for _ in range(3)]:
        rig.give_up(attempt)
    told = rig.store.places.outcomes(rig.now)["modal"]
    assert (told.people, told.good_at) == (2, None)
    rig.later(1)
    rig.score(claimed(rig, AWAY))
    told = rig.store.places.outcomes(rig.now)["modal"]
    assert (told.people, told.good_at) == (0, rig.now)
