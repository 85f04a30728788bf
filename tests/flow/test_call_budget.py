"""One budget of scheduler calls for every process: the daemon, `status`, `doctor`."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kbslurm import wiring
from kbslurm.api.hosting.status import Status
from kbslurm.backends.slurm.call_budget import CallBudget
from kbslurm.backends.slurm.call_pace import CallPace
from kbslurm.cli.operator.status_facts import Fleets
from kbslurm.config import shared_folders
from kbslurm.config.settings import load
from kbslurm.domain.site import Poll
from kbslurm.errors import BackendTrouble
from kbslurm.store.postgres import PostgresStore
from tests.command_line import CommandLine
from tests.contract.test_slurm_standins import Rig

EXAMPLES = shared_folders.path("examples")

SPEND = """
import sys
from pathlib import Path
from kbslurm.backends.slurm.call_budget import CallBudget
CallBudget(30.0, lambda: 1000.0, file=Path(sys.argv[1])).spend(9)
"""


def test_processes_share_one_budget(tmp_path: Path) -> None:
    watch, file = [1000.0], tmp_path / "calls" / "here.json"
    ours = CallBudget(30.0, lambda: watch[0], file=file)
    pace = CallPace(Poll(calls_per_minute=30.0), lambda: watch[0], ours)
    pace.called(0.1)
    for _ in range(2):
        subprocess.run([sys.executable, "-c", SPEND, str(file)], check=True)
    assert (ours.left(), pace.report().budget_left) == (11.0, 11.0)
    ours.spend(11)
    with pytest.raises(BackendTrouble, match="used up"):
        CallBudget(30.0, lambda: watch[0], file=file).wait("here", wait_s=0.0)
    assert not pace.may_look() and not pace.has_room()
    watch[0] += 60
    assert ours.left() == 30.0 and pace.may_look()


def test_a_budget_without_its_file_is_still_a_budget(tmp_path: Path) -> None:
    (tmp_path / "calls").write_text("no folder")
    ours = CallBudget(6.0, lambda: 1000.0, file=tmp_path / "calls" / "here.json")
    ours.spend(6)
    assert not ours.has_room()
    garbage = tmp_path / "here.json"
    garbage.write_text("{")
    shared = CallBudget(6.0, lambda: 1000.0, file=garbage)
    shared.spend(5)
    assert (shared.left(), json.loads(garbage.read_text())["tokens"]) == (1.0, 1.0)


@pytest.fixture
def kbslurm(tmp_path: Path, database_url: str) -> CommandLine:
    """A host's command line with one site of stand-in commands."""
    rig = Rig(tmp_path)
    rig.says("sinfo", "")
    rig.says("scontrol", "")
    (tmp_path / "kbslurm.toml").write_text(
        f"[daemon]\nstate_dir = {json.dumps(str(tmp_path / 'state'))}\n"
        f"[sites]\nuse = [{json.dumps(str(tmp_path / 'site.toml'))}]\n"
    )
    with PostgresStore(database_url) as store:
        store.people.add("ada", role="staff")
    return CommandLine(cwd=tmp_path, env={"DATABASE_URL": database_url})


def calls(folder: Path) -> int:
    """How often Slurm was asked about its nodes."""
    return sum(
        len((folder / f"{tool}.calls").read_text().splitlines())
        for tool in ("sinfo", "scontrol")
        if (folder / f"{tool}.calls").exists()
    )


def test_status_asks_slurm_only_without_a_daemon_or_on_request_and_counts_it(
    kbslurm: CommandLine, database_url: str
) -> None:
    config = load(kbslurm.cwd / "kbslurm.toml", {"DATABASE_URL": database_url})
    (site,) = wiring.sites(config)
    before = wiring.call_budget(config, site).left()
    assert [one["site"] for one in kbslurm("status", "--json").json()["fleet"]] == ["standins"]
    assert calls(kbslurm.cwd) == 2
    file = kbslurm.cwd / "state" / "scheduler-calls" / "standins.json"
    assert json.loads(file.read_text())["tokens"] <= before
    with PostgresStore(database_url) as store:
        now = datetime.now(UTC)
        pace = {"calls": 9, "interval_s": 15.0, "budget_left": 20.0, "failing": 2, "slow": False, "why": "squeue: mute"}
        place = {"troubles": 0, "why": "", "pace": pace, "slots": {"T4": 4}}
        store.leases.hold("daemon", "elsewhere", 3600.0, now, info={"places": {"standins": place}})
    told = kbslurm("status")
    assert "its scheduler doesn't answer (squeue: mute)" in told.out, told.out
    assert kbslurm("status", "--json").json()["fleet"] == []
    assert calls(kbslurm.cwd) == 2, "the daemon knows"
    assert kbslurm("status", "--sites", "--json").json()["fleet"] != []
    assert calls(kbslurm.cwd) == 4
    fleets = Fleets()
    for _ in range(20):  # as --watch does
        fleets.show(config, Status())
    assert calls(kbslurm.cwd) == 6


def test_site_init_counts_for_the_site_that_it_describes_and_for_those_with_the_same_scheduler(
    kbslurm: CommandLine, database_url: str
) -> None:
    config = load(kbslurm.cwd / "kbslurm.toml", {"DATABASE_URL": database_url})
    (configured,) = wiring.sites(config)
    there = wiring.call_budget(config, configured)
    new = CallBudget(30.0, file=kbslurm.cwd / "state" / "scheduler-calls" / "fresh.json")
    words = ("site", "init", "--name", "fresh", "--bin-dir", str(kbslurm.cwd / "bin"))
    done = kbslurm(*words)
    assert done.code == 2 and "Traceback" not in done.err, "these commands show no GPUs"
    assert calls(kbslurm.cwd) >= 4
    assert there.spent() == new.spent() == calls(kbslurm.cwd)
    kbslurm("site", "init", "--name", "fresh", "--bin-dir", str(kbslurm.cwd / "nothing"))
    assert there.spent() < new.spent(), "another folder's commands call another scheduler"


def test_site_init_without_room_says_so(kbslurm: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kbslurm.cli.operator.site_init.BUDGET_WAIT_S", 0.0)
    CallBudget(30.0, file=kbslurm.cwd / "state" / "scheduler-calls" / "fresh.json").spend(60)
    done = kbslurm("site", "init", "--name", "fresh", "--bin-dir", str(kbslurm.cwd / "bin"))
    assert (done.code, calls(kbslurm.cwd)) == (6, 0)
    assert "fresh: the site's call budget for this minute is used up" in done.err


def test_a_problem_that_a_sites_jobs_lack_the_memory_for_is_refused(kbslurm: CommandLine) -> None:
    new = ("board", "create", "transpose", "--reference", str(EXAMPLES / "transpose"), "--gpus", "T4")
    site = kbslurm.cwd / "site.toml"
    whole = site.read_text()
    site.write_text(f'{whole}memory = "1500M"\n')
    refused = kbslurm(*new)
    assert refused.code == 2, refused.out
    assert "standins gives a job on T4 1500 MB of memory, and the problem needs 1536 MB" in refused.err
    warned = kbslurm("site", "check", str(site))
    assert warned.code == 0 and "1500 MB" in warned.err, "no board needs it yet"
    site.write_text(whole)
    assert kbslurm(*new).code == 0
    site.write_text(f'{whole}memory = "1500M"\n')
    checked = kbslurm("site", "check", str(site))
    assert checked.code == 2 and "board transpose" in checked.err, checked.err
    edited = kbslurm("board", "edit", "transpose", "--gpus", "T4")
    assert edited.code == 2 and "Raise memory below [gpus.T4]" in edited.err, edited.err
