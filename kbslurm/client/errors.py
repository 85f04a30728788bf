"""Errors between a client and the service: the server's own refusals, and no answer at all."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import httpx

from kbslurm.errors import (
    BackendTrouble,
    Invalid,
    KbslurmError,
    NotAccepting,
    NotFound,
    QuotaSpent,
    Refused,
    TooLarge,
    Unauthenticated,
)


class ServerGone(BackendTrouble):
    """The server can't be reached."""


class LimitReached(QuotaSpent):
    """You have used up your quota for now."""

    def __init__(self, said: str, resets_at: datetime) -> None:
        super().__init__(said, used=0, limit=0, resets_at=resets_at)
        self.message, self.hint = said, None
        self.args = (said,)


class NoSuch(NotFound):
    """Not found."""

    def __init__(self, said: str) -> None:
        super().__init__("thing", "")
        self.message, self.hint = said, None
        self.args = (said,)


def is_ours(answer: httpx.Response) -> bool:
    """Whether an error has the shape of ours."""
    try:
        return isinstance(answer.json()["detail"], str)
    except (ValueError, KeyError, TypeError):
        return False


def refusal(answer: httpx.Response) -> KbslurmError:
    """The error that the server sent, under the name that it has there."""
    found = _refusal(answer)
    kind = answer.headers.get("X-Kbslurm-Error", "")
    if kind.isidentifier():
        found.kind = kind
    return found


def _refusal(answer: httpx.Response) -> KbslurmError:
    try:
        told = answer.json()
        said = str(told["detail"])
    except (ValueError, KeyError, TypeError):
        said = f"the server answered with status {answer.status_code}"
    match answer.status_code:
        case 401:
            return Unauthenticated(said)
        case 403:
            return Refused(said)
        case 404:
            return NoSuch(said)
        case 413:
            return TooLarge(said)
        case 429:
            wait_s = answer.headers.get("Retry-After", "60")
            resets_at = datetime.now(UTC) + timedelta(seconds=int(wait_s) if wait_s.isdecimal() else 60)
            return LimitReached(said, resets_at)
        case 503:
            return NotAccepting(said)
        case status if status >= 500:
            return BackendTrouble("server", said)
        case _:
            return Invalid(said)


def why_unreachable(error: httpx.HTTPError) -> str:
    """Why no answer came."""
    return f"it can't be reached ({str(error) or type(error).__name__})"
