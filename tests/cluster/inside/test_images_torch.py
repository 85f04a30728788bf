"""The shipped CPU recipe, built for real on a base with torch: 1.5 GB, only where KBSLURM_TEST_TORCH_IMAGE=1 asks."""

from __future__ import annotations

import os
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kbslurm import images, share
from kbslurm.domain.finding import Grade
from kbslurm.images import Maker

if os.environ.get("KBSLURM_TEST_TORCH_IMAGE") != "1" and os.environ.get("KBSLURM_TEST_INSIDE") != "1":
    pytest.skip("KBSLURM_TEST_TORCH_IMAGE=1 asks for it", allow_module_level=True)

pytestmark = pytest.mark.cluster_options("--torch")
USE = "import torch; print(float((torch.ones(4, 4) @ torch.ones(4, 4)).sum()))"


@pytest.mark.parametrize("name", ["cpu", "cpu.sif"])
def test_the_cpu_recipe_makes_an_image_with_torch(name: str) -> None:
    folder = Path("/shared/torch-image")
    folder.mkdir(exist_ok=True)
    recipe = images.read_recipe(share.path("containers") / "cpu.def")
    maker = Maker(timeout_s=1200, environ={**os.environ, "APPTAINER_TMPDIR": str(folder)})
    base = {"bootstrap": "localimage", "base": "/opt/kb/images/torch"}
    images.build(recipe, folder / name, maker, now=datetime.now(UTC), arguments=base)
    assert images.verify(folder / name, maker)[0].grade is Grade.PASS
    told = subprocess.run(
        ["apptainer", "--silent", "exec", "--containall", str(folder / name), "python3", "-Ic", USE],
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.strip() == "64.0"
