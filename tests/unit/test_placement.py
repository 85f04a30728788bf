"""Where runs go: the hosts' rules as a table, and what holds whatever the places look like."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbslurm.domain import breaker as breakers
from kbslurm.domain import placement
from kbslurm.domain.breaker import CLOSED, Breaker, Outcomes, State
from kbslurm.domain.drift import Ranked, coin
from kbslurm.domain.eta import Service
from kbslurm.domain.placement import (
    Backlog,
    Budget,
    Demand,
    OtherClass,
    Overflow,
    PlaceView,
    Planned,
    Rules,
    Source,
    planned,
)
from kbslurm.domain.run import AttemptId, AttemptState, JobName, OpenAttempt, RunId
from kbslurm.errors import Invalid
from kbslurm.flow.queue import free_slots

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
GPU = "H100"
DOWN = Breaker(state=State.OPEN, why="no answer", since=NOW, try_at=NOW + timedelta(minutes=1), times=1)
TRYING = Breaker(state=State.HALF_OPEN, why="no answer", since=NOW, times=1)
WAIT = Overflow(when="when_wait_over", after_s=600.0)
SLOW = Service(quick_s=300.0, slow_s=300.0)


def home(slots: int = 2, breaker: Breaker = CLOSED, **more: object) -> PlaceView:
    return PlaceView(name="cluster", slots={GPU: slots}, breaker=breaker, **more)  # type: ignore[arg-type]


def modal(slots: int = 3, price: float = 0.001, gpu_class: str = GPU, breaker: Breaker = CLOSED) -> PlaceView:
    return PlaceView(
        name="modal",
        role="overflow",
        slots={GPU: slots},
        classes={GPU: gpu_class} if gpu_class else {},
        prices={GPU: price},
        breaker=breaker,
    )


def attempt(number: int, backend: str = "cluster", state: AttemptState = AttemptState.RUNNING) -> OpenAttempt:
    return OpenAttempt(
        id=AttemptId(number),
        run_id=RunId(number),
        number=1,
        name=JobName(f"kb-{number}"),
        backend=backend,
        gpu=GPU,
        state=state,
        handle=None,
        opened_at=NOW + timedelta(seconds=number),
        deadline_at=None,
    )


def plan(
    places: Sequence[PlaceView],
    rules: Rules,
    *,
    waiting: int = 1,
    service: Service | None = SLOW,
    attempts: Sequence[OpenAttempt] = (),
    backlog: Backlog | None = None,
    starts: Mapping[str, Planned] | None = None,
) -> placement.Plan:
    slots = free_slots({place.name: place.slots for place in places}, attempts)
    known = backlog or Backlog(demand={GPU: Demand(waiting=waiting, least_gpu_s=60.0, service=service)})
    told = {(name, GPU): start for name, start in (starts or {}).items()}
    return planned(slots, places, rules, known, attempts, NOW, starts=told)


def went(found: placement.Plan) -> list[tuple[str, int]]:
    return [(slot.backend, slot.free) for slot in found.slots]


BUSY = [attempt(1), attempt(2)]


@pytest.mark.parametrize(
    ("rule", "breaker", "waiting", "attempts", "expected"),
    [
        pytest.param(Overflow(), CLOSED, 9, [], [("cluster", 2)], id="never, home works"),
        pytest.param(Overflow(), DOWN, 9, [], [("cluster", 2)], id="never: then runs wait at home, even when down"),
        pytest.param(Overflow(when="when_down"), CLOSED, 99, BUSY, [], id="when_down, home is only full"),
        pytest.param(Overflow(when="when_down"), DOWN, 9, [], [("modal", 3)], id="when_down, home is down"),
        pytest.param(
            Overflow(when="when_down"), TRYING, 9, [], [("cluster", 1), ("modal", 3)], id="one run tries home again"
        ),
        pytest.param(WAIT, CLOSED, 2, [], [("cluster", 2)], id="wait: home has room for all"),
        pytest.param(WAIT, CLOSED, 3, BUSY, [("modal", 3)], id="wait: none would wait too long, but who has may go"),
        pytest.param(WAIT, CLOSED, 6, BUSY, [("modal", 2)], id="wait: as many as would wait too long"),
        pytest.param(WAIT, DOWN, 1, [], [("modal", 3)], id="wait: home is down"),
    ],
)
def test_the_hosts_rule_decides_when_overflow_is_offered(
    rule: Overflow, breaker: Breaker, waiting: int, attempts: list[OpenAttempt], expected: list[tuple[str, int]]
) -> None:
    found = plan([home(breaker=breaker), modal()], Rules(overflow=rule), waiting=waiting, attempts=attempts)
    assert went(found) == expected
    assert found.why[GPU]


def test_only_those_who_waited_too_long_go_where_nobody_else_would() -> None:
    (slot,) = plan([home(), modal()], Rules(overflow=WAIT), waiting=3, attempts=BUSY).slots
    assert slot.queued_before == NOW - timedelta(minutes=10)
    (slot,) = plan([home(), modal()], Rules(overflow=WAIT), waiting=9, attempts=BUSY).slots
    assert slot.queued_before is None


def test_without_a_history_only_real_waiting_counts() -> None:
    (slot,) = plan([home(), modal()], Rules(overflow=WAIT), waiting=500, service=None, attempts=BUSY).slots
    assert slot.queued_before is not None


def test_a_cluster_that_starts_nothing_soon_comes_second() -> None:
    later = {"cluster": Planned(at=NOW + timedelta(hours=2), by="squeue --start")}
    found = plan([home(), modal()], Rules(overflow=WAIT), waiting=1, starts=later)
    assert went(found) == [("modal", 3), ("cluster", 2)]
    assert found.why[GPU] == "the cluster won't start any of our jobs for 2 h, says squeue --start"
    soon = {"cluster": Planned(at=NOW + timedelta(minutes=5), by="squeue --start")}
    assert went(plan([home(), modal()], Rules(overflow=WAIT), waiting=1, starts=soon)) == [("cluster", 2)]


TRIAL: Source = "sbatch --test-only"
QUEUE: Source = "squeue --start"


@pytest.mark.parametrize(
    ("minutes", "by", "waiting", "attempts", "expected", "why"),
    [
        pytest.param(
            30, TRIAL, 1, [], "modal", "any of our jobs for 30 min, says sbatch --test-only", id="a trial: late"
        ),
        pytest.param(5, TRIAL, 1, [], "cluster", "next in 5 min, says sbatch --test-only", id="a trial: soon enough"),
        pytest.param(-1, TRIAL, 1, [], "cluster", "next immediately, says sbatch --test-only", id="a trial: now"),
        pytest.param(30, QUEUE, 1, BUSY, "modal", "for 30 min, says squeue --start", id="the queue's plan: late"),
        pytest.param(5, QUEUE, 9, BUSY, "modal", "judging by recent runs", id="own history, where they queue up"),
        pytest.param(None, None, 1, [], "cluster", "cluster has free slots", id="nobody says"),
        pytest.param(None, None, 9, BUSY, "modal", "judging by recent runs", id="only the history does"),
    ],
)
def test_a_wait_is_known_from_the_cluster_or_from_the_history_and_it_is_told_which(
    minutes: int | None,
    by: Source,
    waiting: int,
    attempts: list[OpenAttempt],
    expected: str,
    why: str,
) -> None:
    starts = {} if minutes is None else {"cluster": Planned(at=NOW + timedelta(minutes=minutes), by=by)}
    places = [home(), modal()]
    found = plan(places, Rules(overflow=WAIT), waiting=waiting, attempts=attempts, starts=starts)
    assert why in found.why[GPU]
    assert found.slots[0].backend == expected
    if expected == "cluster" and minutes is not None:
        assert found.slots[0].why.endswith(f", says {by}"), "the attempt keeps it"


def test_what_one_home_says_does_not_send_away_what_another_would_start() -> None:
    late = Planned(at=NOW + timedelta(hours=2), by="sbatch --test-only")
    second = replace(home(), name="second")
    found = plan([home(), second, modal()], Rules(overflow=WAIT), starts={"cluster": late})
    assert [slot.backend for slot in found.slots] == ["cluster", "second"], "it has free slots, and says nothing"
    found = plan([home(), second, modal()], Rules(overflow=WAIT), starts={"cluster": late, "second": late})
    assert found.slots[0].backend == "modal"
    soon = Planned(at=NOW + timedelta(minutes=1), by="squeue --start")
    found = plan([home(), second, modal()], Rules(overflow=WAIT), starts={"cluster": late, "second": soon})
    assert [slot.backend for slot in found.slots] == ["cluster", "second"]
    assert "second would start the next in 60 s, says squeue --start" in found.why[GPU]


def test_only_where_a_run_went_elsewhere_its_author_is_told_of_it() -> None:
    for places in ([home(), modal()], [home(breaker=TRYING), modal()]):
        for slot in plan(places, Rules(overflow=Overflow(when="when_down"))).slots:
            said = placement.went(slot.backend, slot.why)
            assert said == ("" if slot.backend == "cluster" else "at modal, because cluster is down (no answer)")
    assert not placement.went("local", ""), "without a policy there is nothing to tell"


def test_a_type_that_home_lacks_goes_out() -> None:
    other = PlaceView(name="cluster", slots={"A100": 1})
    assert went(plan([other, modal()], Rules(overflow=Overflow(when="when_down")))) == [("cluster", 1), ("modal", 3)]
    assert went(plan([other, modal()], Rules())) == [("cluster", 1)]


@pytest.mark.parametrize(
    ("gpu_class", "other", "expected"),
    [
        (GPU, "refuse", "yes"),
        ("", "refuse", "no"),
        ("", "unranked", "unranked"),
        ("H100 PCIe", "refuse", "no"),
    ],
)
def test_a_board_never_mixes_classes(gpu_class: str, other: OtherClass, expected: str) -> None:
    rules = Rules(overflow=Overflow(when="when_down"), other_class=other)
    (slot,) = plan([home(breaker=DOWN), modal(gpu_class=gpu_class)], rules).slots
    assert slot.leaderboard == expected
    named = replace(rules, classes={GPU: gpu_class or f"{GPU} at modal"})
    (slot,) = plan([home(breaker=DOWN), modal(gpu_class=gpu_class)], named).slots
    assert slot.leaderboard == "yes", "the hosts said which class their boards are about"


def test_a_budget_that_is_used_up_stops_what_costs_and_says_so() -> None:
    rules = Rules(overflow=Overflow(when="when_down"), budget=Budget(month=1.0))
    demand = {GPU: Demand(waiting=1, least_gpu_s=60.0)}
    places = [home(breaker=DOWN), modal(price=0.001)]
    for spent, offered in ((0.0, True), (0.93, True), (0.95, False), (1.0, False), (2.0, False)):
        found = plan(places, rules, backlog=Backlog(demand=demand, spent=spent))
        assert bool(found.slots) is offered, spent
        assert ("budget is used up" in found.why[GPU]) is not offered
    free = plan([home(breaker=DOWN), modal(price=0.0)], rules, backlog=Backlog(demand=demand, spent=2.0))
    assert free.slots, "what costs nothing goes on"


def test_the_budgets_word_stands_while_a_place_is_at_work() -> None:
    rules = Rules(overflow=Overflow(when="when_down"), budget=Budget(month=1.0))
    backlog = Backlog(demand={GPU: Demand(waiting=1, least_gpu_s=60.0)}, spent=1.0)
    places = [home(breaker=DOWN), modal()]
    for free in (free_slots({"modal": {GPU: 3}}, ()), []):  # a lane at work, or with all slots in use, offers none
        found = planned(free, places, rules, backlog, (), NOW)
        assert found.held_up == {GPU: placement.BUDGET_SPENT}
        assert "budget is used up" in found.why[GPU]
    free_of_charge = PlaceView(name="github", role="overflow", slots={GPU: 1})
    found = planned([], [*places, free_of_charge], rules, backlog, (), NOW)
    assert not found.held_up, "it is only a moment until that one has room"
    assert "budget is used up" in found.why[GPU]
    assert not planned([], [home(), modal()], rules, backlog, (), NOW).held_up, "home works: money keeps nobody"


@pytest.mark.parametrize(
    ("spent", "boards", "places", "held"),
    [
        (0.93, {"sort": 1.0}, {}, []),
        (0.95, {"sort": 1.0}, {}, ["sort"]),
        (0.95, {"sort": 2.0, "scan": 0.0}, {}, ["scan"]),
        (0.95, {"sort": 1.0, "scan": 0.01}, {}, ["scan", "sort"]),
        (0.95, {"sort": 1.0}, {"sort": ["modal"]}, ["sort"]),
        (0.95, {"sort": 1.0}, {"sort": []}, []),
        (0.95, {"other": 0.0}, {}, []),
    ],
)
def test_a_board_whose_own_budget_is_used_up_is_told_so_alone(
    spent: float, boards: dict[str, float], places: dict[str, list[str]], held: list[str]
) -> None:
    rules = Rules(overflow=Overflow(when="when_down"), budget=Budget(boards=boards), boards=places)
    demand = Demand(waiting=2, least_gpu_s=30.0, least_by_board={"sort": 60.0, "scan": 30.0})
    backlog = Backlog(demand={GPU: demand}, spent=spent, spent_by_board={"sort": spent})
    found = plan([home(breaker=DOWN), modal()], rules, backlog=backlog)
    assert found.slots, "others go on"
    assert not found.held_up
    assert sorted(found.held_boards.get(GPU, {})) == held
    none_free = planned([], [home(breaker=DOWN), modal()], rules, backlog, (), NOW)
    assert none_free.held_boards == found.held_boards
    assert not plan([home(), modal()], rules, backlog=backlog).held_boards, "home works: money keeps nobody"


@pytest.mark.parametrize(
    ("each", "named", "held"),
    [
        (None, {}, []),
        (1.0, {}, ["blue"]),
        (2.0, {"blue": 1.0}, ["blue"]),
        (1.0, {"blue": 2.0}, []),
        (0.01, {"blue": 2.0}, ["red"]),
        (None, {"red": 0.0}, ["red"]),
        (None, {"green": 0.0}, []),
    ],
)
def test_a_team_whose_budget_is_used_up_is_told_so_alone(
    each: float | None, named: dict[str, float], held: list[str]
) -> None:
    rules = Rules(overflow=Overflow(when="when_down"), budget=Budget(team=each, teams=named))
    demand = Demand(waiting=3, least_gpu_s=30.0, least_by_team={"blue": 60.0, "red": 30.0})
    backlog = Backlog(demand={GPU: demand}, spent=3.0, spent_by_team={"blue": 0.95})
    found = plan([home(breaker=DOWN), modal()], rules, backlog=backlog)
    assert found.slots, "others go on"
    assert (found.held_up, sorted(found.held_teams.get(GPU, {}))) == ({}, held)
    assert planned([], [home(breaker=DOWN), modal()], rules, backlog, (), NOW).held_teams == found.held_teams
    gratis = PlaceView(name="github", role="overflow", slots={GPU: 1})
    assert not plan([home(breaker=DOWN), modal(), gratis], rules, backlog=backlog).held_teams


def test_what_is_told_of_the_budget_names_each_bound_and_what_is_spent_of_it() -> None:
    backlog = Backlog(spent=3.0, spent_by_board={"sort": 1.0, "scan": 2.0})
    told = placement.budget_told(Budget(month=9.0, boards={"sort": 5.0, "new": 1.0}), backlog)
    assert told == {
        "month": 9.0,
        "spent": 3.0,
        "boards": {"sort": {"month": 5.0, "spent": 1.0}, "new": {"month": 1.0, "spent": 0.0}},
        "team": None,
        "teams": {},
    }
    teams = Backlog(spent_by_team={"blue": 1.0, "red": 2.0})
    assert placement.budget_told(Budget(team=3.0, teams={"blue": 4.0, "new": 1.0}), teams)["teams"] == {
        "blue": {"month": 4.0, "spent": 1.0},
        "red": {"month": 3.0, "spent": 2.0},
        "new": {"month": 1.0, "spent": 0.0},
    }


def test_a_run_that_was_ordered_somewhere_opens_that_place_for_itself_alone() -> None:
    backlog = Backlog(demand={GPU: Demand(waiting=1)}, pinned=frozenset({"modal"}))
    found = plan([home(), modal()], Rules(), backlog=backlog)
    assert [(slot.backend, slot.pinned_only) for slot in found.slots] == [("cluster", False), ("modal", True)]


def test_what_waits_elsewhere_comes_home_when_nobody_else_needs_the_room() -> None:
    waiting = [attempt(n, "modal", AttemptState.SUBMITTED) for n in (3, 4, 5)]
    busy = replace(attempt(6, "modal"), state=AttemptState.RUNNING)
    places = [home(slots=2), modal(slots=9)]
    slots = free_slots({place.name: place.slots for place in places}, [*waiting, busy])

    def coming(queued: int, breaker: Breaker = CLOSED) -> list[int]:
        at = [home(slots=2, breaker=breaker), modal(slots=9)]
        return [one.id for one, _ in placement.coming_home(slots, at, [*waiting, busy], {GPU: queued})]

    assert coming(0) == [5, 4]
    assert coming(1) == [5]
    assert coming(2) == []
    assert coming(0, DOWN) == coming(0, TRYING) == []
    wanted = [replace(one, withdraw_at=NOW) for one in waiting]
    assert placement.coming_home(slots, places, wanted, {}) == []


# -------------------------------------------------------------------------------------------------------------- shadows


def ranked(run: int, backend: str = "cluster", board: str = "sort") -> Ranked:
    return Ranked(run=run, submission=run, board=board, gpu=GPU, backend=backend, gpu_s=100.0)


def test_a_coin_falls_the_same_for_everybody_and_as_often_as_the_hosts_want() -> None:
    tosses = [coin(run) for run in range(4000)]
    assert tosses == [coin(run) for run in range(4000)]
    assert all(0 <= one < 1 for one in tosses)
    for fraction in (0.0, 0.05, 0.5, 1.0):
        rules = Rules(shadow=fraction)
        found = [run for run in range(4000) if placement.shadow_at(ranked(run), [home(), modal()], rules, Backlog())]
        assert found == [run for run, one in enumerate(tosses) if one < fraction]
        assert len(found) == pytest.approx(4000 * fraction, abs=80)
    several = [home(), modal(), replace(modal(), name="github")]
    where = [placement.shadow_at(ranked(run), several, Rules(shadow=0.5), Backlog()) for run in range(400)]
    assert min(where.count("modal"), where.count("github")) > 60, "the coin chooses the place, too"


@pytest.mark.parametrize(
    ("run", "away", "rules", "backlog", "expected"),
    [
        pytest.param(ranked(1), modal(), Rules(shadow=1.0), Backlog(), "modal", id="whatever the rule for overflow"),
        pytest.param(ranked(1), modal(), Rules(), Backlog(), None, id="by default none"),
        pytest.param(ranked(1, backend="modal"), modal(), Rules(shadow=1.0), Backlog(), None, id="it wasn't at home"),
        pytest.param(ranked(1), modal(breaker=DOWN), Rules(shadow=1.0), Backlog(), None, id="the place is down"),
        pytest.param(ranked(1), modal(breaker=TRYING), Rules(shadow=1.0), Backlog(), None, id="or is only tried"),
        pytest.param(ranked(1), modal(slots=0), Rules(shadow=1.0), Backlog(), None, id="it lacks the GPU type"),
        pytest.param(
            ranked(1),
            modal(),
            Rules(shadow=1.0, boards={"sort": ()}),
            Backlog(),
            None,
            id="the board never leaves home",
        ),
        pytest.param(
            ranked(1), modal(), Rules(shadow=1.0, boards={"exam": ()}), Backlog(), "modal", id="another one doesn't"
        ),
        pytest.param(
            ranked(1), modal(), Rules(shadow=1.0), Backlog(pinned=frozenset({"modal"})), None, id="one waits there"
        ),
        pytest.param(
            ranked(1), modal(), Rules(shadow=1.0, budget=Budget(month=1.0)), Backlog(spent=0.89), "modal", id="it fits"
        ),
        pytest.param(
            ranked(1), modal(), Rules(shadow=1.0, budget=Budget(month=1.0)), Backlog(spent=0.91), None, id="it doesn't"
        ),
        pytest.param(
            ranked(1),
            modal(),
            Rules(shadow=1.0, budget=Budget(boards={"sort": 0.2})),
            Backlog(spent_by_board={"sort": 0.11}),
            None,
            id="nor into the board's",
        ),
        pytest.param(
            ranked(1),
            modal(price=0.0),
            Rules(shadow=1.0, budget=Budget(month=1.0)),
            Backlog(spent=2.0),
            "modal",
            id="what costs nothing goes on",
        ),
    ],
)
def test_a_run_is_measured_elsewhere_too_where_the_hosts_let_it(
    run: Ranked, away: PlaceView, rules: Rules, backlog: Backlog, expected: str | None
) -> None:
    assert placement.shadow_at(run, [home(), away], rules, backlog) == expected


PLACES = st.lists(
    st.builds(
        PlaceView,
        name=st.sampled_from(["a", "b", "c"]),
        role=st.sampled_from(["home", "overflow"]),
        slots=st.dictionaries(st.sampled_from(["A100", GPU]), st.integers(1, 4), max_size=2),
        classes=st.dictionaries(st.sampled_from(["A100", GPU]), st.sampled_from(["x", "y"]), max_size=2),
        prices=st.dictionaries(st.sampled_from(["A100", GPU]), st.sampled_from([0.0, 0.001]), max_size=2),
        breaker=st.sampled_from([CLOSED, DOWN, TRYING]),
    ),
    max_size=3,
    unique_by=lambda place: place.name,
)
RULES = st.builds(
    Rules,
    overflow=st.sampled_from([Overflow(), Overflow(when="when_down"), WAIT]),
    other_class=st.sampled_from(["refuse", "unranked"]),
    budget=st.sampled_from([Budget(), Budget(month=1.0), Budget(team=1.0), Budget(month=1.5, boards={"sort": 1.0})]),
)


@given(PLACES, RULES, st.integers(0, 30), st.floats(0, 2), st.lists(st.integers(1, 50), max_size=6, unique=True))
def test_whatever_the_places_no_plan_breaks_a_rule(
    places: list[PlaceView], rules: Rules, waiting: int, spent: float, busy: list[int]
) -> None:
    attempts = [attempt(n, "abc"[n % 3]) for n in busy]
    free = free_slots({place.name: place.slots for place in places}, attempts)
    least = {"least_by_board": {"sort": 60.0}, "least_by_team": {"blue": 60.0}}
    demand = {GPU: Demand(waiting=waiting, least_gpu_s=60.0, service=SLOW, **least)}
    backlog = Backlog(demand=demand, spent=spent, spent_by_board={"sort": spent}, spent_by_team={"blue": spent})
    found = planned(free, places, rules, backlog, attempts, NOW)
    nothing_free = planned((), places, rules, backlog, attempts, NOW)
    assert (nothing_free.why, nothing_free.held_up) == (found.why, found.held_up), "words don't follow free slots"
    assert (nothing_free.held_boards, nothing_free.held_teams) == (found.held_boards, found.held_teams)
    for held, bounded in ((found.held_boards, rules.budget.boards), (found.held_teams, rules.budget.team)):
        assert bounded or not held
        assert not set(held) & set(found.held_up), "one word is enough"
        assert not held or spent > 0.9
    assert not set(found.held_up) & {slot.gpu for slot in found.slots if slot.overflow and not slot.pinned_only}
    by_name = {place.name: place for place in places}
    offered = {(slot.backend, slot.gpu): slot for slot in found.slots}
    assert len(offered) == len(found.slots), "none is offered twice"
    for slot in found.slots:
        place = by_name[slot.backend]
        before = next(one for one in free if (one.backend, one.gpu) == (slot.backend, slot.gpu))
        assert 0 < slot.free <= before.free
        mine = place.class_of(slot.gpu) == placement.board_class(slot.gpu, places, rules)
        assert (slot.leaderboard == "yes") is mine
        assert slot.why
        if place.role == "overflow":
            assert rules.overflow.when != "never"
            assert place.breaker.state is not State.OPEN
            if rules.overflow.when == "when_down":
                homes = [one for one in places if one.role == "home" and slot.gpu in one.slots]
                assert all(one.breaker.state is not State.CLOSED for one in homes)
            if rules.budget.month is not None and slot.price:
                assert spent < rules.budget.month
        if slot.alone:
            assert slot.free == 1
    for gpu in {gpu for place in places for gpu in place.slots}:
        assert found.why[gpu]
        sound = [one for one in free if one.gpu == gpu and by_name[one.backend].breaker == CLOSED]
        for one in sound:
            if by_name[one.backend].role == "home":
                assert (one.backend, gpu) in offered, "a home that works is always offered"


# ------------------------------------------------------------------------------------------------------------- breaker


def test_a_breaker_opens_after_three_in_a_row_and_tries_with_one_run() -> None:
    one = breakers.failed(CLOSED, 1, "no answer", NOW)
    assert one == breakers.failed(CLOSED, 2, "no answer", NOW) == CLOSED
    opened = breakers.failed(CLOSED, 3, "no answer", NOW)
    assert (opened.state, opened.why, opened.times) == (State.OPEN, "no answer", 1)
    assert opened.try_at is not None
    assert breakers.looked(opened, Outcomes(), NOW).state is State.OPEN
    trying = breakers.looked(opened, Outcomes(), opened.try_at)
    assert trying.state is State.HALF_OPEN
    assert breakers.launched(trying) == CLOSED
    again = breakers.failed(trying, 1, "no answer", opened.try_at)
    assert again.state is State.OPEN
    assert again.try_at is not None
    assert again.try_at - opened.try_at == 2 * (opened.try_at - NOW), "twice as long as before"


def test_runs_of_three_people_open_it_and_a_good_one_closes_it() -> None:
    bad = Outcomes(people=2, bad_at=NOW)
    assert breakers.looked(CLOSED, bad, NOW) == CLOSED, "no one person takes a place away from everybody"
    opened = breakers.looked(CLOSED, replace(bad, people=3), NOW)
    assert (opened.state, opened.cause) == (State.OPEN, "runs")
    later = NOW + timedelta(hours=1)
    trying = breakers.looked(opened, bad, later)
    assert trying.state is State.HALF_OPEN
    assert breakers.launched(trying) == trying, "that it takes runs was never the trouble"
    assert breakers.looked(trying, replace(bad, bad_at=later), later).state is State.OPEN
    assert breakers.looked(trying, replace(bad, good_at=later), later) == CLOSED


def test_one_that_answers_again_is_tried_at_once() -> None:
    opened = breakers.failed(CLOSED, 3, "no answer", NOW)
    soon = NOW + timedelta(seconds=1)
    assert breakers.looked(breakers.answered(opened, soon), Outcomes(), soon).state is State.HALF_OPEN
    assert breakers.answered(CLOSED, NOW) == CLOSED


@given(st.integers(1, 60))
def test_it_is_never_left_alone_for_longer_than_ten_minutes(times: int) -> None:
    breaker = CLOSED
    for _ in range(times):
        breaker = breakers.failed(replace(breaker, state=State.HALF_OPEN), 1, "no", NOW)
    assert breaker.try_at is not None
    assert timedelta(seconds=30) <= breaker.try_at - NOW <= timedelta(minutes=10)


@pytest.mark.parametrize("breaker", [CLOSED, DOWN, TRYING])
def test_a_breaker_is_kept_as_it_was(breaker: Breaker) -> None:
    assert breakers.kept(breakers.told(breaker)) == breaker
    assert breakers.kept({"state": "ajar"}) == CLOSED


# --------------------------------------------------------------------------------------------------------------- words


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("never", Overflow()),
        ("when_down", Overflow(when="when_down")),
        ({"when_wait_over": "10m"}, WAIT),
        ({"when_wait_over": "600s"}, WAIT),
        ({"when_wait_over": "1.5 h"}, Overflow(when="when_wait_over", after_s=5400.0)),
    ],
)
def test_the_rule_is_read_as_it_is_written(raw: object, expected: Overflow) -> None:
    assert placement.overflow_of(raw) == expected


@pytest.mark.parametrize(
    "raw", ["always", "when_wait_over", {"when_wait_over": 10}, {"when_wait_over": "ten"}, {"when_down": "1m"}, {}, 3]
)
def test_what_is_no_rule_is_refused_with_the_spelling(raw: object) -> None:
    with pytest.raises(Invalid) as caught:
        placement.overflow_of(raw)
    assert caught.value.hint


def test_months_are_by_utc() -> None:
    begins, ends = placement.month_named("2026-12")
    assert (begins.isoformat(), ends.isoformat()) == ("2026-12-01T00:00:00+00:00", "2027-01-01T00:00:00+00:00")
    assert placement.month_of(NOW) == placement.month_named("2026-11")
    for text in ("2026", "2026-13", "11/2026", "0000-01", "9999-12"):
        with pytest.raises(Invalid):
            placement.month_named(text)


DRAINED = {GPU: "a fan is exchanged"}


@pytest.mark.parametrize(
    ("rule", "places", "expected"),
    [
        pytest.param(Overflow(), [home(draining=DRAINED), modal()], [], id="never: it waits"),
        pytest.param(
            Overflow(when="when_down"), [home(draining=DRAINED), modal()], [("modal", 3)], id="when_down: it goes"
        ),
        pytest.param(WAIT, [home(draining=DRAINED), modal()], [("modal", 3)], id="wait: home takes none"),
        pytest.param(Overflow(when="when_down"), [home(draining=DRAINED)], [], id="alone: it waits all the same"),
        pytest.param(
            Overflow(when="when_down"), [home(draining=DRAINED, breaker=DOWN)], [], id="and where it is down, too"
        ),
        pytest.param(
            Overflow(when="when_down"),
            [home(breaker=DOWN), replace(modal(), draining=DRAINED)],
            [("cluster", 2)],
            id="what drains elsewhere is no elsewhere",
        ),
        pytest.param(Overflow(), [home(draining={"A100": ""}), modal()], [("cluster", 2)], id="another type drains"),
    ],
)
def test_a_place_that_drains_gets_nothing_whatever_the_rule(
    rule: Overflow, places: list[PlaceView], expected: list[tuple[str, int]]
) -> None:
    assert went(plan(places, Rules(overflow=rule))) == expected


def test_why_overflow_is_used_names_the_drain_and_its_reason() -> None:
    found = plan([home(draining=DRAINED), modal()], Rules(overflow=Overflow(when="when_down")))
    assert found.why[GPU] == "cluster is draining (a fan is exchanged)"
    assert plan([home(draining={GPU: ""}), modal()], Rules(overflow=Overflow(when="when_down"))).why[GPU] == (
        "cluster is draining"
    )


def test_a_home_that_drains_still_says_what_the_boards_class_is() -> None:
    places = [home(draining=DRAINED, classes={GPU: "SXM"}), modal(gpu_class="PCIe")]
    assert placement.board_class(GPU, places, Rules()) == "SXM"


def test_nothing_comes_home_to_a_place_that_drains_and_no_shadow_goes_to_one() -> None:
    waits = attempt(7, "modal", AttemptState.SUBMITTED)
    places = [home(draining=DRAINED), modal()]
    slots = free_slots({place.name: place.slots for place in places}, [waits])
    assert placement.coming_home(slots, places, [waits], {}) == []
    assert placement.coming_home(slots, [home(), modal()], [waits], {}) != []
