"""Every call to a scheduler is counted, by whichever command: wrappers around Slurm's own commands compare."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from kbslurm.backends.slurm.call_budget import CallBudget
from kbslurm.daemon.clock import WallClock
from tests.cluster.inside.site import at_default_pace, site_text
from tests.contract.backend_suite import REPOSITORY
from tests.flow.stage import Stage

PATIENCE_S = 120
WATCHED_S = 20 if at_default_pace() else 5
TOOLS = ("sbatch", "squeue", "sacct", "sacctmgr", "scancel", "scontrol", "sinfo")
COUNTING = '#!/bin/sh\necho {tool} >>"{counts}"\nexec /usr/bin/{tool} "$@"\n'


@dataclass(frozen=True, kw_only=True)
class Counted:
    """A host's terminal beside a site whose commands are counted."""

    folder: Path
    environment: dict[str, str]

    def argv(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "kbslurm", *words]

    def kbslurm(self, *words: str) -> str:
        done = subprocess.run(
            self.argv(*words), env=self.environment, cwd=REPOSITORY, capture_output=True, text=True, timeout=400
        )
        assert done.returncode in (0, 1) and "Traceback" not in done.stderr, done.stderr
        return done.stdout

    def really(self) -> int:
        """How many calls there were."""
        file = self.folder / "counts"
        return len(file.read_text().splitlines()) if file.exists() else 0

    def budget(self, name: str = "test") -> CallBudget:
        return CallBudget(60.0, file=self.folder / "scheduler-calls" / f"{name}.json")


@pytest.fixture
def counted(database_url: str, request: pytest.FixtureRequest) -> Counted:
    folder = Path("/shared/counted") / request.node.name
    (folder / "bin").mkdir(parents=True)
    for tool in TOOLS:
        file = folder / "bin" / tool
        file.write_text(COUNTING.format(tool=tool, counts=folder / "counts"))
        file.chmod(0o755)
    (folder / "root").mkdir()
    text = site_text(folder / "root", memory="6G").replace('memory = "2G"', 'memory = "6G"')
    (folder / "site.toml").write_text(text.replace("[slurm]\n", f'[slurm]\nbin_dir = "{folder / "bin"}"\n'))
    sites = f"[sites]\nuse = [{json.dumps(str(folder / 'site.toml'))}]\n"
    (folder / "kbslurm.toml").write_text(f"[daemon]\nstate_dir = {json.dumps(str(folder))}\n{sites}")
    told = {"DATABASE_URL": database_url, "KBSLURM_CONFIG": str(folder / "kbslurm.toml")}
    Stage.build(database_url, gpus=("H100",), clock=WallClock()).close()
    return Counted(folder=folder, environment={**os.environ, **told})


def test_no_command_of_ours_makes_a_call_that_isnt_counted(counted: Counted) -> None:
    watching = subprocess.Popen(
        counted.argv("status", "--watch"), env=counted.environment, cwd=REPOSITORY, stdout=subprocess.DEVNULL
    )
    until = time.monotonic() + PATIENCE_S
    while not counted.really():  # it has begun
        assert watching.poll() is None and time.monotonic() < until
        time.sleep(0.1)
    with pytest.raises(subprocess.TimeoutExpired):
        watching.wait(timeout=WATCHED_S)
    watching.send_signal(signal.SIGINT)
    watching.wait(timeout=60)
    assert 0 < counted.really() == counted.budget().spent() <= 2, "the nodes are asked for once a minute"
    before = counted.really()
    counted.kbslurm("site", "check", str(counted.folder / "site.toml"))
    assert counted.really() == before, "it doesn't contact the cluster"
    for words in (("doctor", "--site", str(counted.folder / "site.toml")), ("status", "--sites")):
        before = counted.really()
        counted.kbslurm(*words)
        assert before < counted.really() == counted.budget().spent(), words
    before = counted.really()
    counted.kbslurm("site", "init", "--name", "fresh", "--bin-dir", str(counted.folder / "bin"))
    assert counted.budget("fresh").spent() == counted.really() - before > 0
    assert counted.budget().spent() == counted.really(), "the site that is there has the same scheduler"
