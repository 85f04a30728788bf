"""How many calls a site's scheduler still gets this minute: one budget for every process that calls it, kept in a small
locked file."""

from __future__ import annotations

import fcntl
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from kbslurm.errors import BackendRefused
from kbslurm.observe.logs import teller

tell = teller("slurm")

LONGEST_WAIT_S = 120.0
NOTE_CAP = 4096
USED_UP = "the site's call budget for this minute is used up"


class CallBudget:
    """Calls per minute, saved up for at most a minute. With `file`, all processes that name it share them, by a clock
    that they share, too; where that file can't be used, the process has a budget of its own."""

    def __init__(self, per_minute: float, now: Callable[[], float] = time.time, *, file: Path | None = None) -> None:
        self._per_minute, self._now, self._file = per_minute, now, file
        self._lock = threading.Lock()
        self._tokens, self._filled_at, self._spent = per_minute, now(), 0.0

    def left(self) -> float:
        """How many calls there is room for now; negative while calls beyond the budget are being made up for."""
        return self._spend(0.0)

    def spend(self, calls: float = 1.0) -> None:
        """Record calls that were made. Follow-ups of an allowed call are allowed too, for at most a minute of debt."""
        self._spend(calls)

    def spent(self) -> int:
        """How many calls were ever recorded, by every process that shares the budget."""
        self._spend(0.0)
        return round(self._spent)

    def has_room(self, calls: int = 1) -> bool:
        """Whether there is room for this many. The last one is reserved for polling open attempts."""
        return self.left() >= min(calls + 1.0, self._per_minute)

    def wait(self, site: str, *, wait_s: float = LONGEST_WAIT_S, sleep: Callable[[float], None] = time.sleep) -> None:
        """Return when there is room for one call. BackendRefused after this long: the others use it all."""
        until = self._now() + wait_s
        while not self.has_room():
            if self._now() >= until:
                hint = "Try again in a minute, or raise calls_per_minute below [poll]."
                raise BackendRefused(site, USED_UP, permanent=False, hint=hint)
            sleep(min(1.0, 60.0 / self._per_minute))

    def _spend(self, calls: float) -> float:
        with self._lock, self._shared() as fd:
            tokens, filled_at, spent = _kept(fd) or (self._tokens, self._filled_at, self._spent)
            now = self._now()
            gained = max(0.0, now - filled_at) * self._per_minute / 60.0
            tokens = min(self._per_minute, tokens + gained)
            self._tokens, self._filled_at = max(-self._per_minute, tokens - calls), now
            self._spent = spent + calls
            if fd is not None and calls:
                _keep(fd, self._tokens, now, self._spent)
            return self._tokens

    @contextmanager
    def _shared(self) -> Iterator[int | None]:
        """The file, locked; None if there is none, or it can't be used."""
        fd = None
        try:
            fd = self._opened()
        except OSError as error:
            tell("a call budget of its own", level="warning", file=str(self._file), why=str(error))
        try:
            yield fd
        finally:
            if fd is not None:
                os.close(fd)  # which releases the lock

    def _opened(self) -> int | None:
        if self._file is None:
            return None
        self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
        except OSError:
            os.close(fd)
            raise
        return fd


def _kept(fd: int | None) -> tuple[float, float, float] | None:
    """What the file says: calls left, when that was, calls ever made. None if nothing valid."""
    if fd is None:
        return None
    try:
        told = json.loads(os.pread(fd, NOTE_CAP, 0) or b"null")
        return float(told["tokens"]), float(told["filled_at"]), float(told.get("spent", 0.0))
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _keep(fd: int, tokens: float, filled_at: float, spent: float) -> None:
    try:
        text = json.dumps({"tokens": tokens, "filled_at": filled_at, "spent": round(spent)}).encode()
        os.pwrite(fd, text, 0)
        os.ftruncate(fd, len(text))
    except OSError as error:
        tell("the call budget can't be stored", level="warning", why=str(error))
