"""What tests need from the machine. Each is there, or the tests that need it are skipped and the closing lines say how
to get it; in CI they fail instead."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import pytest

from kbslurm_eval.cage import landlock
from kbslurm_eval.device import driver
from kbslurm_eval.runner.profiled import found_program

NVCC_HOME = Path(__file__).resolve().parent.parent / ".nvcc" / "nvidia" / "cu13"
RAY = Path(__file__).resolve().parent.parent / ".ray" / "bin" / "ray"
SYSCTLS = Path("/proc/sys")
SYSTEM_PYTHON = "/usr/bin/python3"
NAMESPACES = "unshare --user --map-root-user --pid --fork --mount-proc --ipc --net"
# What turns user namespaces off, the value that does, and the one that turns them on again.
_SWITCHES = (
    ("user.max_user_namespaces", "0", "10000"),
    ("kernel.unprivileged_userns_clone", "0", "1"),  # Debian
    ("kernel.apparmor_restrict_unprivileged_userns", "1", "0"),  # Ubuntu, from 24.04 on
)
_MISSING, _POINTLESS = "missing here: ", "nothing to test here: "


@dataclass(frozen=True, kw_only=True)
class Service:
    """Something that a machine may have."""

    name: str
    why: str
    there: Callable[[], bool]
    packages: tuple[str, ...] = ()  # of Debian and Ubuntu
    otherwise: str = ""  # how to get it where no package brings it
    here: Callable[[], str] | None = None  # the same for this very machine; empty where nothing is known to help

    @property
    def how(self) -> str:
        """How to get it on any machine, for a document."""
        return self.otherwise or f"`sudo {_apt(self.packages)}`"

    @property
    def how_here(self) -> str:
        """How to get it on this machine, to be pasted into a shell; empty where nothing is known to help."""
        told = self.here() if self.here else self.how.replace("`", "")
        return told.replace("sudo ", "") if os.geteuid() == 0 else told


def _apt(packages: Iterable[str]) -> str:
    return f"apt-get install {' '.join(packages)}"


def _programs(*names: str) -> Callable[[], bool]:
    return lambda: all(shutil.which(name) for name in names)


@functools.cache
def _namespaces() -> bool:
    try:
        return subprocess.run([*NAMESPACES.split(), "true"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def _switched_on() -> str:
    for name, off, on in _SWITCHES:
        file = SYSCTLS.joinpath(*name.split("."))
        if file.exists() and file.read_text().strip() == off:
            return f"sudo sysctl -w {name}={on}"
    return "" if _namespaces() else "something forbids them here: run the tests outside this container"


def _can_fence() -> bool:
    return landlock.version() >= (1 if os.geteuid() == 0 else landlock.TRUNCATES)


def _built_by_root(service: Service, floor: str) -> str:
    install = "" if shutil.which("mmdebstrap") else f"sudo {_apt(service.packages)} && "
    return "" if service.there() else f"{install}sudo make test FLOORS={floor}"


def _gpu() -> bool:
    try:
        driver.found()
    except driver.DriverError:
        return False
    return True


def _packaged(name: str, why: str, *programs: str, packages: tuple[str, ...] = ()) -> Service:
    """Programs on PATH that packages of the same names bring, or these packages."""
    return Service(name=name, why=why, there=_programs(*programs), packages=packages or programs)


GIT = _packaged("git", "repositories of problems", "git")
MAKE = _packaged("make", "what the Makefile promises", "make")
DASH = _packaged("dash", "a strict POSIX shell reads the job scripts", "dash")
SHELLCHECK = _packaged("shellcheck", "reads every shell script", "shellcheck")
ZSH = _packaged("zsh", "completes what somebody types", "zsh")
FISH = _packaged("fish", "completes what somebody types", "fish")
RSYNC = _packaged("rsync", "copies images to a site", "rsync")
SSHD = Service(
    name="sshd",
    why="a site's login node, on loopback",
    there=lambda: shutil.which("ssh") is not None and Path("/usr/sbin/sshd").exists(),
    packages=("openssh-client", "openssh-server"),
)
GXX = _packaged("g++", "compiles C++ submissions and the stand-in for a GPU's driver", "g++")
CHROMIUM = _packaged(
    "Chromium",
    "a browser walks through the pages",
    *("chromium", "chromedriver"),
    packages=("chromium", "chromium-driver"),
)
PYTHON = _packaged("a system Python", "another user starts the harness", SYSTEM_PYTHON, packages=("python3",))
NVCC = Service(
    name="nvcc",
    why="compiles device code; it needs no GPU for that",
    there=(NVCC_HOME / "bin" / "nvcc").is_file,
    otherwise="`make nvcc`",
)
RAY_CLUSTER = Service(
    name="Ray",
    why="a real Ray on loopback runs jobs",
    there=lambda: RAY.is_file() and RAY.parent.with_name(".ready").is_file(),
    otherwise="`make ray`",
)
REDIS = _packaged("Redis", "a Ray head that is replaced finds its jobs there", "redis-server")
POSTGRES = Service(
    name="Postgres",
    why="everything that is stored; the virtual environment brings it",
    there=lambda: True,  # whether it starts is seen by starting it
    otherwise="where that one doesn't start, yours: `KBSLURM_TEST_DATABASE_URL=postgresql://… make test`",
    here=lambda: "",
)
USER_NAMESPACES = Service(
    name="user namespaces",
    why="isolation level 2 of the harness; the corpus of attacks runs at level 1 without them",
    there=_namespaces,
    otherwise="`sudo sysctl -w kernel.unprivileged_userns_clone=1` on Debian, "
    "`sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0` on Ubuntu",
    here=_switched_on,
)
LANDLOCK = Service(
    name="Landlock",
    why="isolation level 1 of the harness",
    there=_can_fence,
    otherwise="a kernel of 6.2 or newer that has it switched on (`cat /sys/kernel/security/lsm`)",
)
ROOT = Service(
    name="root",
    why="the harness as other users start it, or inside a `/proc` that hides processes",
    there=lambda: os.geteuid() == 0,
    otherwise="`sudo make test`",
)
MEMORY_GROUPS = Service(
    name="memory control groups",
    why="the kernel ends processes there for want of memory",
    there=lambda: os.geteuid() == 0 and _memory_groups() is not None,
    otherwise="`sudo make test` where /sys/fs/cgroup can be written to",
)
CLUSTER: Service = Service(
    name="a test cluster",
    why="a real Slurm with real Apptainer, built from nothing on a Debian-like machine",
    there=lambda: os.geteuid() == 0 and shutil.which("mmdebstrap") is not None,
    packages=("mmdebstrap",),
    otherwise="`sudo apt-get install mmdebstrap && sudo make test FLOORS=cluster`",
    here=lambda: _built_by_root(CLUSTER, "cluster"),
)
GVISOR: Service = Service(
    name="gVisor",
    why="the sandbox that Modal runs containers in; the harness is tried in one, built on a Debian-like machine",
    there=CLUSTER.there,
    packages=("mmdebstrap",),
    otherwise="`sudo apt-get install mmdebstrap && sudo make test FLOORS=gvisor`",
    here=lambda: _built_by_root(GVISOR, "gvisor"),
)
OF_MAKE_TEST = (
    *(GIT, MAKE, PYTHON, DASH, SHELLCHECK, ZSH, FISH, GXX, RSYNC, SSHD, NVCC, CHROMIUM, RAY_CLUSTER, REDIS),
    *(POSTGRES, USER_NAMESPACES, LANDLOCK, ROOT, MEMORY_GROUPS, CLUSTER, GVISOR),
)

# What only the special targets collect tests for.
NINJA = _packaged("ninja", "torch compiles with it", "ninja", packages=("ninja-build",))
GPU = Service(name="a GPU", why="kernels run on it", there=_gpu, otherwise="a machine with a GPU and its driver")
TORCH = Service(
    name="torch",
    why="tensors on a GPU",
    there=lambda: importlib.util.find_spec("torch") is not None,
    otherwise=f"{sys.executable} -m pip install torch",
)
NCU = Service(
    name="ncu",
    why="a profile of a kernel",
    there=lambda: found_program("ncu") is not None,
    otherwise="NVIDIA Nsight Compute, which CUDA's toolkit brings, and a driver that lets you read its counters",
)
SERVICES = {one.name: one for one in (*OF_MAKE_TEST, NINJA, GPU, TORCH, NCU)}


def _memory_groups() -> Path | None:
    """The folder below which groups with a memory limit can be made."""
    for place, sign in ((Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"), (Path("/sys/fs/cgroup"), "")):
        given = (place / sign).exists() if sign else "memory" in _read(place / "cgroup.subtree_control").split()
        if given and os.access(place, os.W_OK):
            return place
    return None


def _read(file: Path) -> str:
    with contextlib.suppress(OSError):
        return file.read_text()
    return ""


@contextlib.contextmanager
def memory_group(name: str) -> Iterator[Path]:
    """A control group of this name, with nobody in it; whoever is left in it at the end is killed."""
    above = _memory_groups()
    assert above is not None
    place = above / name
    place.mkdir()
    try:
        yield place
    finally:
        deadline = time.monotonic() + 20
        while left := _read(place / "cgroup.procs").split():
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            assert time.monotonic() < deadline, f"{left} can't be ended"
        place.rmdir()


# ---------------------------------------------------------------------------------------------------- room to work in

ROOM_MB = 500  # all floors but the cluster's fill 150 of them at the worst moment


def no_room() -> str:
    """Why there isn't enough room for temporary files, and what to do; empty where there is."""
    try:
        place = tempfile.gettempdir()
    except FileNotFoundError:
        place = ""
    # Python's last resort is where it was started: here the checkout, which the tests look at.
    if not place or (os.path.realpath(place) == os.getcwd() and "TMPDIR" not in os.environ):
        return "No temporary folder is writable: free some space in /tmp, or set TMPDIR to a folder of your own."
    free = shutil.disk_usage(place).free // 1_000_000
    if free >= ROOM_MB:
        return ""
    return (
        f"The tests need {ROOM_MB} MB for temporary files, but {place} has only {free} MB free:"
        " free some space there, or set TMPDIR to a folder that has more."
    )


# ------------------------------------------------------------------------------------------------------ asked by tests


def in_ci() -> bool:
    return os.environ.get("CI", "").lower() in {"1", "true", "yes"}


def sized(whole: int, small: int) -> int:
    """How many of something: all of them in CI, fewer where somebody waits for `make test`."""
    return whole if in_ci() else small


def needs(*services: Service) -> pytest.MarkDecorator:
    """A mark for a test that needs these: the root conftest.py asks for them before its fixtures are made."""
    return pytest.mark.needs(*services)


def need(*services: Service) -> None:
    """Go on if all of these are there; otherwise skip on a laptop, fail in CI."""
    if lacking := [one for one in services if not one.there()]:
        _refuse(_MISSING + ", ".join(one.name for one in lacking))


def missing(service: Service, detail: str) -> NoReturn:
    """The same for what was found out by trying."""
    _refuse(sentence(service, detail))


def sentence(service: Service, detail: str) -> str:
    """Why a test can't run, in the words that closing_lines understands."""
    return f"{_MISSING}{service.name}: {detail}"


def pointless(why: str) -> NoReturn:
    """Skip, in CI as well, what has nothing to look at: no machine of this kind could bring it."""
    pytest.skip(f"{_POINTLESS}{why}")


def _refuse(why: str) -> NoReturn:
    if in_ci():
        pytest.fail(why, pytrace=False)
    pytest.skip(why)


# ---------------------------------------------------------------------------------------------------- the closing lines


def closing_lines(reasons: Iterable[str]) -> list[str]:
    """What is missing, by how many tests need it, and how to get it; `reasons` is why each skipped test was skipped."""
    reasons = list(reasons)
    lacks = [text.partition(_MISSING)[2] for text in reasons if _MISSING in text]
    lines = [*_lacking(lacks)] if lacks else []
    others = Counter(text.partition(_POINTLESS)[2] for text in reasons if _POINTLESS in text)
    for why, count in others.most_common():
        lines.append(f"{_tests(count)} had nothing to test here: {why}")
    return lines


def _lacking(lacks: list[str]) -> Iterable[str]:
    count: Counter[Service] = Counter()
    details: dict[Service, str] = {}
    for text in lacks:
        names, _, detail = text.partition(": ")
        for name in names.split(", "):
            count[SERVICES[name]] += 1
            details.setdefault(SERVICES[name], detail)
    things = "1 thing is" if len(count) == 1 else f"{len(count)} things are"
    yield f"{things} missing, so {_tests(len(lacks))} {'was' if len(lacks) == 1 else 'were'} skipped:"
    width = max(len(one.name) for one in count)
    for one, how_many in count.most_common():
        yield f"  {one.name:<{width}} {how_many:>5}  {one.how_here or details[one]}".rstrip()
    plain = [one for one, _ in count.most_common() if one.packages and not one.here]
    if len(plain) > 1:
        packages = _apt(package for one in plain for package in one.packages)
        yield f"All of what apt has, at once: {'' if os.geteuid() == 0 else 'sudo '}{packages}"


def _tests(count: int) -> str:
    return "1 test" if count == 1 else f"{count} tests"


def table() -> list[str]:
    """The services of `make test` as CONTRIBUTING.md lists them."""
    rows = [f"| {one.name} | {one.why} | {one.how} |" for one in OF_MAKE_TEST]
    return ["| what | what for | how to get it |", "|---|---|---|", *rows]
