"""Settings of this installation that live in the database, its secrets, and whether it accepts jobs."""

from __future__ import annotations

import secrets
from datetime import datetime
from typing import Any

from psycopg.types.json import Jsonb

from kbslurm.store.rows import Rows, note_event, or_now

INTAKE_LOCK = 4_927_306  # held shared while accepting, exclusively while pausing: see programs.PROGRAMS
SETTING = "SELECT value FROM setting WHERE key = %(key)s"

PUT_SETTING = """
INSERT INTO setting (key, value) VALUES (%(key)s, %(value)s) ON CONFLICT (key) DO UPDATE SET value = excluded.value
"""


class Settings(Rows):
    """Values by key."""

    def get(self, key: str, default: Any = None) -> Any:
        found = self._one(SETTING, {"key": key})
        return default if found is None else found["value"]

    def put(self, key: str, value: Any) -> None:
        self._do(PUT_SETTING, {"key": key, "value": Jsonb(value)})

    def accepts_jobs(self) -> bool:
        return self.get("accepts_jobs", default=True) is not False

    def set_accepts_jobs(self, accepting: bool, *, by: str | None = None, now: datetime | None = None) -> None:
        """Pause or resume intake. Once a pause returns, nothing more is accepted."""
        with self._pool.transaction() as connection:
            connection.execute("SELECT pg_advisory_xact_lock(%(lock)s)", {"lock": INTAKE_LOCK})
            connection.execute(PUT_SETTING.encode(), {"key": "accepts_jobs", "value": Jsonb(accepting)})
            if by is not None:
                act = "resume" if accepting else "pause"
                note_event(connection, f"staff.{act}", "intake", {"by": by}, or_now(now))

    def secret(self, key: str) -> bytes:
        """A random secret of this installation by name, created when first needed."""
        self._do(
            "INSERT INTO setting (key, value) VALUES (%(key)s, to_jsonb(%(value)s::text)) ON CONFLICT DO NOTHING",
            {"key": f"secret.{key}", "value": secrets.token_hex(32)},
        )
        return bytes.fromhex(str(self.get(f"secret.{key}")))
