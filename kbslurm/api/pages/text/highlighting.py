"""Code as lines of markup: each token has one of a few classes, whose colours the stylesheet knows.

Code that is too large, or takes too long, is shown plain: colours are a comfort, and a page must come in time.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePosixPath

from markupsafe import Markup, escape
from pygments.lexer import Lexer
from pygments.lexers.c_cpp import CLexer, CppLexer
from pygments.lexers.c_like import CudaLexer
from pygments.lexers.data import JsonLexer
from pygments.lexers.python import PythonLexer
from pygments.lexers.shell import BashLexer
from pygments.token import Comment, Keyword, Name, Number, Operator, String, _TokenType

COLOURED_CAP = 100_000  # characters
LINE_CAP = 1_000  # characters of one line: minified code isn't read in colours
NUMBERED_CAP = 20_000  # lines
WITHIN_S = 1.0
KEPT = 48

_LANGUAGES: dict[str, tuple[str, type[Lexer]]] = {
    ".py": ("Python", PythonLexer),
    ".cu": ("CUDA", CudaLexer),
    ".cuh": ("CUDA", CudaLexer),
    ".hip": ("HIP", CudaLexer),
    ".inl": ("C++", CppLexer),
    ".cpp": ("C++", CppLexer),
    ".cc": ("C++", CppLexer),
    ".hpp": ("C++", CppLexer),
    ".hh": ("C++", CppLexer),
    ".h": ("C++", CppLexer),
    ".c": ("C", CLexer),
    ".json": ("JSON", JsonLexer),
}
# What a fenced block in a statement may call itself.
_CALLED: dict[str, str] = {
    "python": ".py", "py": ".py", "triton": ".py", "python3": ".py", "cuda": ".cu", "cu": ".cu", "hip": ".hip",
    "c++": ".cpp", "cpp": ".cpp", "c": ".c", "json": ".json",
}  # fmt: skip
_SHELL = ("sh", "bash", "shell", "console")
# The first that a token is one of; whatever is in none has the text's own colour.
_CLASSES: tuple[tuple[_TokenType, str], ...] = (
    (Comment.Preproc, "c-meta"),
    (Comment.PreprocFile, "c-string"),
    (Comment, "c-comment"),
    (String.Doc, "c-comment"),
    (String, "c-string"),
    (Number, "c-number"),
    (Operator.Word, "c-keyword"),
    (Keyword.Type, "c-type"),
    (Keyword, "c-keyword"),
    (Name.Decorator, "c-meta"),
    (Name.Function, "c-name"),
    (Name.Class, "c-name"),
    (Name.Builtin, "c-type"),
)


@dataclass(frozen=True, kw_only=True)
class Code:
    """A file as it is shown. `lines` is empty if there are too many to number; `coloured`: whether its tokens have
    classes."""

    text: str
    language: str
    lines: tuple[Markup, ...]
    coloured: bool


@lru_cache(maxsize=KEPT)
def highlighted(text: str, file_name: str) -> Code:
    """The file by lines, highlighted as what its name says it is."""
    language, kind = _LANGUAGES.get(PurePosixPath(file_name).suffix.lower(), ("Text", None))
    return _code(text, language, kind)


@lru_cache(maxsize=KEPT)
def fenced(text: str, called: str) -> Code:
    """A fenced block of a statement, highlighted as what it calls itself."""
    called = called.strip().lower()
    if called in _SHELL:
        return _code(text, "Shell", BashLexer)
    language, kind = _LANGUAGES.get(_CALLED.get(called, ""), ("Text", None))
    return _code(text, language, kind)


def _code(text: str, language: str, kind: type[Lexer] | None) -> Code:
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    rows = text.removesuffix("\n").split("\n")
    if len(rows) > NUMBERED_CAP:
        return Code(text=text, language=language, lines=(), coloured=False)
    if kind is not None and len(text) <= COLOURED_CAP and max(map(len, rows)) <= LINE_CAP:
        found = _in_colours(text, kind)
        if found is not None:
            return Code(text=text, language=language, lines=found, coloured=True)
    return Code(text=text, language=language, lines=tuple(map(escape, rows)), coloured=False)


def _in_colours(text: str, kind: type[Lexer]) -> tuple[Markup, ...] | None:
    """The lines with a class for each token; None if that takes too long."""
    ends_at = time.monotonic() + WITHIN_S
    lines, line = [], list[str]()
    for css, piece in _joined(kind(stripnl=False, ensurenl=False).get_tokens(text)):
        if time.monotonic() > ends_at:
            return None
        for n, part in enumerate(piece.split("\n")):
            if n:
                lines.append(Markup("".join(line)))  # noqa: S704 - escaped below
                line = []
            if part:
                line.append(f'<span class="{css}">{escape(part)}</span>' if css else str(escape(part)))
    if line or not text.endswith("\n"):
        lines.append(Markup("".join(line)))  # noqa: S704 - escaped above
    return tuple(lines)


def _joined(tokens: Iterator[tuple[_TokenType, str]]) -> Iterator[tuple[str, str]]:
    """The tokens by their classes; neighbours of the same one together."""
    before, pieces = "", list[str]()
    for kind, piece in tokens:
        css = next((css for known, css in _CLASSES if kind in known), "")
        if css != before and piece.strip():
            if pieces:
                yield before, "".join(pieces)
            before, pieces = css, []
        pieces.append(piece)
    if pieces:
        yield before, "".join(pieces)
