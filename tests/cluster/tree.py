#!/usr/bin/env python3
"""Builds what the test cluster runs on: Debian trees with Slurm and Apptainer, job images, the project's venv.

    python3 tests/cluster/tree.py build [--slurm 22.05|24.11|26.05] [--torch] [--no-venv] [--json]

Everything is cached in $KBSLURM_CLUSTER_DIR (default: .cluster in the checkout) under a digest of its recipe, made
under another name and renamed when whole: an interrupted build is never used. Two builders share one build. Standard
library only, to be run as root by the host's python3. Exit codes: 0 built, 3 a download failed, 2 the host lacks
something, 1 anything else.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(CHECKOUT))  # run as a script there is no package yet

from tests.cluster.tree_namespaces import Bind, run_in_tree  # noqa: E402

DEFAULT_SLURM = "24.11"
MOUNT_POINTS = ("kb/src", "kb/venv", "kb/wheels", "kb/out", "opt/kb/images", "shared", "scratch")

_SLURM = [
    "munge",
    "slurmctld",
    "slurmd",
    "slurm-client",
    "slurmdbd",
    "slurm-wlm-basic-plugins",
    "slurm-wlm-mysql-plugin",
    "mariadb-server",
]
_REST = ["slurmrestd", "slurm-wlm-jwt-plugin"]
_LOGIN_NODE = [
    "ca-certificates",
    "curl",
    "fuse3",
    "iproute2",
    "openssh-client",
    "openssh-server",
    "procps",
    "python3",
    "python3-venv",
    "uidmap",
]
_APPTAINER_NEEDS = ["fuse2fs", "fuse-overlayfs", "gocryptfs", "squashfs-tools", "squashfuse"]
_IMAGE = ["base-files", "coreutils", "dash", "libc-bin", "libc6", "python3", "python3-numpy"]
_TORCH = [
    "base-files",
    "bash",
    "coreutils",
    "dash",
    "g++",
    "libc-bin",
    "libc6",
    "ninja-build",
    "python3",
    "python3-torch",
]
_LEFT_OUT = (
    "/usr/share/doc/*", "/usr/share/man/*", "/usr/share/info/*", "/usr/share/locale/*", "/usr/share/mariadb/mroonga/*",
)  # fmt: skip


class Trouble(Exception):
    """The build can't go on; the text is one sentence for whoever started it."""

    exit_code = 1


class NoDownload(Trouble):
    """A package could not be fetched."""

    exit_code = 3


class HostLacks(Trouble):
    """This machine can't build or run a cluster."""

    exit_code = 2


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What a tree is made of; its digest is the tree's name in the cache."""

    suite: str
    packages: tuple[str, ...]
    apptainer: bool
    steps: str

    def digest(self) -> str:
        text = json.dumps([self.suite, self.packages, self.apptainer, self.steps, MOUNT_POINTS, _LEFT_OUT])
        return hashlib.sha256(text.encode()).hexdigest()[:12]


# Runs on the host with the new tree as $1. The users' passwords are '*' rather than '!': nobody can log in with one
# either way, but sshd without PAM takes '!' for a locked account and refuses keys as well.
_USERS = """\
set -eu
for pair in kb:1000 other:1001; do
    name=${pair%%:*} id=${pair##*:}
    chroot "$1" groupadd --gid "$id" "$name"
    chroot "$1" useradd --uid "$id" --gid "$id" --create-home --shell /bin/bash --password '*' "$name"
done
rm -f "$1/etc/ssh/"*.dpkg-* "$1/var/cache/apt/"*.bin
"""

# Apptainer is in no stable release: it alone comes from sid. The line is derived from the tree's own source.
_APPTAINER = """\
set -eu
printf 'Package: %s\\nPin: release n=sid\\nPin-Priority: %s\\n\\n' '*' 50 apptainer 990 > "$1/etc/apt/preferences.d/sid"
sid="$1/etc/apt/sources.list.d/sid.list"
grep -h -m1 '^deb .*SUITE main' "$1/etc/apt/sources.list" | sed 's/ SUITE / sid /' > "$sid"
test -s "$sid"
apt='apt-get -q -o Acquire::Check-Valid-Until=false -o Acquire::Retries=3'
chroot "$1" $apt update
DEBIAN_FRONTEND=noninteractive chroot "$1" $apt install -y --no-install-recommends apptainer
rm -f "$sid"
chroot "$1" apptainer --version
"""

# sid's package leaves making the database to systemd
_DATABASE = """\
test -d "$1/var/lib/mysql/mysql" || {
    mkdir -p "$1/var/lib/mysql"
    chroot "$1" chown mysql: /var/lib/mysql
    chroot "$1" mariadb-install-db --user=mysql --datadir=/var/lib/mysql --skip-test-db > /dev/null
}
"""

RECIPES = {
    "24.11": Recipe(
        suite="trixie",
        packages=(*_SLURM, *_REST, *_LOGIN_NODE, *_APPTAINER_NEEDS),
        apptainer=True,
        steps=_USERS + _APPTAINER.replace("SUITE", "trixie"),
    ),
    # Debian 12's libc is too old for Apptainer
    "22.05": Recipe(suite="bookworm", packages=(*_SLURM, *_LOGIN_NODE), apptainer=False, steps=_USERS),
    "26.05": Recipe(
        suite="sid",
        packages=(*_SLURM, *_REST, *_LOGIN_NODE, *_APPTAINER_NEEDS, "apptainer"),
        apptainer=True,
        steps=_USERS + _DATABASE,
    ),
}


def say(text: str) -> None:
    """One line of progress, on stderr so that stdout stays for the answer."""
    print(f"cluster: {text}", file=sys.stderr, flush=True)


def cache_root() -> Path:
    """Where trees, images and venvs are kept between clusters."""
    named = os.environ.get("KBSLURM_CLUSTER_DIR")
    root = Path(named).resolve() if named else CHECKOUT / ".cluster"
    root.mkdir(parents=True, exist_ok=True)
    return root


def check_host() -> None:
    """Raise HostLacks unless this machine can build; installs mmdebstrap when it is the only thing missing."""
    if os.geteuid() != 0:
        raise HostLacks("The test cluster needs root: it makes device files, mounts and namespaces.")
    if shutil.which("mmdebstrap"):
        return
    if not shutil.which("apt-get"):
        raise HostLacks("mmdebstrap is not installed and there is no apt-get to install it with.")
    say("installing mmdebstrap on this machine")
    install = ["apt-get", "install", "-qq", "-y", "--no-install-recommends", "mmdebstrap", "debian-archive-keyring"]
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    update = ["apt-get", "update", "-qq"]
    for command in (install, update, install):
        done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if command is install and done.returncode == 0:
            return
    raise NoDownload(f"mmdebstrap could not be installed: {_last_line(done.stderr or done.stdout)}")


@contextmanager
def _building(name: str) -> Iterator[tuple[Path, Path | None]]:
    """Under a lock: (final path, None) when it's there already, else (final path, a fresh path to build at)."""
    root = cache_root()
    final = root / name
    with (root / f"{name}.lock").open("w") as lock:
        if not final.exists():
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say(f"waiting for another build of {name}")
                fcntl.flock(lock, fcntl.LOCK_EX)
        if final.exists():
            yield final, None
            return
        for left in root.glob(f".building-{name}*"):
            remove(left)
        fresh = root / f".building-{name}"
        yield final, fresh
        fresh.rename(final)


def remove(folder: Path) -> None:
    """Delete a folder without ever following a mount out of it."""
    subprocess.run(["rm", "-rf", "--one-file-system", str(folder)], check=False, capture_output=True)


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"(?i)(E|Err|error|fatal)\b", line)]
    fetches = [line for line in errors if _OFFLINE.search(line)]
    return (fetches or errors or lines or ["no output"])[-1][:300]


_OFFLINE = re.compile(
    r"(?i)failed to fetch|could not resolve|temporary failure|unable to connect|connection (failed|timed out|refused)"
    r"|unable to locate package|has no release file|no matching distribution|max retries"
)


def _run(argv: Sequence[str], what: str, log: Path) -> None:
    """Run a build step with its output in a log; one sentence when it fails."""
    with log.open("a") as out:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, check=False)
    if done.returncode == 0:
        return
    text = log.read_text(errors="replace")
    kind = NoDownload if _OFFLINE.search(text) else Trouble
    raise kind(f"{what} failed: {_last_line(text)} (whole log: {log})")


def _mmdebstrap(
    suite: str, to: Path, packages: Sequence[str], *, variant: str, hook: str = "", make_folders: bool = False
) -> None:
    """One Debian tree. Runs in a mount namespace of its own, so that even a killed build leaves no mount."""
    script = to.with_name(f"{to.name}.hook")
    script.write_text("#!/bin/sh\n" + hook)
    script.chmod(0o755)
    folders = " ".join(f'"$1/{name}"' for name in MOUNT_POINTS)
    argv = ["nice", "-n", "5", "unshare", "--mount", "--propagation", "private", "--kill-child", "--pid", "--fork"]
    argv += [
        "mmdebstrap",
        "--mode=root",
        f"--variant={variant}",
        "--format=directory",
        f"--include={','.join(packages)}",
    ]
    argv += ['--aptopt=Acquire::Check-Valid-Until "false"', '--aptopt=Acquire::Retries "3"']
    argv += [f"--dpkgopt=path-exclude={pattern}" for pattern in _LEFT_OUT]
    if make_folders:
        argv += [f"--customize-hook=mkdir -p {folders}"]
    if hook:
        argv += [f"--customize-hook={script}"]
    log = cache_root() / f"{to.name.removeprefix('.building-')}.log"
    log.unlink(missing_ok=True)
    try:
        _run([*argv, suite, str(to)], f"Making the Debian {suite} tree", log)
    finally:
        script.unlink(missing_ok=True)


def build(slurm: str = DEFAULT_SLURM) -> Path:
    """The root tree with this Slurm, built now or taken from the cache."""
    return build_tree(f"tree-{slurm}", RECIPES[slurm])


def build_tree(name: str, recipe: Recipe) -> Path:
    """The tree that the recipe describes, built now or taken from the cache."""
    with _building(f"{name}-{recipe.digest()}") as (final, fresh):
        if fresh is not None:
            check_host()
            say(f"building {name} (Debian {recipe.suite}, {len(recipe.packages)} packages)")
            began = time.monotonic()
            _mmdebstrap(recipe.suite, fresh, recipe.packages, variant="apt", hook=recipe.steps, make_folders=True)
            say(f"{name} is built ({time.monotonic() - began:.0f} s)")
    return final


def image(name: str = "cpu") -> Path:
    """The folder with a job image: NAME/, a directory image, and for the small one cpu.sif, the same packed."""
    packages = {"cpu": _IMAGE, "torch": _TORCH}[name]
    # 'extract' runs no package's scripts: enough for Python and numpy, and a third of the size. torch needs the
    # linker's cache and g++'s alternatives, so it is installed properly.
    variant = "extract" if name == "cpu" else "apt"
    steps = _FINISHED if variant == "extract" else f"{variant}4"
    recipe = Recipe(suite="trixie", packages=tuple(packages), apptainer=False, steps=steps)
    with _building(f"image-{name}-{recipe.digest()}") as (final, fresh):
        if fresh is not None:
            check_host()
            say(f"building the job image {name}")
            inner = fresh.with_name(f"{fresh.name}.root")
            log = cache_root() / f"{final.name}.log"
            _mmdebstrap("trixie", inner, packages, variant=variant)
            if variant == "extract":
                _run(["sh", "-euc", _FINISHED, "sh", str(inner)], f"Finishing the image {name}", log)
            subprocess.run(["ldconfig", "-r", str(inner)], check=False, capture_output=True)
            for folder in ("tmp", "proc", "sys", "dev", "run", "var/tmp", "home"):
                (inner / folder).mkdir(parents=True, exist_ok=True)
            for leftover in ("var/lib/apt", "var/cache", "var/lib/dpkg", "dev"):  # no ordinary user may pack devices
                remove(inner / leftover)
            (inner / "dev").mkdir()
            subprocess.run(["chmod", "-R", "go+rX", str(inner)], check=False, capture_output=True)
            for table, line in {"passwd": "root:x:0:0:root:/root:/bin/sh", "group": "root:x:0:"}.items():
                if not (inner / "etc" / table).exists():  # Apptainer adds its user to them
                    (inner / "etc" / table).write_text(f"{line}\n")
            fresh.mkdir()
            inner.rename(fresh / name)
            if name == "cpu":  # packing torch takes minutes; its folder serves as well
                _pack(fresh, name)
    return final


def runsc() -> Path:
    """gVisor's program, which is one static file, from Debian 13: the one of Debian 12 is too old for the harness."""
    recipe = Recipe(suite="trixie", packages=("runsc",), apptainer=False, steps="extract")
    with _building(f"runsc-{recipe.digest()}") as (final, fresh):
        if fresh is not None:
            check_host()
            say("fetching gVisor")
            _mmdebstrap(recipe.suite, fresh, recipe.packages, variant="extract")
    return final / "usr" / "bin" / "runsc"


# What the packages' own scripts would have done: numpy's linear algebra is found by the linker, no test is shipped, and
# Python's files are compiled once instead of at every start.
_FINISHED = """\
for folder in "$1"/usr/lib/*-linux-gnu/blas "$1"/usr/lib/*-linux-gnu/lapack; do
    printf '%s\\n' "${folder#"$1"}"
done > "$1/etc/ld.so.conf.d/linear-algebra.conf"
find "$1/usr/lib/python3/dist-packages/numpy" -type d -name tests -prune -exec rm -r {} +
chroot "$1" /bin/sh -c 'exec python3 -I -m compileall -q /usr/lib/python3 /usr/lib/python3.*'
"""


def _pack(folder: Path, name: str) -> None:
    """Make NAME.sif of the directory image, as an ordinary user, with the Apptainer of the default tree."""
    say(f"packing {name}.sif")
    log = cache_root() / f"{name}.sif.log"
    log.unlink(missing_ok=True)
    out = folder / "packed"
    out.mkdir(mode=0o777)
    out.chmod(0o777)
    code = run_in_tree(
        build(),
        ["apptainer", "--silent", "build", f"/kb/out/{name}.sif", f"/kb/wheels/{name}"],
        binds=[Bind(source=folder, target="/kb/wheels"), Bind(source=out, target="/kb/out", writable=True)],
        uid=1000,
        work=folder.with_name(f"{folder.name}.work"),
        log=log,
    )
    if code != 0:
        raise Trouble(f"Packing the image {name} failed: {_last_line(log.read_text())} (whole log: {log})")
    (out / f"{name}.sif").rename(folder / f"{name}.sif")
    os.chown(folder / f"{name}.sif", 0, 0)
    out.rmdir()


def python_of(tree: Path) -> str:
    """The tree's own Python, as '3.13'."""
    return os.readlink(tree / "usr/bin/python3").removeprefix("python")


def venv(tree: Path, lock: Path | None = None) -> Path | None:
    """The project's locked requirements for the tree's Python, to be bound at /kb/venv; None while there is no lock.

    The host downloads (its package index, certificates and proxies are set up; the tree's are not) and checks the
    hashes; the tree only unpacks.
    """
    lock = lock or CHECKOUT / "requirements.lock"
    if not lock.exists():
        say("there is no requirements.lock: the cluster comes without the project's venv")
        return None
    version = python_of(tree)
    digest = hashlib.sha256(lock.read_bytes() + f"{version} {tree.name} layout 1".encode()).hexdigest()[:12]
    with _building(f"venv-{version}-{digest}") as (final, fresh):
        if fresh is not None:
            wheels = fresh.with_name(f"{fresh.name}.wheels")
            wheels.mkdir()
            say(f"downloading the locked packages for Python {version}")
            log = cache_root() / f"venv-{version}.log"
            _download(lock, version, wheels, log)
            say("installing them in the tree")
            fresh.mkdir()
            _install(tree, wheels, fresh, log)
            remove(wheels)
    return final


def _host_python() -> str:
    """A Python on the host that has pip: the project's own, or this one."""
    for candidate in (CHECKOUT / ".venv/bin/python", Path(sys.executable)):
        if candidate.exists():
            probe = subprocess.run([str(candidate), "-m", "pip", "--version"], capture_output=True, check=False)
            if probe.returncode == 0:
                return str(candidate)
    raise HostLacks("No Python with pip was found on this machine (`make venv` makes one).")


def _download(lock: Path, version: str, to: Path, log: Path) -> None:
    short = version.replace(".", "")
    argv = [_host_python(), "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes", "-r", str(lock)]
    argv += ["--dest", str(to), "--python-version", version, "--implementation", "cp"]
    for abi in (f"cp{short}", "abi3", "none"):
        argv += ["--abi", abi]
    machine = os.uname().machine
    glibc = [f"manylinux_2_{minor}_{machine}" for minor in range(36, 4, -1)]
    for platform in (*glibc, f"manylinux2014_{machine}", f"manylinux2010_{machine}", f"linux_{machine}", "any"):
        argv += ["--platform", platform]
    log.unlink(missing_ok=True)
    _run(argv, "Downloading the locked Python packages", log)
    for source in [*to.glob("*.tar.gz"), *to.glob("*.zip")]:  # a package without a wheel is made into one here
        wheel = [_host_python(), "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(to), str(source)]
        _run(wheel, f"Making a wheel of {source.name}", log)
        source.unlink()


def _install(tree: Path, wheels: Path, to: Path, log: Path) -> None:
    names = sorted(f"/kb/wheels/{wheel.name}" for wheel in wheels.glob("*.whl"))
    broken = [wheel.name for wheel in wheels.glob("*.whl") if not zipfile.is_zipfile(wheel)]
    if broken:
        raise NoDownload(f"{broken[0]} arrived damaged.")
    script = (
        "set -e; python3 -m venv /kb/venv; "
        '/kb/venv/bin/python -m pip install --quiet --disable-pip-version-check --no-index --no-deps "$@"; '
        "printf '%s\\n' /kb/site /kb/src /kb/src/bot /kb/src/eval > "
        '"$(/kb/venv/bin/python -c \'import sysconfig; print(sysconfig.get_path("purelib"))\')/kbslurm-checkout.pth"'
    )
    code = run_in_tree(
        tree,
        ["sh", "-c", script, "sh", *names],
        binds=[Bind(source=wheels, target="/kb/wheels"), Bind(source=to, target="/kb/venv", writable=True)],
        work=to.with_name(f"{to.name}.work"),
        log=log,
    )
    if code != 0:
        raise Trouble(f"Installing the locked packages failed: {_last_line(log.read_text())} (whole log: {log})")


_PYSLURM = """\
set -e
export DEBIAN_FRONTEND=noninteractive
apt-get -q -o Acquire::Check-Valid-Until=false update
apt-get -q install -y --no-install-recommends gcc libc6-dev libslurm-dev python3-dev cython3 \\
    python3-setuptools python3-wheel python3-packaging python3-pip
cp -r /kb/wheels /tmp/source
cd /tmp/source
export PYSLURM_BUILD_JOBS=2 SLURM_INCLUDE_DIR=/usr/include SLURM_LIB_DIR="/usr/lib/$(uname -m)-linux-gnu/slurm-wlm"
python3 -m pip install --no-build-isolation --no-deps --no-index --no-compile --target /kb/out .
cd /
# importing it reads a configuration, and ends the process where there is none
printf 'ClusterName=none\\nSlurmctldHost=localhost\\n' >/tmp/slurm.conf
SLURM_CONF=/tmp/slurm.conf PYTHONPATH=/kb/out python3 -c 'import pyslurm; print(pyslurm.__version__)'
"""


def pyslurm(slurm: str, source: Path | None = None) -> Path | None:
    """pyslurm for this tree's Python and Slurm, to be bound at /kb/pyslurm; without a source, what was built before.

    No package index has a build for a Debian Slurm: the source is a checkout of the tag that fits this release.
    """
    name = f"pyslurm-{build(slurm).name.removeprefix('tree-')}"
    if source is None:
        made = cache_root() / name
        return made if made.exists() else None
    with _building(name) as (final, fresh):
        if fresh is not None:
            say(f"building pyslurm for Slurm {slurm} (some minutes)")
            fresh.mkdir()
            log = cache_root() / f"{name}.log"
            log.unlink(missing_ok=True)
            code = run_in_tree(
                build(slurm),
                ["sh", "-c", _PYSLURM],
                binds=[
                    Bind(source=source.resolve(), target="/kb/wheels"),
                    Bind(source=fresh, target="/kb/out", writable=True),
                ],
                work=fresh.with_name(f"{fresh.name}.work"),
                log=log,
            )
            if code != 0:
                raise Trouble(f"Building pyslurm failed: {_last_line(log.read_text())} (whole log: {log})")
    return final


def size_of(folder: Path) -> int:
    """Bytes on disk below a folder."""
    out = subprocess.run(["du", "-s", "-B1", str(folder)], capture_output=True, text=True, check=False).stdout
    return int(out.split()[0]) if out else 0


def guarded(action: Callable[[], int]) -> int:
    """Run a command of these scripts: trouble becomes one sentence and an exit code, never a traceback."""
    try:
        return action()
    except Trouble as trouble:
        print(f"cluster: {trouble}", file=sys.stderr)
        return trouble.exit_code
    except OSError as trouble:
        print(f"cluster: {trouble}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Build the trees that the test cluster runs on.")
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("build", help="build what is missing and print where the tree is")
    one.add_argument("--slurm", choices=sorted(RECIPES), default=DEFAULT_SLURM)
    one.add_argument("--torch", action="store_true", help="also the image with torch for CPUs (1.5 GB)")
    one.add_argument("--no-venv", action="store_true", help="leave the project's venv out")
    one.add_argument("--no-image", action="store_true", help="leave the job images out")
    one.add_argument("--json", action="store_true")
    two = commands.add_parser("pyslurm", help="build pyslurm for a tree; clusters made of it then have /kb/pyslurm")
    two.add_argument("--slurm", choices=sorted(RECIPES), default=DEFAULT_SLURM)
    two.add_argument("--source", type=Path, required=True, help="a checkout of pyslurm at the tag that fits")
    given = parser.parse_args(argv)

    def action() -> int:
        began = time.monotonic()
        if given.command == "pyslurm":
            print(pyslurm(given.slurm, given.source))
            return 0
        made: dict[str, Path | None] = {"tree": build(given.slurm)}
        if RECIPES[given.slurm].apptainer and not given.no_image:
            made["image_cpu"] = image("cpu")
            if given.torch:
                made["image_torch"] = image("torch")
        if not given.no_venv:
            made["venv"] = venv(build(given.slurm))
        if given.json:
            sizes = {name: size_of(path) for name, path in made.items() if path is not None}
            paths = {name: None if path is None else str(path) for name, path in made.items()}
            print(json.dumps({**paths, "bytes": sizes, "seconds": round(time.monotonic() - began, 1)}))
        else:
            print(made["tree"])
        return 0

    return guarded(action)


if __name__ == "__main__":
    raise SystemExit(main())
