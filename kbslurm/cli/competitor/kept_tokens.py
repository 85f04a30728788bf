"""This account's tokens, one per service, in a file in the user's configuration folder that nobody else can read."""

from __future__ import annotations

import json
import os
import re
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from kbslurm.errors import Invalid, Misconfigured

FILE_NAME = "tokens.json"
FILE_CAP = 1 << 20
TOKEN_CAP = 512


def address(text: str) -> str:
    """A service's address as it is stored: http or https, a host, no trailing slash; or Invalid."""
    found = text.strip().rstrip("/")
    try:
        parts = urlsplit(found)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host, parts = None, urlsplit("")
    if parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment or parts.username:
        raise Invalid(
            f"{text[:200]!r} isn't a valid service address", hint="Write it like https://kernels.example.edu."
        )
    if not found.isascii() or not found.isprintable() or " " in found:
        raise Invalid(
            f"{text[:200]!r} contains characters that aren't allowed in an address",
            hint="Write the host name in ASCII.",
        )
    return found


def checked(text: str) -> str:
    """A token, or Invalid: anything might have been pasted."""
    found = text.strip()
    if found.lower().startswith("cli_id:"):  # the line from ~/.popcorn.yaml
        found = found[len("cli_id:") :].strip().strip("'\"")
    if not re.fullmatch(r"[\x21-\x7e]+", found) or len(found) > TOKEN_CAP:
        raise Invalid("this isn't a valid token", hint="Paste the whole token and nothing else.")
    return found


def file() -> Path:
    """The path of the token file, which may not exist yet."""
    named = os.environ.get("XDG_CONFIG_HOME")
    try:
        folder = Path(named) if named and Path(named).is_absolute() else Path.home() / ".config"
    except RuntimeError:
        raise Misconfigured(
            "this account has no home directory", fix="Set XDG_CONFIG_HOME, or KBSLURM_TOKEN."
        ) from None
    return folder / "kbslurm" / FILE_NAME


def token_for(url: str) -> str | None:
    """The token for this service: $KBSLURM_TOKEN, else the saved one."""
    if named := os.environ.get("KBSLURM_TOKEN"):
        return checked(named)
    found = _read(file()).get(url)
    return None if found is None else checked(found)


def keep(url: str, token: str) -> Path:
    """Save a token for this service, replacing any other; returns the file."""
    path = file()
    _write(path, {**_read(path), url: token})
    return path


def forget(url: str) -> bool:
    """Remove the token for this service; returns whether there was one."""
    path = file()
    known = dict(_read(path))
    if known.pop(url, None) is None:
        return False
    _write(path, known)
    return True


def _read(path: Path) -> Mapping[str, str]:
    try:
        with path.open("rb") as opened:
            mode, raw = os.fstat(opened.fileno()).st_mode, opened.read(FILE_CAP)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise Misconfigured(f"the token file can't be read ({error.strerror})", file=path) from None
    if stat.S_IMODE(mode) & 0o077:
        raise Misconfigured("other users can read the token file", file=path, fix=f"Run: chmod 600 {path}")
    try:
        told = json.loads(raw)
    except ValueError:
        told = None
    if not isinstance(told, dict) or not all(isinstance(one, str) for one in told.values()):
        raise Misconfigured("this isn't a valid token file", file=path, fix="Remove it, then run: kbslurm login")
    return told


def _write(path: Path, told: Mapping[str, str]) -> None:
    """Written atomically, and never readable by anyone else."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as opened:
            json.dump(told, opened, indent=2)
        draft.rename(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise Misconfigured(f"the token can't be saved ({error.strerror})", file=path) from None
