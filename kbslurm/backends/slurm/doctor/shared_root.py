"""Whether the shared root is writable, has free space, is private, and creates folders and renames atomically."""

from __future__ import annotations

import secrets
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from kbslurm.backends.paths import make_folder, rename_folder
from kbslurm.domain.finding import Finding, caution, failed, passed
from kbslurm.domain.site import Site

RACES = 60
FREE_MB = 1024


def root_findings(site: Site) -> list[Finding]:
    """Whether the shared root is writable, has free space, is private, and creates folders and renames atomically."""
    root = Path(site.paths.shared_root)
    try:
        root.mkdir(parents=True, exist_ok=True)
        trial = root / f"doctor-{secrets.token_hex(6)}"
        make_folder(trial)
    except OSError as error:
        return [
            failed(
                "shared root",
                f"{root} can't be written: {error.strerror}",
                "Create it, for the service's account only.",
            )
        ]
    try:
        return [_room_finding(root), _privacy_finding(root), _mkdir_finding(trial), _rename_finding(trial)]
    finally:
        shutil.rmtree(trial, ignore_errors=True)


def _room_finding(root: Path) -> Finding:
    free_mb = shutil.disk_usage(root).free >> 20
    if free_mb < FREE_MB:
        return caution(
            "shared root", f"{root} has only {free_mb} MiB free", "Free some space: every run fails on a full disk."
        )
    return passed("shared root", f"{root} is writable, {free_mb >> 10} GiB free")


def _privacy_finding(root: Path) -> Finding:
    mode = root.stat().st_mode & 0o777
    if mode & 0o022:
        return failed("shared root's mode", f"{root} is writable by others ({mode:o})", f"chmod go-w {root}")
    return passed("shared root's mode", f"{mode:o}: attempts below it are 700 each")


def _mkdir_finding(trial: Path) -> Finding:
    """Four threads try to create the same folders: each must be created exactly once."""
    names = [trial / f"made-{n}" for n in range(RACES)]
    with ThreadPoolExecutor(4) as pool:
        won = sum(pool.map(lambda _: sum(map(made_by_us, names)), range(4)))
    if won == len(names):
        return passed("mkdir", f"{won} folders, each created once by one of four")
    return failed(
        "mkdir",
        f"{len(names)} folders were created {won} times: an attempt could run twice",
        "Use another file system for shared_root: this one breaks the claim of an attempt.",
    )


def made_by_us(folder: Path) -> bool:
    """Create this folder; returns whether it is new."""
    try:
        folder.mkdir()
    except FileExistsError:
        return False
    return True


def _rename_finding(trial: Path) -> Finding:
    old, new, full = trial / "old", trial / "new", trial / "full"
    old.write_text("old")
    new.write_text("new")
    new.replace(old)
    (full / "content").mkdir(parents=True)
    fresh = trial / "fresh"
    fresh.mkdir()
    if old.read_text() == "new" and not new.exists() and not rename_folder(fresh, full):
        return passed("rename", "replaces a file atomically, and never a folder with contents")
    return failed("rename", "doesn't behave like a local disk", "Use another file system for shared_root.")
