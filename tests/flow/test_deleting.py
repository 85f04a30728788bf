"""Deleting a person: nothing of them is left in the database, and everything that others rely on is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import httpx
import psycopg
import pytest

from kbslurm.domain.roster import read
from kbslurm.errors import NotFound, Refused
from kbslurm.store import connect
from kbslurm.store.postgres import PostgresStore
from kbslurm.store.rejudgings import Wanted
from tests.command_line import CommandLine
from tests.flow.stage import HandClock
from tests.flow.test_pages import judged
from tests.popcorn.served_api import ADMIN, ServedApi, served

PERSONAL = (
    "Ada Lovelace", "ada@example.edu", "matric-1815", "likes-loops-4711", "81384788765712384", "subject-ada-99",
    "def-lovelace", "shared-her-account",
)  # fmt: skip
ROSTER = "name,email,student id,section,notes\nAda Lovelace,ada@example.edu,matric-1815,A,likes-loops-4711\n"


@pytest.fixture
def api(database_url: str, tmp_path: Path) -> Iterator[ServedApi]:
    with served(database_url, tmp_path, clock=HandClock(), toml="[policy]\nkeep_people_days = 30\n") as built:
        yield built


def lived(api: ServedApi) -> int:
    """Ada has done everything here, as a participant and for a while as staff; returns her number."""
    store, now = api.store, api.now
    store.roster.take("gpu", read(ROSTER.encode()).rows, remove=False, issuer="https://idp", by="root", now=now)
    ada = store.people.find("Ada Lovelace")
    assert ada is not None
    person = ada.id
    judged(api, "Ada Lovelace", 0.3)
    judged(api, "bob", 0.4)
    api.host().host("POST", "/admin/users", {"name": "zoe"})
    for path, sent in (
        ("cluster_account", {"cluster_account": "def-lovelace"}),
        ("team", {"team": "engine"}),
        ("role", {"role": "staff"}),
    ):
        api.host().host("PUT", f"/admin/users/{person}/{path}", sent)
    api.host().host("POST", f"/admin/users/{person}/accounts", {"account": "discord:81384788765712384"})
    store.people.link_subject(person, "https://idp", "subject-ada-99")
    store.events.audit("root", "link", f"person:{person}", {"account": "oidc:subject-ada-99"}, now=now)
    store.tokens.issue(person, device="Ada Lovelace", now=now)
    store.rejudgings.order("transpose", Wanted(person=person), None, by="Ada Lovelace", now=now)
    store.boards.close("transpose", by="Ada Lovelace", now=now)
    store.events.audit("Ada Lovelace (Discord role 7 in 8)", "export", "board:1", {}, now=now)
    asked = store.questions.ask(person, "I am Ada Lovelace, ada@example.edu. May I?", board="transpose", now=now)
    store.questions.answer(asked.id, "Yes, matric-1815.", to_all=False, again=False, by="root", now=now)
    store.people.ban(person, "shared-her-account", by="root", now=now)
    store.people.set_role(person, "participant", by="root", now=now)
    return person


def told(url: str) -> str:
    """Everything that the database has as text."""
    with connect.connect(url) as database:
        tables = database.execute(
            b"SELECT table_name AS name FROM information_schema.tables WHERE table_schema = 'public'"
        ).fetchall()
        return "\n".join(
            json.dumps(row["line"])
            for table in tables
            for row in database.execute(f'SELECT to_jsonb(t) AS line FROM "{table["name"]}" t'.encode()).fetchall()
        ).lower()


def test_nothing_of_them_is_left_and_the_board_is_as_it_was(api: ServedApi) -> None:
    person = lived(api)
    before = told(api.store.url)
    assert all(word.lower() in before for word in PERSONAL), "what is looked for was there"
    api.store.people.unban(api.store.people.get(person).id, now=api.now)  # type: ignore[arg-type]
    lines = len(api.store.events.audit_log(limit=1000))
    scores = [row["submission_score"] for row in standings(api)]
    answer = httpx.delete(f"{api.url}/admin/users/{person}", headers={"Authorization": f"Bearer {ADMIN}"}, timeout=60)
    assert answer.status_code == 200, answer.text
    pseudonym = answer.json()["pseudonym"]
    after = told(api.store.url)
    assert [word for word in PERSONAL if word.lower() in after] == []
    assert len(api.store.events.audit_log(limit=1000)) == lines + 1, "the audit log loses no line"
    rows = standings(api)
    assert [row["submission_score"] for row in rows] == scores
    assert pseudonym in [row["user_name"] for row in rows]
    newest = api.store.events.audit_log(limit=1)[0]
    assert (newest.kind, newest.subject, newest.data["by"]) == ("staff.user.delete", f"person:{person}", "admin")
    closed = next(one for one in api.store.events.audit_log(limit=1000) if one.kind == "staff.close")
    assert closed.data["by"] == pseudonym


def standings(api: ServedApi) -> list[dict[str, object]]:
    found: list[dict[str, object]] = httpx.get(f"{api.url}/submissions/transpose/H100", timeout=60).json()
    return found


def test_a_preview_changes_nothing_and_says_what_would_be_done(api: ServedApi, tmp_path: Path) -> None:
    person = lived(api)
    before = told(api.store.url)
    kbslurm = CommandLine(cwd=tmp_path, env={"DATABASE_URL": api.store.url})
    found = kbslurm("user", "delete", str(person), "--json").json()
    assert found["pseudonym"] is None and found["submissions"] == 1 and found["courses"] == ["gpu"]
    assert found["erased"] == {"personal_data": 1, "accounts": 2, "tokens": 1, "courses": 1, "roles": 0, "questions": 1}
    said = kbslurm("user", "delete", str(person))
    assert "nothing was changed; --yes does it, for good" in said.out
    assert told(api.store.url) == before
    done = kbslurm("user", "delete", str(person), "--yes")
    assert done.code == 0 and "is deleted" in done.out, done.err
    assert kbslurm("user", "delete", "Ada Lovelace", "--yes").code == 2


def test_the_audit_log_is_still_append_only_otherwise(api: ServedApi) -> None:
    person = lived(api)
    api.store.erasing.erase(api.store.people.get(person).id, by="root", now=api.now)  # type: ignore[arg-type]
    for statement in (
        "UPDATE event SET data = '{}'",
        "SET kbslurm.erasing = 'on'; UPDATE event SET kind = 'staff.nothing'",
        "SET kbslurm.erasing = 'on'; UPDATE event SET at = now()",
        "DELETE FROM event WHERE kind LIKE 'staff.%'",
    ):
        with psycopg.connect(api.store.url) as database, pytest.raises(psycopg.errors.IntegrityError):
            database.execute(statement.encode())


def test_whoever_was_deleted_comes_back_as_somebody_else(api: ServedApi) -> None:
    lived(api)
    store = api.store
    ada = store.people.find("Ada Lovelace")
    assert ada is not None
    store.erasing.erase(ada.id, by="root", now=api.now)
    again = store.people.for_subject("https://idp", "subject-ada-99", "Ada Lovelace", email="ada@example.edu")
    assert again.id != ada.id
    with pytest.raises(NotFound):
        store.erasing.preview(type(ada.id)(999_999))


def test_the_only_owner_stays_and_staff_delete_no_staff(api: ServedApi) -> None:
    from kbslurm.api.host_lookup import at_work

    olga = api.store.people.add("olga", "owner", now=api.now)
    hana = api.store.people.add("hana", "staff", now=api.now)
    with pytest.raises(Refused, match="only owner"):
        at_work(api.context, "olga", olga).delete_user("olga")
    with pytest.raises(Refused, match="only an owner"):
        at_work(api.context, "hana", hana).delete_preview("olga")


def test_those_who_were_silent_for_too_long_are_due_and_nobody_else(api: ServedApi, tmp_path: Path) -> None:
    lived(api)
    assert isinstance(api.context.clock, HandClock)
    api.context.clock.go(timedelta(days=31).total_seconds())
    api.store.people.ensure("newcomer", now=api.now)
    api.store.people.ensure("hana", "staff", now=api.now - timedelta(days=900))
    headers = {"Authorization": f"Bearer {ADMIN}"}
    due = httpx.get(f"{api.url}/admin/deletions", headers=headers, timeout=60).json()
    assert {one["name"] for one in due["due"]} == {"zoe", "Ada Lovelace"}
    assert not {"newcomer", "hana", "house"} & {one["name"] for one in due["due"]}
    done = httpx.post(f"{api.url}/admin/deletions", headers=headers, timeout=60).json()
    assert len(done["deleted"]) == len(due["due"])
    assert httpx.get(f"{api.url}/admin/deletions", headers=headers, timeout=60).json()["due"] == []
    without = CommandLine(cwd=tmp_path / "elsewhere", env={"DATABASE_URL": api.store.url})
    (tmp_path / "elsewhere").mkdir()
    assert "no retention period is configured" in without("user", "delete", "--due").out
    assert without("user", "delete", "--due", "--yes").code == 2


def test_a_database_without_the_person_is_told_so(database_url: str) -> None:
    with PostgresStore(database_url) as store, pytest.raises(NotFound):
        store.erasing.erase(store.people.service_person(now=HandClock().now()) + 1, by="root")  # type: ignore[arg-type]
