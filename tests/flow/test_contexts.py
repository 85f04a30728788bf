"""Services by name: which one a command uses, where its token is kept, and that nothing falls back to a database."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.command_line import CommandLine, Said
from tests.flow.stage import HandClock
from tests.popcorn.served_api import ServedApi, served


@pytest.fixture
def api(database_url: str, tmp_path: Path) -> Iterator[ServedApi]:
    with served(database_url, tmp_path / "service", clock=HandClock()) as built:
        yield built


class Terminal:
    """Somebody's machine, without a word about any service in its environment."""

    def __init__(self, api: ServedApi, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        home.mkdir()
        self.api, self.home, self._patch = api, home, monkeypatch
        self.run = CommandLine(cwd=home, env={"XDG_CONFIG_HOME": str(home / "conf")})

    def __call__(self, *words: str, **env: str) -> Said:
        return self.run(*words, **env)

    def login(self, name: str, *words: str) -> Said:
        token = self.api.store.tokens.issue(self.api.store.people.ensure(name).id, now=self.api.now)
        self.type(token)
        return self("login", self.api.url, *words)

    def type(self, text: str) -> None:
        self._patch.setattr(sys, "stdin", io.StringIO(f"{text}\n"))

    @property
    def file(self) -> Path:
        return self.home / "conf/kbslurm/tokens.json"


@pytest.fixture
def cli(api: ServedApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    return Terminal(api, tmp_path / "cli", monkeypatch)


def who(said: Said) -> tuple[str, str | None]:
    return said.json()["person"], said.json()["context"]


def test_a_name_stands_for_a_service_and_who_one_is_there(cli: Terminal) -> None:
    assert cli.login("ada", "--context", "mine").code == 0
    assert cli.login("hana", "--context", "course").code == 0
    assert cli.file.stat().st_mode & 0o777 == 0o600
    assert who(cli("whoami", "--json")) == ("hana", "course"), "the last login is in use"
    assert f"hana (participant) at {cli.api.url} (context course)" in cli("whoami").out
    assert cli("context", "use", "mine").code == 0
    assert who(cli("whoami", "--json")) == ("ada", "mine")
    assert who(cli("--context", "course", "whoami", "--json")) == ("hana", "course")
    assert who(cli("whoami", "--json", KBSLURM_CONTEXT="course")) == ("hana", "course")
    rows = cli("context", "list", "--json").json()
    assert [(row["context"], row["signed_in"], row["in_use"]) for row in rows] == [
        ("mine", True, True), ("course", True, False),
    ]  # fmt: skip
    assert not any("token" in row for row in rows)
    assert cli("context", "remove", "mine").code == 0
    assert cli("context", "show", "--json").json()["url"] is None
    gone = cli("context", "use", "mine")
    assert gone.code == 2 and "there is no context 'mine'" in gone.err and "course" in gone.err


def test_the_address_in_the_environment_goes_before_the_context_in_use(cli: Terminal) -> None:
    cli.login("ada", "--context", "mine")
    away = "http://127.0.0.1:9"
    assert cli("context", "show", "--json", KBSLURM_URL=away).json() == {
        "context": None, "url": away, "signed_in": False, "named_by": "KBSLURM_URL",
    }  # fmt: skip
    assert cli("whoami", KBSLURM_URL=away).code == 4, "the token of another service isn't sent there"
    assert cli("context", "show", "--json", KBSLURM_URL=away, KBSLURM_CONTEXT="mine").json()["url"] == away
    assert cli("--context", "mine", "context", "show", "--json", KBSLURM_URL=away).json()["url"] == cli.api.url
    assert who(cli("whoami", "--json", KBSLURM_URL=cli.api.url)) == ("ada", "mine")
    told = cli("context", "use", "mine", KBSLURM_URL=away)
    assert told.code == 0 and f"KBSLURM_URL names {away}" in told.err


def test_signed_out_isnt_somewhere_else(cli: Terminal) -> None:
    cli.login("ada", "--context", "mine")
    assert cli("logout").code == 0
    told = cli("history")
    assert told.code == 4 and "you aren't signed in" in told.err
    assert cli("context", "list", "--json").json()[0]["signed_in"] is False


def test_two_people_at_one_service_are_never_mixed_up(cli: Terminal) -> None:
    cli.login("ada", "--context", "mine")
    cli.login("hana", "--context", "course")
    cli("context", "use", "mine")
    assert cli("--context", "course", "logout", "--json").json()["ended"] is True
    rows = {row["context"]: row["signed_in"] for row in cli("context", "list", "--json").json()}
    assert rows == {"mine": True, "course": False}
    assert who(cli("whoami", "--json")) == ("ada", "mine"), "the other's token is still valid"
    for words, env in ((("--context", "course"), {}), ((), {"KBSLURM_CONTEXT": "course"})):
        told = cli(*words, "whoami", **env)
        assert told.code == 4 and "you aren't signed in" in told.err, "and isn't sent in the name of this one"
        told = cli(*words, "history", **env)
        assert told.code == 4 and "you aren't signed in" in told.err
    assert cli("logout", KBSLURM_CONTEXT="course").code == 0
    assert who(cli("whoami", "--json")) == ("ada", "mine")


def test_signing_in_again_goes_to_the_context_that_is_named(cli: Terminal) -> None:
    cli.login("ada", "--context", "mine")
    cli.login("hana", "--context", "course")
    cli("context", "use", "mine")
    token = cli.api.store.tokens.issue(cli.api.store.people.ensure("hana").id, now=cli.api.now)
    for words, env in ((("--context", "course"), {}), ((), {"KBSLURM_CONTEXT": "course"})):
        cli("context", "use", "mine")
        cli.type(token)
        told = cli(*words, "login", "--json", **env)
        assert (told.json()["person"], told.json()["context"]) == ("hana", "course")
        assert who(cli("--context", "mine", "whoami", "--json")) == ("ada", "mine")


def test_a_contexts_name_isnt_given_to_another_service(cli: Terminal) -> None:
    cli.login("ada", "--context", "mine")
    away = cli.api.url.replace("127.0.0.1", "localhost")
    cli.type("some-token")
    told = cli("login", away, "--context", "mine")
    assert told.code == 2 and f"mine is already {cli.api.url}" in told.err and "context remove mine" in told.err
    assert who(cli("whoami", "--json")) == ("ada", "mine")


def test_logout_with_a_token_from_the_environment_keeps_the_saved_one(cli: Terminal) -> None:
    cli.login("ada", "--context", "mine")
    store = cli.api.store
    token = store.tokens.issue(store.people.ensure("hana").id, now=cli.api.now)
    assert cli("logout", KBSLURM_TOKEN=token).code == 0
    assert store.tokens.person_of(token, now=cli.api.now) is None
    assert who(cli("whoami", "--json")) == ("ada", "mine")


def test_a_token_that_couldnt_be_revoked_isnt_success(cli: Terminal) -> None:
    cli.login("ada", "--context", "mine")
    kept = json.loads(cli.file.read_text())
    kept["contexts"]["mine"]["url"] = away = "http://127.0.0.1:9"
    cli.file.write_text(json.dumps(kept))
    told = cli("logout", "--json")
    assert told.code == 6 and told.json() == {"url": away, "ended": False, "forgotten": True}


def test_the_first_form_of_the_file_is_read(cli: Terminal) -> None:
    cli.login("ada", "--context", "mine")
    (kept,) = json.loads(cli.file.read_text())["contexts"].values()
    cli.file.write_text(json.dumps({kept["url"]: kept["token"]}))
    assert cli("whoami", "--json", KBSLURM_URL=cli.api.url).json()["person"] == "ada"
    assert cli("context", "show", "--json").json()["url"] is None, "nothing was in use then"
    (row,) = cli("context", "list", "--json").json()
    assert row["context"] == cli.api.url.removeprefix("http://")
    assert cli("context", "use", row["context"]).code == 0 and cli("whoami", "--json").json()["person"] == "ada"


@pytest.mark.parametrize("text", ["[]", "{", '{"contexts": {"a": 3}, "in_use": null}', '{"http://a": 3}', "3"])
def test_a_broken_file_is_said_to_be_one(cli: Terminal, text: str) -> None:
    cli.login("ada")
    cli.file.write_text(text)
    told = cli("whoami")
    assert told.code == 2 and "isn't a valid token file" in told.err


@pytest.mark.parametrize("name", ["database", "a b", "", "-x", "ü"])
def test_what_isnt_a_name_is_refused_before_anything_is_kept(cli: Terminal, name: str) -> None:
    assert cli.login("ada", f"--context={name}").code == 2
    assert not cli.file.exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("watch", "abc"), "'abc' isn't a submission's number"),
        (("cancel", "1.5"), "'1.5' isn't a submission's number"),
        (("diff", "1", "x"), "'x' isn't a submission's number"),
        (("profile", "-1"), "no such option: -1"),
        (("watch",), "missing argument"),
        (("board", "create"), "missing argument"),
        (("history", "--limit", "many"), "invalid value for '--limit'"),
        (("board", "list", "--colour"), "--colour"),
        (("nonsense",), "nonsense"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_errors_of_usage_look_like_every_other(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    kbslurm = CommandLine(cwd=tmp_path)
    plain = kbslurm(*words)
    assert plain.code == 2 and plain.out == "" and plain.err.lower().startswith("error: ") and said in plain.err
    as_json = kbslurm(*words, "--json")
    assert as_json.code == 2 and as_json.err == ""
    told = as_json.json()["error"]
    assert told["kind"] == "Invalid" and said in told["message"] and told["hint"]


def test_a_submissions_number_may_be_written_as_it_is_shown(cli: Terminal) -> None:
    cli.login("ada")
    told = cli("watch", "#12")
    assert told.code == 2 and "there is no submission '12'" in told.err
