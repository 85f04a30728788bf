#!/usr/bin/env python3
"""Runs a command in a fresh clone of this checkout on a stranger's machine: a bare Debian, an ordinary user.

    python3 -m tests.laptop [--suite trixie] [--user kb|root] [--user-namespaces] [--path DIR | --odd-path]
                            [--read-only-home] [--full-tmp] [--env K=V] [--keep NAME] -- COMMAND...
    python3 -m tests.laptop --drop NAME

The tree has what the README asks for (Python, git, make) and nothing else. It is built once by mmdebstrap and kept in
$KBSLURM_CLUSTER_DIR (default: .cluster in the checkout); each run gets a writable view of it that is gone afterwards,
or with --keep NAME stays for the next run of that name, virtual environment and all, until --drop NAME. Uncommitted
changes come along. There are no user namespaces unless --user-namespaces is given. The package index is the one that
pip uses here. Standard library only; needs root. Exit code: the command's; 3 a download failed, 2 the host lacks
something.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from tests.cluster import tree
from tests.cluster import tree_namespaces as ns

PACKAGES = ("ca-certificates", "git", "make", "passwd", "python3", "python3-venv")
# The kernel counts processes by user, whatever tree they are in: lines that run side by side have users of their own.
KB_UIDS = {"bookworm": 2012, "trixie": 2013, "sid": 2014}
ANOTHER_UID = 2020
MIB_OF_A_FULL_TMP = 1
ODD_PATH = "my kernels, größer/kbslurm"
# How this machine reaches its package index.
_PIPS_OWN = ("PIP_", "SSL_CERT", "REQUESTS_CA_BUNDLE", "http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")
_FROM_THE_HOST = ("/etc/resolv.conf", "/etc/hosts", "/etc/pip.conf", "/etc/ssl/certs/ca-certificates.crt")


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Whose machine it is to be."""

    suite: str = "trixie"
    user: str = "kb"
    user_namespaces: bool = False
    path: str = ""  # of the clone; empty: ~/kbslurm
    read_only_home: bool = False
    full_tmp: bool = False
    keep: str = ""
    env: dict[str, str] = field(default_factory=dict)

    @property
    def home(self) -> str:
        return _home(self.user)

    @property
    def checkout(self) -> str:
        return self.path or f"{self.home}/kbslurm"


def _home(user: str) -> str:
    return "/root" if user == "root" else f"/home/{user}"


def _uid_of_kb(suite: str) -> int:
    return KB_UIDS.get(suite, ANOTHER_UID)


def build(suite: str) -> Path:
    """The bare tree of this suite, built now or taken from the cache."""
    steps = f'chroot "$1" useradd --uid {_uid_of_kb(suite)} --create-home --shell /bin/bash kb\n'
    recipe = tree.Recipe(suite=suite, packages=PACKAGES, apptainer=False, steps=steps)
    return tree.build_tree(f"laptop-{suite}", recipe)


def run(machine: Machine, argv: Sequence[str]) -> int:
    """Run the command in a fresh clone there and give its exit code; what it prints goes where ours does."""
    lower = build(machine.suite)
    if machine.keep:
        work = _kept(machine.keep)
        work.mkdir(exist_ok=True)
        return ns.fork_and_wait(lambda: _outside(machine, lower, work, argv))
    work = Path(tempfile.mkdtemp(prefix=".laptop-", dir=tree.cache_root()))
    work.chmod(0o755)
    try:
        return ns.fork_and_wait(lambda: _outside(machine, lower, work, argv))
    finally:
        tree.remove(work)


def drop(name: str) -> int:
    """Remove the disk that was kept under this name, if there is one."""
    tree.remove(_kept(name))
    return 0


def _kept(name: str) -> Path:
    return tree.cache_root() / f"laptop-kept-{name}"


def _outside(machine: Machine, lower: Path, work: Path, argv: Sequence[str]) -> NoReturn:
    ns.die_with_parent()
    ns.unshare(ns.CLONE_NEWNS | ns.CLONE_NEWPID | ns.CLONE_NEWIPC | ns.CLONE_NEWUTS)
    os._exit(ns.fork_and_wait(lambda: _inside(machine, lower, work, argv)))


def _inside(machine: Machine, lower: Path, work: Path, argv: Sequence[str]) -> NoReturn:
    ns.die_with_parent()  # as root first: setup must not outlive an interrupted starter either
    ns.make_private()
    ns.set_hostname("laptop")
    root = ns.overlay(lower, work)
    tmp = f"mode=1777,size={MIB_OF_A_FULL_TMP}m" if machine.full_tmp else "mode=1777"
    ns.furnish(root, tmpfs={"/tmp": tmp})
    for name in _FROM_THE_HOST:
        if Path(name).exists():
            ns.bind(ns.Bind(source=Path(name).resolve(), target=name), root)
    uid = 0 if machine.user == "root" else _uid_of_kb(machine.suite)
    place = root / machine.checkout.lstrip("/")
    _clone(place, uid)
    if machine.read_only_home:
        home = root / machine.home.lstrip("/")
        ns.mount(str(home), str(home), None, ns.MS_BIND)
        ns.mount(str(place), str(place), None, ns.MS_BIND)
        ns.mount("none", str(home), None, ns.MS_BIND | ns.MS_REMOUNT | ns.MS_RDONLY)
    ns.pivot(root)
    if machine.full_tmp:
        Path("/tmp/what-fills-it").write_bytes(bytes((MIB_OF_A_FULL_TMP << 20) - os.sysconf("SC_PAGE_SIZE")))
    if not machine.user_namespaces:
        ns.forbid_user_namespaces()
    if uid:
        ns.become(uid, uid)
        ns.die_with_parent()
    os.chdir(machine.checkout)
    os.umask(0o022)
    env = {name: value for name, value in os.environ.items() if name.startswith(_PIPS_OWN)}
    env |= {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": machine.home, "USER": machine.user, "TERM": "dumb"}
    os.execvpe(argv[0], list(argv), env | machine.env)


def _clone(place: Path, uid: int) -> None:
    """A clone of the checkout with what isn't committed yet, owned by the user."""
    here = tree.CHECKOUT
    made = [one for one in (place, *place.parents) if not one.exists()]
    place.parent.mkdir(parents=True, exist_ok=True)
    git = ["git", "-c", "safe.directory=*"]
    if (place / ".git").exists():  # a kept machine
        subprocess.run([*git, "-C", str(place), "fetch", "--quiet", str(here), "HEAD"], check=True)
        # The owner changed meanwhile, and a file that only seems to have changed would be written anew.
        subprocess.run([*git, "-C", str(place), "update-index", "-q", "--refresh"], check=False)
        subprocess.run([*git, "-C", str(place), "reset", "--quiet", "--hard", "FETCH_HEAD"], check=True)
        subprocess.run([*git, "-C", str(place), "clean", "--quiet", "-fd"], check=True)
    else:
        subprocess.run([*git, "clone", "--quiet", "--no-hardlinks", str(here), str(place)], check=True)
    changed, unknown = ["diff", "--name-only", "-z", "--no-renames", "HEAD"], ["ls-files", "-oz", "--exclude-standard"]
    for words, act in (
        ([*changed, "--diff-filter=d"], _take),
        (unknown, _take),
        ([*changed, "--diff-filter=D"], _drop),
    ):
        listed = subprocess.run([*git, "-C", str(here), *words], check=True, capture_output=True)
        for name in filter(None, listed.stdout.split(b"\0")):
            act(here / os.fsdecode(name), place / os.fsdecode(name))
    if uid:
        subprocess.run(["chown", "-R", f"{uid}:{uid}", str((made or [place])[-1])], check=True)


def _take(source: Path, to: Path) -> None:
    if source.is_file():
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, to, follow_symlinks=False)


def _drop(_: Path, to: Path) -> None:
    to.unlink(missing_ok=True)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python3 -m tests.laptop", description=__doc__.partition("\n")[0])
    parser.add_argument("--suite", default="trixie", choices=("bookworm", "trixie", "sid"))
    parser.add_argument("--user", default="kb", choices=("kb", "root"))
    parser.add_argument("--user-namespaces", action="store_true", help="let the user make user namespaces")
    place = parser.add_mutually_exclusive_group()
    place.add_argument("--path", default="", help="where the clone goes (default: kbslurm in the user's home)")
    place.add_argument("--odd-path", action="store_true", help="it goes where the path has spaces and a letter like ö")
    parser.add_argument("--read-only-home", action="store_true", help="nothing but the clone can be written in HOME")
    parser.add_argument("--full-tmp", action="store_true", help="/tmp has no room left")
    parser.add_argument("--keep", default="", metavar="NAME", help="keep the disk for the next run of this name")
    parser.add_argument("--drop", default="", metavar="NAME", help="remove the disk kept under this name, nothing else")
    parser.add_argument("--env", action="append", default=[], metavar="K=V", help="for the command's environment")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND")
    given = parser.parse_args(argv)
    command = given.command[1:] if given.command[:1] == ["--"] else given.command
    if given.drop:
        return tree.guarded(lambda: drop(given.drop))
    if not command:
        parser.error("name the command to run, such as: make test")
    machine = Machine(
        suite=given.suite,
        user=given.user,
        user_namespaces=given.user_namespaces,
        path=given.path or (f"{_home(given.user)}/{ODD_PATH}" if given.odd_path else ""),
        read_only_home=given.read_only_home,
        full_tmp=given.full_tmp,
        keep=given.keep,
        env=dict(one.split("=", 1) for one in given.env),
    )
    return tree.guarded(lambda: run(machine, command))


if __name__ == "__main__":
    sys.exit(main())
