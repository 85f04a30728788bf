"""Every file of the corpus once more, inside Apptainer, by the job script of a site: a few jobs for all of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.adversarial import contained, corpus
from tests.adversarial.trial import Trial

ENTRIES = {entry.name: entry for entry in (*corpus.cheats(), *corpus.honest()) if contained.fits(entry)}


@pytest.fixture(scope="module")
def tried() -> tuple[dict[str, Trial], list[str]]:
    trials, left = contained.all_tried(list(ENTRIES.values()), Path("/shared/corpus"))
    return {trial.name: trial for trial in trials}, left


@pytest.mark.parametrize("name", ENTRIES)
def test_it_gains_nothing_in_a_container(name: str, tried: tuple[dict[str, Trial], list[str]]) -> None:
    assert not tried[0][name].faults


def test_nothing_of_it_is_left_on_the_node(tried: tuple[dict[str, Trial], list[str]]) -> None:
    assert not tried[1]
