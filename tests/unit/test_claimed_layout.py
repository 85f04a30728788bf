"""What a runner may claim of an output, and that the judge grants it within its own bounds only."""

from __future__ import annotations

import json
from array import array
from typing import Any

import numpy as np
import pytest

from kbslurm_eval.shared import claimed_layout
from kbslurm_eval.shared.claimed_layout import granted, with_claim
from kbslurm_eval.shared.layouts import Layout, Misfit

LIKE = Layout.of([1.0] * 100)


def claim(tree: object) -> str:
    return f"said\0{json.dumps(tree)}"


@pytest.mark.parametrize(
    "output", [[1, 2, 3, 4], [1, 2.5], [1, 2.5] * 8, (1.5, "a", None, True), {"a": b"xy", 3: [1.0]}, 7, 2j]
)
def test_what_is_claimed_is_read_back(output: object) -> None:
    found = granted(with_claim("it doesn't fit", output), LIKE)
    assert found is not None
    out = bytearray(found.size)
    found.write(output, memoryview(out))
    assert found.read(out) == output
    assert claimed_layout.without_claim(with_claim("it doesn't fit", output)) == "it doesn't fit"


@pytest.mark.parametrize(
    "tree",
    [
        ["q", 0, 1 << 40],
        ["q", 0, -1],
        ["q", 0, True],
        ["m", 0, 4, [4]],
        ["m", 0, 4, [True]],
        ["m", 0, 1, [0, 0]],
        ["m", 0, 1 << 40, [0]],
        ["j", 0, 1 << 40],
        ["u", 0, "9"],
        ["T", "float32", [1 << 20, 1 << 20], 0, 4, "cpu"],
        ["T", "float32", [4], 0, 16, "cuda"],
        ["T", "quint8", [4], 0, 4, "cpu"],
        ["n", "|O8", [4], 0, 32],
        ["n", "<f8,<f8", [4], 0, 64],
        ["G", ["T", "float32", [4], 0, 16, "cuda"]],
        ["O", "os", "system", []],
        ["d", [[["t", [["x"]]], ["0"]]]],
        ["x"],
        "text",
        {"a": 1},
        None,
    ],
)
def test_what_is_out_of_bounds_is_not_granted(tree: object) -> None:
    assert granted(claim(tree), LIKE) is None


def test_tensors_may_be_on_the_judges_device_where_no_reference_says_where(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claimed_layout, "_made", lambda node, alone, size: node)  # without torch
    told = claim(["l", [["T", "int64", [1], 0, 8, "cuda"]]])
    assert granted(told, claimed_layout.ANY, cap=64) is None
    found = granted(told, claimed_layout.ANY, cap=64, device="cuda")
    assert found is not None
    assert found.tree == ["l", [["T", "int64", [1], 0, 8, "cuda"]]]
    assert granted(told, claimed_layout.ANY, cap=64, device="mps") is None


def test_numbers_that_are_objects_of_their_own_take_the_judge_more() -> None:
    """A list of them may be as long as the array that the reference gives, and not eight times as large."""
    million = 1 << 20
    like = Layout(tree=["a", "f", 0, million], size=4 * million)
    assert granted(claim(["f", 0, million]), like) is not None
    assert granted(claim(["a", "d", 0, 4 * million]), like) is not None
    assert granted(claim(["f", 0, 2 * million]), like) is None
    assert granted(claim(["q", 0, 2 * million]), like) is None


def test_nothing_is_believed_of_places_and_sizes() -> None:
    found = granted(claim(["l", [["n", "<f8", [4], 10**9, 1], ["g", -5]]]), LIKE)
    assert found is not None
    assert (found.tree, found.size) == (["l", [["n", "<f8", [4], 0, 32], ["g", 32]]], 40)


@pytest.mark.parametrize("text", ["", "no claim", "said\0", "said\0{", "said\0" + "[" * 5000])
def test_text_that_claims_nothing_is_none(text: str) -> None:
    assert granted(text, LIKE) is None


@pytest.mark.parametrize("like", [np.str_("n30"), np.array(["abc", "de"]), np.array(["abc"], ">U3")])
def test_numbers_that_are_no_letters_are_a_misfit(like: Any) -> None:
    """numpy makes text of them unseen, and Python takes it for an error of its own later."""
    layout = Layout.of(like)
    out = bytearray(layout.size)
    layout.write(like, memoryview(out))
    assert np.array_equal(layout.read(bytes(out)), like)
    with pytest.raises(Misfit, match="letters that don't exist"):
        layout.read(
            b"\xff\xff\x11\x00".ljust(layout.size, b"\0") if like.dtype.byteorder != ">" else b"\x7f" * layout.size
        )


@pytest.mark.parametrize(
    ("told", "like", "other", "want"),
    [
        (np.zeros((3, 4), "f8"), np.zeros((3, 4), "f4"), np.zeros((5, 4), "f4"), np.zeros((5, 4), "f8")),
        ((np.zeros(3, "f8"), 1.5), (np.zeros(3, "f4"), 1.5), (np.zeros(9, "f4"), 1.5), (np.zeros(9, "f8"), 1.5)),
        (array("f", [0] * 3), array("d", [0] * 3), array("d", [0] * 7), array("f", [0] * 7)),
        (np.zeros((3, 1), "f8"), np.zeros(3, "f4"), np.zeros(5, "f4"), np.zeros((5, 1), "f8")),
        (np.zeros((1, 3), "f8"), np.zeros(3, "f4"), np.zeros(5, "f4"), np.zeros((1, 5), "f8")),
        (np.zeros(6, "f4"), [0.0] * 6, [0.0] * 9, np.zeros(9, "f4")),
        (np.zeros(1, "f4"), [0.0], [0.0] * 9, np.zeros(9, "f4")),
        (array("d", [0] * 6), [0] * 6, [0] * 9, array("d", [0] * 9)),
        ((0.0,) * 6, [0.0] * 6, [0.0] * 9, (0.0,) * 9),
        ((0,) * 6, [0] * 6, [0] * 9, (0,) * 9),
        ([0.0] * 6, (0.0,) * 6, (0.0,) * 9, [0.0] * 9),
        ([0] * 6, [0.0] * 6, [0.0] * 9, [0] * 9),
        ((np.zeros(6), 1.5), ([0.0] * 6, 1.5), ([0.0] * 9, 1.5), (np.zeros(9), 1.5)),
        (np.zeros((3, 3), "f4"), [0.0] * 9, [0.0] * 25, None),
        (np.zeros(5, "f4"), [0.0] * 6, [0.0] * 9, None),
        (np.zeros(6, "f4"), [0.0] * 6, [[0.0]] * 9, None),
        ((0.0, True), [0.0] * 2, [0.0] * 9, None),
        ([np.zeros(3), 1.5], (np.zeros(3, "f4"), 1.5), (np.zeros(9, "f4"), 1.5), [np.zeros(9), 1.5]),
        ({"b": 1, "a": [0.0] * 6}, {"a": np.zeros(6), "b": 1}, {"a": np.zeros(9), "b": 1}, {"b": 1, "a": [0.0] * 9}),
        ({1: np.zeros(6)}, {1: [0.0] * 6}, {1: [0.0] * 9}, {1: np.zeros(9)}),
        ({1: np.zeros(6)}, {"1": [0.0] * 6}, {"1": [0.0] * 9}, None),
        ({"a": np.zeros(6)}, {"a": np.zeros(6), "b": 1}, {"a": np.zeros(9), "b": 1}, None),
        (np.zeros(3, "f8"), [np.zeros(3, "f4")], [np.zeros(5, "f4")], None),
        ([1.0] * 6, np.zeros(6), np.zeros(9), [0.0] * 9),
        (np.zeros(3, "c16"), np.zeros(3, "i1"), np.zeros(1 << 20, "i1"), None),
    ],
)
def test_the_form_of_one_answer_is_that_of_another_length(
    told: object, like: object, other: object, want: object
) -> None:
    """Whose answers' lengths are drawn was asked twice in each call."""
    found = claimed_layout.in_that_form(Layout.of(told), Layout.of(like), Layout.of(other))
    assert (None if found is None else found.text()) == (None if want is None else Layout.of(want).text())
