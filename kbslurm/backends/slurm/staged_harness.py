"""The harness on the shared root: one read-only folder per digest, created atomically and precompiled."""

from __future__ import annotations

import compileall
import os
import secrets
import shutil
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from py_compile import PycInvalidationMode

from kbslurm.backends.paths import rename_folder
from kbslurm.flow.script import harness_digest, harness_files


class HarnessChanged(Exception):
    """The harness on disk is no longer the one that this process started with."""


def stage(eval_dir: Path, target: Path, *, digest: str = "") -> Path:
    """Put this harness at `target`; an existing one only gets a new time. OSError if it can't be written.

    With a digest, or the beginning of one, HarnessChanged if what was copied has another: a service that was upgraded
    while it ran would send jobs whose scripts name one harness to run another.
    """
    if (target / "__main__.py").is_file():
        with suppress(OSError):  # the time of its last use, for pruning
            os.utime(target)
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    building = target.with_name(f".{target.name}-{secrets.token_hex(4)}")
    try:
        for source in harness_files(eval_dir):
            placed = building / source.relative_to(eval_dir)
            placed.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, placed)
        if not harness_digest(building).startswith(digest):
            raise HarnessChanged
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


def prune(current: Path, attempts: Path, before_s: float) -> Collection[str]:
    """Remove harnesses other than `current` that weren't used since then and that no attempt's script names.

    Returns their names. The scripts are only read if one is old enough; an unreadable script keeps them all.
    """
    old = [
        entry.name
        for entry in list(os.scandir(current.parent))
        if entry.name.startswith(("eval-", ".eval-", ".old-eval-"))
        and entry.name != current.name
        and entry.is_dir(follow_symlinks=False)
        and entry.stat(follow_symlinks=False).st_mtime < before_s
    ]
    if not old:
        return ()
    try:
        scripts = [
            path.read_text(errors="replace")
            for entry in list(os.scandir(attempts))
            if entry.name.startswith("kb-")
            for path in sorted(Path(entry.path).iterdir())
            if path.suffix == ".sh"
        ]
    except OSError:
        return ()
    gone = [name for name in old if not any(name in script for script in scripts)]
    for name in gone:
        leaving = current.with_name(f".old-eval-{secrets.token_hex(8)}")
        current.with_name(name).rename(leaving)
        shutil.rmtree(leaving, ignore_errors=True)
    return gone
