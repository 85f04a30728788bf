"""A small problem of each format that can be imported, written by us: imported, and really judged. What is right
passes, and what is wrong is wrong. The parts that an import adds for three of them are made with torch, as their own
problems are; only reference-kernels has problems without."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.command_line import CommandLine

ROOT = Path(__file__).resolve().parents[2]
COLLECTIONS = ROOT / "tests/collections"


@dataclass(frozen=True, kw_only=True)
class Format:
    """One format: which problem of our collection is judged, an answer to it, what makes it wrong, and one that isn't
    in the format's shape."""

    folder: str
    only: str
    right: str
    turned: tuple[str, str]
    odd: str = "def other(x):\n    return x\n"
    odd_says: str


REFERENCE_KERNELS = Format(
    folder="reference_kernels",
    only="double",
    right="def custom_kernel(data):\n    sign, numbers = data\n    return [2 * sign.value * one for one in numbers]\n",
    turned=("2 *", "3 *"),
    odd_says="custom_kernel",
)
WITH_TORCH = {
    "kernelbench": Format(
        folder="kernelbench",
        only="Scale_rows",
        right="from model import Model\n\n\nclass ModelNew(Model):\n"
        "    def forward(self, x):\n        return self.weight * x\n",
        turned=("self.weight * x", "self.weight + x"),
        odd_says="defines no class ModelNew",
    ),
    "flashinfer-bench": Format(
        folder="flashinfer",
        only="pick",
        right="def run(x, scale, rows, y):\n    y.copy_(x[rows.long()] * scale)\n",
        turned=("rows.long()", "rows.long() - 1"),
        odd_says="defines no function run",
    ),
    "tritonbench": Format(
        folder="tritonbench",
        only="shifted",
        right="def shifted(x, by=1.0):\n    return by + x\n",
        turned=("by + x", "1.0 + x"),  # right for the first call of the two that its test makes
        odd_says="defines no function shifted",
    ),
}


def judged(collection: str, told: Format, place: Path, python: str | None) -> dict[str, dict[str, Any]]:
    """What `try` says of each of the three submissions to the imported problem."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*map(str, (ROOT, ROOT / "eval")), *sys.path])}

    def kbslurm(*words: str) -> dict[str, Any]:
        if python is None:
            return dict(CommandLine(cwd=place)(*words, "--json").json())
        done = subprocess.run(
            [python, "-m", "kbslurm", *words, "--json"],
            capture_output=True, text=True, check=False, cwd=place, env=environment,
        )  # fmt: skip
        return dict(json.loads(done.stdout))

    words = ("problem", "import", collection, str(COLLECTIONS / told.folder), "--only", told.only, "--out", "made")
    assert kbslurm(*words)["counts"] == {"new": 1}
    (problem,) = (place / "made").iterdir()
    found = {}
    for name, source in (("right", told.right), ("wrong", told.right.replace(*told.turned)), ("odd", told.odd)):
        (place / f"{name}.py").write_text(source)
        found[name] = kbslurm("try", str(problem), f"{name}.py", "--mode", "test")
    return found


def check(found: dict[str, dict[str, Any]], says: str) -> None:
    reasons = {name: one["reason"] for name, one in found.items()}
    assert {name: one["verdict"] for name, one in found.items()} == {
        "right": "passed", "wrong": "wrong", "odd": "error"
    }, reasons  # fmt: skip
    assert says in reasons["odd"]


def test_an_imported_problem_of_reference_kernels_is_judged(tmp_path: Path) -> None:
    check(judged("reference-kernels", REFERENCE_KERNELS, tmp_path, None), REFERENCE_KERNELS.odd_says)


@pytest.mark.torch
@pytest.mark.parametrize("collection", WITH_TORCH)
def test_an_imported_problem_of_each_other_format_is_judged(tmp_path: Path, collection: str) -> None:
    python = shutil.which(os.environ["KBSLURM_TORCH_PYTHON"])
    assert python is not None
    told = WITH_TORCH[collection]
    check(judged(collection, told, tmp_path, python), told.odd_says)
