"""The list of crash points is what the code passes: none is forgotten, none is only a name."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kbslurm.observe.crash_points import (
    CRASH_POINTS,
    GITHUB_CRASH_POINTS,
    KEEPER_CRASH_POINTS,
    MODAL_CRASH_POINTS,
    OVERFLOW_CRASH_POINTS,
    RAY_CRASH_POINTS,
    SLURM_CRASH_POINTS,
    SLURM_KEEPER_CRASH_POINTS,
)

BY_BACKEND = {name: f"kbslurm/backends/{name}" for name in ("github", "local", "modal", "ray", "slurm")}


def test_every_crash_point_in_the_code_is_listed_and_every_listed_one_is_in_the_code(root: Path) -> None:
    found = []
    for file in sorted((root / "kbslurm").rglob("*.py")):
        found += re.findall(r'\bcrash_point\("([a-z_]+\.[a-z_]+)"\)', file.read_text())
    for backend, folder in BY_BACKEND.items():
        for file in sorted((root / folder).rglob("*.py")):
            steps = re.findall(r'(?:self\._?crash_point\(|\bcrash_point\(|\bsent=)"([a-z_]+)"\)', file.read_text())
            found += [f"{backend}.{step}" for step in steps]
    assert set(found) == {
        *CRASH_POINTS,
        *SLURM_CRASH_POINTS,
        *SLURM_KEEPER_CRASH_POINTS,
        *GITHUB_CRASH_POINTS,
        *MODAL_CRASH_POINTS,
        *RAY_CRASH_POINTS,
        *OVERFLOW_CRASH_POINTS,
        *KEEPER_CRASH_POINTS,
    }
    assert len(set(CRASH_POINTS)) == len(CRASH_POINTS)


@pytest.mark.parametrize(("wanted", "passes"), [("here", 1), ("here:3", 3), ("elsewhere", 4)])
def test_a_crash_point_kills_at_the_pass_that_was_asked_for(root: Path, wanted: str, passes: int) -> None:
    program = "from kbslurm.observe.crash_points import crash_point\n"
    program += "for n in range(4): print(n, flush=True); crash_point('here')"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "KBSLURM_PROBE": wanted},
        cwd=root,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert len(done.stdout.split()) == passes
    assert done.returncode == (0 if wanted == "elsewhere" else -signal.SIGKILL)
