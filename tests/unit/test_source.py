"""What may be submitted, and what the file says about where it goes."""

from __future__ import annotations

import hashlib

import pytest

from kbslurm.domain import finals
from kbslurm.domain.manifest import manifest_for, manifest_text
from kbslurm.domain.source import (
    SOURCE_CAP,
    Directives,
    check_language,
    checked_source,
    directives,
    for_board,
    settled_board,
    settled_gpus,
)
from kbslurm.errors import Invalid, TooLarge
from tests.flow.stage import PROBLEM


def test_a_good_file_is_taken_as_it_is() -> None:
    data = "\ufeff# größe\r\nx = 1\n".encode()
    source = checked_source("some/where/Kernel.PY", data)
    assert (source.file_name, source.text.encode(), source.sha256) == (
        "Kernel.PY",
        data,
        hashlib.sha256(data).hexdigest(),
    )
    assert checked_source("a.cu", b"x" * SOURCE_CAP).file_name == "a.cu"


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        ("a.py", b"", "a.py is empty"),
        ("a.py", b" \n\t\n", "a.py is empty"),
        ("a.py", "\ufeff".encode(), "a.py is empty"),
        ("a.py", b"x = 1\n\xff\n", r"a.py isn't UTF-8 \(line 2\)"),
        ("a.py", b"x = 1\n\n\x00", r"NUL character \(line 3\)"),
        ("a.txt", b"x", "must end in one of"),
        ("py", b"x", "must end in one of"),
        (".py", b"x", "must end in one of"),
        ("a.py.exe", b"x", "must end in one of"),
        ("", b"x", "isn't a valid file name"),
        ("..", b"x", "isn't a valid|must end in one of"),
        ("a\n.py", b"x", "isn't a valid file name"),
        ("x" * 300 + ".py", b"x", "isn't a valid file name"),
    ],
)
def test_what_cant_be_submitted_is_refused(name: str, data: bytes, says: str) -> None:
    with pytest.raises(Invalid, match=says):
        checked_source(name, data)


def test_a_byte_too_many_is_too_large() -> None:
    with pytest.raises(TooLarge, match="1,000,001 bytes") as found:
        checked_source("a.py", b"x" * (SOURCE_CAP + 1))
    assert found.value.http_status == 413


@pytest.mark.parametrize(
    ("text", "want"),
    [
        (
            "#!POPCORN leaderboard Sort\n#!POPCORN gpus H100 A100\n",
            Directives(leaderboard="sort", gpus=("H100", "A100")),
        ),
        ("//!POPCORN leaderboard sort\n//!popcorn GPU H100\n", Directives(leaderboard="sort", gpus=("H100",))),
        ("#!/usr/bin/env python3\n\n# words\n#!Popcorn Gpus H100, A100 h100\n", Directives(gpus=("H100", "A100"))),
        ("\ufeff#!POPCORN leaderboard a\r\n#!POPCORN leaderboard A\r\n", Directives(leaderboard="a")),
        ("import os\n#!POPCORN leaderboard late\n", Directives()),
        ("#include <x>\n//!POPCORN leaderboard late\n", Directives()),
        ("#!POPCORN colour red\n#!POPCORN\n", Directives()),
        ("", Directives()),
    ],
)
def test_directives_stand_in_the_leading_comments(text: str, want: Directives) -> None:
    assert directives(text) == want


@pytest.mark.parametrize("text", ["#!POPCORN leaderboard\n", "#!POPCORN leaderboard a b\n"])
def test_a_leaderboard_line_names_one_board(text: str) -> None:
    with pytest.raises(Invalid, match="needs exactly one name"):
        directives(text)


def test_two_boards_in_one_file_are_refused() -> None:
    with pytest.raises(Invalid, match="two leaderboards, a and b"):
        directives("#!POPCORN leaderboard a\n#!POPCORN leaderboard b\n")


def test_the_file_and_the_caller_must_agree_on_the_board() -> None:
    said = Directives(leaderboard="sort", gpus=("H100",))
    assert settled_board(said, None) == settled_board(said, "SORT") == settled_board(Directives(), "sort") == "sort"
    with pytest.raises(Invalid, match="the file names leaderboard sort, but you chose scan"):
        settled_board(said, "scan")
    with pytest.raises(Invalid, match="no leaderboard given"):
        settled_board(Directives(), None)
    assert settled_gpus(said, ["A100"]) == ("A100",)
    assert settled_gpus(said, []) == ("H100",)


def test_a_python_problem_takes_python_files() -> None:
    check_language(checked_source("a.py", b"x"), "py")
    with pytest.raises(Invalid, match=r"a.cu: this problem accepts \.py"):
        check_language(checked_source("a.cu", b"x"), "py")
    with pytest.raises(Invalid, match=r"this problem accepts \.cu \.cuh \.cpp"):
        check_language(checked_source("a.py", b"x"), "cu")


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("#!POPCORN leaderboard old\n\nx = 1\n", "#!POPCORN leaderboard new\n\nx = 1\n"),
        ("\ufeff# a\r\n# !popcorn  Leaderboard  old\r\nx\r\n", "\ufeff# a\r\n# !popcorn  Leaderboard  new\r\nx\r\n"),
        (
            "//!POPCORN leaderboard old\n//!POPCORN gpu A\nint x;\n",
            "//!POPCORN leaderboard new\n//!POPCORN gpu A\nint x;\n",
        ),
        ("x = 1\n#!POPCORN leaderboard old\n", "x = 1\n#!POPCORN leaderboard old\n"),
        ("x = 1\n", "x = 1\n"),
        ("", ""),
    ],
)  # fmt: skip
def test_a_template_names_the_board_that_hands_it_out(text: str, want: str) -> None:
    assert for_board(text, "new") == want


@pytest.mark.parametrize("letter", ["\x01", "\x1b", "\u0416", "\U0001f600", "\\", "x"])
def test_the_largest_sources_fit_into_one_final(letter: str) -> None:
    """Two of a megabyte of control characters were over the limit of a manifest, and their final was refused."""
    body = "def custom_kernel(data):\n    return sorted(data)\n#"
    taken, refused = [body], set[str]()
    for size in (300_000, 600_000, SOURCE_CAP):
        text = body + letter * ((size - len(body)) // len(letter.encode()))
        try:
            taken.append(checked_source("k.py", text.encode()).text)
        except TooLarge as error:
            refused.add(str(error).partition(" as it is sent to where it runs, over the limit of ")[2][:9])
    assert len(taken) == {"\x01": 2, "\x1b": 2, "\u0416": 3, "\U0001f600": 3}.get(letter, 4)
    assert refused <= {"2,000,000"}
    staged = finals.staged(PROBLEM, taken[-1:] * 5)
    manifest = manifest_for(
        staged, token="t", attempt=1, nonce="n", mode="leaderboard", gpu="cpu", source=taken[-1], secret_seed="s"
    )
    assert len(manifest_text(manifest)) > 4 * len(taken[-1])
