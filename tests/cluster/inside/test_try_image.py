"""`kbslurm try --image` with the real Apptainer: what a job does, without Slurm."""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path

import pytest

from kbslurm.images import pins
from tests.command_line import CommandLine
from tests.contract.backend_suite import REPOSITORY

IMAGES = ("cpu", "cpu.sif")
PROBLEM = REPOSITORY / "examples/rowsoftmax"
SPY = """
import os


def custom_kernel(data):
    raise ValueError(" ".join([*sorted(os.listdir("/")), str(os.path.exists("/opt/kb"))]))
"""


@pytest.fixture
def kbslurm() -> CommandLine:
    place = Path("/tmp") / f"try-{secrets.token_hex(4)}"
    place.mkdir(mode=0o755)
    return CommandLine(cwd=place)


@pytest.mark.parametrize("image", IMAGES)
def test_judge_and_runners_are_in_the_image_as_in_a_job(kbslurm: CommandLine, image: str) -> None:
    before = {*os.listdir("/dev/shm")}
    place = Path("/opt/kb/images") / image
    file = PROBLEM / "submissions/accepted/by_row.py"
    said = kbslurm("try", str(PROBLEM), str(file), "--image", str(place), "--mode", "test", "--json")
    assert said.code == 0, said.err + said.out
    told = said.json()
    assert (told["verdict"], told["isolation"]["level"], told["isolation"]["means"]) == ("passed", 2, "apptainer")
    # And nothing of it is left
    assert {name for name in os.listdir("/dev/shm") if name.startswith("kb-")} <= before


def test_what_runs_there_sees_the_image_and_not_this_machine(kbslurm: CommandLine) -> None:
    (kbslurm.cwd / "spy.py").write_text(SPY)
    said = kbslurm("try", str(PROBLEM), "spy.py", "--image", "/opt/kb/images/cpu.sif", "--mode", "test", "--json")
    assert said.code == 3, said.err
    reason = said.json()["reason"]
    assert " link " in reason and " singularity " in reason and " False (" in reason, reason


def test_an_image_that_isnt_one_is_told_in_one_sentence(kbslurm: CommandLine) -> None:
    (kbslurm.cwd / "no.sif").write_bytes(b"not an image")
    file = PROBLEM / "submissions/accepted/by_row.py"
    said = kbslurm("try", str(PROBLEM), str(file), "--image", "no.sif", "--mode", "test", "--json")
    assert said.code == 6 and said.json()["verdict"] == "infrastructure", said.out
    assert pins.digest_of(kbslurm.cwd / "no.sif").startswith("sha256:")
    assert "Traceback" not in json.dumps(said.json())
