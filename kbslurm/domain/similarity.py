"""How similar two people's sources are: fingerprints by winnowing (Schleimer, Wilkerson, Aiken, 2003) over tokens.

Names and numbers count as equal, comments, docstrings and layout don't count, so renaming, re-tiling and commenting
change little; fingerprints have no order, so reordering changes little. CUDA in a Python string is read as CUDA. What
the problem hands out is taken off, and what many people have in common weighs less, the more they are.

A similarity is a reason to look, never a verdict: two people may well write the same short kernel.

Sources are hostile: reading one takes time and memory proportional to its length, up to a cap on its tokens.
"""

from __future__ import annotations

import heapq
import itertools
import math
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
K = 10  # tokens that a fingerprint is made of
WINDOW = 4  # of so many neighbours at least one is kept: K + WINDOW - 1 tokens in common are always found
LEAST = 8  # fingerprints that a source needs to be compared at all
USUAL = 0.45  # pairs at least this similar are shown
TOKENS_CAP, CHARACTERS_CAP = 20_000, 250_000  # per submission; what comes after them isn't compared

# One alternative per kind, none of which can be matched in two ways: reading never goes back.
_PYTHON = re.compile(
    r"""(?P<skip>[ \t\f\r\n\\]+|\#[^\n]*)
    |(?P<string>[bBrRuUfFtT]{0,2}(?:'''|\"\"\"|'|\"))
    |(?P<name>[^\W\d]\w*)
    |(?P<number>\.?\d[\w.]*)
    |(?P<sign>->|:=|\*\*=?|//=?|<<=?|>>=?|[-+*/%@&|^=!<>]=|.)""",
    re.VERBOSE | re.DOTALL,
)
_C = re.compile(
    r"""(?P<skip>[ \t\f\v\r\n\\]+|//[^\n\v]*|\#[ \t]*include\b[^\n\v]*)
    |(?P<comment>/\*)
    |(?P<string>(?:u8|[uUL])?R?\"|(?:u8|[uUL])?')
    |(?P<name>[^\W\d]\w*)
    |(?P<number>\.?\d[\w.]*)
    |(?P<sign><<<|>>>|<<=?|>>=?|->|::|\+\+|--|&&|\|\||[-+*/%&|^=!<>]=|.)""",
    re.VERBOSE | re.DOTALL,
)
_QUOTED = {quote: re.compile(rf"[^{quote}\\\n]*(?:\\.[^{quote}\\\n]*)*{quote}?", re.DOTALL) for quote in "'\""}
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_MEANT = {"n": "\v", "r": " ", "t": " "}
_IS_CUDA = re.compile(r"__global__|__device__|__shared__|#\s*include\b|extern\s+\\?\"C|<<<|\bblockIdx\b|\bthreadIdx\b")
_STANDS_ALONE = frozenset({"", "\n", ":", ";"})

_PYTHON_WORDS = frozenset(
    "False None True and as assert async await break class continue def del elif else except finally for from global"
    " if import in is lambda nonlocal not or pass raise return try while with yield"
    " range len min max sum abs zip enumerate float int print torch triton tl cuda cupy load_inline".split()
)
_C_WORDS = frozenset(
    "break case class const constexpr continue default do else enum extern for goto if inline namespace operator return"
    " sizeof static struct switch template typedef typename union using volatile while __restrict__ __global__"
    " __device__ __host__ __shared__ __constant__ __forceinline__ __launch_bounds__ threadIdx blockIdx blockDim gridDim"
    " __syncthreads __syncwarp __shfl_down_sync __shfl_xor_sync __shfl_sync atomicAdd atomicMax __ldg fmaf fmaxf fminf"
    " expf __expf sqrtf rsqrtf min max".split()
)
# Types are changed as easily as names.
_TYPES = frozenset(
    "void bool char short int long float double half unsigned signed auto size_t int32_t int64_t uint32_t uint64_t"
    " float2 float4 half2 __half __half2 __nv_bfloat16".split()
)
_IMPORTS = frozenset({"import", "from"})


class Watch(Protocol):
    """Passes rows on one by one while they are worked on, to tell somebody who waits how far that is."""

    def __call__(self, rows: Iterable[T], phase: str, /) -> Iterable[T]: ...


def unwatched(rows: Iterable[T], phase: str, /) -> Iterable[T]:
    """Nobody waits."""
    return rows


@dataclass(frozen=True, kw_only=True)
class Token:
    """A word of a source as it is compared: `text` is `V` for a name, `N` for a number, `S` for a string."""

    text: str
    line: int


@dataclass(frozen=True, kw_only=True)
class Document:
    """A submission as it is compared. People of one `side` aren't compared with each other; `where` are the file and
    line of each token, `marks` where each fingerprint begins. `cut`: it goes on after what is compared."""

    submission: int
    person: int
    side: str
    marks: Mapping[int, tuple[int, ...]]
    where: Sequence[tuple[str, int]] = ()
    cut: bool = False


@dataclass(frozen=True, kw_only=True)
class Similar:
    """Two people's most similar submissions; `share` is the part of the smaller one that the other has too. `pairs`:
    how many of their submissions are that similar in all."""

    left: Document
    right: Document
    share: float
    pairs: int


@dataclass(frozen=True, kw_only=True)
class Region:
    """Lines of a file that are in the other source as well, first and last included."""

    file: str
    first: int
    last: int


def tokens_of(file_name: str, text: str, cap: int = TOKENS_CAP) -> list[Token]:
    """A file's tokens, at most so many."""
    suffix = PurePosixPath(file_name).suffix.lower()
    if suffix == ".py":
        found = _python(text)
    elif suffix in (".json", ".toml", ".txt", ".md"):
        return []
    else:
        found = _c(text, 1)
    return list(itertools.islice(found, cap))


def document(
    files: Mapping[str, str], *, submission: int, person: int, side: str, known: frozenset[int] = frozenset()
) -> Document:
    """A submission's fingerprints, without the `known` ones."""
    marks: dict[int, tuple[int, ...]] = {}
    where: list[tuple[str, int]] = []
    cut, left = False, CHARACTERS_CAP
    for name, text in files.items():
        tokens = tokens_of(name, text[:left], TOKENS_CAP + 1 - len(where))
        left -= len(text)
        if left < 0:
            cut = True
        if len(where) + len(tokens) > TOKENS_CAP:
            cut, tokens = True, tokens[: TOKENS_CAP - len(where)]
        for mark, place in winnowed(hashes([one.text for one in tokens])):
            if mark not in known:
                marks[mark] = (*marks.get(mark, ())[:50], len(where) + place)
        where += [(name, one.line) for one in tokens]
        if cut:
            break
    return Document(submission=submission, person=person, side=side, marks=marks, where=where, cut=cut)


def handed_out(files: Iterable[tuple[str, str]]) -> frozenset[int]:
    """Every fingerprint that these texts could have: of templates and references, which everybody may use."""
    return frozenset(mark for name, text in files for mark in hashes([one.text for one in tokens_of(name, text)]))


def hashes(words: Sequence[str]) -> list[int]:
    """A hash of each K tokens in a row, the same in every process."""
    codes = [zlib.crc32(word.encode("utf-8", "surrogatepass")).to_bytes(4, "big") for word in words]
    joined = b"".join(codes)
    return [_mixed(zlib.crc32(joined[4 * n : 4 * (n + K)])) for n in range(len(words) - K + 1)]


def _mixed(code: int) -> int:
    """So that which one is least in a window has nothing to do with the text."""
    code = (code ^ (code >> 16)) * 0x45D9F3B & 0xFFFFFFFF
    return (code ^ (code >> 16)) * 0x45D9F3B & 0xFFFFFFFF


def winnowed(found: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Of each window the least hash, the last of equals, once; with its place."""
    taken = -1
    for start in range(max(1, len(found) - WINDOW + 1) if found else 0):
        stop = min(start + WINDOW, len(found))
        place = min(range(start, stop), key=lambda n: (found[n], -n))
        if place != taken:
            taken = place
            yield found[place], place


def weights_of(documents: Iterable[Document]) -> dict[int, float]:
    """What each fingerprint weighs: 1 if one person or two have it, and less, the more do."""
    people: dict[int, set[int]] = {}
    for one in documents:
        for mark in one.marks:
            people.setdefault(mark, set()).add(one.person)
    return {mark: 1 / max(1.0, math.log2(len(who))) ** 2 for mark, who in people.items()}


def share_of(one: Document, other: Document, weights: Mapping[int, float]) -> float:
    """Which part of the smaller source the other has too, from 0 to 1; 0 if there is too little to compare."""
    return _share(_Weighed(one, weights), _Weighed(other, weights), weights)


class _Weighed:
    """A document's fingerprints as a set, and what they weigh together."""

    def __init__(self, one: Document, weights: Mapping[int, float]) -> None:
        self.one = one
        self.marks = frozenset(one.marks)
        self.weight = sum(weights[mark] for mark in sorted(self.marks))


def _share(one: _Weighed, other: _Weighed, weights: Mapping[int, float]) -> float:
    if min(len(one.marks), len(other.marks)) < LEAST:
        return 0.0
    common = one.marks & other.marks
    if len(common) < LEAST / 2:
        return 0.0
    return min(1.0, sum(weights[mark] for mark in common) / min(one.weight, other.weight))


def similar(
    documents: Sequence[Document],
    *,
    among: frozenset[int] | None = None,
    at_least: float = USUAL,
    most: int = 1000,
    watch: Watch = unwatched,
) -> list[Similar]:
    """Pairs of people with similar sources, the most similar first, at most so many. `among`: only pairs in which one
    of these submissions is."""
    weights = weights_of(documents)
    weighed = [_Weighed(one, weights) for one in documents if len(one.marks) >= LEAST]
    best: dict[tuple[int, int], tuple[float, int, int]] = {}
    pairs: Counter[tuple[int, int]] = Counter()
    for n, m in _candidates(weighed, weights, at_least, watch):
        left, right = weighed[n].one, weighed[m].one
        if left.person == right.person or left.side == right.side:
            continue
        if among is not None and left.submission not in among and right.submission not in among:
            continue
        share = _share(weighed[n], weighed[m], weights)
        if share < at_least:
            continue
        key = (min(left.person, right.person), max(left.person, right.person))
        pairs[key] += 1
        best[key] = max(best.get(key, (0.0, 0, 0)), (share, -n, -m))  # of equals the first
    shown = heapq.nlargest(most, best.items(), key=lambda row: (row[1][0], row[0]))
    found = []
    for key, (share, n, m) in shown:
        left, right = sorted((weighed[-n].one, weighed[-m].one), key=lambda one: one.person)
        found.append(Similar(left=left, right=right, share=share, pairs=pairs[key]))
    return found


def _candidates(
    weighed: Sequence[_Weighed], weights: Mapping[int, float], at_least: float, watch: Watch
) -> Iterator[tuple[int, int]]:
    """All pairs that can be so similar, and few others, once each and by place: what two have in common can't be enough
    unless it has one of the rarer fingerprints of the lighter one, whose other ones weigh too little together."""
    having: dict[int, list[int]] = {}
    for n, one in enumerate(weighed):
        for mark in one.marks:
            having.setdefault(mark, []).append(n)
    for n, one in enumerate(watch(weighed, "comparing sources")):
        left, enough = one.weight, at_least * one.weight * (1 - 1e-9)
        met: set[int] = set()
        for mark in sorted(one.marks, key=lambda mark: (-weights[mark], mark)):
            if left < enough:
                break
            left -= weights[mark]
            met.update(having[mark])
        for m in met:
            if (one.weight, n) < (weighed[m].weight, m):
                yield min(n, m), max(n, m)


def regions(one: Document, other: Document) -> tuple[Region, ...]:
    """The lines of `one` that are in the other too."""
    lines: set[tuple[str, int]] = set()
    for mark in one.marks.keys() & other.marks.keys():
        for place in one.marks[mark]:
            lines.update(one.where[place : place + K])
    found: list[Region] = []
    order = {name: n for n, name in enumerate(dict.fromkeys(name for name, _ in one.where))}
    for name, line in sorted(lines, key=lambda row: (order[row[0]], row[1])):
        if found and found[-1].file == name and found[-1].last + 1 >= line:
            found[-1] = Region(file=name, first=found[-1].first, last=line)
        else:
            found.append(Region(file=name, first=line, last=line))
    return tuple(found)


def lines_of(file: Mapping[str, Any]) -> list[tuple[int, str, bool]]:
    """A file as it is shown side by side: each line's number and text, and whether the other source has it too."""
    marked = {line for first, last in file["marked"] for line in range(first, last + 1)}
    return [(number, line, number in marked) for number, line in enumerate(file["text"].split("\n"), 1)]


def _python(text: str) -> Iterator[Token]:
    line, before, place, after = 1, "\n", 0, False
    while place < len(text):
        found = _PYTHON.match(text, place)
        assert found is not None  # the last alternative takes any character
        kind, word, place = found.lastgroup, found[0], found.end()
        at = line
        match kind:
            case "skip":
                if "\n" in word:
                    line += word.count("\n")
                    before = "\n" if not word.startswith("\\") else before
                    after = False
                continue
            case "string":
                content, place = _python_string(text, word, place)
                line += content.count("\n")
                if _IS_CUDA.search(content):
                    yield from _c(_unescaped(content, word), at)
                elif before not in _STANDS_ALONE:
                    yield Token(text="S", line=at)
                continue
            case "name":
                if word in _IMPORTS and before == "\n":  # imports say nothing of who wrote a kernel
                    after = True
                kept = word in _PYTHON_WORDS or before == "."
                token = word if kept else "V"
            case "number":
                token = "N"
            case _:
                token = word
        before = word
        if not after:
            yield Token(text=token, line=at)


def _python_string(text: str, begins: str, place: int) -> tuple[str, int]:
    """What is in the string that begins there, and where the text goes on; one that doesn't end does so with its line,
    or the text."""
    quote = begins.lstrip("bBrRuUfFtT")
    if len(quote) == 3:
        end = text.find(quote, place)
        while end > place and _is_escaped(text, end, place):
            end = text.find(quote, end + 1)
        return (text[place:], len(text)) if end < 0 else (text[place:end], end + 3)
    found = _QUOTED[quote].match(text, place)
    assert found is not None
    return found[0].removesuffix(quote), found.end()


def _is_escaped(text: str, end: int, start: int) -> bool:
    """Whether an odd number of backslashes is before it; so many that nobody writes them are not counted."""
    begin = end
    while begin > max(start, end - 64) and text[begin - 1] == "\\":
        begin -= 1
    return (end - begin) % 2 == 1


def _unescaped(content: str, begins: str) -> str:
    """The text that a string literal means, as far as tokens go, with as many lines; `\\v` stands for a line's end."""
    prefix = begins.rstrip("'\"").lower()
    if "r" not in prefix:
        content = _ESCAPE.sub(lambda found: _MEANT.get(found[1], found[1]), content)
    return content.replace("{{", "{").replace("}}", "}") if "f" in prefix else content


def _c(text: str, line: int) -> Iterator[Token]:
    place = 0
    while place < len(text):
        found = _C.match(text, place)
        assert found is not None
        kind, word, place = found.lastgroup, found[0], found.end()
        at = line
        match kind:
            case "skip":
                line += word.count("\n")
                continue
            case "comment":
                end = text.find("*/", place)
                end = len(text) if end < 0 else end + 2
                line += text.count("\n", place, end)
                place = end
                continue
            case "string":
                content, place = _c_string(text, word, place)
                line += content.count("\n")
                token = "S"
            case "name":
                token = word if word in _C_WORDS else "T" if word in _TYPES else "V"
            case "number":
                token = "N"
            case _:
                token = word
        yield Token(text=token, line=at)


def _c_string(text: str, begins: str, place: int) -> tuple[str, int]:
    if begins.endswith('R"'):
        head = text.find("(", place, place + 17)
        if head >= 0:
            close = f'){text[place:head]}"'
            end = text.find(close, head)
            return (text[head:], len(text)) if end < 0 else (text[head:end], end + len(close))
    found = _QUOTED[begins[-1]].match(text, place)
    assert found is not None
    return found[0], found.end()
