"""The daemon among troubles: a hung site, a database that goes, bugs, cancels, signals; and what it tells of itself."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from kbslurm.daemon.clock import WallClock
from kbslurm.daemon.lane import Turn
from kbslurm.daemon.loop import Daemon
from kbslurm.domain.run import Ending, EventId, Handle, JobName, OpenAttempt, Sighting, SubmissionId
from kbslurm.errors import BackendRefused, BackendTrouble, Invalid, Misconfigured, Refused
from kbslurm.flow import announce
from kbslurm.flow.cancel import cancel
from kbslurm.flow.collect import AttemptNotes, collect
from kbslurm.flow.launch import Launched, launch
from kbslurm.flow.place import Place
from kbslurm.flow.sweep import sweep
from kbslurm.observe.metrics import Metrics, MetricsPage
from kbslurm.ports import JobSpec
from kbslurm.store.embedded import Embedded
from kbslurm.store.postgres import PostgresStore
from tests.flow.puppet import RUNNING, Puppet, ended, sealed_report
from tests.flow.stage import QUICK, HandClock, Stage, overheard, running


@pytest.fixture
def stage(database_url: str) -> Iterator[Stage]:
    built = Stage.build(database_url, gpus=("A100", "H100"), clock=WallClock())
    yield built
    built.close()


class Prompt(Puppet):
    """A puppet whose every job is over with a passing report as soon as it is looked at."""

    def __init__(self, store: PostgresStore, name: str = "prompt", gpu: str = "A100") -> None:
        super().__init__(name=name, slots={gpu: 2}, default=ended())
        self.store = store

    def submit(self, job: JobSpec) -> Handle:
        handle = super().submit(job)
        (attempt,) = [a for a in self.store.attempts.open() if a.name == job.name]
        self.reports[job.name] = sealed_report(self.store.attempts.work(attempt.id))
        return handle


def quick(backend: Puppet, *, untrusted: bool = True) -> Place:
    return Place(backend=backend, poll_s=0.1, grace_s=0.1, sweep_gap_s=0.1, untrusted=untrusted)


def test_a_hung_site_holds_up_nobody_else(stage: Stage) -> None:
    hung = Puppet(name="hung", slots={"H100": 1}, gate=threading.Event())
    prompt = Prompt(stage.store)
    assert hung.gate is not None
    with running(Daemon(stage.store, [quick(hung), quick(prompt)], timing=QUICK)):
        stage.submit(gpus=["H100"])
        stage.wait_until(lambda: hung.calls == ["submit"])
        for _ in range(3):
            stage.submit(gpus=["A100"])
        stage.wait_until(lambda: stage.open_runs() == 1)
        hung.gate.set()
    assert hung.calls[0] == "submit"


def test_a_site_in_trouble_is_left_alone_and_its_runs_go_elsewhere(stage: Stage) -> None:
    broken = Puppet(name="broken", slots={"A100": 1}, trouble=True)
    prompt = Prompt(stage.store)
    daemon = Daemon(stage.store, [quick(broken), quick(prompt)], timing=QUICK)
    with running(daemon):
        for _ in range(4):
            stage.submit(gpus=["A100"])
        stage.wait_until(lambda: stage.open_runs() == 1)
        broken.trouble = False
        (left,) = [a for a in stage.store.attempts.open() if a.backend == "broken"]
        broken.sightings[left.name] = ended()
        broken.reports[left.name] = sealed_report(stage.store.attempts.work(left.id))
        stage.wait_until(lambda: stage.open_runs() == 0)
    assert [run["attempts"] for run in stage.runs()] == [1] * 4


def test_runs_of_strangers_do_not_go_where_they_cannot_be_isolated(stage: Stage) -> None:
    prompt = Prompt(stage.store)
    stage.person("grace", staff=True)
    with running(Daemon(stage.store, [quick(prompt, untrusted=False)], timing=QUICK)):
        stage.submit(by="ada", gpus=["A100"])
        stage.submit(by="grace", gpus=["A100"])
        stage.wait_until(lambda: stage.open_runs() == 1)
    assert [run["state"] for run in stage.runs()] == ["queued", "scored"]


def test_a_bug_in_a_backend_is_told_and_survived(stage: Stage) -> None:
    class Buggy(Prompt):
        bugs = 2

        def poll(self, attempts):  # type: ignore[no-untyped-def]
            if self.bugs:
                self.bugs -= 1
                raise ZeroDivisionError("one over zero")
            return super().poll(attempts)

    with overheard(as_json=True) as told, running(Daemon(stage.store, [quick(Buggy(stage.store))], timing=QUICK)):
        stage.submit(gpus=["A100"])
        stage.wait_until(lambda: stage.open_runs() == 0)
    lines = [json.loads(line) for line in told.getvalue().splitlines()]
    bugs = [line for line in lines if line["what"] == "a bug"]
    assert len(bugs) == 2
    assert "ZeroDivisionError" in bugs[0]["error"]
    decided = [line["what"] for line in lines]
    for what in ("leading", "claimed", "launched", "scored", "works again", "stopped"):
        assert what in decided
    assert "Traceback" not in told.getvalue()


def test_a_site_that_was_away_for_days_works_again(stage: Stage) -> None:
    refusing = Puppet(name="refusing", slots={"A100": 1})
    daemon = Daemon(stage.store, [quick(refusing)], timing=QUICK)
    lane = daemon.lanes["refusing"]
    stage.submit(gpus=["A100"])
    attempt = stage.claim(quick(refusing))

    def turn(attempts: Sequence[OpenAttempt], claimed: Sequence[OpenAttempt]) -> None:
        lane.begin(Turn(attempts=attempts, claimed=claimed, poll=True, sweep=True))
        stage.wait_until(lambda: not lane.busy)

    def refuse(_: JobSpec) -> Handle:
        raise BackendRefused("refusing", "too many jobs", permanent=False)

    refusing.on_submit = refuse
    lane.notes.put_off[attempt.id] = 100_000
    turn([], [attempt])
    assert attempt.id in lane.notes.unsent, "it is to be sent again"
    refusing.on_submit = None
    lane.notes.unsent[attempt.id] = stage.clock.now()
    turn([attempt], [])
    refusing.trouble, lane.troubles = True, 100_000
    turn(stage.store.attempts.open(), [])
    assert lane.troubles == 100_001
    refusing.trouble = False
    turn(stage.store.attempts.open(), [])
    assert lane.troubles == 0, "its lane lives"


def test_one_attempt_that_nobody_can_look_at_holds_up_no_other(stage: Stage) -> None:
    class Sore(Prompt):
        """Its first job's folder can't be read, and its second one meets a bug of ours."""

        def collect(self, attempt: OpenAttempt) -> bytes | None:
            if attempt.name == self.submitted[0].name:
                raise BackendTrouble(self.name, "the folder can't be read")
            if attempt.name == self.submitted[1].name:
                raise RuntimeError("surprise")
            return super().collect(attempt)

        def find(self, name: JobName) -> Sighting:
            raise BackendTrouble(self.name, "the folder can't be read")

    sore = Sore(stage.store, name="sore")
    sore.slots = {"A100": 5}
    for _ in range(5):
        stage.submit(gpus=["A100"])
    place = quick(sore)
    attempts = [stage.claim(place) for _ in range(5)]
    for attempt in attempts[:4]:
        launch(stage.store.attempts, place, attempt, stage.clock.now())
    stage.store.attempts.note_ambiguous(attempts[1], "perhaps", stage.clock.now())
    cancel(stage.store.submissions, SubmissionId(4), None, stage.clock.now())
    with overheard(), pytest.raises((BackendTrouble, RuntimeError)):
        collect(stage.store, place, stage.store.attempts.open(), AttemptNotes(), stage.clock.now())
    assert [run["state"] for run in stage.runs()] == ["launching", "launching", "scored", "cancelled", "launching"]
    cancel(stage.store.submissions, SubmissionId(1), None, stage.clock.now())
    with overheard(), pytest.raises(BackendTrouble):
        sweep(stage.store.attempts, place, stage.store.attempts.open()[::-1], AttemptNotes(), stage.clock.now())
    assert sore.cancelled == [attempts[0].name], "the cancel was reached behind those that can't be found"


def test_a_run_that_one_place_never_takes_goes_to_the_next_and_fails_when_none_is_left(stage: Stage) -> None:
    def never(job: JobSpec) -> Handle:
        raise BackendRefused("first", "there is no such partition", permanent=True)

    def unwritten(*_: object) -> str:
        raise Misconfigured("the problem needs 40 minutes and this site gives 30", fix="Raise max_time.")

    first = Place(backend=Puppet(name="first", on_submit=never))
    second = Place(backend=Puppet(name="second"), root=Path("somewhere"), script=unwritten)
    closed = Place(backend=Puppet(name="closed"), untrusted=False)
    narrow = Place(backend=Puppet(name="narrow"), widest={"A100": 0})
    elsewhere = Place(backend=Puppet(name="elsewhere", slots={"H100": 1}))
    places = [first, second, closed, narrow, elsewhere]
    stage.submit(gpus=["A100"])
    with overheard() as told:
        for place in (first, second):
            attempt = stage.claim(first, second)
            assert attempt.backend == place.name
            assert launch(stage.store.attempts, place, attempt, stage.clock.now(), others=places) is Launched.REFUSED
    assert "run_state=queued" in told.getvalue() and "run_state=failed" in told.getvalue()
    run = stage.run()
    assert (run["state"], run["attempts"]) == ("failed", 2)
    assert "40 minutes" in run["verdict_reason"]


def test_a_job_that_cannot_be_written_down_fails_and_holds_up_no_other(stage: Stage) -> None:
    def broken(*_: object) -> str:
        raise ZeroDivisionError("a template's")

    place = Place(backend=Puppet(), root=Path("somewhere"), script=broken)
    stage.submit(gpus=["A100"])
    with overheard():
        assert launch(stage.store.attempts, place, stage.claim(place), stage.clock.now()) is Launched.REFUSED
    assert (stage.runs()[0]["state"], stage.runs()[0]["verdict"]) == ("failed", "infrastructure")


def test_a_clock_that_goes_forward_or_a_sleep_ends_no_job_at_its_deadline(database_url: str) -> None:
    """A job that is measured has its own, steady time; by the wall's it would be overdue, and its submitter blamed."""
    clock = HandClock()
    steady = [0.0]
    stage = Stage.build(database_url, clock=clock)
    puppet = Puppet(default=RUNNING)
    place = Place(backend=puppet, poll_s=15, patience_s=300)
    daemon = Daemon(stage.store, [place], clock=clock, steady=lambda: steady[0])
    stage.submit()

    def tick(wall_s: float, steady_s: float) -> None:
        clock.go(wall_s)
        steady[0] += steady_s
        daemon.tick()
        stage.wait_until(lambda: not daemon.lanes["puppet"].busy)

    try:
        with overheard() as told:
            tick(0, 0)
            tick(20, 20)
            assert stage.run()["state"] == "running"
            tick(86_400, 1)
            tick(20, 20)
            assert puppet.cancelled == [] and "this machine slept" in told.getvalue()
            (attempt,) = stage.store.attempts.open()
            assert attempt.deadline_at is not None and attempt.deadline_at > clock.now()
            tick(86_400, 86_400)
            tick(20, 20)
            assert puppet.cancelled == [attempt.name], "but a job that really outlives its time is ended"
    finally:
        for lane in daemon.lanes.values():
            lane.close(60)
        stage.close()


def test_a_clock_that_is_set_back_puts_nothing_off(database_url: str) -> None:
    clock = HandClock()
    stage = Stage.build(database_url, clock=clock)
    puppet = Puppet(default=RUNNING)
    daemon = Daemon(stage.store, [Place(backend=puppet, poll_s=15)], clock=clock)
    stage.submit()

    def tick() -> int:
        """Polls so far."""
        daemon.tick()
        stage.wait_until(lambda: not daemon.lanes["puppet"].busy)
        return puppet.calls.count("poll")

    try:
        with overheard() as told:
            tick()
            clock.go(20)
            before = tick()
            assert before == 1
            assert tick() == before, "not yet due"
            clock.go(-7200)
            assert tick() == before + 1
            (lease,) = stage.store.leases.all()
            assert lease.beat_at == clock.now(), "and the lease is kept by the new time"
        assert "the clock was set back" in told.getvalue()
    finally:
        for lane in daemon.lanes.values():
            lane.close(60)
        stage.close()


def test_a_refusal_for_now_is_sent_again_as_the_same_attempt(stage: Stage) -> None:
    class Full(Prompt):
        refusals = 2

        def submit(self, job: JobSpec) -> Handle:
            if self.refusals:
                self.refusals -= 1
                raise BackendRefused(self.name, "too many jobs", permanent=False)
            return super().submit(job)

    with running(Daemon(stage.store, [quick(Full(stage.store))], timing=QUICK)):
        stage.submit(gpus=["A100"])
        stage.wait_until(lambda: stage.open_runs() == 0)
    assert [(run["attempts"], run["verdict"]) for run in stage.runs()] == [(1, "passed")]


def test_cancel_is_for_owner_and_staff_and_reaches_the_running_job(stage: Stage) -> None:
    class Running(Puppet):
        def cancel(self, attempt):  # type: ignore[no-untyped-def]
            super().cancel(attempt)
            self.sightings[attempt.name] = ended(Ending.CANCELLED)

    puppet = Running(name="puppet", slots={"A100": 1}, default=RUNNING)
    bob, grace = stage.person("bob"), stage.person("grace", staff=True)
    with running(Daemon(stage.store, [quick(puppet)], timing=QUICK)):
        first, second = stage.submit(gpus=["A100"]), stage.submit(gpus=["A100"])
        stage.wait_until(lambda: stage.runs()[0]["state"] == "running")
        with pytest.raises(Refused):
            cancel(stage.store.submissions, first.submission_id, bob, stage.clock.now())
        assert cancel(stage.store.submissions, second.submission_id, stage.person("ada"), stage.clock.now()) == 0
        assert cancel(stage.store.submissions, first.submission_id, grace, stage.clock.now()) == 1
        stage.wait_until(lambda: stage.open_runs() == 0)
        assert cancel(stage.store.submissions, first.submission_id, grace, stage.clock.now()) == 0
    assert [(run["state"], run["verdict"]) for run in stage.runs()] == [("cancelled", None)] * 2
    assert len(puppet.cancelled) == 1


def test_a_cancel_comes_before_submissions_and_one_that_is_put_off_is_asked_again(stage: Stage) -> None:
    class Spent(Puppet):
        """A site whose calls for this minute are used up when the first cancel comes."""

        def cancel(self, attempt: OpenAttempt) -> None:
            refused = "cancel" not in self.calls
            super().cancel(attempt)
            if refused:
                raise BackendRefused(self.name, "the site's calls for this minute are used up", permanent=False)
            self.sightings[attempt.name] = ended(Ending.CANCELLED)

    spent = Spent(name="spent", default=RUNNING)
    place = quick(spent)
    for _ in range(2):
        stage.submit(gpus=["A100"])
    launch(stage.store.attempts, place, stage.claim(place), stage.clock.now())
    cancel(stage.store.submissions, SubmissionId(1), None, stage.clock.now())
    with overheard(as_json=True) as told, running(Daemon(stage.store, [place], timing=QUICK)):
        stage.wait_until(lambda: stage.runs()[0]["state"] == "cancelled")
        stage.wait_until(lambda: stage.runs()[1]["state"] == "running")
    assert [call for call in spent.calls if call in ("submit", "cancel")] == ["submit", "cancel", "submit", "cancel"]
    said = [json.loads(line)["what"] for line in told.getvalue().splitlines()]
    assert "end put off" in said and "trouble" not in said


def test_attempts_at_a_place_that_is_not_configured_any_more_wait_or_are_cancelled(stage: Stage) -> None:
    gone = quick(Puppet(name="gone", default=RUNNING))
    receipt = stage.submit(gpus=["A100"])
    attempt = stage.claim(gone)
    prompt = quick(Prompt(stage.store))
    with overheard() as told, running(Daemon(stage.store, [prompt], timing=QUICK)):
        stage.submit(gpus=["A100"])
        stage.wait_until(lambda: stage.open_runs() == 1)
        assert "unknown place backend=gone" in told.getvalue().replace("warning: ", "")
        assert stage.attempt() == attempt
        cancel(stage.store.submissions, receipt.submission_id, stage.person("ada"), stage.clock.now())
        stage.wait_until(lambda: stage.open_runs() == 0)
    assert [run["state"] for run in stage.runs()] == ["cancelled", "scored"]


def test_another_hosts_own_jobs_are_neither_looked_for_nor_sent_again(stage: Stage) -> None:
    """Both have local slots; where the first one's jobs run the second can't look, so to it they aren't missing."""
    here, there = Puppet(name="local@here", default=RUNNING), Puppet(name="local@there")
    with running(Daemon(stage.store, [quick(here)], timing=QUICK)):
        stage.submit(gpus=["A100"])
        stage.wait_until(lambda: stage.run()["state"] == "running")
    daemon = Daemon(stage.store, [quick(there)], timing=dataclasses.replace(QUICK, idle_s=0.1))
    with running(daemon):
        stage.wait_until(lambda: (daemon.metrics.registry.get_sample_value("kbslurm_ticks_total") or 0) > 20)
        assert stage.run()["state"] == "running"
        assert there.calls == []
    (attempt,) = stage.store.attempts.open()
    assert (attempt.backend, attempt.number, attempt.clean_sweeps) == ("local@here", 1, 0)


def test_a_database_that_goes_and_comes_is_waited_for(own_postgres: Embedded) -> None:
    from kbslurm.store import migrate

    migrate.upgrade(own_postgres.url)
    stage = Stage.build(own_postgres.url, clock=WallClock())
    own = PostgresStore(own_postgres.url)
    with overheard() as told, running(Daemon(own, [quick(Prompt(own))], timing=QUICK)):
        stage.submit(by="ada")
        stage.wait_until(lambda: stage.open_runs() == 0)
        own_postgres.stop(immediate=True)
        while "trouble" not in told.getvalue():
            threading.Event().wait(0.05)
        again = Embedded.start(own_postgres.data_dir, fast=True)
        stage.url = again.url
        while "database works again" not in told.getvalue():
            threading.Event().wait(0.05)
        insist(lambda: stage.submit(by="ada"))
        stage.wait_until(lambda: stage.open_runs() == 0)
    assert "Traceback" not in told.getvalue()
    assert [run["verdict"] for run in stage.runs()] == ["passed"] * 2
    stage.close()
    own.close()


def insist(act: Callable[[], object]) -> None:
    """Do it, though a connection that the restart cut may be lent once more."""
    for _ in range(20):
        try:
            act()
            return
        except BackendTrouble:
            continue
    act()


PROGRAM = """
import sys
from kbslurm.observe import logs
from kbslurm.daemon.loop import Daemon
from kbslurm.daemon.signals import stop_on_signals
from kbslurm.store.postgres import PostgresStore
logs.set_up(as_json=True, stream=sys.stdout)
with stop_on_signals() as stop:
    Daemon(PostgresStore(sys.argv[1]), []).run(stop)
"""


def test_sigterm_ends_it_cleanly_and_gives_the_lease_back(stage: Stage, root: Path) -> None:
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, stage.url],
        cwd=root,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ},
    )
    try:
        assert program.stdout is not None
        for line in program.stdout:
            if json.loads(line)["what"] == "leading":
                break
        assert len(stage.rows("SELECT 1 FROM lease")) == 1
        program.send_signal(signal.SIGTERM)
        out, err = program.communicate(timeout=120)
    finally:
        program.kill()
        program.communicate()
    assert (program.returncode, err) == (0, "")
    assert json.loads(out.splitlines()[-1])["what"] == "stopped"
    assert stage.rows("SELECT 1 FROM lease") == []


def test_once_ends_when_nothing_is_left_to_do(stage: Stage) -> None:
    for _ in range(3):
        stage.submit(gpus=["A100"])
    Daemon(stage.store, [quick(Prompt(stage.store))], timing=QUICK).run(threading.Event(), once=True)
    assert [run["verdict"] for run in stage.runs()] == ["passed"] * 3


def test_metrics_are_served_and_name_nobody(stage: Stage) -> None:
    metrics = Metrics()
    stage.submit(by="zuzanna", gpus=["A100", "H100"])
    with MetricsPage(metrics.registry) as page:
        daemon = Daemon(stage.store, [quick(Prompt(stage.store))], timing=QUICK, metrics=metrics)
        with running(daemon):
            stage.wait_until(lambda: stage.open_runs() == 1)
            with urllib.request.urlopen(f"http://127.0.0.1:{page.port}/metrics", timeout=60) as answer:
                text = answer.read().decode()
    assert 'kbslurm_runs_waiting{gpu="H100"} 1.0' in text
    assert 'kbslurm_claims_total{backend="prompt",gpu="A100"} 1.0' in text
    assert "kbslurm_leading 1.0" in text
    assert "zuzanna" not in text


def test_a_reader_gets_every_event_at_least_once_and_goes_on_where_it_was(stage: Stage) -> None:
    events = stage.store.events
    stage.submit()
    told: list[dict[str, Any]] = []
    token = None

    def deal_with(line: dict[str, Any]) -> None:
        told.append(line)
        if len(told) == 2:
            raise ConnectionError("the chat server went away")

    def read() -> None:
        nonlocal token
        for event in announce.next_events(events, announce.place_of(events, token)):
            deal_with(line := announce.as_json(event))
            token = line["token"]

    with pytest.raises(ConnectionError):
        read()
    read()
    every = [announce.as_json(event) for event in events.after(EventId(0))]
    assert [*told[:1], *told[2:]] == every and told[1] == told[2]
    told.clear()
    read()
    assert told == []
    assert announce.place_of(events, announce.NEWEST) == EventId(int(every[-1]["token"][1:]))
    with pytest.raises(Invalid, match="isn't a token of this feed"):
        announce.place_of(events, "e999999")
