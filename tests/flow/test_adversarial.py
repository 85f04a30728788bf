"""Every file of the corpus before the real harness, once, at a small size, at the first level that it is meant for."""

from __future__ import annotations

import pytest

from tests.adversarial import corpus, trial
from tests.flow import harness_ground as ground
from tests.services import missing

CHEATS, HONEST = corpus.cheats(), corpus.honest()


@pytest.fixture(scope="module")
def level() -> int:
    return ground.achieved_level()


@pytest.mark.parametrize("entry", CHEATS, ids=lambda e: e.name)
def test_a_cheat_gains_nothing(entry: corpus.Entry, level: int) -> None:
    wanted = entry.levels[0]
    if level < wanted:
        missing("isolation", f"this machine reaches level {level}, these verdicts need {wanted}")
    assert not trial.tried(entry, level=wanted).faults


@pytest.mark.parametrize("entry", HONEST, ids=lambda e: e.name)
def test_the_honest_pass_unflagged(entry: corpus.Entry, level: int) -> None:
    for library in entry.needs:
        pytest.importorskip(library)
    assert not trial.tried(entry, level=min(level, entry.levels[0])).faults


def test_the_corpus_is_large_enough_and_covers_every_group() -> None:
    assert len(CHEATS) >= 100
    assert len(HONEST) >= 15
    assert {entry.group for entry in CHEATS} == set(corpus.GROUPS)
    assert all(sum(entry.group == group for entry in CHEATS) >= 5 for group in corpus.GROUPS)
