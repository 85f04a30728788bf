"""Home, and places for overflow: the queue drains while home is down, comes back when it is, and ends exactly once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from kbslurm.api import full_submission
from kbslurm.daemon.clock import WallClock
from kbslurm.daemon.lane import Foreseen
from kbslurm.daemon.loop import LEASE, Daemon
from kbslurm.domain.breaker import Breaker, State
from kbslurm.domain.intake import Offer
from kbslurm.domain.manifest import time_limit_s
from kbslurm.domain.placement import Backlog, Budget, OtherClass, Overflow, PlaceRole, Rules, month_named, month_of
from kbslurm.domain.run import AttemptState, Handle, OpenAttempt, Slot
from kbslurm.domain.why import sentences
from kbslurm.errors import BackendRefused, BackendTrouble, Invalid
from kbslurm.flow.cancel import cancel
from kbslurm.flow.collect import AttemptNotes, collect
from kbslurm.flow.launch import launch
from kbslurm.flow.place import Place
from kbslurm.flow.queue import free_slots
from kbslurm.flow.submit import accept
from kbslurm.ports import Clock, JobSpec
from kbslurm.store.postgres import PostgresStore
from tests.chaos.history import check
from tests.flow.puppet import ABSENT, WAITING, Puppet, ended, sealed_report
from tests.flow.stage import ADD, PROBLEM, QUICK, START, HandClock, Stage, running

WHEN_DOWN = Rules(overflow=Overflow(when="when_down"))
WAIT_OVER = Rules(overflow=Overflow(when="when_wait_over", after_s=600.0))


class Worker(Puppet):
    """A place that runs at once what it takes. `down`: nothing is taken or answered; `queues`: taken, not started."""

    def __init__(self, store: PostgresStore, name: str, slots: int = 2) -> None:
        super().__init__(name=name, slots={"A100": slots}, default=ended())
        self.store, self.down, self.queues = store, False, False
        self.unclear = False

    def submit(self, job: JobSpec) -> Handle:
        if self.down and self.unclear:
            raise BackendTrouble(self.name, "the controller doesn't answer")
        if self.down:
            raise BackendRefused(self.name, "the controller doesn't answer", permanent=False, away=True)
        handle = super().submit(job)
        (attempt,) = [a for a in self.store.attempts.open() if a.name == job.name]
        if self.queues:
            self.sightings[job.name] = WAITING
        else:
            self.reports[job.name] = sealed_report(self.store.attempts.work(attempt.id))
        return handle

    def cancel(self, attempt: OpenAttempt) -> None:
        super().cancel(attempt)
        if self.sightings.get(attempt.name) == WAITING:
            self.sightings[attempt.name] = ended()

    def begin(self) -> None:
        """Let all that waits here run."""
        self.queues = False
        for attempt in self.store.attempts.open():
            if self.sightings.get(attempt.name) == WAITING:
                self.reports[attempt.name] = sealed_report(self.store.attempts.work(attempt.id))
                del self.sightings[attempt.name]

    def _called(self, what: str) -> None:
        self.calls.append(what)
        if self.down:
            raise BackendTrouble(self.name, "the controller doesn't answer")


class Seer(Worker):
    """One that says when it would start what it isn't sent."""

    def __init__(self, store: PostgresStore, name: str, start: timedelta | None) -> None:
        super().__init__(store, name)
        self.start, self.asked = start, list[str]()
        self.clock: Clock = WallClock()

    def foresee(self, script: str) -> datetime | None:
        self.asked.append(script)
        return None if self.start is None else self.clock.now() + self.start


@pytest.fixture
def stage(database_url: str) -> Iterator[Stage]:
    built = Stage.build(database_url, clock=WallClock())
    yield built
    built.close()


def place(backend: Worker, role: PlaceRole = "home", gpu_class: str = "A100", price: float = 0.0) -> Place:
    return Place(
        backend=backend,
        poll_s=0.1,
        grace_s=0.1,
        sweep_gap_s=0.1,
        role=role,
        classes={"A100": gpu_class},
        prices={"A100": price},
    )


def went(stage: Stage) -> Counter[str]:
    """Where the runs that were scored were."""
    found = stage.rows("SELECT a.backend FROM verdict v JOIN attempt a ON a.id = v.attempt_id WHERE v.name = 'passed'")
    return Counter(row["backend"] for row in found)


def daemon(stage: Stage, *places: Place, rules: Rules = WHEN_DOWN) -> Daemon:
    return Daemon(stage.store, places, timing=replace(QUICK, breaker_s=0.3), rules=rules)


def burst(stage: Stage, count: int) -> None:
    for n in range(count):
        stage.submit(by=f"p{n}", mode="leaderboard")


def drained(stage: Stage) -> None:
    stage.wait_until(lambda: stage.open_runs() == 0)


def test_home_goes_down_the_queue_drains_elsewhere_and_new_runs_stay_home_again(stage: Stage) -> None:
    home, github, modal = (Worker(stage.store, name) for name in ("cluster", "github", "modal"))
    served = daemon(stage, place(home), place(github, "overflow"), place(modal, "overflow"))
    lane = served.lanes["cluster"]
    with running(served):
        burst(stage, 6)
        drained(stage)
        assert went(stage) == {"cluster": 6}
        home.down = True
        burst(stage, 12)
        drained(stage)
        assert went(stage)["github"] + went(stage)["modal"] == 12
        assert stage.store.places.breakers()["cluster"].times > 0, "the next process knows it, too"
        home.down = False
        while lane.breaker.state is not State.CLOSED:
            stage.submit(by="eve")
            drained(stage)
        before = went(stage)
        burst(stage, 6)
        drained(stage)
        assert went(stage) - before == {"cluster": 6}
    check(stage)
    away = stage.rows("SELECT run_id FROM attempt WHERE backend <> 'cluster' AND state = 'reported'")[0]["run_id"]
    said = sentences(stage.store.runs.why(away, stage.clock.now()))
    assert "passed" in said[0]
    assert "because cluster is down" in said[1]
    (number,) = [run["submission_id"] for run in stage.runs() if run["id"] == away]
    view = stage.store.submissions.get(number)
    (run,) = view.runs
    assert run.went.startswith(f"at {run.attempts[-1].backend}, because cluster is down")
    assert full_submission.from_json(full_submission.as_json(view)).runs[0].went == run.went, (
        "a laptop is told the same"
    )
    assert stage.store.submissions.get(stage.runs()[0]["submission_id"]).runs[0].went == "", "nothing to say at home"
    whys = stage.rows("SELECT why_here FROM attempt WHERE backend <> 'cluster' AND state = 'reported'")
    assert all("cluster is down" in row["why_here"] for row in whys)
    assert len(stage.store.standings.best("board", "A100")) == 12


def seeing(home: Seer) -> Place:
    """With a script like Slurm's."""
    return replace(
        place(home), root=Path("/nowhere"), script=lambda work, _, limit_s: f"{work.attempt.gpu}, {limit_s:.0f} s"
    )


@pytest.mark.parametrize(
    ("start", "goes_to", "why"),
    [
        (
            timedelta(hours=3),
            "modal",
            "because the cluster won't start any of our jobs for 3 h, says sbatch --test-only",
        ),
        (timedelta(minutes=5), "cluster", "cluster had a free slot, and would start it in 5 min, says sbatch"),
        (None, "cluster", "because cluster had a free slot"),
    ],
)
def test_the_cluster_is_asked_before_the_first_run_is_sent_when_it_would_start(
    stage: Stage, start: timedelta | None, goes_to: str, why: str
) -> None:
    home, modal = Seer(stage.store, "cluster", start), Worker(stage.store, "modal")
    served = daemon(stage, seeing(home), place(modal, "overflow"), rules=WAIT_OVER)
    with running(served):
        stage.submit(mode="leaderboard")
        drained(stage)
        assert went(stage) == {goes_to: 1}
        assert len(home.submitted) == (goes_to == "cluster")
        burst(stage, 3)
        drained(stage)
    assert set(home.asked) == {f"A100, {time_limit_s(PROBLEM, 'leaderboard'):.0f} s"}
    (first, *_) = stage.runs()
    said = sentences(stage.store.runs.why(first["id"], stage.clock.now()))
    assert why in said[1]
    check(stage)


@pytest.mark.parametrize("rules", [WHEN_DOWN, Rules()])
def test_where_the_rule_does_not_go_by_waits_nobody_is_asked(stage: Stage, rules: Rules) -> None:
    home, modal = Seer(stage.store, "cluster", timedelta(hours=2)), Worker(stage.store, "modal")
    with running(daemon(stage, seeing(home), place(modal, "overflow"), rules=rules)):
        burst(stage, 3)
        drained(stage)
    assert (went(stage), home.asked) == ({"cluster": 3}, [])


def test_an_idle_cluster_is_asked_for_nothing_and_a_busy_one_once_a_minute(database_url: str) -> None:
    clock = HandClock()
    stage = Stage.build(database_url, clock=clock)
    home, modal = Seer(stage.store, "cluster", timedelta(hours=2)), Worker(stage.store, "modal")
    home.clock = clock
    served = Daemon(stage.store, [seeing(home), place(modal, "overflow")], clock=clock, timing=QUICK, rules=WAIT_OVER)

    def tick(after_s: float = 1.0) -> tuple[int, int]:
        """How often home was asked ahead, and for all else."""
        clock.go(after_s)
        served.tick()
        stage.wait_until(lambda: not any(lane.busy for lane in served.lanes.values()))
        return len(home.asked), len(home.calls)

    try:
        for _ in range(5):
            assert tick(100) == (0, 0), "nothing waits, nobody asks"
        for n, asked in enumerate((1, 1, 2)):
            stage.submit(by=f"p{n}", mode="leaderboard")
            for _ in range(20):
                if not stage.open_runs():
                    break
                assert tick() == (asked, 0)
            assert tick(30) == (asked, 0)
        assert went(stage) == {"modal": 3}
    finally:
        for lane in served.lanes.values():
            lane.close(60)
        stage.close()


def test_what_went_away_for_a_late_start_is_not_wanted_back_before_home_is_sooner(database_url: str) -> None:
    clock = HandClock()
    stage = Stage.build(database_url, clock=clock)
    home, modal = Seer(stage.store, "cluster", timedelta(hours=3)), Worker(stage.store, "modal")
    home.clock, modal.queues = clock, True
    served = Daemon(stage.store, [seeing(home), place(modal, "overflow")], clock=clock, timing=QUICK, rules=WAIT_OVER)

    def tick(after_s: float = 1.0) -> list[tuple[str, bool]]:
        """Where attempts are open, and whether they are wanted back."""
        clock.go(after_s)
        served.tick()
        stage.wait_until(lambda: not any(lane.busy for lane in served.lanes.values()))
        return [(one.backend, one.withdraw_at is not None) for one in stage.store.attempts.open()]

    try:
        stage.submit(mode="leaderboard")
        while tick() != [("modal", False)]:
            assert clock.now() < START + timedelta(minutes=1)
        for _ in range(20):
            assert tick(100) == [("modal", False)], "it waits there, and home has free slots"
        assert len(home.asked) == 1
        home.start = timedelta(minutes=1)
        stage.submit(by="bob", mode="leaderboard")  # for which home is asked again
        while stage.open_runs():
            tick()
            assert clock.now() < START + timedelta(hours=1)
        assert went(stage) == {"cluster": 2}
        assert len(home.asked) == 2
        check(stage)
    finally:
        for lane in served.lanes.values():
            lane.close(60)
        stage.close()


def test_a_run_that_comes_while_the_plan_is_made_is_not_sent_unasked(stage: Stage) -> None:
    """The rows were read before it was there, and are claimed from when it is."""
    home, modal = Seer(stage.store, "cluster", timedelta(hours=3)), Worker(stage.store, "modal")
    served = daemon(stage, seeing(home), place(modal, "overflow"), rules=WAIT_OVER)
    facts = stage.store.queue.demand

    def late(now: datetime) -> Backlog:
        found = facts(now)
        if not stage.runs():
            stage.submit(mode="leaderboard")
        return found

    stage.store.queue.demand = late  # type: ignore[method-assign]
    with running(served):
        stage.wait_until(lambda: bool(stage.runs()))
        drained(stage)
    assert (went(stage), len(home.submitted)) == ({"modal": 1}, 0)


def test_a_word_holds_for_a_minute_and_silence_for_longer() -> None:
    now = datetime.now(UTC)
    word, silence = Foreseen(at=now, asked_at=now), Foreseen(at=None, asked_at=now)
    for after_s, expected in ((59, (True, True)), (61, (False, True)), (599, (False, True)), (601, (False, False))):
        then = now + timedelta(seconds=after_s)
        assert (word.holds(then), silence.holds(then)) == expected


def test_what_waits_elsewhere_comes_home_and_ends_once(stage: Stage) -> None:
    home, modal = Worker(stage.store, "cluster"), Worker(stage.store, "modal")
    home.down, modal.queues = True, True
    with running(daemon(stage, place(home), place(modal, "overflow"))):
        burst(stage, 2)
        stage.wait_until(lambda: [a.backend for a in stage.store.attempts.open() if a.handle] == ["modal"] * 2)
        home.down = False
        stage.submit(by="eve")  # whose run tries whether it works again
        drained(stage)
    assert went(stage)["cluster"] == 3
    check(stage)
    ends = stage.rows("SELECT state, ending FROM attempt WHERE backend = 'modal'")
    assert {(row["state"], row["ending"]) for row in ends} == {("cancelled", "withdrawn")}


def test_what_began_elsewhere_ends_there_though_it_was_wanted_back(stage: Stage) -> None:
    modal = Worker(stage.store, "modal")
    modal.queues = True
    home, away = place(Worker(stage.store, "cluster")), place(modal, "overflow")
    stage.submit(mode="leaderboard")
    launch(stage.store.attempts, away, stage.claim(away), stage.clock.now())
    slots = free_slots({"cluster": home.backend.capacity()}, ())
    assert stage.store.attempts.withdraw(stage.attempt(), slots, "home has room", stage.clock.now())
    modal.begin()
    collect(stage.store, away, stage.store.attempts.open(), AttemptNotes(), stage.clock.now())
    assert stage.run()["verdict"] == "passed"
    assert went(stage) == {"modal": 1}


def test_what_was_perhaps_sent_home_is_sent_nowhere_else(stage: Stage) -> None:
    home, modal = Worker(stage.store, "cluster", slots=1), Worker(stage.store, "modal")
    home.down = home.unclear = True
    with running(daemon(stage, place(home), place(modal, "overflow"))):
        burst(stage, 5)
        stage.wait_until(lambda: stage.open_runs() == 1)
        (left,) = stage.store.attempts.open()
        assert (left.backend, left.state) == ("cluster", AttemptState.AMBIGUOUS)
        home.sightings[left.name] = ABSENT
        home.down = False
        stage.wait_until(lambda: bool(home.submitted))
        home.sightings.clear()
        drained(stage)
    assert went(stage) == {"modal": 4, "cluster": 1}
    assert [run["attempts"] for run in stage.runs()] == [1] * 5
    check(stage)


def test_a_burst_stops_at_the_budget_and_waits_for_home(stage: Stage) -> None:
    home, modal = Worker(stage.store, "cluster"), Worker(stage.store, "modal", slots=9)
    home.down, modal.queues = True, True
    most = 2.5 * time_limit_s(PROBLEM, "leaderboard") * 0.01
    served = daemon(
        stage,
        place(home),
        place(modal, "overflow", price=0.01),
        rules=replace(WHEN_DOWN, budget=Budget(month=most)),
    )
    with running(served):
        burst(stage, 6)
        stage.wait_until(lambda: "budget is used up" in served.told()["overflow"]["gpus"].get("A100", ""))
        for _ in range(5):  # through ticks that find the place at work, and others that don't
            due = served.metrics.ticks._value.get() + 1
            served.wake.ring()
            stage.wait_until(partial(lambda due: served.metrics.ticks._value.get() >= due, due))
            seen = served.told()
            assert "budget is used up" in seen["overflow"]["gpus"]["A100"], "it doesn't blink"
            assert "A100" in seen["overflow"]["held_up"]
        assert sum(a.backend == "modal" for a in stage.store.attempts.open()) == 2, "three could come to more"
        stage.store.leases.hold(LEASE, served.holder, 60.0, stage.clock.now(), info=seen)
        told = stage.store.queue.now("A100", stage.clock.now())
        assert "budget" in (told.held_up or ""), "its submitter is told, too"
        (last,) = [run for run in stage.runs() if run["state"] == "queued"][-1:]
        said = stage.store.runs.why(last["id"], stage.clock.now())
        assert any("budget is used up" in sentence for sentence in sentences(said)), sentences(said)
        assert any(sentence.startswith("modal: this month's budget is used up (") for sentence in sentences(said))
        modal.begin()
        stage.wait_until(lambda: stage.open_runs() < 5)
        home.down = False
        drained(stage)
    assert went(stage).total() == 6
    now = stage.clock.now()
    spent = stage.store.queue.demand(now).spent
    assert 0 < spent <= most
    for by in ("board", "person", "place", "run"):
        used = stage.store.costs.usage(by, *month_of(now), now)
        assert sum(row.money for row in used) == pytest.approx(spent)
        assert sum(row.open for row in used) == 0
    assert stage.store.costs.usage("board", *month_named("2020-01"), now) == []
    check(stage)


def test_a_new_daemon_begins_with_the_breakers_of_the_one_before(stage: Stage) -> None:
    home, modal = Worker(stage.store, "cluster"), Worker(stage.store, "modal")
    now = stage.clock.now()
    far = Breaker(state=State.OPEN, why="no answer", since=now, try_at=now + timedelta(hours=1), times=9)
    stage.store.places.keep_breaker("cluster", far)
    with running(daemon(stage, place(home), place(modal, "overflow"))):
        burst(stage, 3)
        drained(stage)
    assert went(stage) == {"modal": 3}
    assert home.calls == []


@pytest.mark.parametrize("other_class", ["refuse", "unranked"])
def test_another_class_of_gpu_never_ranks(stage: Stage, other_class: OtherClass) -> None:
    home, modal = Worker(stage.store, "cluster"), Worker(stage.store, "modal")
    home.down = True
    rules = replace(WHEN_DOWN, other_class=other_class)
    with running(daemon(stage, place(home), place(modal, "overflow", gpu_class="A100 PCIe"), rules=rules)):
        stage.submit(by="ada", mode="leaderboard")
        stage.submit(by="bob", mode="test")
        stage.wait_until(lambda: stage.runs()[1]["verdict"] == "passed")
        if other_class == "refuse":
            assert stage.runs()[0]["verdict"] is None
            home.down = False
        drained(stage)
    first = stage.runs()[0]
    assert (first["verdict"], first["ranked"]) == ("passed", other_class == "refuse")
    assert len(stage.store.standings.best("board", "A100")) == (other_class == "refuse")
    if other_class == "unranked":
        assert "different class" in first["verdict_reason"]
    check(stage)


def test_a_shadow_goes_where_it_was_ordered_and_never_ranks(stage: Stage) -> None:
    home, modal = Worker(stage.store, "cluster"), Worker(stage.store, "modal")
    served = daemon(stage, place(home), place(modal, "overflow", gpu_class="A100 PCIe"), rules=Rules())
    with running(served):
        first = stage.submit(mode="leaderboard")
        drained(stage)
        wrong = stage.submit(by="bob", mode="test")
        drained(stage)
        now = stage.clock.now()
        with pytest.raises(Invalid, match="has no score"):
            stage.store.shadows.order(wrong.submission_id, "modal", ["A100"], by="host", now=now)
        stage.store.shadows.order(first.submission_id, "modal", ["A100"], by="host", now=now)
        drained(stage)
        stage.submit(by="bob", mode="leaderboard")
        drained(stage)
    assert went(stage) == {"cluster": 3, "modal": 1}
    shadowed = stage.runs()[2]
    assert (shadowed["verdict"], shadowed["ranked"], shadowed["counts"]) == ("passed", False, False)
    assert {entry.person for entry in stage.store.standings.best("board", "A100")} == {"ada", "bob"}
    (told,) = stage.store.shadows.of_board("board")
    assert (told.place, told.gpu, told.open, told.without_score) == ("modal", "A100", 0, 0)
    assert told.drift is not None
    assert told.drift.ratio == pytest.approx(1.0)
    assert not told.drift.is_drift
    check(stage)


@pytest.mark.parametrize(("shadow", "month", "expected"), [(1.0, None, 4), (0.0, None, 0), (1.0, 1e-9, 0)])
def test_runs_that_rank_are_shadowed_as_the_hosts_want_and_within_the_budget(
    stage: Stage, shadow: float, month: float | None, expected: int
) -> None:
    home, modal = Worker(stage.store, "cluster"), Worker(stage.store, "modal")
    rules = Rules(shadow=shadow, budget=Budget(month=month))
    timing = replace(QUICK, shadow_s=0.05, idle_s=0.1)
    served = Daemon(stage.store, [place(home), place(modal, "overflow", price=0.01)], timing=timing, rules=rules)
    with running(served):
        burst(stage, 4)
        stage.submit(by="eve", mode="test")
        drained(stage)
        stage.wait_until(lambda: went(stage)["modal"] == expected and stage.open_runs() == 0)
        ticks = served.metrics.ticks._value.get()
        stage.wait_until(lambda: served.metrics.ticks._value.get() > ticks + 20)
    assert went(stage) == Counter({"cluster": 5, "modal": expected})
    shadowed = stage.runs()[5:]
    assert [(run["ranked"], run["counts"]) for run in shadowed] == [(False, False)] * expected
    assert len(stage.store.standings.best("board", "A100")) == 4
    assert sum(view.drift.pairs for view in stage.store.shadows.of_board("board") if view.drift) == expected
    check(stage)


def test_a_shadow_that_its_place_refuses_for_ever_ends_there(stage: Stage) -> None:
    first = stage.submit(mode="leaderboard")
    home, modal = Worker(stage.store, "cluster"), Worker(stage.store, "modal")

    def refuse(_: JobSpec) -> Handle:
        raise BackendRefused("modal", "never", permanent=True)

    modal.on_submit = refuse
    with running(daemon(stage, place(home), place(modal, "overflow"), rules=Rules())):
        drained(stage)
        stage.store.shadows.order(first.submission_id, "modal", ["A100"], by="host", now=stage.clock.now())
        drained(stage)
    assert [run["verdict"] for run in stage.runs()] == ["passed", "infrastructure"]
    (told,) = stage.store.shadows.of_board("board")
    assert (told.without_score, told.drift) == (1, None)


def test_a_try_for_a_place_that_is_away_waits_for_it_and_can_be_taken_back(stage: Stage) -> None:
    offers = [Offer(name="cluster", gpus=("A100",)), Offer(name="other", gpus=("A100",))]
    board, ada, now = stage.board_name, stage.person("ada"), stage.clock.now()
    kept, dropped = (
        accept(stage.store.intake, ada, board, "k.py", ADD, "test", [], now, on="cluster", offers=offers)
        for _ in range(2)
    )
    other = Slot(backend="other", gpu="A100", free=2)
    assert stage.store.queue.claim([other], now) is None
    assert stage.store.runs.why(kept.run_ids[0], now).pinned == "cluster"
    cancel(stage.store.submissions, dropped.submission_id, ada, now)
    found = stage.store.queue.claim([other, replace(other, backend="cluster")], now)
    assert found is not None and (found.backend, found.run_id) == ("cluster", kept.run_ids[0])
    assert [row["state"] for row in stage.rows("SELECT state FROM run ORDER BY id")] == ["launching", "cancelled"]
