"""Trying a repository of problems by another Python, one that has torch."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ASKED = "KBSLURM_TORCH_PYTHON"
HINT = "What needs a library: make test-problems TORCH_PYTHON=/path/to/a/python that has it."


def begun_again(module: str) -> str:
    """Does it all over by the Python that was asked for, with our own libraries beside its; returns only if nothing
    has to be done by another, or with why it can't be."""
    asked = os.environ.get(ASKED, "")
    if not asked:
        return ""
    found = shutil.which(asked)
    if found is None:
        return f"TORCH_PYTHON: there is no {asked}."
    # the venv's own name: what it links to has other libraries
    python = os.path.abspath(found)
    if python == os.path.abspath(sys.executable):
        return ""
    environment = {**os.environ, ASKED: "", "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "eval"), *sys.path])}
    tried = subprocess.run(
        [python, "-c", "import torch, tests.problem_repository"],
        capture_output=True, text=True, check=False, cwd=ROOT, env=environment,
    )  # fmt: skip
    if tried.returncode:
        last = (tried.stderr.strip() or "it ended").splitlines()[-1]
        version = ".".join(map(str, sys.version_info[:2]))
        return f"TORCH_PYTHON: {asked} must have torch and be a Python {version} like the one in .venv: {last}"
    sys.stdout.flush()
    return os.execve(python, [python, "-m", module, *sys.argv[1:]], environment)
