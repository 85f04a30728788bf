"""Where the judge looks at an output at once."""

from __future__ import annotations

import numpy as np

from kbslurm_eval.judge import device_launch, first_look
from kbslurm_eval.shared.layouts import Layout

SIZE, DRAWS = 1 << 20, 400
WHOLE = Layout(tree=["n", "|u1", [SIZE], 0, SIZE], size=SIZE)


def _seen(places: list[int], first: int, last: int) -> bool:
    return any(first < at + first_look.PROBE_SIZE and at < last for at in places)


def test_both_ends_of_a_large_output_are_looked_at_in_nearly_every_call() -> None:
    drawn = [[at for at, _ in first_look.places_in(WHOLE)] for _ in range(DRAWS)]
    assert {len(places) for places in drawn} == {first_look.PROBES}
    for first, last in ((0, SIZE // 100), (SIZE - SIZE // 100, SIZE)):
        assert all(_seen(places, first, last) for places in drawn)
        within = [_seen(places, first + 256 * (first == 0), last - 256 * (last == SIZE)) for places in drawn]
        assert sum(within) > 0.85 * DRAWS, "nor does it help to write the edges first"
    assert sum(_seen(places, SIZE // 2, SIZE // 2 + SIZE // 4) for places in drawn) > 0.8 * DRAWS


def test_no_place_is_always_looked_at_last() -> None:
    """What is written while the judge looks elsewhere would be seen in time."""
    drawn = [[at for at, _ in first_look.places_in(WHOLE)] for _ in range(DRAWS)]
    for which in (0, -1):
        in_the_middle = sum(SIZE // 64 < places[which] < SIZE - SIZE // 64 for places in drawn)
        assert 0.3 * DRAWS < in_the_middle < 0.7 * DRAWS


def test_each_array_of_an_answer_is_looked_at() -> None:
    """A small one in the middle may be what takes the time: a sum beside its gradients."""
    half = SIZE // 2
    nodes = [["n", "|u1", [half], 0, half], ["n", "<f8", [1], half, 8], ["n", "|u1", [half], half + 64, half]]
    layout = Layout(tree=["t", nodes], size=SIZE + 64)
    for _ in range(DRAWS):
        assert (half, 8) in first_look.places_in(layout)
    many = Layout(tree=["l", [["g", 8 * n] for n in range(SIZE // 8)]], size=SIZE)
    assert len(first_look.places_in(many)) == first_look.PROBES + first_look.MOST_PARTS


def test_all_of_a_single_value_may_be_looked_at() -> None:
    whole = (b"x" * 32, 3.5, 2j, 12345, True, np.zeros(3))
    assert Layout.of(whole).parts == ((0, 136), (136, 8), (144, 16), (160, 17), (184, 1), (192, 24))
    assert Layout.of(12345).parts == ((0, 16),)


def test_a_device_s_output_is_looked_at_near_its_ends_too() -> None:
    drawn = [device_launch._at_both_ends(SIZE) for _ in range(DRAWS)]
    for start, pitch, width, rows in drawn:
        assert 0 <= start <= SIZE // 64
        assert start + pitch * (rows - 1) + width <= SIZE
    last = [start + pitch for start, pitch, _, _ in drawn]
    assert sum(at >= SIZE - SIZE // 100 - 64 for at in last) > 0.7 * DRAWS
    assert device_launch._at_both_ends(100) == (0, 0, 0, 0)
    far = device_launch._at_both_ends(1 << 33)
    assert far[3] == 1
    assert far[0] > (1 << 33) * 0.98
