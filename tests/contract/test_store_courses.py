"""Rosters, sections, teams and roles in the database, and the way there from a database that had none."""

from __future__ import annotations

from collections.abc import Callable

from kbslurm.store import connect, migrate

NewUrl = Callable[[], str]

BEFORE = """
INSERT INTO person (name, created_at, team) VALUES ('ada', now(), 'blue'), ('boris', now(), NULL);
INSERT INTO token (hash, person_id, kind, created_at) SELECT decode('00', 'hex'), id, 'cli', now() FROM person
    WHERE name = 'ada';
INSERT INTO problem (name) VALUES ('sum');
INSERT INTO problem_version (problem_id, digest, content, created_at) SELECT id, 'd', '{}', now() FROM problem;
INSERT INTO leaderboard (name, problem_id, problem_version_id, gpus, secret_seed, created_at)
    SELECT 'sum', problem_id, id, '{H100}', 's', now() FROM problem_version;
INSERT INTO submission (person_id, board_id, mode, file_name, source, sha256, via, by_staff, accepted_at)
    SELECT p.id, b.id, 'test', 'a.py', 'x', 'y', 'cli', false, now() FROM person p, leaderboard b;
"""


def test_what_was_there_stays_and_counts_as_before(new_database_url: NewUrl) -> None:
    url = new_database_url()
    migrate.upgrade(url, "0023")
    with connect.connect(url) as database:
        database.execute(BEFORE.encode())
        teams = "SELECT p.name, s.team FROM submission s JOIN person p ON p.id = s.person_id ORDER BY s.id"
        then = [tuple(row.values()) for row in database.execute(teams.encode())]
        assert then == [("ada", "blue"), ("boris", None)]
        migrate.upgrade(url)
        assert [tuple(row.values()) for row in database.execute(teams.encode())] == then
        again = b"""INSERT INTO submission (person_id, board_id, mode, file_name, source, sha256, via, by_staff,
            accepted_at) SELECT person_id, board_id, mode, file_name, source, sha256, via, by_staff, now()
            FROM submission ORDER BY id"""
        database.execute(again)
        assert [tuple(row.values()) for row in database.execute(teams.encode())] == then * 2
        board = database.execute(b"SELECT course, teams FROM leaderboard").fetchone()
        assert board == {"course": None, "teams": False}
        facts = database.execute(
            b"SELECT f.person, f.invited, f.team FROM person p, leaderboard b, kb_facts(p.id, b.id, 'test') f"
            b" ORDER BY p.id"
        ).fetchall()
        assert facts == [
            {"person": "ada", "invited": False, "team": None},
            {"person": "boris", "invited": False, "team": None},
        ]


def test_the_way_back_ends_invitations_and_keeps_other_tokens(new_database_url: NewUrl) -> None:
    url = new_database_url()
    migrate.upgrade(url)
    with connect.connect(url) as database:
        database.execute(BEFORE.encode())
        database.execute(
            b"INSERT INTO token (hash, person_id, kind, created_at)"
            b" SELECT decode('01', 'hex'), id, 'invite', now() FROM person WHERE name = 'boris'"
        )
        migrate.downgrade(url, "0023")
        assert database.execute(b"SELECT kind FROM token").fetchall() == [{"kind": "cli"}]
