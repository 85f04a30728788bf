"""Which collection a checkout is, so that it is tried as what an import makes of it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from kbslurm.problems.folder import TASK_FILES
from kbslurm.problems.importing.collections import COLLECTIONS

AS_IT_IS = "none"
REMOTE = re.compile(r"[/:]reference-kernels(\.git)?/?$", re.MULTILINE)
SETS = ("amd", "amd_distributed", "bioml", "helion", "nvidia", "pmpp", "pmpp_v2", "princeton2026")


def recognised(root: Path) -> str:
    """The collection's name; empty if these are a repository's own problems, in our format."""
    if any(True for name in TASK_FILES for _ in root.rglob(name)):
        known = sum((root / "problems" / f"{name}.yaml").is_file() for name in SETS)
        return "reference-kernels" if known > 1 or REMOTE.search(_remotes(root)) else ""
    found = [name for name, problems in COLLECTIONS.items() if next(problems(root.resolve()), None) is not None]
    return found[0] if len(found) == 1 else ""


def _remotes(root: Path) -> str:
    """The address of each, if this folder is the top of a repository."""
    if not (root / ".git").exists():
        return ""
    argv = ["git", "-c", f"safe.directory={root.resolve()}", "-C", str(root)]
    argv += ["config", "--get-regexp", r"remote\..*\.url"]
    return subprocess.run(argv, capture_output=True, text=True, check=False).stdout
