"""The shipped CPU recipe, built for real on a base with torch, and a torch problem judged in it through Slurm.

As a directory always; packed into a SIF, which takes many minutes, only where KBSLURM_TEST_TORCH_IMAGE=1 asks for it.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
from pathlib import Path, PurePosixPath

import pytest

from kbslurm.daemon.clock import WallClock
from kbslurm.images import pins
from kbslurm.problems import loading
from tests.cluster.inside.site import site_at
from tests.cluster.inside.walk import Walk
from tests.contract.backend_suite import REPOSITORY
from tests.flow.stage import Stage

pytestmark = pytest.mark.cluster_options("--torch")
EXAMPLE = REPOSITORY / "examples" / "torch_gemm"
FOLDER = Path("/shared/torch-image")
USE = "import torch; print(float((torch.ones(4, 4) @ torch.ones(4, 4)).sum()))"


def built(name: str) -> pins.Pin:
    """The image of the shipped recipe by the command that a host types; what its lock then says of it."""
    FOLDER.mkdir(exist_ok=True)
    words = ("image", "build", "cpu", "--out", str(FOLDER / name), "--time-limit", "1500", "--json")
    base = ("--arg", "bootstrap=localimage", "--arg", "base=/opt/kb/images/torch")
    environ = {**os.environ, "APPTAINER_TMPDIR": str(FOLDER)}
    done = subprocess.run(["kbslurm", *words, *base], env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    pin = pins.read_lock(FOLDER / pins.LOCK)[name]
    assert json.loads(done.stdout)["digest"] == pin.digest
    return pin


def submission(name: str) -> str:
    lines = (EXAMPLE / "submissions" / name).read_text().splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("#!"))


def test_a_torch_problem_is_judged_in_the_image_of_the_cpu_recipe(database_url: str) -> None:
    # Given the recipe's image as a directory, pinned for the site
    pin = built("cpu")
    assert pin.digest.startswith("tree:")
    root = Path("/shared/torch-walk")
    site = site_at(root, memory="8G", more=f'image_digest = "{pin.digest}"\n')
    site = dataclasses.replace(site, paths=dataclasses.replace(site.paths, image_dir=PurePosixPath(FOLDER)))
    problem = loading.load(EXAMPLE)
    patient = dataclasses.replace(problem.limits, memory_bytes=4 << 30, test_s=180.0, ranked_s=240.0, total_s=900.0)
    stage = Stage.build(
        database_url,
        problem=dataclasses.replace(
            problem,
            limits=patient,
            benchmarks=problem.benchmarks[:1],
            budget=dataclasses.replace(problem.budget, launches=2),
        ),
        gpus=("H100",),
        clock=WallClock(),
    )
    try:
        # When one submission that is right and one that is wrong are judged on Slurm
        walk = Walk(stage=stage, site=site, url=database_url)
        stage.submit(submission("accepted/matmul.py"), mode="benchmark", gpus=("H100",))
        stage.submit(submission("wrong_answer/eight_bits.py"), by="eve", gpus=("H100",))
        with walk.daemon():
            runs = walk.wait_ended(2)
        # Then torch judged them both, and the result names the image that they ran in
        assert [(run["state"], run["verdict"]) for run in runs] == [("scored", "passed"), ("scored", "wrong")], runs
        for row in stage.rows("SELECT detail FROM verdict"):
            host = row["detail"]["host"]
            assert host["libraries"]["torch"], host
            assert host["image_digest"] == pin.digest
    finally:
        stage.close()


@pytest.mark.packing
def test_the_cpu_recipe_makes_a_sif_with_torch() -> None:
    built("cpu.sif")
    told = subprocess.run(
        ["apptainer", "--silent", "exec", "--containall", str(FOLDER / "cpu.sif"), "python3", "-Ic", USE],
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.strip() == "64.0"
