"""What a competitor's commands ask of the service: over HTTP where $KBSLURM_URL names one, else of the database.

Both answer with the same values, so a command prints the same whichever it is.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from kbslurm.domain.run import SubmissionId
from kbslurm.errors import Invalid, KbslurmError, Refused, Unauthenticated, Unnamed

if TYPE_CHECKING:
    from kbslurm.client.http import Client
    from kbslurm.domain.intake import Offer
    from kbslurm.ports import Clock
    from kbslurm.store.postgres import PostgresStore
    from kbslurm.store.views import ArtifactView, Person, SubmissionView
    from kbslurm_eval.wire import Mode

URL = "KBSLURM_URL"


@dataclass(frozen=True, kw_only=True)
class Look:
    """A submission as it stands now; `words` is one line of progress."""

    view: SubmissionView
    words: str


class Service(Protocol):
    """A person's way to their submissions."""

    def submit(
        self, board: str | None, file_name: str, source: bytes, mode: Mode, gpus: Sequence[str], on: str | None = None
    ) -> tuple[SubmissionId, int]:
        """Submit a file: its number, and how many runs that makes. After it returns nothing is lost. `on`: the place
        where a try runs."""

    def look(self, number: int) -> Look: ...
    def rest(self, at_most_s: float) -> None:
        """Wait until something may have happened."""

    def cancel(self, number: int) -> int:
        """Take it back; how many of its jobs are still to be ended."""

    def mine(self, board: str | None, *, limit: int, offset: int = 0) -> Sequence[Mapping[str, Any]]:
        """One's own submissions, newest first, each as the API's line of it."""

    def why(self, number: int, *, of_submission: bool) -> Sequence[Mapping[str, Any]]:
        """Why a run, or each of a submission's, is where it is, as the API tells it."""

    def artifacts(self, view: SubmissionView) -> Sequence[ArtifactView]: ...
    def artifact(self, view: SubmissionView, gpu: str, name: str) -> bytes: ...


def url() -> str | None:
    """The service that $KBSLURM_URL names."""
    from kbslurm.cli import keys

    named = os.environ.get(URL, "").strip()
    return keys.address(named) if named else None


@contextmanager
def service(as_: str | None = None) -> Iterator[Service]:
    """The service at hand."""
    named = url()
    if named is None:
        from kbslurm.cli.frame import opened_store

        with opened_store() as store:
            yield ByRows(store, as_)
        return
    if as_ is not None:
        raise Invalid(f"--as is for the database: {named} knows you by your token", hint="Run: kbslurm login")
    with reached(named) as client:
        yield ByHttp(client)


@contextmanager
def reached(named: str, token: str | None = None, *, anybody: bool = False) -> Iterator[Client]:
    """A client of the service there, with the kept token. `anybody`: without one, too."""
    from kbslurm.cli import keys
    from kbslurm.client.http import Client

    token = token or keys.token_for(named)
    if token is None and not anybody:
        raise Unnamed(f"you aren't signed on at {named}", hint="Run: kbslurm login")
    with Client(named, token=token, trust_env=not _is_near(named)) as client:
        try:
            yield client
        except Unauthenticated:
            raise Unauthenticated(
                f"{named} doesn't take the token that is kept for it: it ended, was revoked, or waits to be linked",
                hint="Run: kbslurm login",
            ) from None


def _is_near(named: str) -> bool:
    """Whether it is on this machine: no proxy is asked for that."""
    from urllib.parse import urlsplit

    host = urlsplit(named).hostname or ""
    return host in ("localhost", "::1") or host.startswith("127.")


class ByRows:
    """By the database. Whoever can open it is known by name."""

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
        """By the sites that are configured here. Where none is, or one can't be read, a place is told and no time."""
        from kbslurm import wiring
        from kbslurm.cli.frame import configuration

        try:
            return wiring.slots(configuration())
        except KbslurmError:
            return {}

    def submit(
        self, board: str | None, file_name: str, source: bytes, mode: Mode, gpus: Sequence[str], on: str | None = None
    ) -> tuple[SubmissionId, int]:
        from kbslurm.flow.submit import accept

        person, now = self._person(), datetime.now(UTC)
        offers = self._offers() if on is not None else ()
        receipt = accept(self._store, person.id, board, file_name, source, mode, gpus, now, on=on, offers=offers)
        return receipt.submission_id, len(receipt.run_ids)

    def look(self, number: int) -> Look:
        from kbslurm.api import waiting

        view = self._store.submission(SubmissionId(number))
        return Look(view=view, words=waiting.words(view, waiting.of_submission(self, self._histories, view)))

    def rest(self, at_most_s: float) -> None:
        self._store.wait_for_news(at_most_s)

    def cancel(self, number: int) -> int:
        from kbslurm.flow.cancel import cancel

        return cancel(self._store, SubmissionId(number), self._person().id, datetime.now(UTC))

    def mine(self, board: str | None, *, limit: int, offset: int = 0) -> Sequence[Mapping[str, Any]]:
        from kbslurm.api import popcorn_submission
        from kbslurm.cli.board import board_of

        named = board_of(self._store, board).name if board else None
        found = self._store.submissions(person=self._person().id, board=named, limit=limit, offset=offset)
        return [popcorn_submission.line(view) for view in found]

    def why(self, number: int, *, of_submission: bool) -> Sequence[Mapping[str, Any]]:
        from kbslurm.domain.why import as_told

        now = datetime.now(UTC)
        runs = [run.id for run in self._store.submission(SubmissionId(number)).runs] if of_submission else [number]
        return [as_told(self._store.why(run, now)) for run in runs]

    def artifacts(self, view: SubmissionView) -> Sequence[ArtifactView]:
        person = self._person()
        if view.person_id != person.id and not person.is_staff:
            raise Refused(f"submission {view.id} isn't yours")
        return self._store.artifacts(view.id)

    def artifact(self, view: SubmissionView, gpu: str, name: str) -> bytes:
        return self._store.artifact(view.id, gpu, name)

    def _offers(self) -> Sequence[Offer]:
        from kbslurm import wiring
        from kbslurm.cli.frame import configuration

        return wiring.offers(configuration())

    def _person(self) -> Person:
        from kbslurm.cli.frame import acting

        return acting(self._store, self._as)


def _is_plain(name: str) -> bool:
    """Whether it may become part of a file's name here, whatever the service is."""
    return re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name) is not None


class ByHttp:
    """Over HTTP, by a token."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def submit(
        self, board: str | None, file_name: str, source: bytes, mode: Mode, gpus: Sequence[str], on: str | None = None
    ) -> tuple[SubmissionId, int]:
        from kbslurm.client.errors import ServerGone

        try:
            number = self._client.submit_to_many(board, gpus, mode, file_name, source, on=on).submission_id
        except ServerGone as error:
            error.hint = "It may have been taken all the same: kbslurm history says, once the service is back."
            raise
        return SubmissionId(number), len(self.look(number).view.runs)

    def look(self, number: int) -> Look:
        from kbslurm.api import full_submission
        from kbslurm.client.errors import ServerGone

        told = self._client.whole(number)
        try:
            return Look(view=full_submission.from_json(told["submission"]), words=str(told["message"]))
        except (KeyError, TypeError, ValueError) as error:
            why = f"it tells of a submission in another way than this kbslurm knows ({type(error).__name__})"
            raise ServerGone("service", why, hint="Have both of the same version.") from None

    def rest(self, at_most_s: float) -> None:
        time.sleep(at_most_s)

    def cancel(self, number: int) -> int:
        self._client.cancel(number)
        return sum(run.ended_at is None for run in self.look(number).view.runs)

    def mine(self, board: str | None, *, limit: int, offset: int = 0) -> Sequence[Mapping[str, Any]]:
        found: list[Mapping[str, Any]] = []
        while len(found) < limit:
            step = min(100, limit - len(found))
            page = self._client.lines(board, limit=step, offset=offset + len(found))
            found += page
            if len(page) < step:
                break
        return found

    def why(self, number: int, *, of_submission: bool) -> Sequence[Mapping[str, Any]]:
        return self._client.why(number, of_submission=of_submission)

    def artifacts(self, view: SubmissionView) -> Sequence[ArtifactView]:
        from kbslurm.store.views import ArtifactView

        return [
            ArtifactView(gpu=one.gpu, name=one.name, size=one.size, at=one.at)
            for one in self._client.artifacts(view.id)
            if _is_plain(one.gpu) and _is_plain(one.name)
        ]

    def artifact(self, view: SubmissionView, gpu: str, name: str) -> bytes:
        return self._client.artifact(view.id, gpu, name)
