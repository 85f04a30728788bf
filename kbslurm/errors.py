"""Every error that kbslurm raises on purpose, drawn as a tree.

KbslurmError
├── Unauthenticated   who are you?                      exit 4   http 401
│   ├── Unnamed                                                  http 400
│   └── NoHost
├── Refused           not allowed, or not now           exit 5   http 403
│   ├── Banned
│   ├── DeadlinePassed
│   ├── QuotaSpent                                               http 429
│   └── NotAccepting                                             http 503
├── Invalid           the input is wrong                exit 2   http 400
│   ├── TooLarge                                                 http 413
│   └── NoGpuType
├── NotFound          nothing has that name             exit 2   http 404
├── Misconfigured     an operator must fix the set-up   exit 2   http 500
└── BackendTrouble    a cluster or service failed       exit 6   http 503
    ├── BackendRefused    it refused, and nothing was started
    └── BackendUnclear    it may or may not have started something

A kernel that fails is a Verdict, not an exception.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import ClassVar

EXIT_OK = 0
EXIT_BUG = 1
EXIT_REJECTED = 3
EXIT_INFRASTRUCTURE = 6
EXIT_INTERRUPTED = 130


class KbslurmError(Exception):
    """An error that kbslurm expected."""

    exit_code: ClassVar[int] = EXIT_BUG
    http_status: ClassVar[int] = 500

    def __init__(self, message: str | None = None, *, hint: str | None = None) -> None:
        self.message = message or (type(self).__doc__ or "").partition("\n")[0]
        self.hint = hint
        self.kind = type(self).__name__
        super().__init__(self.message)


class Unauthenticated(KbslurmError):
    """We don't know who you are."""

    exit_code = 4
    http_status = 401


class Unnamed(Unauthenticated):
    """You didn't identify yourself."""

    http_status = 400


class NoHost(Unauthenticated):
    """This needs a host's rights."""


class Refused(KbslurmError):
    """You aren't allowed to do this now."""

    exit_code = 5
    http_status = 403


class Banned(Refused):
    """This account is banned."""

    def __init__(self, message: str | None = None, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint or "Ask a host.")


class DeadlinePassed(Refused):
    """The board's deadline has passed."""

    def __init__(self, board: str, *, closed_at: datetime, zone: str, hint: str | None = None) -> None:
        self.board, self.closed_at, self.zone = board, closed_at, zone
        when = closed_at.strftime("%Y-%m-%d %H:%M")
        super().__init__(
            f"board {board} closed on {when} ({zone})",
            hint=hint or "Ask a host for an extension, or pick another board.",
        )


class QuotaSpent(Refused):
    """You have used up your quota for now."""

    http_status = 429

    def __init__(
        self, what: str, *, used: float, limit: float, resets_at: datetime | None, hint: str | None = None
    ) -> None:
        """`resets_at` None: time alone doesn't bring more."""
        self.used, self.limit, self.resets_at = used, limit, resets_at
        after = None if resets_at is None else f"Try again after {resets_at:%Y-%m-%d %H:%M %Z}."
        super().__init__(f"{what}: {used:g} of {limit:g} used", hint=hint or after)


class NotAccepting(Refused):
    """Submissions are paused."""

    http_status = 503


class Invalid(KbslurmError):
    """The input is wrong."""

    exit_code = 2
    http_status = 400

    def __init__(
        self,
        message: str | None = None,
        *,
        file: Path | None = None,
        line: int | None = None,
        key: str | None = None,
        hint: str | None = None,
    ) -> None:
        self.file, self.line, self.key = file, line, key
        super().__init__(located(message or "The input is wrong.", file, line, key), hint=hint)


class TooLarge(Invalid):
    """The file is too large."""

    http_status = 413


class NoGpuType(Invalid):
    """A board has no GPU type."""


class NotFound(KbslurmError):
    """Not found."""

    exit_code = 2
    http_status = 404

    def __init__(self, what: str, name: str, *, known: Sequence[str] = (), hint: str | None = None) -> None:
        self.what, self.name, self.known = what, name, tuple(known)
        if hint is None and known:
            hint = f"Choose one of: {', '.join(sorted(known))}."
        super().__init__(f"there is no {what} {name!r}", hint=hint)


class Misconfigured(KbslurmError):
    """An operator must fix the configuration."""

    exit_code = 2
    http_status = 500

    def __init__(
        self,
        message: str | None = None,
        *,
        file: Path | None = None,
        line: int | None = None,
        key: str | None = None,
        fix: str | None = None,
    ) -> None:
        self.file, self.line, self.key, self.fix = file, line, key, fix
        super().__init__(located(message or "The configuration is wrong.", file, line, key), hint=fix)


class BackendTrouble(KbslurmError):
    """A cluster or a service failed."""

    exit_code = 6
    http_status = 503

    def __init__(
        self, backend: str, message: str, *, retry_after_s: float | None = None, hint: str | None = None
    ) -> None:
        self.backend, self.retry_after_s = backend, retry_after_s
        super().__init__(f"{backend}: {message}", hint=hint)


class BackendRefused(BackendTrouble):
    """The backend refused, and nothing was started.

    `permanent` is true when the same request would always be refused (an unknown partition), false when it may be
    accepted later (a limit on queued jobs). `away` is true when the request itself is fine but the place accepts none
    at the moment. `together` is true when the reason holds for every request for that GPU type.
    """

    def __init__(
        self,
        backend: str,
        message: str,
        *,
        permanent: bool,
        away: bool = False,
        together: bool = False,
        hint: str | None = None,
    ) -> None:
        self.permanent, self.away, self.together = permanent, away, together or away
        super().__init__(backend, message, hint=hint)


class BackendUnclear(BackendTrouble):
    """The backend may or may not have started something: check before trying again."""


def located(message: str, file: Path | None, line: int | None, key: str | None) -> str:
    """`file:line: key: message`, with what is known of it."""
    place = str(file) if file else ""
    if place and line:
        place += f":{line}"
    return ": ".join(part for part in (place, key, message) if part)
