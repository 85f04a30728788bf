"""What may be submitted, and what the file says about where it goes."""

from __future__ import annotations

import hashlib

import pytest

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
