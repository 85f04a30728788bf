"""`kbslurm demo --overflow` as a stranger runs it: the site goes down, the runs go elsewhere, each has one verdict."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path


def test_the_only_site_goes_down_and_every_run_has_one_verdict(root: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kbslurm", "demo", "--overflow", "--json"],
        cwd=root,
        env={name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, (done.stdout, done.stderr[-2000:])
    told = json.loads(done.stdout)
    assert told["ok"]
    firsts = [run for run in told["runs"] if not run["second"]]
    down = [run for run in firsts if run["act"] == "down"]
    assert Counter(run["place"] for run in down) == {"github": 2, "modal": 2}
    assert all("because cluster is down" in run["why"][1] for run in down)
    assert {run["place"] for run in firsts if run["act"] in ("before", "middle", "after")} == {"cluster"}
    ran = Counter(f"{place} {run['gpu']}" for run in told["runs"] for place in run["places"])
    assert {row["name"]: row["runs"] for row in told["usage"] if row["runs"]} == ran, "both tables agree"
    money = {row["name"]: row["money"] for row in told["usage"]}
    assert money["modal A100"] > 0 == money["cluster H100"]
