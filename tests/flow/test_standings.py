"""Standings that are carried forward, event by event, are those that all rows give: after whatever happened."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Collection
from contextlib import suppress
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kbslurm.api.context import Context
from kbslurm.api.standings_cache import StandingsCache
from kbslurm.domain.board import Entry, Ranking
from kbslurm.domain.run import PersonId
from kbslurm.errors import KbslurmError, NotFound
from kbslurm.flow.cancel import cancel
from kbslurm.flow.place import Place
from kbslurm.flow.queue import claim, free_slots
from kbslurm.flow.remove import remove
from kbslurm.flow.score import score
from kbslurm.store.postgres import PostgresStore
from kbslurm.store.rejudgings import Wanted
from kbslurm.store.views import Board, SubmissionView
from tests.flow.puppet import RUNNING, Puppet, sealed_report
from tests.flow.stage import PROBLEM, HandClock, Stage

PLACE = Place(backend=Puppet(slots={"A100": 9, "H100": 9}))
PAIRED = dataclasses.replace(PROBLEM, config={"baseline": "def custom_kernel(data):\n    return data\n"})
NAMES = ("ada", "bob", "eve", "dan")
STEPS = 200


@pytest.mark.parametrize(
    ("seed", "confirm", "latest", "teams"),
    [(1, True, False, False), (2, False, False, False), (3, True, True, False), (4, False, False, True),
     (5, True, True, True)],
)  # fmt: skip
def test_carried_forward_is_read_anew(database_url: str, seed: int, confirm: bool, latest: bool, teams: bool) -> None:
    stage = Stage.build(database_url, problem=PAIRED, confirm=confirm)
    try:
        if latest:
            stage.rows("UPDATE leaderboard SET ranking = 'last' RETURNING id")
        history = History(stage, random.Random(seed))
        if teams:
            history.count_teams_together()
        carried = StandingsCache(cast("Context", SimpleNamespace(store=stage.store)))
        for _ in range(STEPS):
            done = history.step()
            board = history.board
            rows, records = carried.of(board, "A100"), carried.records(board, "A100")
            assert list(rows) == list(Ranking(stage.store.standings.best("board", "A100"))), done
            assert records == stage.store.standings.records("board", "A100"), done
        always = {"judge", "remove", "ban"}
        assert always | ({"team"} if teams else {"rejudged", "final"}) <= set(history.done), history.done
    finally:
        stage.close()


class History:
    """Things that happen to a board, drawn by lot."""

    def __init__(self, stage: Stage, draw: random.Random) -> None:
        self.stage, self.store, self.draw = stage, stage.store, draw
        self.done: list[str] = []
        self.ways: list[Callable[[], str]] = [
            *[self.submit] * 4, *[self.judge] * 12, self.remove, self.ban, self.unban, self.board_acts, self.rejudge,
            self.final, self.cancel,
        ]  # fmt: skip

    def count_teams_together(self) -> None:
        """From now on people are in teams, in others now and then, and in none."""
        self.stage.rows("UPDATE leaderboard SET course = 'gpu', teams = true RETURNING id")
        self.ways += [self.team] * 3
        for name in NAMES:
            self.stage.person(name)
        self.team()

    def team(self) -> str:
        for name in self.draw.sample(NAMES, 2):
            team = self.draw.choice(("red", "blue", None))
            self.store.roster.place(
                "gpu", self.stage.person(name), team=team, no_team=team is None, by="host", now=self.stage.clock.now()
            )
        return "team"

    @property
    def board(self) -> Board:
        found = self.store.boards.find("board")
        assert found is not None
        return found

    def step(self) -> str:
        cast("HandClock", self.stage.clock).go(7)
        with suppress(KbslurmError):  # what may not be done now isn't
            self.done.append(self.draw.choice(self.ways)())
        return self.done[-1] if self.done else ""

    def submit(self) -> str:
        for _ in range(self.draw.randint(1, 3)):
            self.stage.submit(by=self.draw.choice(NAMES), mode=self.draw.choice(("leaderboard", "leaderboard", "test")))
        return "submit"

    def judge(self) -> str:
        """The fairest waiting run comes to its end."""
        now = self.stage.clock.now()
        self.store.calibrations.tend(now)
        attempt = claim(
            self.store.queue, free_slots({"puppet": PLACE.backend.capacity()}, self.store.attempts.open()), now
        )
        if attempt is None:
            return "idle"
        assert self.store.attempts.note_seen(attempt, RUNNING, now)
        work = self.store.attempts.work(attempt.id)
        took = self.draw.choice((0.3, 0.4, 0.4, 0.5, 0.6)) * self.draw.uniform(0.99, 1.01)
        told: dict[str, Any] = {"score_s": took, "baseline_s": 0.5, "interval_s": [0, took * 1.02]}
        if rivals := work.problem.config.get("rivals"):
            told["rivals"] = [self.draw.choice((0.7, 0.8, 0.9, None)) for _ in cast("list[Any]", rivals)]
        elif self.draw.random() < 0.15:
            told = {"verdict": "wrong", "phases": [], "reason": "so"}
        score(self.store, attempt, sealed_report(work, **told), now)
        return "judge"

    def _some(self) -> SubmissionView:
        found = self.store.submissions.newest(board="board", limit=60)
        if not found:
            raise NotFound("submission", "any")
        return self.draw.choice(found)

    def remove(self) -> str:
        found = self._some()
        by_host = self.draw.random() < 0.5
        remove(self.store.submissions, found.id, None if by_host else found.person_id, "host", self.stage.clock.now())
        return "remove"

    def cancel(self) -> str:
        cancel(self.store.submissions, self._some().id, None, self.stage.clock.now())
        return "cancel"

    def ban(self) -> str:
        self.store.people.ban(self.stage.person(self.draw.choice(NAMES)), by="host", now=self.stage.clock.now())
        return "ban"

    def unban(self) -> str:
        for name in NAMES:
            self.store.people.unban(self.stage.person(name), by="host", now=self.stage.clock.now())
        return "unban"

    def board_acts(self) -> str:
        now = self.stage.clock.now()
        ada = self.store.people.by_name_or_id("ada")
        if ada is not None:
            self.store.limits.extend("board", ada, now + timedelta(days=self.draw.randint(1, 9)), by="host", now=now)
        self.store.boards.edit("board", by="host", description=str(now), now=now)
        return "edit"

    def rejudge(self) -> str:
        now = self.stage.clock.now()
        if self.store.rejudgings.open("board") is None:
            problem = dataclasses.replace(PAIRED, tests=({"seed": self.draw.randint(2, 4)},))
            version = self.store.problems.add(problem) if self.draw.random() < 0.5 else None
            self.store.rejudgings.order("board", Wanted(), version, by="host", now=now)
            return "rejudge"
        if self.draw.random() < 0.2:
            self.store.rejudgings.cancel("board", by="host", now=now)
            return "forgotten"
        for _ in range(40):
            if self.judge() == "idle":
                break
        self.store.rejudgings.apply("board", by="host", now=now)
        return "rejudged"

    def final(self) -> str:
        now = self.stage.clock.now()
        if self.store.finals.open("board", "A100") is None:
            self.store.finals.order("board", "A100", 2, by="host", now=now)
        for _ in range(20):
            if self.judge() == "idle":
                break
        if self.draw.random() < 0.2:
            self.store.finals.forget("board", "A100", by="host", now=now)
            return "no final"
        self.store.finals.apply("board", "A100", by="host", now=now)
        return "final"


def test_only_those_who_moved_are_read_and_only_so_many_places_are_kept(database_url: str) -> None:
    stage = Stage.build(database_url, gpus=("A100", "H100"))
    try:
        history = History(stage, random.Random(7))
        asked = Counting(stage.store)
        store = SimpleNamespace(standings=asked, events=stage.store.events)
        carried = StandingsCache(cast("Context", SimpleNamespace(store=store)), kept=3)
        for name in NAMES[:3]:
            stage.submit(by=name, mode="leaderboard", gpus=["A100"])
            assert history.judge() == "judge"
        board = history.board
        assert len(carried.of(board, "A100")) == 3 and asked.calls == ["best"]
        stage.submit(by="bob", mode="leaderboard", gpus=["A100"])
        assert history.judge() == "judge"
        carried.of(board, "A100")
        carried.of(board, "A100")
        assert asked.calls == ["best", "scored_of"] and asked.people == [{stage.people["bob"]}]
        stage.submit(by="bob", mode="leaderboard", gpus=["H100"])
        assert history.judge() == "judge"
        assert len(carried.of(board, "H100")) == 1, "four places are one too many"
        assert asked.calls == ["best", "scored_of", "best"]
        carried.of(board, "H100")
        assert asked.calls == ["best", "scored_of", "best"], "the last one looked at is kept"
        carried.of(board, "A100")
        assert asked.calls == ["best", "scored_of", "best", "best"], "the one before was forgotten"
    finally:
        stage.close()


def test_a_second_measurement_that_is_dropped_lets_the_first_stand(database_url: str) -> None:
    """No verdict says so: it is a run that was cancelled."""
    stage = Stage.build(database_url, confirm=True)
    try:
        stage.rows("UPDATE leaderboard SET ranking = 'last' RETURNING id")
        carried = StandingsCache(cast("Context", SimpleNamespace(store=stage.store)))
        board, now = stage.store.boards.find("board"), stage.clock.now()
        assert board is not None
        for _ in range(2):
            stage.submit(by="ada", mode="leaderboard")
        attempts = [stage.claim(PLACE), stage.claim(PLACE)]
        for attempt, took in zip(attempts, (0.4, 0.6), strict=True):
            report = sealed_report(stage.store.attempts.work(attempt.id), score_s=took, interval_s=[0, took * 1.02])
            score(stage.store, attempt, report, now)
        second = stage.claim(PLACE)
        score(stage.store, second, sealed_report(stage.store.attempts.work(second.id), score_s=0.4), now)
        assert [row.entry.submission_id for row in carried.of(board, "A100")] == [1]
        stage.store.calibrations.tend(now)
        assert stage.open_runs() == 0, "the later one's second is dropped"
        assert list(carried.of(board, "A100")) == list(Ranking(stage.store.standings.best("board", "A100")))
        assert [row.entry.submission_id for row in carried.of(board, "A100")] == [2]
    finally:
        stage.close()


class Counting:
    """A store's standings that remember what they were asked."""

    def __init__(self, store: PostgresStore) -> None:
        self._standings, self.calls, self.people = store.standings, list[str](), list[set[int]]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._standings, name)

    def best(self, board: str, gpu: str, **how: bool) -> list[Entry]:
        self.calls.append("best")
        return self._standings.best(board, gpu, **how)

    def scored_of(self, board: str, gpu: str, people: Collection[PersonId], **how: bool) -> list[Entry]:
        self.calls.append("scored_of")
        self.people.append(set(people))
        return self._standings.scored_of(board, gpu, people, **how)
