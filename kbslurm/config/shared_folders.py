"""The folders that aren't Python packages: in the checkout, or in the wheel's `_share`."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from kbslurm.errors import Misconfigured

Shared = Literal["alembic", "containers", "eval", "examples", "sbatch_templates", "site-configs"]

WORKFLOW = "kbslurm-run.yml"
PACKAGE = Path(__file__).resolve().parents[1]


def path(name: Shared) -> Path:
    """The folder with that name. Read-only: in an installation it belongs to the package."""
    folder = (checkout() or PACKAGE / "_share") / name
    if not folder.is_dir():
        raise Misconfigured(f"the folder {name}/ is missing from {folder.parent}", fix="Install kbslurm again.")
    return folder


def eval_dir() -> Path:
    """The harness as a program: `python3 -I <eval_dir> manifest.json`, with the same files here and in the wheel.

    In the wheel this is a second copy of `kbslurm_eval` next to its `__main__.py`, and this is the one that runs; the
    server only uses the importable package for its wire format.
    """
    return path("eval")


def workflow() -> Path:
    """The workflow that a host copies into the repository whose runners are used."""
    root = checkout()
    file = root / ".github" / "workflows" / WORKFLOW if root else PACKAGE / "_share" / WORKFLOW
    if not file.is_file():
        raise Misconfigured(f"the workflow {WORKFLOW} is missing from {file.parent}", fix="Install kbslurm again.")
    return file


def checkout() -> Path | None:
    """The root of the checkout that this package runs from, or None in an installation."""
    root = PACKAGE.parent
    return root if (root / "pyproject.toml").is_file() and (root / "eval").is_dir() else None
