"""Build, pull and inspect images with this machine's container program, and pin the results.

`build` and `pull` record the digest in the `digests.lock` next to the image.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from kbslurm.errors import BackendTrouble, Invalid, Misconfigured, NotFound
from kbslurm.images.pins import Pin, digest_of, lock_beside, pin
from kbslurm.images.recipes import PINNED_DIGEST, Recipe

BUILD_S = 3600.0
LOOK_S = 120.0
PUSHED = re.compile(
    r"oras://[A-Za-z0-9][A-Za-z0-9.-]*(:\d{1,5})?(/[a-z0-9][a-z0-9._-]*)+:[A-Za-z0-9_][A-Za-z0-9._-]{0,127}"
)
PULLED = ("docker://", "oras://", "library://", "https://")


@dataclass(frozen=True, kw_only=True)
class Maker:
    """How images are made here: the container program and its options."""

    program: str = ""
    options: tuple[str, ...] = ()
    timeout_s: float = BUILD_S
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))

    @property
    def executable(self) -> str:
        """The container program's full path. NotFound if there is none."""
        names = (self.program,) if self.program else ("apptainer", "singularity")
        path = self.environ.get("PATH", os.defpath)
        for name in names:
            if found := shutil.which(name, path=path):
                return found
        raise NotFound(
            "container program",
            names[0],
            hint="Load its module first, pass --program, or do this on a node that has it.",
        )


def build(
    recipe: Recipe,
    image: Path,
    maker: Maker,
    *,
    now: datetime,
    arguments: Mapping[str, str] | None = None,
    unpinned: bool = False,
) -> Pin:
    """Build a SIF, or a directory if the name has no suffix, and pin it in the lock next to it.

    The name exists only after a complete build. An unpinned base is refused unless `unpinned`.
    """
    given = dict(arguments or {})
    strange = sorted(set(given) - set(recipe.arguments))
    if strange:
        raise Invalid(f"{recipe.file.name} has no argument {strange[0]}", hint=f"Known: {', '.join(recipe.arguments)}.")
    base = f"{recipe.filled(recipe.header['bootstrap'], given)}://{recipe.filled(recipe.header.get('from', ''), given)}"
    if base.startswith("docker://") and not PINNED_DIGEST.search(base) and not unpinned:
        raise Misconfigured(
            f"its base {base} isn't pinned by a digest",
            file=recipe.file,
            fix="Add @sha256:…, or pass --unpinned to build on what the tag refers to today.",
        )
    words = [f"--build-arg={name}={value}" for name, value in sorted(given.items())]
    digest = _made(
        {"action": "build", "source": str(recipe.file.resolve()), "sandbox": not image.suffix},
        image,
        maker,
        (*words, *maker.options),
    )
    if base.startswith("localimage://") and Path(base.removeprefix("localimage://")).exists():
        base = f"{base}@{digest_of(Path(base.removeprefix('localimage://')))}"
    return _pinned(image, maker, digest, source=recipe.file.name, base=base, recipe=recipe.digest, now=now)


def pull(source: str, image: Path, maker: Maker, *, now: datetime, unpinned: bool = False) -> Pin:
    """Pull an image from a registry and pin it. An address without a digest is refused unless `unpinned`."""
    if not source.startswith(PULLED):
        raise Invalid(
            f"{source!r} can't be pulled", hint=f"Use an address that begins with one of {', '.join(PULLED)}."
        )
    if not PINNED_DIGEST.search(source) and not unpinned:
        raise Invalid(
            f"{source} may refer to a different image tomorrow",
            hint="Add the manifest's @sha256:…, or pass --unpinned; the image is pinned in either case.",
        )
    digest = _made({"action": "pull", "source": source}, image, maker, maker.options)
    return _pinned(image, maker, digest, source=source, now=now)


def push(image: Path, address: str, maker: Maker) -> str:
    """Push a SIF to a registry, `oras://HOST/NAME:TAG`, and pull it from there again: returns its digest, which is the
    same here and there."""
    if not PUSHED.fullmatch(address):
        raise Invalid(f"{address!r} isn't an address to push to", hint="Write it like oras://HOST/NAME:TAG.")
    digest = digest_of(image)
    words = [maker.executable, "push", "--allow-unsigned", *maker.options, str(image), address]
    answer = answer_of(words, maker, maker.timeout_s)
    if answer.returncode:
        raise BackendTrouble("image", f"{image.name} couldn't be pushed to {address}: {reason_in(answer.stderr)}")
    with tempfile.TemporaryDirectory(prefix=f".{image.name}-", dir=image.parent) as place:
        there = Path(place) / image.name
        # Past the cache here, which would know the image by the digest that the registry says it has
        found = _made({"action": "pull", "source": address}, there, maker, (*maker.options, "--disable-cache"))
    if found != digest:
        raise BackendTrouble(
            "image", f"{address} gives {found}, but {digest} was pushed", hint="Push it again, under another tag."
        )
    return digest


def _made(order: Mapping[str, Any], image: Path, maker: Maker, options: Sequence[str]) -> str:
    if not image.parent.is_dir():
        raise NotFound("folder", str(image.parent), hint="Create it first; every job must be able to read it.")
    making = image.with_name(f".{image.name}-{secrets.token_hex(4)}")
    making.mkdir(0o700)
    fresh = making / image.name
    try:
        said = ask_spython({**order, "image": str(fresh), "options": list(options)}, maker)
        if said["status"]:
            done = {"build": "built", "pull": "pulled"}[order["action"]]
            raise BackendTrouble("image", f"{order['source']} couldn't be {done}: {reason_in(said['said'])}")
        digest = digest_of(fresh)
        _replace(fresh, image, making)
    finally:
        _removed(making)
    return digest


def _pinned(image: Path, maker: Maker, digest: str, *, now: datetime, **told: str) -> Pin:
    found = Pin(digest=digest, made_at=now, program=version_of(maker), **told)
    pin(lock_beside(image), image.name, found)
    return found


def _replace(fresh: Path, image: Path, making: Path) -> None:
    """Move it to its final name. Running jobs keep the old file; an old directory is moved out of the way first."""
    if image.is_dir():
        image.rename(making / "old")
    fresh.replace(image)


def _removed(path: Path) -> None:
    """Remove a folder, including what a build created there as other users of its namespace."""
    for folder, _, _ in os.walk(path):
        with contextlib.suppress(OSError):
            Path(folder).chmod(0o700)
    shutil.rmtree(path, ignore_errors=True)
    if path.exists():
        words = ["unshare", "--user", "--map-root-user", "--map-auto", "rm", "-rf", "--", str(path)]
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=LOOK_S, check=False)


def inspect(image: Path, maker: Maker) -> Mapping[str, Any]:
    """The image's metadata: labels, definition, environment."""
    if not image.exists():
        raise NotFound("image", str(image), hint="kbslurm image list shows the existing ones.")
    said = ask_spython({"action": "inspect", "image": str(image)}, maker)
    if said["status"]:
        raise BackendTrouble("image", f"{image} can't be inspected: {reason_in(said['said'])}")
    found: Mapping[str, Any] = said["attributes"]
    return found


def version_of(maker: Maker) -> str:
    """The container program's version."""
    answer = answer_of([maker.executable, "--version"], maker, LOOK_S)
    return answer.stdout.strip()


def ask_spython(order: Mapping[str, Any], maker: Maker) -> dict[str, Any]:
    """Run one order through spython in a separate process, within the maker's time limit."""
    what = f"{order['action']} of {order.get('source') or order.get('image')}"
    scratch = Path(tempfile.mkdtemp(prefix="kb-image-", dir=maker.environ.get("APPTAINER_TMPDIR")))
    try:
        told = _asked({**order, "program": maker.executable, "scratch": str(scratch)}, what, maker, scratch)
    finally:
        _removed(scratch)
    return told


def _asked(order: Mapping[str, Any], what: str, maker: Maker, scratch: Path) -> dict[str, Any]:
    child = subprocess.Popen(
        [sys.executable, "-I", "-m", "kbslurm.images.spython_child"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
        env={**maker.environ, "APPTAINER_TMPDIR": str(scratch), "SINGULARITY_TMPDIR": str(scratch)},
    )
    with child:
        try:
            out, err = child.communicate(json.dumps(order), timeout=maker.timeout_s)
        except BaseException as error:
            _ended(child)
            if isinstance(error, subprocess.TimeoutExpired):
                raise BackendTrouble("image", f"{what} took longer than {maker.timeout_s:.0f} s") from None
            raise
    try:
        told: dict[str, Any] = json.loads(out)
    except ValueError:
        raise BackendTrouble("image", f"{what} failed: {reason_in(err)}") from None
    return {**told, "said": told.get("said") or err}


def _ended(child: subprocess.Popen[str]) -> None:
    """Kill the child and everything it started."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        child.kill()
    child.communicate()


def reason_in(said: str) -> str:
    """The line of the program's output that gives the reason."""
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line).strip() for line in said.splitlines()]
    told = [line for line in lines if line]
    fatal = [line for line in told if line.startswith(("FATAL", "ERROR"))]
    return re.sub(r"^(FATAL|ERROR)[: ]*", "", (fatal or told or ["no reason given"])[-1])


def answer_of(argv: Sequence[str], maker: Maker, limit_s: float) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            list(argv),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=limit_s,
            check=False,
            env=dict(maker.environ),
        )
    except subprocess.TimeoutExpired:
        raise BackendTrouble("image", f"{argv[0]} didn't answer in {limit_s:.0f} s") from None
    except OSError as error:
        raise BackendTrouble("image", f"{argv[0]} can't be run: {error.strerror}") from None
