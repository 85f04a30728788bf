"""What an image is, is found on the node and stands in the result; one that isn't what was pinned never runs."""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest

from kbslurm.images import pins
from tests.cluster.inside.walk import Walk, submission, walk_at

PICTURES = Path("/shared/pictures")
GOOD = "accepted/by_row.py"


@pytest.fixture
def walk(database_url: str) -> Iterator[Walk]:
    shutil.rmtree(PICTURES, ignore_errors=True)
    shutil.copytree("/opt/kb/images/cpu", PICTURES / "cpu", symlinks=True)
    shutil.copy("/opt/kb/images/cpu.sif", PICTURES)
    with walk_at(database_url, Path("/shared/seen"), gpus=("H100", "A100")) as found:
        paths = dataclasses.replace(found.site.paths, image_dir=PurePosixPath(PICTURES))
        found.site = dataclasses.replace(found.site, paths=paths)
        yield found


def test_the_result_names_the_image_that_ran_and_one_that_was_changed_never_scores(walk: Walk) -> None:
    # Given a directory and a file, the one pinned by the lock beside it, the other not at all
    digests = {"H100": pins.digest_of(PICTURES / "cpu"), "A100": pins.digest_of(PICTURES / "cpu.sif")}
    lock = PICTURES / pins.LOCK
    pins.pin(lock, "cpu", pins.Pin(digest=digests["H100"], made_at=walk.stage.clock.now(), source="a test"))
    for gpu in ("H100", "A100"):
        walk.stage.submit(submission(GOOD), by=gpu.lower(), gpus=[gpu])
    with walk.daemon():
        runs = {run["gpu"]: run for run in walk.wait_ended(2)}
        # Then results say what ran, and what was pinned
        for gpu, pinned, seen in (("H100", digests["H100"], "tree"), ("A100", None, "file")):
            assert runs[gpu]["verdict"] == "passed", runs[gpu]
            (row,) = walk.stage.rows("SELECT detail FROM verdict WHERE run_id = %s", runs[gpu]["id"])
            host = row["detail"]["host"]
            assert (host["image_digest"], host.get("image_pinned"), host["image_seen"]) == (digests[gpu], pinned, seen)
        # When somebody changes one file of the directory, size and time as they were
        place = PICTURES / "cpu" / "etc" / "debian_version"
        looks = place.stat()
        text = bytearray(place.read_bytes())
        text[0] ^= 1
        place.write_bytes(text)
        os.utime(place, ns=(looks.st_atime_ns, looks.st_mtime_ns))
        walk.stage.submit(submission(GOOD), by="eve", gpus=["H100"])
        last = walk.wait_ended(3)[-1]
    assert (last["state"], last["verdict"]) == ("failed", "infrastructure"), last
    assert f"and {digests['H100']} is pinned" in last["verdict_reason"]


GLUTTON = """
import os
from pathlib import Path

wrote = 0
for folder in ("/tmp", "/var/tmp", "/dev/shm"):
    for number in range({files}):
        try:
            Path(folder, str(number)).write_bytes(bytes(1 << 20))
            wrote += 1
        except OSError as error:
            print("STOPPED by", error.strerror)
            break
print("WROTE", wrote, flush=True)
import time
time.sleep({rest})

def custom_kernel(data):
    raise ValueError("enough")
"""


def forget() -> None:
    """What a node remembers of its images goes, wherever it is kept."""
    for folder in ("/dev/shm", "/var/tmp"):
        shutil.rmtree(f"{folder}/.kb-images-{os.getuid()}", ignore_errors=True)


@pytest.mark.parametrize("bound", ["memory", "watched"])
def test_all_that_a_submission_writes_is_bounded(database_url: str, bound: str) -> None:
    folder = Path("/shared/scratch") / bound
    with walk_at(database_url, folder) as walk:
        paths = dataclasses.replace(walk.site.paths, node_scratch="/tmp/node-disk", scratch_mb=30)
        exports = {} if bound == "memory" else {"PATH": f"{folder}/bin:/usr/bin:/bin"}
        if exports:  # a node without network or other namespaces for us: its unshare says no
            (folder / "bin").mkdir()
            (folder / "bin" / "unshare").write_text("#!/bin/sh\nexit 1\n")
            (folder / "bin" / "unshare").chmod(0o755)
            forget()
        walk.site = dataclasses.replace(walk.site, paths=paths, exports=exports)
        try:
            walk.stage.submit(GLUTTON.format(files=25, rest=30 if exports else 0), gpus=["H100"])
            with walk.daemon():
                (run,) = walk.wait_ended()
        finally:
            forget()
        (row,) = walk.stage.rows("SELECT detail FROM verdict")
        notes = " ".join(row["detail"]["isolation"]["notes"])
    assert (run["state"], run["verdict"]) == ("scored", "error"), run
    if bound == "memory":
        assert "memory of 30 MiB" in notes
        log = row["detail"]["log"]
        assert log.count("STOPPED by No space left on device") == 2, log
        assert int(log.partition("WROTE ")[2].split()[0]) <= 30, log
    else:
        assert "ended beyond 30 MiB" in notes
        assert "more than 30 MiB" in run["verdict_reason"]
