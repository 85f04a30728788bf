"""The hosts' register on real Postgres: people, tokens, problems, boards, and what the faces are shown."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from kbslurm.domain import board as boards
from kbslurm.domain.run import Ending, EventId, PersonId, RunState, Slot, SubmissionId
from kbslurm.domain.waterfall import Stamps
from kbslurm.errors import Invalid, NotAccepting, NotFound
from kbslurm.store.postgres import PostgresStore
from tests.contract.store_rig import HELLO, PASSED, START, WRONG, Rig, at_once


@pytest.fixture
def store(database_url: str) -> Iterator[PostgresStore]:
    opened = PostgresStore(database_url)
    yield opened
    opened.close()


@pytest.fixture
def rig(store: PostgresStore) -> Rig:
    return Rig.on(store)


def test_a_persons_name_is_theirs_in_any_case(store: PostgresStore) -> None:
    ada = store.people.add("  Ada   Lovelace ", "staff", now=START)
    assert (ada.name, ada.role, ada.is_staff, ada.created_at) == ("Ada Lovelace", "staff", True, START)
    assert store.people.find("ADA lovelace") == store.people.ensure("ada lovelace", "participant") == ada
    assert store.people.by_id(ada.id) == ada
    assert store.people.find("bob") is None
    with pytest.raises(Invalid, match="already a person"):
        store.people.add("ada LOVELACE")
    for name in ("", " ", "x" * 65, "a\x1bb"):
        with pytest.raises(Invalid, match="isn't a valid name for a person"):
            store.people.add(name)
    made: list[int] = []
    at_once([lambda: made.append(store.people.ensure("Bob").id)] * 4)
    assert len(set(made)) == 1
    assert [person.name for person in store.people.all()] == ["Ada Lovelace", "Bob"]


def test_roles_and_bans_are_kept_and_told(store: PostgresStore) -> None:
    eve = store.people.add("eve", now=START)
    assert store.people.set_role(eve.id, "owner", by="ada").role == "owner"
    banned = store.people.ban(eve.id, "two accounts", by="ada", now=START)
    assert (banned.banned_at, banned.ban_reason) == (START, "two accounts")
    assert store.people.unban(eve.id) == dataclasses.replace(eve, role="owner"), "nothing told without `by`"
    told = [(event.kind, event.subject, event.data["by"]) for event in store.events.after(EventId(0))]
    assert told == [("staff.role", f"person:{eve.id}", "ada"), ("staff.ban", f"person:{eve.id}", "ada")]
    with pytest.raises(NotFound):
        store.people.ban(type(eve.id)(99), by="ada")


def test_a_person_is_in_one_team_or_in_none(store: PostgresStore) -> None:
    eve = store.people.add("eve", now=START)
    assert eve.team is None
    assert store.people.set_team(eve.id, " Blue-1 ", by="ada").team == "blue-1"
    assert store.people.set_team(eve.id, "red", by="ada").team == "red"
    store.people.link_account(eve.id, "discord", "5")
    assert store.people.by_account("discord", "5") == store.people.find("eve"), "an account more is no other person"
    assert [one.team for one in store.people.all()] == ["red"]
    assert store.people.set_team(eve.id, None).team is None
    told = [(event.kind, event.data["team"]) for event in store.events.after(EventId(0))]
    assert told == [("staff.team", "blue-1"), ("staff.team", "red")]
    for name in ("", " ", "-x", "two words", "x" * 65, "a\x1bb", "\x00"):
        with pytest.raises(Invalid, match="isn't a valid team name"):
            store.people.set_team(eve.id, name)
    with pytest.raises(NotFound):
        store.people.set_team(type(eve.id)(99), "blue")


def test_a_persons_cluster_account_pays_for_their_next_run(rig: Rig) -> None:
    people, ada = rig.store.people, rig.person("ada")
    assert people.set_cluster_account(ada, " def-Lovelace_gpu ", by="bob").cluster_account == "def-Lovelace_gpu"
    rig.accept("ada")
    told = rig.store.queue.next_up("H100", "here", rig.now)
    assert told is not None and told.cluster_account == "def-Lovelace_gpu"
    attempt = rig.store.queue.claim([Slot(backend="here", gpu="H100", free=1)], rig.now)
    assert attempt is not None
    assert rig.store.attempts.work(attempt.id).cluster_account == "def-Lovelace_gpu"
    assert people.set_cluster_account(ada, None).cluster_account is None
    assert rig.store.attempts.work(attempt.id).cluster_account is None
    for name in ("", "-x", "two words", "x" * 65, "a;b", "$x"):
        with pytest.raises(Invalid, match="isn't a valid cluster account"):
            people.set_cluster_account(ada, name)


def test_the_team_of_then_is_kept_with_what_was_submitted(rig: Rig) -> None:
    rig.store.people.set_team(rig.person("ada"), "blue")
    rig.accept("ada")
    rig.store.people.set_team(rig.person("ada"), None)
    rig.accept("ada")
    rig.accept("bob")
    assert [row["team"] for row in rig.rows("SELECT team FROM submission ORDER BY id")] == ["blue", None, None]
    with pytest.raises(Exception, match="never changed"):
        rig.store._do("UPDATE submission SET team = 'red'")


def test_an_account_stands_for_one_person(store: PostgresStore) -> None:
    ada, bob = store.people.add("ada"), store.people.add("bob")
    store.people.link_account(ada.id, "discord", "17")
    store.people.link_account(ada.id, "discord", "17")
    with pytest.raises(Invalid, match="belongs to someone else"):
        store.people.link_account(bob.id, "discord", "17")
    with pytest.raises(Invalid, match="another discord account"):
        store.people.link_account(ada.id, "discord", "18")
    found = store.people.by_account("discord", "17")
    assert found is not None
    assert found.id == ada.id
    assert store.people.by_account("github", "17") is None


def test_a_token_is_known_by_its_hash_until_it_ends(store: PostgresStore) -> None:
    ada = store.people.add("ada")
    secret = store.tokens.issue(ada.id, device="laptop", expires_at=START + timedelta(days=1), now=START)
    assert store.tokens.person_of(secret, now=START) == ada
    assert store.tokens.person_of(secret + "x", now=START) is None
    assert store.tokens.person_of("\ud800", now=START) is None
    (token,) = store.tokens.of_person(ada.id)
    assert (token.device, token.used_at) == ("laptop", START)
    assert secret.encode() not in bytes(store._all("SELECT hash FROM token")[0]["hash"])
    store.tokens.person_of(secret, now=START + timedelta(seconds=59))
    assert store.tokens.of_person(ada.id)[0].used_at == START, "its use is noted once a minute"
    assert store.tokens.person_of(secret, now=START + timedelta(days=1)) is None, "expired"
    store.tokens.revoke(token.id, now=START)
    assert store.tokens.person_of(secret, now=START) is None
    assert not store.tokens.revoke_secret(secret)
    assert store.tokens.revoke_secret(store.tokens.issue(ada.id))
    with pytest.raises(NotFound):
        store.tokens.revoke(99)


def test_a_pending_token_is_given_to_one_person_once(store: PostgresStore) -> None:
    ada, eve = store.people.add("ada"), store.people.add("eve")
    secret = store.tokens.issue(None, kind="pending", expires_at=START + timedelta(minutes=10), now=START)
    assert store.tokens.person_of(secret, now=START) is None
    assert not store.tokens.claim(secret, ada.id, now=START + timedelta(hours=1)), "too late"
    won: list[int] = []

    def reach(person: int) -> None:
        if store.tokens.claim(secret, type(ada.id)(person), now=START):
            won.append(person)

    at_once([lambda: reach(ada.id), lambda: reach(eve.id)] * 3)
    assert len(won) == 1
    holder = store.tokens.person_of(secret, now=START + timedelta(days=9))
    assert holder is not None
    assert holder.id == won[0]


def test_a_problem_version_is_its_digest_and_never_changes(store: PostgresStore) -> None:
    first = store.problems.add(HELLO, now=START)
    described = dataclasses.replace(HELLO, description="the same judge, other words")
    assert store.problems.add(described) == first
    changed = dataclasses.replace(HELLO, tests=({"n": 3},))
    second = store.problems.add(changed)
    assert second != first
    assert store.problems.of_version(second) == changed
    with PostgresStore(store._pool.url) as other:
        assert other.problems.of_version(first) == HELLO, "as it was first told"
    assert [(version.name, version.digest) for version in store.problems.all()] == [
        ("hello", HELLO.digest),
        ("hello", changed.digest),
    ]
    made: list[int] = []
    third = dataclasses.replace(HELLO, tests=({"n": 4},))
    at_once([lambda: made.append(store.problems.add(third))] * 4)
    assert len(set(made)) == 1
    with pytest.raises(NotFound):
        store.problems.of_version(99)


def test_a_board_keeps_what_it_was_given(store: PostgresStore) -> None:
    ada = store.people.add("ada", "owner")
    deadline = START + timedelta(days=3)
    made = store.boards.add(
        "Main-1", HELLO, gpus=["H100", "H100", "A100"], deadline_at=deadline, zone="Europe/Berlin", created_by=ada.id
    )
    assert (made.name, made.gpus, made.deadline_at, made.zone) == (
        "main-1",
        ("H100", "A100"),
        deadline,
        "Europe/Berlin",
    )
    assert (made.problem, made.problem_digest, made.submissions) == (HELLO, HELLO.digest, 0)
    assert len(made.secret_seed) == 32
    assert store.boards.find("MAIN-1") == made
    assert store.boards.all() == [made]
    with pytest.raises(Invalid, match="already a board"):
        store.boards.add("main-1", HELLO, gpus=["T4"])
    with pytest.raises(Invalid, match="no GPU type"):
        store.boards.add("other", HELLO)
    with pytest.raises(Invalid, match="time zone"):
        store.boards.add("other", HELLO, gpus=["T4"], zone="Mars/Phobos")
    assert store.boards.find("other") is None
    again = store.boards.add("other", problem_version_id=made.problem_version_id, gpus=["T4"], visibility="closed")
    assert again.problem == HELLO
    assert store.boards.names(public_only=True) == ["main-1"]


def test_a_deleted_board_gives_its_name_back_and_keeps_its_rows(rig: Rig) -> None:
    rig.accept()
    with pytest.raises(Invalid, match="has 1 submissions"):
        rig.store.boards.delete("main")
    rig.store.boards.delete("main", force=True, by="ada")
    assert rig.store.boards.find("main") is None
    with pytest.raises(NotFound):
        rig.store.standings.scored("main")
    fresh = rig.store.boards.add("main", HELLO, gpus=["H100"], confirm=False)
    assert fresh.id != rig.board.id
    assert rig.store.submissions.newest(board="main") == []
    assert rig.store.submissions.get(SubmissionId(1)).board_id == rig.board.id


def test_the_board_ranks_what_counts_and_nothing_else(rig: Rig) -> None:
    for who, gpu, score_s in (
        ("ada", "H100", 3e-3),
        ("bob", "H100", 2e-3),
        ("bob", "A100", 1e-3),
        ("eve", "H100", 9e-3),
    ):
        rig.later(1)
        rig.accept(who, (gpu,))
        verdict = dataclasses.replace(PASSED, score_s=score_s, low_s=score_s, high_s=score_s)
        rig.score(rig.running(gpu), verdict)
    for verdict in (WRONG, dataclasses.replace(PASSED, ranked=False)):
        rig.accept("ada")
        rig.score(rig.running(), verdict)

    def names(gpu: str | None = "H100") -> list[str]:
        return [entry.person for entry in rig.store.standings.scored("MAIN", gpu)]

    assert names() == ["bob", "ada", "eve"]
    assert names(None) == ["bob", "bob", "ada", "eve"]
    every = rig.store.standings.scored("main", "H100")
    assert rig.store.standings.best("main", "H100") == every, "each has one there"
    again = dataclasses.replace(PASSED, score_s=1e-3, low_s=1e-3, high_s=1e-3)
    rig.accept("eve")
    rig.score(rig.running(), again)
    every = rig.store.standings.scored("main", "H100")
    assert [(one.person, one.score_s) for one in rig.store.standings.best("main", "H100")] == [
        ("eve", 1e-3), ("bob", 2e-3), ("ada", 3e-3),
    ]  # fmt: skip
    assert boards.ranked(rig.store.standings.best("main", "H100")) == boards.ranked(every)
    assert [one.score_s for one in rig.store.standings.records("main", "H100")] == [3e-3, 2e-3, 1e-3]
    rig.store.submissions.take_back(first_of(rig, "eve", "H100"), "host", rig.now)
    first = rig.store.standings.scored("main", "H100")[0]
    assert (first.score_s, first.at, first.file_name) == (2e-3, START + timedelta(seconds=2), "kernel.py")
    rig.store.people.ban(rig.person("eve"))
    assert names() == ["bob", "ada"]
    rig.store.submissions.take_back(first_of(rig, "bob", "H100"), "host", rig.now)
    assert names() == ["ada"]
    assert rig.store.submissions.newest(person=rig.person("bob"))[0].runs[0].gpu == "A100"
    changed = rig.store.problems.add(dataclasses.replace(HELLO, tests=({"n": 3},)))
    rig.store.boards.set_live("main", changed, by="host")
    assert names() == [], "results are keyed by the problem's version"
    rig.store.boards.set_live("main", rig.board.problem_version_id)
    assert names() == ["ada"]
    with pytest.raises(NotFound):
        rig.store.boards.set_live("main", rig.store.problems.add(dataclasses.replace(HELLO, name="other")))


def test_a_board_can_rank_the_last_instead_of_the_best(rig: Rig) -> None:
    rig.board = rig.store.boards.add("latest", HELLO, gpus=["H100", "A100"], ranking="last", confirm=False)
    for gpu, score_s in (("H100", 1e-3), ("A100", 5e-3), ("H100", 2e-3), ("H100", None)):
        rig.accept("ada", (gpu,))
        passed = dataclasses.replace(PASSED, score_s=score_s, low_s=score_s, high_s=score_s)
        rig.score(rig.running(gpu), passed if score_s else WRONG)

    def scores(gpu: str | None = None) -> list[float]:
        return [entry.score_s for entry in rig.store.standings.scored("latest", gpu)]

    assert scores() == [2e-3, 5e-3], "what was rejected later takes nothing away"
    rig.store.submissions.take_back(first_of(rig, "ada", "H100"), "host", rig.now)  # the rejected one
    rig.store.submissions.take_back(first_of(rig, "ada", "H100"), "host", rig.now)
    assert scores("H100") == [1e-3]


def first_of(rig: Rig, who: str, gpu: str) -> SubmissionId:
    views = rig.store.submissions.newest(person=rig.person(who))
    return next(view.id for view in views if view.runs[0].gpu == gpu)


def test_a_submission_is_shown_with_its_tries_and_its_waterfall(rig: Rig) -> None:
    receipt = rig.accept()
    rig.later(1)
    rig.give_up(rig.running(node="bad"))
    claimed_at = rig.later(2)
    attempt = rig.claimed()
    launched_at = rig.later(1)
    rig.store.attempts.note_handle(attempt, type(attempt.name)("17"), rig.now, rig.now)  # type: ignore[arg-type]
    scored_at = rig.later(5)
    started_ns = int((START + timedelta(seconds=6)).timestamp() * 1e9)
    telemetry = {"harness_started_at_ns": started_ns, "harness_ended_at_ns": started_ns + 2_000_000_000}
    assert rig.store.scores.record(attempt, PASSED, Ending.REPORTED, rig.now, telemetry=telemetry)
    view = rig.store.submissions.get(receipt.submission_id)
    (run,) = view.runs
    assert (run.state, run.attempt_count, run.verdict, view.is_done) == (RunState.SCORED, 2, PASSED, True)
    assert [(a.number, a.node, a.ending) for a in run.attempts] == [(1, "bad", "node_failure"), (2, None, "reported")]
    assert run.stamps == Stamps(
        accepted_at=START,
        claimed_at=claimed_at,
        submitted_at=launched_at,
        harness_started_at=START + timedelta(seconds=6),
        harness_ended_at=START + timedelta(seconds=8),
        collected_at=scored_at,
        scored_at=scored_at,
    )
    (line,) = rig.store.submissions.newest(person=rig.person("ada"))
    assert (line.source, line.runs[0].verdict) == (None, dataclasses.replace(PASSED, detail=None))
    with pytest.raises(NotFound):
        rig.store.submissions.get(SubmissionId(99))


def test_submissions_are_listed_newest_first_in_pages(rig: Rig) -> None:
    ids = [rig.accept(who).submission_id for who in ("ada", "bob", "ada", "ada")]
    mine = [ids[3], ids[2], ids[0]]
    assert [view.id for view in rig.store.submissions.newest(person=rig.person("ada"))] == mine
    assert [view.id for view in rig.store.submissions.newest(person=rig.person("ada"), limit=1, offset=1)] == [ids[2]]
    assert [view.id for view in rig.store.submissions.newest(board="MAIN")] == ids[::-1]
    assert rig.store.submissions.newest(board="none") == []
    rig.store.submissions.take_back(ids[2], "ada", rig.now)
    assert [view.id for view in rig.store.submissions.newest(person=rig.person("ada"))] == [ids[3], ids[0]]
    assert len(rig.store.submissions.newest(person=rig.person("ada"), removed=True)) == 3


def test_a_pause_survives_the_process(rig: Rig, database_url: str) -> None:
    assert rig.store.settings.accepts_jobs()
    rig.store.settings.set_accepts_jobs(False, by="ada")
    other = PostgresStore(database_url)
    assert not other.settings.accepts_jobs()
    assert not other.intake.admission(rig.person("ada"), "MAIN").accepting
    with pytest.raises(NotAccepting):
        rig.accept()
    other.settings.set_accepts_jobs(True, by="ada")
    other.close()
    assert rig.accept().run_ids
    assert [e.kind for e in rig.store.events.after(EventId(0)) if e.kind.startswith("staff.")] == [
        "staff.pause",
        "staff.resume",
    ]


def test_intake_tells_all_that_accept_must_know(rig: Rig) -> None:
    host = rig.store.people.add("host", "staff")
    rig.store.people.ban(rig.person("eve"), "cheated")
    rig.store.boards.set_deadline("main", START, "Asia/Tokyo")
    found = rig.store.intake.admission(host.id, "Main")
    assert (found.by_staff, found.banned, found.closed, found.board, found.gpus) == (
        True,
        None,
        False,
        "main",
        ("H100", "A100"),
    )
    assert (found.deadline_at, found.zone, found.problem) == (START, "Asia/Tokyo", HELLO)
    assert rig.store.intake.admission(rig.person("eve"), "main").banned == "cheated"
    rig.store.boards.set_visibility("main", "closed")
    assert rig.store.intake.admission(rig.person("ada"), "main").private
    with pytest.raises(NotFound) as caught:
        rig.store.intake.admission(host.id, "mian")
    assert caught.value.known == (), "a closed board isn't told of"
    with pytest.raises(NotFound, match="person"):
        rig.store.intake.admission(type(host.id)(99), "main")


def test_the_queue_and_what_needs_attention(rig: Rig) -> None:
    for who in ("ada", "bob", "eve"):
        rig.accept(who, ("H100", "A100"))
    rig.later(60)
    rig.running("H100")
    rig.store.attempts.note_ambiguous(rig.claimed("H100"), "sbatch hung", rig.now)
    rig.give_up(rig.claimed("A100"), Ending.REFUSED)
    lines = {line.gpu: line for line in rig.store.overview.queue()}
    assert [(n.queued, n.launching, n.running) for n in (lines["H100"], lines["A100"])] == [(1, 1, 1), (2, 0, 0)]
    assert lines["A100"].oldest_at == START
    found = rig.store.overview.attention(now=rig.now)
    assert [one.kind for one in found] == ["ambiguous", "failed"]
    assert "sbatch hung" in found[0].text
    old = [one.subject for one in rig.store.overview.attention(now=rig.later(6 * 3600 + 1)) if one.kind == "old"]
    assert sorted(old) == ["gpu:A100", "gpu:H100"]
    assert "failed" not in [one.kind for one in rig.store.overview.attention(now=rig.later(86_400))]


def test_what_a_backend_does_not_take_needs_attention(rig: Rig) -> None:
    rig.accept("ada", ("H100",))
    attempt = rig.claimed("H100")
    assert rig.store.overview.attention(now=rig.later(599)) == []
    (found,) = rig.store.overview.attention(now=rig.later(2))
    assert (found.kind, found.subject) == ("old", f"run:{attempt.run_id}")
    assert attempt.backend in found.text and "has not taken it so far" in found.text


def test_settings_are_kept(store: PostgresStore) -> None:
    assert store.settings.get("x", default=3) == 3
    store.settings.put("x", {"a": [1]})
    store.settings.put("x", None)
    assert store.settings.get("x", default=3) is None
    assert store.server_version()[0].isdigit()


def test_newcomers_who_come_at_once_become_one_person_each(rig: Rig) -> None:
    """Two clicks, or two calls of a bot; and two people of one name stay two."""
    start = threading.Barrier(8)

    def came(n: int) -> PersonId:
        start.wait()
        if n < 4:
            return rig.store.people.for_account("discord", f"{n % 2}", "Ada", by="bot").id
        return rig.store.people.for_subject("https://sso.example.edu", f"{n % 2}", "Ada").id

    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(came, range(8)))
    assert found[:2] == found[2:4]
    assert found[4:6] == found[6:]
    assert len(set(found)) == 4
    assert rig.rows("SELECT count(*) AS n FROM person WHERE lower(name) LIKE 'ada%'") == [{"n": 4}]
