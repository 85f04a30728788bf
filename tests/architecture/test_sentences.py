"""What the programs say keeps to the style: CONTRIBUTING's left column isn't said anywhere."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def sentences(file: Path) -> Iterator[str]:
    """What a program says: its texts, without docstrings; values in them are `{}`."""
    tree = ast.parse(file.read_text())
    skipped: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr):
            skipped.add(id(node.value))
        elif isinstance(node, ast.JoinedStr):
            skipped |= {id(part) for part in node.values}
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_no_message_is_one_that_the_style_calls_stilted() -> None:
    """Of CONTRIBUTING's left column: "is no X", and the examples themselves."""
    rows = (ROOT / "CONTRIBUTING.md").read_text().partition("### Sentences")[2].partition("\n## ")[0]
    pairs = re.findall(r"^\| (.+?) \| (.+?) \|$", rows, re.MULTILINE)[1:]
    assert len(pairs) == 20
    stilted = {re.sub(r"^(?:-1|`[^`]*`) ", "", one).rstrip(".") for one, _ in pairs}
    for folder in ("kbslurm", "bot", "eval"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            for said in sentences(file):
                where = f"{file.relative_to(ROOT)}: {said!r}"
                assert not re.search(r"(?:\}|\bthis|\bit) (?:is no|are no|is none of) (?!longer\b|more\b)", said), where
                assert not any(one in said for one in stilted), where
