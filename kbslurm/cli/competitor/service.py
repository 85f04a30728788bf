"""What a competitor's commands ask of the service.

Over HTTP and from the database come the same values, so a command prints the same whichever it is.
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
