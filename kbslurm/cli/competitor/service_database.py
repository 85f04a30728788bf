"""The service through the database, for anyone who can open it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from kbslurm.cli.acting import acting_person
from kbslurm.cli.competitor.service import Look
from kbslurm.cli.context import configuration, offered_gpus
from kbslurm.cli.lookup import board_named
from kbslurm.domain import access
from kbslurm.domain.run import SubmissionId
from kbslurm.errors import Invalid, Refused

if TYPE_CHECKING:
    from kbslurm.domain.intake import Offer
    from kbslurm.ports import Clock
    from kbslurm.store.postgres import PostgresStore
    from kbslurm.store.views import ArtifactView, Board, Person, SubmissionView
    from kbslurm_eval.shared.wire import Mode


class DatabaseService:
    """Through the database. Anyone who can open it is identified by name."""

    def __init__(self, store: PostgresStore, as_: str | None) -> None:
        from kbslurm.api.waiting import Histories

        self._store, self._as = store, as_
        self._histories = Histories()

    @property
    def store(self) -> PostgresStore:
        return self._store

    @property
    def clock(self) -> Clock:
        return self

    def now(self) -> datetime:
        return datetime.now(UTC)

    @cached_property
    def slots(self) -> Mapping[str, int]:
        """From the sites configured here. Without any, only the place in the queue is shown, no time."""
        return offered_gpus()

    def submit(
        self,
        board: str | None,
        file_name: str,
        source: bytes,
        mode: Mode,
        gpus: Sequence[str],
        on: str | None = None,
        benchmark: int | None = None,
    ) -> tuple[SubmissionId, int]:
        from kbslurm.flow.submit import accept

        person, now = self._person(), datetime.now(UTC)
        offers = self._offers() if on is not None else ()
        receipt = accept(
            self._store.intake,
            person.id,
            board,
            file_name,
            source,
            mode,
            gpus,
            now,
            on=on,
            offers=offers,
            benchmark=benchmark,
        )
        return receipt.submission_id, len(receipt.run_ids)

    def look(self, number: int) -> Look:
        from kbslurm.api import waiting

        view = self._store.submissions.get(SubmissionId(number))
        return Look(view=view, words=waiting.words(view, waiting.of_submission(self, self._histories, view)))

    def places(self, view: SubmissionView) -> Sequence[Mapping[str, Any]]:
        from kbslurm.api.submission_places import places_told

        return places_told(self._store, view, datetime.now(UTC))

    def rest(self, at_most_s: float) -> None:
        self._store.events.wait(at_most_s)

    def cancel(self, number: int) -> int:
        from kbslurm.api.cancelling import cancel_as

        person = self._person()
        view = self._store.submissions.get(SubmissionId(number))
        return cancel_as(self._store, view, person, datetime.now(UTC))

    def mine(self, board: str | None, *, limit: int, offset: int = 0) -> Sequence[Mapping[str, Any]]:
        from kbslurm.api import popcorn_submission

        named = board_named(self._store, board).name if board else None
        found = self._store.submissions.newest(person=self._person().id, board=named, limit=limit, offset=offset)
        return [popcorn_submission.summary(view) for view in found]

    def ask(self, text: str, *, board: str | None, submission: int | None, appeal: bool) -> Mapping[str, Any]:
        from kbslurm.api.hosting.questions import own_question

        named = board_named(self._store, board).name if board else None
        person, now = self._person(), datetime.now(UTC)
        asked = self._store.questions.ask(person.id, text, board=named, submission=submission, appeal=appeal, now=now)
        return own_question(asked)

    def asked(self, *, limit: int) -> Sequence[Mapping[str, Any]]:
        from kbslurm.api.hosting.questions import own_question

        return [own_question(one) for one in self._store.questions.of_person(self._person().id, limit=limit)]

    def why(self, number: int, *, of_submission: bool) -> Sequence[Mapping[str, Any]]:
        from kbslurm.domain.why import as_told

        now = datetime.now(UTC)
        runs = [run.id for run in self._store.submissions.get(SubmissionId(number)).runs] if of_submission else [number]
        return [as_told(self._store.runs.why(run, now)) for run in runs]

    def published_code(self, board: str, gpu: str | None) -> Mapping[str, Any]:
        from kbslurm.api import published_code

        held = board_named(self._store, board)
        return published_code.list_told(self._store, held, _gpu(held, gpu), self._person().id, datetime.now(UTC))

    def code_of(self, board: str, gpu: str | None, number: int) -> Mapping[str, Any]:
        from kbslurm.api import published_code

        held = board_named(self._store, board)
        return published_code.code_told(self._store, held, _gpu(held, gpu), number, datetime.now(UTC))

    def consent(self, board: str, *, consents: bool) -> Mapping[str, Any]:
        from kbslurm.api import published_code

        held, person, now = board_named(self._store, board), self._person(), datetime.now(UTC)
        self._store.publishing.consent(held.id, person.id, is_given=consents, now=now)
        return published_code.rule_told(self._store, held, person.id, now)

    def check_may_read(self, view: SubmissionView) -> None:
        person = self._person()
        if not access.may_handle(person.id, person.role, view.person_id):
            raise Refused(f"submission {view.id} isn't yours")

    def artifacts(self, view: SubmissionView) -> Sequence[ArtifactView]:
        self.check_may_read(view)
        return self._store.artifacts.of_submission(view.id)

    def artifact(self, view: SubmissionView, gpu: str, name: str) -> bytes:
        return self._store.artifacts.read(view.id, gpu, name)

    def _offers(self) -> Sequence[Offer]:
        from kbslurm import wiring

        return wiring.offers(configuration())

    def _person(self) -> Person:
        return acting_person(self._store, self._as)


def _gpu(board: Board, gpu: str | None) -> str:
    if gpu is None and not board.gpus:
        raise Invalid(f"board {board.name} has no GPU types")
    return gpu or board.gpus[0]
