"""Answers on their way to where they are read, by the short way and by the long one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kbslurm_eval.runner.answer_places import AnswerPlaces
from kbslurm_eval.shared import layouts

ONE = np.arange(6, dtype=np.float32).reshape(2, 3)
TWO = np.arange(4, dtype=np.int64)


def ready(like: Any, monkeypatch: pytest.MonkeyPatch, *, long: bool = False) -> AnswerPlaces:
    """Places for an answer like this; unless `long`, it fails where the long way is taken."""
    layout = layouts.Layout.of(like)
    if not long:
        monkeypatch.setattr(layouts.Layout, "write", lambda *_: pytest.fail("it went the long way"))
    return AnswerPlaces(layout, memoryview(bytearray(layout.size)))


def read(places: AnswerPlaces) -> Any:
    return places.layout.read(bytearray(places.out))


@pytest.mark.filterwarnings("ignore:Setting the shape:DeprecationWarning")  # NumPy 2.5's view of it
def test_what_was_written_in_place_is_there_whatever_was_done_to_the_array(monkeypatch: pytest.MonkeyPatch) -> None:
    places = ready(ONE, monkeypatch)
    for _ in range(2):
        given = places.given()
        given[...] = ONE
        given.shape = (6,)
        places.write(given, given)
        assert (read(places) == ONE).all()
        places.out[:] = bytes(len(places.out))


def test_a_fresh_array_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    places = ready(ONE, monkeypatch)
    places.write(ONE.copy(order="F"), None)
    assert (read(places) == ONE).all()
    there = np.frombuffer(places.out, np.float32).reshape(2, 3)
    there[...] = ONE + 1
    places.write(there, None)
    assert (read(places) == ONE + 1).all()


def test_several_arrays_some_of_them_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    places = ready((ONE, TWO), monkeypatch)
    given = places.given()
    given[0][...] = ONE
    places.write((given[0], TWO.copy()), given)
    one, two = read(places)
    assert (one == ONE).all() and (two == TWO).all()


def test_an_array_in_another_ones_place_is_copied_before_that_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    places = ready((TWO, TWO), monkeypatch, long=True)
    given = places.given()
    given[0][...], given[1][...] = TWO, TWO + 10
    places.write((given[1], given[0]), given)
    one, two = read(places)
    assert (one == TWO + 10).all() and (two == TWO).all()


def test_an_array_in_a_place_that_another_is_copied_to_is_copied_before(monkeypatch: pytest.MonkeyPatch) -> None:
    places = ready((TWO, TWO), monkeypatch, long=True)
    given = places.given()
    given[0][...] = TWO + 10
    places.write((TWO.copy(), given[0]), given)
    one, two = read(places)
    assert (one == TWO).all() and (two == TWO + 10).all()


def test_arrays_in_any_containers_are_short_of_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    places = ready({"forward": ONE, "backward": (TWO, [ONE])}, monkeypatch)
    given = places.given()
    given["forward"][...], given["backward"][1][0][...] = ONE, ONE + 1
    places.write({"backward": (TWO.copy(), [given["backward"][1][0]]), "forward": given["forward"]}, given)
    found = read(places)
    assert (found["forward"] == ONE).all()
    assert (found["backward"][0] == TWO).all() and (found["backward"][1][0] == ONE + 1).all()


@pytest.mark.parametrize(
    "found", [ONE.astype(np.float64), ONE[:1], [1.0], None, (ONE,), np.float32(1), ONE.reshape(-1)]
)
def test_what_does_not_fit_gets_its_sentence(monkeypatch: pytest.MonkeyPatch, found: Any) -> None:
    places = ready(ONE, monkeypatch, long=True)
    with pytest.raises(layouts.Misfit, match="expected"):
        places.write(found, places.given())


def test_a_container_that_was_filled_anew_is_read_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    places = ready({"a": ONE}, monkeypatch)
    given = places.given()
    given["a"] = ONE + 1
    places.write(given, given)
    assert (read(places)["a"] == ONE + 1).all()


def test_nothing_in_an_answer_of_no_size_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    places = ready(ONE[:0], monkeypatch, long=True)
    places.write(ONE[:0].copy(), places.given())
    assert read(places).shape == (0, 3)
