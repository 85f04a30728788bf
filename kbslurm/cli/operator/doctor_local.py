"""What `kbslurm doctor` checks on this machine: Python, disk, database, daemon, isolation."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from kbslurm.cli.service_in_use import InUse, in_use
from kbslurm.config import shared_folders
from kbslurm.domain.finding import Finding, caution, failed, passed
from kbslurm.errors import KbslurmError
from kbslurm.ports import TICKS

if TYPE_CHECKING:
    from kbslurm.config.settings import Config
    from kbslurm.store.views import LeaseState


TESTED = ((3, 11), (3, 14))
FREE_MB = 1024
PROBE_S = 120.0
OFF_S = 2.0
CORES_PER_RUN = 2


def local_findings(config: Config) -> list[Finding]:
    """This installation: Python, disk, database, daemon, and the isolation of local runs."""
    return [
        python_finding(sys.version_info[:2]),
        configuration_finding(config),
        state_finding(config.state_dir),
        *database_findings(config),
        *backend_findings(config),
        *isolation_findings(config),
    ]


def python_finding(version: tuple[int, int]) -> Finding:
    """Whether this Python version has been tested."""
    text = ".".join(map(str, version))
    if TESTED[0] <= version <= TESTED[1]:
        return passed("Python", text)
    return caution("Python", f"{text} hasn't been tested", "Use 3.11, 3.12, 3.13 or 3.14.")


def configuration_finding(config: Config) -> Finding:
    """Which kbslurm.toml is in effect."""
    if config.file is None:
        remedy = "Fine for a first look; a service needs a kbslurm.toml (docs/operate.md)."
        return caution("configuration", "no kbslurm.toml found; using defaults", remedy)
    return passed("configuration", str(config.file))


def state_finding(folder: Path) -> Finding:
    """Whether the state folder is writable and has free space."""
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
        return caution(
            "state folder", f"{folder} has only {free_mb} MiB free", "Free some space: a full disk stops every run."
        )
    return passed("state folder", f"{folder}, {free_mb >> 10} GiB free")


def database_findings(config: Config) -> Iterator[Finding]:
    """Whether the database is reachable, has the right schema, agrees about the time, and a daemon is leading."""
    from kbslurm import wiring
    from kbslurm.store import migrate

    if (service := in_use()) is not None:
        yield service_finding(service)
        return
    try:
        with wiring.database(config) as url:
            state = migrate.check(url)
            if state is not migrate.Schema.CURRENT and (config.database_url or state is migrate.Schema.BEHIND):
                yield failed("database", f"its schema is {state.value}", "Run: kbslurm db upgrade")
                return
            if state is not migrate.Schema.CURRENT:
                yield passed("database", "embedded and empty; the first command that needs it sets it up")
                return
            with wiring.opened_store(config, migrated=False) as store:
                yield passed("database", f"Postgres {store.server_version()} at {store.where}, schema current")
                yield clock_finding(_database_now(url))
                yield _leader_finding({line.name: line for line in store.leases.all()})
    except KbslurmError as error:
        yield failed("database", error.message, error.hint or "Check DATABASE_URL, and that Postgres is running.")


def service_finding(service: InUse) -> Finding:
    """Whether the service that commands use here answers, and knows us."""
    from kbslurm.cli.competitor.connect import reached

    try:
        with reached(service.url, service.token) as client:
            person = client.me()
    except KbslurmError as error:
        return failed("service", f"{service.url}: {error.message}", error.hint or "Run: kbslurm login")
    return passed("service", f"{service.url}, signed in as {person.name} ({person.role}); no database is used here")


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
        return failed("clock", text, "Synchronise both with a time server: leases and deadlines depend on it.")
    return passed("clock", f"agrees with the database's within {max(abs(off_s), 0.01):.2f} s")


def _leader_finding(leases: Mapping[str, LeaseState]) -> Finding:
    leader, ticks = leases.get("daemon"), leases.get(TICKS)
    now = datetime.now(UTC)
    if leader is not None and leader.expires_at > now:
        return passed("daemon", f"{leader.holder} is leading")
    if ticks is not None and ticks.expires_at > now:
        return passed("daemon", f"none; kbslurm tick does its work, last at {ticks.beat_at:%H:%M:%S} UTC")
    return caution("daemon", "none is leading: nothing is launched or collected", "Start one: kbslurm up")


def backend_findings(config: Config) -> Iterator[Finding]:
    """Whether there is anywhere to run, and whether this machine has enough cores for its slots."""
    from kbslurm import wiring

    try:
        for found in wiring.sites(config):
            remedy = f"kbslurm doctor --site {found.name}"
            yield passed("site", f"{found.name}: {', '.join(found.gpus)} (check it with: {remedy})")
    except KbslurmError as error:
        yield failed("sites", error.message, error.hint or "Run kbslurm site check for details.")
    slots, cores = sum(config.daemon.local.slots.values()), len(os.sched_getaffinity(0))
    if config.github.gpus:
        there = f"{config.github.repository}: {', '.join(config.github.gpus)}"
        yield passed("GitHub", f"{there} (check it with: kbslurm github check)")
    for name, cluster in config.ray.items():
        if cluster.gpus:
            there = f"{name} at {cluster.url}: {', '.join(cluster.gpus)}"
            yield passed("Ray", f"{there} (check it with: kbslurm ray check {name})")
    elsewhere = config.github.gpus or config.modal.gpus or any(cluster.gpus for cluster in config.ray.values())
    if not slots and not config.sites.use and not elsewhere:
        yield caution(
            "backends",
            "none is configured: nothing can run",
            "Run kbslurm site init, or set in kbslurm.toml below [daemon.local]: slots = { H100 = 1 }",
        )
    if slots and slots * CORES_PER_RUN > cores:
        text = (
            f"{slots} runs at once need {slots * CORES_PER_RUN} cores, but there are {cores}: timings will be disturbed"
        )
        yield caution("local slots", text, f"Lower [daemon.local] slots to {max(1, cores // CORES_PER_RUN)}.")
    elif slots:
        yield passed("local slots", f"{slots} at once on {cores} cores")


def isolation_findings(config: Config) -> Iterator[Finding]:
    """The isolation of a run on this machine, actually tried out."""
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
            "can't be tested: the harness doesn't start here",
            f"python3 -I {shared_folders.eval_dir()} --probe",
        )
        return
    wanted = config.policy.ranked_min_isolation
    text = f"level {level} ({means}) for runs on this machine"
    if level < wanted:
        missing = "; ".join(map(str, told.get("notes", ()))) or "user namespaces or seccomp"
        yield caution("isolation", f"{text}; boards require level {wanted} for a run to rank", f"Missing: {missing}.")
    else:
        yield passed("isolation", text)
