"""What a problem's inputs may be made of: each value arrives at the runner as it was."""

from __future__ import annotations

import array
import collections
import dataclasses
import enum
import os
import pathlib
import subprocess
from typing import Any, NamedTuple

import pytest

from kbslurm_eval.device import call_parts
from kbslurm_eval.shared.values import Unsendable, copied, pack


class Kind(enum.Enum):
    LEFT = 1
    RIGHT = "r"


class Point(NamedTuple):
    x: int
    weights: list[float]


@dataclasses.dataclass(frozen=True)
class Config:
    n: int
    scale: float = 2.0
    parts: list[Any] = dataclasses.field(default_factory=list)

    @property
    def double(self) -> float:
        return 2 * self.scale


class Loose:
    def __init__(self) -> None:
        self.name, self.inner = "a", Config(n=3)


class Slotted:
    __slots__ = ("a",)

    def __init__(self) -> None:
        self.a = [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    "value",
    [
        collections.OrderedDict([("b", 1), ("a", [1.0, 2.0, 3.0, 4.0])]),
        collections.defaultdict(list, {"x": [1]}),
        {1, 2, 3},
        frozenset({"a", "b"}),
        slice(1, None, 2),
        range(3, 9, 2),
        Kind.RIGHT,
        pathlib.Path("/a/b"),
        pathlib.PurePosixPath("c"),
        Point(x=1, weights=[1.0, 2.0, 3.0, 4.0]),
        Config(n=7, parts=[Kind.LEFT, Point(x=2, weights=[])]),
        {"deep": (Config(n=1), [{Kind.LEFT}, slice(3)])},
    ],
)
def test_it_arrives_as_it_was(value: Any) -> None:
    found = copied(pack(value))
    assert (found, type(found)) == (value, type(value))


def test_what_belongs_to_a_value_arrives_with_it() -> None:
    assert copied(pack(collections.defaultdict(list))).default_factory is list
    assert copied(pack(Config(n=1))).double == 4.0
    assert copied(pack(Point(x=5, weights=[]))).weights == []
    loose = copied(pack(Loose()))
    assert (type(loose), loose.name, loose.inner) == (Loose, "a", Config(n=3))
    assert copied(pack(Slotted())).a == [1, 2, 3, 4, 5]


def test_a_class_that_the_runner_lacks_is_replaced_by_a_record_of_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Config, "__module__", "a_module_of_the_judges")
    monkeypatch.setattr(Point, "__module__", "a_module_of_the_judges")
    found, point = copied(pack([Config(n=7), Point(x=1, weights=[2.0])]))
    assert (type(found).__name__, found.n, found.scale) == ("Config", 7, 2.0)
    assert (type(point).__name__, point.x, point.weights) == ("Point", 1, [2.0])


class Access(enum.Flag):
    READ = 1
    WRITE = 2


def test_an_enum_whose_class_a_runner_lacks_is_refused_with_its_place() -> None:
    said = rf"data\[1\]\.parts\[0\] needs the class Kind of {__name__}\.py, which submissions don't see"
    with pytest.raises(Unsendable, match=said):
        pack([1, Config(n=1, parts=[Kind.LEFT])], unseen=[__name__])
    assert copied(pack([Config(n=1)], unseen=[__name__]))[0].n == 1  # a record stands for it
    assert copied(pack([Kind.LEFT, Access.READ], unseen=["reference"])) == [Kind.LEFT, Access.READ]


def test_an_enum_that_no_runner_could_find_is_refused() -> None:
    class Inner(enum.Enum):
        ONE = 1

    with pytest.raises(Unsendable, match=r"data needs the class \S*Inner, which can't be found in"):
        pack(Inner.ONE, unseen=[])
    with pytest.raises(Unsendable, match="data is several flags of Access at once"):
        pack(Access.READ | Access.WRITE, unseen=[])


@pytest.mark.parametrize("value", [lambda: 1, open, object(), iter([1]), pytest, Exception("x"), type])
def test_code_and_open_things_are_refused_with_their_place(value: Any) -> None:
    with pytest.raises(Unsendable, match=r"data\['a'\]\[0\]"):
        pack({"a": [value]})


def test_arrays_inside_objects_are_the_devices_where_arrays_are() -> None:
    block = array.array("d", [1.0, 2.0])
    packed = pack(collections.OrderedDict(a=Config(n=1, parts=[block])))
    split = call_parts.split_input(packed, call_parts.DeviceChoice(arrays=True))
    assert split is not None
    assert bytes(split.blocks[0][1])[:16] == block.tobytes()


@pytest.mark.torch
def test_what_torch_has_arrives_as_it_was() -> None:
    script = str(pathlib.Path(__file__).with_name("objects_of_torch.py"))
    python = os.environ["KBSLURM_TORCH_PYTHON"]
    done = subprocess.run([python, "-W", "ignore", script], capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout == "all arrive\n", done.stderr
