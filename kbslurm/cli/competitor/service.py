"""What a competitor's commands need from the service.

HTTP and the database give the same values, so a command prints the same with either.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from kbslurm.domain.run import SubmissionId

if TYPE_CHECKING:
    from kbslurm.store.views import ArtifactView, SubmissionView
    from kbslurm_eval.shared.wire import Mode


@dataclass(frozen=True, kw_only=True)
class Look:
    """A submission's current state; `words` is one line of progress."""

    view: SubmissionView
    words: str


class Service(Protocol):
    """A person's access to their submissions."""

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
        """Submit a file; returns its number and how many runs it has. Once it returns, nothing can be lost. `on`: the
        place where a test run goes. `benchmark`: the only one to profile."""

    def look(self, number: int) -> Look: ...
    def places(self, view: SubmissionView) -> Sequence[Mapping[str, Any]]:
        """What a finished submission came to, for each GPU type on which it ranks, as the API tells it."""

    def rest(self, at_most_s: float) -> None:
        """Wait until something may have happened."""

    def cancel(self, number: int) -> int:
        """Cancel it; returns how many of its jobs still have to be killed."""

    def mine(self, board: str | None, *, limit: int, offset: int = 0) -> Sequence[Mapping[str, Any]]:
        """The person's own submissions, newest first, each as the API lists it."""

    def ask(self, text: str, *, board: str | None, submission: int | None, appeal: bool) -> Mapping[str, Any]:
        """Ask the hosts something; the question, as its author sees it."""

    def asked(self, *, limit: int) -> Sequence[Mapping[str, Any]]:
        """The person's own questions with their answers, newest first."""

    def why(self, number: int, *, of_submission: bool) -> Sequence[Mapping[str, Any]]:
        """The API's explanation of a run's state, or of each run of a submission."""

    def published_code(self, board: str, gpu: str | None) -> Mapping[str, Any]:
        """When a board's code is published, and whose is; without a GPU type on the board's first one."""

    def code_of(self, board: str, gpu: str | None, number: int) -> Mapping[str, Any]:
        """The code of a published submission."""

    def consent(self, board: str, *, consents: bool) -> Mapping[str, Any]:
        """Agree that one's code on this board is published, or take that back."""

    def check_may_read(self, view: SubmissionView) -> None:
        """Refused if the person may not read the submission's log and files."""

    def artifacts(self, view: SubmissionView) -> Sequence[ArtifactView]: ...
    def artifact(self, view: SubmissionView, gpu: str, name: str) -> bytes: ...
