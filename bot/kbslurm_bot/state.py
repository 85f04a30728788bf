"""What the bot has to remember across restarts: its cards, and what it has announced. One SQLite file."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbslurm.errors import Misconfigured
from kbslurm.observe.logs import teller

tell = teller("bot")
SCHEMA = """
CREATE TABLE IF NOT EXISTS card (
    submission INTEGER PRIMARY KEY, channel INTEGER NOT NULL, owner INTEGER NOT NULL,
    message INTEGER, shown TEXT NOT NULL DEFAULT '', done INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX IF NOT EXISTS card_open ON card (submission) WHERE done = 0;
CREATE TABLE IF NOT EXISTS word (name TEXT PRIMARY KEY, value TEXT NOT NULL);
"""


@dataclass(frozen=True, kw_only=True)
class Card:
    """A submission's card. `message` is None until Discord has it, `shown` the digest of what it says."""

    submission: int
    channel: int
    owner: int
    message: int | None = None
    shown: str = ""
    done: bool = False


class State:
    """Small and synchronous: a write is one page of a local file. What is written survives a kill."""

    def __init__(self, path: Path) -> None:
        # If the disk is full, keep it in memory until we exit, so that nothing is announced twice.
        self._words: dict[str, str] = {}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                self._open(path)
            except sqlite3.DatabaseError as error:
                if isinstance(error, sqlite3.OperationalError):
                    raise
                broken = path.with_name(f"{path.name}.broken-{int(time.time())}")
                path.rename(broken)
                for beside in ("-wal", "-shm"):
                    path.with_name(path.name + beside).unlink(missing_ok=True)
                tell(
                    "the bot's state file is corrupt; starting with a new one",
                    level="error",
                    why=str(error),
                    kept_as=str(broken),
                )
                self._open(path)
        except (OSError, sqlite3.Error) as error:
            raise Misconfigured(
                f"the bot's state file {path} can't be opened ({error})",
                fix="Set [daemon] state_dir to a folder on a local disk.",
            ) from error

    def _open(self, path: Path) -> None:
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        try:
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.executescript(SCHEMA)
        except sqlite3.Error:
            self._db.close()
            raise

    def close(self) -> None:
        self._db.close()

    def _written(self, statement: str, values: tuple[Any, ...]) -> None:
        """A card that can't be stored lives until the bot exits; no submission depends on it."""
        try:
            self._db.execute(statement, values)
        except sqlite3.Error as error:
            tell(
                "can't write the bot's state file",
                level="error",
                why=str(error),
                fix="Check whether its disk is full or read-only.",
            )

    def put(self, card: Card) -> None:
        """Store the card."""
        self._written(
            "INSERT INTO card (submission, channel, owner, message, shown, done) VALUES (?, ?, ?, ?, ?, ?)"
            " ON CONFLICT (submission) DO UPDATE SET channel = excluded.channel, owner = excluded.owner,"
            " message = excluded.message, shown = excluded.shown, done = excluded.done",
            (card.submission, card.channel, card.owner, card.message, card.shown, card.done),
        )

    def open_cards(self) -> list[Card]:
        """The cards that still change."""
        return [self._card(row) for row in self._db.execute("SELECT * FROM card WHERE done = 0 ORDER BY submission")]

    def card(self, submission: int) -> Card | None:
        """The card of this submission, if it has one."""
        row = self._db.execute("SELECT * FROM card WHERE submission = ?", (submission,)).fetchone()
        return None if row is None else self._card(row)

    def word(self, name: str) -> str | None:
        """The value stored under this name."""
        if name in self._words:
            return self._words[name]
        row = self._db.execute("SELECT value FROM word WHERE name = ?", (name,)).fetchone()
        return None if row is None else str(row[0])

    def keep(self, name: str, value: str) -> None:
        """Store a value under this name."""
        self._words[name] = value
        self._written("INSERT OR REPLACE INTO word (name, value) VALUES (?, ?)", (name, value))

    @staticmethod
    def _card(row: tuple[int, int, int, int | None, str, int]) -> Card:
        submission, channel, owner, message, shown, done = row
        return Card(submission=submission, channel=channel, owner=owner, message=message, shown=shown, done=bool(done))


@contextmanager
def opened(path: Path) -> Iterator[State]:
    """The state in this file, created if needed."""
    state = State(path)
    try:
        yield state
    finally:
        state.close()
