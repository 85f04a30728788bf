"""Runs the migrations. `kbslurm.store.migrate` gives the connection; nothing here decides where the database is."""

from __future__ import annotations

from alembic import context
from sqlalchemy.sql.schema import SchemaItem

from kbslurm.store.tables import metadata


def include_object(
    item: SchemaItem, name: str | None, kind: str, reflected: bool, compare_to: SchemaItem | None
) -> bool:
    """Only our own tables are compared: a database may hold others."""
    return kind != "table" or not reflected or name in metadata.tables


connection = context.config.attributes.get("connection")
if connection is None:
    raise SystemExit("run the migrations by `kbslurm db upgrade`: it knows the database and keeps others out meanwhile")

context.configure(
    connection=connection,
    target_metadata=metadata,
    include_object=include_object,
    transaction_per_migration=True,
    compare_server_default=True,
)
with context.begin_transaction():
    context.run_migrations()
