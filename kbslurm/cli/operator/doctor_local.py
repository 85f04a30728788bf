"""What `kbslurm doctor` looks at on this machine: Python, disk, database, daemon, isolation."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from kbslurm.config import shared_folders
from kbslurm.domain.finding import Finding, caution, failed, passed
from kbslurm.errors import KbslurmError

if TYPE_CHECKING:
    from kbslurm.config.settings import Config


TESTED = ((3, 11), (3, 14))
FREE_MB = 1024
PROBE_S = 120.0
OFF_S = 2.0
CORES_PER_RUN = 2


def local_findings(config: Config) -> list[Finding]:
    """This installation: Python, disk, database, daemon, and what local runs can be kept apart by."""
    return [
        python_finding(sys.version_info[:2]),
        configuration_finding(config),
        state_finding(config.state_dir),
        *database_findings(config),
        *backend_findings(config),
        *isolation_findings(config),
    ]


def python_finding(version: tuple[int, int]) -> Finding:
    """Whether this Python is one of those that the tests ran with."""
    text = ".".join(map(str, version))
    if TESTED[0] <= version <= TESTED[1]:
        return passed("Python", text)
    return caution("Python", f"{text} isn't one that was tested", "Use 3.11, 3.12, 3.13 or 3.14.")


def configuration_finding(config: Config) -> Finding:
    """Which kbslurm.toml holds."""
    if config.file is None:
        remedy = "Fine for a first look; a service wants a kbslurm.toml (docs/operate.md)."
        return caution("configuration", "no kbslurm.toml was found, so defaults hold", remedy)
    return passed("configuration", str(config.file))


def state_finding(folder: Path) -> Finding:
    """Whether the state folder can be written and has room."""
    place = folder
    while not place.exists() and place != place.parent:
        place = place.parent
    try:
        with tempfile.TemporaryDirectory(prefix=".kb-doctor-", dir=place):
            free_mb = shutil.disk_usage(place).free >> 20
    except OSError as error:
        remedy = "Give its owner write access, or set [daemon] state_dir."
        return failed("state folder", f"{folder} can't be written: {error.strerror}", remedy)
    if free_mb < FREE_MB:
        return caution("state folder", f"{folder} has {free_mb} MiB left", "Make room: a full disk stops every run.")
    return passed("state folder", f"{folder}, {free_mb >> 10} GiB left")


def database_findings(config: Config) -> Iterator[Finding]:
    """Whether the database answers, has this version's schema, agrees about the time, and a daemon leads."""
    from kbslurm import wiring
    from kbslurm.store import migrate

    try:
        with wiring.database(config) as url:
            state = migrate.check(url)
            if state is not migrate.Schema.CURRENT and (config.database_url or state is migrate.Schema.BEHIND):
                yield failed("database", f"its schema is {state.value}", "Run: kbslurm db upgrade")
                return
            if state is not migrate.Schema.CURRENT:
                yield passed("database", "embedded and empty; the first command that needs it fills it")
                return
            with wiring.opened_store(config, migrated=False) as store:
                yield passed("database", f"Postgres {store.server_version()} at {store.where}, schema current")
                yield clock_finding(_database_now(url))
                yield _leader_finding(next((line for line in store.leases.all() if line.name == "daemon"), None))
    except KbslurmError as error:
        yield failed("database", error.message, error.hint or "Look at DATABASE_URL, and whether Postgres runs.")


def _database_now(url: str) -> datetime:
    from kbslurm.store.connect import connect

    with connect(url) as connection:
        row = connection.execute("SELECT clock_timestamp() AS now").fetchone()
    assert row is not None
    found: datetime = row["now"]
    return found


def clock_finding(there: datetime) -> Finding:
    """This machine's clock against the database's."""
    off_s = (datetime.now(UTC) - there).total_seconds()
    if abs(off_s) > OFF_S:
        text = f"the database's clock differs by {off_s:.1f} s"
        return failed("clock", text, "Have both set by a time server: leases and deadlines count on it.")
    return passed("clock", f"agrees with the database's within {max(abs(off_s), 0.01):.2f} s")


def _leader_finding(leader: object) -> Finding:
    until: datetime | None = getattr(leader, "expires_at", None)
    if until is None or until < datetime.now(UTC):
        return caution("daemon", "none leads: nothing is launched or collected", "Start one: kbslurm up")
    return passed("daemon", f"{getattr(leader, 'holder', '')} leads")


def backend_findings(config: Config) -> Iterator[Finding]:
    """Whether there is anywhere to run, and whether this machine has the cores for its slots."""
    from kbslurm import wiring

    try:
        for found in wiring.sites(config):
            remedy = f"kbslurm doctor --site {found.name}"
            yield passed("site", f"{found.name}: {', '.join(found.gpus)} ({remedy} looks at it)")
    except KbslurmError as error:
        yield failed("sites", error.message, error.hint or "kbslurm site check says more.")
    slots, cores = sum(config.daemon.local.slots.values()), len(os.sched_getaffinity(0))
    if config.github.gpus:
        there = f"{config.github.repository}: {', '.join(config.github.gpus)}"
        yield passed("GitHub", f"{there} (kbslurm github check looks at it)")
    if not slots and not config.sites.use and not config.github.gpus and not config.modal.gpus:
        yield caution(
            "backends",
            "none is configured: nothing can run",
            "kbslurm site init, or below [daemon.local] in kbslurm.toml: slots = { H100 = 1 }",
        )
    if slots and slots * CORES_PER_RUN > cores:
        text = f"{slots} at once want {slots * CORES_PER_RUN} cores and there are {cores}: timings disturb each other"
        yield caution("local slots", text, f"Lower [daemon.local] slots to {max(1, cores // CORES_PER_RUN)}.")
    elif slots:
        yield passed("local slots", f"{slots} at once on {cores} cores")


def isolation_findings(config: Config) -> Iterator[Finding]:
    """What a run on this very machine would be kept apart by, tried for real."""
    if not config.daemon.local.slots:
        return
    try:
        done = subprocess.run(
            [sys.executable, "-I", str(shared_folders.eval_dir()), "--probe"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PROBE_S,
            check=False,
        )
        told = json.loads(done.stdout)
        level, means = int(told["level"]), str(told["means"])
    except (OSError, subprocess.TimeoutExpired, ValueError, KeyError, TypeError):
        yield failed(
            "isolation",
            "can't be tried: the harness doesn't start here",
            f"python3 -I {shared_folders.eval_dir()} --probe",
        )
        return
    wanted = config.policy.ranked_min_isolation
    text = f"level {level} ({means}) for runs on this machine"
    if level < wanted:
        missing = "; ".join(map(str, told.get("notes", ()))) or "user namespaces or seccomp"
        yield caution("isolation", f"{text}; a board wants {wanted} for a run to rank", f"Missing: {missing}.")
    else:
        yield passed("isolation", text)
