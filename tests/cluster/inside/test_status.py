"""`kbslurm status` on a login node: sites, GPUs busy and free, the queue and the age of its oldest, at 80 columns."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from kbslurm.flow.cancel import cancel
from tests.cluster.inside.walk import sleeping, walk_at
from tests.contract.backend_suite import REPOSITORY


def test_status_shows_the_site_its_gpus_and_the_queue_at_80_columns(database_url: str, tmp_path: Path) -> None:
    # Given a run that holds a GPU and a place that is asked about
    with walk_at(database_url, Path("/shared/status"), gpus=("H100",)) as walk:
        file = tmp_path / "kbslurm.toml"
        site = Path(walk.site.paths.shared_root) / "site.toml"
        file.write_text(
            f"[daemon]\nstate_dir = {json.dumps(str(tmp_path))}\n\n[sites]\nuse = [{json.dumps(str(site))}]\n"
        )
        environment = {**os.environ, "DATABASE_URL": database_url, "COLUMNS": "80", "KBSLURM_CONFIG": str(file)}
        held = walk.stage.submit(sleeping(100), mode="test", file_name="by_row.py")
        with walk.daemon():
            walk.wait_began()

            # When an admin looks
            def status(*words: str) -> str:
                command = [sys.executable, "-m", "kbslurm", "status", *words]
                done = subprocess.run(
                    command, env=environment, cwd=REPOSITORY, capture_output=True, text=True, timeout=120, check=False
                )
                assert done.returncode in (0, 1), done.stderr
                return done.stdout

            text, told = status("--sites"), json.loads(status("--sites", "--json"))
            quiet = json.loads(status("--json"))
            cancel(walk.stage.store.submissions, held.submission_id, None, walk.stage.clock.now())
            walk.wait_ended()

    # Then it is all there, and nothing is wider than the screen
    (fleet,) = told["fleet"]
    assert quiet["fleet"] == [], "with a daemon, Slurm is only asked on request"
    assert fleet["gpus"]["h100"]["usable"] == 6
    assert fleet["gpus"]["h100"]["used"] >= 1
    assert {(row["backend"], row["gpu"]) for row in told["backends"]} == {("test", "H100"), ("test", "A100")}
    assert told["places"][0]["pace"]["calls"] > 0
    assert told["queue"][0]["running"] == 1
    assert "h100 1/6" in text
    assert max(map(len, text.splitlines())) <= 80, text
