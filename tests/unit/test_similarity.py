"""Similarity of sources: what disguises a copy is seen through, what people write on their own isn't flagged, and no
source takes long."""

from __future__ import annotations

import itertools
import math
import random
import time
from collections.abc import Mapping
from typing import Any

import pytest

from kbslurm.domain import similarity
from kbslurm.domain.similarity import Document, document, handed_out, regions, share_of, similar, tokens_of, weights_of
from tests.disguises import WAYS, renamed
from tests.honest_kernels import HELD_OUT, SOFTMAX, TEMPLATE, TUNING

SIGNS = ("+", "-", "*", "/", "%", "&", "|", "^", "<<", ">>", "//", "**", "@", "<", ">", "==", "!=")
TUNING_TEXT = SOFTMAX["cuda_block"]
TEMPLATES = handed_out([("template.py", TEMPLATE)])


def read(
    text: str, number: int = 1, *, person: int | None = None, side: str | None = None, name: str = "a.py"
) -> Document:
    whose = number if person is None else person
    return document({name: text}, submission=number, person=whose, side=side or f"person:{whose}", known=TEMPLATES)


def judged(problems: Mapping[str, Mapping[str, str]]) -> tuple[float, float]:
    """Recall and precision over one corpus per copy: everybody's own kernels, and the copy of one of them."""
    found = missed = wrong = 0
    for kernels in problems.values():
        own = {name: read(text, number) for number, (name, text) in enumerate(kernels.items(), 1)}
        weights = weights_of(own.values())
        wrong += sum(share_of(*two, weights) >= similarity.USUAL for two in itertools.combinations(own.values(), 2))
        for number, (name, text) in enumerate(kernels.items(), 1):
            for way in WAYS.values():
                copy = read(way(text, number), 99)
                weights = weights_of([*own.values(), copy])
                flagged = {other for other in own if share_of(own[other], copy, weights) >= similarity.USUAL}
                found += name in flagged
                missed += name not in flagged
                wrong += len(flagged - {name})
    return found / (found + missed), found / (found + wrong)


@pytest.mark.parametrize("half", ["tuning", "held out"])
def test_disguised_copies_are_found_and_independent_kernels_are_not(half: str) -> None:
    recall, precision = judged(TUNING if half == "tuning" else HELD_OUT)
    print(f"{half}: recall {recall:.3f}, precision {precision:.3f}")
    assert recall >= 0.8 and precision >= 0.9


def test_of_a_large_course_few_pairs_are_weighed_and_none_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """40 people with four versions each, who all have some lines in common, and a copy."""
    rng, corpus = random.Random(7), []
    usual = "\n".join(f"    a = b[{n}] + c * {n}" for n in range(10))
    for person in range(40):
        lines = ["    y = " + "".join(f"a {rng.choice(SIGNS)} " for _ in range(6)) + "b" for _ in range(40)]
        for version in range(1, 5):
            text = "\n".join([usual, *lines[: 30 + version]])
            corpus.append(read(text, 5 * person + version, person=person))
    corpus += [read(renamed(TUNING_TEXT, 3), 901, person=901), read(TUNING_TEXT, 902, person=902)]
    weights = weights_of(corpus)
    enough = {
        (one.person, other.person)
        for one, other in itertools.combinations(corpus, 2)
        if one.person != other.person and share_of(one, other, weights) >= similarity.USUAL
    }
    weighed = 0
    share = similarity._share

    def counted(*told: Any) -> float:
        nonlocal weighed
        weighed += 1
        return share(*told)

    monkeypatch.setattr(similarity, "_share", counted)
    assert {(row.left.person, row.right.person) for row in similar(corpus)} == enough
    assert (901, 902) in enough
    print(f"{weighed:,} of {math.comb(len(corpus), 2):,} pairs weighed, {len(enough)} people's pairs")
    assert weighed < math.comb(len(corpus), 2) / 3


def test_every_disguise_changes_the_text() -> None:
    for kernels in (*TUNING.values(), *HELD_OUT.values()):
        changed = {name for name, way in WAYS.items() for text in kernels.values() if way(text, 3) != text}
        assert changed == set(WAYS)


def test_cuda_in_a_string_is_the_same_as_in_a_file() -> None:
    text = SOFTMAX["cuda_block"]
    cuda, theirs = (one.partition('r"""')[2].partition('"""')[0] for one in (text, renamed(text, 5)))
    one, other = read(text), read(theirs, 2, name="kernel.cu")
    assert share_of(one, other, weights_of([one, other])) > 0.8
    in_pieces = "SOURCE = (\n" + "".join(f"    {line + chr(10)!r}\n" for line in cuda.splitlines() if line) + ")\n"
    lines = [token.text for token in tokens_of("a.py", "x = " + repr(cuda))]
    assert lines == ["V", "=", *(token.text for token in tokens_of("a.cu", cuda))], "escapes are read"
    assert "__global__" in [token.text for token in tokens_of("a.py", in_pieces)]


def test_comments_docstrings_and_imports_do_not_count() -> None:
    plain = "def f(a):\n    return a + 1\n"
    said = '"""What it is."""\nimport torch  # yes\n\n\ndef g(b):\n    """Adds."""\n    # one\n    return b + 22\n'
    assert [token.text for token in tokens_of("a.py", plain)] == [token.text for token in tokens_of("b.py", said)]
    assert [token.text for token in tokens_of("a.c", "int /* a\n b */ x; // y\n#include <q>\nx = 1u;")] == [
        token.text for token in tokens_of("a.cu", "float y;\ny = 2;")
    ]
    assert [token.line for token in tokens_of("a.c", "/*\n*/ a\n\nb")] == [2, 4]


def test_what_the_problem_hands_out_is_taken_off() -> None:
    assert not read(TEMPLATE).marks
    assert document({"a.py": TEMPLATE}, submission=1, person=1, side="a").marks


def test_only_people_of_different_sides_are_compared_and_only_among_the_wanted() -> None:
    text = SOFTMAX["cuda_block"]
    mates = [read(text, 1, side="team:x"), read(renamed(text, 1), 2, side="team:x"), read(text, 3, person=1, side="p")]
    assert similar(mates[:2]) == []
    assert similar([mates[0], mates[2]]) == [], "nobody is compared with themselves"
    theirs = [read(text, 1), read(renamed(text, 1), 2), read(text, 3, person=2), read(SOFTMAX["triton_online"], 4)]
    (pair,) = similar(theirs)
    assert (pair.left.person, pair.right.person, pair.pairs, pair.share) == (1, 2, 2, 1.0)
    assert similar(theirs, among=frozenset({4})) == []
    assert len(similar(theirs, among=frozenset({1}))) == 1
    assert similar(theirs, most=0) == []


def test_what_is_in_common_is_shown_by_file_and_line() -> None:
    text = SOFTMAX["cuda_warp"]
    one = document({"main.py": "x = 1\n", "k.py": text}, submission=1, person=1, side="a", known=TEMPLATES)
    other = read("\n\n" + text, 2)
    kernel = next(n for n, line in enumerate(text.splitlines(), 1) if "float best" in line)
    (left, *_), (right, *_) = regions(one, other), regions(other, one)
    assert left.file == "k.py" and left.first <= kernel <= left.last
    assert right.file == "a.py" and right.first == left.first + 2
    assert regions(one, read("y = 2\n", 3)) == ()


HOSTILE = {
    "parentheses": "(" * 1_000_000,
    "NULs": "\0" * 1_000_000,
    "quotes": '"' * 1_000_000,
    "an unterminated string": "x = '''" + "\\'''" * 250_000,
    "a string of backslashes": 'x = "' + "\\" * 1_000_000,
    "one name": "a" * 1_000_000,
    "one line": "a = b + 1; " * 90_000,
    "spaces": " " * 999_999 + "x",
    "comments": "/*" * 500_000,
    "raw strings": 'R"(' * 330_000,
    "CUDA without an end": 'x = """__global__ ' + "f(" * 490_000,
    "numbers": "1.e5" * 250_000,
    "numbers apart": ".1 " * 330_000,
    "includes": "#include " * 110_000,
    "surrogates": "\ud800" * 500_000,
    "the same words": "for i in range(3): x[i] = 1\n" * 35_000,
}


@pytest.mark.parametrize("suffix", [".py", ".cu", ".json"])
@pytest.mark.parametrize("what", HOSTILE)
def test_no_source_takes_long(what: str, suffix: str) -> None:
    began = time.process_time()
    found = read(HOSTILE[what], name=f"a{suffix}")
    assert time.process_time() - began < 4.0, "of processor time; usually a tenth"
    assert len(found.where) <= similarity.TOKENS_CAP


def test_a_copy_after_too_much_is_known_to_be_cut() -> None:
    found = read("x = 1\n" * similarity.TOKENS_CAP + SOFTMAX["triton_online"])
    assert found.cut and not read(SOFTMAX["triton_online"]).cut


def test_a_whole_course_is_compared_in_seconds() -> None:
    """400 submissions of 60 people: each works on a kernel of their own, and one has a copy."""
    texts = [text for kernels in (*TUNING.values(), *HELD_OUT.values()) for text in kernels.values()]
    ways = list(WAYS.values())
    sources = [(n % 60, ways[n % len(ways)](texts[n % 60 % len(texts)], n % 60)) for n in range(400)]
    began = time.process_time()
    corpus = [read(text, number, person=person) for number, (person, text) in enumerate(sources, 1)]
    found = similar(corpus)
    took = time.process_time() - began
    print(f"400 submissions: {took:.1f} s of processor time, {len(found)} pairs")
    assert took < 20.0, "usually less than three"
    assert {row.left.person % len(texts) == row.right.person % len(texts) for row in found} == {True}
