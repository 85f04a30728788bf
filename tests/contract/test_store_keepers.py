"""Keepers in rows: their life, which runs go into them, one at a time, and what they held."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import pytest

from kbslurm.domain.keepers import Facts, Keeper, KeeperEnding, KeeperSighting, KeeperState, Warm, decided
from kbslurm.domain.measure import CALIBRATION
from kbslurm.domain.run import Ending, Handle, InKeeper, OpenAttempt, Seen, Sighting, Slot
from kbslurm.domain.warm_slots import with_keepers
from kbslurm.errors import Misconfigured
from kbslurm.store.postgres import PostgresStore
from tests.contract.store_rig import HELLO, Rig, at_once

WARM = Warm(max=2)
SPOT = ("cluster", "H100")


@pytest.fixture
def rig(database_url: str) -> Iterator[Rig]:
    store = PostgresStore(database_url)
    yield Rig.on(store)
    store.close()


def ordered(rig: Rig, *, most: int = 2, by: str | None = None) -> Keeper | None:
    return rig.store.keepers.order(
        *SPOT, life_s=WARM.life_s, idle_s=WARM.idle_s, most=most, why="40 runs wait", now=rig.now, by=by
    )


def holding(rig: Rig, node: str = "n1") -> Keeper:
    one = ordered(rig)
    assert one is not None
    assert rig.store.keepers.note_handle(one, Handle("71"), rig.now)
    assert rig.store.keepers.note_seen(one, KeeperSighting(seen=Seen.RUNNING, node=node, started_at=rig.now), rig.now)
    return again(rig, one)


def again(rig: Rig, keeper: Keeper) -> Keeper:
    found = rig.store.keepers.get(keeper.id)
    assert found is not None
    return found


def warm_slot(rig: Rig, keeper: Keeper) -> Slot:
    found = with_keepers([], [keeper], {SPOT: Facts()}, {}, rig.now)
    assert found, "it takes no run"
    return found[0]


def into(rig: Rig, keeper: Keeper) -> OpenAttempt:
    found = rig.store.queue.claim([warm_slot(rig, keeper)], rig.now)
    assert found is not None
    return found


def ran(rig: Rig, attempt: OpenAttempt, seconds: float) -> None:
    """From now on, for so long, with a report at its end."""
    rig.store.attempts.note_handle(attempt, Handle("71.0"), rig.now + timedelta(hours=1), rig.now)
    rig.store.attempts.note_seen(attempt, Sighting(seen=Seen.RUNNING, node="n1", started_at=rig.now), rig.now)
    rig.later(seconds)
    assert rig.score(attempt)


def events(rig: Rig, keeper: Keeper) -> list[str]:
    return [row["kind"] for row in rig.rows(f"SELECT kind FROM event WHERE subject = 'keeper:{keeper.id}' ORDER BY id")]


# ------------------------------------------------------------------------------------------------------------- its life


def test_the_intent_is_there_before_anything_is_sent(rig: Rig) -> None:
    one = ordered(rig)
    assert one is not None
    assert (one.state, one.handle, one.why) == (KeeperState.INTENT, None, "40 runs wait")
    assert rig.store.keepers.open() == [one]
    assert events(rig, one) == ["keeper.ordered"]


def test_never_more_than_allowed_however_many_ask_at_once(rig: Rig) -> None:
    at_once([lambda: ordered(rig)] * 8)
    assert len(rig.store.keepers.open()) == 2
    first = rig.store.keepers.open()[0]
    assert rig.store.keepers.end(first, KeeperEnding.REFUSED, "no such account", rig.now)
    assert ordered(rig) is not None, "one that was refused takes no place"
    assert again(rig, first).state is KeeperState.REFUSED


def test_from_intent_to_its_end_each_step_is_an_event(rig: Rig) -> None:
    one = holding(rig)
    assert (one.state, one.node, one.handle) == (KeeperState.HOLDING, "n1", "71")
    assert one.started_at == rig.now
    assert rig.store.keepers.drain(one.id, KeeperEnding.GAVE_BACK, "others wait", rig.later(60))
    assert not rig.store.keepers.drain(one.id, KeeperEnding.IDLE, "again", rig.now), "the first reason stays"
    assert again(rig, one).state is KeeperState.DRAINING
    rig.store.keepers.note_seen(one, KeeperSighting(seen=Seen.RUNNING, node="n1"), rig.now)
    assert again(rig, one).state is KeeperState.DRAINING, "what it still does doesn't call it back"
    assert rig.store.keepers.end(one, KeeperEnding.CANCELLED, "it ended", rig.later(5))
    assert not rig.store.keepers.end(one, KeeperEnding.FAILED, "again", rig.now)
    assert rig.store.keepers.open() == []
    assert events(rig, one) == [
        "keeper.ordered",
        "keeper.submitted",
        "keeper.holding",
        "keeper.draining",
        "keeper.ended",
    ]
    (row,) = rig.rows("SELECT ending, reason FROM keeper")
    assert row == {"ending": "gave_back", "reason": "it ended"}, "it ended because we let it go"


def test_two_clean_sweeps_are_counted_and_a_sighting_starts_afresh(rig: Rig) -> None:
    one = ordered(rig)
    assert one is not None
    assert rig.store.keepers.note_ambiguous(one, "no answer", rig.now)
    assert again(rig, one).state is KeeperState.AMBIGUOUS
    assert rig.store.keepers.note_clean_sweep(one, rig.now)
    assert again(rig, one).clean_sweeps == 1
    assert rig.store.keepers.note_resend(one, rig.now)
    assert (again(rig, one).state, again(rig, one).clean_sweeps) == (KeeperState.INTENT, 0)
    expected = rig.now + timedelta(minutes=3)
    rig.store.keepers.note_seen(
        one, KeeperSighting(seen=Seen.WAITING, handle=Handle("9"), expected_at=expected), rig.now
    )
    found = again(rig, one)
    assert (found.state, found.handle, found.expected_at) == (KeeperState.SUBMITTED, "9", expected)
    assert not rig.store.keepers.note_resend(found, rig.now), "it was sent"


def test_what_a_host_asks_for_is_taken_up_once(rig: Rig) -> None:
    one = ordered(rig, by="grace")
    assert one is not None
    assert (one.state, one.asked_by) == (KeeperState.ASKED, "grace")
    assert rig.store.keepers.accept(one, rig.now)
    assert not rig.store.keepers.accept(one, rig.now)
    assert again(rig, one).state is KeeperState.INTENT


@pytest.mark.parametrize(("others", "said"), [(True, "yes"), (False, "no"), (None, "unknown")])
def test_a_look_counts_for_all_that_hold_there(rig: Rig, others: bool | None, said: str) -> None:
    one, waits = holding(rig), ordered(rig)
    assert waits is not None
    rig.store.keepers.note_look(*SPOT, others, "squeue", rig.later(9))
    assert (again(rig, one).others, again(rig, one).looked_at) == (said, rig.now)
    assert again(rig, waits).looked_at is None


# ---------------------------------------------------------------------------------------------------------- who goes in


def test_a_run_goes_into_a_free_keeper_and_says_so(rig: Rig) -> None:
    rig.accept()
    one = holding(rig)
    attempt = into(rig, one)
    assert attempt.keeper == InKeeper(id=one.id, name=one.name, job=Handle("71"))
    assert attempt.backend == "cluster"
    assert rig.store.attempts.open() == [attempt]
    assert rig.store.attempts.work(attempt.id).attempt.keeper == attempt.keeper
    (row,) = rig.rows("SELECT why_here FROM attempt")
    assert row["why_here"] == "a warm worker was free there on n1"


def test_a_keeper_has_one_run_at_a_time_whoever_claims(rig: Rig) -> None:
    for who in ("ada", "bob", "cleo", "dan"):
        rig.accept(who)
    one = holding(rig)
    slot, found = warm_slot(rig, one), []
    at_once([lambda: found.append(rig.store.queue.claim([slot], rig.now))] * 6)
    assert sum(attempt is not None for attempt in found) == 1
    assert again(rig, one).busy
    assert with_keepers([], [again(rig, one)], {}, {}, rig.now) == []
    ran(rig, next(a for a in found if a is not None), 10)
    assert not again(rig, one).busy
    assert into(rig, again(rig, one)).keeper is not None


def test_one_that_goes_gets_no_run_even_if_the_slot_was_offered_before(rig: Rig) -> None:
    rig.accept()
    one = holding(rig)
    slot = warm_slot(rig, one)
    rig.store.keepers.drain(one.id, KeeperEnding.GAVE_BACK, "others wait", rig.now)
    assert rig.store.queue.claim([slot], rig.now) is None


def test_a_run_longer_than_its_life_waits_for_another_way(rig: Rig) -> None:
    rig.accept(cost_s=600.0)
    one = holding(rig)
    slot = replace(warm_slot(rig, one), fits_s=599.0)
    assert rig.store.queue.claim([slot], rig.now) is None
    assert rig.store.queue.claim([replace(slot, fits_s=600.0)], rig.now) is not None


def test_what_must_be_a_job_of_its_own_never_goes_in(rig: Rig) -> None:
    one = holding(rig)
    rig.accept("ada", via=CALIBRATION)
    rig.accept("bob")
    rig.store._do("UPDATE run SET cold = true")
    rig.accept("cleo")
    rig.store._do("UPDATE leaderboard SET cold = true")
    assert rig.store.queue.claim([warm_slot(rig, one)], rig.now) is None
    assert rig.store.keepers.facts(*SPOT, rig.now).waiting == 0
    rig.store._do("UPDATE leaderboard SET cold = false")
    assert rig.store.keepers.facts(*SPOT, rig.now).waiting == 1
    only_cold = Slot(backend="cluster", gpu="H100", free=9, way="cold", fits_s=9_000.0)
    owners = [rig.store.queue.claim([only_cold], rig.now) for _ in range(3)]
    assert [attempt is not None for attempt in owners] == [True, True, False], "the third may go into a keeper"
    into(rig, one)


def test_several_gpus_are_a_job_of_their_own(rig: Rig) -> None:
    cases = tuple({**case, "world_size": 2} for case in HELLO.tests)
    problem = replace(HELLO, name="wide", tests=cases, benchmarks=cases, multi_gpu=True)
    board = rig.store.boards.add("wide", problem, gpus=("H100",), confirm=False, now=rig.now)
    rig.accept(board_id=board.id, problem_version_id=board.problem_version_id)
    one = holding(rig)
    assert rig.store.queue.claim([warm_slot(rig, one)], rig.now) is None
    assert rig.store.queue.claim([Slot(backend="cluster", gpu="H100", free=1)], rig.now) is not None


def test_a_run_that_was_in_a_keeper_goes_the_other_way_next_time(rig: Rig) -> None:
    rig.accept()
    one = holding(rig)
    lost = into(rig, one)
    assert rig.give_up(lost, Ending.KEEPER_LEFT) == "queued"
    assert rig.store.queue.claim([warm_slot(rig, again(rig, one))], rig.now) is None
    cold = rig.store.queue.claim([Slot(backend="cluster", gpu="H100", free=1)], rig.now)
    assert cold is not None
    assert cold.keeper is None


def failed(rig: Rig, who: str, node: str, keeper: Keeper | None = None) -> None:
    """A run of this person's that ended on this node without a report, in this keeper or by itself."""
    rig.accept(who)
    slot = Slot(backend="cluster", gpu="H100", free=1) if keeper is None else warm_slot(rig, again(rig, keeper))
    attempt = rig.store.queue.claim([slot], rig.now)
    assert attempt is not None
    rig.store.attempts.note_handle(attempt, Handle("9"), rig.now + timedelta(hours=1), rig.now)
    rig.store.attempts.note_seen(attempt, Sighting(seen=Seen.RUNNING, node=node, started_at=rig.now), rig.now)
    rig.store.attempts.give_up(attempt, Ending.NO_REPORT, "it left no report", rig.later(1))


def test_a_run_that_failed_on_a_node_is_not_tried_in_a_keeper_there(rig: Rig) -> None:
    failed(rig, "ada", "n1")
    one = holding(rig)
    assert rig.store.queue.claim([warm_slot(rig, one)], rig.now) is None
    assert rig.store.keepers.facts(*SPOT, rig.now).waiting == 0
    assert rig.store.queue.claim([Slot(backend="cluster", gpu="H100", free=1)], rig.now) is not None


def test_a_keeper_on_a_node_that_is_left_out_gets_no_run_and_goes(rig: Rig) -> None:
    """It would be free first each time, and take everybody's first try."""
    one, other = holding(rig), holding(rig, "n2")
    for who in ("ada", "bob", "cleo"):
        assert rig.store.keepers.facts(*SPOT, rig.now).shunned == ()
        failed(rig, who, "n1", one)
    rig.accept("dan")
    assert rig.store.keepers.facts(*SPOT, rig.now).shunned == ("n1",)
    found = decided(WARM, rig.store.keepers.facts(*SPOT, rig.now), rig.store.keepers.open(), 0, rig.now)
    assert [(keeper.id, ending) for keeper, ending, _ in found.drain] == [(one.id, KeeperEnding.UNFIT)]
    assert rig.store.queue.claim([warm_slot(rig, again(rig, one))], rig.now) is None
    assert rig.store.queue.claim([warm_slot(rig, other)], rig.now) is not None


def test_the_first_in_the_queue_wait_for_keepers_and_the_rest_go(rig: Rig) -> None:
    receipts = []
    for who in ("ada", "bob", "cleo", "dan"):
        receipts.append(rig.accept(who))
        rig.later(1)
    rest = Slot(backend="cluster", gpu="H100", free=9, skip=2)
    claimed = [rig.store.queue.claim([rest], rig.now) for _ in range(3)]
    assert [a.run_id if a else None for a in claimed] == [receipts[2].run_ids[0], receipts[3].run_ids[0], None]
    one = holding(rig)
    assert into(rig, one).run_id == receipts[0].run_ids[0]


# ----------------------------------------------------------------------------------------------------- what it came to


def test_held_used_and_idle_are_told_apart(rig: Rig) -> None:
    began = rig.now
    one = holding(rig)
    rig.accept()
    rig.later(10)
    ran(rig, into(rig, one), 30)
    rig.later(20)
    (held,) = rig.store.keepers.held(began, rig.now, rig.now)
    assert (held.backend, held.gpu, held.keepers, held.open, held.runs) == ("cluster", "H100", 1, 1, 1)
    assert (held.held_s, held.used_s, held.idle_s) == (60.0, 30.0, 30.0)
    found = again(rig, one)
    assert (found.served, found.idle_for_s(rig.now)) == (1, 20.0)
    rig.store.keepers.end(one, KeeperEnding.IDLE, "", rig.later(40))
    rig.later(3_600)
    (later,) = rig.store.keepers.held(began, rig.now, rig.now)
    assert (later.held_s, later.used_s, later.open) == (100.0, 30.0, 0)
    (half,) = rig.store.keepers.held(began + timedelta(seconds=25), began + timedelta(seconds=50), rig.now)
    assert (half.held_s, half.used_s) == (25.0, 15.0), "only what was within the time"
    assert rig.store.keepers.held(rig.now - timedelta(seconds=5), rig.now, rig.now) == []


def test_the_facts_are_what_history_says(rig: Rig) -> None:
    assert rig.store.keepers.facts(*SPOT, rig.now) == Facts()
    one = holding(rig)
    for seconds in (10, 20, 30):
        rig.accept()
        ran(rig, into(rig, again(rig, one)), seconds)
    rig.accept("bob")
    rig.accept("cleo")
    waits = rig.store.queue.claim([Slot(backend="cluster", gpu="H100", free=1)], rig.now)
    assert waits is not None
    found = rig.store.keepers.facts(*SPOT, rig.now)
    assert (found.waiting, found.sent, found.came) == (1, 1, 5)
    assert found.run_s == pytest.approx(20.0)
    assert (found.held_s, found.idle_s, found.cold_s) == (60.0, 0.0, None)
    rig.store.attempts.note_handle(waits, Handle("9"), rig.now + timedelta(hours=1), rig.now)
    rig.later(40)
    rig.store.attempts.note_seen(waits, Sighting(seen=Seen.RUNNING, node="n2", started_at=rig.now), rig.now)
    found = rig.store.keepers.facts(*SPOT, rig.now)
    assert (found.sent, found.cold_s) == (0, 40.0)
    rig.store.keepers.drain(one.id, KeeperEnding.GAVE_BACK, "others wait", rig.now)
    found = rig.store.keepers.facts(*SPOT, rig.now)
    assert (found.left_as, found.left_at) == (KeeperEnding.GAVE_BACK, rig.now)
    assert rig.store.keepers.facts("elsewhere", "H100", rig.now).left_as is None


def test_failures_in_a_row_end_with_a_run_that_was_served_or_a_host_who_asks_for_one(rig: Rig) -> None:
    def fails(ending: KeeperEnding = KeeperEnding.FAILED, by: str | None = None) -> int:
        one = ordered(rig, by=by)
        assert one is not None
        if by is not None:
            rig.store.keepers.accept(one, rig.now)
        rig.store.keepers.end(one, ending, "no such image", rig.later(300))
        return rig.store.keepers.facts(*SPOT, rig.now).failures

    assert [fails(), fails(KeeperEnding.UNFIT), fails(KeeperEnding.REFUSED)] == [1, 2, 3]
    assert rig.store.keepers.facts(*SPOT, rig.now).left_why == "no such image"
    assert fails(KeeperEnding.CANCELLED) == 3, "it says nothing of whether the next one would work"
    assert fails(by="host") == 1, "a host asked for it: counted anew"
    assert fails() == 2
    one = holding(rig)
    assert rig.store.keepers.facts(*SPOT, rig.now).failures == 2, "it hasn't shown anything yet"
    rig.accept()
    ran(rig, into(rig, one), 5)
    assert rig.store.keepers.facts(*SPOT, rig.now).failures == 0
    rig.store.keepers.end(again(rig, one), KeeperEnding.FAILED, "it served, and then failed", rig.later(5))
    assert rig.store.keepers.facts(*SPOT, rig.now).failures == 0
    both = [ordered(rig), ordered(rig)]
    for each in both:
        assert each is not None
        rig.store.keepers.end(each, KeeperEnding.FAILED, "no such image", rig.now)
    assert rig.store.keepers.facts(*SPOT, rig.now).failures == 1, "two of one order are one try"
    assert rig.store.keepers.facts("elsewhere", "H100", rig.now).failures == 0


def test_what_was_submitted_to_be_cancelled_or_goes_elsewhere_is_no_work_to_come(rig: Rig) -> None:
    """Nobody gets GPUs held by submissions that never run."""
    waits = rig.accept("bob")
    for _ in range(20):
        rig.store.submissions.cancel(rig.accept("mallory").submission_id, rig.person("mallory"), rig.now)
    assert (rig.store.keepers.facts(*SPOT, rig.now).waiting, rig.store.keepers.facts(*SPOT, rig.now).came) == (1, 1)
    rig.rows(f"UPDATE run SET pinned = 'elsewhere' WHERE submission_id = {waits.submission_id} RETURNING id")
    assert (rig.store.keepers.facts(*SPOT, rig.now).waiting, rig.store.keepers.facts(*SPOT, rig.now).came) == (0, 0)


def test_without_the_migration_nobody_starts(rig: Rig) -> None:
    from kbslurm.store import migrate

    migrate.downgrade(rig.store.url, "0022")
    with pytest.raises(Misconfigured, match="is from an older version"):
        migrate.ensure_current(rig.store.url)
