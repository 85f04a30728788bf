"""`kbslurm logs`: a run's log as its author may see it, and where the daemon's is."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kbslurm_eval.shared import wire
from tests.command_line import CommandLine
from tests.flow import gallery
from tests.flow.stage import HandClock
from tests.flow.test_cli_http import HIDDEN_SPEC, SECRET_LOG, judged
from tests.popcorn.served_api import GOOD, ServedApi, served

PATIENCE_S = 60.0


@pytest.fixture
def api(database_url: str, tmp_path: Path) -> Iterator[ServedApi]:
    with served(database_url, tmp_path / "service", clock=HandClock()) as built:
        yield built


def of(api: ServedApi, name: str, folder: Path) -> tuple[CommandLine, CommandLine]:
    """Their commands over HTTP, and by the database."""
    token = api.store.tokens.issue(api.store.people.ensure(name).id, now=api.now)
    env = {"XDG_CONFIG_HOME": str(folder), "KBSLURM_PERSON": name}
    return (
        CommandLine(cwd=folder, env={**env, "KBSLURM_URL": api.url, "KBSLURM_TOKEN": token}),
        CommandLine(cwd=folder, env={**env, "DATABASE_URL": api.store.url}),
    )


def test_a_runs_log_is_its_authors_and_has_nothing_of_hidden_cases(api: ServedApi, tmp_path: Path) -> None:
    number = judged(api, "ada", 0.5, log="compiled with \x1b[31m-O3\n[bold]not markup[/]\n")
    (run,) = api.store.submissions.get(number).runs  # type: ignore[arg-type]
    for kbslurm in of(api, "ada", tmp_path):
        said = kbslurm("logs", str(run.id))
        assert said.code == 0 and said.out == "compiled with \ufffd[31m-O3\n[bold]not markup[/]\n", said
        told = kbslurm("logs", "--submission", str(number), "--json")
        (row,) = told.json()["runs"]
        assert (row["run"], row["submission"], row["verdict"]) == (run.id, number, "passed")
        assert row["log"].startswith("compiled with")
        assert SECRET_LOG not in said.out + told.out and HIDDEN_SPEC not in said.out + told.out
    for kbslurm in of(api, "mallory", tmp_path):
        refused = kbslurm("logs", str(run.id))
        assert refused.code in (2, 5) and not refused.out and "compiled" not in refused.err, refused


def test_each_cases_log_has_its_heading(api: ServedApi, tmp_path: Path) -> None:
    said = ("loaded\n", "fine\n", "too slow\n")
    keys: list[tuple[wire.PhaseName, int | None]] = [("test", None), ("test", 0), ("benchmark", 0)]
    parts = [wire.LogPart(phase=p, index=n, size=len(text)) for (p, n), text in zip(keys, said, strict=True)]
    tests = [wire.TestResult(phase="test", index=0, spec="rows: 4", status="pass")]
    report: dict[str, Any] = {"log": "".join(said), "log_parts": parts, "tests": tests}
    number = gallery.judged(api.store, "ada", api.now, 0.5, **report)
    for kbslurm in of(api, "ada", tmp_path):
        told = kbslurm("logs", "-s", str(number))
        lines = told.out.splitlines()
        assert lines[:4] == [
            "--- tests, outside of their cases ---",
            "loaded",
            "--- test 1 (rows: 4): pass ---",
            "fine",
        ]
        assert lines[4].startswith("--- benchmark 1 (") and lines[5] == "too slow"
        (row,) = kbslurm("logs", "-s", str(number), "--json").json()["runs"]
        assert [(one["phase"], one["index"], one["log"]) for one in row["parts"]] == [
            (*key, text) for key, text in zip(keys, said, strict=True)
        ]


def test_what_has_no_log_says_so(api: ServedApi, tmp_path: Path) -> None:
    silent = judged(api, "ada", 0.5)
    http, database = of(api, "ada", tmp_path)
    (tmp_path / "k.py").write_bytes(GOOD)
    waiting = http("submit", "k.py", "-l", "transpose", "-g", "H100", "--json").json()["submission"]
    for kbslurm in (http, database):
        assert "has written nothing" in kbslurm("logs", "-s", str(silent)).out
        assert "is queued; its log comes with its verdict" in kbslurm("logs", "-s", str(waiting)).out
        assert kbslurm("logs", "99999").code == 2
        assert kbslurm("logs", "--submission").code == 2


def test_the_daemons_log_is_named_where_it_runs(api: ServedApi, tmp_path: Path) -> None:
    http, database = of(api, "ada", tmp_path)
    assert "no daemon runs" in database("logs").out
    elsewhere = http("logs")
    assert elsewhere.code == 2 and "--context database" in elsewhere.err, "it is on the service's own machine"
    log = tmp_path / "daemon.log"
    (tmp_path / "kbslurm.toml").write_text("[daemon.local]\nslots = { A100 = 1 }\n")
    with log.open("wb") as file:
        daemon = subprocess.Popen(
            [sys.executable, "-m", "kbslurm", "up", "--no-api", "--no-bot"],
            env={**os.environ, "DATABASE_URL": api.store.url, "HOME": str(tmp_path), "PYTHONPATH": os.getcwd()},
            cwd=tmp_path,
            stderr=file,
        )
    try:
        until = time.monotonic() + PATIENCE_S
        while not (rows := database("logs", "--json").json()["daemons"]) and time.monotonic() < until:
            assert daemon.poll() is None, log.read_text()
            time.sleep(0.2)
        (row,) = rows
        assert (row["host"], row["pid"], row["command"]) == (socket.gethostname(), daemon.pid, f"tail -f {log}")
        assert str(log) in database("logs").out
    finally:
        daemon.terminate()
        daemon.wait(PATIENCE_S)
    assert "no daemon runs" in database("logs").out


def test_where_nothing_is_set_up_there_is_no_log_and_nothing_is_made(tmp_path: Path) -> None:
    said = CommandLine(cwd=tmp_path, env={"XDG_CONFIG_HOME": str(tmp_path)})("logs")
    assert said.code == 0 and "no daemon runs" in said.out
    assert not list(tmp_path.iterdir())
