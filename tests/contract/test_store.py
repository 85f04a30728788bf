"""The Store's contract on real Postgres: laws 1, 2 and 8, fairness, events in order, rows that defend themselves."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from threading import Event as Flag
from threading import Thread
from typing import Any

import psycopg
import pytest

from kbslurm.domain.run import (
    INFRASTRUCTURE_ATTEMPTS,
    MOVES,
    OPEN_RUNS,
    AttemptId,
    AttemptState,
    Ending,
    EventId,
    Handle,
    OpenAttempt,
    RunState,
    Seen,
    Sighting,
    Slot,
    SubmissionId,
)
from kbslurm.errors import BackendTrouble, DeadlinePassed, Misconfigured, NotAccepting, NotFound, QuotaSpent, Refused
from kbslurm.flow.remove import remove
from kbslurm.ports import Intake, NewSubmission
from kbslurm.store import claim_sql, connect, migrate
from kbslurm.store.embedded import Embedded
from kbslurm.store.postgres import PostgresStore
from kbslurm.store.quarantine import QUARANTINE_S
from tests.contract.store_rig import HELLO, PASSED, START, WRONG, Rig, at_once, slots


@pytest.fixture
def store(database_url: str) -> Iterator[PostgresStore]:
    opened = PostgresStore(database_url)
    yield opened
    opened.close()


@pytest.fixture
def rig(store: PostgresStore) -> Rig:
    return Rig.on(store)


def kinds(rig: Rig) -> list[str]:
    return [event.kind for event in rig.store.events.after(EventId(0))]


# -------------------------------------------------------------------------------------------------------------- accept


def test_a_submission_becomes_rows_and_events_in_one_act(rig: Rig) -> None:
    as_port: Intake = rig.store.intake
    receipt = as_port.accept(rig.new(gpus=("H100", "A100")), rig.now)
    view = rig.store.submissions.get(receipt.submission_id)
    assert [run.id for run in view.runs] == list(receipt.run_ids)
    assert [(run.gpu, run.state) for run in view.runs] == [("H100", RunState.QUEUED), ("A100", RunState.QUEUED)]
    assert (view.source, view.person, view.board) == ("x = 1", "ada", "main")
    assert kinds(rig) == ["board.created", "submission.accepted", "run.queued", "run.queued"]
    assert rig.store.queue.waiting() == {"A100": 1, "H100": 1}


def test_seeds_differ_between_gpus_and_between_attempts(rig: Rig) -> None:
    rig.accept(gpus=("H100", "A100"))
    works = [rig.store.attempts.work(rig.claimed(gpu).id) for gpu in ("H100", "A100")]
    assert rig.give_up(works[0].attempt) is RunState.QUEUED
    works.append(rig.store.attempts.work(rig.claimed("H100").id))
    assert len({work.secret_seed for work in works}) == 3
    assert all(len(work.secret_seed) == 32 for work in works)
    assert len({work.nonce for work in works}) == len({work.key for work in works}) == 3
    assert works[0].problem == rig.board.problem
    assert works[0].problem_digest == rig.board.problem_digest


def test_accept_looks_again_inside_its_transaction(rig: Rig) -> None:
    store = rig.store
    store.boards.set_deadline("main", START - timedelta(seconds=1), "Europe/Berlin", now=START)
    with pytest.raises(DeadlinePassed):
        rig.accept()
    store.boards.set_deadline("main", START, now=START)
    store.settings.set_accepts_jobs(False)
    with pytest.raises(NotAccepting):
        rig.accept()
    assert rig.accept("host", by_staff=True).submission_id
    store.settings.set_accepts_jobs(True)
    store.boards.close("main", now=START)
    with pytest.raises(Refused, match="closed"):
        rig.accept()
    store.people.ban(rig.person("ada"), "shared an account")
    with pytest.raises(Refused, match="shared an account"):
        rig.accept()
    store.boards.delete("main", force=True)
    with pytest.raises(NotFound):
        rig.accept("bob")
    assert len(rig.rows("SELECT 1 FROM submission")) == len(rig.rows("SELECT 1 FROM run")) == 1, "the host's"


def looked(rig: Rig, who: str = "ada", gpus: tuple[str, ...] = ("H100",)) -> NewSubmission:
    """A submission that was decided on by how things are now."""
    basis = rig.store.intake.admission(rig.person(who), "main", "leaderboard").basis
    assert basis is not None
    return rig.new(who, gpus, basis=basis)


@pytest.mark.parametrize(
    ("changed", "refusal"),
    [
        (lambda rig: rig.store.boards.set_deadline("main", START - timedelta(seconds=1), now=START), DeadlinePassed),
        (lambda rig: rig.store.settings.set_accepts_jobs(False), NotAccepting),
        (lambda rig: rig.store.boards.close("main", now=START), Refused),
        (lambda rig: rig.store.boards.set_visibility("main", "closed"), Refused),
        (lambda rig: rig.store.people.ban(rig.person("ada"), "shared an account"), Refused),
        (lambda rig: rig.store.limits.set_rate("main", "leaderboard", 0, by="host"), QuotaSpent),
        (lambda rig: rig.store.boards.delete("main"), NotFound),
    ],
)
def test_what_changed_since_the_look_is_seen(
    rig: Rig, changed: Callable[[Rig], object], refusal: type[Exception]
) -> None:
    new = looked(rig)
    changed(rig)
    with pytest.raises(refusal):
        rig.store.intake.accept(new, rig.now)
    assert rig.rows("SELECT 1 FROM submission") == [], "nothing half-written"


def test_one_look_serves_one_submission_at_a_time(rig: Rig) -> None:
    wanted = [looked(rig, gpus=("H100", "A100")) for _ in range(6)]
    assert len({one.basis for one in wanted}) == 1
    at_once([lambda one=one: rig.store.intake.accept(one, rig.now) for one in wanted])  # type: ignore[misc]
    stamps = sorted(row["fair_at"] for row in rig.rows("SELECT fair_at FROM run"))
    assert stamps == [START + timedelta(seconds=60 * n) for n in range(12)]
    assert len(rig.rows("SELECT 1 FROM event WHERE kind = 'run.queued'")) == 12


def test_where_something_is_counted_it_is_decided_under_the_lock(rig: Rig) -> None:
    rig.store.limits.set_rate("main", "leaderboard", 2, by="host")
    assert rig.store.intake.admission(rig.person("ada"), "main", "leaderboard").basis is None
    assert rig.store.intake.admission(rig.person("ada"), "main", "test").basis is not None


def test_a_pause_waits_for_what_is_being_accepted_and_then_holds(rig: Rig) -> None:
    receipts: list[object] = []
    accepting = Thread(target=lambda: receipts.append(rig.accept()))
    pausing = Thread(target=rig.store.settings.set_accepts_jobs, args=(False,))
    with connect.connect(rig.store._pool.url, autocommit=False) as other:
        other.execute("SELECT 1 FROM person WHERE id = %s FOR UPDATE", (rig.person("ada"),))
        accepting.start()
        until_somebody_waits(other, accepting, "locktype <> 'advisory'")
        pausing.start()
        until_somebody_waits(other, pausing, "locktype = 'advisory'")
        assert rig.store.settings.accepts_jobs()
        other.commit()
    accepting.join(60)
    pausing.join(60)
    assert len(receipts) == 1, "it was there before the pause"
    with pytest.raises(NotAccepting):
        rig.accept()


def until_somebody_waits(connection: connect.Connection, thread: Thread, for_what: str) -> None:
    """Come back when this thread's statement waits for a lock; fail when it ends instead."""
    asked = f"SELECT 1 FROM pg_locks WHERE NOT granted AND pid <> pg_backend_pid() AND {for_what}"
    while not connection.execute(asked.encode()).fetchone():
        assert thread.is_alive(), "it didn't wait"


def test_two_submissions_of_one_person_at_once_are_stamped_one_after_the_other(rig: Rig) -> None:
    rig.person("ada")
    at_once([lambda: rig.accept(gpus=("H100", "A100")) for _ in range(6)])
    stamps = sorted(row["fair_at"] for row in rig.rows("SELECT fair_at FROM run"))
    assert stamps == [START + timedelta(seconds=60 * n) for n in range(12)]


# --------------------------------------------------------------------------------------------------------------- claim


def test_a_burst_by_one_person_lets_the_next_person_in(rig: Rig) -> None:
    for _ in range(4):
        rig.accept("ada")
    rig.later(1)
    rig.accept("bob")
    order = [rig.store.attempts.work(rig.claimed().id).person for _ in range(5)]
    assert order == ["ada", "bob", "ada", "ada", "ada"]


def test_of_several_slots_the_fairest_run_of_all_is_taken(rig: Rig) -> None:
    rig.accept("ada", ("A100",))
    rig.later(1)
    rig.accept("bob", ("H100",))
    first, second = rig.claimed("H100", "A100"), rig.claimed("H100", "A100")
    assert (first.gpu, second.gpu) == ("A100", "H100")
    assert (first.number, first.state, first.opened_at) == (1, AttemptState.INTENT, rig.now)
    assert rig.claim("H100", "A100") is None
    assert {attempt.id for attempt in rig.store.attempts.open()} == {first.id, second.id}


def test_an_attempt_counts_the_gpus_of_its_problem(rig: Rig) -> None:
    cases = tuple({**case, "world_size": 4} for case in HELLO.tests)
    several = dataclasses.replace(HELLO, name="several", multi_gpu=True, tests=cases, benchmarks=cases, hidden=())
    board = rig.store.boards.add("several", several, gpus=("H100",), now=rig.now)
    rig.accept("ada", board_id=board.id, problem_version_id=board.problem_version_id)
    rig.accept("bob")
    assert [rig.claimed().gpus for _ in range(2)] == [4, 1]
    assert sorted(attempt.gpus for attempt in rig.store.attempts.open()) == [1, 4]


def test_the_earlier_slot_of_a_gpu_is_preferred_and_a_full_one_not_at_all(rig: Rig) -> None:
    for who in ("ada", "bob"):
        rig.accept(who)
    full = Slot(backend="full", gpu="H100", free=0)
    first, second = Slot(backend="one", gpu="H100", free=1), Slot(backend="two", gpu="H100", free=1)
    assert [rig.store.queue.claim(given, rig.now) for given in ([], [full])] == [None, None]
    taken = [rig.store.queue.claim([full, *given], rig.now) for given in ([second, first], [first, second])]
    assert [attempt.backend for attempt in taken if attempt] == ["two", "one"]


def test_a_run_that_is_too_wide_for_a_slot_waits_for_another_and_holds_nobody_up(rig: Rig) -> None:
    cases = tuple({**case, "world_size": 4} for case in HELLO.tests)
    several = dataclasses.replace(HELLO, name="several", multi_gpu=True, tests=cases, benchmarks=cases, hidden=())
    board = rig.store.boards.add("several", several, gpus=("H100",), now=rig.now)
    wide: dict[str, Any] = {"board_id": board.id, "problem_version_id": board.problem_version_id}
    for n in range(claim_sql.CANDIDATES + 2):
        rig.accept(f"wide{n}", **wide)
    rig.later(1)
    rig.accept("ada")
    narrow, pair, node = (
        Slot(backend=name, gpu="H100", free=9, most=most) for name, most in (("one", 1), ("two", 2), ("node", None))
    )
    assert [(w.gpus, w.runs) for w in rig.store.overview.wants()] == [(1, 1), (4, claim_sql.CANDIDATES + 2)]
    for given in ([narrow], [narrow, pair]):
        taken = rig.store.queue.claim(given, rig.now)
        assert taken is not None and (taken.backend, taken.gpus) == ("one", 1)
        assert rig.store.queue.claim(given, rig.now) is None, "the wide ones aren't for these"
        rig.give_up(taken)
    for given in ([narrow, node, pair], [node], [Slot(backend="four", gpu="H100", free=1, most=4), narrow]):
        taken = rig.store.queue.claim(given, rig.now)
        assert taken is not None and taken.gpus == 4 and taken.backend in ("node", "four"), taken


def test_a_run_that_a_place_refuses_for_ever_goes_to_the_others_and_to_each_of_them_once(rig: Rig) -> None:
    rig.accept()
    here, there = Slot(backend="here", gpu="H100", free=1), Slot(backend="there", gpu="H100", free=1)
    other = rig.store.queue.claim([here, there], rig.now)
    assert other is not None and other.backend == "here"
    assert rig.refuse(other, "here", "there") is RunState.QUEUED
    assert rig.store.queue.claim([here], rig.now) is None
    rig.later(1)
    rig.accept("bob")
    both = [rig.store.queue.claim([here, there], rig.now) for _ in range(2)]
    taken = {rig.store.attempts.work(attempt.id).person: attempt.backend for attempt in both if attempt}
    assert taken == {"ada": "there", "bob": "here"}
    (second,) = [attempt for attempt in rig.store.attempts.open() if attempt.number == 2]
    assert rig.refuse(second, "here", "there") is RunState.FAILED, "nobody is left"
    (verdict,) = rig.rows("SELECT name, reason FROM verdict")
    assert verdict == {"name": "infrastructure", "reason": "never here"}


def test_what_places_refused_costs_the_place_that_takes_the_run_none_of_its_three_attempts(rig: Rig) -> None:
    rig.accept()
    places = ("one", "two", "three", "last")
    for place in places[:-1]:
        refused = rig.store.queue.claim([Slot(backend=place, gpu="H100", free=1)], rig.now)
        assert refused is not None and rig.refuse(refused, *places) is RunState.QUEUED
    last = [Slot(backend="last", gpu="H100", free=1)]
    for number in range(len(places), len(places) + INFRASTRUCTURE_ATTEMPTS):
        tried = rig.store.queue.claim(last, rig.now)
        assert tried is not None and tried.number == number
        end = number == len(places) + INFRASTRUCTURE_ATTEMPTS - 1
        assert rig.give_up(tried) is (RunState.FAILED if end else RunState.QUEUED), number
    assert rig.store.queue.claim(last, rig.now) is None
    assert rig.rows("SELECT count(*) AS n FROM verdict") == [{"n": 1}]


def test_a_slot_for_staff_takes_only_their_runs_wherever_those_stand(rig: Rig) -> None:
    for n in range(claim_sql.CANDIDATES + 2):
        rig.accept(f"guest{n}")
    rig.later(10)
    staff = Slot(backend="bare", gpu="H100", free=1, staff_only=True)
    assert rig.store.queue.claim([staff], rig.now) is None
    rig.accept("host", by_staff=True)
    found = rig.store.queue.claim([staff], rig.now)
    assert found is not None
    assert rig.store.attempts.work(found.id).person == "host"
    mixed = rig.store.queue.claim([staff, *slots("H100")], rig.now)
    assert mixed is not None
    assert mixed.backend == "local", "a guest's run isn't let into the staff's slot beside"


def test_eight_claim_at_once_and_nothing_is_claimed_twice(rig: Rig) -> None:
    for n in range(40):
        rig.accept(f"p{n}", ("H100", "A100"))
    claimed: list[OpenAttempt] = []

    def claim_until_nothing_is_left() -> None:
        while (attempt := rig.claim("H100", "A100")) is not None:
            claimed.append(attempt)

    at_once([claim_until_nothing_is_left] * 8)
    assert rig.store.queue.waiting() == {}
    assert len({attempt.run_id for attempt in claimed}) == len(claimed) == 80
    assert len({attempt.name for attempt in claimed}) == 80
    assert {row["attempts"] for row in rig.rows("SELECT attempts FROM run")} == {1}


@pytest.mark.parametrize("seed", range(3))
def test_no_slot_idles_while_a_run_that_fits_it_waits(rig: Rig, seed: int) -> None:
    """Whatever happened before: a claim takes the fairest of what waits for its slots, and None means nothing does."""
    dice = random.Random(seed)
    gpus = ("H100", "A100", "T4")
    opened: list[OpenAttempt] = []
    for _ in range(120):
        rig.later(dice.choice((0, 1, 30)))
        match dice.choice(("accept", "accept", "claim", "claim", "claim", "end", "cancel")):
            case "accept":
                rig.accept(dice.choice(("ada", "bob", "eve")), dice.sample(gpus, dice.randint(1, 3)))
            case "claim":
                wanted = dice.sample(gpus, dice.randint(1, 3))
                waiting = rig.rows("SELECT id, gpu, fair_at FROM run WHERE state = 'queued' ORDER BY fair_at, id")
                fitting = [row["id"] for row in waiting if row["gpu"] in wanted]
                found = rig.claim(*wanted)
                assert (found.run_id if found else None) == (fitting[0] if fitting else None)
                opened += [found] if found else []
            case "end" if opened:
                attempt = opened.pop(dice.randrange(len(opened)))
                dice.choice((rig.score, rig.give_up))(attempt)
            case "cancel":
                views = rig.store.submissions.newest()
                if views:
                    rig.store.submissions.cancel(dice.choice(views).id, None, rig.now)
            case _:
                pass


def test_a_run_that_somebody_holds_is_stepped_over(rig: Rig) -> None:
    rig.accept("ada")
    rig.later(1)
    rig.accept("bob")
    with connect.connect(rig.store._pool.url, autocommit=False) as other:
        other.execute("SELECT 1 FROM run WHERE person_id = %s FOR UPDATE", (rig.person("ada"),))
        assert rig.claim("T4", "B200") is None
        assert rig.store.attempts.work(rig.claimed("H100", "A100").id).person == "bob"
        assert rig.claim("H100", "A100") is None
        assert rig.claim("H100") is None
    assert rig.store.attempts.work(rig.claimed().id).person == "ada"


def test_the_claim_walks_the_partial_index_at_50_000_queued(rig: Rig) -> None:
    receipt = rig.accept()
    fill(rig, receipt.submission_id, queued=50_000)
    for claim in (claim_sql.CLAIM, claim_sql.CLAIM_OF_ONE, claim_sql.CLAIM_BESIDE_STAFF):
        check_plan(rig, claim)


def test_a_claim_of_what_was_tried_before_reads_no_attempt_that_was_not_refused(rig: Rig) -> None:
    receipt = rig.accept()
    fill(rig, receipt.submission_id, queued=2_000)
    rig.store._do(
        "INSERT INTO attempt (run_id, number, name, backend, gpu, key, nonce, opened_at, state, ending, ended_at)"
        " SELECT id, 1, 'kb-' || id, 'local', gpu, '', '', %(now)s, 'dead', 'vanished', %(now)s FROM run",
        {"now": rig.now},
    )
    rig.store._do("UPDATE run SET attempts = 1")
    rig.store._do("ANALYZE attempt")
    for claim in (claim_sql.CLAIM, claim_sql.CLAIM_OF_ONE, claim_sql.CLAIM_BESIDE_STAFF):
        nodes = check_plan(rig, claim)
        read = [node for node in nodes if node.get("Relation Name") == "attempt" and "Scan" in node["Node Type"]]
        assert read, "nobody asked for refusals"
        assert {node.get("Index Name") for node in read} == {"ix_attempt_refused"}


def check_plan(rig: Rig, claim: str) -> list[dict[str, Any]]:
    told = {"name": "kb-x", "key": b"k", "nonce": "n", "now": rig.now}
    ours: dict[str, Any] = {
        "gpus": ["H100", "A100"],
        "backends": ["local", "local"],
        "most": [1, claim_sql.ANY_WIDTH],
        "staff_only": [False, claim == claim_sql.CLAIM_BESIDE_STAFF],
    }
    with rig.store._pool.transaction() as connection:
        statement = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {claim}".encode()
        if claim == claim_sql.CLAIM_OF_ONE:
            ours = {name: values[0] for name, values in ours.items()}
        found = connection.execute(statement, {**told, **ours}).fetchone()
        assert found is not None
        connection.execute("ROLLBACK AND CHAIN")
    nodes = list(plan_nodes(found["QUERY PLAN"][0]["Plan"]))
    walked = [node for node in nodes if node.get("Index Name") == "ix_run_waiting"]
    assert walked, json.dumps(found["QUERY PLAN"])[:2000]
    assert {node["Node Type"] for node in nodes if node.get("Relation Name") == "run"} <= {
        "Index Scan",
        "Index Only Scan",
        "ModifyTable",
        "Update",
    }
    assert max(node["Actual Rows"] for node in nodes) <= 4 * claim_sql.CANDIDATES, "it read no more than the candidates"
    return nodes


def fill(rig: Rig, submission: SubmissionId, *, queued: int) -> None:
    """Many queued runs, by SQL: the gpu's name makes them differ from the one that is there."""
    rig.store._do(
        "INSERT INTO problem_version (problem_id, digest, content, created_at)"
        " SELECT problem_id, 'v' || n, content, created_at FROM problem_version, generate_series(1, %(n)s) n",
        {"n": queued // 2},
    )
    rig.store._do(
        "INSERT INTO run (submission_id, problem_version_id, person_id, gpu, fair_at, queued_at, cost_s, by_staff,"
        " secret_seed) SELECT %(submission)s, v.id, %(person)s, gpu, %(now)s + v.id * interval '1 second', %(now)s, 60,"
        " false, '' FROM problem_version v, unnest(ARRAY['H100', 'A100']) gpu WHERE v.digest LIKE 'v%%'",
        {"submission": submission, "person": rig.person("ada"), "now": rig.now},
    )
    rig.store._do("ANALYZE run")


def plan_nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for below in node.get("Plans", ()):
        yield from plan_nodes(below)


# ---------------------------------------------------------------------------------------------------- law 1: the fence

Act = Callable[[Rig, OpenAttempt], object]
FENCED: dict[str, Act] = {
    "note_handle": lambda rig, a: rig.store.attempts.note_handle(a, Handle("9"), rig.now, rig.now),
    "note_ambiguous": lambda rig, a: rig.store.attempts.note_ambiguous(a, "hm", rig.now),
    "note_clean_sweep": lambda rig, a: rig.store.attempts.note_clean_sweep(a, rig.now),
    "note_resend": lambda rig, a: rig.store.attempts.note_resend(a, rig.now),
    "seen waiting": lambda rig, a: rig.store.attempts.note_seen(a, Sighting(seen=Seen.WAITING), rig.now),
    "seen running": lambda rig, a: rig.store.attempts.note_seen(a, Sighting(seen=Seen.RUNNING), rig.now),
    "seen ended": lambda rig, a: rig.store.attempts.note_seen(a, Sighting(seen=Seen.ENDED), rig.now),
    "score": lambda rig, a: rig.score(a),
    "score own limit": lambda rig, a: rig.score(a, WRONG, Ending.TIMEOUT),
    "give_up_attempt": lambda rig, a: rig.give_up(a) is not None,
    "end_cancelled": lambda rig, a: rig.store.attempts.end_cancelled(a, rig.now),
}
ENDS: dict[str, Act] = {
    "a retry": lambda rig, a: rig.give_up(a),
    "a retry that runs": lambda rig, a: (rig.give_up(a), rig.running()),
    "a verdict": lambda rig, a: rig.score(a, WRONG),
    "a cancel": lambda rig, a: rig.store.attempts.end_cancelled(a, rig.now),
    "a refusal": lambda rig, a: rig.give_up(a, Ending.REFUSED),
}


@pytest.mark.parametrize("end", ENDS)
def test_an_attempt_that_is_no_longer_the_runs_changes_nothing(rig: Rig, end: str) -> None:
    rig.accept()
    attempt = rig.running()
    ENDS[end](rig, attempt)
    before = rig.everything()
    for name, act in FENCED.items():
        assert act(rig, attempt) is False, name
        # The number is the fence: knowing the new attempt's id doesn't help an old number, nor the reverse.
        forged = dataclasses.replace(attempt, number=attempt.number + 7)
        assert act(rig, forged) is False, name
    assert rig.everything() == before


def test_a_report_is_scored_once_and_the_second_is_kept_as_stale(rig: Rig) -> None:
    rig.accept()
    attempt = rig.running()
    assert rig.score(attempt, PASSED)
    assert not rig.score(attempt, WRONG)
    rig.store.attempts.keep_stale(attempt, b"{}", "a second report", rig.now)
    (verdict,) = rig.rows("SELECT name, score_s, ranked, attempt_id FROM verdict")
    assert verdict == {"name": "passed", "score_s": 2e-3, "ranked": True, "attempt_id": attempt.id}
    (stale,) = rig.rows("SELECT why, report, attempt_id FROM stale_report")
    assert stale == {"why": "a second report", "report": b"{}", "attempt_id": attempt.id}
    assert kinds(rig)[-2:] == ["run.scored", "report.stale"]


def test_a_profiles_files_come_with_its_verdict_and_are_forgotten_in_time(rig: Rig) -> None:
    receipt = rig.accept(mode="profile")
    attempt = rig.running()
    files = {"benchmark-0.table.txt": b"\x00 a table", "benchmark-0.trace.json.gz": b"\x1f\x8b"}
    once, twice = (
        rig.store.scores.record(attempt, PASSED, Ending.REPORTED, rig.now, telemetry={}, artifacts=files)
        for _ in range(2)
    )
    assert (once, twice) == (True, False), "the second is stale, files and all"
    found = rig.store.artifacts.of_submission(receipt.submission_id)
    assert {one.name: one.size for one in found} == {name: len(data) for name, data in files.items()}
    assert rig.store.artifacts.read(receipt.submission_id, "H100", "benchmark-0.table.txt") == b"\x00 a table"
    with pytest.raises(NotFound, match="table"):
        rig.store.artifacts.read(receipt.submission_id, "A100", "benchmark-0.table.txt")
    assert rig.store.artifacts.forget(rig.now) == 0
    assert rig.store.artifacts.forget(rig.later(1)) == 2
    assert rig.store.artifacts.of_submission(receipt.submission_id) == []


def test_of_what_was_removed_neither_source_nor_files_are_kept_whichever_came_first(rig: Rig) -> None:
    files = {"benchmark-0.table.txt": b"a table"}
    before, after = rig.accept("ada", mode="profile"), rig.accept("bob", mode="profile")
    first, second = rig.running(), rig.running()
    assert rig.store.scores.record(first, PASSED, Ending.REPORTED, rig.now, telemetry={}, artifacts=files)
    for receipt in (before, after):
        remove(rig.store.submissions, receipt.submission_id, None, "host", rig.now)
    assert rig.store.scores.record(second, PASSED, Ending.REPORTED, rig.now, telemetry={}, artifacts=files)
    for receipt in (before, after):
        assert rig.store.artifacts.of_submission(receipt.submission_id) == []
        assert rig.store.submissions.get(receipt.submission_id).source == ""
    assert rig.store.submissions.newest(board="main") == []
    with pytest.raises(NotFound):
        remove(rig.store.submissions, SubmissionId(99), None, "host", rig.now)


def test_many_score_at_once_and_one_wins(rig: Rig) -> None:
    rig.accept()
    attempt = rig.running()
    won: list[bool] = []
    at_once([lambda: won.append(rig.score(attempt, PASSED))] * 4 + [lambda: won.append(rig.score(attempt, WRONG))] * 4)
    assert sorted(won) == [False] * 7 + [True]
    assert len(rig.rows("SELECT 1 FROM verdict")) == kinds(rig).count("run.scored") == 1


@pytest.mark.parametrize("state", ["launching", "running"])
def test_a_limit_of_its_own_is_a_verdict_on_a_dead_attempt(rig: Rig, state: str) -> None:
    rig.accept()
    attempt = rig.launched() if state == "launching" else rig.running()
    assert rig.score(attempt, dataclasses.replace(WRONG, name="timeout", detail=None), Ending.TIMEOUT)
    (run,) = rig.store.submissions.newest(person=rig.person("ada"))[0].runs
    assert (run.state, run.attempts[0].state, run.attempts[0].ending) == (RunState.SCORED, "dead", "timeout")
    assert run.verdict is not None
    assert run.verdict.name == "timeout"


def test_what_no_database_could_hold_is_kept_all_the_same(rig: Rig) -> None:
    rig.accept()
    log = "a\0b\ud800 \\u0000 ü"
    assert rig.score(rig.running(), dataclasses.replace(PASSED, reason=log, detail={"log": [log, 1, None], log: {}}))
    found = rig.store.submissions.get(SubmissionId(1)).runs[0].verdict
    assert found is not None
    assert found.reason == "a\ufffdb? \\u0000 ü"
    assert found.detail == {"log": [found.reason, 1, None], found.reason: {}}


# ------------------------------------------------------------------------------------------------- law 2 and 5: retries


def test_a_third_failure_is_the_last_and_its_verdict_says_infrastructure(rig: Rig) -> None:
    rig.accept()
    names = set()
    for number in range(1, INFRASTRUCTURE_ATTEMPTS + 1):
        attempt = rig.running()
        assert attempt.number == number
        names.add(attempt.name)
        last = number == INFRASTRUCTURE_ATTEMPTS
        assert rig.give_up(attempt) is (RunState.FAILED if last else RunState.QUEUED)
    assert len(names) == INFRASTRUCTURE_ATTEMPTS
    (run,) = rig.store.submissions.get(SubmissionId(1)).runs
    assert run.verdict is not None
    assert (run.verdict.name, run.verdict.reason, run.verdict.ranked) == ("infrastructure", "it died", False)
    assert [attempt.state for attempt in run.attempts] == ["dead"] * INFRASTRUCTURE_ATTEMPTS
    assert rig.claim() is None
    assert rig.store.attempts.open() == []


def test_a_retry_keeps_its_place_in_the_queue(rig: Rig) -> None:
    rig.accept("ada")
    rig.later(1)
    rig.accept("bob")
    first = rig.running()
    rig.later(100)
    rig.give_up(first)
    assert rig.claimed().run_id == first.run_id


def test_a_refusal_ends_the_run(rig: Rig) -> None:
    rig.accept()
    assert rig.give_up(rig.claimed(), Ending.REFUSED) is RunState.FAILED
    assert rig.rows("SELECT state FROM attempt") == [{"state": "refused"}]


def test_an_unclear_attempt_is_swept_and_sent_again_as_itself(rig: Rig) -> None:
    rig.accept()
    attempt = rig.claimed()
    assert rig.store.attempts.note_ambiguous(attempt, "no answer", rig.now)
    for sweep in (1, 2):
        rig.later(30)
        assert rig.store.attempts.note_clean_sweep(attempt, rig.now)
        (seen,) = rig.store.attempts.open()
        assert (seen.state, seen.clean_sweeps, seen.swept_at) == (AttemptState.AMBIGUOUS, sweep, rig.now)
    assert rig.store.attempts.note_resend(attempt, rig.now)
    (again,) = rig.store.attempts.open()
    assert again == attempt, "the same number and name, nothing remembered of the sweeps"
    deadline = rig.now + timedelta(hours=1)
    assert rig.store.attempts.note_handle(again, Handle("17"), deadline, rig.now)
    (sent,) = rig.store.attempts.open()
    assert (sent.state, sent.handle, sent.deadline_at) == (AttemptState.SUBMITTED, "17", deadline)


def test_a_handle_noted_again_is_no_second_event(rig: Rig) -> None:
    # The answer to the first was lost with its connection, so the daemon, or the sweep, says it again.
    rig.accept()
    attempt = rig.claimed()
    for handle in ("17", "17", "18"):
        assert rig.store.attempts.note_handle(attempt, Handle(handle), rig.now, rig.now)
    assert kinds(rig).count("attempt.submitted") == 2


def test_a_sighting_moves_the_run_along_once(rig: Rig) -> None:
    rig.accept()
    attempt = rig.launched()
    rig.store.attempts.note_clean_sweep(attempt, rig.now)
    started = rig.later(5)
    running = Sighting(seen=Seen.RUNNING, node="n1")
    assert rig.store.attempts.note_seen(attempt, running, rig.now)
    rig.later(5)
    assert rig.store.attempts.note_seen(attempt, running, rig.now)
    assert rig.store.attempts.note_seen(attempt, Sighting(seen=Seen.WAITING), rig.now)
    (seen,) = rig.store.attempts.open()
    assert (seen.state, seen.node, seen.started_at, seen.seen_at) == (AttemptState.RUNNING, "n1", started, rig.now)
    assert seen.clean_sweeps == 0
    before = rig.everything()
    for nothing in (Seen.ABSENT, Seen.UNKNOWN):
        assert rig.store.attempts.note_seen(attempt, Sighting(seen=nothing), rig.now)
    assert rig.everything() == before, "missing is not finished"
    ended = Sighting(seen=Seen.ENDED, exit_code=9, reason="killed", ending=Ending.NODE_FAILURE, ended_at=rig.now)
    assert rig.store.attempts.note_seen(attempt, ended, rig.now)
    assert len(rig.store.attempts.open()) == 1, "what was seen of an end isn't its end"
    assert rig.rows("SELECT exit_code, reason, ending FROM attempt") == [
        {"exit_code": 9, "reason": "killed", "ending": None}
    ]
    assert kinds(rig).count("run.running") == 1


def test_a_node_that_failed_a_run_is_avoided_by_it_and_one_that_failed_three_people_by_all(rig: Rig) -> None:
    for who in ("ada", "ada", "bob"):
        rig.accept(who)
        rig.give_up(rig.running(node="bad"))
        retried = rig.running(node="good")
        assert rig.store.attempts.work(retried.id).avoid_nodes == ("bad",)
        rig.score(retried)
    rig.accept("eve")
    fresh = rig.claimed()
    assert rig.store.attempts.work(fresh.id).avoid_nodes == (), "two people's failures, however many, condemn no node"
    rig.score(fresh)
    rig.accept("joe")
    rig.give_up(rig.running(node="bad"))
    rig.score(rig.claimed())
    rig.later(1)
    rig.accept("eve")
    assert rig.store.attempts.work(rig.claimed().id).avoid_nodes == ("bad",)
    (found,) = [one for one in rig.store.overview.attention(now=rig.now) if one.kind == "quarantined"]
    assert found.subject == "node:bad"
    rig.later(QUARANTINE_S)
    rig.accept("eve")
    assert rig.store.attempts.work(rig.claimed().id).avoid_nodes == ()


# -------------------------------------------------------------------------------------------------------------- cancel


def test_cancel_ends_what_waits_and_asks_for_what_runs(rig: Rig) -> None:
    receipt = rig.accept(gpus=("H100", "A100", "B200", "T4"))
    launching, running, scored = rig.claimed("H100"), rig.running("A100"), rig.running("B200")
    rig.score(scored)
    asked = rig.store.submissions.cancel(receipt.submission_id, rig.person("ada"), rig.later(1))
    assert [attempt.id for attempt in asked] == [launching.id, running.id]
    assert {attempt.cancel_at for attempt in asked} == {rig.now}
    assert [run.state for run in rig.store.submissions.get(receipt.submission_id).runs] == [
        RunState.LAUNCHING,
        RunState.RUNNING,
        RunState.SCORED,
        RunState.CANCELLED,
    ]
    before = kinds(rig)
    again = rig.store.submissions.cancel(receipt.submission_id, None, rig.later(1))
    assert (list(again), kinds(rig)) == (list(asked), before), "twice is fine, and says nothing twice"
    assert [rig.store.attempts.end_cancelled(attempt, rig.now) for attempt in asked] == [True, True]
    view = rig.store.submissions.get(receipt.submission_id)
    assert view.is_done
    assert [run.verdict is None for run in view.runs] == [True, True, False, True], "cancelled: no verdict"
    assert kinds(rig).count("run.cancelled") == 3
    assert list(rig.store.submissions.cancel(receipt.submission_id, None, rig.now)) == []


def test_only_the_owner_and_staff_cancel(rig: Rig) -> None:
    receipt = rig.accept("ada")
    host = rig.store.people.add("host", "staff").id
    with pytest.raises(Refused):
        rig.store.submissions.cancel(receipt.submission_id, rig.person("bob"), rig.now)
    with pytest.raises(NotFound):
        rig.store.submissions.cancel(SubmissionId(99), None, rig.now)
    assert rig.store.queue.waiting() == {"H100": 1}
    rig.store.submissions.cancel(receipt.submission_id, host, rig.now)
    assert rig.store.queue.waiting() == {}


def test_a_cancelled_run_that_fails_is_not_queued_again(rig: Rig) -> None:
    receipt = rig.accept()
    attempt = rig.running()
    with connect.connect(rig.store._pool.url, autocommit=False) as other:
        # A cancel that has the run's lock and isn't committed when the node fails: the failure waits, then obeys it.
        other.execute("UPDATE run SET cancel_at = %s WHERE id = %s", (rig.now, attempt.run_id))
        ended: list[RunState | None] = []
        failing = Thread(target=lambda: ended.append(rig.give_up(attempt)))
        failing.start()
        until_somebody_waits(other, failing, "true")
        other.commit()
    failing.join(60)
    assert ended == [RunState.CANCELLED]
    assert rig.store.submissions.get(receipt.submission_id).runs[0].verdict is None


# ------------------------------------------------------------------------------------------------- the rows themselves


def test_the_database_allows_exactly_the_moves_of_the_table(rig: Rig) -> None:
    """Law: the table of moves is data, a CHECK repeats it. Every pair is tried by plain SQL."""
    rig.accept()
    allowed = set()
    for old, new in itertools.permutations(RunState, 2):
        with rig.store._pool.statement() as connection:
            connection.execute("ALTER TABLE run DISABLE TRIGGER run_moved")
            connection.execute(
                "UPDATE run SET state = %(old)s, ended_at = CASE WHEN %(over)s THEN now() END,"
                " came_from = CASE %(old)s WHEN 'queued' THEN NULL WHEN 'launching' THEN 'queued'"
                " WHEN 'running' THEN 'launching' ELSE 'running' END",
                {"old": old.value, "over": old not in OPEN_RUNS},
            )
            connection.execute("ALTER TABLE run ENABLE TRIGGER run_moved")
            with contextlib.suppress(psycopg.errors.CheckViolation):
                connection.execute(
                    "UPDATE run SET state = %(new)s, ended_at = CASE WHEN %(over)s THEN now() END",
                    {"new": new.value, "over": new not in OPEN_RUNS},
                )
                allowed.add((old, new))
    assert allowed == MOVES


def test_a_run_is_born_queued(rig: Rig) -> None:
    receipt = rig.accept()
    for state in set(RunState) - {RunState.QUEUED}:
        with pytest.raises(psycopg.errors.CheckViolation):
            rig.store._do(
                "INSERT INTO run (submission_id, problem_version_id, person_id, gpu, state, fair_at, queued_at, cost_s,"
                " by_staff, secret_seed, ended_at) SELECT submission_id, problem_version_id, person_id, 'new',"
                " %(state)s, fair_at, queued_at, cost_s, by_staff, secret_seed, CASE WHEN %(over)s THEN queued_at END"
                " FROM run WHERE id = %(run)s",
                {"state": state.value, "over": state not in OPEN_RUNS, "run": receipt.run_ids[0]},
            )


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE verdict SET name = 'passed'",
        "UPDATE submission SET source = 'y = 2'",
        "UPDATE submission SET person_id = person_id",
        "UPDATE event SET data = '{}'",
    ],
)
def test_what_was_done_said_or_judged_is_never_changed(rig: Rig, statement: str) -> None:
    rig.accept()
    rig.score(rig.running(), WRONG)
    with pytest.raises(psycopg.errors.IntegrityConstraintViolation):
        rig.store._do(statement)


def test_a_run_has_one_verdict_whoever_writes_it(rig: Rig) -> None:
    rig.accept()
    rig.score(rig.running())
    with pytest.raises(psycopg.errors.UniqueViolation):
        rig.store._do("INSERT INTO verdict SELECT * FROM verdict")


# -------------------------------------------------------------------------------------------------------------- events


def test_an_event_waits_for_those_before_it(rig: Rig) -> None:
    """Ids are given out before the commit: a reader must not step over one that is still on its way."""
    after = rig.store.events.after(EventId(0))[-1].id
    url = rig.store._pool.url
    for end in ("COMMIT", "ROLLBACK"):
        with connect.connect(url, autocommit=False) as slow:
            slow.execute("INSERT INTO event (kind, subject, at) VALUES ('slow', 'x', now())")
            rig.store.events.audit("host", "fast", "x", now=rig.now)
            assert list(rig.store.events.after(after)) == [], "the fast one has the higher id and must wait"
            slow.execute(end)
        found = rig.store.events.after(after)
        assert [event.kind for event in found] == (["slow"] if end == "COMMIT" else []) + ["staff.fast"]
        after = found[-1].id


def test_a_reader_beside_writers_sees_every_event_once_and_in_order(rig: Rig) -> None:
    seen: list[int] = []
    done = Flag()
    people = [f"p{n}" for n in range(6)]
    for who in people:
        rig.person(who)

    def write(who: str) -> None:
        for _ in range(12):
            rig.accept(who, ("H100", "A100"))

    def read() -> None:
        while True:
            over = done.is_set()
            events = rig.store.events.after(EventId(seen[-1] if seen else 0), limit=7)
            seen.extend(event.id for event in events)
            if over and not events:
                return

    reader = Thread(target=read)
    reader.start()
    try:
        at_once([lambda who=who: write(who) for who in people])  # type: ignore[misc]
    finally:
        done.set()
        reader.join(120)
    assert seen == [row["id"] for row in rig.rows("SELECT id FROM event ORDER BY id")]


def test_no_event_tells_a_secret(rig: Rig) -> None:
    receipt = rig.accept(secret_seed="a-planted-secret")
    attempt = rig.running()
    work = rig.store.attempts.work(attempt.id)
    rig.score(attempt, dataclasses.replace(PASSED, detail={"secret_log": "a-planted-log"}))
    rig.store.submissions.cancel(receipt.submission_id, None, rig.now)
    told = json.dumps([dataclasses.asdict(event) for event in rig.store.events.after(EventId(0))], default=str)
    for secret in ("planted", work.nonce, work.secret_seed, work.key.hex(), rig.board.secret_seed):
        assert secret not in told


def test_news_wake_every_waiter(rig: Rig) -> None:
    store = rig.store
    assert store.events.wait(0.0), "the first look can't know what was missed"
    assert not store.events.wait(0.0)
    heard: list[bool] = []
    waiters = [Thread(target=lambda: heard.append(store.events.wait(60))) for _ in range(3)]
    for waiter in waiters:
        waiter.start()
    rig.accept()
    for waiter in waiters:
        waiter.join(90)
    assert True in heard
    rig.accept()
    assert store.events.wait(60), "what is said while nobody listens isn't lost"


def test_who_listens_to_a_store_that_is_closed_leaves_no_connection(database_url: str) -> None:
    store = PostgresStore(database_url)
    assert store.events.wait(0.0)
    listener = Thread(target=lambda: store.events.wait(3))
    listener.start()
    while not store.events._listener._is_listened:
        assert listener.is_alive()
        Flag().wait(0.01)
    store.close()
    listener.join(60)
    assert not listener.is_alive() and store.events._listener._connection is None


def test_a_claim_in_vain_is_no_news(rig: Rig) -> None:
    """Else the daemon, which claims whenever it is woken, would wake itself for ever."""
    assert rig.store.events.wait(0.0), "the first look can't know what was missed"
    assert rig.claim() is None
    assert not rig.store.events.wait(0.5)
    rig.accept()
    assert rig.store.events.wait(60)
    assert rig.claim() is not None
    assert rig.store.events.wait(60), "a claim that got something is"


# --------------------------------------------------------------------------------------------------------------- lease


def test_one_holds_the_lease_until_it_lets_go_or_falls_silent(rig: Rig) -> None:
    store = rig.store
    assert store.leases.hold("daemon", "one", 10, rig.now, info={"pid": 1})
    assert not store.leases.hold("daemon", "two", 10, rig.later(9.9))
    assert store.leases.hold("daemon", "one", 10, rig.now), "it beats in time"
    assert not store.leases.hold("daemon", "two", 10, rig.later(9.9))
    (line,) = store.leases.all()
    assert (line.holder, line.elected_at) == ("one", START)
    assert store.leases.hold("daemon", "two", 10, rig.later(0.1))
    assert not store.leases.hold("daemon", "one", 10, rig.now), "the old leader learns that it isn't any more"
    store.leases.release("daemon", "one")
    assert not store.leases.hold("daemon", "one", 10, rig.now), "and can't release its successor's"
    store.leases.release("daemon", "two")
    assert store.leases.hold("daemon", "one", 10, rig.now)


def test_of_many_who_reach_for_the_lease_one_gets_it(rig: Rig) -> None:
    got: list[str] = []

    def reach(who: str) -> None:
        if rig.store.leases.hold("daemon", who, 10, rig.now):
            got.append(who)

    at_once([lambda who=str(n): reach(who) for n in range(8)])  # type: ignore[misc]
    assert len(got) == 1


def test_every_write_of_an_attempt_waits_for_its_run_before_it_holds_the_attempt(rig: Rig) -> None:
    """Else two writers that take them in different orders would wait for each other until Postgres ends one."""
    acts: list[Callable[[OpenAttempt], object]] = [
        lambda one: rig.store.attempts.note_seen(one, Sighting(seen=Seen.RUNNING, node="n1"), rig.now),
        lambda one: rig.store.scores.record(one, PASSED, Ending.REPORTED, rig.now, telemetry={}),
        lambda one: rig.give_up(one),
        lambda one: rig.store.attempts.end_cancelled(one, rig.now),
    ]
    for act in acts:
        rig.accept()
        attempt = rig.launched()
        with connect.connect(rig.store._pool.url, autocommit=False) as other:
            other.execute("SELECT 1 FROM run WHERE id = %s FOR UPDATE", (attempt.run_id,))
            writer = Thread(target=act, args=(attempt,))
            writer.start()
            waiting = "SELECT 1 FROM pg_locks WHERE NOT granted AND locktype IN ('transactionid', 'tuple')"
            while not other.execute(waiting).fetchone():
                assert writer.is_alive(), "it didn't wait"
            assert other.execute("SELECT 1 FROM attempt WHERE id = %s FOR UPDATE NOWAIT", (attempt.id,)).fetchone()
            other.rollback()
        writer.join(60)
        rig.store.attempts.end_cancelled(attempt, rig.now)


# ------------------------------------------------------------------------------------------------------------- trouble


def test_a_restart_of_the_server_costs_one_clear_error_and_no_half_rows(own_postgres: Embedded) -> None:
    migrate.upgrade(own_postgres.url)
    store = PostgresStore(own_postgres.url)
    rig = Rig.on(store)
    rig.accept()
    assert store.events.wait(0)
    own_postgres.stop(immediate=True)
    for act in (rig.accept, rig.claim, store.attempts.open, lambda: store.events.after(EventId(0))):
        with pytest.raises(BackendTrouble, match=r"^database: ") as caught:
            act()
        assert "\n" not in str(caught.value)
    assert store.events.wait(0) is False
    again = Embedded.start(own_postgres.data_dir, fast=True)
    try:
        assert store.queue.waiting() == {"H100": 1}
        rig.accept()
        assert rig.claim() is not None
        assert store.events.wait(0), "it listens again"
    finally:
        store.close()
        again.stop(immediate=True)


def test_a_connection_cut_in_mid_transaction_leaves_nothing(rig: Rig) -> None:
    before = rig.everything()

    def write_and_be_cut() -> None:
        with rig.store._pool.transaction() as connection, connect.connect(rig.store._pool.url) as other:
            connection.execute("INSERT INTO event (kind, subject, at) VALUES ('half', 'x', now())")
            other.execute("SELECT pg_terminate_backend(%s, 60000)", (connection.info.backend_pid,))
            connection.execute("SELECT 1")

    with pytest.raises(BackendTrouble):
        write_and_be_cut()
    assert rig.everything() == before


def test_every_way_not_to_reach_a_database_is_one_sentence(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    base, _, name = database_url.partition("?")
    cases: list[tuple[str, type[Exception], str]] = [
        ("mysql://u:p4ss-w0rd@h/d", Misconfigured, "needs Postgres"),
        ("postgresql://u:p4ss-w0rd@h/d?nonsense=1", Misconfigured, "isn't valid"),
        ("postgresql://u:p4ss-w0rd@/d?host=/nowhere/at/all", BackendTrouble, "can't be reached"),
        ("postgresql://u:p4ss-w0rd@127.0.0.1:1/d", BackendTrouble, "can't be reached"),
        (f"{base.rpartition('/')[0]}/no_such_database?{name}", Misconfigured, "there is no database"),
        (f"postgresql://no_such_user@/x?{name}", Misconfigured, "rejects our user"),
    ]
    for url, kind, said in cases:
        with pytest.raises(kind, match=said) as caught:
            PostgresStore(url).queue.waiting()
        assert "\n" not in str(caught.value)
        assert "p4ss" not in str(caught.value)
    monkeypatch.setattr(connect, "OLDEST_SERVER", 99)
    with pytest.raises(Misconfigured, match="kbslurm needs 99 or newer"):
        PostgresStore(database_url).queue.waiting()


def test_whoever_only_uses_the_store_pays_for_no_migration_tool() -> None:
    said = "import sys, kbslurm.store.postgres, kbslurm.store.migrate; print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True, timeout=120)
    assert not {"sqlalchemy", "alembic"} & set(found.stdout.split())


def test_an_unknown_attempt_has_no_work(rig: Rig) -> None:
    with pytest.raises(NotFound):
        rig.store.attempts.work(AttemptId(99))
