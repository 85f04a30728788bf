"""The check of the database: by the command line, over HTTP, and what it takes for trouble."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest

from kbslurm.api.hosting import database
from kbslurm.store.migrate import revisions
from tests.command_line import CommandLine
from tests.popcorn.served_api import ADMIN, ServedApi, served


@pytest.fixture
def api(database_url: str, tmp_path: Path) -> Iterator[ServedApi]:
    with served(database_url, tmp_path / "service") as built:
        yield built


def leads(api: ServedApi, *, beat_s: float = 0.0) -> None:
    now = datetime.now(UTC)
    assert api.store.leases.hold("daemon", "login1:4711", 3600.0, now - timedelta(seconds=beat_s))


def test_command_and_call_say_the_same(api: ServedApi, tmp_path: Path, database_url: str) -> None:
    leads(api)
    told = httpx.get(f"{api.url}/admin/database", headers={"Authorization": f"Bearer {ADMIN}"}).json()
    run = CommandLine(cwd=tmp_path, env={"DATABASE_URL": database_url})
    found = run("db", "check", "--json").json()
    assert set(found) == set(told)
    moving = {"lag_s", "leads_for_s", "round_trip_ms", "clock_off_s", "last_event", "size_bytes"}
    assert {k: v for k, v in found.items() if k not in moving} == {k: v for k, v in told.items() if k not in moving}
    assert (told["schema"], told["revision"], told["needs"]) == ("current", revisions()[-1], revisions()[-1])
    assert (told["leader"], told["troubles"]) == ("login1:4711", [])
    assert told["last_event"]["kind"] == "board.added" or told["last_event"]["id"] > 0
    lines = run("db", "check").out.splitlines()
    assert lines[0] == f"the schema is current ({revisions()[-1]})"
    assert lines[2].startswith("leader: login1:4711, for ") and lines[3].startswith("last event: ")


def test_what_is_late_or_missing_is_trouble(api: ServedApi) -> None:
    assert any("no daemon is leading" in one for one in database.told(api.store)["troubles"])
    leads(api, beat_s=120.0)
    (late,) = database.told(api.store)["troubles"]
    assert "hasn't renewed its lease for 2 min" in late
    api.store._do("UPDATE alembic_version SET version_num = '9999'")
    assert any("schema is ahead (9999;" in one for one in database.told(api.store)["troubles"])


def test_only_hosts_may_look(api: ServedApi) -> None:
    assert httpx.get(f"{api.url}/admin/database").status_code == 401
    token = api.store.tokens.issue(api.store.people.ensure("ada").id, device="x", now=api.now)
    answer = httpx.get(f"{api.url}/admin/database", headers={"Authorization": f"Bearer {token}"})
    assert answer.status_code == 401
