"""Every attack on the served API, once, at a small size. `make adversarial ARGS=--api` makes them at full size."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.adversarial import api_trial
from tests.adversarial.api_trial import Attack

ATTACKS = api_trial.attacks()


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda one: one.name)
def test_an_attack_on_the_api_gains_nothing(attack: Attack, database_url: str, tmp_path: Path) -> None:
    assert not api_trial.tried(attack, database_url, tmp_path, size="small").faults


def test_there_is_an_attack_for_each_door_that_was_open() -> None:
    doors = {
        "bodies_from_nobody",
        "banned_host",
        "unfinished_requests",
        "unread_answers",
        "slow_uploads",
        "host_header",
        "aborted_uploads",
    }
    assert doors <= {one.name for one in ATTACKS}
    assert all(one.tries for one in ATTACKS)
