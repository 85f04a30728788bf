"""Schema versions: a database's current one, and how to bring it to the one that this code needs.

Alembic and SQLAlchemy are imported only to change something; a check costs one small query.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING

import psycopg

from kbslurm.config import shared_folders
from kbslurm.errors import BackendTrouble, Misconfigured
from kbslurm.store.connect import Connection, connect, conninfo, retell, where

if TYPE_CHECKING:
    from alembic.config import Config
    from sqlalchemy import Connection as AlchemyConnection

GUARD = 4_927_304  # the advisory lock of the migrator
GUARD_WAIT_S = 60
LOCK_WAIT_S = 10

_REVISION = re.compile(r"^revision(?:: str)? = ['\"]([^'\"]+)['\"]$", re.MULTILINE)
_OURS = re.compile(r"\d{4}")
_BELOW = re.compile(r"^down_revision(?:: [^=]+)? = (?:None|['\"]([^'\"]+)['\"])$", re.MULTILINE)


class Schema(StrEnum):
    """The state of a database's schema, compared with this code."""

    EMPTY = "empty"
    BEHIND = "behind"
    CURRENT = "current"


@cache
def revisions() -> tuple[str, ...]:
    """Every revision, oldest first, parsed from the files: a check must not import Alembic."""
    above: dict[str | None, str] = {}
    for file in (shared_folders.path("alembic") / "versions").glob("*.py"):
        text = file.read_text(encoding="utf-8")
        name, below = _REVISION.search(text), _BELOW.search(text)
        if name and below:
            above[below.group(1)] = name.group(1)
    found: list[str] = []
    here = above.get(None)
    while here is not None:
        found.append(here)
        here = above.get(here)
    return tuple(found)


def current(url: str) -> str | None:
    """The database's revision, or None if it has none."""
    with connect(url) as connection:
        return _current(connection)


def check(url: str) -> Schema:
    """Whether this code can work with the database. Misconfigured if it is from a newer version or another program."""
    with connect(url) as connection:
        found = _current(connection)
        if found is None:
            _check_nobodys(connection, url)
            return Schema.EMPTY
    known = revisions()
    if not _OURS.fullmatch(found):
        raise _of_another(url, f"its schema is at {found!r}")
    if found not in known:
        raise Misconfigured(
            f"the database {where(url)} is from a newer version of kbslurm"
            f" (schema {found}; this one supports up to {known[-1]})",
            fix="Install the newer version, or restore the backup made before the upgrade.",
        )
    return Schema.CURRENT if found == known[-1] else Schema.BEHIND


def ensure_current(url: str) -> None:
    """Raise Misconfigured, saying what to do, unless the schema is current. Changes nothing."""
    match check(url):
        case Schema.EMPTY:
            raise Misconfigured(f"the database {where(url)} is empty", fix="Run: kbslurm db upgrade")
        case Schema.BEHIND:
            raise Misconfigured(f"the database {where(url)} is from an older version", fix="Run: kbslurm db upgrade")
        case Schema.CURRENT:
            return


def upgrade(url: str, to: str = "head") -> None:
    """Upgrade the schema to `to`. Safe to run concurrently; each revision is one transaction."""
    with _alone(url):
        check(url)
        with _alembic(url) as config:
            from alembic import command

            command.upgrade(config, to)


def downgrade(url: str, to: str) -> None:
    """Downgrade the schema to `to` (a revision, or `base`). Data of the newer revisions is lost."""
    with _alone(url), _alembic(url) as config:
        from alembic import command

        command.downgrade(config, to)


def differences(url: str) -> list[str]:
    """Differences between the tables in the code and the database, meaning a missing migration."""
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    from kbslurm.store.tables import metadata

    with _alchemy(url) as connection:
        context = MigrationContext.configure(
            connection, opts={"compare_server_default": True, "target_metadata": metadata}
        )
        return [str(found) for found in compare_metadata(context, metadata)]


def _check_nobodys(connection: Connection, url: str) -> None:
    """A database without a revision may belong to another program, whose tables would clash with ours."""
    from kbslurm.store.tables import metadata

    there = connection.execute(
        "SELECT relname FROM pg_class WHERE relname = ANY(%s) AND pg_table_is_visible(oid) ORDER BY relname",
        (sorted(metadata.tables),),
    ).fetchall()
    if there:
        raise _of_another(url, f"it has {', '.join(row['relname'] for row in there[:3])}")


def _of_another(url: str, why: str) -> Misconfigured:
    return Misconfigured(
        f"the database {where(url)} belongs to another program ({why})",
        fix="Create a separate database for kbslurm and point DATABASE_URL at it.",
    )


def _current(connection: Connection) -> str | None:
    there = connection.execute("SELECT to_regclass('alembic_version') IS NOT NULL AS there").fetchone()
    if there is None or not there["there"]:
        return None
    row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    return None if row is None else str(row["version_num"])


@contextmanager
def _alone(url: str) -> Iterator[None]:
    """Hold the migrators' lock. It belongs to the session, so it is released however we end."""
    with connect(url) as connection:
        connection.execute(f"SET lock_timeout = '{GUARD_WAIT_S}s'")
        try:
            connection.execute("SELECT pg_advisory_lock(%s)", (GUARD,))
        except psycopg.errors.LockNotAvailable as error:
            raise BackendTrouble(
                "database", f"another process has been migrating {where(url)} for {GUARD_WAIT_S} s", retry_after_s=60.0
            ) from error
        yield


@contextmanager
def _alembic(url: str) -> Iterator[Config]:
    from alembic.config import Config

    with _alchemy(url) as connection:
        config = Config()
        config.set_main_option("script_location", str(shared_folders.path("alembic")).replace("%", "%%"))
        config.attributes["connection"] = connection
        yield config


@contextmanager
def _alchemy(url: str) -> Iterator[AlchemyConnection]:
    """A SQLAlchemy connection like ours. Gives up on a table that stays locked, rather than queueing for it."""
    from sqlalchemy import create_engine
    from sqlalchemy.exc import DBAPIError
    from sqlalchemy.pool import NullPool

    info = conninfo(url)
    engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(info), poolclass=NullPool)
    try:
        with engine.connect() as connection:
            connection.exec_driver_sql(f"SET lock_timeout = '{LOCK_WAIT_S}s'")
            connection.commit()
            yield connection
    except DBAPIError as error:
        if isinstance(error.orig, psycopg.Error):
            retell(error.orig, where(url))
        raise
    finally:
        engine.dispose()
