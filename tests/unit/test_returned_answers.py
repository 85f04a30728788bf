"""An answer as it comes back, and the named tuples that it gets back."""

from __future__ import annotations

import array
import collections
import os
import subprocess
from typing import Any, NamedTuple

import numpy
import pytest

from kbslurm.config.shared_folders import eval_dir
from kbslurm_eval.judge.returned_answers import lost_class, named, names_in, returned


class Pair(NamedTuple):
    left: Any
    right: Any


@pytest.mark.parametrize(
    "answer",
    [
        1, 2.5, None, True, "text", b"bytes", 1j, [1.0] * 5, [1, 2.0, "x"], (1, (2, [3])), {"a": [1, 2]},
        array.array("d", [1.0]), Pair(1, [Pair(2, 3), Pair(4, 5)]), {"p": Pair(1, 2), "q": 3}, [Pair(1, 2)] * 5, [], (),
    ],
)  # fmt: skip
def test_it_comes_back_the_same(answer: Any) -> None:
    came = named(returned(answer), names_in(answer))
    assert came == answer and repr(came) == repr(answer) and not lost_class(answer)


def test_classes_are_lost_on_the_way() -> None:
    assert type(returned(collections.Counter("aab"))) is dict
    assert lost_class((1, collections.Counter("aab"))) == "Counter"
    assert lost_class({"a": collections.OrderedDict()}) == "OrderedDict"
    assert type(returned(Pair(1, 2))) is tuple and names_in((1, [2, 3])) is None


def test_another_number_of_parts_stays_plain() -> None:
    names = names_in(Pair(1, 2))
    assert type(named((1, 2, 3), names)) is tuple and named([1, 2], names) == [1, 2] and named(5, names) == 5
    many = named([(1, 2), (3, 4), (5, 6)], names_in([Pair(0, 0)]))
    assert [one.right for one in many] == [2, 4, 6]


def test_what_is_named_in_c_gets_its_class_back() -> None:
    size = os.terminal_size((80, 24))
    came = named(returned((1, size)), names_in((1, size)))
    assert type(came[1]) is os.terminal_size and came[1].lines == 24 and not lost_class(size)


def test_arrays_come_back_plain() -> None:
    some = returned((numpy.arange(6).reshape(2, 3).T, numpy.float32(2), numpy.zeros(0)))
    assert (some[0] == numpy.arange(6).reshape(2, 3).T).all() and some[1].dtype == "f4" and some[2].shape == (0,)
    assert lost_class(numpy.ma.masked_array([1], [True])) == "MaskedArray"
    assert type(returned(numpy.ma.masked_array([1], [True]))) is numpy.ndarray


OF_TORCH = """
import sys, torch
sys.path.insert(0, sys.argv[1])
from kbslurm_eval.judge.returned_answers import lost_class, named, names_in, returned
top = torch.topk(torch.arange(5.0), 2)
came = named(returned(top), names_in(top))
assert came.indices.tolist() == [4, 3] and type(came) is type(top) and not lost_class(top)
assert lost_class(torch.nn.Parameter(torch.ones(1))) == "Parameter"
print("named again")
"""


@pytest.mark.torch
def test_torchs_named_tuples() -> None:
    argv = [os.environ["KBSLURM_TORCH_PYTHON"], "-W", "ignore", "-c", OF_TORCH, str(eval_dir())]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout == "named again\n", done.stderr
