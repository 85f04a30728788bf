"""Where an answer is read, made ready before any clock runs, so that hardly more than its copy is in a call's time.

What the runner makes sure of about an answer is for its author, who gets a sentence; the judge reads bytes whatever the
runner says. A submission can therefore leave all of it out, and whatever it cost would be what cheats are spared. So an
answer that is in its place already is recognised by being the very array that was given out, and one that isn't is
copied into an array that was made when its layout was declared. Everything else (lists and numbers, misfits, arrays
that lie in another one's place) goes the long way, by `Layout.write`.
"""

from __future__ import annotations

import sys
from typing import Any

from kbslurm_eval.shared import values
from kbslurm_eval.shared.layouts import Layout


class AnswerPlaces:
    """The places of one layout's answer in one mapping of the link's output."""

    __slots__ = ("_arrays", "_whole", "layout", "native", "out")

    def __init__(self, layout: Layout, out: memoryview, *, native: bool = False) -> None:
        """`native`: compiled code writes there by itself. No library is imported for it: its threads would turn for a
        while, and be in the way of the first calls."""
        self.layout, self.out, self.native = layout, out, native
        self._whole: Any = None  # the output as one array of bytes, where there are several arrays in it
        self._arrays: tuple[Any, ...] | None = None
        match None if native else layout.tree:
            case ["t", [_, *_] as inner] if all(map(_is_array, inner)):
                self._arrays = layout.places(out)
                if any(node[0] == "n" for node in inner):
                    self._whole = sys.modules["numpy"].frombuffer(out, "u1")
            case node if _is_array(node):
                self._arrays = (layout.places(out),)
            case _:
                pass

    def given(self) -> Any:
        """What `out` is for a submission that asks for it. It may do with the arrays what it likes."""
        if self._arrays is None:
            return self.layout.places(self.out)
        views = tuple(map(_view, self._arrays))
        return views if self.layout.tree[0] == "t" else views[0]

    def write(self, found: Any, given: Any) -> None:
        """The answer into its places, or Misfit. `given`: what `out` was, if the submission asked for it."""
        if self._arrays is None or not self._written(found, given):
            self.layout.write(found, self.out)

    def _written(self, found: Any, given: Any) -> bool:
        assert self._arrays is not None
        if self.layout.tree[0] != "t":
            return found is given is not None or self._copied(found, self._arrays[0], alone=True)
        if type(found) is not tuple or len(found) != len(self._arrays):
            return False
        if given is None:
            given = (None,) * len(found)
        return all(
            one is mine or self._copied(one, place, alone=False)
            for one, place, mine in zip(found, self._arrays, given, strict=True)
        )

    def _copied(self, found: Any, place: Any, *, alone: bool) -> bool:
        """Whether this array is in its place now; nothing is copied that may lie in another one's."""
        if type(found) is not type(place) or found.dtype != place.dtype or found.shape != place.shape:
            return False
        if hasattr(place, "data_ptr"):
            if found.device != place.device:
                return False
            lazy = found.is_conj() or found.is_neg()
            if found.data_ptr() == place.data_ptr() and found.is_contiguous() and not lazy:
                return True
            if not alone:
                return False
            values.fill_tensor(place, found)
            return True
        if not alone and sys.modules["numpy"].may_share_memory(found, self._whole):
            return False
        place[...] = found  # of an array to itself nothing
        return True


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
