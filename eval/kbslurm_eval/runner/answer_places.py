"""Where an answer is read, made ready before any clock runs, so that hardly more than its copy is in a call's time.

What the runner makes sure of about an answer is for its author, who gets a sentence; the judge reads bytes whatever the
runner says. A submission can therefore leave all of it out, and whatever it cost would be what cheats are spared. So an
answer that is in its place already is recognised by being the very array that was given out, and one that isn't is
copied into an array that was made when its layout was declared. Everything else (lists and numbers, misfits, arrays
that lie in another one's place) goes the long way, by `Layout.write`.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Iterator

from kbslurm_eval.shared import values
from kbslurm_eval.shared.layouts import Layout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class AnswerPlaces:
    """The places of one layout's answer in one mapping of the link's output."""

    __slots__ = ("_arrays", "_form", "_given", "_is_plain", "_whole", "layout", "native", "out")

    def __init__(self, layout: Layout, out: memoryview, *, native: bool = False) -> None:
        """`native`: compiled code writes there by itself. No library is imported for it: its threads would turn for a
        while, and be in the way of the first calls."""
        self.layout, self.out, self.native = layout, out, native
        self._whole: Any = None  # the output as one array of bytes, where there are several arrays in it
        self._arrays: tuple[Any, ...] | None = None
        self._form: Any = None
        self._is_plain = False  # one tuple of arrays
        self._given: tuple[Any, ...] = ()  # the arrays that were given out last
        leaves = [] if native else list(_leaves(layout.tree))
        if leaves and all(map(_is_array, leaves)):
            self._form = _form(layout.tree)
            self._is_plain = layout.tree[0] == "t" and leaves == layout.tree[1]
            found: list[Any] = []
            _flattened(self._form, layout.places(out), found)
            self._arrays = tuple(found)
            if self._form is not None and any(node[0] == "n" for node in leaves):
                self._whole = sys.modules["numpy"].frombuffer(out, "u1")

    def given(self) -> Any:
        """What `out` is for a submission that asks for it. It may do with the arrays what it likes."""
        if self._arrays is None:
            return self.layout.places(self.out)
        self._given = tuple(map(_view, self._arrays))
        return self._given if self._is_plain else _formed(self._form, iter(self._given))

    def write(self, found: Any, given: Any) -> None:
        """The answer into its places, or Misfit. `given`: what `out` was, if the submission asked for it."""
        if self._arrays is None or not self._written(found, is_asked=given is not None):
            self.layout.write(found, self.out)

    def _written(self, found: Any, *, is_asked: bool) -> bool:
        assert self._arrays is not None
        if self._form is None:
            return (is_asked and found is self._given[0]) or self._copied(found, self._arrays[0])
        parts: Any = []
        if self._is_plain and type(found) is tuple and len(found) == len(self._arrays):
            parts = found
        elif not _flattened(self._form, found, parts):
            return False
        if is_asked and all(map(operator.is_, parts, self._given)):
            return True
        given = self._given if is_asked else (None,) * len(parts)
        apart = []  # nothing is copied before it is known that no other array lies where it goes
        for part, place, mine in zip(parts, self._arrays, given, strict=True):
            if part is mine:
                continue
            copyable = self._copyable(part, place)
            if copyable == "no":
                return False
            if copyable == "copied":
                apart.append((place, part))
        for place, part in apart:
            place[...] = part  # of an array to itself nothing
        return True

    def _copyable(self, found: Any, place: Any) -> str:
        """Whether this array, one of several, is `there` already, may be `copied` to its place, or `no`: it doesn't fit
        or may lie in another one's."""
        if not _fits(found, place):
            return "no"
        if hasattr(place, "data_ptr"):
            return "there" if _is_there(found, place) else "no"
        return "no" if sys.modules["numpy"].may_share_memory(found, self._whole) else "copied"

    def _copied(self, found: Any, place: Any) -> bool:
        """Whether this array, the only one, is in its place now."""
        if not _fits(found, place):
            return False
        if not hasattr(place, "data_ptr"):
            place[...] = found  # of an array to itself nothing
        elif not _is_there(found, place):
            values.fill_tensor(place, found)
        return True


def has_places(given: Any) -> bool:
    """Whether there is any array among the places of an answer."""
    if type(given) in (list, tuple):
        return any(map(has_places, given))
    return any(map(has_places, given.values())) if type(given) is dict else given is not None


def _fits(found: Any, place: Any) -> bool:
    if type(found) is not type(place) or found.dtype != place.dtype or found.shape != place.shape:
        return False
    return not hasattr(place, "data_ptr") or bool(found.device == place.device)


def _is_there(found: Any, place: Any) -> bool:
    """Whether this tensor is the one at its place."""
    lazy = found.is_conj() or found.is_neg()
    return found.data_ptr() == place.data_ptr() and found.is_contiguous() and not lazy


def _leaves(node: Any) -> Iterator[Any]:
    match node:
        case ["l" | "t", inner]:
            for one in inner:
                yield from _leaves(one)
        case ["d", pairs]:
            for _, one in pairs:
                yield from _leaves(one)
        case _:
            yield node


def _form(node: Any) -> Any:
    """How the answer's containers are nested: a container's type with its keys and their forms, None for a leaf."""
    match node:
        case ["l" | "t" as kind, inner]:
            return (list if kind == "l" else tuple), [(at, _form(one)) for at, one in enumerate(inner)]
        case ["d", pairs]:
            return dict, [(tuple(key[1]) if isinstance(key, list) else key, _form(one)) for key, one in pairs]
        case _:
            return None


def _flattened(form: Any, value: Any, into: list[Any]) -> bool:
    """Whether a value has this form; its leaves."""
    if form is None:
        into.append(value)
        return True
    kind, inner = form
    if type(value) is not kind or len(value) != len(inner):
        return False
    if kind is dict and any(key not in value for key, _ in inner):
        return False
    return all(_flattened(below, value[key], into) for key, below in inner)


def _formed(form: Any, leaves: Iterator[Any]) -> Any:
    """A value of this form with these leaves."""
    if form is None:
        return next(leaves)
    kind, inner = form
    if kind is dict:
        return {key: _formed(below, leaves) for key, below in inner}
    return kind([_formed(below, leaves) for _, below in inner])


def _is_array(node: Any) -> bool:
    """Whether this is an array of at least one element in the runner's own memory."""
    match node:
        case ["n", _, _, _, size]:
            return bool(size)
        case ["T", _, _, _, size, "cpu"]:
            return bool(size)
        case _:
            return False


def _view(place: Any) -> Any:
    return place.detach() if hasattr(place, "data_ptr") else place.view()
