"""`kbslurm demo` as a stranger runs it: a process of its own, ended by ^C, run again, and nothing left behind."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import psutil
import pytest

from kbslurm import wiring
from kbslurm.cli.operator.demo import ROUND
from kbslurm.config import settings
from tests.popcorn.client import Popcorn
from tests.popcorn.served_api import GOOD

PATIENCE_S = 400.0


def started(place: Path, *words: str, **variables: str) -> subprocess.Popen[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith(("KBSLURM_", "PG"))}
    command = [sys.executable, "-m", "kbslurm", "demo", "--once", "--dir", str(place), *words]
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command, stdout=pipe, stderr=pipe, stdin=subprocess.DEVNULL, text=True, env={**env, **variables}
    )


def of_the_demo(place: Path) -> list[str]:
    """The processes that have to do with this demo's folder, by their command lines."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        line = " ".join(process.info["cmdline"] or [])
        if str(place) in line and process.pid != os.getpid():
            found.append(line)
    return found


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A demo's folder. A round takes a minute of a processor, so what has been played here stays for the next test."""
    return tmp_path_factory.mktemp("stranger") / "demo"


def test_it_survives_an_interruption_ends_by_itself_and_leaves_nothing(place: Path) -> None:
    # Given a demo that is killed between a submission and the next, and then one that is interrupted while it measures
    killed = started(place, KBSLURM_PROBE="accept.after_commit:2")
    killed.communicate(timeout=PATIENCE_S)
    assert killed.returncode == -signal.SIGKILL
    attempts = place / "attempts"
    begun = {*attempts.glob("kb-*")}  # where the killed one had begun to measure
    first = started(place)
    until = time.monotonic() + PATIENCE_S
    while not {*attempts.glob("kb-*")} - begun:
        assert first.poll() is None, first.communicate()
        assert time.monotonic() < until
        time.sleep(0.05)
    first.send_signal(signal.SIGINT)
    _, err = first.communicate(timeout=PATIENCE_S)
    assert first.returncode == 130, err
    assert "Traceback" not in err

    # When it is run again
    second = started(place, "--json")
    out, err = second.communicate(timeout=PATIENCE_S)

    # Then it goes on where it was, and every submission gets the verdict of the script
    assert second.returncode == 0, err
    told = json.loads(out)
    assert told["ok"]
    verdicts = [run["verdict"] for row in told["submissions"] for run in row["runs"]]
    assert len(told["submissions"]) == 8
    assert {"passed", "wrong", "error", "timeout", "violation"} == set(verdicts)
    assert sorted(row["submission"] for row in told["submissions"]) == list(range(1, 9))

    # And no process is left
    until = time.monotonic() + 30
    while (left := of_the_demo(place)) and time.monotonic() < until:
        time.sleep(0.1)
    assert left == []


def test_the_first_demo_of_a_clone_is_round_1_whatever_ran_before(root: Path, tmp_path: Path) -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith(("KBSLURM_", "PG"))}
    for clone in (tmp_path / "one", tmp_path / "two"):
        shutil.copytree(root, clone, ignore=shutil.ignore_patterns(".*", "__pycache__", "tests"))
        demo = subprocess.Popen(
            [sys.executable, "-m", "kbslurm", "demo", "--once"],
            cwd=clone,
            env={**env, "HOME": str(tmp_path), "PYTHONPATH": str(clone)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert demo.stderr is not None
        try:
            said = next((line for line in demo.stderr if "round" in line), "")
            assert "playing round 1 " in said
        finally:
            demo.send_signal(signal.SIGINT)
            demo.communicate(timeout=PATIENCE_S)


def only_the_first_is_played(place: Path) -> None:
    """Let this folder's round, played here if nobody did, want its first submission still."""
    if not (place / "kbslurm.toml").exists():
        done = started(place, "--json")
        _, err = done.communicate(timeout=PATIENCE_S)
        assert done.returncode == 0, err
    with wiring.opened_store(settings.load(place / "kbslurm.toml")) as store:
        (first, *others) = reversed(store.submissions.newest())
        assert len(others) == 7
        store.settings.put(ROUND, {**store.settings.get(ROUND), "after": first.id, "done": False})


def test_on_a_terminal_it_stays_up_for_a_browser_and_for_popcorn(place: Path) -> None:
    only_the_first_is_played(place)
    env = {name: value for name, value in os.environ.items() if not name.startswith(("KBSLURM_", "PG"))}
    command = [sys.executable, "-m", "kbslurm", "demo", "--dir", str(place)]
    ours, theirs = pty.openpty()
    demo = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env={**env, "TERM": "dumb"})
    os.close(theirs)
    seen = ""

    def until(pattern: str) -> str:
        nonlocal seen
        while not (found := re.search(pattern, seen)):
            text = os.read(ours, 65536).decode(errors="replace")
            assert text, seen
            seen += re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", text)
        return found[1]

    try:
        # Given a demo on a terminal: while it plays, its board can be looked at
        url = until(r"(http://[\d.:]+)/board/transpose shows the board live")
        assert "transpose" in httpx.get(f"{url}/board/transpose/H100", timeout=60).raise_for_status().text

        # When it has played, it stays, with a token for whoever types what it says
        guest = Popcorn(url, until(r"cli_id: (\S+?)' > ~/\.popcorn\.yaml"))
        until(r"(--mode leaderboard YOUR_KERNEL)")
        assert [row["name"] for row in guest.leaderboards()] == ["transpose"]
        number = guest.submit("transpose", guest.gpus("transpose")[0], "leaderboard", "mine.py", GOOD)
        assert guest.wait(number)["done"]
        assert number in [row["id"] for row in guest.submissions("transpose")]
        assert "you" in httpx.get(f"{url}/board/transpose/H100", timeout=60).raise_for_status().text
        guest.delete(number)
        guest.hang_up()

        # Then ^C ends it all
        demo.send_signal(signal.SIGINT)
        until(r"(stopped; )")
        assert demo.wait(PATIENCE_S) == 0, seen
    finally:
        demo.kill()
        demo.wait()
        os.close(ours)
    assert of_the_demo(place) == []
