"""Budgets in GPU-hours at home: what counts, who is held up, and that nothing adds up all runs to say so."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from kbslurm.domain.gpu_budgets import GpuBudget, Held
from kbslurm.domain.placement import Rules
from kbslurm.domain.run import Ending, Slot
from kbslurm.errors import NotFound, QuotaSpent
from kbslurm.store import gpu_budgets
from kbslurm.store.postgres import PostgresStore
from tests.contract.store_rig import PASSED, START, Rig, at_once

COURSE = GpuBudget(course="gpu", scope="course", gpu_s=3_600)
MANY = 100_000


@pytest.fixture
def rig(database_url: str) -> Iterator[Rig]:
    """A board of the course `gpu`: ada and emmy are in section A, grace in B, bob is on no roster."""
    with PostgresStore(database_url) as store:
        made = Rig.on(store)
        for name, section in (("ada", "A"), ("emmy", "A"), ("grace", "B")):
            store.roster.place("gpu", made.person(name), section=section, by="root", now=START)
        made.person("bob")
        store.boards.edit("main", by="root", course="gpu", now=START)
        yield made


def ran(rig: Rig, who: str = "ada", seconds: float = 600, gpu: str = "H100", **slot: Any) -> None:
    """Somebody's run takes so long on a GPU; with a slot's settings, by the placement policy."""
    rig.accept(who, (gpu,))
    if slot:
        found = rig.store.queue.claim([Slot(gpu=gpu, free=1, **{"backend": "local", **slot})], rig.now, rules=Rules())
        assert found is not None
        started = b"UPDATE attempt SET state = 'running', started_at = %(now)s WHERE id = %(id)s"
        with rig.store._pool.transaction() as connection:
            connection.execute(started, {"now": rig.now, "id": found.id})
            connection.execute(b"UPDATE run SET state = 'running' WHERE id = %(id)s", {"id": found.run_id})
    else:
        found = rig.running(gpu)
    rig.later(seconds)
    assert rig.score(found, replace(PASSED, ranked=False))


def put(rig: Rig, *budgets: GpuBudget) -> None:
    for one in budgets:
        rig.store.gpu_budgets.put(one, by="root", now=rig.now)


def held(rig: Rig) -> Sequence[Held]:
    return rig.store.gpu_budgets.held("gpu", rig.now)


def used(rig: Rig) -> Mapping[tuple[str, str, str], float]:
    """By the budget's words, whose, and the GPU type: the seconds."""
    return {(one.budget.scope, one.name, one.budget.gpu): one.used_s for one in held(rig)}


def test_what_ended_counts_and_open_runs_at_the_most_that_they_may_use(rig: Rig) -> None:
    ran(rig, seconds=1_800)
    put(rig, COURSE)  # what was used before counts too
    rig.accept("grace")
    (one,) = held(rig)
    assert (one.used_s, one.open_s, one.left_s, one.state) == (1_800, 60, 1_740, "ok")
    attempt = rig.running()
    (one,) = held(rig)
    assert (one.used_s, one.open_s) == (1_800, 60)
    rig.later(1_200)
    rig.score(attempt)
    (one,) = held(rig)
    assert (one.used_s, one.open_s, one.state, round(one.share, 3)) == (3_000, 0, "low", 0.833)
    (line,) = [line for line in rig.store.overview.attention(now=rig.now) if line.kind == "budget"]
    assert line.text == "course gpu has used 83 % of 1 GPU-hour"
    assert (line.subject, line.since) == ("course:gpu", rig.now)


def test_what_was_accepted_runs_to_its_end_and_then_no_more_is_accepted(rig: Rig) -> None:
    put(rig, replace(COURSE, gpu_s=100))
    rig.accept("ada")
    waiting = rig.accept("emmy")
    with pytest.raises(QuotaSpent) as caught:
        rig.accept("grace")
    assert str(caught.value) == (
        "GPU-hours of course gpu, counting open runs with 0.0333 GPU-hours at most: 0.0333 of 0.0278 used"
    )
    assert caught.value.hint == (
        "Try again when some of the open runs have ended, or ask an owner of the course or a host for more."
    )
    for _ in waiting.run_ids * 2:
        attempt = rig.running()
        rig.later(200)
        assert rig.score(attempt)
    with pytest.raises(QuotaSpent) as caught:
        rig.accept("grace")
    assert str(caught.value) == "GPU-hours of course gpu: 0.111 of 0.0278 used"
    assert (caught.value.hint, caught.value.resets_at) == ("Ask an owner of the course or a host for more.", None)
    rig.store.people.set_role(rig.person("grace"), "staff", now=rig.now)
    rig.accept("grace", by_staff=True)  # who isn't held up


def test_an_own_budget_takes_the_place_of_what_each_has(rig: Rig) -> None:
    each = GpuBudget(course="gpu", scope="person", gpu_s=600)
    own = replace(each, person_id=rig.person("emmy"), person="emmy", gpu_s=7_200)
    put(rig, each, own, GpuBudget(course="gpu", scope="section", gpu_s=1_800), replace(each, gpu="A100", gpu_s=1))
    for who in ("ada", "emmy", "bob"):
        ran(rig, who, 700)
    assert used(rig) == {
        ("section", "A", ""): 1_400,
        ("section", "B", ""): 0,
        ("person", "ada", ""): 700,
        ("person", "bob", ""): 700,  # whoever submits to the course's boards
        ("person", "emmy", ""): 700,
        ("person", "grace", ""): 0,
        ("person", "ada", "A100"): 0,
        ("person", "bob", "A100"): 0,
        ("person", "emmy", "A100"): 0,
        ("person", "grace", "A100"): 0,
    }
    for who in ("ada", "bob"):
        with pytest.raises(QuotaSpent, match=r"^your GPU-hours in course gpu: 0\.194 of 0\.167 used$"):
            rig.accept(who)
    rig.accept("grace", ("A100",))
    with pytest.raises(QuotaSpent, match=r"^your GPU-hours in course gpu on A100, counting open runs"):
        rig.accept("grace", ("A100",))
    ran(rig, "emmy", 400)  # of her own two hours, but also of her section's half an hour
    with pytest.raises(QuotaSpent, match=r"^GPU-hours of section A of course gpu: 0\.5 of 0\.5 used$"):
        rig.accept("emmy")
    rig.accept("grace")
    put(rig, GpuBudget(course="gpu", scope="section", section="a", gpu_s=36_000))
    rig.accept("emmy")
    rig.store.roster.place("gpu", rig.person("emmy"), section="B", by="root", now=rig.now)
    moved = used(rig)  # who changes sections takes along what they used
    assert (moved["section", "A", ""], moved["section", "B", ""]) == (700, 1_100)


def test_only_what_was_opened_between_its_ends_counts(rig: Rig) -> None:
    ran(rig, seconds=100)
    begins, ends = rig.now + timedelta(hours=1), rig.now + timedelta(hours=2)
    put(rig, replace(COURSE, gpu_s=50, begins_at=begins, ends_at=ends))
    ran(rig, seconds=100)
    assert used(rig) == {("course", "", ""): 0}
    rig.now = begins
    ran(rig, seconds=100)
    with pytest.raises(QuotaSpent) as caught:
        rig.accept("grace")
    assert caught.value.resets_at == ends
    assert caught.value.hint == (
        f"The budget ends at {ends:%Y-%m-%d %H:%M} UTC; before that ask an owner of the course or a host for more."
    )
    rig.now = ends
    rig.accept("grace")


def test_runs_elsewhere_have_a_budget_of_their_own(rig: Rig) -> None:
    put(rig, COURSE)
    ran(rig, seconds=600, overflow=True, backend="modal", price=0.01)
    assert used(rig) == {("course", "", ""): 0}
    ran(rig, seconds=600, price=0.001)  # a price at home
    (one,) = held(rig)
    assert (one.used_s, round(one.money, 6)) == (600, 0.6)
    rig.accept()
    assert held(rig)[0].open_s == 60
    assert rig.store.queue.claim([Slot(backend="modal", gpu="H100", free=1, overflow=True)], rig.now, rules=Rules())
    assert held(rig)[0].open_s == 0


def test_it_is_what_usage_counts_whatever_an_attempt_came_to(rig: Rig) -> None:
    put(rig, replace(COURSE, gpu_s=1e6))
    ran(rig, "ada", 300)
    rig.accept("emmy")
    rig.give_up(rig.running(), Ending.NODE_FAILURE)  # at once: nothing was used
    attempt = rig.running()
    rig.later(50)
    rig.give_up(attempt, Ending.NODE_FAILURE)
    attempt = rig.launched()
    rig.later(70)
    assert rig.score(attempt)  # it was never seen running: it counts at its time since then, at most its limit of 60
    rig.accept("grace")
    rig.refuse(rig.claimed())
    ran(rig, "ada", 200, price=0.5)
    counted = rig.store.costs.usage("board", START - timedelta(days=9), START + timedelta(days=9), rig.now)
    kept = held(rig)
    assert kept[0].used_s == sum(row.gpu_s for row in counted if not row.open) == 610
    assert kept[0].money == 100
    with rig.store._pool.transaction() as connection:
        connection.execute(b"SELECT kb_count_budgets('gpu', NULL)")
    assert held(rig) == kept, "counted anew it is the same"


def test_rejudging_is_the_hosts_wish_and_counts_for_the_course_alone(rig: Rig) -> None:
    put(rig, COURSE, GpuBudget(course="gpu", scope="person", gpu_s=600), replace(COURSE, scope="section"))
    ran(rig, "ada", 100)
    with rig.store._pool.transaction() as connection:
        connection.execute(b"UPDATE run SET rejudging_id = 7")
        connection.execute(b"UPDATE attempt SET started_at = started_at - interval '60 seconds'")
    again = {("course", ""): 160.0, ("person", "ada"): 100.0, ("section", "A"): 100.0}
    assert {key[:2]: seconds for key, seconds in used(rig).items() if seconds} == again


def test_what_hosts_have_ordered_and_what_they_submit_holds_up_nobody(rig: Rig) -> None:
    """A rejudge of three short runs, counted at their limits, closed a course until it was done."""
    put(rig, replace(COURSE, gpu_s=100))
    for who in ("ada", "emmy", "root"):
        rig.person(who)
    rig.store.people.set_role(rig.person("root"), "staff", now=rig.now)
    for who in ("ada", "emmy"):
        rig.accept(who)
    with rig.store._pool.transaction() as connection:
        connection.execute(b"UPDATE run SET rejudging_id = 7")
    for _ in range(3):
        rig.accept("root", by_staff=True)
    (one,) = held(rig)
    assert (one.open_s, one.state) == (0, "ok")
    rig.accept("grace")
    (one,) = held(rig)
    assert one.open_s == 60


def test_budgets_set_and_taken_away_at_once_wait_for_each_other(rig: Rig) -> None:
    put(rig, COURSE)
    faults: list[Exception] = []

    def over_and_over(act: Callable[[], object]) -> None:
        for _ in range(30):
            try:
                act()
            except NotFound:
                pass
            except Exception as error:
                faults.append(error)

    puts = partial(over_and_over, partial(put, rig, COURSE))
    clears = partial(over_and_over, lambda: rig.store.gpu_budgets.clear(COURSE, by="root", now=rig.now))
    at_once([puts, clears, puts, clears])
    assert not faults


def test_a_board_that_changes_its_course_takes_along_what_was_used(rig: Rig) -> None:
    put(rig, COURSE, replace(COURSE, course="other"))
    ran(rig, seconds=100)
    rig.store.boards.edit("main", by="root", course="other", now=rig.now)
    rig.accept("ada")
    assert used(rig) == {("course", "", ""): 0}
    (there,) = rig.store.gpu_budgets.held("other", rig.now)
    assert (there.used_s, there.open_s) == (100, 60)


def test_a_crowd_overruns_it_by_no_more_than_the_last_that_came_in(rig: Rig) -> None:
    """Twenty at once, for whom there is room for three: each sees what the one before it may use."""
    put(rig, replace(COURSE, gpu_s=150))
    people = [f"person{number}" for number in range(20)]
    for name in people:
        rig.person(name)
    told: list[str] = []

    def submit(name: str) -> None:
        try:
            rig.accept(name)
            told.append("in")
        except QuotaSpent:
            told.append("out")

    at_once([lambda name=name: submit(name) for name in people])  # type: ignore[misc]
    assert (told.count("in"), told.count("out")) == (3, 17)
    (one,) = held(rig)
    assert one.open_s == 180


def test_a_budget_that_is_set_while_attempts_end_counts_each_of_them_once(rig: Rig) -> None:
    for number in range(12):
        rig.accept(f"person{number}")
    attempts = [rig.running() for _ in range(12)]
    rig.later(10)
    sets = [lambda: put(rig, COURSE)] * 4
    at_once([*(lambda one=one: rig.score(one) for one in attempts), *sets])
    assert used(rig) == {("course", "", ""): 120}


def test_one_that_is_cleared_while_attempts_end_keeps_none_of_them_from_ending(rig: Rig) -> None:
    put(rig, COURSE)
    for number in range(12):
        rig.accept(f"person{number}")
    attempts = [rig.running() for _ in range(12)]
    rig.later(10)
    erase = rig.store.erasing.erase

    def clear() -> None:
        rig.store.gpu_budgets.clear(COURSE, by="root", now=rig.now)

    ends = [lambda one=one: rig.score(one) for one in attempts]
    at_once([*ends[:6], clear, lambda: erase(rig.person("person3"), by="root", now=rig.now), *ends[6:]])
    assert rig.rows("SELECT * FROM gpu_budget_use") == []
    assert rig.rows("SELECT count(*) AS n FROM run WHERE state = 'scored'") == [{"n": 12}]


def test_whoever_is_deleted_leaves_what_they_used_to_the_course(rig: Rig) -> None:
    own = GpuBudget(course="gpu", scope="person", person_id=rig.person("ada"), person="ada", gpu_s=3_600)
    put(rig, COURSE, own)
    ran(rig, "ada", 100)
    rig.store.erasing.erase(rig.person("ada"), by="root", now=rig.now)
    assert used(rig) == {("course", "", ""): 100}


def test_one_is_cleared_with_its_use_and_one_that_isnt_there_is_said(rig: Rig) -> None:
    put(rig, COURSE)
    ran(rig)
    rig.store.gpu_budgets.clear(COURSE, by="root", now=rig.now)
    assert (held(rig), rig.rows("SELECT * FROM gpu_budget_use")) == ([], [])
    with pytest.raises(NotFound, match="there is no budget of course gpu for 'gpu'"):
        rig.store.gpu_budgets.clear(COURSE, by="root", now=rig.now)
    said = [row["data"]["gpu_hours"] for row in rig.rows("SELECT data FROM event WHERE kind = 'staff.budget'")]
    assert said == [1, None]


FILL = """
INSERT INTO person (name, created_at) SELECT 'p' || n, %(now)s FROM generate_series(1, 60) n;
INSERT INTO submission (person_id, board_id, mode, file_name, source, sha256, via, by_staff, accepted_at)
    SELECT p.id, %(board)s, 'test', 'a.py', 'x', 'y', 'cli', false, %(now)s FROM person p
    CROSS JOIN generate_series(1, %(each)s) n WHERE p.name LIKE 'p%%';
INSERT INTO run (submission_id, problem_version_id, person_id, gpu, state, fair_at, queued_at, cost_s, by_staff,
    secret_seed, ended_at, came_from)
    SELECT s.id, %(version)s, s.person_id, 'H100', CASE WHEN row_number() OVER () %% 50 = 0 THEN 'queued'
        ELSE 'cancelled' END, %(now)s, %(now)s, 60, false, 's', CASE WHEN row_number() OVER () %% 50 = 0 THEN NULL
        ELSE %(now)s::timestamptz END, CASE WHEN row_number() OVER () %% 50 = 0 THEN NULL ELSE 'queued' END
    FROM submission s;
INSERT INTO attempt (run_id, number, name, backend, gpu, state, key, nonce, opened_at, started_at, ended_at)
    SELECT r.id, 1, 'kb-' || r.id, 'local', 'H100', 'dead', 'k', 'n', %(now)s, %(now)s,
        %(now)s::timestamptz + interval '10 seconds' FROM run r WHERE r.state = 'cancelled';
"""


def test_accepting_adds_up_no_runs_that_ended(rig: Rig) -> None:
    """Of 100,000 runs of one course, 2,000 of them open, only the open ones are read."""
    told = {
        "now": rig.now, "board": rig.board.id, "version": rig.board.problem_version_id, "each": MANY // 60 + 1,
    }  # fmt: skip
    with rig.store._pool.transaction() as connection:
        for statement in FILL.split(";\n"):
            if statement.strip():
                connection.execute(statement.encode(), told)
    rig.store._do("ANALYZE")
    put(rig, replace(COURSE, gpu_s=1e9), GpuBudget(course="gpu", scope="person", gpu_s=1e9))
    (course,) = [one for one in held(rig) if one.budget.scope == "course"]
    ended, opened = rig.rows("SELECT count(*) AS n FROM run GROUP BY state ORDER BY state")
    assert (ended["n"] + opened["n"] >= MANY, opened["n"] >= MANY // 50) == (True, True)
    assert (course.used_s, course.open_s) == (10 * ended["n"], 60 * opened["n"])
    asked = {**gpu_budgets._asked("gpu", rig.now), "person": rig.person("ada"), "gpus": ["H100"]}
    with rig.store._pool.transaction() as connection:
        plan = connection.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {gpu_budgets.HELD}".encode(), asked).fetchone()
    assert plan is not None
    (whole,) = plan["QUERY PLAN"]
    print(f"{whole['Planning Time']:.1f} ms planning, {whole['Execution Time']:.1f} ms execution")
    most = {"run": opened["n"], "submission": opened["n"], "attempt": 0, "gpu_budget_use": 130}
    for node in nodes(whole["Plan"]):
        if (name := node.get("Relation Name")) in most:
            read = (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
            assert read <= 2 * most[name], (name, read, json.dumps(node))
    rig.accept("ada")


def nodes(plan: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield plan
    for one in plan.get("Plans", ()):
        yield from nodes(one)
