"""The journal of places: the daemon's log lines about each, kept in the database for `kbslurm place logs`.

Only what changed and what went wrong: each run's own steps are in its attempt. Secrets are blanked as in the log.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import deque
from datetime import UTC, datetime

from kbslurm.domain.drains import PlaceLine
from kbslurm.errors import KbslurmError
from kbslurm.observe.logs import ROOT, AsText, without_secrets
from kbslurm.ports import Places

MOST = 200  # lines between two ticks; of a flood the newest are kept
TEXT_CAP = 500
NOTED = frozenset(
    ("works again", "breaker", "draining", "resumed", "gone", "changed", "withdrawn", "given back", "let go", "pruned")
)


class Journal(logging.Handler):
    """Keeps lines about places until they are written, at the next tick."""

    def __init__(self, places: Places) -> None:
        super().__init__(logging.INFO)
        self._places = places
        self._lines: deque[PlaceLine] = deque(maxlen=MOST)
        self._mutex = threading.Lock()

    def emit(self, record: logging.LogRecord) -> None:
        facts = dict(getattr(record, "facts", {}))
        place = facts.pop("backend", None)
        if not isinstance(place, str) or (record.levelno < logging.WARNING and record.getMessage() not in NOTED):
            return
        said = " ".join((record.getMessage(), *AsText.facts(facts)))
        text = without_secrets(" ".join(said.split()))[:TEXT_CAP]
        at = datetime.fromtimestamp(record.created, UTC)
        with self._mutex:
            self._lines.append(PlaceLine(place=place, at=at, level=record.levelname.lower(), text=text))

    def open(self) -> None:
        """Listen to the log from now on."""
        logging.getLogger(ROOT).addHandler(self)

    def close(self) -> None:
        """Listen no more, and write what is left, if the database takes it."""
        logging.getLogger(ROOT).removeHandler(self)
        with contextlib.suppress(KbslurmError):
            self.write()
        super().close()

    def write(self) -> None:
        """Write what came since. What the database doesn't take now is tried again with the next lines."""
        with self._mutex:
            lines = list(self._lines)
            self._lines.clear()
        try:
            self._places.write_down(lines)
        except KbslurmError:
            with self._mutex:
                self._lines = deque([*lines, *self._lines], maxlen=MOST)
            raise
