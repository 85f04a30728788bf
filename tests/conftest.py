"""Fixtures that every floor shares, and the closing lines: the count per floor, and what this machine lacks."""

from __future__ import annotations

import functools
import gc
import os
import shutil
import signal
import ssl
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from httpx._transports import default as default_transport

from kbslurm.store.embedded import Embedded
from tests import databases
from tests.services import closing_lines, in_ci, need, no_room

ROOT = Path(__file__).resolve().parent.parent
PATIENCE_S = 600
FLOORS = ("unit", "contract", "flow", "chaos", "golden", "architecture", "cluster", "gvisor")
# What only a special target collects: marker → the variable that the target sets.
SPECIAL = {
    "gpu": "KBSLURM_TEST_GPU",
    "live": "KBSLURM_TEST_LIVE",
    "matrix": "KBSLURM_SLURM_MATRIX",
    "pyslurm": "KBSLURM_PYSLURM_PYTHON",
    "torch": "KBSLURM_TORCH_PYTHON",
    "packing": "KBSLURM_TEST_TORCH_IMAGE",
    "faults": "KBSLURM_TEST_PACE",
}
SHARE = pytest.StashKey[str]()
OURS_TO_KEEP = ("KBSLURM_TEST_", "KBSLURM_CLUSTER_DIR", *SPECIAL.values())
OF_THE_USERS_OWN = (
    "DATABASE_URL",
    "DISCORD_TOKEN",
    "GITHUB_API_URL",
    "GITHUB_TOKEN",
    "KBSLURM_RUN_KEY",
    "MODAL_TOKEN_ID",
    "MODAL_TOKEN_SECRET",
    "POPCORN_ADMIN_TOKEN",
    "CLI_DISCORD_CLIENT_SECRET",
    "CLI_GITHUB_CLIENT_SECRET",
    "OIDC_CLIENT_SECRET",
    "PYTHONUNBUFFERED",  # most people have none, and what is lost in a buffer shows only without
)

hypothesis.settings.register_profile(
    "kbslurm",
    deadline=None,
    # The same examples on every run of CI: a find belongs into a pull request, not into somebody else's.
    derandomize=in_ci(),
    print_blob=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
    **({"database": None} if in_ci() else {}),
)
hypothesis.settings.load_profile("kbslurm")


# ---------------------------------------------------------------------------------------------------------- fixtures


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT


@pytest.fixture
def with_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Judges and their runners are started by the Python that has torch."""
    found = shutil.which(os.environ["KBSLURM_TORCH_PYTHON"])
    assert found is not None
    monkeypatch.setattr(sys, "executable", os.path.abspath(found))


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[databases.Server]:
    with databases.server() as running:
        yield running


@pytest.fixture(scope="session")
def template_database(postgres_server: databases.Server) -> str:
    """The name of a database at the newest revision: migrated once, copied by every test."""
    from kbslurm.store import migrate

    url = postgres_server.create()
    migrate.upgrade(url)
    return databases.name_of(url)


@pytest.fixture
def new_database_url(postgres_server: databases.Server) -> Iterator[Callable[[], str]]:
    """Make empty databases, as many as the test asks for."""
    made: list[str] = []

    def make() -> str:
        made.append(postgres_server.create())
        return made[-1]

    yield make
    for url in made:
        postgres_server.drop(url)


@pytest.fixture
def database_url(postgres_server: databases.Server, template_database: str) -> Iterator[str]:
    """A fresh database with kbslurm's schema and no rows, gone after the test."""
    url = postgres_server.create(template_database)
    yield url
    postgres_server.drop(url)


@pytest.fixture
def own_postgres() -> Iterator[Embedded]:
    """An embedded server that this test alone has, to be stopped in mid-walk and started again on its data_dir."""
    with databases.embedded() as started:
        yield started


# ------------------------------------------------------------------------------------------------------- environment


def pytest_configure(config: pytest.Config) -> None:
    """The developer's own configuration, database and secrets stay out of the tests. Without room none begins: a file
    that is mapped where none is left ends Python itself."""
    if why := no_room():
        raise pytest.UsageError(why)
    for name in list(os.environ):
        ours = name.startswith("KBSLURM_") and not name.startswith(OURS_TO_KEEP)
        if ours or name in OF_THE_USERS_OWN or name.startswith(("SLURM_", "SBATCH_", "PG")):
            del os.environ[name]
    config.stash[SHARE] = os.environ.pop("KBSLURM_TEST_SHARE", "")  # not for a pytest that a test starts
    os.environ["KBSLURM_TEST_PG_FAST"] = "1"
    os.environ["COLUMNS"] = "100"
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # as a shell without a terminal starts what ends with "&"
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.pluginmanager.register(Floors(), "kbslurm-floors")
    if config.option.durations:
        config.pluginmanager.register(Processor(config.option.durations), "kbslurm-processor")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """GPUs, real accounts and other Slurm versions are not services of `make test`: their own targets collect them. Of
    what is left, KBSLURM_TEST_SHARE=1/4 takes the tests whose name, as a number, leaves 1 when divided by 4."""
    kept: list[pytest.Item] = []
    left: list[pytest.Item] = []
    share, _, shares = config.stash[SHARE].partition("/")
    for item in items:
        special = [variable for marker, variable in SPECIAL.items() if item.get_closest_marker(marker)]
        wanted = all(os.environ.get(variable) for variable in special)
        if share:
            wanted = wanted and zlib.crc32(item.nodeid.encode()) % int(shares) == int(share)
        (kept if wanted else left).append(item)
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = kept


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """What a test is marked to need (services.needs), before its fixtures are made."""
    need(*(service for mark in item.iter_markers("needs") for service in mark.args))


# ------------------------------------------------------------------------------------------------------------ memory


def pytest_collection_finish() -> None:
    """What has been imported by now stays: the collector needn't look at it again in every test."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def pytest_runtest_logfinish() -> None:
    """The web framework's caches would keep the apps of some forty tests, which the collector then walks through again
    and again: two million objects, and two fifths of the tests' processor time."""
    for one in vars(sys.modules.get("fastapi.dependencies.models", object)).values():
        if hasattr(one, "cache_clear"):
            one.cache_clear()


# ------------------------------------------------------------------------------------------------- certificates

_http_clients: Any = default_transport
_read_certificates: Callable[..., ssl.SSLContext] = _http_clients.create_ssl_context


@functools.lru_cache(maxsize=8)
def _certificates(trust_env: bool, *named: str | None) -> ssl.SSLContext:
    return _read_certificates(trust_env=trust_env)


def _certificates_read_once(verify: Any = True, cert: Any = None, trust_env: bool = True) -> ssl.SSLContext:
    """Each of the tests' own clients, and each call without one, would read the list of authorities again, which takes
    50 ms of a processor. Whoever has certificates of their own gets what the library makes of them."""
    if verify is not True or cert is not None:
        return _read_certificates(verify=verify, cert=cert, trust_env=trust_env)
    return _certificates(trust_env, os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))


_http_clients.create_ssl_context = _certificates_read_once


# ---------------------------------------------------------------------------------------------------------- patience


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """A test that hangs fails, and the others go on. The cluster floor keeps its own time."""
    if _floor_of(item.nodeid) == "cluster":
        return (yield)

    def give_up(*_: object) -> None:
        raise TimeoutError(f"{item.nodeid} took more than {PATIENCE_S} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(PATIENCE_S)
    try:
        return (yield)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


# --------------------------------------------------------------------------------------------------------- processor


class Processor:
    """With --durations=N, the N tests that took most of a processor, beside pytest's own list of the slowest: on a busy
    machine those are the ones that waited. What a test left running, or what another process reaps, isn't in it."""

    def __init__(self, shown: int) -> None:
        self._shown = shown
        self._took_s: dict[str, float] = {}

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        before = sum(os.times()[:4])
        try:
            return (yield)
        finally:
            self._took_s[item.nodeid] = sum(os.times()[:4]) - before

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        longest = sorted(self._took_s.items(), key=lambda one: -one[1])[: self._shown]
        terminalreporter.section(f"{len(longest)} tests that took most of a processor")
        for nodeid, took_s in longest:
            terminalreporter.write_line(f"{took_s:7.2f} s  {nodeid}")
        terminalreporter.write_line(f"{sum(self._took_s.values()):7.0f} s  all {len(self._took_s)} tests")


# ------------------------------------------------------------------------------------------------------------ floors


class Floors:
    """Counts per floor, what is missing for what was skipped, and the last line of all: `N passed, M failed`, with
    `, K skipped` when there were some."""

    def __init__(self) -> None:
        self._outcomes: dict[str, str] = {}
        self._why: dict[str, str] = {}

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._outcomes[report.nodeid] = "failed"

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        before = self._outcomes.get(report.nodeid)
        if report.failed or before == "failed":
            self._outcomes[report.nodeid] = "failed"
        elif report.skipped:
            self._outcomes[report.nodeid] = "skipped"
            self._why[report.nodeid] = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
        elif report.when == "call":
            self._outcomes[report.nodeid] = "passed"

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section("floors")
        for floor in [*FLOORS, "elsewhere"]:
            count = Counter(outcome for nodeid, outcome in self._outcomes.items() if _floor_of(nodeid) == floor)
            if count:
                terminalreporter.write_line(f"{floor:<14}{_said(count)}")
        for line in closing_lines(self._why[one] for one, outcome in self._outcomes.items() if outcome == "skipped"):
            terminalreporter.write_line(line)

    def pytest_unconfigure(self, config: pytest.Config) -> None:
        reporter = config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None and not config.option.collectonly:
            reporter.write_line(_said(Counter(self._outcomes.values())))


def _floor_of(nodeid: str) -> str:
    parts = nodeid.split("/")
    return parts[1] if len(parts) > 2 and parts[1] in FLOORS else "elsewhere"


def _said(count: Counter[str]) -> str:
    text = f"{count['passed']} passed, {count['failed']} failed"
    return f"{text}, {count['skipped']} skipped" if count["skipped"] else text
