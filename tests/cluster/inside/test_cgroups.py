"""A cluster whose jobs are in control groups: memory, devices and processes are limited by the kernel."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from kbslurm.backends.paths import AttemptPaths
from kbslurm.backends.slurm import evidence
from kbslurm.backends.slurm.reader import JobRow, Phase, ending_of
from kbslurm.daemon.clock import WallClock
from kbslurm.domain.run import Ending, JobName
from tests.cluster.inside.test_doctor import WAIT, doctor, grades, roomy, written
from tests.cluster.inside.walk import example
from tests.flow.stage import Stage

pytestmark = pytest.mark.cluster_options("--cgroups")

OPENS = """#!/bin/sh
for device in /dev/kbgpu-h100-*; do
    python3 -c 'import errno, os, sys
try: os.open(sys.argv[1], os.O_RDONLY)
except OSError as error: print(sys.argv[1][-1], errno.errorcode[error.errno])' "$device"
done
echo "mine: $SLURM_JOB_GPUS"
"""
HUNGRY = """#!/bin/sh
python3 -c 'held = bytearray(400 << 20); print("it had room")'
echo "ended with $?"
"""


def test_a_job_reaches_its_own_devices_only() -> None:
    """The stand-ins have no driver: opening one's own ends in ENXIO, another's is refused before that."""
    folder = Path("/shared/cgroups")
    folder.mkdir(exist_ok=True)
    (folder / "opens.sh").write_text(OPENS)
    argv = ["sbatch", "-W", "-p", "gpu-h100", "--gres=gpu:h100:1", "--mem=100M", f"--output={folder}/out"]
    subprocess.run([*argv, str(folder / "opens.sh")], check=True, timeout=120, capture_output=True)
    *told, mine = (folder / "out").read_text().splitlines()
    own = mine.removeprefix("mine: ")
    assert told == [f"{number} {'ENXIO' if str(number) == own else 'EPERM'}" for number in range(3)]


def test_doctor_finds_nothing_missing_and_level_three_is_achieved(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", database_url)
    stage = Stage.build(database_url, gpus=("H100",), clock=WallClock(), board="plain")
    stage.store.boards.add("strict", example(), gpus=["A100"], min_isolation=3, now=stage.clock.now())
    stage.close()
    folder = Path("/shared/doctor/grouped")
    code, found = doctor(written(folder, roomy(folder)), "--live", *WAIT)
    assert code == 0, found
    assert grades(found, "FAIL") == set(), found
    for name in ("device isolation", "memory limit"):
        assert found["", name]["grade"] == "PASS", found["", name]
    assert "control group" in found["", "memory limit"]["text"]
    for gpu in ("H100", "A100"):
        assert "control group" in found[gpu, "memory on the node"]["text"]
        assert found[gpu, "memory on the node"]["grade"] == "PASS"
        achieved = found[gpu, "isolation achieved"]
        assert (achieved["grade"], achieved["text"][:7]) == ("PASS", "level 3"), achieved


def test_what_the_kernel_ends_for_its_memory_is_told_by_slurm_and_read_by_us() -> None:
    paths = AttemptPaths(root=Path("/shared"), name=JobName("kb-hungry"))
    paths.dir.mkdir()
    (paths.dir / "job.sh").write_text(HUNGRY)
    argv = ["sbatch", "-W", "--parsable", "--mem=100M", f"--output={paths.log}", str(paths.dir / "job.sh")]
    done = subprocess.run(argv, timeout=120, capture_output=True, text=True, check=False)
    log = paths.log.read_text()
    assert "it had room" not in log and "ended with 137" in log
    assert evidence.slurm_said_memory(paths), log
    told = ["sacct", "-n", "-X", "-P", "-o", "State", "-j", done.stdout.strip()]
    give_up = time.monotonic() + 60
    while subprocess.run(told, capture_output=True, text=True, check=False).stdout.strip() != "OUT_OF_MEMORY":
        assert time.monotonic() < give_up, "sacct doesn't say so"
        time.sleep(0.2)
    row = JobRow(id="1", name="kb-hungry", state="OUT_OF_MEMORY")
    assert (row.phase, ending_of(row.state, claimed=True)) == (Phase.ENDED, Ending.MEMORY)
