"""A terminal that is closed: the service in it stops; one that nohup started lives on, and can still be reloaded."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.command_line import CommandLine
from tests.flow.test_bot import free_port

PATIENCE_S = 90.0
TOML = """\
[daemon]
state_dir = "state"
[daemon.local]
name = "here"
slots = {{ {slots} }}
[server]
listen = "127.0.0.1:{port}"
"""
# A terminal with a shell in it, until its standard input ends. The service is the shell's job.
TERMINAL = """
import os, pty, signal, sys
pid, terminal = pty.fork()
if not pid:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # these tests may have been started by nohup themselves
    os.execv("/bin/sh", ["sh", "-c", sys.argv[1]])
sys.stdin.read()
os.close(terminal)
os.waitpid(pid, 0)
"""


@dataclass
class Service:
    """A service that was started in a terminal, and what it logs."""

    folder: Path
    env: dict[str, str]
    port: int

    def start(self, how: str, *words: str) -> None:
        line = (
            f"{how} {shlex.quote(sys.executable)} -m kbslurm {shlex.join(words)} --log-json"
            " 2>log >out </dev/null & echo $! >pid; wait"
        )
        self.terminal = subprocess.Popen(
            [sys.executable, "-c", TERMINAL, line], cwd=self.folder, env=self.env, stdin=subprocess.PIPE
        )

    @property
    def pid(self) -> int:
        return int((self.folder / "pid").read_text())

    def close_terminal(self) -> None:
        assert self.terminal.stdin is not None
        self.terminal.stdin.close()
        assert self.terminal.wait(PATIENCE_S) == 0

    def lines(self) -> list[dict[str, Any]]:
        file = self.folder / "log"
        text = file.read_text() if file.exists() else ""
        return [
            json.loads(line) for line in text.splitlines(keepends=True) if line.startswith("{") and line[-1] == "\n"
        ]

    def says(self, *said: str) -> None:
        until(lambda: set(said) <= {line["what"] for line in self.lines()}, lambda: f"{said} of {self.lines()}")

    def is_alive(self) -> bool:
        stat = Path(f"/proc/{self.pid}/stat")
        try:
            return stat.read_text().rpartition(")")[2].split()[0] != "Z"
        except (FileNotFoundError, ProcessLookupError):
            return False

    def serves(self) -> bool:
        return httpx.get(f"http://127.0.0.1:{self.port}/health", timeout=30).status_code == 200


def until(is_so: Any, what: Any) -> None:
    end = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < end, what()
        threading.Event().wait(0.1)


@pytest.fixture
def service(tmp_path: Path, database_url: str) -> Iterator[Service]:
    env = {**os.environ, "HOME": str(tmp_path), "DATABASE_URL": database_url}
    made = Service(folder=tmp_path, env=env, port=free_port())
    (tmp_path / "kbslurm.toml").write_text(TOML.format(slots="A100 = 1", port=made.port))
    yield made
    if made.terminal.poll() is None:
        made.close_terminal()
    if made.is_alive():
        os.kill(made.pid, signal.SIGTERM)
        until(lambda: not made.is_alive(), lambda: "it stops")


def test_up_that_nohup_started_lives_on_with_its_api_and_is_reloaded(service: Service, database_url: str) -> None:
    service.start("nohup", "up", "--no-bot")
    service.says("leading", "serving")
    service.close_terminal()
    service.says("reloaded")
    (service.folder / "kbslurm.toml").write_text(TOML.format(slots="A100 = 3", port=service.port))
    said = CommandLine(cwd=service.folder, env={"DATABASE_URL": database_url})("place", "reload")
    assert (said.code, said.out) == (0, "here changed: A100 1 → 3\n"), said.err
    assert service.is_alive() and service.serves()
    assert not {"stopping", "stopped"} & {line["what"] for line in service.lines()}


def test_an_api_that_nohup_started_lives_on(service: Service) -> None:
    service.start("nohup", "api")
    service.says("serving")
    service.close_terminal()
    service.says("reloaded")
    assert service.is_alive() and service.serves()


@pytest.mark.parametrize("words", [("up", "--no-bot"), ("api",)])
def test_a_service_stops_with_its_terminal(service: Service, words: tuple[str, ...]) -> None:
    service.start("", *words)
    service.says("serving")
    service.close_terminal()
    until(lambda: not service.is_alive(), service.lines)
    assert "stopping" in {line["what"] for line in service.lines()}
