"""What the demos that are part of the tests share: submissions, what is waited for, and each verdict told once."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from kbslurm.cli.output import printing
from kbslurm.config import shared_folders
from kbslurm.flow.submit import accept
from kbslurm.store.postgres import PostgresStore

PATIENCE_S = 500.0  # for the whole: whoever plays it in a test gives up later, without a word of the runs


@dataclass(frozen=True, kw_only=True)
class Play:
    """One submission, and what must come of it."""

    person: str
    file: str
    gpus: tuple[str, ...]
    expect: str = "passed"
    mode: Any = "leaderboard"


class Stage:
    """The competition as it stands, and what is said of it."""

    def __init__(self, store: PostgresStore, board: str, *, quiet: bool) -> None:
        self.store, self.board, self.quiet = store, board, quiet
        self.problem = shared_folders.path("examples") / "transpose"
        self.expected: dict[int, str] = {}
        self.acts: dict[int, str] = {}
        self.told: set[int] = set()
        self.until = time.monotonic() + PATIENCE_S

    def say(self, text: str) -> None:
        if not self.quiet:
            printing.out().print(text, soft_wrap=True)

    def act(self, text: str) -> None:
        self.say(f"\n[bold]{printing.escape(text)}[/]")

    def submit(self, act: str, *plays: Play) -> list[int]:
        ids = []
        for play in plays:
            file = self.problem / "submissions" / play.file
            person = self.store.people.ensure(play.person)
            taken = accept(
                self.store.intake,
                person.id,
                self.board,
                file.name,
                file.read_bytes(),
                play.mode,
                play.gpus,
                datetime.now(UTC),
            )
            ids.append(int(taken.submission_id))
            self.expected[ids[-1]], self.acts[ids[-1]] = play.expect, act
        return ids

    def runs(self) -> list[dict[str, Any]]:
        """Every run that people ordered, with the last attempt, the verdict, and all places where it ran, in order; and
        the second measurements that the service ordered, as it does where a busy machine disturbed the first, without
        those that it dropped because they would change nothing: they never have a verdict."""
        return self.store._all(
            "SELECT run.id, run.submission_id, run.gpu, run.state, run.second, p.name AS person, s.file_name,"
            " v.name AS verdict,"
            " v.score_s, v.ranked, a.backend, a.why_here, a.state AS attempt, ARRAY(SELECT o.backend FROM attempt o"
            " WHERE o.run_id = run.id AND o.state <> 'refused' AND (o.state <> 'cancelled' OR o.started_at IS NOT NULL)"
            " ORDER BY o.number) AS places"
            " FROM run JOIN submission s ON s.id = run.submission_id JOIN person p ON p.id = s.person_id"
            " LEFT JOIN attempt a ON a.run_id = run.id AND a.number = run.attempts"
            " LEFT JOIN verdict v ON v.run_id = run.id WHERE s.via <> 'calibration'"
            " AND NOT (run.second AND run.state = 'cancelled') ORDER BY run.id"
        )

    def wait(self, is_so: Callable[[list[dict[str, Any]]], bool]) -> None:
        """Until it is so, telling each verdict once as it comes."""
        while True:
            runs = self.runs()
            for run in runs:
                if run["verdict"] is not None and run["id"] not in self.told:
                    self.told.add(run["id"])
                    self._tell(run)
            if is_so(runs):
                return
            assert time.monotonic() < self.until, f"it never came to be so: {runs}"
            self.store.events.wait(0.3)

    def _tell(self, run: Mapping[str, Any]) -> None:
        score = f", {printing.score(run['score_s'])}" if run["score_s"] is not None else ""
        head = f"#{run['submission_id']} {run['person']} {run['file_name']} on {run['gpu']}"
        self.say(
            f"  {printing.escape(head)}: {printing.coloured(run['verdict'])}{score}, at [bold]{self.where_of(run)}[/]"
        )
        self.told_of(run)

    def where_of(self, run: Mapping[str, Any]) -> str:
        """Where it ran."""
        return str(run["backend"])

    def told_of(self, run: Mapping[str, Any]) -> None:
        """More about a run that has just got its verdict."""


def settled(ids: Sequence[int]) -> Callable[[list[dict[str, Any]]], bool]:
    """Whether all runs of these have their verdicts."""
    return lambda runs: all(run["verdict"] is not None for run in runs if run["submission_id"] in ids)
