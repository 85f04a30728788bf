"""The real popcorn-cli, where there is one (KBSLURM_POPCORN_CLI=PATH): the same walk as the strict client's."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import databases
from tests.popcorn.served_api import GOOD, WRONG, ServedApi, served, working

CLI = os.environ.get("KBSLURM_POPCORN_CLI", "")
PATIENCE_S = 240


@pytest.fixture(scope="module")
def api(
    postgres_server: databases.Server, template_database: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServedApi]:
    url = postgres_server.create(template_database)
    place = tmp_path_factory.mktemp("binary")
    with served(url, place) as built, working(built, place):
        yield built
    postgres_server.drop(url)


@pytest.fixture
def home(api: ServedApi, tmp_path: Path) -> Path:
    """A home folder of somebody who has registered."""
    (tmp_path / ".popcorn.yaml").write_text(f"cli_id: {api.client('ada').cli_id}\n")
    (tmp_path / "good.py").write_bytes(GOOD)
    (tmp_path / "wrong.py").write_bytes(WRONG)
    return tmp_path


def popcorn(api: ServedApi, home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {"PATH": os.environ.get("PATH", ""), "HOME": str(home), "POPCORN_API_URL": api.url}
    argv = [str(Path(CLI).resolve()), *words]
    return subprocess.run(
        argv,
        cwd=home,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


@pytest.mark.parametrize("mode", ["test", "benchmark", "leaderboard"])
def test_it_submits_and_waits(api: ServedApi, home: Path, mode: str) -> None:
    said = popcorn(
        api, home, "submit", "--no-tui", "--leaderboard", "transpose", "--gpu", "H100", "--mode", mode, "good.py"
    )
    assert said.returncode == 0, said.stdout + said.stderr


def test_it_shows_why_one_was_rejected(api: ServedApi, home: Path) -> None:
    said = popcorn(
        api, home, "submit", "--no-tui", "--leaderboard", "transpose", "--gpu", "A100", "--mode", "test", "wrong.py"
    )
    assert "wrong" in said.stdout + said.stderr
    assert "panicked" not in said.stderr


def test_it_lists_and_shows(api: ServedApi, home: Path) -> None:
    listed = popcorn(api, home, "submissions", "list", "--leaderboard", "transpose")
    assert listed.returncode == 0, listed.stdout + listed.stderr
    (newest, *_) = api.store.submissions.newest(board="transpose", limit=1)
    assert str(newest.id) in listed.stdout
    shown = popcorn(api, home, "submissions", "show", str(newest.id))
    assert shown.returncode == 0, shown.stdout + shown.stderr
