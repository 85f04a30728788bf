"""Warm workers in the daemon: started for work, given runs, let go, and looked for by name after a crash."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from kbslurm.api.hosting.hosting import Hosting
from kbslurm.config.settings import Config
from kbslurm.daemon import keeper_step
from kbslurm.daemon.loop import Daemon
from kbslurm.domain.keepers import LOOK_EVERY_S, Keeper, KeeperEnding, KeeperSighting, KeeperState, Warm
from kbslurm.domain.placement import Rules
from kbslurm.domain.run import Ending, Handle, KeeperName, Seen, Sighting, Slot
from kbslurm.domain.verdict import Verdict
from kbslurm.domain.why import sentences
from kbslurm.errors import BackendRefused, BackendTrouble, Invalid, NotFound
from kbslurm.flow import keepers as keeping
from kbslurm.flow.place import Place
from kbslurm.observe.crash_points import KEEPER_CRASH_POINTS
from kbslurm.ports import JobSpec, KeeperSpec, KeepsWarm
from tests.command_line import CommandLine
from tests.flow.puppet import RUNNING, Puppet, ended, sealed_report
from tests.flow.stage import HandClock, Stage
from tests.popcorn.served_api import served

WARM = Warm(max=2, idle_s=60.0, life_s=3_600.0)
SPOT = ("puppet", "A100")
PATIENCE_S = 60.0
DGX = """\
name = "dgx"
[paths]
shared_root = "/nowhere/kb"
[gpus.A100]
request = "--gres=gpu:a100:1"
image = "cuda.sif"
memory = "64G"
count = 2
[gpus.A100.warm]
max = 2
"""


@dataclass
class WarmPuppet(Puppet):
    """A backend that keeps what it is told to: `kept` is what is seen of keepers, by name."""

    kept: dict[KeeperName, KeeperSighting] = field(default_factory=dict)
    opened: list[KeeperSpec] = field(default_factory=list)
    drained: list[KeeperName] = field(default_factory=list)
    killed: list[KeeperName] = field(default_factory=list)
    looks: int = 0
    others: bool | None = False
    refuses: BackendTrouble | None = None
    spared: list[set[KeeperName]] = field(default_factory=list)

    def open_keeper(self, spec: KeeperSpec) -> Handle:
        self._called("open_keeper")
        if self.refuses is not None:
            raise self.refuses
        self.opened.append(spec)
        return Handle(str(70 + len(self.opened)))

    def find_keeper(self, name: KeeperName) -> KeeperSighting:
        self._called("find_keeper")
        return self.kept.get(name, KeeperSighting(seen=Seen.ABSENT))

    def watch_keepers(self, keepers: Sequence[Keeper]) -> Mapping[KeeperName, KeeperSighting]:
        self._called("watch_keepers")
        return {one.name: self.kept[one.name] for one in keepers if one.name in self.kept}

    def drain_keeper(self, keeper: Keeper) -> None:
        self.drained.append(keeper.name)

    def end_keeper(self, keeper: Keeper) -> None:
        self.killed.append(keeper.name)

    def others_wait(self, gpu: str) -> tuple[bool | None, str]:
        self.looks += 1
        return self.others, "squeue"

    def prune_keepers(self, before: datetime, *, keep: Collection[KeeperName]) -> int:
        self.spared.append(set(keep))
        return 0


@dataclass
class Scene:
    """A stage, a place that may keep GPUs, and a daemon whose clock is in the hand."""

    stage: Stage
    clock: HandClock
    puppet: WarmPuppet
    warm: Warm = WARM
    daemon: Daemon = field(init=False)

    def __post_init__(self) -> None:
        self.daemon = self.another()

    def another(self, holder: str = "me") -> Daemon:
        place = Place(
            backend=self.puppet,
            root=Path("/nowhere/attempts"),
            poll_s=1.0,
            grace_s=0.0,
            sweep_gap_s=25.0,
            warm={"A100": self.warm},
            keepers_root=Path("/nowhere/keepers"),
            keeper_script=lambda keeper, directory: f"#!/bin/sh\n# {keeper.name} in {directory}\n{keeper.avoid_nodes}",
        )
        return Daemon(self.stage.store, [place], clock=self.clock, holder=holder)

    def tick(self, seconds: float = 1.0) -> None:
        """Time goes on, and the daemon does what is due, to the end."""
        self.clock.go(seconds)
        self.daemon.tick()
        until = time.monotonic() + PATIENCE_S
        while self.daemon.busy():
            assert time.monotonic() < until
            threading.Event().wait(0.005)

    def keepers(self) -> Sequence[Keeper]:
        return self.stage.store.keepers.open()

    def history(self, runs: int = 3, seconds: float = 30.0) -> None:
        """So many runs that took so long, by themselves: what the policy goes by."""
        for _ in range(runs):
            self.stage.submit()
            attempt = self.stage.claim(self.daemon.lanes["puppet"].place)
            store = self.stage.store
            store.attempts.note_handle(attempt, Handle("1"), self.clock.now() + timedelta(hours=1), self.clock.now())
            store.attempts.note_seen(attempt, replace(RUNNING, started_at=self.clock.now()), self.clock.now())
            self.clock.go(seconds)
            passed = Verdict(name="passed", reason="", detail={})
            assert store.scores.record(attempt, passed, Ending.REPORTED, self.clock.now(), telemetry={})

    def holds(self, keeper: Keeper, **more: Any) -> None:
        """From the next look on, this one holds a GPU."""
        self.puppet.kept[keeper.name] = KeeperSighting(
            seen=Seen.RUNNING, handle=keeper.handle, node="n1", started_at=self.clock.now(), **more
        )

    def with_a_free_keeper(self) -> Keeper:
        """One that was asked for by a host and holds a GPU."""
        made = self.stage.store.keepers.order(
            *SPOT, life_s=self.warm.life_s, idle_s=self.warm.idle_s, most=9, why="ada", now=self.clock.now(), by="ada"
        )
        assert made is not None
        self.tick()
        self.holds(self.keepers()[-1])
        self.tick()
        assert self.keepers()[-1].state is KeeperState.HOLDING
        return self.keepers()[-1]

    def reports(self) -> None:
        """Every open attempt has its report."""
        for attempt in self.stage.store.attempts.open():
            self.puppet.reports[attempt.name] = sealed_report(self.stage.store.attempts.work(attempt.id))
            self.puppet.sightings[attempt.name] = ended()


@pytest.fixture
def scene(database_url: str) -> Iterator[Scene]:
    clock = HandClock()
    stage = Stage.build(database_url, clock=clock)
    found = Scene(stage=stage, clock=clock, puppet=WarmPuppet(slots={"A100": 4}))
    assert isinstance(found.puppet, KeepsWarm)
    yield found
    stage.close()


# ------------------------------------------------------------------------------------------------------------ starting


def test_a_keeper_is_started_for_work_and_its_row_is_there_before(scene: Scene) -> None:
    scene.history()
    for _ in range(12):
        scene.stage.submit()
    rows_then: list[int] = []
    plain = scene.puppet.open_keeper

    def seen(spec: KeeperSpec) -> Handle:
        rows_then.append(len([one for one in scene.keepers() if one.name == spec.name]))
        return plain(spec)

    scene.puppet.open_keeper = seen  # type: ignore[method-assign]
    scene.tick()
    assert rows_then == [1], "12 runs of 30 s each outweigh one idle end of 60 s four times, not two"
    (one,) = scene.keepers()
    assert (one.state, one.handle) == (KeeperState.SUBMITTED, "71")
    assert "enough work for 1 warm worker" in one.why
    (spec,) = scene.puppet.opened
    assert (spec.gpu, spec.life_s, spec.directory) == ("A100", 3_600.0, Path(f"/nowhere/keepers/{one.name}"))
    scene.tick(60)
    assert len(scene.puppet.opened) == 1


def test_a_keeper_gets_a_slot_of_a_site_that_is_always_full(scene: Scene) -> None:
    """A slot is taken again as soon as a run has ended: it mustn't depend on luck whether a keeper finds one."""
    scene.history()
    for _ in range(4):
        scene.stage.submit()
    scene.tick()
    assert len(scene.stage.store.attempts.open()) == 4
    for _ in range(20):
        scene.stage.submit()
    scene.tick(10)
    assert scene.keepers() == []
    scene.tick()  # so that each tenth second is one in which a run ends
    for _ in range(12):
        first = scene.stage.store.attempts.open()[0]
        scene.puppet.reports[first.name] = sealed_report(scene.stage.store.attempts.work(first.id))
        scene.puppet.sightings[first.name] = ended()
        scene.tick()  # it ends
        scene.tick()  # its slot is free
    assert {" ".join(one.why.split()[-5:-1]) for one in scene.keepers()} <= {"work for 1 warm", "work for 2 warm"}
    assert scene.keepers()
    assert len(scene.stage.store.attempts.open()) + len(scene.keepers()) == 4, "the other slots are used"


def test_none_is_started_on_a_node_that_is_left_out(scene: Scene) -> None:
    scene.history()
    for who in ("ada", "bob", "cleo"):
        scene.stage.submit(by=who)
    place, now = scene.daemon.lanes["puppet"].place, scene.clock.now()
    for attempt in [scene.stage.claim(place) for _ in range(3)]:
        scene.stage.store.attempts.note_handle(attempt, Handle("1"), now + timedelta(hours=1), now)
        scene.stage.store.attempts.note_seen(attempt, replace(RUNNING, node="n7", started_at=now), now)
        scene.stage.store.attempts.give_up(attempt, Ending.NO_REPORT, "it left no report", now)
    for _ in range(12):
        scene.stage.submit()
    scene.tick()
    assert {spec.script.splitlines()[-1] for spec in scene.puppet.opened} == {"('n7',)"}


def test_without_work_or_history_none_is_and_an_idle_place_costs_no_call(scene: Scene) -> None:
    scene.tick()
    for _ in range(5):
        scene.tick(30)
    assert scene.puppet.calls == []
    for _ in range(12):
        scene.stage.submit()
    scene.tick(30)
    assert scene.puppet.opened == []


def test_one_that_is_refused_ends_and_none_follows_for_a_while(scene: Scene) -> None:
    scene.history()
    for _ in range(30):
        scene.stage.submit()
    scene.puppet.refuses = BackendRefused("puppet", "no such account", permanent=True)
    scene.tick()
    (row, *_) = scene.stage.rows("SELECT state, reason FROM keeper")
    assert row == {"state": "refused", "reason": "puppet: no such account"}
    scene.puppet.refuses = None
    scene.tick(60)
    assert scene.puppet.opened == []
    assert "refused by the scheduler" in scene.daemon.told()["warm"][0]["why"]
    scene.tick(250)
    scene.reports()  # slots are free again; before, all four were taken
    scene.tick(1)
    scene.tick(10)
    assert scene.puppet.opened


def test_a_keeper_whose_answer_was_lost_is_looked_for_before_anything_is_sent_again(scene: Scene) -> None:
    made = scene.stage.store.keepers.order(
        *SPOT, life_s=600.0, idle_s=60.0, most=1, why="", now=scene.clock.now(), by="ada"
    )
    assert made is not None
    scene.puppet.refuses = BackendTrouble("puppet", "sbatch gave no answer")
    scene.tick()
    assert scene.keepers()[0].state is KeeperState.AMBIGUOUS
    scene.puppet.refuses = None
    scene.tick(5)
    scene.tick(5)
    assert scene.puppet.calls.count("find_keeper") == 1, "two sweeps lie apart"
    assert scene.puppet.opened == []
    scene.tick(26)
    scene.tick(1)
    assert [spec.name for spec in scene.puppet.opened] == [made.name], "the same one again"
    assert scene.keepers()[0].state is KeeperState.SUBMITTED


def test_a_daemon_that_died_before_sending_is_followed_by_one_that_looks_first(scene: Scene) -> None:
    made = scene.stage.store.keepers.order(*SPOT, life_s=600.0, idle_s=60.0, most=1, why="", now=scene.clock.now())
    assert made is not None
    scene.tick()
    assert (scene.puppet.opened, scene.puppet.calls) == ([], ["find_keeper"])
    scene.puppet.kept[made.name] = KeeperSighting(seen=Seen.RUNNING, handle=Handle("7"), node="n3")
    scene.tick(26)
    (one,) = scene.keepers()
    assert (one.state, one.handle, one.node) == (KeeperState.HOLDING, "7", "n3")
    assert scene.puppet.opened == [], "it was sent after all"


# -------------------------------------------------------------------------------------------------------------- serving


def test_a_run_goes_into_a_free_keeper_and_takes_no_other_slot(scene: Scene) -> None:
    one = scene.with_a_free_keeper()
    scene.stage.submit()
    scene.tick()
    attempt = scene.stage.attempt()
    assert attempt.keeper is not None
    assert attempt.keeper.id == one.id
    assert scene.puppet.submitted[-1].keeper == attempt.keeper
    assert scene.puppet.submitted[-1].name == attempt.name
    scene.reports()
    scene.tick()
    assert scene.stage.run()["verdict"] == "passed"
    (found,) = scene.keepers()
    assert (found.served, found.busy) == (0, False), "its start was never seen"


def test_capacity_is_shared_with_keepers(scene: Scene) -> None:
    scene.with_a_free_keeper()
    for _ in range(9):
        scene.stage.submit()
    scene.tick()
    found = scene.stage.store.attempts.open()
    assert len(found) == 4, "three by themselves, one in the keeper, which holds the fourth slot"
    assert sum(attempt.keeper is not None for attempt in found) == 1


def test_what_a_keeper_does_not_take_goes_the_other_way_and_is_not_held_against_the_run(scene: Scene) -> None:
    one = scene.with_a_free_keeper()

    def refuse(job: JobSpec) -> Handle:
        if job.keeper is not None:
            raise BackendRefused("puppet", "the step couldn't be created: busy", permanent=False)
        return Handle("99")

    scene.puppet.on_submit = refuse
    scene.stage.submit()
    scene.tick()
    scene.tick()
    first, second = scene.stage.rows("SELECT number, keeper_id, ending, state FROM attempt ORDER BY id")
    assert (first["keeper_id"], first["ending"], first["state"]) == (one.id, "withdrawn", "cancelled")
    assert (second["keeper_id"], second["state"]) == (None, "submitted")
    assert scene.keepers()[0].drain_at is not None, "it is no use as it is"


def test_a_run_whose_keeper_left_is_tried_again_by_itself(scene: Scene) -> None:
    scene.with_a_free_keeper()
    scene.stage.submit()
    scene.tick()
    attempt = scene.stage.attempt()
    scene.puppet.sightings[attempt.name] = RUNNING
    scene.tick()
    gone = KeeperSighting(
        seen=Seen.ENDED, ending=KeeperEnding.PREEMPTED, reason="preempted", ended_at=scene.clock.now()
    )
    scene.puppet.kept[scene.keepers()[0].name] = gone
    scene.puppet.sightings[attempt.name] = ended(Ending.KEEPER_LEFT)
    scene.tick()
    scene.tick()
    assert scene.keepers() == []
    retried = scene.stage.attempt()
    assert (retried.number, retried.keeper) == (2, None)
    (row,) = scene.stage.rows("SELECT ending FROM keeper")
    assert row["ending"] == "preempted"
    assert scene.stage.rows("SELECT ending FROM attempt WHERE number = 1")[0]["ending"] == "keeper_left"
    scene.reports()
    scene.tick()
    assert scene.stage.run()["verdict"] == "passed"


def test_a_hand_over_that_certainly_never_began_is_settled_without_waiting_for_a_report(scene: Scene) -> None:
    scene.with_a_free_keeper()
    scene.stage.submit()
    scene.tick()
    first = scene.stage.attempt()
    scene.puppet.sightings[first.name] = Sighting(
        seen=Seen.ENDED, ending=Ending.WITHDRAWN, reason="the step was refused"
    )
    scene.tick()
    scene.tick()
    second = scene.stage.attempt()
    assert (second.number, second.keeper) == (2, None)
    (row,) = scene.stage.rows("SELECT ending, reason FROM attempt WHERE number = 1")
    assert row == {"ending": "withdrawn", "reason": "the step was refused"}


# ----------------------------------------------------------------------------------------------------------- letting go


def test_one_without_work_is_let_go_and_killed_only_if_it_stays(scene: Scene) -> None:
    one = scene.with_a_free_keeper()
    scene.tick(30)
    assert scene.keepers()[0].drain_at is None
    scene.tick(35)
    assert scene.keepers()[0].drain_as is KeeperEnding.IDLE
    assert one.name in scene.puppet.drained
    assert scene.puppet.killed == []
    scene.tick(31)
    assert scene.puppet.killed == []
    scene.tick(31)
    assert scene.puppet.killed == [one.name]
    scene.puppet.kept[one.name] = KeeperSighting(seen=Seen.ENDED, ending=KeeperEnding.CANCELLED)
    scene.tick()
    assert scene.keepers() == []
    assert scene.stage.rows("SELECT ending FROM keeper")[0]["ending"] == "idle"


@pytest.mark.parametrize(("others", "said"), [(True, "others wait"), (None, "can't be seen whether others wait")])
def test_it_looks_once_in_five_minutes_and_goes_when_others_wait(scene: Scene, others: bool | None, said: str) -> None:
    one = scene.with_a_free_keeper()
    scene.stage.submit()
    scene.tick()
    attempt = scene.stage.attempt()
    scene.puppet.sightings[attempt.name] = RUNNING
    for _ in range(29):
        scene.tick(10)
    assert scene.puppet.looks == 0
    scene.tick(20)
    assert scene.puppet.looks == 1
    scene.puppet.others = others
    for _ in range(int(LOOK_EVERY_S / 10) - 1):
        scene.tick(10)
    assert scene.puppet.looks == 1
    scene.daemon = scene.another()  # as after a restart: the last look is in the rows
    scene.tick(9)
    assert scene.puppet.looks == 1
    scene.tick(11)
    assert scene.puppet.looks == 2
    scene.tick(11)
    found = scene.keepers()[0]
    assert (found.drain_as, said in found.drain_why) == (KeeperEnding.GAVE_BACK, True)
    assert found.busy
    scene.tick(120)
    assert one.name in scene.puppet.drained
    assert scene.puppet.killed == [], "its run goes on to its end"


def test_missing_is_not_finished(scene: Scene) -> None:
    scene.warm = replace(WARM, idle_s=1_800.0)
    scene.daemon = scene.another()
    one = scene.with_a_free_keeper()
    del scene.puppet.kept[one.name]
    for _ in range(3):
        scene.tick(15)
    assert scene.keepers()[0].state is KeeperState.HOLDING
    scene.puppet.kept[one.name] = KeeperSighting(seen=Seen.ABSENT)
    scene.tick(1)
    assert scene.keepers(), "one look isn't enough"
    scene.tick(20)
    assert scene.keepers()
    scene.tick(10)
    assert scene.keepers() == []
    assert scene.stage.rows("SELECT ending FROM keeper")[0]["ending"] == "vanished"


def test_files_of_keepers_go_after_a_while_but_never_those_of_an_open_one(scene: Scene) -> None:
    one = scene.with_a_free_keeper()
    scene.stage.submit()
    scene.tick(1)
    scene.puppet.sightings[scene.stage.attempt().name] = RUNNING
    scene.tick(3_000)
    scene.tick(700)
    assert scene.puppet.spared[-1] == {one.name}


def test_those_of_a_place_that_drains_are_let_go_and_none_is_started(scene: Scene) -> None:
    scene.with_a_free_keeper()
    scene.stage.store.places.drain("puppet", "", "a fan", by="grace")
    scene.tick(11)
    (one,) = scene.keepers()
    assert (one.state, one.drain_why) == (KeeperState.DRAINING, "it takes no new runs: hosts let it drain (a fan)")
    scene.stage.submit()
    for _ in range(3):
        scene.tick(11)
    assert len(scene.puppet.opened) == 1 and scene.stage.store.attempts.open() == []


def test_one_that_a_site_no_longer_allows_is_let_go(scene: Scene) -> None:
    scene.with_a_free_keeper()
    lane = scene.daemon.lanes["puppet"]
    lane.place = replace(lane.place, warm={})
    scene.tick(11)
    assert "allows none any more" in scene.keepers()[0].drain_why


# ------------------------------------------------------------------------------------------------------------- deaths


class Died(Exception):
    """A daemon's death at a crash point, as far as its own process goes."""


@pytest.mark.parametrize("place_of_death", KEEPER_CRASH_POINTS)
def test_a_daemon_that_dies_here_leaves_no_keeper_behind_and_opens_none_twice(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, place_of_death: str
) -> None:
    deaths: list[str] = []
    ends_when_told = place_of_death != "keeper.before_cancel"

    def die(name: str) -> None:
        if name == place_of_death and not deaths:
            deaths.append(name)
            raise Died

    for room in (keeping, keeper_step):
        monkeypatch.setattr(room, "crash_point", die)
    scene.history()
    for _ in range(12):
        scene.stage.submit()
    for _ in range(40):
        with suppress(Died):
            scene.tick(10)
        if deaths and scene.daemon.holder == "me":
            scene.daemon = scene.another(holder="you")
            scene.clock.go(60)  # the dead one's lease is over
        scene.reports()
        for one in scene.puppet.opened:
            live = [keeper for keeper in scene.keepers() if keeper.name == one.name]
            if one.name not in scene.puppet.kept:
                scene.puppet.kept[one.name] = KeeperSighting(
                    seen=Seen.RUNNING, handle=Handle("71"), node="n1", started_at=scene.clock.now()
                )
            elif one.name in scene.puppet.killed or (ends_when_told and live and live[0].drain_at):
                seen = KeeperSighting(seen=Seen.ENDED, ending=KeeperEnding.CANCELLED)
                scene.puppet.kept[one.name] = seen
    assert deaths, "it never got there"
    assert len({spec.name for spec in scene.puppet.opened}) == len(scene.puppet.opened)
    assert scene.keepers() == []
    assert all(run["verdict"] == "passed" for run in scene.stage.runs())


# ---------------------------------------------------------------------------------------------------------------- faces


def test_why_says_cold_or_warm_and_when(scene: Scene) -> None:
    scene.history()
    scene.with_a_free_keeper()
    for _ in range(6):
        scene.stage.submit()
    scene.tick()
    warm = next(a for a in scene.stage.store.attempts.open() if a.keeper is not None)
    told = scene.stage.store.runs.why(warm.run_id, scene.clock.now())
    assert told.tries[0].warm
    assert any("because a warm worker was free there on n1" in one for one in sentences(told))
    alone = next(a for a in scene.stage.store.attempts.open() if a.keeper is None)
    said = sentences(scene.stage.store.runs.why(alone.run_id, scene.clock.now()))
    assert any("a job of its own: no warm worker was free or would have been sooner" in one for one in said), said
    scene.tick(10)
    waits = next(run["id"] for run in scene.stage.runs() if run["state"] == "queued")
    scene.daemon.tick()
    said = sentences(scene.stage.store.runs.why(waits, scene.clock.now()))
    assert any(one.startswith("puppet: 1 warm worker") for one in said), said


@pytest.fixture
def desk(database_url: str, tmp_path: Path) -> Iterator[tuple[CommandLine, Stage]]:
    """A command line whose one site allows two warm workers."""
    (tmp_path / "sites").mkdir()
    (tmp_path / "sites/dgx.toml").write_text(DGX)
    (tmp_path / "kbslurm.toml").write_text(
        f'[daemon]\nstate_dir = "{tmp_path}"\n[sites]\nuse = ["{tmp_path}/sites/dgx.toml"]\n'
    )
    stage = Stage.build(database_url)
    yield CommandLine(cwd=tmp_path, env={"DATABASE_URL": database_url}), stage
    stage.close()


def test_a_host_starts_lists_and_drains_them_and_the_audit_log_says_so(desk: tuple[CommandLine, Stage]) -> None:
    kbslurm, stage = desk
    said = kbslurm("warm", "list")
    assert (said.code, said.out) == (0, "dgx, A100: 0 of 2, none in the last 24 h; no run waits\n")
    said = kbslurm("warm", "start", "2")
    assert said.code == 0, said
    assert said.out.startswith("2 warm workers asked for: 1, 2; ")
    refused = kbslurm("warm", "start")
    assert refused.code == 5
    assert "allows 2 at a time, and there are 2" in refused.err
    listed = json.loads(kbslurm("warm", "list", "--json").out)
    assert [(row["worker"], row["state"], row["place"]) for row in listed["workers"]] == [
        (1, "asked", "dgx"),
        (2, "asked", "dgx"),
    ]
    assert listed["workers"][0]["asked_by"]
    assert "asked" in kbslurm("status", "--no-sites").out
    status = json.loads(kbslurm("status", "--no-sites", "--json").out)
    assert len(status["warm"]["workers"]) == 2
    gone = kbslurm("warm", "drain", "1")
    assert (gone.code, gone.out) == (0, "1 warm worker let go: 1\n")
    assert "1 is leaving:" in kbslurm("warm", "list").out
    assert kbslurm("warm", "drain", "--all").out == "1 warm worker let go: 2\n"
    assert kbslurm("warm", "drain", "--all").out == "no warm worker to let go\n"
    for words, status_, part in (
        (("warm", "drain"), 2, "Pass a number"),
        (("warm", "drain", "1", "--all"), 2, "excludes the rest"),
        (("warm", "drain", "77"), 2, "77"),
        (("warm", "start", "0"), 2, "greater than or equal to 1"),
        (("warm", "start", "--on", "nowhere"), 2, "nowhere allows no warm workers"),
        (("warm", "start", "--gpu", "H100"), 2, "for H100"),
        (("warm", "drain", "--on", "nowhere"), 2, "there is no warm worker and no rule for one at nowhere"),
        (("warm", "drain", "--gpu", "H100"), 2, "there is no warm worker and no rule for one for H100"),
    ):
        said = kbslurm(*words)
        assert said.code == status_, (words, said)
        assert part in said.err, (words, said.err)
    acts = [event.kind for event in stage.store.events.audit_log()]
    assert acts.count("staff.warm.start") == 1
    assert acts.count("staff.warm.drain") == 3


def test_usage_tells_what_was_held_and_left(scene: Scene, tmp_path: Path) -> None:
    one = scene.with_a_free_keeper()
    scene.clock.go(100)
    scene.stage.store.keepers.end(one, KeeperEnding.IDLE, "", scene.clock.now())
    hosting = Hosting(
        store=scene.stage.store, config=Config(), by="ada", person=None, creator=None, now=scene.clock.now()
    )
    (row,) = hosting.usage()["warm"]
    assert (row["place"], row["gpu"], row["workers"], row["used_s"]) == ("puppet", "A100", 1, 0.0)
    assert row["held_s"] == row["idle_s"] == 101.0
    with pytest.raises(Invalid, match="no site allows warm workers"):
        hosting.warm_start()
    with pytest.raises(NotFound):
        hosting.warm_drain(worker=9)


def scored_warm(scene: Scene, **more: Any) -> int:
    """A leaderboard submission that ran in a free keeper and has its score; its number."""
    scene.with_a_free_keeper()
    receipt = scene.stage.submit(mode="leaderboard")
    scene.tick()
    (attempt,) = scene.stage.store.attempts.open()
    assert attempt.keeper is not None
    scene.reports()
    scene.tick()
    return receipt.submission_id


def test_the_same_submission_is_measured_warm_and_cold_and_the_difference_is_reported(scene: Scene) -> None:
    number = scored_warm(scene)
    shadows, now = scene.stage.store.shadows, scene.clock.now()
    (run,) = shadows.order_cold(number, ["A100"], by="ada", now=now)
    scene.tick()
    (attempt,) = scene.stage.store.attempts.open()
    assert (attempt.run_id, attempt.keeper, attempt.backend) == (run, None, "puppet"), "although a keeper is free"
    scene.reports()
    scene.tick()
    (row,) = shadows.of_board("board")
    assert row.place == "puppet, by itself"
    assert row.drift is not None
    assert row.drift.pairs == 1
    assert not [v for v in scene.stage.rows("SELECT ranked FROM verdict WHERE run_id = %s", run) if v["ranked"]]
    scene.stage.submit(mode="leaderboard")
    with pytest.raises(Invalid, match="no score from a warm worker"):
        shadows.order_cold(number + 2, ["A100"], by="ada", now=now)


def test_the_daemon_measures_some_of_the_warm_ones_by_themselves_too(scene: Scene) -> None:
    scene.daemon.placement.rules = Rules(shadow=1.0)
    scored_warm(scene)
    scene.tick(11)
    (row,) = scene.stage.rows("SELECT way, backend FROM shadow")
    assert row == {"way": "cold", "backend": "puppet"}
    scene.tick(11)
    assert len(scene.stage.rows("SELECT * FROM shadow")) == 1


def test_a_boards_runs_stay_out_if_it_says_so(scene: Scene) -> None:
    scene.with_a_free_keeper()
    assert scene.stage.store.boards.edit("board", by="ada", cold=True) == ["cold"]
    scene.stage.submit()
    scene.tick()
    assert scene.stage.attempt().keeper is None
    told = scene.stage.store.runs.why(scene.stage.attempt().run_id, scene.clock.now())
    assert told.cold
    assert not told.tries[0].warm


def test_a_rejudge_says_what_it_costs_and_how_long_it_takes_before_anything_is_ordered(
    desk: tuple[CommandLine, Stage],
) -> None:
    kbslurm, stage = desk
    said = kbslurm("rejudge", "board", "--estimate")
    assert (said.code, said.out) == (0, "board: no finished run matches\n")
    unknown = kbslurm("rejudge", "board", "--version", "77", "--estimate")
    assert (unknown.code, "no version of problem" in unknown.err) == (2, True)
    store, now = stage.store, stage.clock.now()
    for seconds in (20.0, 40.0):
        stage.submit(mode="leaderboard")
        attempt = store.queue.claim([Slot(backend="dgx", gpu="A100", free=1)], now)
        assert attempt is not None
        store.attempts.note_handle(attempt, Handle("1"), now + timedelta(hours=1), now)
        store.attempts.note_seen(attempt, replace(RUNNING, started_at=now), now)
        passed = Verdict(name="passed", reason="", detail={})
        assert store.scores.record(attempt, passed, Ending.REPORTED, now + timedelta(seconds=seconds), telemetry={})
    told = kbslurm("rejudge", "board", "--estimate", "--json").json()
    assert (told["runs"], told["gpu_s"], told["money"]) == (2, 60.0, 0.0)
    assert told["rows"] == [
        {
            "gpu": "A100",
            "place": "dgx",
            "runs": 2,
            "gpu_s": 60.0,
            "money": 0.0,
            "cold_s": None,
            "warm_workers": 2,
            "warm_s": 31.0,
        }
    ]
    assert "about 31 s with 2 warm workers" in kbslurm("rejudge", "board", "--estimate").out
    assert kbslurm("rejudge", "board", "--estimate", "--apply").code == 2
    assert not stage.rows("SELECT id FROM run WHERE rejudging_id <> 0")
    assert kbslurm("board", "edit", "board", "--cold").out == "board: cold changed\n"
    assert kbslurm("rejudge", "board", "--estimate", "--json").json()["rows"][0]["warm_s"] is None


def test_a_host_elsewhere_starts_and_drains_them_over_http(database_url: str, tmp_path: Path) -> None:
    site = tmp_path / "dgx.toml"
    site.write_text(DGX)
    with served(database_url, tmp_path / "service", toml=f'[sites]\nuse = ["{site}"]\n') as api:
        owner = api.store.people.add("ada", "owner")
        token = api.store.tokens.issue(owner.id, device="desk")
        kbslurm = CommandLine(cwd=tmp_path, env={"KBSLURM_URL": api.url, "KBSLURM_TOKEN": token})
        told = kbslurm("warm", "start", "--on", "dgx", "--gpu", "A100", "--json").json()
        assert told["started"] == [told["workers"][0]["worker"]]
        assert told["workers"][0]["asked_by"] == "ada"
        assert told["rules"][0]["open"] == 1
        assert "0 of 2" not in kbslurm("warm", "list").out
        assert len(kbslurm("status", "--json").json()["warm"]["workers"]) == 1
        assert kbslurm("warm", "start", "2").code == 5
        assert kbslurm("warm", "drain", str(told["started"][0]), "--json").json()["drained"] == told["started"]
        assert [e.data["by"] for e in api.store.events.audit_log() if e.kind.startswith("staff.warm")] == ["ada", "ada"]
        for body in ({}, {"workers": 7}, {"place": "dgx\0"}, {"worker": 1, "gpu": "\ud800"}):
            sent = httpx.post(
                f"{api.url}/admin/warm/drain",
                content=json.dumps(body),
                headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
                timeout=60,
            )
            assert (sent.status_code in (400, 422), "detail" in sent.json()) == (True, True), (body, sent.text)
        other = api.store.people.add("bob")
        theirs = CommandLine(
            cwd=tmp_path, env={"KBSLURM_URL": api.url, "KBSLURM_TOKEN": api.store.tokens.issue(other.id, device="desk")}
        )
        assert theirs("warm", "start").code in (4, 5), "only hosts"
