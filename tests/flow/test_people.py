"""Nobody becomes a person by a typing mistake."""

from __future__ import annotations

import contextlib
import getpass
import json
from pathlib import Path

import pytest

from kbslurm.cli.commands import COMMANDS, Group
from kbslurm.store.postgres import PostgresStore
from tests.command_line import CommandLine

EXAMPLES = Path(__file__).resolve().parent.parent.parent / "examples"
KERNEL = EXAMPLES / "transpose/submissions/accepted/columns.py"
LOGIN = {"KBSLURM_PERSON": ""}


@pytest.fixture
def kbslurm(tmp_path: Path, database_url: str) -> CommandLine:
    """A service's database with one person and one board."""
    host_cli = CommandLine(cwd=tmp_path, env={"DATABASE_URL": database_url, **LOGIN})
    assert host_cli("user", "add", "Ada Lovelace").code == 0
    made = host_cli("board", "create", "transpose", "--reference", str(EXAMPLES / "transpose"), "--gpus", "H100")
    assert made.code == 0, made.err
    return host_cli


def names(database_url: str) -> set[str]:
    with contextlib.closing(PostgresStore(database_url)) as store:
        return {person.name for person in store.people.all()}


@pytest.mark.parametrize(
    "words",
    [
        ("history", "--as", "ada lovelase"),
        ("submit", str(KERNEL), "-l", "transpose", "--as", "ada lovelase"),
        ("whoami", "--as", "ada lovelase"),
        ("cancel", "1", "--as", "ada lovelase"),
        ("user", "ban", "Ada Lovelace", "--as", "ada lovelase"),
        ("user", "unban", "Ada Lovelace", "--as", "ada lovelase"),
        (
            "board", "create", "second", "--reference", str(EXAMPLES / "transpose"), "--gpus", "H100",
            "--as", "ada lovelase",
        ),
    ],
    ids=" ".join,
)  # fmt: skip
def test_an_unknown_name_is_refused_with_those_that_are_spelt_alike(
    kbslurm: CommandLine, database_url: str, words: tuple[str, ...]
) -> None:
    found = kbslurm(*words)
    assert found.code == 2, found.out + found.err
    assert "there is no person 'ada lovelase'" in found.err and "Did you mean Ada Lovelace?" in found.err
    if words[0] != "user":
        assert "Did you mean Ada Lovelace?" in kbslurm(*words[:-2], KBSLURM_PERSON="ada lovelase").err
    assert names(database_url) == {"Ada Lovelace"}


def test_a_name_that_is_like_nobodys_still_gets_a_next_step(kbslurm: CommandLine) -> None:
    found = kbslurm("history", "--as", "zzz")
    assert found.code == 2 and "Did you mean" not in found.err and "kbslurm user list" in found.err


def test_a_login_name_that_the_service_does_not_know_is_told_whom_to_ask(
    kbslurm: CommandLine, database_url: str
) -> None:
    for words in (("submit", str(KERNEL), "-l", "transpose"), ("history",)):
        found = kbslurm(*words)
        assert found.code == 2 and "Ask a host to add you" in found.err, found.err
    assert "not known there yet" in kbslurm("whoami").out
    assert names(database_url) == {"Ada Lovelace"}


def test_on_ones_own_database_the_login_name_is_made_once_and_said_aloud(tmp_path: Path) -> None:
    kbslurm = CommandLine(cwd=tmp_path, env=LOGIN)
    (tmp_path / "kbslurm.toml").write_text(f"[daemon]\nstate_dir = {json.dumps(str(tmp_path / 'state'))}\n")
    assert kbslurm("history", "--as", "typo").code == 2
    first, second = kbslurm("history", "--json"), kbslurm("history", "--json")
    assert first.code == second.code == 0, first.err
    assert first.json() == second.json() == []
    assert f"{getpass.getuser()!r} was added" in first.err and second.err == ""
    assert [row["name"] for row in kbslurm("user", "list", "--json").json()] == [getpass.getuser()]
    (line,) = kbslurm("audit", "--json").json()
    assert line["act"] == "user.add"


def test_only_these_places_make_people() -> None:
    """Sign-on and linking go through an account; everything else that makes a person is listed here."""
    root = Path(__file__).resolve().parents[2]
    makers = {"ensure": {"kbslurm/cli/acting.py"}, "add": {"kbslurm/api/hosting/people.py"}}
    makers["ensure"] |= {f"kbslurm/cli/operator/{demo}.py" for demo in ("demo", "demo_page", "demo_warm")}
    for call, allowed in makers.items():
        found = {
            str(file.relative_to(root))
            for folder in ("kbslurm", "bot")
            for file in (root / folder).rglob("*.py")
            if f".people.{call}(" in file.read_text()
        }
        assert found <= allowed, call
    assert isinstance(COMMANDS["user"], Group)


def test_the_status_of_a_fresh_installation_is_no_error_and_says_what_comes_next(tmp_path: Path) -> None:
    kbslurm = CommandLine(cwd=tmp_path, env=LOGIN)
    state = json.dumps(str(tmp_path / "state"))
    (tmp_path / "kbslurm.toml").write_text(f"[daemon]\nstate_dir = {state}\n[daemon.local]\nslots = {{ H100 = 1 }}\n")
    for _ in range(2):
        found = kbslurm("status")
        assert found.code == 0, found.out + found.err
        assert "kbslurm demo" in found.out and "kbslurm board create" in found.out and "kbslurm up" in found.out
        told = kbslurm("status", "--json")
        assert told.code == 0 and told.json()["healthy"] and told.json()["next"] and not told.json()["troubles"]
        assert kbslurm("db", "upgrade").code == 0  # and neither is one with an empty schema
    made = kbslurm("board", "create", "transpose", "--reference", str(EXAMPLES / "transpose"), "--gpus", "H100")
    assert made.code == 0, made.err
    served = kbslurm("status", "--json")
    assert served.code == 1 and "no daemon is leading" in served.json()["troubles"][0] and not served.json()["next"]
