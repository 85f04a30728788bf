"""`--help` of every command at 80 columns, byte for byte. KBSLURM_TEST_GOLDEN=write renews them."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from kbslurm.cli.app import app
from kbslurm.cli.examples import EXAMPLES
from tests.command_line import CommandLine

KEPT = Path(__file__).with_name("data") / "help"
COLUMNS = 80


def paths(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The words of every command and group, ours included; what is hidden has no help to keep."""
    yield path
    for name, inner in sorted(getattr(command, "commands", {}).items()):
        if not inner.hidden:
            yield from paths(inner, (*path, name))


COMMANDS = list(paths(typer.main.get_command(app)))


def kept(path: tuple[str, ...]) -> Path:
    return KEPT / f"{'-'.join(('kbslurm', *path))}.txt"


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_a_commands_help_is_as_it_was_and_fits_a_terminal(path: tuple[str, ...], tmp_path: Path) -> None:
    said = CommandLine(cwd=tmp_path)(*path, "--help", COLUMNS=str(COLUMNS))
    assert (said.code, said.err) == (0, "")
    assert said.out == CommandLine(cwd=tmp_path)(*path, "-h", COLUMNS=str(COLUMNS)).out
    assert max(map(len, said.out.splitlines())) <= COLUMNS
    file = kept(path)
    if os.environ.get("KBSLURM_TEST_GOLDEN") == "write":
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(said.out)
    assert said.out == file.read_text(), "it changed: look at it, then KBSLURM_TEST_GOLDEN=write"


@pytest.mark.parametrize("path", [path for path in COMMANDS if path], ids=" ".join)
def test_a_command_is_listed_by_the_first_sentence_of_its_own_help(path: tuple[str, ...]) -> None:
    """The lists come from a table, so that they import no command."""
    group: Any = typer.main.get_command(app)
    for word in path[:-1]:
        group = group.commands[word]
    with group.make_context("kbslurm", ["--help"], resilient_parsing=True) as context:
        context.max_content_width = 2000
        context.terminal_width = 2000
        lines = group.get_help(context).partition("Show this message and exit.")[2].splitlines()[1:]
        listed = dict(line.split(maxsplit=1) for line in lines if line.startswith("  "))
    assert listed[path[-1]] == group.commands[path[-1]].get_short_help_str(1900)


@pytest.mark.parametrize("path", [path for path in COMMANDS if path], ids=" ".join)
def test_every_command_has_examples_that_can_be_typed(path: tuple[str, ...]) -> None:
    command: Any = typer.main.get_command(app)
    for word in path:
        command = command.commands[word]
    if hasattr(command, "commands"):
        return
    for line in EXAMPLES[" ".join(path)]:
        program, *words = shlex.split(line)
        assert program == "kbslurm"
        if words[0] == "--config":
            words = words[2:]
        found: Any = typer.main.get_command(app)
        while hasattr(found, "commands"):
            with found.make_context("kbslurm", ["--help"], resilient_parsing=True) as context:
                _, found, words = found.resolve_command(context, words)
        assert found.callback.__module__ == command.callback.__module__ and found.name == command.name, line
        with found.make_context(path[-1], list(words)) as context:
            assert context.params is not None


def test_there_are_no_examples_of_what_is_not_there() -> None:
    assert set(EXAMPLES) <= {" ".join(path) for path in COMMANDS}


def test_no_golden_help_is_left_over() -> None:
    assert {file.name for file in KEPT.glob("*")} == {kept(path).name for path in COMMANDS}


def test_every_command_that_answers_takes_json() -> None:
    command = typer.main.get_command(app)
    for path in COMMANDS:
        inner: Any = command
        for word in path:
            inner = inner.commands[word]
        if not hasattr(inner, "commands"):
            options = {option for parameter in inner.params for option in parameter.opts}
            assert "--json" in options, f"kbslurm {' '.join(path)}"
