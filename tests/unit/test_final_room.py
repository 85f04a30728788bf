"""Who is out of a final whose builds don't fit where all links lie."""

from __future__ import annotations

import pytest

from kbslurm_eval.judge.finals import LEAD, without_room


@pytest.mark.parametrize(
    ("builds", "room", "out"),
    [
        ({0: 40, 1: 0, 2: 0}, 43, []),
        ({0: 40, 1: 0, 2: 0}, 42, [0]),
        ({0: 5, 1: 40, 2: 30}, 50, [1]),
        ({0: 5, 1: 40, 2: 30}, 20, [1, 2]),
        ({LEAD: 40, 0: 40, 1: 0}, 42, [LEAD]),
        ({LEAD: 40, 0: 40, 1: 0}, 41, [LEAD, 0]),
        ({0: 40, 1: 0, 2: 0}, 1, []),
        ({0: 0, 1: 0}, 1, []),
        ({}, 0, []),
    ],
    ids=["all fit", "just not", "the largest", "the two largest", "a lead that is in it twice first", "and then it",
         "too little for those without a build", "no builds", "nobody"],
)  # fmt: skip
def test_whoever_leaves_the_most_is_out_until_the_rest_has_room(
    builds: dict[int, int], room: int, out: list[int]
) -> None:
    assert without_room(builds, 1, room) == out
