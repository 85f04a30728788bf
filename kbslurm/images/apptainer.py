"""Images: what they are built from, what they are, and whether they still are what was pinned.

An image is a SIF file or a directory. Its digest is `sha256:…` of the file, or `tree:…`, a sha256 over the sorted
manifest of the directory: names, kinds, executable bits, contents, links. Whatever `build` or `pull` makes is written
into `digests.lock` beside it; `verify` holds an image to that, to the digest of a site's file and to its signature.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from kbslurm.domain.finding import Finding, caution, failed, passed
from kbslurm.errors import BackendTrouble, Invalid, Misconfigured, NotFound
from kbslurm_eval.image import digest_of as image_digest

LOCK = "digests.lock"
BUILD_S = 3600.0
LOOK_S = 120.0
CHUNK = 1 << 20
PULLED = ("docker://", "oras://", "library://", "https://")
_DIGEST = re.compile(r"@(sha256:[0-9a-f]{64})$")
_PLACE = re.compile(r"\{\{\s*([A-Za-z_][A-Za-z0-9_]*)\s*\}\}")
_SECTION = re.compile(r"%([a-z]+)\b")
SECTIONS = frozenset("setup files post test environment startscript runscript labels help arguments appinstall".split())


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A definition file, read. `header` has lower-case keys; `sections` the text below each %name."""

    file: Path
    header: Mapping[str, str]
    sections: Mapping[str, str]
    arguments: Mapping[str, str]
    digest: str

    @property
    def name(self) -> str:
        """What `kbslurm image build` calls it."""
        return self.file.stem

    @property
    def base(self) -> str:
        """What it starts from, with its arguments filled in: `docker://debian:…@sha256:…`."""
        source = self.filled(self.header.get("from", ""))
        return f"{self.filled(self.header['bootstrap'])}://{source}"

    @property
    def pinned(self) -> str | None:
        """The digest that its base is pinned by."""
        found = _DIGEST.search(self.base)
        return found[1] if found else None

    def filled(self, text: str, given: Mapping[str, str] | None = None) -> str:
        """The text with its {{ arguments }} filled in, by what is given or by its defaults."""
        known = {**self.arguments, **(given or {})}
        return _PLACE.sub(lambda found: known.get(found[1], found[0]), text)


def read_recipe(file: Path) -> Recipe:
    """The recipe in this file, or Misconfigured with the line."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Misconfigured(f"can't be read: {error}", file=file, fix="Name a definition file.") from None
    header: dict[str, str] = {}
    sections: dict[str, list[str]] = {}
    section: str | None = None
    for number, line in enumerate(text.splitlines(), 1):
        if found := _SECTION.match(line):
            section = found[1]
            if section not in SECTIONS:
                raise Misconfigured(
                    f"%{section} is no section", file=file, line=number, fix=f"Known: {', '.join(sorted(SECTIONS))}."
                )
            sections.setdefault(section, [])
        elif section is not None:
            sections[section].append(line)
        elif line.strip() and not line.lstrip().startswith("#"):
            key, colon, value = line.partition(":")
            if not colon:
                raise Misconfigured("is neither `Key: value` nor a %section", file=file, line=number, fix="Correct it.")
            header[key.strip().lower()] = value.strip()
    if "bootstrap" not in header:
        raise Misconfigured("doesn't say what to begin with", file=file, line=1, fix="Add Bootstrap: and From:.")
    recipe = Recipe(
        file=file,
        header=header,
        sections={name: "\n".join(lines) for name, lines in sections.items()},
        arguments=dict(_arguments(sections.get("arguments", ()))),
        digest=f"sha256:{hashlib.sha256(text.encode()).hexdigest()}",
    )
    _check_places(recipe, text)
    return recipe


def _arguments(lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    for line in lines:
        name, equals, value = line.strip().partition("=")
        if equals and not name.startswith("#"):
            yield name.strip(), value.strip().strip("\"'")


def _check_places(recipe: Recipe, text: str) -> None:
    for number, line in enumerate(text.splitlines(), 1):
        for found in _PLACE.finditer(line):
            if found[1] not in recipe.arguments:
                raise Misconfigured(
                    f"{{{{ {found[1]} }}}} has no default", file=recipe.file, line=number, fix="Add it to %arguments."
                )


def recipe_findings(recipe: Recipe) -> list[Finding]:
    """What can be said of a recipe without building it."""
    found = []
    if recipe.base.startswith("docker://"):
        if recipe.pinned:
            found.append(passed("base", f"pinned by digest: {recipe.base}"))
        else:
            found.append(
                failed("base", f"{recipe.base} may be another image tomorrow", "Add @sha256:… to its From line.")
            )
    for name, why in (("post", "nothing is installed"), ("test", "a broken image isn't noticed when it is built")):
        if name in recipe.sections:
            found.append(passed(f"%{name}", "is there"))
        else:
            found.append(caution(f"%{name}", f"is missing: {why}", f"Add a %{name} section."))
    return found


def recipes(folder: Path) -> list[Recipe]:
    """Every recipe of a folder, by name."""
    return [read_recipe(file) for file in sorted(folder.glob("*.def"))]


def digest_of(image: Path) -> str:
    """The digest of a SIF file (`sha256:…`) or of a directory image (`tree:…`). NotFound when there is neither."""
    try:
        return image_digest(image)
    except FileNotFoundError:
        raise NotFound("image", str(image), hint="kbslurm image build or kbslurm image pull makes one.") from None
    except OSError as error:
        raise Invalid(f"the image {image} can't be read: {error.strerror}", hint="Look at its permissions.") from None


@dataclass(frozen=True, kw_only=True)
class Pin:
    """What is known of an image that was made here."""

    digest: str
    made_at: datetime
    source: str
    base: str = ""
    recipe: str = ""
    program: str = ""
    signer: str = ""


def lock_beside(image: Path) -> Path:
    """The lock that an image of this path belongs to."""
    return image.parent / LOCK


def read_lock(file: Path) -> dict[str, Pin]:
    """The pins of a lock by the image's file name; none when there is no such file."""
    try:
        raw = tomllib.loads(file.read_text(encoding="utf-8"))
        return {name: Pin(**told) for name, told in raw.get("images", {}).items()}
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, TypeError) as error:
        raise Misconfigured(f"can't be read: {error}", file=file, fix="Build or pull the image again.") from None


def pin(file: Path, name: str, found: Pin) -> None:
    """Write one pin into a lock; what else stands there stays. Whole or not at all."""
    pins = {**read_lock(file), name: found}
    lines = [
        "# Written by kbslurm image build and kbslurm image pull; read by kbslurm image verify and kbslurm doctor."
    ]
    for image, one in sorted(pins.items()):
        lines += ["", f"[images.{json.dumps(image)}]", *_pin_lines(one)]
    fresh = file.with_name(f".{file.name}-{secrets.token_hex(4)}")
    fresh.write_text("\n".join(lines) + "\n", encoding="utf-8")
    fresh.replace(file)


def _pin_lines(one: Pin) -> Iterator[str]:
    for key, value in vars(one).items():
        if isinstance(value, datetime):
            yield f"{key} = {value.isoformat(timespec='seconds')}"
        elif value:
            yield f"{key} = {json.dumps(value, ensure_ascii=False)}"


@dataclass(frozen=True, kw_only=True)
class Maker:
    """How images are made here: the container program and what it is given."""

    program: str = ""
    options: tuple[str, ...] = ()
    timeout_s: float = BUILD_S
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))

    @property
    def executable(self) -> str:
        """The container program's full path. NotFound when there is none."""
        names = (self.program,) if self.program else ("apptainer", "singularity")
        path = self.environ.get("PATH", os.defpath)
        for name in names:
            if found := shutil.which(name, path=path):
                return found
        raise NotFound(
            "container program",
            names[0],
            hint="Load its module first, name it with --program, or do this on a node that has it.",
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
    """Build a SIF, or a directory where the name has no ending, and pin it in the lock beside it.

    Nothing is left under that name unless it was built whole. A base that isn't pinned is refused unless `unpinned`.
    """
    given = dict(arguments or {})
    strange = sorted(set(given) - set(recipe.arguments))
    if strange:
        raise Invalid(f"{recipe.file.name} has no argument {strange[0]}", hint=f"Known: {', '.join(recipe.arguments)}.")
    base = f"{recipe.filled(recipe.header['bootstrap'], given)}://{recipe.filled(recipe.header.get('from', ''), given)}"
    if base.startswith("docker://") and not _DIGEST.search(base) and not unpinned:
        raise Misconfigured(
            f"its base {base} isn't pinned by a digest",
            file=recipe.file,
            fix="Add @sha256:…; --unpinned builds on whatever the name means today.",
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
    """Fetch an image from a registry and pin what came. An address without a digest is refused unless `unpinned`."""
    if not source.startswith(PULLED):
        raise Invalid(f"{source!r} can't be pulled", hint=f"It begins with one of {', '.join(PULLED)}.")
    if not _DIGEST.search(source) and not unpinned:
        raise Invalid(
            f"{source} may be another image tomorrow",
            hint="Add @sha256:… of the manifest, or say --unpinned; what came is pinned in either case.",
        )
    digest = _made({"action": "pull", "source": source}, image, maker, maker.options)
    return _pinned(image, maker, digest, source=source, now=now)


def _made(order: Mapping[str, Any], image: Path, maker: Maker, options: Sequence[str]) -> str:
    if not image.parent.is_dir():
        raise NotFound("folder", str(image.parent), hint="Make it first; it should be readable for every job.")
    making = image.with_name(f".{image.name}-{secrets.token_hex(4)}")
    making.mkdir(0o700)
    fresh = making / image.name
    try:
        said = ask_spython({**order, "image": str(fresh), "options": list(options)}, maker)
        if said["status"]:
            raise BackendTrouble("image", f"{order['source']} couldn't be made: {_reason(said['said'])}")
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
    """Put it under its name. A running job keeps the old file; an old directory is moved out of the way first."""
    if image.is_dir():
        image.rename(making / "old")
    fresh.replace(image)


def _removed(path: Path) -> None:
    """Remove a folder, what a build made there as other users of its own namespace included."""
    for folder, _, _ in os.walk(path):
        with contextlib.suppress(OSError):
            Path(folder).chmod(0o700)
    shutil.rmtree(path, ignore_errors=True)
    if path.exists():
        words = ["unshare", "--user", "--map-root-user", "--map-auto", "rm", "-rf", "--", str(path)]
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=LOOK_S, check=False)


def inspect(image: Path, maker: Maker) -> Mapping[str, Any]:
    """What the image says of itself: labels, definition, environment."""
    if not image.exists():
        raise NotFound("image", str(image), hint="kbslurm image list shows what there is.")
    said = ask_spython({"action": "inspect", "image": str(image)}, maker)
    if said["status"]:
        raise BackendTrouble("image", f"{image} can't be inspected: {_reason(said['said'])}")
    found: Mapping[str, Any] = said["attributes"]
    return found


def version_of(maker: Maker) -> str:
    """What the container program calls itself."""
    answer = _told([maker.executable, "--version"], maker, LOOK_S)
    return answer.stdout.strip()


def ask_spython(order: Mapping[str, Any], maker: Maker) -> dict[str, Any]:
    """Have one order carried out by spython in a process of its own, within the maker's time or not at all."""
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
        raise BackendTrouble("image", f"{what} failed: {_reason(err)}") from None
    return {**told, "said": told.get("said") or err}


def _ended(child: subprocess.Popen[str]) -> None:
    """End the child and whatever it started."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        child.kill()
    child.communicate()


def _reason(said: str) -> str:
    """The line that says why, out of all that the program said."""
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line).strip() for line in said.splitlines()]
    told = [line for line in lines if line]
    fatal = [line for line in told if line.startswith(("FATAL", "ERROR"))]
    return re.sub(r"^(FATAL|ERROR)[: ]*", "", (fatal or told or ["no reason given"])[-1])


def _told(argv: Sequence[str], maker: Maker, limit_s: float) -> subprocess.CompletedProcess[str]:
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


def verify(
    image: Path,
    maker: Maker | None,
    *,
    pinned: str = "",
    key: Path | None = None,
    where: str = "",
) -> list[Finding]:
    """Whether an image is what was pinned (by a site's file, else by the lock beside it) and who signed it.

    Without a maker (no container program here) signatures aren't looked at. `key`: a public key that must have signed.
    """
    if not image.exists():
        return [
            failed(
                "image",
                f"{image} isn't there",
                "kbslurm image build or kbslurm image pull makes it; see containers/README.md.",
                where=where,
            )
        ]
    found = [_digest_finding(image, pinned, where)]
    if maker is not None and not image.is_dir():
        found.append(_signature_finding(image, maker, key, where))
    elif key is not None:
        found.append(
            failed("signature", f"{image} can't carry one here", "Use a SIF, where Apptainer is.", where=where)
        )
    return found


def _digest_finding(image: Path, pinned: str, where: str) -> Finding:
    found = digest_of(image)
    wanted, by = pinned, "the site's file"
    if not wanted:
        known = read_lock(lock_beside(image)).get(image.name)
        wanted, by = (known.digest if known else ""), LOCK
    if not wanted:
        return caution(
            "image",
            f"{image} isn't pinned; it is {found}",
            f'Write image_digest = "{found}" into the site\'s file, so that a changed image is noticed.',
            where=where,
        )
    if found != wanted:
        return failed(
            "image",
            f"{image} is {found}, but {by} pins {wanted}",
            "Somebody replaced it, or it is damaged: build or pull it again, or pin the new one after a look.",
            where=where,
        )
    return passed("image", f"{image} is what {by} pins ({found[:19]}…)", where=where)


def _signature_finding(image: Path, maker: Maker, key: Path | None, where: str) -> Finding:
    words = ["--key", str(key)] if key else ["--local"]
    answer = _told([maker.executable, "verify", "--all", "--json", *words, str(image)], maker, LOOK_S)
    if answer.returncode == 0:
        return passed("signature", f"signed by {_signers(answer.stdout) or key}", where=where)
    said = _reason(answer.stderr)
    if "signature not found" in said and key is None:
        return passed("signature", "carries none: its digest is what counts", where=where)
    if "unknown entity" in said and key is None:
        return caution(
            "signature",
            "is signed by a key that isn't known here",
            "Import the signer's public key (apptainer key import FILE) if you know whose it is.",
            where=where,
        )
    return failed("signature", f"{image}: {said}", "Don't use this image before you know why.", where=where)


def _signers(text: str) -> str:
    try:
        told = json.loads(text)
        signers = {(one["Signer"]["Name"], one["Signer"]["Fingerprint"]) for one in told["SignerKeys"] or ()}
    except (ValueError, KeyError, TypeError):
        return ""
    return ", ".join(f"{name} ({fingerprint})".strip() for name, fingerprint in sorted(signers))
