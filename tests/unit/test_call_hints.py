"""What is said beside a call that fails before its first line, and beside an answer of another form."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kbslurm_eval.runner import call_hints, compile_errors
from kbslurm_eval.runner.importing import _each

DATA = (np.ones((2, 3), "f4"), 5)


def nobody(file: str) -> bool:
    return file == __file__ or "kbslurm_eval" in file  # as the harness's frames are


def hint(call: Any, data: Any = DATA, is_ours: Callable[[str], bool] = nobody) -> str:
    try:
        call(data)
    except Exception as error:
        return call_hints.failed(error, call, data, is_ours=is_ours)
    raise AssertionError("it worked")


def two(a: Any, b: Any) -> None: ...


def none() -> None: ...


def test_a_wrong_signature_has_the_expected_one_beside_it() -> None:
    assert hint(two) == "expected is def two(data), yours is def two(a: 'Any', b: 'Any') -> 'None'"
    assert hint(none).startswith("expected is def none(data), yours is def none()")
    both = _each([("forward", lambda a, b: a), ("backward", two)])
    assert hint(both, {"forward": (1, 2), "backward": (1, 2, 3)}).startswith(
        "expected is def backward(arg1, arg2, arg3), yours is def backward(a"
    )


def test_an_error_inside_the_function_is_not_taken_for_one() -> None:
    def inner(data: Any) -> None:
        two(data)  # type: ignore[call-arg]

    assert hint(inner, is_ours=lambda file: False) == ""


def test_whoever_takes_a_tuple_for_an_array_is_told_what_it_is() -> None:
    said = hint(lambda data: data.shape)
    assert said == "data is a tuple of 2: a float32 array (2, 3), a int"
    assert hint(lambda data: data + 1) == said
    assert hint(lambda data: [a for a, b, c in [data]]) == said
    assert hint(lambda data: data.shape, 5) == ""


@pytest.mark.parametrize(
    ("said", "found", "want"),
    [
        ("output is a NoneType; a list was expected", None, "a return missing?"),
        ("output is a generator; a list was expected", (n for n in range(2)), "custom_kernel made a generator"),
        ("output has dtype torch.float64; torch.float32 was expected", 1, "return it as .to(torch.float32)"),
        ("output has dtype float64; float32 was expected", 1, "return it as .astype('float32')"),
        ("output has shape (2, 3); (3, 2) was expected", 1, "it looks transposed"),
        ("output has shape (6,); (3, 2) was expected", 1, ".reshape(3, 2)?"),
        ("output has shape (7,); (3, 2) was expected", 1, ""),
        ("output is on cpu; cuda was expected", 1, "return it as .to('cuda')"),
        ("output isn't in C order; make it contiguous", 1, "strides"),
        ("output is a ndarray; a tensor was expected", np.ones(2).T, "it is a float64 array (2,)"),
    ],
)
def test_an_answer_that_does_not_fit_has_the_remedy_beside_it(said: str, found: Any, want: str) -> None:
    assert want in call_hints.unfit(said, found) and bool(want) == bool(call_hints.unfit(said, found))


def test_a_missing_function_is_told_with_what_is_there() -> None:
    module = types.ModuleType("submission")
    exec("def solve(x): ...\ndef main(): ...\nother = 5", vars(module))
    assert call_hints.missing("k.py", "custom_kernel", module) == (
        "k.py defines no function custom_kernel; expected is def custom_kernel(data); it defines solve, main"
    )
    assert "other is a int there" in call_hints.missing("k.py", "other", module)


def test_strides_are_named_where_they_are_not_the_usual_ones() -> None:
    assert call_hints.described(np.ones((2, 3), "f4").T) == "a float32 array (3, 2) with strides (4, 12)"


TRITON = """at 3:12:
def twice(x, BLOCK):
    at = tl.arange(0, BLOCK)
    y = 2 * xx
            ^
NameError('xx is not defined')"""


def test_an_error_of_triton_is_found_in_the_submissions_own_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_errors, "source", "import triton\n\n\ndef twice(x, BLOCK):\n    y = 2 * xx\n")
    assert compile_errors.told(RuntimeError(TRITON)) == ("NameError('xx is not defined')", 5, "y = 2 * xx")
    assert compile_errors.told(RuntimeError(f"Traceback (most recent call last):\n{TRITON}")) is None
    assert compile_errors.told(RuntimeError("no caret")) is None
    monkeypatch.setattr(compile_errors, "source", "y = 2 * xx\ny = 2 * xx\n")
    assert compile_errors.told(RuntimeError(TRITON)) is None, "which of the two can't be said"
