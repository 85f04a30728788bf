"""The embedded Postgres as its users see it: joined, shared, gone with the last of them, unharmed by any death."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest

from kbslurm.errors import Misconfigured
from kbslurm.store.embedded import Embedded
from tests.services import ROOT, needs

USE_UNTIL_STDIN_CLOSES = """
import sys
from pathlib import Path
from kbslurm.store.embedded import Embedded
used = Embedded.start(Path(sys.argv[1]), fast=True)
print(used.pid, flush=True)
sys.stdin.read()
used.leave()
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """As mktemp -d makes it: mode 0700, so that the user whom root's Postgres runs as can't reach it."""
    with tempfile.TemporaryDirectory(prefix="kbtest-") as made:
        assert stat.S_IMODE(os.stat(made).st_mode) == 0o700
        yield Path(made)


def other_user(data_dir: Path) -> tuple[subprocess.Popen[str], int]:
    """Another process that uses the server, and the server's pid as that process sees it."""
    argv = [sys.executable, "-c", USE_UNTIL_STDIN_CLOSES, str(data_dir)]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, int(process.stdout.readline())


def close(process: subprocess.Popen[str]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
    process.wait(120)


def wait_gone(pid: int) -> None:
    """Returns when that process has ended, fails after two minutes."""
    try:
        psutil.Process(pid).wait(120)
    except psutil.NoSuchProcess:
        return


def test_it_is_shared_and_the_last_one_to_leave_ends_it(folder: Path) -> None:
    ours = Embedded.start(folder / "pg", fast=True)
    process, pid = other_user(folder / "pg")
    assert pid == ours.pid
    ours.leave()
    with Embedded.start(folder / "pg", fast=True) as again, psycopg.connect(again.url) as connection:
        assert again.pid == pid, "it has to run on while the other process uses it"
        assert connection.execute("SELECT current_database()").fetchone() == ("kbslurm",)
    assert psutil.pid_exists(pid)
    close(process)
    assert process.returncode == 0
    assert not psutil.pid_exists(pid)


def test_killing_its_only_user_ends_it_and_keeps_what_was_committed(folder: Path) -> None:
    process, pid = other_user(folder / "pg")
    with Embedded.start(folder / "pg") as ours, psycopg.connect(ours.url) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 7 AS seven")
    process.send_signal(signal.SIGKILL)
    close(process)
    wait_gone(pid)
    with Embedded.start(folder / "pg", fast=True) as ours, psycopg.connect(ours.url) as connection:
        assert ours.pid != pid
        assert connection.execute("SELECT seven FROM kept").fetchone() == (7,)


def test_an_immediate_stop_loses_nothing_and_others_may_start_it_again(folder: Path) -> None:
    process, pid = other_user(folder / "pg")
    ours = Embedded.start(folder / "pg")
    with psycopg.connect(ours.url, autocommit=True) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 7 AS seven")
        ours.stop(immediate=True)
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
    wait_gone(pid)
    with Embedded.start(folder / "pg", fast=True) as again, psycopg.connect(again.url) as connection:
        assert connection.execute("SELECT seven FROM kept").fetchone() == (7,)
    close(process)
    assert not psutil.pid_exists(again.pid)


def test_killing_its_guard_ends_it(folder: Path) -> None:
    with Embedded.start(folder / "pg", fast=True) as ours:
        guard = psutil.Process(ours.pid).parent()
        assert guard is not None
        guard.kill()
        wait_gone(ours.pid)
        with Embedded.start(folder / "pg", fast=True) as again:
            assert again.pid != ours.pid


def test_it_listens_to_no_network(folder: Path) -> None:
    with Embedded.start(folder / "pg", fast=True) as ours:
        assert not psutil.Process(ours.pid).net_connections("inet")


@needs(ROOT)
def test_only_its_own_user_gets_in(folder: Path) -> None:
    with Embedded.start(folder / "pg", fast=True) as ours:
        # The one other user who can get as far as the socket is whom root's server runs as: the rules must stop it.
        servant = psutil.Process(ours.pid).uids().real
        code = "import sys, psycopg; psycopg.connect(sys.argv[1])"
        reached = subprocess.run([sys.executable, "-c", code, ours.url], capture_output=True, text=True, check=False)
        assert reached.returncode == 0, reached.stderr
        child = os.fork()
        if child == 0:
            os.setgroups([])
            os.setuid(servant)
            try:
                psycopg.connect(ours.url)
            except psycopg.OperationalError as refused:
                os._exit(7 if "eer authentication failed" in str(refused) else 8)
            os._exit(9)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda place: (place.mkdir(), (place / "mine.txt").touch()), "isn't empty and doesn't contain"),
        (lambda place: place.touch(), "there is a file where a directory should be"),
    ],
    ids=["foreign directory", "a file"],
)
def test_what_cannot_be_used_is_said_in_one_sentence(folder: Path, make: object, sentence: str) -> None:
    assert callable(make)
    make(folder / "pg")
    with pytest.raises(Misconfigured, match=sentence) as raised:
        Embedded.start(folder / "pg")
    assert "\n" not in raised.value.message
    assert raised.value.hint


def test_a_directory_made_anew_has_a_database_of_its_own(folder: Path) -> None:
    place = folder / "pg"
    with Embedded.start(place, fast=True) as before, psycopg.connect(before.url, autocommit=True) as connection:
        connection.execute("CREATE TABLE of_yesterday ()")
    number = place.stat().st_ino
    inside = place.rename(folder / "away")
    shutil.rmtree(inside)
    for count in range(1000):  # a file system gives the number of what is deleted to what is made next, or soon
        place.mkdir()
        if place.stat().st_ino == number:
            break
        place.rename(folder / f"other-{count}")
    with Embedded.start(place, fast=True) as now, psycopg.connect(now.url) as connection:
        assert connection.execute("SELECT to_regclass('of_yesterday')").fetchone() == (None,)


def test_a_database_of_another_postgres_is_refused(folder: Path) -> None:
    with Embedded.start(folder / "pg", fast=True):
        pass
    note = folder / "pg" / "elsewhere"
    home = Path(note.read_text().strip()) if note.exists() else folder / "pg"
    (home / "cluster" / "PG_VERSION").write_text("14\n")
    with pytest.raises(Misconfigured, match="made by Postgres 14"):
        Embedded.start(folder / "pg")
