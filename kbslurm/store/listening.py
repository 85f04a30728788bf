"""The single connection per store that listens for NOTIFY, shared by all waiters."""

from __future__ import annotations

import contextlib
import threading
import time

import psycopg

from kbslurm.errors import KbslurmError
from kbslurm.store.connect import Connection, Pool

CHANNEL = "kbslurm_news"


class Listener:
    """One listening connection per store: one thread listens, the others wait for it."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._connection: Connection | None = None
        self._turn = threading.Condition()
        self._is_listened = self._is_over = False
        self._heard = 0

    def wait(self, timeout_s: float) -> bool:
        """True if there was a notification since this store last listened, or if that can't be known."""
        until = time.monotonic() + timeout_s
        with self._turn:
            before = self._heard
            self._turn.wait_for(lambda: self._heard != before or not self._is_listened, timeout_s)
            if self._heard != before:
                return True
            if self._is_listened:
                return False
            self._is_listened = True
        heard = False
        try:
            heard = self._listen(max(0.0, until - time.monotonic()))
        finally:
            with self._turn:
                self._is_listened = False
                self._heard += heard
                self._turn.notify_all()
        return heard

    def _listen(self, timeout_s: float) -> bool:
        until = time.monotonic() + timeout_s
        try:
            if self._connection is not None:
                return any(True for _ in self._connection.notifies(timeout=timeout_s, stop_after=1))
        except psycopg.Error:
            self.close()
        if not self._is_over:
            with contextlib.suppress(psycopg.Error, KbslurmError):
                self._connection = self._pool.connected()
                self._connection.execute(f"LISTEN {CHANNEL}")
                if not self._is_over:  # otherwise nobody would close it
                    return True
        # Notifications are hints. Without a database there are none, and retrying fast would only hammer it.
        self.close()
        threading.Event().wait(max(0.0, until - time.monotonic()))
        return False

    def end(self) -> None:
        """Stop listening, and don't reconnect."""
        self._is_over = True
        self.close()

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
