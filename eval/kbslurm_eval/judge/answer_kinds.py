"""Whether an answer has numbers where the reference's has numbers, where the check is to judge what else it is.

A text or nothing at all becomes NaN in many a check (`float("nan")`, numpy's arrays of None), and no comparison with
NaN finds an error. In which containers the numbers come doesn't matter, nor of which type they are. The places of a
tuple and of a dict are each of their own kind; a list has as many as it likes, and where some of the reference's are
None, others may be.
"""

from __future__ import annotations

import array
from collections.abc import Iterator
from typing import Any

from kbslurm_eval.shared.values import array_kind, imported

NUMBER, TEXT, NOTHING = "number", "text", "nothing"
_NUMBERS = {bool, int, float, complex}


def only_numbers(value: Any) -> bool:
    """Whether there are numbers in all of an answer, and nothing else; a dict has keys, too."""
    if isinstance(value, list | tuple):
        return bool(value) and (set(map(type, value)) <= _NUMBERS or all(map(only_numbers, value)))
    return not isinstance(value, dict) and _kind(value) == NUMBER and 0 not in _shape(value)


def has_numbers(output: Any, expected: Any, *, holes: bool = False) -> bool:
    """Whether there is a number wherever the reference's answer has one. `holes`: or None."""
    match expected:
        case list() | tuple() if isinstance(output, list | tuple) and len(output) == len(expected):
            if set(map(type, output)) <= _NUMBERS:
                return True
            holes = isinstance(expected, list) and any(one is None for one in expected)
            return all(has_numbers(o, e, holes=holes) for o, e in zip(output, expected, strict=True))
        case list() if isinstance(output, list | tuple):
            return _each_fits(list(output), expected)
        case dict() if isinstance(output, dict):
            if output.keys() == expected.keys():
                return all(has_numbers(output[key], one) for key, one in expected.items())
            return _each_fits(list(output), list(expected)) and _each_fits(
                list(output.values()), list(expected.values())
            )
        case list() | tuple() | dict():
            return _fits_flat(output, expected)
        case _ if _kind(expected) == NUMBER:
            kinds = {kind for kind, _ in _runs(output)}
            if not kinds and _is_spread(_shape(output), _shape(expected)):
                return False
            return kinds <= ({NUMBER, NOTHING} if holes else {NUMBER})
        case _:
            return True


def _each_fits(output: list[Any], expected: list[Any]) -> bool:
    """Whether each is of the kind of one of these: how many there are isn't the reference's to say."""
    kinds = {repr(_runs(one)): one for one in expected}
    return not kinds or all(any(has_numbers(one, other) for other in kinds.values()) for one in output)


def _fits_flat(output: Any, expected: Any) -> bool:
    """The same, one leaf after the other, where containers differ."""
    got = _runs(output)
    if not got:
        return not _is_spread(_shape(output), _shape(expected))
    for keys in (False, True):
        want = _runs(expected, keys=keys)
        if _count(want) == _count(got):
            return all(kind == NUMBER for kind, other in _side_by_side(got, want) if other == NUMBER)
    want_kinds, got_kinds = {kind for kind, _ in _runs(expected, keys=False)}, {kind for kind, _ in got}
    return NUMBER not in want_kinds or (NUMBER in got_kinds and got_kinds <= want_kinds)


def _shape(value: Any) -> tuple[int, ...]:
    if isinstance(value, list | tuple):
        return (len(value), *(_shape(value[0]) if value else ()))
    return tuple(map(int, getattr(value, "shape", ())))


def _is_spread(empty: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Whether a library takes an array without numbers for one that can be compared with all of another's numbers."""
    pairs = zip(reversed(empty), reversed(other), strict=False)
    return bool(other) and 0 not in other and all(a == b or 1 in (a, b) for a, b in pairs)


def _kind(leaf: Any) -> str:
    if leaf is None:
        return NOTHING
    if isinstance(leaf, str | bytes | bytearray):
        return TEXT
    return TEXT if array_kind(leaf) == "numpy" and leaf.dtype.kind in "SU" else NUMBER


def _runs(value: Any, *, keys: bool = True) -> list[tuple[str, int]]:
    """The kinds of all leaves in their order, and how many of one kind follow one another."""
    found: list[tuple[str, int]] = []
    for kind, many in _leaves(value, keys=keys):
        if found and found[-1][0] == kind:
            found[-1] = kind, found[-1][1] + many
        elif many:
            found.append((kind, many))
    return found


def _leaves(value: Any, *, keys: bool) -> Iterator[tuple[str, int]]:
    match value:
        case list() | tuple() if value and set(map(type, value)) <= _NUMBERS:
            yield NUMBER, len(value)
        case list() | tuple():
            for one in value:
                yield from _leaves(one, keys=keys)
        case dict():
            for key, one in value.items():
                if keys:
                    yield from _leaves(key, keys=keys)
                yield from _leaves(one, keys=keys)
        case array.array():
            yield NUMBER, len(value)
        case _ if (library := array_kind(value)) in ("numpy", "torch"):
            yield _kind(value), int(value.numel() if library == "torch" else imported("numpy").size(value))
        case _:
            yield _kind(value), 1


def _count(runs: list[tuple[str, int]]) -> int:
    return sum(many for _, many in runs)


def _side_by_side(one: list[tuple[str, int]], other: list[tuple[str, int]]) -> Iterator[tuple[str, str]]:
    """The kinds at the same places of two that are as long."""
    left, right = list(reversed(one)), list(reversed(other))
    while left and right:
        (a, many), (b, more) = left.pop(), right.pop()
        yield a, b
        if many > more:
            left.append((a, many - more))
        elif more > many:
            right.append((b, more - many))
