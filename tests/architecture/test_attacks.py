"""What cheats and other snippets name in the harness is there: an attack on a name that is gone attacks nothing."""

from __future__ import annotations

import ast
import contextlib
import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

TESTS = Path(__file__).resolve().parents[1]
CHEATS = sorted((TESTS / "adversarial" / "cheats").glob("*.py"))
_IMPORTED = re.compile(r"from (kbslurm_eval[\w.]*) import ([A-Za-z_]\w*(?:, [A-Za-z_]\w*)*)")
_DOTTED = re.compile(r"\bkbslurm_eval(?:\.[A-Za-z_]\w*)+")


def lacking(dotted: str) -> str:
    """The first part of this name that isn't there; nothing when all of it is, as far as modules and classes go."""
    found: object = importlib.import_module("kbslurm_eval")
    seen = "kbslurm_eval"
    for part in dotted.split(".")[1:]:
        if not isinstance(found, ModuleType | type):
            return ""  # what a runner finds there shows at run time only
        seen = f"{seen}.{part}"
        if isinstance(found, ModuleType):
            with contextlib.suppress(ImportError):
                importlib.import_module(f"{found.__name__}.{part}")
        if not hasattr(found, part):
            return seen
        found = getattr(found, part)
    return ""


def named(text: str) -> Iterator[str]:
    """Every dotted name of the harness's in a text, whether code or a snippet within code."""
    for module, names in _IMPORTED.findall(text):
        yield from (f"{module}.{name}" for name in names.split(", "))
    yield from (name for name in _DOTTED.findall(text) if not name.endswith(".py"))


def used(text: str) -> Iterator[str]:
    """What a cheat does with the modules that it imports: `guard.prctl` after `from … import guard`."""
    try:
        tree = ast.parse(text)
    except SyntaxError:  # the one that tries whether it is noticed
        return
    modules = {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kbslurm_eval")
        for alias in node.names
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
            yield f"{modules[node.value.id]}.{node.attr}"


def test_what_the_cheats_attack_is_there() -> None:
    found = {(file.name, name) for file in CHEATS for name in (*named(file.read_text()), *used(file.read_text()))}
    assert len({name for _, name in found}) > 8, "they name modules, functions and classes of the harness"
    assert {(file, gone) for file, name in found if (gone := lacking(name))} == set()


@pytest.mark.parametrize("floor", ["flow", "unit", "contract", "bench", "adversarial"])
def test_what_snippets_import_is_there(floor: str) -> None:
    found = {
        (file.relative_to(TESTS).as_posix(), name)
        for file in sorted((TESTS / floor).rglob("*.py"))
        for name in named(file.read_text())
    }
    assert found, "they import something of the harness"
    assert {(file, gone) for file, name in found if (gone := lacking(name))} == set()


def test_a_name_that_is_gone_is_seen() -> None:
    assert lacking("kbslurm_eval.shared.values.unpack") == ""
    assert lacking("kbslurm_eval.values") == "kbslurm_eval.values"
    assert lacking("kbslurm_eval.shared.values.nothing") == "kbslurm_eval.shared.values.nothing"
    assert lacking("kbslurm_eval.shared.layouts.Layout.nothing") == "kbslurm_eval.shared.layouts.Layout.nothing"
