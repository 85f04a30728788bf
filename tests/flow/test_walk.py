"""The whole walk for real, on this machine: all eight rooms, a real Postgres, real processes, the real harness."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbslurm.backends.local.backend import LocalBackend
from kbslurm.config import shared_folders
from kbslurm.daemon.clock import WallClock
from kbslurm.daemon.loop import Daemon
from kbslurm.domain.run import EventId, PersonId, Seen
from kbslurm.domain.waterfall import Stamps, moment, waterfall
from kbslurm.errors import (
    DeadlinePassed,
    Invalid,
    KbslurmError,
    NotAccepting,
    NotFound,
    Refused,
    TooLarge,
)
from kbslurm.flow import announce
from kbslurm.flow.cancel import cancel
from kbslurm.flow.place import Place
from kbslurm.flow.submit import accept
from kbslurm.ports import Receipt
from kbslurm.problems import loading
from tests.flow.stage import QUICK, START, HandClock, Stage, running

EXAMPLES = shared_folders.path("examples")
TRANSPOSE = EXAMPLES / "transpose"


def local(tmp_path: Path, *gpus: str, eval_dir: Path | None = None) -> Place:
    """This machine, one slot per GPU type."""
    backend = LocalBackend(
        tmp_path / "attempts", dict.fromkeys(gpus, 1), eval_dir or shared_folders.eval_dir(), Path(sys.executable)
    )
    return Place(backend=backend, poll_s=1.0, grace_s=0.0, sweep_gap_s=0.2, patience_s=300.0)


@pytest.fixture
def stage(database_url: str) -> Iterator[Stage]:
    built = Stage.build(
        database_url, problem=loading.load(TRANSPOSE), gpus=("H100", "A100"), clock=WallClock(), board="transpose"
    )
    yield built
    built.close()


def submit(stage: Stage, file: str, gpu: str, by: str = "ada") -> Receipt:
    text = (TRANSPOSE / "submissions" / file).read_text()
    return stage.submit(text, by=by, mode="leaderboard", gpus=[gpu])


def test_an_accepted_and_a_wrong_submission_walk_through_all_rooms(stage: Stage, tmp_path: Path) -> None:
    good = submit(stage, "accepted/columns.py", "H100")
    bad = submit(stage, "wrong_answer/square_only.py", "A100", by="bob")
    place = local(tmp_path, "H100", "A100")
    with running(Daemon(stage.store, [place], timing=QUICK)):
        stage.wait_until(lambda: stage.open_runs() == 0)
    first, second = stage.runs()
    assert (first["state"], first["verdict"], first["attempts"]) == ("scored", "passed", 1), first
    assert (second["state"], second["verdict"], second["attempts"]) == ("scored", "wrong", 1), second
    assert first["score_s"] > 0
    assert second["score_s"] is None
    told = [(event.kind, event.subject) for event in announce.next_events(stage.store.events, EventId(0))]
    for receipt in (good, bad):
        subject = f"run:{receipt.run_ids[0]}"
        kinds = [kind for kind, about in told if about == subject]
        assert [kind for kind in kinds if kind != "run.running"] == [
            "run.queued", "run.launching", "attempt.submitted", "run.scored",
        ]  # fmt: skip
    stages = stage_names(stage, good.run_ids[0])
    assert stages[:2] == ["queue", "launch"]
    assert stages[-1] == "score"
    assert list(place.backend.poll([])) == []


def stage_names(stage: Stage, run: int) -> list[str]:
    (row,) = stage.rows(
        "SELECT s.accepted_at, a.opened_at, a.submitted_at, a.telemetry, v.at FROM run JOIN submission s"
        " ON s.id = run.submission_id JOIN verdict v ON v.run_id = run.id JOIN attempt a ON a.id = v.attempt_id"
        " WHERE run.id = %s",
        run,
    )
    return [
        step.name
        for step in waterfall(
            Stamps(
                accepted_at=row["accepted_at"],
                claimed_at=row["opened_at"],
                submitted_at=row["submitted_at"],
                harness_started_at=moment(row["telemetry"]["harness_started_at_ns"]),
                harness_ended_at=moment(row["telemetry"]["harness_ended_at_ns"]),
                scored_at=row["at"],
            )
        )
    ]


def test_cancel_ends_the_running_harness(stage: Stage, tmp_path: Path) -> None:
    place = local(tmp_path, "H100")
    with running(Daemon(stage.store, [place], timing=QUICK)):
        receipt = submit(stage, "timeout/never_ends.py", "H100")
        stage.wait_until(lambda: stage.run()["state"] == "running")
        (attempt,) = stage.store.attempts.open()
        assert cancel(stage.store.submissions, receipt.submission_id, stage.person("ada"), stage.clock.now()) == 1
        stage.wait_until(lambda: stage.open_runs() == 0)
    assert (stage.run()["state"], stage.run()["verdict"]) == ("cancelled", None)
    assert place.backend.find(attempt.name).seen is Seen.ENDED


# -------------------------------------------------------------------------------------------- what accept refuses


def refusals() -> list[tuple[str, dict[str, object], type[KbslurmError], str]]:
    return [
        ("empty", {"text": b" \n"}, Invalid, "empty"),
        ("huge", {"text": b"x" * 1_000_001}, TooLarge, "1,000,001 bytes"),
        ("not text", {"text": b"x = '\xff'"}, Invalid, "isn't UTF-8 (line 1)"),
        ("suffix", {"file_name": "kernel.txt"}, Invalid, "must end in"),
        ("language", {"file_name": "kernel.cu"}, Invalid, "accepts .py"),
        ("board", {"board": "nowhere"}, NotFound, "no board 'nowhere'"),
        ("no board", {"board": None}, Invalid, "no leaderboard given"),
        ("conflict", {"text": b"#!POPCORN leaderboard other\nx = 1\n"}, Invalid, "but you chose board"),
        ("gpu", {"gpus": ["T4"]}, NotFound, "no GPU 'T4'"),
        ("look-alike gpu", {"gpus": ["Н100"]}, NotFound, "no GPU"),
        ("mode", {"mode": "profile"}, Invalid, "no profile mode"),
        ("stranger", {"person": PersonId(999_999)}, NotFound, "no person"),
    ]


def test_accept_refuses_in_one_clear_sentence_and_stores_nothing(database_url: str) -> None:
    problem = loading.load(TRANSPOSE)
    problem = type(problem)(**{**problem.__dict__, "modes": ("test", "benchmark", "leaderboard")})
    stage = Stage.build(database_url, problem=problem, gpus=("H100",))
    ada = stage.person("ada")
    for name, wrong, kind, sentence in refusals():
        asked = {
            "person": ada, "board": "board", "file_name": "s.py", "text": b"x = 1", "mode": "test", "gpus": ["h100"],
        }  # fmt: skip
        with pytest.raises(kind) as caught:
            accept(stage.store.intake, now=START, **{**asked, **wrong})  # type: ignore[arg-type]
        assert sentence in caught.value.message, name
        assert "\n" not in caught.value.message
        assert caught.value.hint or name in {"empty", "language", "stranger"}, name
    assert stage.rows("SELECT 1 FROM submission") == []
    receipt = accept(
        stage.store.intake, ada, None, "s.py", "#!POPCORN leaderboard Board\n#!POPCORN gpu H100\n", "test", (), START
    )
    assert len(receipt.run_ids) == 1
    stage.close()


def test_accept_knows_deadlines_bans_and_pauses(database_url: str) -> None:
    from datetime import timedelta

    clock = HandClock()
    stage = Stage.build(database_url, clock=clock, deadline_at=START + timedelta(hours=1))
    stage.person("grace", staff=True)
    clock.go(3600)
    stage.submit()
    clock.go(1)
    with pytest.raises(DeadlinePassed, match=r"board board closed on 2026-05-01 13:00 \(UTC\)"):
        stage.submit()
    stage.submit(by="grace")
    clock.go(-2)
    stage.store.settings.set_accepts_jobs(False)
    with pytest.raises(NotAccepting):
        stage.submit()
    stage.store.settings.set_accepts_jobs(True)
    stage.store.people.ban(stage.person("ada"), "forged results")
    with pytest.raises(Refused, match="forged results"):
        stage.submit()
    assert len(stage.runs()) == 2
    assert len(stage.store.events.after(EventId(0))) >= 2
    stage.close()
