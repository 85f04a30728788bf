"""Statements and code as markup: whatever somebody writes, only what we mean to be markup is, and it comes in time."""

from __future__ import annotations

import re
import time
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbslurm.api.pages.text import highlighting, markdown
from kbslurm.api.pages.text.formulas import FORMULA_CAP, formula
from kbslurm.api.pages.text.highlighting import COLOURED_CAP, LINE_CAP, NUMBERED_CAP, highlighted
from kbslurm.api.pages.text.markdown import FORMULAS_CAP, STATEMENT_CAP, statement

ELEMENTS = {
    "p", "h3", "h4", "h5", "h6", "pre", "code", "span", "div", "table", "thead", "tbody", "tr", "th", "td", "ul", "ol",
    "li", "blockquote", "a", "strong", "em", "s", "hr", "br", "math", "mrow", "mi", "mo", "mn", "ms", "mtext", "mspace",
    "mfrac", "msqrt", "mroot", "mstyle", "mpadded", "mphantom", "menclose", "msub", "msup", "msubsup", "munder",
    "mover", "munderover", "mtable", "mtr", "mtd", "mlabeledtr", "merror", "mmultiscripts", "mprescripts", "none",
}  # fmt: skip
HOSTILE = (
    "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "[a](javascript:alert(1))", "[a](data:text/html,x)",
    "![a](javascript:alert(1))", "<javascript:alert(1)>", "[a](/board/x)", "[a]: javascript:alert(1)\n[a]",
    "$\\text{<script>alert(1)</script>}$", "$\\href{javascript:alert(1)}{x}$", "$\\style{color:red}{x}$",
    "$\\class{c-x}{x}$", "$<img src=x onerror=alert(1)>$", "```<script>\n<script>\n```", "`<b>`", "&lt;script&gt;",
    "$\\color{red;background:url(//x)}{x}$", "| <i> |\n|---|\n| <script> |", "# <script>x</script>",
    "![x](//evil/x.png)",
    "[a](https://a.b 'x\" onclick=\"alert(1)')", "[a](vbscript:x)", "<a href='javascript:x'>y</a>", "$$\n<script>\n$$",
    "[a](https://a.b\" onmouseover=\"x)", "$\\unicode{x3c}script$", "$&lt;script&gt;$", "[a](JaVaScRiPt:alert(1))",
)  # fmt: skip


class Seen(HTMLParser):
    """The elements and attributes of a piece of markup, and that each element is closed in its turn."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements, self.attributes = set[str](), set[tuple[str, str]]()
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.add(tag)
        self.attributes |= {(name, value or "") for name, value in attrs}
        if tag not in ("br", "hr"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def harmless(text: str) -> None:
    found = Seen(text)
    assert found.elements <= ELEMENTS, found.elements - ELEMENTS
    assert not found.open
    for name, value in found.attributes:
        assert not name.startswith("on") and name not in ("style", "src", "srcset"), (name, value)
        if name == "href":
            assert re.match(r"(https?://|mailto:)", value, re.IGNORECASE), value
        if name == "id":
            assert re.fullmatch(r"task-[a-z0-9-]+", value)


@pytest.mark.parametrize("text", HOSTILE)
def test_what_is_hostile_stays_text(text: str) -> None:
    for around in ("{}", "x {} y", "- {}", "> {}", "# {}", "| a |\n|---|\n| {} |", "[{}](https://a.b)", "**{}**"):
        harmless(statement(around.format(text)).markup)


@settings(deadline=None)
@given(st.lists(st.sampled_from([*HOSTILE, *"$*_`[]()<>#|\\\n-!&{}^\"'", "$$", "x ", "\n\n", "```", "\\frac", "1"])))
def test_nor_is_any_mixture_of_it_markup(parts: list[str]) -> None:
    harmless(statement("".join(parts)).markup)


@settings(deadline=None)
@given(st.text(max_size=200))
def test_nor_is_any_text(text: str) -> None:
    harmless(statement(text).markup)


def test_a_statement_is_markdown_with_formulas_tables_and_code() -> None:
    text = (
        "# Top\n\n### Deeper\n\nCosts $5 and $6; $x^2$, `a$b$`, [l](https://a.b).\n\n$$\n\\frac{1}{2}\n\n+1\n$$\n\n"
        "| a | b |\n|---|--:|\n| 1 | 2 |\n\n```python\ndef f(): return 1\n```\n\n# Top\n\n![a plot](https://a.b/p.png)"
    )
    found = statement(text)
    assert [(one.id, one.depth, one.text) for one in found.headings] == [
        ("task-top", 0, "Top"), ("task-deeper", 1, "Deeper"), ("task-top-2", 0, "Top"),
    ]  # fmt: skip
    for shown in (
        '<h3 id="task-top">', '<h4 id="task-deeper">', "Costs $5 and $6; <math", "<msup><mi>x</mi><mn>2</mn></msup>",
        "<code>a$b$</code>", '<a href="https://a.b" rel="noopener nofollow">l</a>', '<math display="block">',
        "<mfrac>", '<th scope="col" class="number">b</th>', '<span class="c-keyword">def </span>',
        '<a href="https://a.b/p.png" rel="noopener nofollow">a plot</a>',
    ):  # fmt: skip
        assert shown in found.markup, shown
    assert "<img" not in found.markup


def test_a_formula_that_cannot_be_read_is_shown_as_it_was_written() -> None:
    assert '<code class="unread">$\\frac{$</code>' in statement("so $\\frac{$ is").markup
    assert formula("x" * (FORMULA_CAP + 1), display=False) is None
    assert formula("{" * 100 + "}" * 100, display=False) is None
    assert formula("\\newcommand{\\a}{b}\\a", display=False) is None


def test_a_statement_that_is_too_much_is_shown_as_it_was_written() -> None:
    for text in ("a" * (STATEMENT_CAP + 1), "$x$ " * (FORMULAS_CAP + 1)):
        shown = statement(text).markup
        assert shown.startswith('<pre class="text">') and text in shown


@pytest.mark.parametrize(
    "part",
    ["[", "![", "*a ", "> ", "`", "$", "$a ", "$$\n", "|a", "[a](", "&", "_a", "\\", "# a\n", "```\n", "- ", "<a "],
)
def test_no_statement_takes_long(part: str) -> None:
    """Bounds that a slow machine keeps too; what grows with the square takes minutes."""
    started = time.process_time()
    statement((part * STATEMENT_CAP)[: STATEMENT_CAP - 1])
    assert time.process_time() - started < 20


# -------------------------------------------------------------------------------------------------------------- code


def _text_of(line: str) -> str:
    class Text(HTMLParser):
        said = ""

        def handle_data(self, data: str) -> None:
            self.said += data

    parser = Text()
    parser.feed(str(line))
    parser.close()
    return parser.said


def test_code_is_highlighted_by_what_its_name_says() -> None:
    python = highlighted("@triton.jit\ndef f(x):\n    return 'a' # b\n", "k.py")
    assert python.language == "Python" and python.coloured and len(python.lines) == 3
    assert '<span class="c-name">f</span>' in python.lines[1]
    assert '<span class="c-comment"># b</span>' in python.lines[2]
    cuda = highlighted("#include <a.h>\n__global__ void k(float *x) { x[0] = 1.0f; }", "k.cu")
    assert cuda.language == "CUDA" and "c-meta" in cuda.lines[0] and "c-keyword" in cuda.lines[1]
    assert highlighted("a < b", "k.txt").lines == ("a &lt; b",)


@settings(deadline=None)
@given(st.text(max_size=300), st.sampled_from(["k.py", "k.cu", "k.cpp", "k.c", "k.json", "k.txt", "k"]))
def test_highlighted_code_is_the_same_text_and_nothing_in_it_is_markup(text: str, name: str) -> None:
    text = text.replace("\x00", "")
    found = highlighted(text, name)
    for line in found.lines:
        seen = Seen(str(line))
        assert seen.elements <= {"span"} and not seen.open
        assert all(name == "class" and re.fullmatch(r"c-[a-z]+", value) for name, value in seen.attributes)
    same = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n")
    assert "\n".join(map(_text_of, found.lines)) == same


def test_code_that_is_too_large_is_plain() -> None:
    assert not highlighted("x = 1\n" * (COLOURED_CAP // 5), "k.py").coloured
    assert not highlighted("x" * (LINE_CAP + 1), "k.py").coloured
    many = highlighted("\n" * (NUMBERED_CAP + 1), "k.py")
    assert many.lines == () and many.text == "\n" * (NUMBERED_CAP + 1)


def test_code_that_takes_too_long_is_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(highlighting, "WITHIN_S", -1.0)
    found = highlighted("taken = 'too long'", "k.py")
    assert not found.coloured and found.lines == ("taken = &#39;too long&#39;",)


def test_what_was_drawn_is_kept() -> None:
    text = "kept: $x$"
    assert statement(text) is statement(text)
    assert highlighted(text, "a.py") is highlighted(text, "a.py")
    assert markdown.KEPT * STATEMENT_CAP < 10_000_000, "and not for long"
