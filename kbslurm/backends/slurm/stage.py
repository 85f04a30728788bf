"""The harness on the shared root: one read-only folder per digest, made whole or not at all, compiled beforehand."""

from __future__ import annotations

import compileall
import os
import secrets
import shutil
import sys
from pathlib import Path
from py_compile import PycInvalidationMode

from kbslurm.backends.paths import rename_folder


def stage(eval_dir: Path, target: Path) -> Path:
    """Have this harness at `target`; what is there already is left alone. OSError when it can't be written."""
    if (target / "__main__.py").is_file():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    building = target.with_name(f".{target.name}-{secrets.token_hex(4)}")
    try:
        for source in sorted(eval_dir.rglob("*.py")):
            placed = building / source.relative_to(eval_dir)
            placed.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, placed)
        compileall.compile_dir(
            building, quiet=2, force=True, invalidation_mode=PycInvalidationMode.UNCHECKED_HASH, stripdir=building
        )
        for path in (building, *building.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o444)
        rename_folder(building, target)
    finally:
        if building.exists():
            shutil.rmtree(building)
    return target


def compiled_for() -> str:
    """The interpreter that the compiled files are for; another one reads the sources."""
    return f"{sys.implementation.cache_tag}@{os.uname().machine}"
