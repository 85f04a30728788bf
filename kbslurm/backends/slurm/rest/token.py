"""The JWT for slurmrestd: from a command, a file or the environment, read again before it lapses; never logged."""

from __future__ import annotations

import base64
import json
import os
import re
import shlex
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kbslurm.domain.site import Submission

VARIABLE = "SLURM_JWT"
COMMAND_S = 30.0
EARLY_S = 120.0  # a token is replaced this long before its end, or after four fifths of its life if that is shorter
# scontrol's words where the controller is down or hangs
_AWAY = re.compile(r"(?i)contact slurm controller|socket timed out|communication connection failure|zero bytes")
_TOKEN = re.compile(r"(?:^|\s|=)([A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+)\s*$")


class NoToken(Exception):
    """There is no token that could be valid; the text says why and what to do."""


@dataclass(frozen=True, kw_only=True)
class Token:
    """One token and what it says of itself. `user`: whose it is; `until`: when it ends, in seconds since 1970."""

    text: str = field(repr=False)
    user: str = ""
    made_at: float | None = None
    until: float | None = None

    def lapses(self, now: float) -> bool:
        """Whether it is time for another one."""
        if self.until is None:
            return False
        life_s = self.until - self.made_at if self.made_at is not None else EARLY_S * 5
        return now >= self.until - min(EARLY_S, life_s / 5)


class TokenSource:
    """Where a site's token comes from. Thread-safe."""

    def __init__(
        self,
        submit: Submission,
        environ: Mapping[str, str] | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._submit, self._wall = submit, wall
        self._environ = dict(os.environ if environ is None else environ)
        self._lock = threading.Lock()
        self._last: Token | None = None

    @property
    def named(self) -> str:
        """Where it comes from, for people."""
        if self._submit.token_command:
            return f"token_command ({shlex.split(self._submit.token_command)[0]} …)"
        file = self._file
        return file or VARIABLE

    def current(self) -> Token:
        """A token that hasn't ended yet, or NoToken. One that is about to end is used on if its command gives no
        other."""
        with self._lock:
            now = self._wall()
            last = self._last
            if last is None or not self._submit.token_command or last.lapses(now):
                try:
                    last = self._fresh(now)
                except NoToken:
                    if not self._submit.token_command or last is None or last.until is None or last.until <= now:
                        raise
                self._last = last
            return last

    def refused(self) -> None:
        """slurmrestd refused it: the next one is asked for anew."""
        with self._lock:
            self._last = None

    def _fresh(self, now: float) -> Token:
        if self._submit.token_command:
            text = self._from_command()
        elif self._file:
            text = self._from_file(self._file)
        else:
            text = self._environ.get(VARIABLE, "")
            if not text:
                raise NoToken(
                    f"there is no token: set {VARIABLE} or {VARIABLE}_FILE, or token_file or token_command in [submit]"
                )
        found = _TOKEN.search(text.strip())
        if found is None:
            raise NoToken(f"{self.named} gives no token (three parts with dots between them)")
        token = read(found[1])
        if token.until is not None and token.until <= now:
            at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(token.until))
            raise NoToken(f"the token from {self.named} expired at {at}; put a new one there (scontrol token)")
        return token

    @property
    def _file(self) -> str:
        return self._submit.token_file or self._environ.get(f"{VARIABLE}_FILE", "")

    def _from_file(self, file: str) -> str:
        try:
            return Path(file).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it isn't text"
            raise NoToken(f"the token can't be read from {file}: {why}") from None

    def _from_command(self) -> str:
        argv = shlex.split(self._submit.token_command)
        try:
            done = subprocess.run(
                argv,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=COMMAND_S,
                check=False,
                env=self._environ,
            )
        except subprocess.TimeoutExpired:
            raise NoToken(f"{self.named} didn't end in {COMMAND_S:.0f} s") from None
        except OSError as error:
            raise NoToken(f"{self.named} can't be run: {error.strerror}") from None
        if done.returncode:
            last = done.stderr.strip().rpartition("\n")[2][:200]
            if _AWAY.search(done.stderr):
                said = last.rpartition(": ")[2]
                raise NoToken(f"the cluster's controller, which makes the tokens, doesn't answer ({said})")
            raise NoToken(f"{self.named} ended with status {done.returncode}{f': {last}' if last else ''}")
        return done.stdout


def read(text: str) -> Token:
    """What a token says of itself. Its signature is the cluster's business."""
    claims = _claims(text)
    return Token(
        text=text,
        user=str(claims.get("sun") or claims.get("username") or ""),
        made_at=_number(claims.get("iat")),
        until=_number(claims.get("exp")),
    )


def _claims(text: str) -> dict[str, Any]:
    middle = text.split(".")[1]
    try:
        told = json.loads(base64.urlsafe_b64decode(middle + "=" * (-len(middle) % 4)))
    except (ValueError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}


def _number(told: Any) -> float | None:
    return float(told) if isinstance(told, int | float) and not isinstance(told, bool) else None
