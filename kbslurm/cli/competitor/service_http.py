"""The service over HTTP, by a token."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kbslurm.cli.competitor.service import Look
from kbslurm.domain.run import SubmissionId
from kbslurm.errors import Invalid

if TYPE_CHECKING:
    from kbslurm.client.http import Client
    from kbslurm.store.views import ArtifactView, SubmissionView
    from kbslurm_eval.shared.wire import Mode


def _is_safe_name(name: str) -> bool:
    """Whether it is safe as part of a file name, even if the service isn't trusted."""
    return re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name) is not None


class HttpService:
    """Over HTTP, with a token."""

    def __init__(self, client: Client) -> None:
        self._client = client

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
        from kbslurm.client.errors import (
            ServerGone,
        )

        try:
            number = self._client.submit_to_many(
                board, gpus, mode, file_name, source, on=on, benchmark=benchmark
            ).submission_id
        except ServerGone as error:
            error.hint = "The submission may have been accepted: check with kbslurm history once the service is back."
            raise
        return SubmissionId(number), len(self.look(number).view.runs)

    def look(self, number: int) -> Look:
        from kbslurm.api import full_submission
        from kbslurm.client.errors import (
            ServerGone,
        )

        told = self._client.full_submission(number)
        try:
            return Look(view=full_submission.from_json(told["submission"]), words=str(told["message"]))
        except (KeyError, TypeError, ValueError) as error:
            why = f"its description of a submission can't be understood ({type(error).__name__})"
            raise ServerGone("service", why, hint="Use the same version of kbslurm on both sides.") from None

    def places(self, view: SubmissionView) -> Sequence[Mapping[str, Any]]:
        return self._client.submission_places(view.id)

    def rest(self, at_most_s: float) -> None:
        time.sleep(at_most_s)

    def cancel(self, number: int) -> int:
        return self._client.cancel(number)

    def mine(self, board: str | None, *, limit: int, offset: int = 0) -> Sequence[Mapping[str, Any]]:
        found: list[Mapping[str, Any]] = []
        while len(found) < limit:
            step = min(100, limit - len(found))
            page = self._client.submission_rows(board, limit=step, offset=offset + len(found))
            found += page
            if len(page) < step:
                break
        return found

    def ask(self, text: str, *, board: str | None, submission: int | None, appeal: bool) -> Mapping[str, Any]:
        return self._client.ask(text, board=board, submission=submission, appeal=appeal)

    def asked(self, *, limit: int) -> Sequence[Mapping[str, Any]]:
        return self._client.own_questions(limit=limit)

    def why(self, number: int, *, of_submission: bool) -> Sequence[Mapping[str, Any]]:
        return self._client.why(number, of_submission=of_submission)

    def published_code(self, board: str, gpu: str | None) -> Mapping[str, Any]:
        return self._client.published_code(board, gpu or self._first_gpu(board))

    def code_of(self, board: str, gpu: str | None, number: int) -> Mapping[str, Any]:
        return self._client.code_of(board, gpu or self._first_gpu(board), number)

    def consent(self, board: str, *, consents: bool) -> Mapping[str, Any]:
        return self._client.consent(board, consents=consents)

    def _first_gpu(self, board: str) -> str:
        found = self._client.gpu_types(board)
        if not found:
            raise Invalid(f"board {board} has no GPU types")
        return found[0]

    def check_may_read(self, view: SubmissionView) -> None:
        """The service gave it."""

    def artifacts(self, view: SubmissionView) -> Sequence[ArtifactView]:
        from kbslurm.store.views import ArtifactView

        return [
            ArtifactView(gpu=one.gpu, name=one.name, size=one.size, at=one.at)
            for one in self._client.artifacts(view.id)
            if _is_safe_name(one.gpu) and _is_safe_name(one.name)
        ]

    def artifact(self, view: SubmissionView, gpu: str, name: str) -> bytes:
        return self._client.artifact(view.id, gpu, name)
