"""The whole walk with Modal: accepted here, judged by the true harness on the loopback platform, scored here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from kbslurm import wiring
from kbslurm.config import settings, shared_folders
from kbslurm.daemon.clock import WallClock
from kbslurm.daemon.loop import Daemon
from kbslurm.domain.run import AttemptState
from kbslurm.flow.cancel import cancel
from kbslurm.flow.collect import AttemptNotes
from kbslurm.flow.launch import Launched, launch
from kbslurm.flow.place import Place
from kbslurm.flow.sweep import sweep
from kbslurm.problems import loading
from tests.command_line import CommandLine
from tests.fakes.modal import TOKEN, FakeModal
from tests.flow.stage import QUICK, Stage, running

TRANSPOSE = shared_folders.path("examples") / "transpose"
TOML = """\
[modal]
app = "kernels"
min_isolation = 0
poll_s = 0.1
[modal.gpus.H100]
slots = 2
timeout_s = 3600
"""


@pytest.fixture
def stage(database_url: str) -> Iterator[Stage]:
    built = Stage.build(
        database_url, problem=loading.load(TRANSPOSE), gpus=("H100",), clock=WallClock(), board="transpose"
    )
    yield built
    built.close()


@pytest.fixture
def modal(tmp_path: Path) -> Iterator[FakeModal]:
    """The platform, with what `kbslurm modal deploy` would have deployed."""
    (tmp_path / "kbslurm.toml").write_text(TOML)
    found = settings.load(env={}, cwd=tmp_path)
    wiring.modal_folder(found, wiring.modal_facts(found), tmp_path / "app")
    with FakeModal(tmp_path / "app") as fake:
        yield fake


def environment(modal: FakeModal) -> dict[str, str]:
    return {"MODAL_TOKEN_ID": TOKEN[0], "MODAL_TOKEN_SECRET": TOKEN[1], "MODAL_SERVER_URL": modal.url}


@pytest.fixture
def place(modal: FakeModal, tmp_path: Path) -> Iterator[Place]:
    found = wiring.modal_place(settings.load(env=environment(modal), cwd=tmp_path))
    assert found.role == "overflow"
    yield replace(found, role="home")  # there is no other here; when runs overflow is the policy's own test
    found.backend.close()  # type: ignore[attr-defined]


def submit(stage: Stage, file: str, **told: Any) -> Any:
    return stage.submit((TRANSPOSE / "submissions" / file).read_text(), gpus=["H100"], **told)


def test_runs_go_to_modal_and_come_back_with_verdicts(stage: Stage, modal: FakeModal, place: Place) -> None:
    submit(stage, "accepted/columns.py", mode="leaderboard")
    submit(stage, "wrong_answer/square_only.py", by="bob")
    with running(Daemon(stage.store, [place], timing=QUICK)):
        stage.wait_until(lambda: stage.open_runs() == 0)
    first, second = stage.runs()
    assert (first["state"], first["verdict"], first["attempts"]) == ("scored", "passed", 1), first
    assert (second["state"], second["verdict"], second["attempts"]) == ("scored", "wrong", 1), second
    for attempt in stage.rows("SELECT * FROM attempt"):
        assert attempt["handle"].startswith("fc-") and attempt["node"].startswith("ta-")
        assert attempt["telemetry"]["host"]["image_digest"] == "im-loopback"
        assert attempt["telemetry"]["host"]["image_seen"] == "record"
    assert len(modal.calls) == 2


def test_an_attempt_whose_id_was_lost_waits_until_it_cant_run_and_has_one_verdict(
    stage: Stage, modal: FakeModal, place: Place
) -> None:
    """At worst one run is wasted; and nobody is told twice."""
    submit(stage, "accepted/slices.py")
    notes, now = AttemptNotes(), stage.clock.now()
    modal.lose("FunctionMap")
    assert launch(stage.store.attempts, place, stage.claim(place), now) is Launched.AMBIGUOUS
    for _ in range(3):
        now += timedelta(seconds=60)
        sweep(stage.store.attempts, place, stage.store.attempts.open(), notes, now)
        assert (stage.attempt().state, stage.attempt().clean_sweeps, notes.unsent) == (AttemptState.AMBIGUOUS, 0, {})
    stage.wait_until(lambda: all(call.output for call in modal.calls.values()))
    later = place.patience_s + 3_600.0 + 180.0
    place.backend._now = lambda: stage.clock.now().timestamp() + later  # type: ignore[attr-defined]
    for _ in range(2):
        now += timedelta(seconds=later)
        sweep(stage.store.attempts, place, stage.store.attempts.open(), notes, now)
    assert (stage.attempt().state, list(notes.unsent)) == (AttemptState.INTENT, [stage.attempt().id])
    assert launch(stage.store.attempts, place, stage.attempt(), stage.clock.now()) is Launched.SUBMITTED
    with running(Daemon(stage.store, [place], timing=QUICK)):
        stage.wait_until(lambda: stage.open_runs() == 0)
    assert (stage.run()["verdict"], stage.run()["attempts"], len(modal.calls)) == ("passed", 1, 2)
    assert len(stage.rows("SELECT * FROM verdict")) == 1
    assert stage.rows("SELECT * FROM stale_report") == []


def test_a_result_that_nobody_can_trust_is_tried_again(stage: Stage, modal: FakeModal, place: Place) -> None:
    modal.spoil("hostile")
    submit(stage, "accepted/slices.py")
    with running(Daemon(stage.store, [place], timing=QUICK)):
        stage.wait_until(lambda: stage.open_runs() == 0)
    assert (stage.run()["verdict"], stage.run()["attempts"]) == ("passed", 2)
    assert not (modal.app / "pwned").exists()


def test_a_cancel_ends_the_container(stage: Stage, modal: FakeModal, place: Place) -> None:
    receipt = submit(stage, "timeout/never_ends.py")
    with running(Daemon(stage.store, [place], timing=QUICK)):
        stage.wait_until(lambda: stage.run()["state"] == "running")
        (call,) = modal.calls.values()
        stage.wait_until(lambda: call.tmp is not None and bool(list(call.tmp.glob("kb-*"))))
        assert cancel(stage.store.submissions, receipt.submission_id, stage.person("ada"), stage.clock.now()) == 1
        stage.wait_until(lambda: stage.open_runs() == 0)
    assert stage.run()["state"] == "cancelled"
    assert call.process is not None and call.process.poll() is not None
    stage.wait_until(lambda: call.tmp is not None and not call.tmp.exists())


def test_check_and_deploy_on_the_command_line(modal: FakeModal, tmp_path: Path) -> None:
    cli = CommandLine(cwd=tmp_path)
    fine = cli("modal", "check", "--json", **environment(modal))
    assert fine.code == 0, fine.err
    assert {one["grade"] for one in fine.json()["findings"]} == {"PASS"}
    wrong = cli("modal", "check", **{**environment(modal), "MODAL_TOKEN_ID": "ak-other"})
    assert (wrong.code, "MODAL_TOKEN_SECRET" in wrong.out) == (1, True)
    written = cli("modal", "deploy", "--to", "again", "--json", **environment(modal))
    assert (written.code, written.json()["functions"]) == (0, ["judge-v2-H100"]), written.err
    assert (tmp_path / "again" / "eval" / "__main__.py").is_file()
    assert (tmp_path / "again" / "told.json").read_bytes() == (modal.app / "told.json").read_bytes()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter").write_text("dear")
    refused = cli("modal", "deploy", "--to", "mine", **environment(modal))
    assert (refused.code, (tmp_path / "mine" / "letter").read_text()) == (2, "dear")


def test_what_deploy_puts_there_is_the_folder_and_each_function_is_shut_off(tmp_path: Path) -> None:
    """The real `modal deploy`, on a platform that has nothing yet."""
    (tmp_path / "kbslurm.toml").write_text(TOML)
    cli = CommandLine(cwd=tmp_path)
    with FakeModal(tmp_path / "there") as fake:
        before = cli("modal", "check", "--json", **environment(fake))
        assert (before.code, [one["name"] for one in before.json()["findings"]]) == (1, ["token", "app"])
        done = cli("modal", "deploy", "--json", **environment(fake), KBSLURM_STATE_DIR=str(tmp_path / "state"))
        assert done.code == 0, done.err
        after = cli("modal", "check", "--json", **environment(fake))
        assert after.code == 0 and {one["grade"] for one in after.json()["findings"]} == {"PASS"}, after.out
        (function,) = fake.functions.values()
        assert (function.timeout_secs, function.resources.gpu_config.gpu_type) == (3600, "H100!")
        assert function.block_network and function.untrusted and function.single_use_containers
        assert function.retry_policy.retries == 0
        function.block_network = False
        open_ = cli("modal", "check", "--json", **environment(fake))
        assert [one["name"] for one in open_.json()["findings"] if one["grade"] == "FAIL"] == ["function"]
    sent, there = tmp_path / "state" / "modal", tmp_path / "there"
    for file in ("told.json", "inside.py", "eval/__main__.py", "eval/kbslurm_eval/run.py"):
        assert (there / file).read_bytes() == (sent / file).read_bytes()
    assert not list(there.rglob("*.pyc"))
