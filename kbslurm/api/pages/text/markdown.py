"""A problem's statement: Markdown with formulas, as markup in which nothing that its author wrote is markup.

HTML stays text, links lead to the web or to an address of mail and nowhere else, and pictures are links: a page loads
nothing from elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from markupsafe import Markup, escape

from kbslurm.api.pages.text.formulas import FORMULA_CAP, formula
from kbslurm.api.pages.text.highlighting import fenced

STATEMENT_CAP = 100_000  # characters; what is longer is shown as it was written
FORMULAS_CAP = 400
HEADINGS_CAP = 100
FIRST_LEVEL, LAST_LEVEL = 3, 6
LONG_FORMULA = 24  # characters of source; on a phone a longer one may have to scroll
KEPT = 64
_LINK = re.compile(r"(https?://|mailto:)[^\s]", re.IGNORECASE)
_REL = "noopener nofollow"


@dataclass(frozen=True, kw_only=True)
class Heading:
    """A heading of a statement: where it is, how deep (from 0), and its text."""

    id: str
    depth: int
    text: str


@dataclass(frozen=True, kw_only=True)
class Statement:
    """A statement as markup, with its headings."""

    markup: Markup
    headings: tuple[Heading, ...]


@lru_cache(maxsize=KEPT)
def statement(text: str) -> Statement:
    """This Markdown as it is shown."""
    text = text.replace("\r\n", "\n").replace("\x00", "")
    if len(text) > STATEMENT_CAP:
        return _as_written(text)
    try:
        tokens = _MARKDOWN.parse(text)
        headings = tuple(_headings(tokens))
        if sum(_formulas(tokens)) > FORMULAS_CAP:
            return _as_written(text)
        markup = _MARKDOWN.renderer.render(tokens, _MARKDOWN.options, {})
    except RecursionError:
        return _as_written(text)
    return Statement(markup=Markup(markup), headings=headings)  # noqa: S704 - all parts are escaped by their rules


@lru_cache(maxsize=KEPT)
def prose(text: str) -> Markup:
    """What hosts announce, in the same Markdown. It stands among other such texts, so its headings are bold lines of
    no page's contents, and its lines end where they were ended."""
    text = text.replace("\r\n", "\n").replace("\x00", "")
    as_written = Markup('<pre class="text">{}</pre>').format(text)
    if len(text) > STATEMENT_CAP:
        return as_written
    try:
        tokens = _PROSE.parse(text)
        if sum(_formulas(tokens)) > FORMULAS_CAP:
            return as_written
        for token in tokens:
            if token.type.startswith("heading_"):
                token.tag = "p"
                if token.nesting > 0:
                    token.attrSet("class", "heading")
        return Markup(_PROSE.renderer.render(tokens, _PROSE.options, {}))  # noqa: S704 - all parts are escaped by their rules
    except RecursionError:
        return as_written


def _as_written(text: str) -> Statement:
    return Statement(markup=Markup('<pre class="text">{}</pre>').format(text), headings=())


def _formulas(tokens: Sequence[Token]) -> Iterator[int]:
    for token in tokens:
        yield token.type in ("formula", "formula_block")
        yield from _formulas(token.children or ())


def _headings(tokens: Sequence[Token]) -> Iterator[Heading]:
    """Its headings, which from now on are below the page's own, with no level left out, each with a name."""
    above: list[int] = []
    taken: set[str] = set()
    for n, token in enumerate(tokens):
        if token.type != "heading_open":
            continue
        level = int(token.tag[1:])
        while above and above[-1] >= level:
            above.pop()
        above.append(level)
        tag = f"h{min(FIRST_LEVEL + len(above) - 1, LAST_LEVEL)}"
        token.tag = tokens[n + 2].tag = tag
        text = "".join(_said(tokens[n + 1].children or ())).strip()
        if len(taken) == HEADINGS_CAP:
            return
        token.attrSet("id", _named(text, taken))
        yield Heading(id=str(token.attrGet("id")), depth=len(above) - 1, text=text)


def _said(tokens: Sequence[Token]) -> Iterator[str]:
    for token in tokens:
        yield from _said(token.children or ())
        if token.type in ("text", "code_inline", "formula"):
            yield token.content
        elif token.type in ("softbreak", "hardbreak"):
            yield " "


def _named(text: str, taken: set[str]) -> str:
    """An unused name for a heading, which stays as long as the headings above are the same."""
    stem = "task-" + (re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:60] or "part")
    name, n = stem, 1
    while name in taken:
        n += 1
        name = f"{stem}-{n}"
    taken.add(name)
    return name


# ----------------------------------------------------------------------------------------------- formulas are parsed


def _inline_formula(state: StateInline, silent: bool) -> bool:
    """`$…$` and `$$…$$`. As in other tools, `$5 and $6` isn't one: neither end of a formula is a space."""
    source, start = state.src, state.pos
    if source[start] != "$":
        return False
    mark = "$$" if source.startswith("$$", start) else "$"
    begin = start + len(mark)
    end = begin
    while True:
        end = source.find(mark, end, min(state.posMax, begin + FORMULA_CAP))
        if end < 0:
            return False
        if source[end - 1] != "\\":
            break
        end += 1
    content, after = source[begin:end], source[end + len(mark) : end + len(mark) + 1]
    if not content.strip() or (mark == "$" and (content[0].isspace() or content[-1].isspace() or after.isdigit())):
        return False
    if not silent:
        token = state.push("formula", "math", 0)
        token.content, token.markup = content.strip(), mark
    state.pos = end + len(mark)
    return True


def _block_formula(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Lines from one that begins with `$$` to one that ends with it, blank ones among them too."""
    first = state.src[state.bMarks[start] + state.tShift[start] : state.eMarks[start]]
    if not first.startswith("$$") or state.is_code_block(start):
        return False
    found = [first[2:]]
    line = start
    while not found[-1].rstrip().endswith("$$"):
        line += 1
        if line >= end or state.sCount[line] < state.blkIndent or sum(map(len, found)) > FORMULA_CAP:
            return False
        found.append(state.src[state.bMarks[line] + state.tShift[line] : state.eMarks[line]])
    content = "\n".join(found).rstrip().removesuffix("$$").strip()
    if not content or "$$" in content:
        return False
    if not silent:
        token = state.push("formula_block", "math", 0)
        token.content, token.markup, token.block = content, "$$", True
        token.map = [start, line + 1]
    state.line = line + 1
    return True


# ------------------------------------------------------------------------------------------------- parts are written


def _write_formula(tokens: Sequence[Token], n: int, *_: Any) -> str:
    source, display = tokens[n].content, tokens[n].markup == "$$"
    made = formula(source, display=display)
    if made is None:
        return Markup('<code class="unread">{}</code>').format(f"{tokens[n].markup}{source}{tokens[n].markup}")
    if display or len(source) > LONG_FORMULA:
        return Markup('<span class="formula{}" role="group" tabindex="0" aria-label="Formula">{}</span>').format(
            " shown" if display else "", made
        )
    return made


def _write_formula_block(tokens: Sequence[Token], n: int, *rest: Any) -> str:
    return Markup("<p>{}</p>\n").format(Markup(_write_formula(tokens, n, *rest)))  # noqa: S704 - written above


def _write_fence(tokens: Sequence[Token], n: int, *_: Any) -> str:
    found = fenced(tokens[n].content, tokens[n].info.partition(" ")[0])
    lines = Markup("\n").join(found.lines) if found.lines else found.text
    return Markup('<pre tabindex="0"><code>{}</code></pre>\n').format(lines)


def _write_link(tokens: Sequence[Token], n: int, *_: Any) -> str:
    return Markup('<a href="{}" rel="{}">').format(tokens[n].attrGet("href"), _REL)


def _write_image(tokens: Sequence[Token], n: int, *_: Any) -> str:
    """A link to it, or within another link its description alone."""
    told = "".join(_said(tokens[n].children or ())).strip() or "picture"
    inside = sum({"link_open": 1, "link_close": -1}.get(one.type, 0) for one in tokens[:n])
    if inside:
        return str(escape(told))
    return Markup('<a href="{}" rel="{}">{}</a>').format(tokens[n].attrGet("src"), _REL, told)


def _write_table_open(*_: Any) -> str:
    return '<div class="wide" role="region" tabindex="0" aria-label="Table">\n<table>\n'


def _write_table_close(*_: Any) -> str:
    return "</table>\n</div>\n"


def _write_cell(tokens: Sequence[Token], n: int, *_: Any) -> str:
    """A cell. Numbers are aligned by a class, since a style would be refused."""
    token = tokens[n]
    scope = ' scope="col"' if token.tag == "th" else ""
    number = ' class="number"' if "right" in str(token.attrGet("style") or "") else ""
    return f"<{token.tag}{scope}{number}>"


def _write_list(tokens: Sequence[Token], n: int, *_: Any) -> str:
    start = tokens[n].attrGet("start")
    return f'<ol start="{int(start)}">\n' if isinstance(start, int) else "<ol>\n"


def _built(*, breaks: bool = False) -> MarkdownIt:
    made = MarkdownIt("commonmark", {"html": False, "breaks": breaks}).enable(["table", "strikethrough"])
    made.validateLink = lambda url: bool(_LINK.match(url))  # type: ignore[method-assign]
    made.inline.ruler.before("escape", "formula", _inline_formula)
    made.block.ruler.before("fence", "formula_block", _block_formula, {"alt": ["paragraph", "blockquote", "list"]})
    rules: dict[str, Any] = {
        "formula": _write_formula,
        "formula_block": _write_formula_block,
        "fence": _write_fence,
        "code_block": _write_fence,
        "link_open": _write_link,
        "image": _write_image,
        "table_open": _write_table_open,
        "table_close": _write_table_close,
        "th_open": _write_cell,
        "td_open": _write_cell,
        "ordered_list_open": _write_list,
    }
    made.renderer.rules.update(rules)  # type: ignore[attr-defined]
    return made


_MARKDOWN, _PROSE = _built(), _built(breaks=True)
