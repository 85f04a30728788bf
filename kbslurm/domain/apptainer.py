"""The argv that starts a container: typed, built on the login node, run on the compute node. Pure.

A word may contain placeholders for values that only the job knows, written `@NAME@` for one of PLACES: `argv` fills
them in, `shell` turns them into quoted shell variables. Everything else in a word is quoted.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field

from kbslurm.domain.site import Network, Vendor

PLACES = ("SHM", "SCRATCH", "IMAGE")
_PLACE = re.compile(f"@({'|'.join(PLACES)})@")
_UNSAFE_IN_BIND = re.compile(r"[:,\n\r\0\\]")

VENDOR_OPTIONS: Mapping[Vendor, tuple[str, ...]] = {"nvidia": ("--nv",), "amd": ("--rocm",), "none": ()}
HOST_MOUNTS = "home,cwd,hostfs,bind-paths"


@dataclass(frozen=True, kw_only=True)
class Bind:
    """One folder or file bound into the container. Read-only by default."""

    source: str
    target: str
    writable: bool = False

    def __post_init__(self) -> None:
        for path in (self.source, self.target):
            if not path or _UNSAFE_IN_BIND.search(path):
                raise ValueError(
                    f"{path!r} can't be bound: a comma, colon or line break would change the meaning of --bind"
                )

    def word(self) -> str:
        """The value of --bind."""
        return f"{self.source}:{self.target}:{'rw' if self.writable else 'ro'}"


def hardened(program: str, network: Network, options: tuple[str, ...] = ()) -> tuple[str, ...]:
    """What every container is started with: no home, no admin's binds, no evaluation, no privileges; `options` are a
    site's own."""
    alone = ("--net", "--network", "none") if network == "none" else ()
    kept_out = ("--no-home", "--no-mount", HOST_MOUNTS, "--no-eval", "--no-privs")
    return (program, "--silent", "exec", *kept_out, *alone, *options)


@dataclass(frozen=True, kw_only=True)
class ApptainerCommand:
    """`apptainer exec`, hardened, and without the environment. What a job starts eval/supervise.sh puts together.

    `own_pids` gives it its own PID namespace (for the runner but not the judge, so that the judge can see, stop and
    kill the runner); `network` none removes every interface except loopback.
    """

    image: str
    command: tuple[str, ...]
    program: str = "apptainer"
    vendor: Vendor = "none"
    network: Network = "none"
    own_pids: bool = True
    binds: tuple[Bind, ...] = ()
    workdir: str = ""
    pwd: str = "/"
    options: tuple[str, ...] = field(default=())

    def words(self) -> tuple[str, ...]:
        """The argv with its placeholders."""
        found = [*hardened(self.program, self.network, self.options), *VENDOR_OPTIONS[self.vendor]]
        found += ["--containall"] if self.own_pids else ["--contain", "--ipc", "--cleanenv"]
        if self.workdir:
            found += ["--workdir", self.workdir]
        found += ["--pwd", self.pwd]
        for bind in self.binds:
            found += ["--bind", bind.word()]
        return (*found, self.image, *self.command)

    def argv(self, places: Mapping[str, str]) -> list[str]:
        """The argv with its placeholders filled in."""
        return [_PLACE.sub(lambda found: places[found[1]], word) for word in self.words()]

    def shell(self) -> str:
        """The same as shell text: placeholders are quoted variables, everything else is quoted text."""
        return " ".join(map(quoted, self.words()))


def quoted(word: str) -> str:
    """One shell word; `@NAME@` of PLACES becomes `"$NAME"`."""
    parts = _PLACE.split(word)
    texts = [shlex.quote(part) if part else "" for part in parts[::2]]
    names = [f'"${{{name}}}"' for name in parts[1::2]]
    woven = "".join(text + name for text, name in zip(texts, [*names, ""], strict=True))
    return woven or "''"
