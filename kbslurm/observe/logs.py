"""One line per decision: what was decided and the facts, for a person or (`--log-json`) for a machine.

Facts are ids, names and reasons. They never contain secrets; should one slip into a reason (a driver's message that
quotes a URL), the formatter redacts every value of a secret variable.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from datetime import UTC, datetime
from typing import IO, Any, Protocol

from kbslurm.domain.secret_names import secret_ones

ROOT = "kbslurm"
# URLs may appear in logs: only their password is redacted.
SHOWN = "DATABASE_URL"
_URL_PASSWORD = re.compile(r"(\w+://[^\s:/@]*):[^\s@/]+@")
_SHORTEST_SECRET = 6


class Tell(Protocol):
    """Log one decision."""

    def __call__(self, what: str, /, **facts: Any) -> None: ...


def teller(room: str) -> Tell:
    """A logging function: `tell("launched", run=3, backend="local")`. `level="warning"` makes it a warning."""
    logger = logging.getLogger(f"{ROOT}.{room}")

    def tell(what: str, /, *, level: str = "info", **facts: Any) -> None:
        logger.log(logging.getLevelNamesMapping()[level.upper()], what, extra={"facts": facts})

    return tell


def set_up(*, as_json: bool = False, level: str = "info", stream: IO[str] | None = None) -> None:
    """Send every decision of this process to `stream` (stderr). If called twice, the second call counts.

    So are the warnings of the libraries in use, in the same format: a traceback of theirs is one line of JSON too.
    """
    handler = _Ours(stream or sys.stderr)
    handler.setFormatter(AsJson() if as_json else AsText())
    logger = logging.getLogger(ROOT)
    logger.handlers[:] = [handler]
    logger.setLevel(level.upper())
    logger.propagate = False
    others = logging.getLogger()
    others.handlers[:] = [*(one for one in others.handlers if not isinstance(one, _Ours)), handler]
    # A broken connection already raises an error; what its rollback then logs isn't one of our decisions.
    logging.getLogger("psycopg").setLevel(logging.ERROR)


class _Ours(logging.StreamHandler[IO[str]]):
    """So that a second `set_up` knows which handler to replace."""


class AsText(logging.Formatter):
    """`12:00:01 daemon launched run=3 backend=local`."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC)
        facts = " ".join(f"{name}={_shown_value(value)}" for name, value in _fields(record).items())
        mark = "" if record.levelno < logging.WARNING else f"{record.levelname.lower()}: "
        room = record.name.removeprefix(f"{ROOT}.")
        return without_secrets(f"{at:%H:%M:%S} {room} {mark}{record.getMessage()} {facts}".rstrip())


class AsJson(logging.Formatter):
    """One object per line: at, level, room, what, and the facts."""

    def format(self, record: logging.LogRecord) -> str:
        told = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "room": record.name.removeprefix(f"{ROOT}."),
            "what": record.getMessage(),
            **_fields(record),
        }
        return without_secrets(json.dumps(told, default=str))


def without_secrets(text: str) -> str:
    """The text with URL passwords and the values of secret variables redacted."""
    text = _URL_PASSWORD.sub(r"\1:***@", text)
    for name in secret_ones(os.environ):
        value = os.environ.get(name, "")
        if name != SHOWN and len(value) >= _SHORTEST_SECRET:
            text = text.replace(value, "***")
    return text


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    facts = dict(getattr(record, "facts", {}))
    if record.exc_info:
        facts["traceback"] = logging.Formatter().formatException(record.exc_info)
    return facts


def _shown_value(value: Any) -> str:
    text = str(value)
    return json.dumps(text) if not text or " " in text or "\n" in text else text
