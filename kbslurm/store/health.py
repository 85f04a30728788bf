"""How the database is doing, in one small read."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from kbslurm.store.rows import Rows

_LOOK = """
SELECT current_setting('server_version') AS server, clock_timestamp() AS database_at, pg_is_in_recovery() AS is_standby,
    pg_database_size(current_database()) AS bytes, (SELECT version_num FROM alembic_version) AS revision,
    e.id AS event_id, e.kind AS event_kind, e.at AS event_at
FROM (SELECT) one LEFT JOIN LATERAL (SELECT id, kind, at FROM event ORDER BY id DESC LIMIT 1) e ON true
"""


@dataclass(frozen=True, kw_only=True)
class Look:
    """What the database says of itself. `event_…`: the newest event, if there is one."""

    server: str
    database_at: datetime
    is_standby: bool
    bytes: int
    revision: str
    event_id: int | None
    event_kind: str | None
    event_at: datetime | None


class Health(Rows):
    """A look at the database itself."""

    def look(self) -> Look:
        found = self._one(_LOOK)
        assert found is not None
        return Look(**found)
