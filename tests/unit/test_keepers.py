"""When to hold a GPU and when to let it go: the contract with the other people of a cluster."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kbslurm.domain.keepers import (
    FAILURES,
    LONGEST_REST_S,
    LOOK_EVERY_S,
    REST_S,
    TOLD_OFF_S,
    Facts,
    Keeper,
    KeeperEnding,
    KeeperState,
    Warm,
    beyond_s,
    check_hours,
    decided,
    idle_left_s,
    is_open,
    is_too_idle,
    kept_for_warm,
    look_is_due,
    may_start,
    new_keeper_name,
    rest_after_s,
    wanted,
    warm_starts,
)
from kbslurm.domain.run import Handle, KeeperId, KeeperName, OpenAttempt, Slot
from kbslurm.domain.warm_slots import with_keepers
from kbslurm.errors import Invalid

NOW = datetime(2026, 11, 26, 18, 0, tzinfo=UTC)  # a Thursday
WARM = Warm(max=3)
BUSY = Facts(waiting=90, run_s=30.0, came=60, held_s=3_600.0, idle_s=100.0)


def keeper(at: int = 1, state: KeeperState = KeeperState.HOLDING, **more: Any) -> Keeper:
    told: dict[str, Any] = {
        "id": KeeperId(at),
        "name": KeeperName(f"kbk-{at}"),
        "backend": "cluster",
        "gpu": "H100",
        "state": state,
        "handle": Handle(str(at)),
        "opened_at": NOW - timedelta(minutes=10),
        "life_s": WARM.life_s,
        "idle_s": WARM.idle_s,
    }
    if state in (KeeperState.HOLDING, KeeperState.DRAINING):
        told |= {"started_at": NOW - timedelta(minutes=9), "free_since": NOW - timedelta(minutes=1)}
    return Keeper(**(told | more))


# ------------------------------------------------------------------------------------------------------------ starting


@pytest.mark.parametrize(
    ("facts", "many", "said"),
    [
        (Facts(), 0, "no run waits"),
        (Facts(waiting=5), 0, "too few runs lately"),
        (Facts(waiting=5, run_s=30.0), 0, "too little work for 1 warm worker"),
        (Facts(waiting=40, run_s=30.0), 1, "enough work for 1 warm worker"),  # 1200 s against an idle end of 300 s
        (Facts(waiting=39, run_s=30.0), 0, "too little"),
        (Facts(waiting=80, run_s=30.0), 2, "enough work for 2 warm workers"),
        (Facts(waiting=900, run_s=30.0), 3, "enough work for 3 warm workers"),  # what the file allows
        (Facts(waiting=1, came=60, run_s=30.0, cold_s=60.0), 1, "enough"),  # one GPU's worth comes in all the time
        (Facts(waiting=1, came=60, run_s=30.0, cold_s=2.0), 0, "too little"),  # they start at once by themselves
        (Facts(waiting=1, came=240, run_s=30.0, cold_s=2.0), 3, "enough"),  # so much that a keeper is busy all the same
        (Facts(waiting=40, run_s=30.0, held_s=900.0, idle_s=250.0), 0, "too little"),  # it would be too much in a day
        (Facts(waiting=1, came=40, run_s=30.0, cold_s=60.0), 0, "too little"),
        (Facts(sent=40, run_s=30.0), 0, "too little"),  # Slurm has these already
        (Facts(sent=1, came=60, run_s=30.0, cold_s=90.0), 1, "enough"),  # but they show that runs wait
        (Facts(came=600, run_s=30.0), 0, "no run waits"),  # never ahead of need
    ],
)
def test_a_keeper_starts_only_for_work_that_history_says_it_will_do(facts: Facts, many: int, said: str) -> None:
    found, why = wanted(WARM, facts, NOW)
    assert found == many
    assert said in why


def test_a_short_idle_time_makes_less_work_worth_it() -> None:
    facts = Facts(waiting=10, run_s=30.0)
    assert wanted(Warm(max=3, idle_s=300.0), facts, NOW)[0] == 0
    assert wanted(Warm(max=3, idle_s=60.0), facts, NOW)[0] == 1


def test_what_is_there_counts_and_so_does_the_room() -> None:
    assert decided(WARM, BUSY, [], 9, NOW).open == 3
    assert decided(WARM, BUSY, [keeper()], 9, NOW).open == 2
    assert decided(WARM, BUSY, [keeper(state=KeeperState.INTENT, opened_at=NOW)], 9, NOW).open == 2
    assert decided(WARM, BUSY, [], 1, NOW).open == 1
    leaving = keeper(state=KeeperState.DRAINING, drain_at=NOW)
    assert decided(WARM, BUSY, [leaving], 9, NOW).open == 2, "it holds its GPU until its run is over"
    found = decided(WARM, BUSY, [], 0, NOW)
    assert (found.open, found.spare) == (0, 3), "slots are left free for them as runs end"
    assert decided(WARM, BUSY, [], 2, NOW).spare == 1
    assert decided(WARM, Facts(run_s=30.0), [], 0, NOW).spare == 0, "without work none is wanted"


def test_outside_of_its_hours_none_is_started_and_none_is_ended_for_that() -> None:
    warm = Warm(max=3, hours=("sat,sun 08:00-24:00",))
    found = decided(warm, BUSY, [keeper(busy=True)], 9, NOW)
    assert found.open == 0
    assert "hours" in found.why
    assert not found.drain


def test_more_than_a_fifth_idle_in_a_day_and_no_new_one_is_started() -> None:
    lazy = Facts(waiting=900, run_s=30.0, held_s=3_600.0, idle_s=721.0)
    assert is_too_idle(WARM, lazy)
    many, why = wanted(WARM, lazy, NOW)
    assert many == 0
    assert "idle for 20% of what they held" in why
    assert may_start(WARM, lazy, 0, 1, NOW) == why, "a host can't lift it either"
    assert not is_too_idle(WARM, Facts(held_s=3_600.0, idle_s=720.0))
    assert not is_too_idle(WARM, Facts(held_s=310.0, idle_s=300.0)), "one idle end is always allowed"


@pytest.mark.parametrize("ending", [e for e in KeeperEnding if e not in ("idle", "life", "drained")])
def test_after_one_had_to_go_none_is_started_for_a_while(ending: KeeperEnding) -> None:
    rest_s = TOLD_OFF_S if ending is KeeperEnding.CANCELLED else REST_S

    def at(ago_s: float) -> Facts:
        return Facts(waiting=900, run_s=30.0, left_as=ending, left_at=NOW - timedelta(seconds=ago_s))

    assert wanted(WARM, at(rest_s - 1), NOW)[0] == 0
    assert wanted(WARM, at(rest_s - 1), NOW)[1]
    assert wanted(WARM, at(rest_s), NOW)[0] == 3


def test_those_that_fail_at_once_are_tried_again_ever_later_up_to_a_bound() -> None:
    rests_s = [rest_after_s(KeeperEnding.FAILED, failures) for failures in range(1, 13)]
    assert rests_s[:4] == [REST_S, 2 * REST_S, 4 * REST_S, 8 * REST_S]
    assert rests_s[-1] == LONGEST_REST_S == max(rests_s)
    assert {rest_after_s(ending, 9) for ending in KeeperEnding if ending not in FAILURES} == {REST_S, TOLD_OFF_S}

    def at(ago_s: float, failures: int) -> tuple[int, str]:
        left_at = NOW - timedelta(seconds=ago_s)
        failed = Facts(
            waiting=900,
            run_s=30.0,
            left_as=KeeperEnding.FAILED,
            left_at=left_at,
            left_why="Slurm: FAILED (NonZeroExitCode)",
            failures=failures,
        )
        return wanted(WARM, failed, NOW)

    many, why = at(1_000.0, 3)
    assert many == 0
    assert why == (
        "warm workers failed 3 times in a row before they served a run (Slurm: FAILED (NonZeroExitCode)): the next one"
        f" is tried at {NOW + timedelta(seconds=200):%H:%M} UTC, or by kbslurm warm start"
    )
    assert at(1_200.0, 3)[0] == 3
    assert at(REST_S, 1)[0] == 3


def test_what_a_host_may_start_by_hand() -> None:
    assert may_start(WARM, Facts(), 0, 3, NOW) is None
    assert "allows 3 at a time, and there are 2" in (may_start(WARM, Facts(), 2, 2, NOW) or "")
    assert "allows none" in (may_start(None, Facts(), 0, 1, NOW) or "")
    assert "hours" in (may_start(Warm(max=3, hours=("01:00-02:00",)), Facts(), 0, 1, NOW) or "")


# ---------------------------------------------------------------------------------------------------------- letting go


def test_one_without_work_goes_after_its_idle_time() -> None:
    for idle_s, gone in ((299.0, False), (300.0, True)):
        one = keeper(free_since=NOW - timedelta(seconds=idle_s))
        found = decided(WARM, Facts(held_s=90_000.0, idle_s=100.0), [one], 9, NOW)
        assert [ending for _, ending, _ in found.drain] == ([KeeperEnding.IDLE] if gone else []), idle_s


def test_one_with_work_or_about_to_get_some_stays() -> None:
    since = NOW - timedelta(hours=1)
    assert not decided(WARM, Facts(), [keeper(busy=True, free_since=since)], 9, NOW).drain
    assert not decided(WARM, Facts(waiting=1), [keeper(free_since=since)], 9, NOW).drain


def test_near_the_days_bound_idle_ones_go_sooner() -> None:
    one = keeper(free_since=NOW - timedelta(seconds=20))
    assert not decided(WARM, Facts(held_s=10_000.0, idle_s=1_000.0), [one], 9, NOW).drain
    found = decided(WARM, Facts(held_s=10_000.0, idle_s=1_800.0), [one], 9, NOW)
    assert [ending for _, ending, _ in found.drain] == [KeeperEnding.IDLE]
    assert "today's idle time is used up" in found.drain[0][2]
    fresh = keeper(free_since=NOW - timedelta(seconds=5))
    assert not decided(WARM, Facts(held_s=10_000.0, idle_s=1_800.0), [fresh], 9, NOW).drain, "it is between two runs"


def test_what_may_still_be_idle_keeps_the_share_below_the_bound() -> None:
    facts = Facts(held_s=10_000.0, idle_s=500.0)
    more_s = idle_left_s(WARM, facts)
    assert (facts.idle_s + more_s) / (facts.held_s + more_s) == pytest.approx(0.18)
    assert idle_left_s(WARM, Facts()) == pytest.approx(270.0), "the first of a day"


@pytest.mark.parametrize(("others", "goes"), [("yes", True), ("unknown", True), ("no", False), ("", False)])
def test_it_goes_when_others_wait_and_unknown_means_that_they_do(others: str, goes: bool) -> None:
    for busy in (True, False):
        found = decided(WARM, BUSY, [keeper(busy=busy, others=others)], 9, NOW)
        assert [ending for _, ending, _ in found.drain] == ([KeeperEnding.GAVE_BACK] if goes else [])
    ours = Warm(max=3, give_back=False)
    assert not decided(ours, BUSY, [keeper(others=others)], 9, NOW).drain


def test_more_than_the_file_allows_now_are_let_go() -> None:
    found = decided(Warm(max=1), BUSY, [keeper(1, busy=True), keeper(2, busy=True)], 9, NOW)
    assert [one.id for one, _, _ in found.drain] == [2]
    assert found.open == 0


def test_one_that_still_waits_goes_when_its_work_is_done() -> None:
    old = keeper(state=KeeperState.SUBMITTED, opened_at=NOW - timedelta(minutes=6))
    assert [e for _, e, _ in decided(WARM, Facts(run_s=30.0), [old], 9, NOW).drain] == [KeeperEnding.DRAINED]
    assert not decided(WARM, Facts(run_s=30.0, waiting=1), [old], 9, NOW).drain
    asked = keeper(state=KeeperState.SUBMITTED, opened_at=NOW - timedelta(hours=1), asked_by="grace")
    assert not decided(WARM, Facts(run_s=30.0), [asked], 9, NOW).drain, "a host said that work is coming"


def test_the_partition_is_looked_at_once_in_five_minutes_and_only_while_holding() -> None:
    def began(ago_s: float, **more: Any) -> Keeper:
        return keeper(started_at=NOW - timedelta(seconds=ago_s), **more)

    assert not look_is_due([], NOW)
    assert not look_is_due([keeper(state=KeeperState.SUBMITTED)], NOW)
    assert not look_is_due([began(LOOK_EVERY_S - 1)], NOW)
    assert look_is_due([began(LOOK_EVERY_S)], NOW)
    assert not look_is_due([began(9_000, looked_at=NOW - timedelta(seconds=LOOK_EVERY_S - 1))], NOW)
    just_now = {"looked_at": NOW - timedelta(seconds=10)}
    assert not look_is_due([began(9_000, **just_now), began(9_000)], NOW), "one look covers them all"
    assert look_is_due([began(9_000), began(10)], NOW), "a new one puts off none"
    assert look_is_due([began(9_000, looked_at=NOW - timedelta(seconds=LOOK_EVERY_S))], NOW)


# ------------------------------------------------------------------------------------------------------- cold or warm


def test_a_keeper_takes_what_is_over_before_it_is() -> None:
    assert keeper().room_s(NOW) == WARM.life_s - 9 * 60 - beyond_s(60.0)
    assert keeper(start_s=600.0).room_s(NOW) == keeper().room_s(NOW) - 540, "where a start may take ten minutes"
    assert keeper(drain_at=NOW).room_s(NOW) == 0
    assert keeper(state=KeeperState.SUBMITTED).room_s(NOW) == 0
    assert keeper(started_at=NOW - timedelta(seconds=WARM.life_s - 30)).room_s(NOW) == 0


def test_a_run_goes_where_it_is_predicted_to_start_first() -> None:
    facts = Facts(waiting=10, run_s=30.0)
    free, busy = keeper(1), keeper(2, busy=True)
    assert warm_starts([free], facts, NOW, within_s=70.0) == pytest.approx([1.0, 32.0, 63.0])
    assert warm_starts([free, busy], facts, NOW, within_s=40.0) == pytest.approx([1.0, 16.0, 32.0])
    assert kept_for_warm([free], facts, 70.0, NOW) == 3, "the others start earlier by themselves"
    assert kept_for_warm([free], facts, 0.5, NOW) == 0, "a cluster that starts at once needs no keeper"
    assert kept_for_warm([busy], facts, None, NOW) == 0, "it isn't known, so nothing is held back"
    assert kept_for_warm([free, busy], facts, None, NOW) == 1
    assert kept_for_warm([free], Facts(waiting=2, run_s=30.0), 9_000.0, NOW) == 2


def test_a_keeper_that_is_being_started_counts_from_when_it_starts() -> None:
    facts = Facts(waiting=10, run_s=30.0)
    soon = keeper(state=KeeperState.SUBMITTED, expected_at=NOW + timedelta(seconds=60))
    assert warm_starts([soon], facts, NOW, within_s=100.0) == pytest.approx([61.0, 92.0])
    assert warm_starts([keeper(state=KeeperState.SUBMITTED)], facts, NOW, within_s=9_000.0) == []
    assert warm_starts([keeper(drain_at=NOW)], facts, NOW, within_s=9_000.0) == []


def test_a_keeper_near_its_end_takes_no_more_than_it_can_finish() -> None:
    facts = Facts(waiting=10, run_s=30.0)
    ends_soon = keeper(started_at=NOW - timedelta(seconds=WARM.life_s - beyond_s(60.0) - 65))
    assert warm_starts([ends_soon], facts, NOW, within_s=9_000.0) == pytest.approx([1.0, 32.0])


def test_keepers_slots_come_first_and_leave_the_others_the_rest() -> None:
    cold = [Slot(backend="cluster", gpu="H100", free=2), Slot(backend="cluster", gpu="A100", free=1)]
    spot = ("cluster", "H100")
    found = with_keepers(
        cold, [keeper(1), keeper(2, busy=True)], {spot: Facts(waiting=9, run_s=30.0)}, {spot: 20.0}, NOW
    )
    assert [(slot.way, slot.keeper, slot.skip, slot.gpu) for slot in found] == [
        ("warm", 1, 0, "H100"),
        ("cold", None, 0, "H100"),
        ("any", None, 2, "H100"),
        ("any", None, 0, "A100"),
    ]
    assert "a warm worker was free there, and a job of its own would start in about 20 s" in found[0].why
    assert found[0].fits_s == keeper().room_s(NOW)
    assert with_keepers(cold, [], {}, {}, NOW) == cold


# --------------------------------------------------------------------------------------------------------------- hours


@pytest.mark.parametrize(
    ("period", "at", "open_"),
    [
        ("18:00-24:00", "2026-11-26T18:00+00:00", True),
        ("18:00-24:00", "2026-11-26T17:59+00:00", False),
        ("18:00-24:00", "2026-11-26T23:59+00:00", True),
        ("22:00-06:00", "2026-11-26T05:59+00:00", True),
        ("22:00-06:00", "2026-11-26T06:00+00:00", False),
        ("18:00-20:00 Europe/Berlin", "2026-11-26T17:30+00:00", True),
        ("18:00-20:00 Europe/Berlin", "2026-11-26T19:30+00:00", False),
        ("sat,sun 08:00-24:00", "2026-11-28T08:00+00:00", True),
        ("sat,sun 08:00-24:00", "2026-11-27T08:00+00:00", False),
        ("mon-fri 08:00-20:00", "2026-11-27T08:00+00:00", True),
        ("fri-mon 08:00-20:00", "2026-11-29T08:00+00:00", True),
        ("fri-mon 08:00-20:00", "2026-12-01T08:00+00:00", False),
        ("fri 22:00-04:00", "2026-11-28T03:00+00:00", True),  # Friday's night ends on Saturday
        ("fri 22:00-04:00", "2026-11-27T03:00+00:00", False),
    ],
)
def test_hours(period: str, at: str, open_: bool) -> None:
    check_hours(period)
    assert is_open([period], datetime.fromisoformat(at)) is open_


def test_without_hours_any_time_is_right() -> None:
    assert is_open([], NOW)
    for wrong in ("always", "18-20", "18:00", "24:00-25:00", "18:60-19:00"):
        with pytest.raises(Invalid):
            check_hours(wrong)


def test_a_keepers_name_is_never_an_attempts() -> None:
    assert new_keeper_name().startswith("kbk-")
    assert not new_keeper_name().startswith("kb-")
    assert new_keeper_name() != new_keeper_name()
    assert OpenAttempt.__dataclass_fields__["keeper"].default is None
