"""The schema's versions: up and down every step, no difference to the tables in the code, one migrator at a time."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread

import psycopg
import pytest
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine

from kbslurm.config import shared_folders
from kbslurm.errors import Misconfigured
from kbslurm.store import connect, migrate
from kbslurm.store.migrate import Schema
from kbslurm.store.tables import metadata
from tests.contract.store_rig import at_once

NewUrl = Callable[[], str]

CATALOG = {
    "columns": """
        SELECT table_name, column_name, data_type, is_nullable, column_default, is_identity, identity_generation
        FROM information_schema.columns WHERE table_schema = 'public' ORDER BY 1, 2""",
    "constraints": """
        SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint
        WHERE connamespace = 'public'::regnamespace AND contype <> 'n' ORDER BY 1, 2""",
    "indexes": "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'public' ORDER BY 1",
    "triggers": """
        SELECT tgname, pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal ORDER BY 1""",
    "functions": """
        SELECT proname, pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = 'public'::regnamespace ORDER BY 1""",
    "options": """
        SELECT relname, reloptions FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'
        ORDER BY 1""",
    "sequences": "SELECT sequencename, cache_size FROM pg_sequences WHERE schemaname = 'public' ORDER BY 1",
}


def catalog(url: str) -> dict[str, list[tuple[object, ...]]]:
    """All that makes a schema what it is, Alembic's own table left out."""
    with connect.connect(url) as connection:
        found = {
            name: [tuple(row.values()) for row in connection.execute(sql.encode())] for name, sql in CATALOG.items()
        }
    return {name: [row for row in rows if "alembic_version" not in str(row)] for name, rows in found.items()}


def test_the_chain_read_off_the_files_is_alembics() -> None:
    script = ScriptDirectory(str(shared_folders.path("alembic")))
    assert list(migrate.revisions()) == [revision.revision for revision in script.walk_revisions()][::-1]
    assert script.get_heads() == [migrate.revisions()[-1]]


def test_stairway(new_database_url: NewUrl) -> None:
    """Each revision up, down and up again, and each way back leads to the very schema that was there."""
    url = new_database_url()
    before = catalog(url)
    steps = migrate.revisions()
    assert len(steps) >= 2
    for here, below in zip(steps, ("base", *steps), strict=False):
        migrate.upgrade(url, here)
        after = catalog(url)
        assert migrate.current(url) == here
        migrate.downgrade(url, below)
        assert catalog(url) == before, f"{here} isn't taken back whole"
        migrate.upgrade(url, here)
        assert catalog(url) == after
        before = after
    migrate.downgrade(url, "base")
    assert not any(rows for rows in catalog(url).values())
    assert migrate.check(url) is Schema.EMPTY


def test_migrated_is_what_the_code_would_create(database_url: str, new_database_url: NewUrl) -> None:
    assert migrate.differences(database_url) == []
    fresh = new_database_url()
    engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(connect.conninfo(fresh)))
    with engine.begin() as connection:
        metadata.create_all(connection)
    engine.dispose()
    assert catalog(fresh) == catalog(database_url)


def test_a_missing_migration_would_be_seen(database_url: str) -> None:
    with connect.connect(database_url) as connection:
        connection.execute("ALTER TABLE run DROP COLUMN reason")
    assert "reason" in " ".join(migrate.differences(database_url))


def test_two_who_start_at_once_migrate_once(new_database_url: NewUrl) -> None:
    url = new_database_url()
    at_once([lambda: migrate.upgrade(url)] * 3)
    assert migrate.check(url) is Schema.CURRENT


def test_a_migrator_waits_for_another(new_database_url: NewUrl) -> None:
    url = new_database_url()
    with connect.connect(url) as other:
        other.execute("SELECT pg_advisory_lock(%s)", (migrate.GUARD,))
        second = Thread(target=migrate.upgrade, args=(url,))
        second.start()
        waiting = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        while not other.execute(waiting).fetchone():
            assert second.is_alive(), "it didn't wait"
        assert migrate.current(url) is None
    second.join(60)
    assert migrate.check(url) is Schema.CURRENT


def test_the_states_of_a_database_and_what_to_do(new_database_url: NewUrl) -> None:
    url = new_database_url()
    assert migrate.check(url) is Schema.EMPTY
    with pytest.raises(Misconfigured, match="is empty") as caught:
        migrate.ensure_current(url)
    assert caught.value.hint == "Run: kbslurm db upgrade"
    migrate.upgrade(url, migrate.revisions()[0])
    assert migrate.check(url) is Schema.BEHIND
    with pytest.raises(Misconfigured, match="older version"):
        migrate.ensure_current(url)
    migrate.upgrade(url)
    assert migrate.check(url) is Schema.CURRENT
    migrate.ensure_current(url)
    with connect.connect(url) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    for act in (migrate.check, migrate.ensure_current, migrate.upgrade):
        with pytest.raises(Misconfigured, match="newer version of kbslurm") as caught:
            act(url)
        assert "Install the newer version" in (caught.value.hint or "")
