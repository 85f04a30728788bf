"""Says whether a wheel holds all of the project and nothing else. `python wheel_contents.py WHEEL`."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

# Each of these begins the name of at least one file.
EXPECTED = (
    "kbslurm/__init__.py",
    "kbslurm/py.typed",
    "kbslurm/_share/alembic/env.py",
    "kbslurm/_share/alembic/versions/",
    "kbslurm/_share/containers/",
    "kbslurm/_share/eval/__main__.py",
    "kbslurm/_share/eval/kbslurm_eval/shared/wire.py",
    "kbslurm/_share/eval/keep.sh",
    "kbslurm/_share/eval/supervise.sh",
    "kbslurm/_share/examples/",
    "kbslurm/_share/kbslurm-run.yml",
    "kbslurm/backends/github/requirements.txt",
    "kbslurm/_share/sbatch_templates/base.sbatch.j2",
    "kbslurm/_share/site-configs/schema.json",
    "kbslurm_bot/__init__.py",
    "kbslurm_eval/shared/wire.py",
)
TOP_LEVEL = {"kbslurm", "kbslurm_bot", "kbslurm_eval"}
FORBIDDEN = ("__pycache__", "kbslurm/_share/alembic/__init__.py", "/tests/", "/.env", ".sif")


def complaints(names: list[str]) -> list[str]:
    """What is wrong with a wheel of these files, one sentence each."""
    found = [f"{expected} is missing" for expected in EXPECTED if not any(name.startswith(expected) for name in names)]
    found += [f"{name} does not belong there" for name in names if any(part in name for part in FORBIDDEN)]
    top = {name.split("/")[0] for name in names if ".dist-info/" not in name}
    return found + [f"{name} is an unexpected top-level name" for name in sorted(top - TOP_LEVEL)]


if __name__ == "__main__":
    with zipfile.ZipFile(Path(sys.argv[1])) as wheel:
        said = complaints(wheel.namelist())
    for sentence in said:
        print(f"wheel-check: {sentence}", file=sys.stderr)
    sys.exit(1 if said else 0)
