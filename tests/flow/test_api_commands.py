"""The hosts' calls of the HTTP API: tokens, invitations, limits, boards, export, the audit log."""

from __future__ import annotations

import csv
import io
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kbslurm.store.postgres import PostgresStore
from tests.command_line import CommandLine
from tests.flow.stage import PROBLEM


@pytest.fixture
def kbslurm(tmp_path: Path, database_url: str) -> CommandLine:
    with PostgresStore(database_url) as store:
        store.boards.add("board", PROBLEM, gpus=["H100"], confirm=False)
        store.people.add("ada")
        store.people.add("bob")
    (tmp_path / "k.py").write_text("def custom_kernel(data):\n    return data\n")
    return CommandLine(cwd=tmp_path, env={"DATABASE_URL": database_url})


def test_tokens_are_told_once_and_end_when_revoked(kbslurm: CommandLine, database_url: str) -> None:
    secret = kbslurm("user", "token", "issue", "bob", "--device", "laptop", "--days", "3").out.strip()
    with PostgresStore(database_url) as store:
        person = store.tokens.person_of(secret)
        assert person is not None and person.name == "bob"
        (row,) = kbslurm("user", "token", "list", "bob", "--json").json()
        assert row["device"] == "laptop" and row["expires_at"] is not None and secret not in json.dumps(row)
        assert kbslurm("user", "token", "revoke", "bob", "999").code == 2
        assert kbslurm("user", "token", "revoke", "bob").code == 0
        assert store.tokens.person_of(secret) is None
        pending = store.tokens.issue(None, kind="pending")
        assert kbslurm("user", "link", "bob", pending).code == 0
        assert kbslurm("user", "link", "bob", pending).code == 2
        linked = store.tokens.person_of(pending)
        assert linked is not None and linked.name == "bob"
        assert kbslurm("user", "link", "bob", "--account", "discord:77").code == 0
        by_account = store.people.by_account("discord", "77")
        assert by_account is not None and by_account.name == "bob"
    assert kbslurm("user", "link", "bob").code == 2
    assert kbslurm("user", "link", "bob", "--account", "mail:x").code == 2
    acts = [row["act"] for row in kbslurm("audit", "--json").json()]
    assert acts == ["link", "link", "token.revoke", "token.issue"]
    assert secret not in kbslurm("audit").out


def test_a_closed_board_opens_by_invitation(kbslurm: CommandLine, database_url: str) -> None:
    assert kbslurm("board", "edit", "board", "--visibility", "private", "--description", "New.").code == 0
    assert kbslurm("submit", "k.py", "-l", "board", "--as", "bob").code == 5
    (code,) = kbslurm("invite", "make", "board").out.split()
    with PostgresStore(database_url) as store:
        bob = store.people.find("bob")
        assert bob is not None and store.invites.claim(code, bob.id) == (["board"], False)
    assert kbslurm("submit", "k.py", "-l", "board", "--as", "bob").code == 0
    assert "bob" in kbslurm("invite", "list", "board").out
    assert "has lost access" in kbslurm("invite", "revoke", code).out
    assert kbslurm("submit", "k.py", "-l", "board", "--as", "bob").code == 5


def test_limits_and_extensions(kbslurm: CommandLine, database_url: str) -> None:
    assert "has no limit" in kbslurm("limit", "show", "board").out
    assert kbslurm("limit", "rate", "board", "leaderboard", "1").code == 0
    assert kbslurm("limit", "quota", "board", "600").code == 0
    told = kbslurm("limit", "show", "board", "--json").json()
    assert told == {"board": "board", "per_hour": {"leaderboard": 1}, "gpu_s_per_day": 600.0}
    assert kbslurm("submit", "k.py", "-l", "board", "--as", "bob").code == 0
    refused = kbslurm("submit", "k.py", "-l", "board", "--as", "bob")
    assert refused.code == 5 and "per hour" in refused.err and "Try again after" in refused.err
    assert kbslurm("limit", "rate", "board", "leaderboard", "none").code == 0
    assert kbslurm("limit", "quota", "board", "none").code == 0
    assert kbslurm("limit", "rate", "board", "profile", "1").code == 2
    assert kbslurm("limit", "rate", "board", "test", "many").code == 2
    with PostgresStore(database_url) as store:
        store.boards.set_deadline("board", datetime(2020, 1, 1, tzinfo=UTC))
    assert kbslurm("submit", "k.py", "-l", "board", "--as", "bob").code == 5
    assert kbslurm("board", "extend", "board", "bob", "2099-01-01").code == 0
    assert kbslurm("submit", "k.py", "-l", "board", "--as", "bob").code == 0
    assert kbslurm("board", "extend", "board", "bob", "none").code == 0
    assert kbslurm("submit", "k.py", "-l", "board", "--as", "bob").code == 5


def test_boards_are_edited_closed_reopened_and_deleted(kbslurm: CommandLine) -> None:
    told = kbslurm("board", "edit", "board", "--gpus", "H100,A100", "--min-isolation", "0", "--json").json()
    assert told == {"board": "board", "changed": ["gpus"]}
    assert "nothing changed" in kbslurm("board", "edit", "board", "--gpus", "H100,A100").out
    assert kbslurm("board", "edit", "board", "--version", "99").code == 2
    assert kbslurm("board", "close", "board").code == 0
    assert kbslurm("submit", "k.py", "-l", "board", "--as", "bob").code == 5
    assert kbslurm("board", "edit", "board", "--reopen").code == 0
    assert kbslurm("submit", "k.py", "-l", "board", "--as", "bob").code == 0
    assert kbslurm("board", "delete", "board").code == 2
    assert kbslurm("board", "delete", "board", "--force").code == 0
    assert kbslurm("board", "show", "board").code == 2


def test_counts_and_export(kbslurm: CommandLine, database_url: str, tmp_path: Path) -> None:
    kbslurm("submit", "k.py", "-l", "board", "--as", "bob")
    stats = kbslurm("stats", "board", "--json").json()
    assert (stats["submissions"], stats["people"], stats["queued"]) == (1, 1, 1)
    assert "1 submissions by 1 people" in kbslurm("stats", "--last-day").out
    from kbslurm.flow.queue import claim, free_slots
    from kbslurm.flow.score import score
    from tests.flow.puppet import sealed_report

    with PostgresStore(database_url) as store:
        eve = store.people.add("=HYPERLINK(1)")
        assert eve.name == "=HYPERLINK(1)"
        kbslurm("submit", "k.py", "-l", "board", "--as", eve.name)
        for _ in range(2):
            attempt = claim(store.queue, free_slots({"puppet": {"H100": 2}}, store.attempts.open()), datetime.now(UTC))
            assert attempt is not None
            score(store, attempt, sealed_report(store.attempts.work(attempt.id)), datetime.now(UTC))
    rows = list(csv.DictReader(io.StringIO(kbslurm("export", "board").out)))
    assert sorted(row["person"] for row in rows) == ["'=HYPERLINK(1)", "bob"]
    assert {row["rank"] for row in rows} == {"1", "2"} and all(float(row["score_s"]) > 0 for row in rows)
    assert kbslurm("export", "board", "--json", "-o", str(tmp_path / "out.json")).code == 0
    assert len(json.loads((tmp_path / "out.json").read_text())) == 2
    assert kbslurm("export", "board", "-o", str(tmp_path / "no" / "out.csv")).code == 2
