"""What is said of a trial's image beside the board's."""

from __future__ import annotations

import pytest

from kbslurm.trial.at_home import AtHome


@pytest.mark.parametrize(
    ("here", "there", "same"),
    [
        ("sha256:a", ("sha256:a",), True),
        ("sha256:a", ("sha256:b", "sha256:a"), True),
        ("sha256:a", ("sha256:b",), False),
        ("sha256:a", (), None),
        ("", ("sha256:b",), None),
    ],
)
def test_an_image_is_the_boards_where_a_pin_says_so(here: str, there: tuple[str, ...], same: bool | None) -> None:
    found = AtHome(
        leaderboard="transpose", version=1, digest="d", gpu="H100", hidden_left_out=False, harness_there="h",
        harness_here="h", drift=(), changed=(), image=here, images_there=there,
    )  # fmt: skip
    assert found.same_image is same
