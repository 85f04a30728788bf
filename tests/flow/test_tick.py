"""`kbslurm tick`: the daemon's work in visits of a timer, each without any memory of the one before."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from kbslurm.ports import TICKS
from kbslurm.store.postgres import PostgresStore
from tests.command_line import CommandLine
from tests.flow.stage import PATIENCE_S

EXAMPLES = Path(__file__).resolve().parent.parent.parent / "examples"
GOOD = EXAMPLES / "transpose/submissions/accepted/columns.py"
LOCAL = """\
[daemon]
state_dir = "{folder}/state"
[daemon.local]
slots = {{ A100 = 1 }}
"""
ON_SLURM = """\
[daemon]
state_dir = "{folder}/state"
[sites]
dir = "{folder}"
use = ["standins"]
"""
SITE = """\
name = "standins"
untrusted = false
ranked_min_isolation = 0
python = "{python}"
[paths]
shared_root = "{folder}/root"
[container]
runtime = "none"
[slurm]
bin_dir = "{folder}/bin"
accounting = false
[gpus.A100]
vendor = "none"
request = "--gres=gpu:1"
"""
# The job runs for real, as a process that outlives the tick; squeue knows it while it runs.
SBATCH = """\
cp "$2" "{folder}/job.sh"
grep -m1 -o 'kb-[a-z0-9]*' "$2" >"{folder}/running"
( SLURM_JOB_ID=7 SLURMD_NODENAME=n1 setsid sh "{folder}/job.sh" >"{folder}/job.log" 2>&1; rm -f "{folder}/running" ) \
    </dev/null >/dev/null 2>&1 &
echo 7
"""
SQUEUE = 'read -r name 2>/dev/null <"{folder}/running" && echo "7|$name|RUNNING|1|2|n1|None"; exit 0'
SCONTROL = "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1"


def on_this_machine(folder: Path) -> str:
    return LOCAL.format(folder=folder)


def on_stand_in_slurm(folder: Path) -> str:
    (folder / "bin").mkdir()
    (folder / "root").mkdir()
    (folder / "standins.toml").write_text(SITE.format(folder=folder, python=sys.executable))
    for tool, text in (("sbatch", SBATCH), ("squeue", SQUEUE), ("scontrol", SCONTROL)):
        (folder / "bin" / tool).write_text(f"#!/bin/sh\n{text.format(folder=folder)}\n")
        (folder / "bin" / tool).chmod(0o755)
    return ON_SLURM.format(folder=folder)


def installed(folder: Path, url: str, config: str) -> CommandLine:
    (folder / "kbslurm.toml").write_text(config)
    made = CommandLine(cwd=folder, env={"DATABASE_URL": url})
    with contextlib.closing(PostgresStore(url)) as store:
        store.people.add("ada", role="staff")
    board = made(
        "board", "create", "transpose", "--reference", str(EXAMPLES / "transpose"), "--gpus", "A100",
        "--min-isolation", "0", "--deadline", "2099-01-01",
    )  # fmt: skip
    assert board.code == 0, board.err
    return made


@pytest.mark.parametrize("place", [on_this_machine, on_stand_in_slurm])
def test_ticks_alone_take_a_submission_from_accept_to_its_verdict(
    tmp_path: Path, database_url: str, place: Callable[[Path], str]
) -> None:
    kbslurm = installed(tmp_path, database_url, place(tmp_path))
    before = kbslurm("tick", "--json")
    assert (before.code, before.json()["claimed"], before.json()["open"]) == (0, 0, 0), before.err
    assert kbslurm("submit", str(GOOD), "--board", "transpose", "--mode", "test").code == 0
    told: list[dict[str, Any]] = []
    until = time.monotonic() + PATIENCE_S
    while not told or told[-1]["open"] or told[-1]["queued"]:
        assert time.monotonic() < until, told
        found = kbslurm("tick", "--json")
        assert found.code == 0, found.err
        told.append(found.json())
    assert (told[0]["claimed"], told[0]["launched"]) == (1, 1)
    assert sum(one["launched"] for one in told) == 1, kbslurm("why", "1").out
    assert sum(one["settled"] for one in told) == 1
    run = kbslurm("watch", "1", "--once", "--json").json()["runs"][0]
    assert (run["state"], run["verdict"], len(run["attempts"])) == ("scored", "passed", 1), run
    status = kbslurm("status", "--no-sites", "--json")
    assert status.code == 0, status.out
    assert "by kbslurm tick" in status.json()["daemon"]
    assert kbslurm("tick").out == "nothing was due; nothing left\n"


def test_a_tick_beside_a_daemon_does_nothing_and_says_who_leads(tmp_path: Path, database_url: str) -> None:
    kbslurm = installed(tmp_path, database_url, on_this_machine(tmp_path))
    assert kbslurm("submit", str(GOOD), "--board", "transpose", "--mode", "test").code == 0
    now = datetime.now(UTC)
    with contextlib.closing(PostgresStore(database_url)) as store:
        assert store.leases.hold("daemon", "login1:12:abc", 3_600, now, info={})
        for words in (("tick",), ("tick", "--for", "60"), ("tick", "--json")):
            found = kbslurm(*words)
            assert found.code == 5
            assert "another daemon leads (login1:12:abc), so this tick did nothing" in found.err + found.out
        assert store.attempts.open() == [] and store.leases.all()[0].holder == "login1:12:abc"


def test_a_timer_that_stopped_is_told_and_a_daemon_takes_over_at_once(tmp_path: Path, database_url: str) -> None:
    kbslurm = installed(tmp_path, database_url, on_this_machine(tmp_path))
    assert kbslurm("tick").code == kbslurm("tick", "--for", "1").code == 0
    with contextlib.closing(PostgresStore(database_url)) as store:
        (ticks,) = store.leases.all()
        kept_s = (ticks.expires_at - ticks.beat_at).total_seconds()
        assert (ticks.name, kept_s) == (TICKS, 300)
        assert "kbslurm tick does its work" in kbslurm("doctor").out
        late = datetime.now(UTC) - timedelta(hours=2)
        assert store.leases.hold(TICKS, ticks.holder, 300, late, info=ticks.info)
    found = kbslurm("status", "--no-sites", "--json")
    assert found.code == 1 and found.json()["daemon"] == "none since 2 h", found.json()["daemon"]
    assert "no daemon is leading" in found.json()["troubles"][0]
    assert kbslurm("up", "--once").code == 0


def test_a_place_in_trouble_is_an_exit_code_and_failures_are_counted_over_ticks(
    tmp_path: Path, database_url: str
) -> None:
    kbslurm = installed(tmp_path, database_url, on_stand_in_slurm(tmp_path))
    (tmp_path / "root").rmdir()
    (tmp_path / "root").write_text("not a folder")
    (tmp_path / "bin/sbatch").write_text("#!/bin/sh\necho 'Unable to contact slurm controller' >&2; exit 1\n")
    assert kbslurm("submit", str(GOOD), "--board", "transpose", "--mode", "test").code == 0
    found = [kbslurm("tick", "--json") for _ in range(4)]
    assert {one.code for one in found[1:]} == {6}, [(one.code, one.out, one.err) for one in found]
    assert found[-1].json()["troubles"]["standins"]
    with contextlib.closing(PostgresStore(database_url)) as store:
        (ticks,) = store.leases.all()
        assert ticks.info["places"]["standins"]["troubles"] >= 3
        assert ticks.info["places"]["standins"]["breaker"]["state"] == "open"
    status = kbslurm("status", "--no-sites", "--json")
    assert any("standins keeps failing" in one for one in status.json()["troubles"]), json.dumps(status.json())


def test_a_login_kept_by_hand_that_has_lapsed_is_told_by_tick_status_and_doctor(
    tmp_path: Path, database_url: str
) -> None:
    kbslurm = installed(tmp_path, database_url, on_stand_in_slurm(tmp_path))
    far = f'[submit]\nvia = "ssh"\nhost = "login"\ncontrol_path = "{tmp_path}/socket"\nby_hand = true\n'
    with (tmp_path / "standins.toml").open("a") as file:
        file.write(far)
    (tmp_path / "bin/ssh").write_text("#!/bin/sh\necho 'kbslurm: no connection is open' >&2; exit 255\n")
    (tmp_path / "bin/ssh").chmod(0o755)
    path = f"{tmp_path}/bin:/usr/bin:/bin"
    assert kbslurm("submit", str(GOOD), "--board", "transpose", "--mode", "test").code == 0
    found = kbslurm("tick", PATH=path)
    typed = f"log in again with: ssh -fNM -o ServerAliveInterval=30 -o ServerAliveCountMax=4 -o ControlPath={tmp_path}"
    assert (found.code, typed in found.out) == (6, True), found.out
    assert typed in found.err, "the log"
    status = kbslurm("status", "--no-sites", "--json", PATH=path)
    assert (status.code, typed in status.json()["troubles"][0]) == (1, True), status.out
    doctor = kbslurm("doctor", "--site", "standins", "--json", PATH=path)
    assert "Log in with: ssh -fNM" in doctor.out, doctor.out
    with contextlib.closing(PostgresStore(database_url)) as store:
        assert [one.state for one in store.attempts.open()] == ["intent"]
