"""Keep the queue lean

The rows at the head of the queue die young: let vacuum come early, and leave room for updates in place.
"""

from __future__ import annotations

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

SETTINGS = {
    "run": {"fillfactor": "80", "autovacuum_vacuum_scale_factor": "0.02", "autovacuum_vacuum_cost_delay": "0"},
    "attempt": {"fillfactor": "80", "autovacuum_vacuum_scale_factor": "0.02"},
}


def upgrade() -> None:
    for table, settings in SETTINGS.items():
        op.execute(f"ALTER TABLE {table} SET ({', '.join(f'{name} = {value}' for name, value in settings.items())})")


def downgrade() -> None:
    for table, settings in SETTINGS.items():
        op.execute(f"ALTER TABLE {table} RESET ({', '.join(settings)})")
