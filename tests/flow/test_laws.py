"""One or more tests per law; each fails when its law is broken. Law 7 is the Slurm backend's own floor."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from kbslurm.daemon.clock import WallClock
from kbslurm.daemon.loop import Daemon
from kbslurm.domain.run import AttemptId, Ending, Handle, RunState
from kbslurm.errors import BackendRefused, BackendUnclear
from kbslurm.flow import render
from kbslurm.flow.collect import AttemptNotes, collect
from kbslurm.flow.launch import Launched, launch
from kbslurm.flow.place import Place
from kbslurm.flow.score import Scored, give_up, score
from kbslurm.flow.sweep import sweep
from kbslurm.observe import logs
from kbslurm.ports import JobSpec
from kbslurm.store.events import Events
from kbslurm.store.postgres import PostgresStore
from tests.flow.puppet import ABSENT, RUNNING, UNKNOWN, Puppet, ended, sealed_report
from tests.flow.stage import QUICK, HandClock, Stage, overheard, running


@pytest.fixture
def stage(database_url: str) -> Iterator[Stage]:
    built = Stage.build(database_url)
    yield built
    built.close()


@pytest.fixture
def puppet() -> Puppet:
    return Puppet()


@pytest.fixture
def place(puppet: Puppet) -> Place:
    return Place(backend=puppet, grace_s=10, sweep_gap_s=25, patience_s=600, stray_s=3600)


def now_of(stage: Stage) -> HandClock:
    assert isinstance(stage.clock, HandClock)
    return stage.clock


def launched(stage: Stage, place: Place) -> None:
    assert launch(stage.store.attempts, place, stage.claim(place), stage.clock.now()) is Launched.SUBMITTED


# ------------------------------------------------------------------------------------------- 1: one verdict per run


def test_law_1_a_second_report_is_kept_and_never_scored(stage: Stage, place: Place) -> None:
    stage.submit()
    launched(stage, place)
    attempt, now = stage.attempt(), stage.clock.now()
    work = stage.store.attempts.work(attempt.id)
    assert score(stage.store, attempt, sealed_report(work), now) is Scored.VERDICT
    assert score(stage.store, attempt, sealed_report(work, verdict="wrong", phases=[]), now) is Scored.STALE
    assert (stage.run()["state"], stage.run()["verdict"]) == ("scored", "passed")
    assert len(stage.rows("SELECT 1 FROM stale_report")) == 1
    assert len(stage.rows("SELECT 1 FROM event WHERE kind = 'run.scored'")) == 1


@pytest.mark.parametrize(("wanted", "ranks"), [(2, True), (3, False)])
def test_what_may_rank_from_a_place_is_the_places_to_say(stage: Stage, wanted: int, ranks: bool) -> None:
    puppet = Puppet()
    place = Place(backend=puppet, grace_s=0, ranked_min_isolation=wanted)
    stage.submit(mode="leaderboard")
    launched(stage, place)
    attempt = stage.attempt()
    puppet.sightings[attempt.name] = ended(Ending.REPORTED)
    puppet.reports[attempt.name] = sealed_report(stage.store.attempts.work(attempt.id))  # at level 2
    collect(stage.store, place, stage.store.attempts.open(), AttemptNotes(), stage.clock.now())
    assert (stage.run()["verdict"], stage.run()["ranked"]) == ("passed", ranks)


def test_law_1_a_late_report_of_a_dead_node_is_evidence_and_no_score(stage: Stage, place: Place) -> None:
    stage.submit()
    launched(stage, place)
    old, now = stage.attempt(), stage.clock.now()
    late = sealed_report(stage.store.attempts.work(old.id), verdict="wrong", phases=[])
    give_up(stage.store.attempts, old, Ending.NODE_FAILURE, "Slurm says so", now)
    launched(stage, place)
    new = stage.attempt()
    assert (new.run_id, new.number) == (old.run_id, 2)
    assert score(stage.store, old, late, now) is Scored.STALE
    assert stage.run()["state"] == "launching"
    assert score(stage.store, new, sealed_report(stage.store.attempts.work(new.id)), now) is Scored.VERDICT
    (won,) = stage.rows("SELECT a.number, v.name FROM verdict v JOIN attempt a ON a.id = v.attempt_id")
    assert (won["number"], won["name"]) == (2, "passed")


def test_law_1_what_a_dead_attempt_reports_later_is_looked_for_and_kept(stage: Stage) -> None:
    puppet, clock = Puppet(), now_of(stage)
    place = Place(backend=puppet, grace_s=0)
    stage.submit()
    launched(stage, place)
    old, notes = stage.attempt(), AttemptNotes()
    for sighting in (RUNNING, ended(Ending.NODE_FAILURE)):
        puppet.sightings[old.name] = sighting
        collect(stage.store, place, stage.store.attempts.open(), notes, clock.now())
    assert stage.run()["state"] == "queued"
    hour = timedelta(hours=1)
    assert [dead.id for dead in stage.store.attempts.lately_dead(clock.now() - hour)] == [old.id]
    puppet.reports[old.name] = sealed_report(stage.store.attempts.work(old.id))
    clock.go(60)
    daemon = Daemon(stage.store, [place], clock=clock, timing=QUICK)
    daemon.tick()
    daemon.lanes["puppet"].close(60)
    (kept,) = stage.rows("SELECT attempt_id FROM stale_report")
    assert kept["attempt_id"] == old.id
    assert stage.rows("SELECT 1 FROM verdict") == []
    assert stage.store.attempts.lately_dead(clock.now() - hour) == []


# ------------------------------------------------------------------------------------------ 2: intent before effect


def test_law_2_the_row_is_committed_before_the_backend_hears_of_it(stage: Stage, puppet: Puppet, place: Place) -> None:
    seen: list[dict[str, object]] = []

    def look(job: JobSpec) -> Handle:
        seen.extend(stage.rows("SELECT state, number FROM attempt WHERE name = %s", job.name))
        return Handle("7")

    puppet.on_submit = look
    stage.submit()
    launched(stage, place)
    assert seen == [{"state": "intent", "number": 1}]


@pytest.mark.parametrize("error", [BackendUnclear("puppet", "Socket timed out"), OSError("fork failed")])
def test_law_2_an_unclear_answer_is_sent_again_only_after_two_clean_sweeps(
    stage: Stage, puppet: Puppet, place: Place, error: Exception
) -> None:
    def unclear(job: JobSpec) -> Handle:
        raise error

    puppet.on_submit = unclear
    stage.submit()
    attempt = stage.claim(place)
    assert launch(stage.store.attempts, place, attempt, stage.clock.now()) is Launched.AMBIGUOUS
    notes, clock = AttemptNotes(), now_of(stage)
    for answer, seconds, sweeps in [(UNKNOWN, 0, 0), (UNKNOWN, 30, 0), (ABSENT, 30, 1), (ABSENT, 24, 1)]:
        puppet.default = answer
        clock.go(seconds)
        sweep(stage.store.attempts, place, stage.store.attempts.open(), notes, clock.now())
        assert (stage.attempt().clean_sweeps, notes.unsent, len(puppet.submitted)) == (sweeps, {}, 1)
    clock.go(1)
    sweep(stage.store.attempts, place, stage.store.attempts.open(), notes, clock.now())
    assert list(notes.unsent) == [attempt.id]
    puppet.on_submit = None
    assert launch(stage.store.attempts, place, stage.attempt(), clock.now()) is Launched.SUBMITTED
    first, second = puppet.submitted
    assert first == second
    assert len(stage.rows("SELECT 1 FROM attempt")) == 1


def test_law_2_an_intent_of_a_dead_daemon_is_adopted_when_its_job_is_found(
    stage: Stage, puppet: Puppet, place: Place
) -> None:
    stage.submit()
    attempt = stage.claim(place)
    puppet.sightings[attempt.name] = ended(handle=Handle("42"))
    sweep(stage.store.attempts, place, stage.store.attempts.open(), AttemptNotes(), stage.clock.now())
    assert (stage.attempt().handle, stage.attempt().state, puppet.submitted) == ("42", "submitted", [])


# --------------------------------------------------------------------------------- 3: nothing acknowledged is lost

ACCEPTING = """
import sys
from datetime import UTC, datetime
from kbslurm.flow.submit import accept
from kbslurm.store.postgres import PostgresStore
accept(PostgresStore(sys.argv[1]).intake, int(sys.argv[2]), "board", "s.py", "x = 1", "test", (), datetime.now(UTC))
"""


@pytest.mark.parametrize(("place_of_death", "kept"), [("accept.before_commit", 0), ("accept.after_commit", 1)])
def test_law_3_a_submission_is_all_there_or_was_never_acknowledged(
    stage: Stage, root: Path, place_of_death: str, kept: int
) -> None:
    person = stage.person()
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(ACCEPTING), stage.url, str(person)],
        env={**os.environ, "KBSLURM_PROBE": place_of_death},
        cwd=root,
        timeout=120,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL
    counts = [
        len(stage.rows(f"SELECT 1 FROM {what}")) for what in ("submission", "run", "event WHERE kind = 'run.queued'")
    ]
    assert counts == [kept] * 3


# ------------------------------------------------------------------------------------------ 4: missing isn't finished


def test_law_4_a_missing_unknown_or_unreachable_job_changes_nothing(stage: Stage, puppet: Puppet, place: Place) -> None:
    stage.submit()
    launched(stage, place)
    before, notes, clock = stage.attempt(), AttemptNotes(), now_of(stage)
    for _ in range(5):
        clock.go(86_400)
        collect(stage.store, place, stage.store.attempts.open(), notes, clock.now())
        sweep(stage.store.attempts, place, stage.store.attempts.open(), notes, clock.now())
    assert stage.attempt() == before
    puppet.default = ABSENT
    collect(stage.store, place, stage.store.attempts.open(), notes, clock.now())
    assert (stage.attempt().state, stage.run()["state"]) == ("submitted", "launching")


def test_law_4_a_report_is_stronger_than_a_controller_that_is_away(stage: Stage, puppet: Puppet, place: Place) -> None:
    from kbslurm.errors import BackendTrouble

    stage.submit()
    launched(stage, place)
    attempt = stage.attempt()
    puppet.trouble = True
    puppet.reports[attempt.name] = sealed_report(stage.store.attempts.work(attempt.id))
    with pytest.raises(BackendTrouble):
        collect(stage.store, place, [attempt], AttemptNotes(), stage.clock.now())
    assert stage.run()["verdict"] == "passed"


def test_law_4_an_end_without_a_report_waits_for_the_late_report(stage: Stage, puppet: Puppet, place: Place) -> None:
    stage.submit()
    launched(stage, place)
    attempt, notes, clock = stage.attempt(), AttemptNotes(), now_of(stage)
    puppet.sightings[attempt.name] = ended(Ending.NODE_FAILURE)
    for seconds in (0, 9):
        clock.go(seconds)
        assert collect(stage.store, place, [attempt], notes, clock.now()) == 0
    puppet.reports[attempt.name] = sealed_report(stage.store.attempts.work(attempt.id))
    assert collect(stage.store, place, [attempt], notes, clock.now()) == 1
    assert stage.run()["verdict"] == "passed"


# --------------------------------------------------------------------------------------------------- 5: retry by class


@pytest.mark.parametrize(
    ("ending", "attempts", "state", "verdict"),
    [
        (Ending.NODE_FAILURE, 3, "failed", "infrastructure"),
        (Ending.PREEMPTED, 3, "failed", "infrastructure"),
        (Ending.IMAGE, 3, "failed", "infrastructure"),
        (Ending.NO_REPORT, 3, "failed", "infrastructure"),
        (Ending.REPORTED, 3, "failed", "infrastructure"),  # it said so, and nothing was there
        (Ending.TIMEOUT, 1, "scored", "timeout"),
        (Ending.MEMORY, 1, "scored", "memory"),
        (Ending.CHECK_DIED, 1, "scored", "wrong"),
    ],
)
def test_law_5_only_what_is_nobodys_fault_is_tried_again(
    stage: Stage, puppet: Puppet, place: Place, ending: Ending, attempts: int, state: str, verdict: str
) -> None:
    stage.submit()
    for number in range(1, attempts + 1):
        assert stage.run()["state"] == RunState.QUEUED
        launched(stage, place)
        attempt, notes, clock = stage.attempt(), AttemptNotes(), now_of(stage)
        assert attempt.number == number
        puppet.sightings[attempt.name] = ended(ending)
        collect(stage.store, place, [attempt], notes, clock.now())
        clock.go(11)
        assert collect(stage.store, place, [attempt], notes, clock.now()) == 1
    run = stage.run()
    assert (run["state"], run["verdict"], run["attempts"]) == (state, verdict, attempts)
    assert run["verdict_reason"]


@pytest.mark.parametrize("reported", [False, True])
def test_law_5_a_node_is_blamed_for_a_job_that_was_over_before_it_was_seen(
    stage: Stage, puppet: Puppet, place: Place, reported: bool
) -> None:
    for person in ("ada", "boris", "chidi"):
        receipt = stage.submit(by=person)
        launched(stage, place)
        attempt = stage.attempt()
        puppet.sightings[attempt.name] = ended(Ending.NODE_FAILURE, node="black-hole")
        if reported:
            work = stage.store.attempts.work(attempt.id)
            puppet.reports[attempt.name] = sealed_report(work, verdict="infrastructure", reason="the device is gone")
        notes = AttemptNotes()
        collect(stage.store, place, [attempt], notes, stage.clock.now())
        now_of(stage).go(11)
        collect(stage.store, place, stage.store.attempts.open(), notes, stage.clock.now())
        stage.store.submissions.cancel(receipt.submission_id, None, stage.clock.now())
    stage.submit(by="dana")
    assert stage.store.attempts.work(stage.claim(place).id).avoid_nodes == ("black-hole",)


def test_law_5_a_refusal_for_ever_fails_at_once_and_one_for_now_waits(
    stage: Stage, puppet: Puppet, place: Place
) -> None:
    def refused(job: JobSpec) -> Handle:
        raise BackendRefused("puppet", "no such partition" if permanent else "too many jobs", permanent=permanent)

    permanent, puppet.on_submit = False, refused
    stage.submit()
    attempt = stage.claim(place)
    assert launch(stage.store.attempts, place, attempt, stage.clock.now()) is Launched.LATER
    assert stage.attempt().state == "intent"
    permanent = True
    assert launch(stage.store.attempts, place, attempt, stage.clock.now()) is Launched.REFUSED
    run = stage.run()
    assert (run["state"], run["verdict"], run["attempts"]) == ("failed", "infrastructure", 1)
    assert "no such partition" in run["verdict_reason"]


def test_law_5_a_job_past_its_deadline_is_ended_first_and_timed_out_on_evidence(
    stage: Stage, puppet: Puppet, place: Place
) -> None:
    stage.submit()
    launched(stage, place)
    notes, clock = AttemptNotes(), now_of(stage)
    attempt = stage.attempt()
    puppet.sightings[attempt.name] = RUNNING
    collect(stage.store, place, [attempt], notes, clock.now())
    assert attempt.deadline_at is not None
    clock.at = attempt.deadline_at + timedelta(seconds=1)
    attempt = stage.attempt()
    assert attempt.started_at is not None
    sweep(stage.store.attempts, place, [attempt], notes, clock.now())
    assert (puppet.cancelled, stage.run()["state"]) == ([attempt.name], "running")
    puppet.sightings[attempt.name] = ended(Ending.CANCELLED)
    collect(stage.store, place, [attempt], notes, clock.now())
    clock.go(11)
    collect(stage.store, place, [attempt], notes, clock.now())
    assert (stage.run()["state"], stage.run()["verdict"]) == ("scored", "timeout")


# ------------------------------------------------------------------------------------ 6: JSON only, strict and sealed


class Loud:
    """What must never be unpickled."""

    def __reduce__(self) -> tuple[Callable[[int], None], tuple[int]]:
        return os._exit, (99,)


def bad_reports(good: bytes, forged: bytes, other: bytes) -> dict[str, bytes]:
    outer = json.loads(good)
    return {
        "empty": b"",
        "pickle": pickle.dumps(Loud()),
        "forged": forged,
        "of another run": other,
        "unsealed": outer["report"].encode(),
        "changed after the seal": json.dumps({**outer, "report": outer["report"].replace("passed", "failed")}).encode(),
        "with a field too many": json.dumps({**outer, "score": 0}).encode(),
        "nan": b'{"report": NaN, "mac": ""}',
        "huge": b"[" * 9_000_000,
    }


def test_law_6_a_report_that_is_not_this_attempts_own_never_scores(stage: Stage, puppet: Puppet, place: Place) -> None:
    for kind in bad_reports(b'{"report": "", "mac": ""}', b"", b""):
        stage.submit(by=kind.replace(" ", ""))
        launched(stage, place)
        attempt = stage.attempt()
        work = stage.store.attempts.work(attempt.id)
        good = sealed_report(work)
        bad = bad_reports(good, sealed_report(work, key=b"another"), sealed_report(work, nonce="other"))[kind]
        puppet.reports[attempt.name] = bad
        puppet.sightings[attempt.name] = ended()
        assert collect(stage.store, place, [attempt], AttemptNotes(), stage.clock.now()) == 1
        (row,) = stage.rows("SELECT state, ending, reason FROM attempt WHERE id = %s", attempt.id)
        assert (row["state"], row["ending"]) == ("dead", "bad_report"), kind
        assert work.nonce not in row["reason"]
        stage.store.submissions.cancel(work.submission_id, None, stage.clock.now())
    assert stage.rows("SELECT 1 FROM verdict") == []


# --------------------------------------------------------------------------------- 8: work is a predicate over rows


class Deaf(Events):
    """Events that nobody is told of."""

    def wait(self, timeout_s: float) -> bool:
        threading.Event().wait(timeout_s)
        return False


class Prompt(Puppet):
    """A puppet whose every job is over with a passing report as soon as it is looked at."""

    def __init__(self, store: PostgresStore) -> None:
        super().__init__()
        self.store = store
        self.default = ended()

    def submit(self, job: JobSpec) -> Handle:
        handle = super().submit(job)
        (attempt,) = [a for a in self.store.attempts.open() if a.name == job.name]
        self.reports[job.name] = sealed_report(self.store.attempts.work(attempt.id))
        return handle


def test_law_8_no_message_is_needed(database_url: str) -> None:
    stage = Stage.build(database_url, clock=WallClock())
    deaf = PostgresStore(database_url)
    deaf.events = Deaf(deaf._pool, deaf._listener)
    prompt = Prompt(stage.store)
    with running(Daemon(deaf, [Place(backend=prompt, poll_s=0.2)], timing=QUICK)):
        stage.submit()
        stage.wait_until(lambda: stage.open_runs() == 0)
    assert stage.run()["verdict"] == "passed"
    stage.close()
    deaf.close()


def test_law_8_a_standby_takes_over_and_finds_what_the_leader_left(database_url: str) -> None:
    """The first leader dies without a word (its lease runs out) with an attempt claimed and one in flight."""
    stage = Stage.build(database_url, clock=WallClock())
    puppet = Prompt(stage.store)
    place = Place(backend=puppet, poll_s=0.2, sweep_gap_s=0.2)
    store = stage.store
    assert store.leases.hold("daemon", "the dead one", 3.0, stage.clock.now())
    stage.submit(by="ada")
    launched(stage, place)
    stage.submit(by="bob")
    lost = stage.claim(place)
    puppet.sightings[lost.name] = ABSENT
    stage.submit(by="eve")
    second = PostgresStore(database_url)
    standby = Daemon(second, [place], timing=QUICK)
    standby.tick()
    assert standby.leading is False
    assert stage.open_runs() == 3
    with running(standby):
        stage.wait_until(lambda: len(puppet.submitted) == 3)
        puppet.sightings.clear()
        stage.wait_until(lambda: stage.open_runs() == 0)
    assert [run["attempts"] for run in stage.runs()] == [1, 1, 1]
    assert [run["verdict"] for run in stage.runs()] == ["passed"] * 3
    stage.close()
    second.close()


def test_law_8_an_idle_daemon_leaves_its_backends_in_peace(database_url: str) -> None:
    stage = Stage.build(database_url, clock=WallClock())
    puppet = Prompt(stage.store)
    daemon = Daemon(stage.store, [Place(backend=puppet, poll_s=0.01, sweep_gap_s=0.01)], timing=QUICK)
    with running(daemon):
        stage.submit()
        stage.wait_until(lambda: stage.open_runs() == 0)
        calls = list(puppet.calls)
        ticks = daemon.metrics.registry.get_sample_value("kbslurm_ticks_total") or 0
        stage.wait_until(lambda: (daemon.metrics.registry.get_sample_value("kbslurm_ticks_total") or 0) > ticks + 3)
    assert puppet.calls == calls
    stage.close()


# ------------------------------------------------------------------------------------------------ 9: no secrets leak


def test_law_9_events_logs_and_jobs_hold_no_secrets(stage: Stage, puppet: Puppet, place: Place) -> None:
    with overheard() as log:
        told = a_ranked_walk_told(stage, puppet, place) + log.getvalue()
    work = stage.store.attempts.work(AttemptId(1))
    assert "scored run=1" in told
    for secret in (work.secret_seed, work.nonce, work.key.hex(), "hidden case", "source of all", "zuzanna"):
        assert secret not in told


def a_ranked_walk_told(stage: Stage, puppet: Puppet, place: Place) -> str:
    stage.submit("SOURCE = 'the source of all'", by="zuzanna", mode="leaderboard")
    launched(stage, place)
    attempt = stage.attempt()
    work = stage.store.attempts.work(attempt.id)
    (kept,) = stage.rows("SELECT secret_seed FROM run")
    puppet.reports[attempt.name] = sealed_report(work, secret_log="the hidden case's inputs", log="hello")
    puppet.sightings[attempt.name] = ended()
    collect(stage.store, place, [attempt], AttemptNotes(), stage.clock.now())
    assert stage.run()["ranked"]
    (job,) = puppet.submitted
    assert job == render.job(work, place)
    assert work.key.hex() not in job.manifest
    assert work.person not in job.manifest
    told = stage.rows("SELECT kind, subject, data FROM event")
    assert kept["secret_seed"] not in str(told)
    return json.dumps(told)


def test_law_9_the_log_blanks_what_slips_into_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISCORD_TOKEN", "hush-hush-hush")
    said = logs.without_secrets("postgresql://kb:pass.word@host/db and hush-hush-hush")
    assert said == "postgresql://kb:***@host/db and ***"
