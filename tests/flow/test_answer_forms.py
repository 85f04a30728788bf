"""-o json, csv and name: the same rows as --json, for a spreadsheet and for the shell."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from kbslurm.cli.app import app
from kbslurm.cli.commands import COMMANDS, Command, Group
from tests.command_line import CommandLine
from tests.flow.stage import HandClock
from tests.flow.test_cli_http import judged
from tests.popcorn.served_api import ServedApi, served


@pytest.fixture
def api(database_url: str, tmp_path: Path) -> Iterator[ServedApi]:
    with served(database_url, tmp_path / "service", clock=HandClock()) as built:
        yield built


@pytest.fixture
def lines(api: ServedApi, tmp_path: Path) -> dict[str, CommandLine]:
    token = api.store.tokens.issue(api.store.people.ensure("ada", "owner").id, now=api.now)
    home = {"XDG_CONFIG_HOME": str(tmp_path / "conf")}
    return {
        "HTTP": CommandLine(cwd=tmp_path, env={"KBSLURM_URL": api.url, "KBSLURM_TOKEN": token, **home}),
        "database": CommandLine(cwd=tmp_path, env={"DATABASE_URL": api.store.url, **home}),
    }


def listing(listed: Any = COMMANDS, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Command]]:
    for name, one in listed.items():
        if isinstance(one, Group):
            yield from listing(one.commands, (*path, name))
        elif one.lists is not None:
            yield (*path, name), one


LISTING = dict(listing())
# Whose name stands on the command line.
OF = {
    ("board", "announcements"): "transpose",
    ("board", "names"): "transpose",
    ("board", "role"): "transpose",
    ("invite", "list"): "transpose",
    ("user", "token", "list"): "ada",
}


@pytest.mark.parametrize("by", ["HTTP", "database"])
def test_each_command_that_lists_gives_the_same_rows_in_every_form(
    lines: dict[str, CommandLine], api: ServedApi, by: str
) -> None:
    judged(api, "ada", 0.5)
    judged(api, "=cmd()", 0.6)
    lines["database"]("ask", "Is it?", "--board", "transpose")
    lines["database"]("invite", "make", "transpose")
    lines["database"]("board", "role", "transpose", "=cmd()", "grader")
    kbslurm, full = lines[by], 0
    for path, command in LISTING.items():
        if path[:1] in {("roster",), ("context",)}:
            continue  # of no course, of no context
        words = [*path, *([OF[path]] if path in OF else [])]
        as_json = kbslurm(*words, "--json")
        assert as_json.code == 0, (words, as_json)
        assert kbslurm(*words, "-o", "json").out == as_json.out
        where, _, name = str(command.lists).rpartition("/")
        rows = as_json.json()[where] if where else as_json.json()
        assert isinstance(rows, list), words
        named = kbslurm(*words, "-o", "name")
        assert (named.code, named.out.splitlines()) == (0, [str(row[name]) for row in rows]), words
        table = kbslurm(*words, "--output=csv")
        read = list(csv.DictReader(io.StringIO(table.out)))
        assert (table.code, len(read)) == (0, len(rows)), words
        for cells, row in zip(read, rows, strict=True):
            assert set(row) <= set(cells)
            assert cells[name].removeprefix("'") == ("" if row[name] is None else str(row[name]))
        full += bool(rows)
    assert full >= 9, "most of them had something to list"


def test_what_a_spreadsheet_would_run_is_quoted(lines: dict[str, CommandLine], api: ServedApi) -> None:
    api.store.people.add("=cmd()")
    assert "'=cmd()" in lines["HTTP"]("user", "list", "-o", "csv").out
    assert "=cmd()" in lines["HTTP"]("user", "list", "-o", "name").out.splitlines()


def test_an_error_has_the_form_that_was_asked_for(lines: dict[str, CommandLine]) -> None:
    kbslurm = lines["HTTP"]
    told = kbslurm("watch", "x", "-o", "json")
    assert told.code == 2 and json.loads(told.out)["error"]["kind"] == "Invalid" and not told.err
    for words in (("history", "nowhere", "-o", "csv"), ("board", "list", "-o", "xml"), ("watch", "1", "-o", "csv")):
        said = kbslurm(*words)
        assert (said.code, said.out) == (2, "") and "error:" in said.err, words
    both = kbslurm("board", "list", "--json", "-o", "name")
    assert both.code == 2 and "don't go together" in both.json()["error"]["message"]
    plain = kbslurm("board", "list")
    assert plain.out.split()[:1] == ["board"], ("the form was that of one command", plain)


def test_every_command_that_lists_says_what_names_a_row() -> None:
    assert LISTING[("board", "list")].lists == "board"
    root: Any = typer.main.get_command(app)

    def every(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
        for name, one in group.commands.items():
            if hasattr(one, "commands"):
                yield from every(one, (*path, name))
            else:
                yield (*path, name), one

    for path, command in every(root):
        options = {option for parameter in command.params for option in parameter.opts}
        assert path in LISTING or path[-1] not in ("list", "history", "audit"), path
        if path in LISTING:
            assert {"--json", "-o", "--output"} <= options, path
