"""A Ray node with Apptainer: the test cluster's tree, which a job's entrypoint enters on its way to that node's Python.

Ray itself runs beside it, with this machine's Python. A job of it gets what it would find on such a node: Apptainer as
an ordinary user, the job image below /opt/kb/images, the run key, and a folder in memory as its shared memory.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.cluster import tree
from tests.cluster import tree_namespaces as ns
from tests.services import CLUSTER, missing, need

USER = 1000
IMAGES = "/opt/kb/images"
IMAGE = f"{IMAGES}/cpu.sif"
KEY = "/shared/run-key"  # as that user sees it
CHECKOUT = Path(__file__).resolve().parents[2]
PROGRAM = "/usr/bin/apptainer"
OWN_PROGRAMS = "/usr/local/bin"  # what lies there is found first
_ENTER = """\
import sys
sys.path[:0] = {path!r}
from tests.contract.ray_node import enter
enter(**{told!r}, arguments=sys.argv[1:])
"""


@dataclass(frozen=True, kw_only=True)
class ContainerNode:
    """The tree and what lies on this node's disk, and its shared memory."""

    folder: Path
    memory: Path

    @classmethod
    def made(cls, folder: Path, key: bytes) -> ContainerNode:
        """What the test cluster is made of, built now or found; the rest below `folder`."""
        need(CLUSTER)
        memory = Path(tempfile.mkdtemp(prefix="kbray-node-", dir="/dev/shm"))
        memory.chmod(0o1777)
        node = cls(folder=folder, memory=memory)
        try:
            parts = {"tree": tree.build(), "venv": tree.venv(tree.build()), "images": tree.image()}
        except tree.Trouble as trouble:
            missing(CLUSTER, str(trouble))
        folder.mkdir()
        for name, part in parts.items():
            assert part is not None
            (folder / name).symlink_to(part)
        for name, mode in (("root", 0o755), ("tmp", 0o1777), ("var-tmp", 0o1777), ("shared", 0o755)):
            (folder / name).mkdir()
            (folder / name).chmod(mode)
        held = folder / "shared" / "run-key"
        held.write_text(key.hex())
        held.chmod(0o400)
        os.chown(held, USER, USER)
        return node

    def python(self, instead: str | None = None) -> str:
        """The nodes' Python, as a place has it. `instead`: the text of an `apptainer` that is found before the real
        one; "" for none at all."""
        stand_in, name = "", "plain"
        if instead is not None:
            name = hashlib.sha256(instead.encode()).hexdigest()[:8]
            file = self.folder / f"instead-{name}"
            file.write_text(instead)
            file.chmod(0o755 if instead else 0o644)
            stand_in = str(file)
        entry = self.folder / f"python-{name}"
        path = [str(CHECKOUT), *(str(CHECKOUT / one) for one in ("bot", "eval"))]
        told = {"folder": str(self.folder), "memory": str(self.memory), "instead": stand_in}
        program = _ENTER.format(path=path, told=told)
        entry.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -c {shlex.quote(program)} "$@"\n')
        entry.chmod(0o755)
        return str(entry)

    def in_memory(self) -> list[str]:
        """What attempts have in its shared memory; what was found out about images is remembered there on purpose."""
        return sorted(one.name for one in self.memory.iterdir() if not one.name.startswith(".kb-images"))

    def remove(self) -> None:
        """All that it wrote."""
        for folder in (self.memory, self.folder):
            shutil.rmtree(folder, ignore_errors=True)

    def left_on_disk(self) -> list[str]:
        """What lies in the folders that attempts have there."""
        above = self.folder / "tmp" / f"kbslurm-node-{USER}"
        return sorted(str(one.relative_to(above)) for one in above.glob("*/*")) if above.is_dir() else []


def enter(folder: str, memory: str, instead: str, arguments: Sequence[str]) -> None:
    """Become this Python on the node: in a mount namespace of its own, as an ordinary user."""
    place = Path(folder)
    root = place / "root"
    ns.unshare(ns.CLONE_NEWNS)
    ns.make_private()
    ns.bind(ns.Bind(source=(place / "tree").resolve(), target="/", writable=True), root)
    ns.furnish(root, tmpfs={IMAGES: "mode=755", OWN_PROGRAMS: "mode=755"})
    binds = [
        ns.Bind(source=Path(memory), target="/dev/shm", writable=True),
        ns.Bind(source=place / "tmp", target="/tmp", writable=True),
        ns.Bind(source=place / "var-tmp", target="/var/tmp", writable=True),
        ns.Bind(source=place / "shared", target="/shared"),
        ns.Bind(source=(place / "venv").resolve(), target="/kb/venv"),
        ns.Bind(source=(place / "images").resolve() / "cpu.sif", target=IMAGE),
    ]
    if instead and Path(instead).stat().st_size:
        binds.append(ns.Bind(source=Path(instead), target=f"{OWN_PROGRAMS}/apptainer"))
    elif instead:
        ns.mount(instead, str(root / PROGRAM.lstrip("/")), None, ns.MS_BIND)
    for one in binds:
        ns.bind(one, root)
    ns.mount("none", str(root), None, ns.MS_BIND | ns.MS_REMOUNT | ns.MS_RDONLY)
    ns.pivot(root)
    ns.become(USER, USER)
    kept = {name: value for name, value in os.environ.items() if name not in ("LD_LIBRARY_PATH", "VIRTUAL_ENV")}
    env = {**kept, "PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/home/kb", "TMPDIR": "/tmp"}
    os.execve("/kb/venv/bin/python3", ["/kb/venv/bin/python3", *arguments], env)


# ------------------------------------------------------------------------------------------------- what an attempt is


def processes_of(name: str) -> set[int]:
    """Every process of this attempt's on this machine: those that say its name, and all that they started."""
    children: dict[int, list[int]] = {}
    found: set[int] = set()
    for pid, parent, words in _processes():
        children.setdefault(parent, []).append(pid)
        if name.encode() in words:
            found.add(pid)
    new = list(found)
    while new:
        new = [child for pid in new for child in children.get(pid, ()) if child not in found]
        found.update(new)
    return found


def has_runner(name: str) -> bool:
    """Whether a container of this attempt's has a runner in it that has begun."""
    mine = processes_of(name)
    return any(
        pid in mine and b"--runner\0/link" in words and b"apptainer" not in words for pid, _, words in _processes()
    )


def _processes() -> Iterator[tuple[int, int, bytes]]:
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError, IndexError):
            fields = (place / "stat").read_bytes().rpartition(b")")[2].split()
            words = (place / "cmdline").read_bytes()
            if fields[0] in (b"Z", b"X") or words.startswith(b"ray::") or int(place.name) == os.getpid():
                continue  # Ray's own bear a job's name in their title
            yield int(place.name), int(fields[1]), words
