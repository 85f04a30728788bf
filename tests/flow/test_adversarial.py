"""Every file of the corpus before the real harness, once, at a small size, at the first level that it is meant for; on
a machine that can't isolate that well, at the next level that it is meant for.

Two at a time, each in a process that counts who outlives it. A file that is meant for less isolation may leave
something where the others would find it: it has the machine to itself.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor, wait

import pytest

from tests.adversarial import corpus, trial
from tests.flow import harness_ground as ground
from tests.services import USER_NAMESPACES, in_ci, missing, pointless

CHEATS, HONEST = corpus.cheats(), corpus.honest()
# All of them in CI, and where only level 1 is reached, which CI's own machine doesn't look at. Whoever waits for `make
# test` on a machine like CI's has every other one, of each group; `make adversarial` tries all.
TRIED = CHEATS if in_ci() or not USER_NAMESPACES.there() else sorted(CHEATS, key=lambda e: (e.group, e.name))[::2]
AT_ONCE = 2
ISOLATED = 2


class Trials:
    """The trials of this session, begun together."""

    def __init__(self, entries: list[corpus.Entry], level: int) -> None:
        self._level = level
        self._workers = ProcessPoolExecutor(AT_ONCE, multiprocessing.get_context("spawn"))
        self._begun: dict[str, Future[trial.Trial]] = {
            entry.name: self._workers.submit(trial.tried, entry, level=ISOLATED)
            for entry in entries
            if entry.levels[0] == ISOLATED <= level
        }

    def of(self, entry: corpus.Entry) -> trial.Trial:
        if entry.name in self._begun:
            return self._begun[entry.name].result()
        wait(self._begun.values())
        return trial.tried(entry, level=self._level_for(entry))

    def _level_for(self, entry: corpus.Entry) -> int:
        reached = [one for one in entry.levels if one <= self._level]
        if not reached or (in_ci() and reached[0] < entry.levels[0]):
            missing(USER_NAMESPACES, f"the harness reaches isolation level {self._level} on this machine")
        return reached[0]

    def end(self) -> None:
        self._workers.shutdown(cancel_futures=True)


@pytest.fixture(scope="module")
def level() -> int:
    return ground.achieved_level()


@pytest.fixture(scope="module")
def trials(request: pytest.FixtureRequest, level: int) -> Iterator[Trials]:
    ours = [item for item in request.session.items if item.path == request.path]
    begun = Trials([item.callspec.params["entry"] for item in ours if hasattr(item, "callspec")], level)
    try:
        yield begun
    finally:
        begun.end()


@pytest.mark.parametrize("entry", TRIED, ids=lambda e: e.name)
def test_a_cheat_gains_nothing(entry: corpus.Entry, trials: Trials) -> None:
    assert not trials.of(entry).faults


@pytest.mark.parametrize("entry", [one for one in HONEST if not one.needs], ids=lambda e: e.name)
def test_the_honest_pass_unflagged(entry: corpus.Entry, level: int, trials: Trials) -> None:
    if lack := entry.lacks(min(level, entry.levels[0])):
        pointless(lack)
    assert not trials.of(entry).faults


@pytest.mark.torch
@pytest.mark.usefixtures("with_torch")
@pytest.mark.parametrize("at", [2, 1])
@pytest.mark.parametrize("entry", [one for one in HONEST if one.needs], ids=lambda e: e.name)
def test_the_honest_pass_with_their_libraries(entry: corpus.Entry, at: int, level: int) -> None:
    if level < at:
        missing(USER_NAMESPACES, f"the harness reaches isolation level {level} on this machine")
    assert not trial.tried(entry, level=at).faults


def test_the_corpus_is_large_enough_and_covers_every_group() -> None:
    assert len(CHEATS) >= 100
    assert len(HONEST) >= 15
    assert {entry.group for entry in CHEATS} == set(corpus.GROUPS)
    assert all(sum(entry.group == group for entry in CHEATS) >= 5 for group in corpus.GROUPS)
