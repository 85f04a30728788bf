"""The digest of an image, and the digests.lock next to it, which pins every image made here.

An image is a SIF file or a directory. Its digest is `sha256:…` of the file, or `tree:…`, a sha256 over the sorted
manifest of the directory: names, kinds, executable bits, contents, links.
"""

from __future__ import annotations

import json
import secrets
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from kbslurm.errors import Invalid, Misconfigured, NotFound
from kbslurm_eval.shared.image_digest import digest_of as image_digest

LOCK = "digests.lock"


def digest_of(image: Path) -> str:
    """The digest of a SIF file (`sha256:…`) or of a directory image (`tree:…`). NotFound if there is neither."""
    try:
        return image_digest(image)
    except FileNotFoundError:
        raise NotFound("image", str(image), hint="kbslurm image build or kbslurm image pull makes one.") from None
    except OSError as error:
        raise Invalid(f"the image {image} can't be read: {error.strerror}", hint="Check its permissions.") from None


@dataclass(frozen=True, kw_only=True)
class Pin:
    """The record of an image that was made here."""

    digest: str
    made_at: datetime
    source: str
    base: str = ""
    recipe: str = ""
    program: str = ""
    signer: str = ""


def lock_beside(image: Path) -> Path:
    """The lock file for an image at this path."""
    return image.parent / LOCK


def read_lock(file: Path) -> dict[str, Pin]:
    """The pins in a lock by image file name; empty if the file doesn't exist."""
    try:
        raw = tomllib.loads(file.read_text(encoding="utf-8"))
        return {name: Pin(**told) for name, told in raw.get("images", {}).items()}
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, TypeError) as error:
        raise Misconfigured(f"can't be read: {error}", file=file, fix="Build or pull the image again.") from None


def pin(file: Path, name: str, found: Pin) -> None:
    """Write one pin into a lock, keeping the others. Atomic."""
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
