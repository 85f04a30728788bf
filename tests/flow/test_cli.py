"""The command line as its users meet it, on real rows, the real daemon, local backend and harness."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kbslurm.cli.output import printing
from kbslurm.cli.output.trial import measured
from kbslurm.domain.placement import Rules
from kbslurm.domain.run import Ending, Handle, OpenAttempt, Seen, Sighting, Slot
from kbslurm.store.postgres import PostgresStore
from kbslurm_eval.shared.wire import BenchmarkResult
from tests.command_line import CommandLine

EXAMPLES = Path(__file__).resolve().parent.parent.parent / "examples"
GOOD = EXAMPLES / "transpose/submissions/accepted/columns.py"
WRONG = EXAMPLES / "transpose/submissions/wrong_answer/square_only.py"
ENDLESS = EXAMPLES / "transpose/submissions/timeout/never_ends.py"


@pytest.fixture
def kbslurm(tmp_path: Path, database_url: str) -> CommandLine:
    """A host's command line: a database, a local backend with two GPU types, a board."""
    (tmp_path / "kbslurm.toml").write_text(
        f"[daemon]\nstate_dir = {json.dumps(str(tmp_path / 'state'))}\n"
        "[daemon.local]\nslots = { H100 = 1, A100 = 1 }\n"
    )
    host_cli = CommandLine(cwd=tmp_path, env={"DATABASE_URL": database_url})
    with contextlib.closing(PostgresStore(database_url)) as store:
        for name in ("ada", "boris", "mallory", "bob"):
            store.people.add(name)
    made = host_cli(
        "board", "create", "transpose", "--reference", str(EXAMPLES / "transpose"), "--gpus", "H100,A100",
        "--min-isolation", "0", "--deadline", "2099-01-01",
    )  # fmt: skip
    assert made.code == 0, made.err
    return host_cli


@pytest.mark.parametrize(("asked", "holds"), [((), 1), (("--min-isolation", "2"), 2)])
def test_a_new_board_ranks_from_the_level_that_the_policy_says(
    kbslurm: CommandLine, database_url: str, asked: tuple[str, ...], holds: int
) -> None:
    with (kbslurm.cwd / "kbslurm.toml").open("a") as file:
        file.write("[policy]\nranked_min_isolation = 1\n")
    words = ("board", "create", "sums", "--reference", str(EXAMPLES / "transpose"), "--gpus", "H100", *asked)
    made = kbslurm(*words)
    assert made.code == 0, made.err
    with contextlib.closing(PostgresStore(database_url)) as store:
        board = store.boards.find("sums")
    assert board is not None and board.min_isolation == holds


def test_a_submission_is_followed_from_its_number_to_the_board(kbslurm: CommandLine) -> None:
    # Given one right and one wrong submission
    first = kbslurm("submit", str(GOOD), "-l", "TRANSPOSE", "--gpu", "h100", "--json")
    second = kbslurm("submit", str(WRONG), "-l", "transpose", "--gpu", "A100", "--mode", "test", "--as", "boris")
    assert first.code == second.code == 0, first.err + second.err
    number = first.json()["submission"]
    assert f"#{number + 1}" in second.out

    # When the daemon works until nothing is left
    assert kbslurm("up", "--once").code == 0

    # Then both have their verdicts, exit codes and places
    watched = kbslurm("watch", str(number), "--json")
    assert watched.code == 0, watched.out
    (run,) = watched.json()["runs"]
    assert (run["gpu"], run["verdict"], run["state"]) == ("H100", "passed", "scored")
    low, high = run["interval_s"]
    assert 0 < low <= run["score_s"] <= high
    assert set(run["waterfall"]) == {"queue", "launch", "start", "run", "collect", "score"}
    wrong = kbslurm("watch", str(number + 1))
    # One test has one number, in the reason and in the list below it.
    assert wrong.code == 3 and wrong.out.count("test 3 ") == 2, wrong.out
    board = kbslurm("board", "transpose", "--json").json()
    assert [row["entry"]["person"] for row in board["standings"]["H100"]] == ["ada"]
    assert board["standings"]["A100"] == []
    table = kbslurm("board", "transpose", "--gpu", "h100")
    assert "ada" in table.out and GOOD.name in table.out


def test_a_profile_is_shown_to_its_owner_and_its_files_are_fetched(kbslurm: CommandLine, tmp_path: Path) -> None:
    told = kbslurm("submit", str(GOOD), "-l", "transpose", "-g", "H100", "--mode", "profile", "--json")
    number = str(told.json()["submission"])
    assert kbslurm("up", "--once").code == 0
    followed = kbslurm("watch", number).out
    assert f"kbslurm profile {number} --out DIR" in followed and "of the functions' own time" in followed
    shown = kbslurm("profile", number, "--out", "drawn")
    assert shown.code == 0 and "custom_kernel" in shown.out
    table = tmp_path / "drawn" / f"{number}-H100-benchmark-0.table.txt"
    assert "custom_kernel" in table.read_text()
    listed = kbslurm("profile", number, "--json").json()
    assert {row["name"]: row["size"] for row in listed["artifacts"]}["benchmark-0.table.txt"] == table.stat().st_size
    (run,) = listed["profiles"]
    assert run["digests"][0]["tool"] == "cprofile" and len(run["digests"][0]["limits"]) == 3
    assert run["digests"][0]["kernels"][0]["calls"] == 5
    assert kbslurm("profile", number, "--as", "boris").code == 5


def test_nothing_of_hidden_cases_is_shown(kbslurm: CommandLine) -> None:
    number = kbslurm("submit", str(GOOD), "-l", "transpose", "-g", "H100", "--json").json()["submission"]
    assert kbslurm("up", "--once").code == 0

    told = kbslurm("watch", str(number), "--json")

    report = told.json()["runs"][0]["report"]
    assert not [row for row in report["tests"] + report["benchmarks"] if row["phase"] == "hidden"]
    assert {"secret_log", "nonce", "token"}.isdisjoint(report)
    assert "secret_seed" not in told.out + kbslurm("board", "transpose", "--json").out


def test_a_queued_submission_is_cancelled_by_its_owner_only(kbslurm: CommandLine) -> None:
    number = kbslurm("submit", str(ENDLESS), "-l", "transpose", "-g", "A100", "--json").json()["submission"]

    refused = kbslurm("cancel", str(number), "--as", "mallory")
    done = kbslurm("cancel", str(number))

    assert refused.code == 5 and "error" in refused.err
    assert done.code == 0
    watched = kbslurm("watch", str(number), "--json")
    assert [run["state"] for run in watched.json()["runs"]] == ["cancelled"]
    assert watched.code == 130, "whoever goes on when it has passed must not go on now"


def test_a_pause_refuses_and_keeps_nothing(kbslurm: CommandLine) -> None:
    assert kbslurm("intake", "stop").code == 0
    refused = kbslurm("submit", str(GOOD), "-l", "transpose")
    assert kbslurm("intake", "start").code == 0
    assert refused.code == 5 and "paused" in refused.err
    assert kbslurm("board", "list", "--json").json()[0]["submissions"] == 0


def test_status_is_unhealthy_without_a_leader_and_says_why(kbslurm: CommandLine) -> None:
    kbslurm("submit", str(GOOD), "-l", "transpose", "-g", "H100")
    found = kbslurm("status", "--json")
    told = found.json()
    assert found.code == 1
    assert not told["healthy"]
    assert "no daemon is leading" in told["troubles"][0]
    assert [(row["gpu"], row["queued"]) for row in told["queue"]] == [("H100", 1)]
    assert {(row["gpu"], row["slots"]) for row in told["backends"]} == {("H100", 1), ("A100", 1)}


def test_status_tells_of_a_place_that_fails_and_of_its_budget(kbslurm: CommandLine, database_url: str) -> None:
    pace = {"calls": 7, "interval_s": 15.0, "budget_left": 23.0, "failing": 3, "slow": True}
    limits = [
        {"what": "API calls", "left": 4812, "most": 5000, "resets_at": "2030-01-01T00:00:00+00:00"},
        {"what": "creating calls per minute", "left": 77, "most": 80, "resets_at": None},
    ]
    told = {
        "places": {
            "cluster": {
                "troubles": 3,
                "why": "squeue timed out",
                "pace": {**pace, "way": "slurmrestd at unix:/s, v0.0.42"},
            },
            "github": {"troubles": 0, "why": "", "pace": None, "limits": limits},
        }
    }
    with PostgresStore(database_url) as store:
        assert store.leases.hold("daemon", "here", 60.0, datetime.now(UTC), info=told)

    found = kbslurm("status")

    assert found.code == 1
    assert "cluster keeps failing: squeue timed out" in found.out
    assert "7 scheduler calls through slurmrestd at unix:/s, v0.0.42, 23 left" in found.out.replace("\n", " ")
    assert "github: left are 4812 of 5000 API calls, until" in found.out.replace("\n", " ")
    assert "77 of 80 creating calls per minute" in found.out.replace("\n", " ")
    places = {row["backend"]: row for row in kbslurm("status", "--json").json()["places"]}
    assert places["github"]["limits"] == limits


def test_status_tells_what_is_spent_of_each_budget_and_whom_that_keeps_at_home(
    kbslurm: CommandLine, database_url: str
) -> None:
    budget = {"month": 9.0, "spent": 3.25, "boards": {"transpose": {"month": 2.0, "spent": 1.9}}}
    overflow = {"rule": "when_down", "gpus": {"H100": "cluster is down"}, "currency": "EUR", "budget": budget}
    held = {"held_up": {"A100": "no money"}, "held_boards": {"H100": {"transpose": "no money of its own"}}}
    with PostgresStore(database_url) as store:
        told = {"places": {}, "overflow": {**overflow, **held}}
        assert store.leases.hold("daemon", "here", 60.0, datetime.now(UTC), info=told)
    said = kbslurm("status").out
    assert "the month: 3.25 of 9.00 EUR spent, counting open runs at their maximum" in said
    assert "board transpose: 1.90 of 2.00 EUR spent" in said
    assert "A100 runs: no money\n" in said
    assert "H100 runs of board transpose: no money of its own" in said
    assert kbslurm("status", "--json").json()["overflow"]["budget"] == budget


def test_slots_of_another_host_are_told_from_ours(kbslurm: CommandLine, database_url: str) -> None:
    """A leader elsewhere has local slots too: its attempts are no trouble, those of a host that is away are."""
    told = {"places": {"local@other": {"troubles": 0, "why": "", "pace": None, "slots": {"H100": 3}}}}
    kbslurm("submit", str(GOOD), "-l", "transpose", "-g", "H100")
    with PostgresStore(database_url) as store:
        now = datetime.now(UTC)
        assert store.queue.claim([Slot(backend="local@other", gpu="H100", free=1)], now) is not None
        assert store.leases.hold("daemon", "other", 60.0, now, info=told)
        found = kbslurm("status", "--json")
        assert found.code == 0, found.out
        rows = {(row["backend"], row["gpu"]): (row["open"], row["slots"]) for row in found.json()["backends"]}
        assert rows.pop(("local@other", "H100")) == (1, 3)
        ((ours, _), *_) = rows
        assert ours.startswith("local@") and ours != "local@other", "where others may be, a host says its name"
        store.leases.release("daemon", "other")
        assert store.leases.hold("daemon", "here", 60.0, now)
    assert "open at local@other (H100)" in kbslurm("status").out


def test_why_a_job_waits_and_why_an_attempt_was_given_up_is_shown(kbslurm: CommandLine, database_url: str) -> None:
    number = kbslurm("submit", str(GOOD), "-l", "transpose", "-g", "H100", "--json").json()["submission"]
    with PostgresStore(database_url) as store:
        now = datetime.now(UTC)

        def claimed() -> OpenAttempt:
            attempt = store.queue.claim([Slot(backend="cluster", gpu="H100", free=1)], now)
            assert attempt is not None and store.attempts.note_handle(attempt, Handle("17"), now, now)
            return attempt

        first = claimed()
        store.attempts.note_told({first.id: {"waits": "held by the cluster's administrators"}})
        status, watched = kbslurm("status"), kbslurm("watch", str(number), "--once")
        assert "cluster, H100: 1 submitted but not started: held by the cluster's administrators" in status.out
        assert "launching  held by the cluster's administrators" in watched.out
        store.attempts.note_seen(first, Sighting(seen=Seen.RUNNING, node="n1"), now)
        assert "held" not in kbslurm("status").out + kbslurm("watch", str(number), "--once").out
        store.attempts.give_up(first, Ending.NODE_FAILURE, "Slurm: NODE_FAIL on n1", now)
        assert "queued  Slurm: NODE_FAIL on n1" in kbslurm("watch", str(number), "--once").out
        claimed()
        assert (
            "attempt 1 at cluster was given up: Slurm: NODE_FAIL on n1" in kbslurm("watch", str(number), "--once").out
        )
    (run,) = kbslurm("watch", str(number), "--once", "--json").json()["runs"]
    assert [attempt["reason"] for attempt in run["attempts"]] == ["Slurm: NODE_FAIL on n1", ""]


def test_what_waits_is_told_its_place_and_when_it_will_start(kbslurm: CommandLine) -> None:
    """The same words as over HTTP: a person who moves to the cluster's login node misses nothing."""
    words = ("submit", str(GOOD), "-l", "transpose", "-g", "H100", "--json")
    first, last = (str(kbslurm(*words).json()["submission"]) for _ in range(2))
    assert "waiting for H100, place 1, starts within a minute\n" in kbslurm("watch", first, "--once").out
    assert "waiting for H100, place 2\n" in kbslurm("watch", last, "--once").out, "too few have run to know when"
    (kbslurm.cwd / "kbslurm.toml").write_text('[sites]\nuse = ["there-is-no-such-site"]\n')
    assert "waiting for H100, place 1\n" in kbslurm("watch", first, "--once").out


def test_status_tells_of_runs_that_no_place_can_take(kbslurm: CommandLine, database_url: str) -> None:
    kbslurm("submit", str(GOOD), "-l", "transpose", "-g", "H100")
    with PostgresStore(database_url) as store:
        assert store.leases.hold("daemon", "here", 60.0, datetime.now(UTC))
        assert kbslurm("status").code == 0
        for column, value in (("gpu", "'B200'"), ("gpu", "'H100'")):
            store._do(f"UPDATE run SET {column} = {value}")
            found = kbslurm("status")
            assert ("no place takes: 1 needs B200" in found.out) == (value == "'B200'") == (found.code == 1), found.out
        with store._pool.transaction() as connection:
            connection.execute("ALTER TABLE problem_version DISABLE TRIGGER USER")
            connection.execute("UPDATE problem_version SET ranks = 4")
        assert kbslurm("status").code == 0, "this machine's slots are as wide as a run wants"


def test_people_are_added_promoted_and_banned(kbslurm: CommandLine) -> None:
    assert kbslurm("user", "add", "grace", "--role", "staff").code == 0
    assert kbslurm("user", "add", "GRACE").code == 2
    assert kbslurm("user", "role", "grace", "participant").code == 0
    assert kbslurm("user", "ban", "grace", "--reason", "shared an account").code == 0
    refused = kbslurm("submit", str(GOOD), "-l", "transpose", "--as", "grace")
    assert refused.code == 5 and "shared an account" in refused.err
    assert kbslurm("user", "unban", "grace").code == 0
    assert kbslurm("submit", str(GOOD), "-l", "transpose", "--as", "grace").code == 0


def test_people_are_put_into_teams_and_usage_is_told_by_them(kbslurm: CommandLine, database_url: str) -> None:
    assert kbslurm("user", "add", "grace").code == 0
    assert "grace: participant, team blue" in kbslurm("user", "team", "grace", "Blue").out
    assert kbslurm("user", "team", "GRACE", "--json").json()["team"] == "blue"
    assert "blue" in kbslurm("user", "list").out
    for who in ("grace", "bob"):
        kbslurm("submit", str(GOOD), "-l", "transpose", "-g", "H100", "--as", who)
    with PostgresStore(database_url) as store:
        slot = Slot(backend="modal", gpu="H100", free=9, overflow=True, price=0.01, why="home is down")
        for _ in range(2):
            assert store.queue.claim([slot], datetime.now(UTC), rules=Rules()) is not None
    told = kbslurm("usage", "--by", "team", "--board", "TRANSPOSE", "--json").json()
    assert (told["by"], told["board"], told["budget"]) == ("team", "transpose", None)
    assert {row["name"]: row["open"] for row in told["rows"]} == {"blue": 1, None: 1}
    assert told["money"] == pytest.approx(sum(row["money"] for row in told["rows"])) != 0
    said = kbslurm("usage", "--by", "team")
    assert "blue" in said.out and "no team" in said.out
    none = kbslurm("usage", "--month", "2020-01", "--board", "transpose")
    assert "nothing ran in 2020-01 on board transpose" in none.out
    assert kbslurm("user", "team", "grace", "--none", "--json").json()["team"] is None


def test_a_person_gets_the_account_that_pays_for_their_jobs(kbslurm: CommandLine) -> None:
    assert kbslurm("user", "add", "grace").code == 0
    assert "grace: no cluster account" in kbslurm("user", "account", "grace").out
    assert "grace: account def-hopper pays" in kbslurm("user", "account", "grace", "def-hopper").out
    assert kbslurm("user", "account", "grace", "--json").json()["cluster_account"] == "def-hopper"
    assert kbslurm("user", "account", "grace", "x y").code == 2
    assert kbslurm("user", "account", "grace", "x", "--none").code == 2
    assert kbslurm("user", "account", "grace", "--none", "--json").json()["cluster_account"] is None


def test_problems_are_added_listed_and_shown(kbslurm: CommandLine) -> None:
    told = kbslurm("problem", "add", str(EXAMPLES / "rowsoftmax"))
    assert told.code == 0 and re.search(
        r"problem rowsoftmax, its first version \(number [2-9]\d*, \w{12}\)", told.out
    ), told.out
    changed = kbslurm.cwd / "rowsoftmax"
    shutil.copytree(EXAMPLES / "rowsoftmax", changed)
    with (changed / "reference.py").open("a") as file:
        file.write("\n# changed\n")
    assert "its 2nd version (number" in kbslurm("problem", "add", str(changed)).out
    assert "its first version (number" in kbslurm("problem", "add", str(EXAMPLES / "rowsoftmax")).out
    names = {row["name"] for row in kbslurm("problem", "list", "--json").json()}
    assert names == {"transpose", "rowsoftmax"}
    shown = kbslurm("problem", "show", "rowsoftmax", "--json").json()
    assert isinstance(shown["hidden"], int)
    assert kbslurm("board", "create", "soft", "--problem", "rowsoftmax", "--gpus", "B200").code == 0


def test_of_a_set_every_problem_is_added_that_can_be(kbslurm: CommandLine) -> None:
    whole = kbslurm("problem", "add", str(EXAMPLES / "spring.yaml"), "--json")
    assert whole.code == 0, whole.err
    assert {row["problem"] for row in whole.json()["problems"]} >= {"transpose", "rowsoftmax"}
    (kbslurm.cwd / "bad").mkdir()
    (kbslurm.cwd / "one.yaml").write_text("name: s\nproblems:\n  - {directory: bad}\n")
    part = kbslurm("problem", "add", "one.yaml")
    assert part.code == 2
    assert "task.yml" in part.err and "0 problems added, 1 failed" in part.out
    assert kbslurm("problem", "add", "one.yaml", "--name", "x").code == 2


def test_what_cannot_be_resolved_has_no_interval() -> None:
    plain = BenchmarkResult(phase="benchmark", index=0, spec="n: 1", status="pass", median_ns=2e6)
    wide = dataclasses.replace(plain, low_ns=476.5, high_ns=2.2e10)
    assert "+0.10 −0.10" in measured(dataclasses.replace(plain, low_ns=1.9e6, high_ns=2.1e6))
    noisy = measured(dataclasses.replace(plain, low_ns=1.9e6, high_ns=158e9))
    assert noisy.endswith("ms, too noisy to rank: spread over 1000 %")
    assert measured(dataclasses.replace(wide, flags=["UNRESOLVED"])).startswith("at most 2.00 ms (")


def test_a_try_needs_no_database(tmp_path: Path) -> None:
    host_cli = CommandLine(cwd=tmp_path, env={"DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none"})
    found = host_cli("try", str(EXAMPLES / "transpose"), str(WRONG), "--mode", "test", "--json")
    assert found.code == 3, found.err
    told = found.json()
    assert told["verdict"] == "wrong"
    assert {"reason", "score_s", "interval_s", "tests", "benchmarks", "isolation", "log"} <= set(told)


# --------------------------------------------------------------------------------------------------------- bad input


@pytest.fixture
def files(tmp_path: Path) -> Callable[[str], str]:
    """Bad files by name."""
    made = {
        "empty.py": b"",
        "huge.py": b"#" + b"x" * 1_000_000,
        "latin.py": "é = 1".encode("latin-1"),
        "kernel.txt": b"x = 1",
        "nul.py": b"x = 1\x00",
        "bare.py": b"x = 1\n",
        "other_board.py": b"#!POPCORN leaderboard elsewhere\nx = 1\n",
    }
    for name, data in made.items():
        (tmp_path / name).write_bytes(data)
    return lambda name: str(tmp_path / name)


# fmt: off
BAD_INPUT: tuple[tuple[list[str], int, str], ...] = (
    (["submit", "empty.py", "-l", "transpose"], 2, "empty"),
    (["submit", "huge.py", "-l", "transpose"], 2, "1,000,000"),
    (["submit", "latin.py", "-l", "transpose"], 2, "UTF-8"),
    (["submit", "nul.py", "-l", "transpose"], 2, "NUL"),
    (["submit", "kernel.txt", "-l", "transpose"], 2, "must end in"),
    (["submit", "missing.py", "-l", "transpose"], 2, "no file"),
    (["submit", "."], 2, "the files have 1,0"),
    (["submit", "other_board.py", "-l", "transpose"], 2, "elsewhere"),
    (["submit", "bare.py"], 2, "leaderboard"),
    (["submit", str(GOOD), "-l", "nope"], 2, "transpose"),
    (["submit", str(GOOD), "-l", "transpose", "-g", "B200"], 2, "H100"),
    (["submit", str(GOOD), "-l", "transpose", "-m", "fastest"], 2, "mode"),
    (["watch", "4711"], 2, "4711"),
    (["cancel", "4711"], 2, "4711"),
    (["board", "nope"], 2, "transpose"),
    (["board", "create", "New Board!", "--reference", str(EXAMPLES / "transpose"), "--gpus", "H100"], 2, "name"),
    (["board", "create", "admin", "--reference", str(EXAMPLES / "transpose"), "--gpus", "H100"], 2, "admin"),
    (["board", "create", "b2"], 2, "problem"),
    (["board", "create", "b2", "--problem", "nope", "--gpus", "H100"], 2, "nope"),
    (["board", "create", "b2", "--problem", "transpose", "--gpus", "H100", "--deadline", "soon"], 2, "soon"),
    (["board", "create", "b2", "--problem", "transpose", "--gpus", "H100", "--deadline", "2020-01-01"], 2, "passed"),
    (["board", "create", "b2", "--problem", "transpose", "--zone", "America", "--deadline", "2099-01-01"], 2, "zone"),
    (["problem", "add", "missing"], 2, "missing"),
    (["user", "role", "nobody", "staff"], 2, "nobody"),
    (["user", "add", "x", "--role", "king"], 2, "king"),
    (["user", "team", "nobody", "blue"], 2, "nobody"),
    (["user", "team", "nobody", "blue", "--none"], 2, "--none"),
    (["usage", "--by", "colour"], 2, "colour"),
    (["usage", "--month", "13"], 2, "2026-11"),
    (["usage", "--board", "nope"], 2, "transpose"),
    (["usage", "--board", "a b"], 2, "isn't a valid board name"),
    (["--config", "missing.toml", "status"], 2, "missing.toml"),
    (["no-such-command"], 2, "no-such-command"),
)
# fmt: on


def test_bad_input_gets_one_sentence_and_the_right_code(kbslurm: CommandLine, files: Callable[[str], str]) -> None:
    before = kbslurm("board", "list", "--json").out
    odd: list[str] = []
    for words, code, says in BAD_INPUT:
        found = kbslurm(*[files(word) if (kbslurm.cwd / word).is_file() else word for word in words])
        if found.code != code or says not in found.err or "Traceback" in found.err + found.out:
            odd.append(f"{words}: exit code {found.code}, {found.out}{found.err}")
    assert not odd, "\n".join(odd)
    assert kbslurm("board", "list", "--json").out == before


def test_an_error_is_one_json_object_when_asked(kbslurm: CommandLine) -> None:
    found = kbslurm("board", "show", "nope", "--json")
    assert found.code == 2
    assert found.json()["error"]["kind"] == "NotFound"
    assert found.err == ""


def test_a_closed_board_says_when_it_closed_and_in_which_zone(kbslurm: CommandLine, database_url: str) -> None:
    import psycopg

    with psycopg.connect(database_url) as connection:
        connection.execute("UPDATE leaderboard SET deadline_at = '2026-01-01T00:00Z', zone = 'Europe/Berlin'")
    found = kbslurm("submit", str(GOOD), "-l", "transpose")
    assert found.code == 5
    assert "2026-01-01 01:00" in found.err and "Europe/Berlin" in found.err


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("postgresql://nobody@127.0.0.1:1/none", "127.0.0.1"),
        ("mysql://localhost/x", "DATABASE_URL"),
        ("nonsense", "DATABASE_URL"),
        ("postgresql://kb@localhost:many/x", "DATABASE_URL"),
    ],
)
def test_a_database_that_cannot_be_had_is_one_sentence(tmp_path: Path, url: str, says: str) -> None:
    found = CommandLine(cwd=tmp_path, env={"DATABASE_URL": url})("board", "list")
    assert found.code in (2, 6)
    assert says in found.err
    assert "Traceback" not in found.err


def test_a_database_from_a_newer_version_is_left_alone(kbslurm: CommandLine, database_url: str) -> None:
    import psycopg

    with psycopg.connect(database_url) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    for words in (["board", "list"], ["up", "--once"], ["db", "upgrade"]):
        found = kbslurm(*words)
        assert found.code == 2, (words, found.out, found.err)
        assert "newer" in found.err
    with PostgresStore(database_url) as store:  # the newer version's daemon
        assert store.leases.hold("daemon", "there", 60.0, datetime.now(UTC))
    told = kbslurm("status")
    assert told.code == 1 and "newer version" in told.out


def test_a_database_of_another_program_is_left_alone(kbslurm: CommandLine, new_database_url: Callable[[], str]) -> None:
    import psycopg

    theirs = ("CREATE TABLE person (id int)", "CREATE TABLE alembic_version (version_num text)")
    fill = "INSERT INTO alembic_version VALUES ('4f3c2a9d8e11')"
    for statements in (theirs[:1], (theirs[1], fill)):
        url = new_database_url()
        with psycopg.connect(url) as connection:
            for statement in statements:
                connection.execute(statement)
        for words in (["board", "list"], ["up", "--once"], ["db", "upgrade"], ["db", "check"]):
            found = kbslurm(*words, DATABASE_URL=url)
            assert found.code == 2 and "belongs to another program" in found.err, (words, found.out, found.err)
        assert "belongs to another program" in kbslurm("status", DATABASE_URL=url).out


def test_status_says_what_an_empty_or_an_older_database_needs(
    kbslurm: CommandLine, new_database_url: Callable[[], str]
) -> None:
    url = new_database_url()
    empty = kbslurm("status", "--json", DATABASE_URL=url)
    assert empty.code == 1 and "is empty (Run: kbslurm db upgrade)" in empty.json()["troubles"][0]
    assert kbslurm("db", "upgrade", DATABASE_URL=url).code == 0
    assert kbslurm("db", "downgrade", "0001", "--yes", "--json", DATABASE_URL=url).json()["after"] == "0001"
    older = kbslurm("status", DATABASE_URL=url)
    assert older.code == 1 and "older version" in older.out


def test_a_problem_that_breaks_is_nobodys_success(tmp_path: Path) -> None:
    problem = tmp_path / "broken"
    shutil.copytree(EXAMPLES / "transpose", problem)
    reference = problem / "reference.py"
    reference.write_text(reference.read_text() + "\n\ndef generate_input(rows, cols, seed):\n    1 / 0\n")
    found = CommandLine(cwd=tmp_path)("try", str(problem), str(GOOD), "--mode", "test")
    assert found.code == 6 and found.out.startswith("infrastructure"), found.out + found.err
    assert "cut short" in found.out and " ok " not in found.out


@pytest.mark.parametrize("words", [("up", "--once"), ("board", "list"), ("submit", str(GOOD), "-l", "transpose")])
def test_a_state_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path, words: tuple[str, ...]) -> None:
    """Below /proc nobody can make a folder, root included: it is what a read-only disk is to a mere user."""
    (tmp_path / "kbslurm.toml").write_text(
        '[daemon]\nstate_dir = "/proc/kbslurm"\n[daemon.local]\nslots = {A100 = 1}\n'
    )
    said = CommandLine(cwd=tmp_path)(*words)
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("error: ") and "/proc/kbslurm" in said.err and "hint: " in said.err
    assert len(said.err.splitlines()) == 2


def test_a_disk_that_takes_nothing_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: ["/proc/none"])
    monkeypatch.setattr(tempfile, "tempdir", None)
    said = CommandLine(cwd=tmp_path)("try", str(EXAMPLES / "transpose"), str(GOOD))
    assert (said.code, said.err.splitlines()[0]) == (2, "error: no temporary directory is writable")


@pytest.mark.parametrize("words", [("config", "show", "--json"), ("config", "show"), ("config", "schema")])
def test_an_output_that_takes_nothing_is_one_sentence(tmp_path: Path, words: tuple[str, ...]) -> None:
    """In a process of its own, since only there standard output is what a shell made it."""
    with Path("/dev/full").open("w") as full:
        said = subprocess.run(
            [sys.executable, "-m", "kbslurm", *words],
            stdout=full, stderr=subprocess.PIPE, text=True, cwd=tmp_path, timeout=120, check=False,
        )  # fmt: skip
    assert said.returncode == 2, said.stderr
    assert said.stderr.splitlines()[0] == "error: the disk is full" and len(said.stderr.splitlines()) == 2


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_who_closes_an_output_gets_the_exit_code(tmp_path: Path, closed: str) -> None:
    for words, code in ((("config", "show"), 0), (("config", "check", "none.toml"), 2)):
        said = subprocess.run(
            ["/bin/sh", "-c", f'"$@" {closed}', "sh", sys.executable, "-m", "kbslurm", *words],
            capture_output=True, text=True, cwd=tmp_path, timeout=120, check=False,
        )  # fmt: skip
        assert said.returncode == code, said.stdout + said.stderr
        assert "bug" not in said.stderr and "Traceback" not in said.stderr


def test_a_demo_in_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    said = CommandLine(cwd=tmp_path)("demo", "--once", "--dir", "/proc/kbslurm")
    assert said.code == 2 and "error: the state folder /proc/kbslurm" in said.err


def test_words_that_no_database_can_keep_are_the_users_error(kbslurm: CommandLine) -> None:
    for words in (["user", "ban", "\udcff"], ["user", "ban", "ada", "--reason", "\udcff"]):
        kbslurm("user", "add", "ada")
        said = kbslurm(*words)
        assert said.code == 2 and "a bug in kbslurm" not in said.err, said.err


def test_an_empty_database_is_brought_up(kbslurm: CommandLine, new_database_url: Callable[[], str]) -> None:
    url = new_database_url()
    assert kbslurm("db", "check", DATABASE_URL=url).code == 1
    assert kbslurm("board", "list", DATABASE_URL=url).code == 0
    assert kbslurm("db", "check", "--json", DATABASE_URL=url).json()["schema"] == "current"


def test_the_password_of_the_database_is_never_shown(kbslurm: CommandLine) -> None:
    url = "postgresql://kb:hunter2secret@127.0.0.1:1/none"
    for words in (["config", "show"], ["status"], ["board", "list"], ["up", "--once"]):
        found = kbslurm(*words, DATABASE_URL=url)
        assert "hunter2secret" not in found.out + found.err


def test_what_is_told_to_type_next_can_be_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = tmp_path / ".venv/bin/kbslurm"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", [str(here)])
    monkeypatch.setenv("PATH", str(tmp_path))
    assert printing.command() == ".venv/bin/kbslurm"
    (tmp_path / "kbslurm").write_text("#!/bin/sh\n")
    (tmp_path / "kbslurm").chmod(0o755)
    assert printing.command() == "kbslurm"


def test_a_host_links_an_account_of_the_university_by_hand(database_url: str, tmp_path: Path) -> None:
    kbslurm = CommandLine(cwd=tmp_path, env={"DATABASE_URL": database_url})
    for name in ("grace", "ada"):
        kbslurm("user", "add", name)
    link = ("user", "link", "grace", "--account", "oidc:subject-1")
    assert kbslurm(*link).code == 2, "no provider is configured"
    (tmp_path / "kbslurm.toml").write_text('[oidc]\nissuer = "https://sso.example.edu"\nclient_id = "kb"\n')
    assert kbslurm(*link).code == 0 and kbslurm(*link).code == 0
    with PostgresStore(database_url) as store:
        known = store.people.for_subject("https://sso.example.edu/", "subject-1", "whoever")
        assert known.name == "grace", "the provider writes its name with a slash"
    assert kbslurm("user", "link", "ada", "--account", "oidc:subject-1").code == 2, "it stands for grace"
    assert kbslurm("user", "link", "grace", "--account", "oidc:subject-2").code == 2, "grace has one"
    assert kbslurm("user", "link", "ada", "--account", "myspace:1").code == 2


def test_a_try_is_ordered_to_a_place_that_there_is(kbslurm: CommandLine) -> None:
    told = ("submit", str(GOOD), "-l", "transpose", "-g", "H100")
    unknown = kbslurm(*told, "--mode", "test", "--on", "nowhere")
    assert (unknown.code, "no place 'nowhere'" in unknown.err) == (2, True)
    assert kbslurm(*told, "--on", "nowhere").code == 2, "what ranks chooses none"
