"""A keeper's folder below the site's shared root: its mailbox, and what it says of itself.

    ROOT/kbk-TOKEN/        0700  made whole: it appears with everything that opening a keeper puts there
        job_id             0600  the job that sbatch made of it
        claim/             0700  made by the job: a keeper runs at most once, whatever Slurm does with it
        mail/NAME          0600  an attempt that is handed over: its time limit in seconds
        taken/NAME         0600  moved there by the keeper: it starts the attempt, or closes it for good
        back/NAME          0600  moved there by us: the keeper never had it
        done/NAME          0600  srun's status, once nothing of that attempt is left on the node
        beat               0600  what the keeper says of itself, every few seconds
        drain              0600  written by us: no more work
        exit.json          0600  why it left; it takes no mail after that

A rename decides between keeper and service: exactly one of them has a mail in the end. See eval/keep.sh.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kbslurm.backends.paths import AttemptPaths, make_folder, put, read_capped, rename_folder, sync_folder, write_once
from kbslurm.domain.run import JobName

BEAT_CAP = 4096
FOLDERS = ("mail", "taken", "back", "done")
Where = Literal["mail", "taken", "back"]
WHERE: tuple[Where, ...] = ("mail", "taken", "back")  # in the order in which a mail can move


@dataclass(frozen=True, kw_only=True)
class KeeperFolder:
    """One keeper's folder. Everything raises OSError."""

    root: Path
    name: str

    @property
    def paths(self) -> AttemptPaths:
        """What it has in common with an attempt's: job_id, claim, log, exit.json."""
        return AttemptPaths(root=self.root, name=JobName(self.name))

    @property
    def dir(self) -> Path:
        return self.root / self.name

    @property
    def beat(self) -> Path:
        return self.dir / "beat"

    @property
    def drain(self) -> Path:
        return self.dir / "drain"

    def create(self) -> bool:
        """Make it, atomically. False: it already existed."""
        if self.paths.dir.exists():
            return False
        if not self.root.is_dir():
            self.root.parent.mkdir(parents=True, exist_ok=True)
            make_folder(self.root)
        building = self.root / f".new-{self.name}-{secrets.token_hex(4)}"
        for folder in ("", *FOLDERS):
            make_folder(building / folder)
        sync_folder(building)
        placed = rename_folder(building, self.dir)
        sync_folder(self.root)
        return placed

    def post(self, attempt: JobName, limit_s: int) -> None:
        """Put a mail there, whole, unless it is or was there."""
        if self.where(attempt) is not None:
            return
        fresh = self.dir / f".{attempt}-{secrets.token_hex(4)}"
        put(fresh, f"{limit_s}\n".encode(), 0o600)
        fresh.rename(self.dir / "mail" / attempt)
        sync_folder(self.dir / "mail")

    def where(self, attempt: JobName) -> Where | None:
        """Where this attempt's mail is; None: it was never posted here."""
        return next((where for where in WHERE if attempt in _names(self.dir / where)), None)

    def take_back(self, attempt: JobName) -> bool:
        """Take a mail back before the keeper does. False: it has it, or there is none."""
        try:
            (self.dir / "mail" / attempt).rename(self.dir / "back" / attempt)
        except FileNotFoundError:
            return False
        return True

    def is_done(self, attempt: JobName) -> bool:
        """Whether the keeper says that nothing of this attempt is left there."""
        return attempt in _names(self.dir / "done")

    def begin_drain(self) -> None:
        """Tell it to take no more work. Safe to repeat, and when its folder is gone."""
        try:
            write_once(self.drain, b"")
        except FileNotFoundError:
            return

    def said(self) -> bytes | None:
        """What it last said of itself, perhaps half written; None if it never said anything."""
        return read_capped(self.beat, BEAT_CAP)


def _names(folder: Path) -> set[str]:
    """Listing the folder makes a network file system look anew."""
    try:
        return {entry.name for entry in folder.iterdir()}
    except FileNotFoundError:
        return set()
