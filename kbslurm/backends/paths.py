"""The file layout of one attempt, and atomic writing.

Every backend that shares a disk with its jobs (local, slurm) uses this layout, one folder per attempt:

    ROOT/kb-TOKEN/         0700  made whole: it appears with everything that submitting puts there
        manifest.json      0400  what the harness is told
        key                0400  what seals the report; only the trusted half of the job reads it; both go at the end
        job.sh             0500  the rendered script, where the backend wants one
        order.json         0400  what a supervisor of ours is told, where the backend has one
        starting           0600  locked (flock) by whoever may still claim; see `may_still_start`
        claim/             0700  the right to run, taken once: by mkdir, or by renaming a filled folder to it
        claim/owner.json   0600  who took it
        out/               0700  the harness's own: report.json and heartbeat.json appear here
        out/checking       0600  1 while the judge looks at an answer of the submission's
        out/artifacts/     0700  what a profile left, made where the submission ran: bytes, never looked into
        scratch/           0700  working folder, home and temporary folder of the job
        elsewhere          0600  where the backend has it: Slurm said that another cluster took the job
        keeper.json        0600  where the backend has it: the keeper that it is handed over to, written before it is
        cancelled          0600  whoever claims after this stands here ends at once
        exit.json          0600  how it ended, once nothing of it is left
        log                0600  what the job printed, capped; for the operator only, it may hold secrets

Names that begin with a dot are unfinished or being removed and mean nothing. Writing raises plain OSError; `said` turns
one into a sentence for the operator.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, TypeVar

from kbslurm.domain.run import JobName
from kbslurm.errors import Invalid

T = TypeVar("T")
NAME = re.compile(r"kbk?-[A-Za-z0-9_-]{1,80}")
FOLDER_MODE = 0o700
FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
CLOSED = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})


@dataclass(frozen=True, kw_only=True)
class AttemptPaths:
    """The paths of one attempt. A name that could leave the root is refused."""

    EXIT: ClassVar[str] = "exit.json"
    OWNER: ClassVar[str] = "claim/owner.json"

    root: Path
    name: JobName

    def __post_init__(self) -> None:
        if NAME.fullmatch(self.name) is None:
            raise Invalid(
                f"{self.name!r} isn't a valid job name", hint="A job name is kb- followed by letters and digits."
            )

    def spelled(self, name: str) -> str:
        """One of these names as a string, for checking thousands: a Path costs more than the check."""
        return f"{self.root}/{self.name}/{name}"

    @property
    def dir(self) -> Path:
        return self.root / self.name

    @property
    def manifest(self) -> Path:
        return self.dir / "manifest.json"

    @property
    def key(self) -> Path:
        return self.dir / "key"

    @property
    def script(self) -> Path:
        return self.dir / "job.sh"

    @property
    def order(self) -> Path:
        return self.dir / "order.json"

    @property
    def starting(self) -> Path:
        return self.dir / "starting"

    @property
    def claim(self) -> Path:
        return self.dir / "claim"

    @property
    def owner(self) -> Path:
        return self.dir / self.OWNER

    @property
    def out(self) -> Path:
        return self.dir / "out"

    @property
    def report(self) -> Path:
        return self.out / "report.json"

    @property
    def artifacts(self) -> Path:
        return self.out / "artifacts"

    @property
    def checking(self) -> Path:
        return self.out / "checking"

    @property
    def heartbeat(self) -> Path:
        return self.out / "heartbeat.json"

    @property
    def scratch(self) -> Path:
        return self.dir / "scratch"

    @property
    def cancelled(self) -> Path:
        return self.dir / "cancelled"

    @property
    def elsewhere(self) -> Path:
        return self.dir / "elsewhere"

    @property
    def keeper(self) -> Path:
        return self.dir / "keeper.json"

    @property
    def exit(self) -> Path:
        return self.dir / self.EXIT

    @property
    def log(self) -> Path:
        return self.dir / "log"

    @property
    def secrets(self) -> tuple[Path, ...]:
        """What isn't needed after the end and other jobs must never read: hidden cases, seeds, the key."""
        return (self.manifest, self.key)

    def forget_secrets(self) -> None:
        """Remove them once the claim is taken and the job isn't running. The database can recreate them."""
        for path in self.secrets:
            path.unlink(missing_ok=True)

    def create(self, *, manifest: str, key: bytes, script: str | None = None, order: bytes | None = None) -> bool:
        """Make the folder with all its contents, atomically. False: it already existed and is left as it is."""
        files = {
            self.manifest.name: (manifest.encode(), 0o400),
            self.key.name: (key, 0o400),
            self.starting.name: (b"", 0o600),
        }
        if script is not None:
            files[self.script.name] = (script.encode(), 0o500)
        if order is not None:
            files[self.order.name] = (order, 0o400)
        return self._build((self.out.name, self.scratch.name), files)

    def forbid(self, owner: bytes) -> bool:
        """Make the folder of an attempt that must never start: cancelled and claimed. False: it already existed."""
        return self._build((self.claim.name,), {self.cancelled.name: (b"", 0o600), self.OWNER: (owner, 0o600)})

    def _build(self, folders: Sequence[str], files: Mapping[str, tuple[bytes, int]]) -> bool:
        if self.dir.exists():
            return False
        building = self.root / f".new-{self.name}-{secrets.token_hex(4)}"
        try:
            for folder in ("", *folders):
                make_folder(building / folder)
            for name, (data, mode) in files.items():
                put(building / name, data, mode)
            sync_folder(building)
            placed = rename_folder(building, self.dir)
        except OSError:
            shutil.rmtree(building, ignore_errors=True)
            raise
        if not placed:
            shutil.rmtree(building, ignore_errors=True)
        sync_folder(self.root)
        return placed

    def take_claim(self, owner: bytes) -> bool:
        """Take the claim together with the owner's record, atomically. False: it is taken, permanently."""
        filled = self.dir / f".claim-{secrets.token_hex(4)}"
        make_folder(filled)
        put(filled / self.owner.name, owner, 0o600)
        taken = rename_folder(filled, self.claim)
        if not taken:
            shutil.rmtree(filled, ignore_errors=True)
        return taken

    @contextlib.contextmanager
    def about_to_start(self) -> Iterator[int]:
        """Hold the lock that shows that someone may still claim. A process that inherits this descriptor keeps holding
        it."""
        fd = os.open(self.starting, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_SH)
            yield fd
        finally:
            os.close(fd)

    def may_still_start(self) -> bool:
        """Whether a living process holds that lock. The kernel releases it when the last holder dies."""
        try:
            fd = os.open(self.starting, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(fd)
        return False


def make_folder(path: Path) -> None:
    """Make a folder for the owner only, whatever the umask."""
    path.mkdir(FOLDER_MODE)
    path.chmod(FOLDER_MODE)


def open_up(path: Path) -> None:
    """Restore our access to our folder, whatever was done to its mode. Links are never followed; foreign files are left
    alone."""
    with contextlib.suppress(OSError):
        fd = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.chmod(f"/proc/self/fd/{fd}", FOLDER_MODE)  # noqa: PTH101 - a descriptor without rights has no fchmod
        finally:
            os.close(fd)


def in_spite_of_locks(paths: AttemptPaths, look: Callable[[], T]) -> T:
    """Check; if that is forbidden, restore access to the attempt's own folders and check again.

    An unisolated submission runs as our user and can lock its folder; no attempt may hold up the others that way.
    """
    try:
        return look()
    except PermissionError:
        for folder in (paths.dir, paths.out, paths.artifacts, paths.claim):
            open_up(folder)
        return look()


def is_there(path: Path) -> bool:
    """Whether something exists at this path. OSError if that can't be determined: from Python 3.14 on Path.exists
    returns False then, but unreadable isn't missing."""
    try:
        path.stat()
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            return False
        raise
    return True


def rename_folder(source: Path, target: Path) -> bool:
    """Move a filled folder to a name, if only an empty folder is there."""
    try:
        source.rename(target)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            return False
        raise
    return True


def put(path: Path, data: bytes, mode: int) -> None:
    """Write a new file and sync it to disk. For folders that nobody reads yet."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, mode)
    with os.fdopen(fd, "wb") as file:
        os.fchmod(fd, mode)
        file.write(data)
        file.flush()
        os.fsync(fd)


def write_atomically(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Write this file atomically."""
    fresh = path.with_name(f".{path.name}-{secrets.token_hex(4)}")
    try:
        put(fresh, data, mode)
        fresh.replace(path)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def write_once(path: Path, data: bytes, mode: int = 0o600) -> bool:
    """Like `write_atomically`, but the first writer wins. False: the file already exists."""
    fresh = path.with_name(f".{path.name}-{secrets.token_hex(4)}")
    try:
        put(fresh, data, mode)
        os.link(fresh, path)
    except FileExistsError:
        return False
    finally:
        fresh.unlink(missing_ok=True)
    sync_folder(path.parent)
    return True


def sync_folder(path: Path) -> None:
    """Sync the folder's entries to disk, if the file system supports it."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    finally:
        os.close(fd)


def read_capped(path: Path | str, cap: int) -> bytes | None:
    """The bytes of a regular file of at most `cap` bytes; None if there is none.

    A job can put anything at a path that we read: a link, a pipe, an endless file. None of these is followed, waited
    for or read.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO):
            return None
        raise
    try:
        looks = os.fstat(fd)
        if not stat.S_ISREG(looks.st_mode) or looks.st_size > cap:
            return None
        data = b""
        # Read one byte more than allowed, since it may have grown.
        while chunk := os.read(fd, min(cap + 1 - len(data), 1 << 20)):
            data += chunk
            if len(data) > cap:
                return None
        return data
    finally:
        os.close(fd)


def read_artifacts(folder: Path, names: Sequence[str], cap: int) -> dict[str, bytes]:
    """The files with these names that exist, are regular, and have at most `cap` bytes."""
    found = {name: read_capped(folder / name, cap) for name in names if "/" not in name and name not in (".", "..")}
    return {name: data for name, data in found.items() if data is not None}


def said(error: OSError, where: Path, what: str = "the state folder") -> tuple[str, str]:
    """A failed read or write, for competitors and operators: the sentence and the next step. `what`: the folder in
    their terms, as "the service's folder on the cluster"."""
    if error.errno in FULL:
        return f"the disk of {what} {where} is full", "Free some space there; no half-written files were left."
    if error.errno in CLOSED:
        return f"{what} {where} can't be written", "Give its owner write access, or choose another folder."
    return f"{what} {where} can't be used: {error.strerror or error}", "Check that the folder exists."
