"""A cluster whose jobs each have a /tmp and /dev/shm of their own (job_container/tmpfs)."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.cluster.inside.walk import submission, walk_at

pytestmark = pytest.mark.cluster_options("--private-tmp")
KEPT = Path(f"/var/tmp/.kb-images-{os.getuid()}")


def test_an_images_digest_is_taken_once_per_node_though_every_job_has_its_own_shared_memory(database_url: str) -> None:
    shutil.rmtree(KEPT, ignore_errors=True)
    with walk_at(database_url, Path("/shared/private")) as walk:
        walk.stage.submit(submission("accepted/by_row.py"), by="ada", gpus=["H100"])
        with walk.daemon():
            (run,) = walk.wait_ended(1)
            assert run["verdict"] == "passed", run
            (known,) = [file for file in KEPT.iterdir() if file.name.startswith("tree-")]
            assert (KEPT.stat().st_mode & 0o777, KEPT.stat().st_uid) == (0o700, os.getuid())
            # what a job finds there is believed: the next one doesn't read the whole image again
            known.write_text("tree:remembered\n")
            walk.stage.submit(submission("accepted/by_row.py"), by="bob", gpus=["H100"])
            runs = walk.wait_ended(2)
        assert [one["verdict"] for one in runs] == ["passed", "passed"], runs
        rows = walk.stage.rows("SELECT detail FROM verdict ORDER BY run_id")
    digests = [row["detail"]["host"]["image_digest"] for row in rows]
    assert digests[0] != digests[1] == "tree:remembered"
    assert not list(Path("/dev/shm").glob(".kb-images-*")), "the login node's own shared memory isn't the jobs'"
