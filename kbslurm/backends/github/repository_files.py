"""What the host's repository must contain: the workflow, the runner program, the supervisor and the harness."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from kbslurm.config import shared_folders
from kbslurm.errors import Invalid
from kbslurm.flow.script import harness_files

WORKFLOW_PATH = ".github/workflows/kbslurm-run.yml"
FOLDER = "kbslurm"


def files(eval_dir: Path) -> dict[str, bytes]:
    """Every file that belongs there, by its path in the repository."""
    here = Path(__file__).parent
    found = {
        WORKFLOW_PATH: shared_folders.workflow().read_bytes(),
        f"{FOLDER}/carry.py": (here / "runner_program.py").read_bytes(),
        f"{FOLDER}/requirements.txt": (here / "requirements.txt").read_bytes(),
        f"{FOLDER}/supervise.py": (here.parent / "local" / "supervise.py").read_bytes(),
    }
    for path in harness_files(eval_dir):
        found[f"{FOLDER}/eval/{path.relative_to(eval_dir).as_posix()}"] = path.read_bytes()
    return found


def install(folder: Path, eval_dir: Path) -> list[str]:
    """Write them into a working copy; returns those that were added, changed or removed. Nothing else is touched, and
    no symbolic link in the repository is followed."""
    if not (folder / ".git").exists():
        raise Invalid(f"{folder} isn't a working copy of a repository", hint="Clone the repository there first.")
    wanted = files(eval_dir)
    for name in wanted:
        _check_unlinked(folder, PurePosixPath(name))
    changed = []
    for name, data in wanted.items():
        path = folder / name
        if path.is_file() and path.read_bytes() == data:
            continue
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o666)
            with os.fdopen(fd, "wb") as file:
                file.write(data)
        except OSError as error:
            raise Invalid(f"{path} can't be written: {error.strerror}", hint="Check what is in the way.") from None
        changed.append(name)
    for path in sorted((folder / FOLDER / "eval").rglob("*.py")):
        name = path.relative_to(folder).as_posix()
        if name not in wanted:
            path.unlink()
            changed.append(name)
    return changed


def _check_unlinked(folder: Path, name: PurePosixPath) -> None:
    """No part of the path to this file may be a link: its target isn't in the repository."""
    for part in (*reversed(name.parents), name):
        if (folder / part).is_symlink():
            raise Invalid(
                f"{folder / part} is a symbolic link, so nothing is written through it",
                hint="Remove it from the working copy (git rm), and run this again.",
            )


def blob_sha(data: bytes) -> str:
    """The git object name of these bytes."""
    return hashlib.sha1(f"blob {len(data)}\0".encode() + data, usedforsecurity=False).hexdigest()


def listed(tree: Any) -> dict[str, str]:
    """The git object name of every file in the API's tree answer."""
    rows = tree.get("tree") if isinstance(tree, Mapping) else None
    return {str(one.get("path")): str(one.get("sha")) for one in rows or () if one.get("type") == "blob"}


def differences(tree: Mapping[str, str], eval_dir: Path) -> list[str]:
    """The files of a repository, given by path and git object name, that differ from ours."""
    wanted = {name: blob_sha(data) for name, data in files(eval_dir).items()}
    strange = {name for name in tree if name.startswith(f"{FOLDER}/eval/") and name.endswith(".py")} - set(wanted)
    return sorted({name for name, sha in wanted.items() if tree.get(name) != sha} | strange)
