"""`kbslurm` alone: what is going on, and what to type next; with a service, a database, or nothing."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import typer

from kbslurm.cli.app import app
from kbslurm.client.http import Client
from tests.command_line import CommandLine, Said
from tests.flow.stage import HandClock
from tests.flow.test_cli_http import judged
from tests.popcorn.served_api import ADMIN, GOOD, ServedApi, served


@pytest.fixture
def api(database_url: str, tmp_path: Path) -> Iterator[ServedApi]:
    with served(database_url, tmp_path / "service", clock=HandClock()) as built:
        yield built


def home(folder: Path, **env: str) -> CommandLine:
    folder.mkdir()
    (folder / "k.py").write_bytes(GOOD)
    return CommandLine(cwd=folder, env={"XDG_CONFIG_HOME": str(folder / "conf"), **env})


def steps(said: Said) -> list[str]:
    return [one["command"] for one in said.json()["next"]]


def test_where_nothing_is_set_up_it_says_how_to_begin_and_makes_nothing(tmp_path: Path) -> None:
    kbslurm = home(tmp_path / "new")
    said = kbslurm()
    assert (said.code, said.err) == (0, "")
    for word in ("nothing is set up", "kbslurm demo", "kbslurm login", "kbslurm --help"):
        assert word in said.out, word
    assert [file.name for file in kbslurm.cwd.iterdir()] == ["k.py"], "not even an embedded database"
    told = kbslurm("--json")
    assert told.json()["at"] is None and steps(told)[0] == "kbslurm demo"


def test_with_a_service_it_shows_boards_ones_submissions_and_the_next_step(api: ServedApi, tmp_path: Path) -> None:
    token = api.store.tokens.issue(api.store.people.ensure("ada").id, now=api.now)
    http = home(tmp_path / "http", KBSLURM_URL=api.url, KBSLURM_TOKEN=token)
    database = home(tmp_path / "database", DATABASE_URL=api.store.url)
    for kbslurm in (http, database):
        said = kbslurm()
        assert said.code == 0 and ", as ada" in said.out and "transpose" in said.out, said
        assert "kbslurm submit FILE -l transpose --mode test --watch" in said.out

    number = http("submit", "k.py", "-l", "transpose", "-g", "H100", "--json").json()["submission"]
    for kbslurm in (http, database):
        told = kbslurm("--json")
        assert [one["board"] for one in told.json()["boards"]] == ["transpose"]
        assert [one["id"] for one in told.json()["in_flight"]] == [number]
        assert steps(told)[0] == f"kbslurm watch {number}"
        text = kbslurm().out
        assert f"#{number}" in text and "H100 queued" in text and f"kbslurm watch {number}" in text

    http("cancel", str(number))
    judged(api, "ada", 0.5)
    for kbslurm in (http, database):
        assert kbslurm("--json").json()["in_flight"] == []
        assert "kbslurm board transpose --mine" in steps(kbslurm("--json"))


def test_whoever_is_not_signed_in_sees_public_boards_and_how_to_sign_in(api: ServedApi, tmp_path: Path) -> None:
    kbslurm = home(tmp_path / "guest", KBSLURM_URL=api.url)
    said = kbslurm()
    assert said.code == 0 and "not signed in" in said.out and "transpose" in said.out
    assert f"kbslurm login {api.url}" in said.out and "submit" not in said.out
    with Client(api.url, admin=ADMIN) as host:
        host.edit_board("transpose", visibility="closed")
    assert "transpose" not in kbslurm().out


def test_closed_boards_are_left_out(api: ServedApi, tmp_path: Path) -> None:
    kbslurm = home(tmp_path / "host", DATABASE_URL=api.store.url)
    with api.store._pool.statement() as connection:
        connection.execute(b"UPDATE leaderboard SET deadline_at = %(at)s", {"at": api.now - timedelta(hours=1)})
    said = kbslurm()
    assert said.code == 0 and "no board is open" in said.out


def test_an_empty_database_is_not_made_one_by_the_way(new_database_url: Callable[[], str], tmp_path: Path) -> None:
    said = home(tmp_path / "host", DATABASE_URL=new_database_url())()
    assert said.code == 2 and "kbslurm db upgrade" in said.err


def test_a_service_that_does_not_answer_is_one_sentence(tmp_path: Path) -> None:
    kbslurm = home(tmp_path / "away", KBSLURM_URL="http://127.0.0.1:9", KBSLURM_TOKEN="t" * 40)
    said = kbslurm()
    assert (said.code, said.out) == (6, "") and said.err.count("error:") == 1
    assert kbslurm("--json").json()["error"]["kind"]


def test_json_before_a_command_says_where_it_belongs(tmp_path: Path) -> None:
    said = home(tmp_path / "new")("--json", "board", "list")
    assert said.code == 2 and "behind the command" in said.json()["error"]["message"]


def test_what_is_told_to_type_next_are_commands(api: ServedApi, tmp_path: Path) -> None:
    judged(api, "ada", 0.5)
    token = api.store.tokens.issue(api.store.people.ensure("ada").id, now=api.now)
    lines = (
        home(tmp_path / "a"),
        home(tmp_path / "b", KBSLURM_URL=api.url),
        home(tmp_path / "c", KBSLURM_URL=api.url, KBSLURM_TOKEN=token),
    )
    group = typer.main.get_command(app)
    for command in [one for kbslurm in lines for one in steps(kbslurm("--json"))]:
        words = shlex.split(command)
        assert words[0] == "kbslurm" and words[1] in group.commands, command  # type: ignore[attr-defined]
