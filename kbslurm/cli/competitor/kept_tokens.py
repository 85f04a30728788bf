"""The services that this account knows by name, its contexts, and its token for each: one file in the user's
configuration folder, which nobody else can read.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from kbslurm.errors import Invalid, Misconfigured, NotFound

FILE_NAME = "tokens.json"
FILE_CAP = 1 << 20
TOKEN_CAP = 512
DATABASE = "database"  # instead of a context: no service, but the database that is configured here
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,63}")


@dataclass(frozen=True, kw_only=True)
class Kept:
    """A service under a name; without a token: known, but not signed in."""

    name: str
    url: str
    token: str | None = None


@dataclass(frozen=True, kw_only=True)
class Book:
    """Every context by name, and the one in use."""

    in_use: str | None = None
    contexts: Mapping[str, Kept] = field(default_factory=dict)

    def named(self, name: str) -> Kept:
        """The context with this name, or NotFound with the existing ones."""
        if name not in self.contexts:
            hint = None if self.contexts else "Run: kbslurm login https://…"
            raise NotFound("context", name, known=list(self.contexts), hint=hint)
        return self.contexts[name]

    def at(self, url: str) -> Kept | None:
        """A context of this service: the one in use if it is, else any."""
        found = [one for one in self.contexts.values() if one.url == url]
        return next((one for one in found if one.name == self.in_use), found[0] if found else None)

    def free_name(self, url: str) -> str:
        """A name for this service: its host's."""
        usual = re.sub(r"[^A-Za-z0-9._:-]", "", urlsplit(url).netloc).lstrip(".-_:")[:60] or "service"
        tries = (usual, *(f"{usual}-{n}" for n in range(2, len(self.contexts) + 3)))
        return next(one for one in tries if one not in self.contexts and one != DATABASE)


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


def context_name(text: str) -> str:
    """The name for a context, or Invalid."""
    if not _NAME.fullmatch(text) or text == DATABASE:
        hint = f"{DATABASE} means: no service." if text == DATABASE else "Use letters, digits and . _ : -, at most 64."
        raise Invalid(f"{text[:80]!r} isn't a valid name for a context", hint=hint)
    return text


def token_for(url: str) -> str | None:
    """The token for this service: $KBSLURM_TOKEN, else the saved one."""
    if named := os.environ.get("KBSLURM_TOKEN"):
        return checked(named)
    found = book().at(url)
    return None if found is None or found.token is None else checked(found.token)


def book() -> Book:
    """What is saved; nothing where there is no file yet."""
    return _read(file())


def check_free(name: str, url: str) -> None:
    """Invalid if the name stands for another service, whose token it would replace."""
    found = book().contexts.get(name)
    if found is not None and found.url != url:
        raise Invalid(
            f"{name} is already {found.url}", hint=f"Pick another name, or run: kbslurm context remove {name}"
        )


def keep(url: str, token: str, name: str | None = None) -> tuple[Path, str]:
    """Save a token for this service, replacing any other, and put its context to use; returns the file and the
    context's name: by default the one that it has, else the service's host."""
    path = file()
    known = _read(path)
    if name is None:
        found = known.at(url)
        name = known.free_name(url) if found is None else found.name
    _write(path, Book(in_use=name, contexts={**known.contexts, name: Kept(name=name, url=url, token=token)}))
    return path, name


def use(name: str) -> Kept | None:
    """Put this context to use from now on; `database`: none."""
    path = file()
    known = _read(path)
    found = None if name == DATABASE else known.named(name)
    _write(path, replace(known, in_use=None if found is None else name))
    return found


def remove(name: str) -> Kept:
    """Remove a context with its token."""
    path = file()
    known = _read(path)
    found = known.named(name)
    rest = {other: one for other, one in known.contexts.items() if other != name}
    _write(path, Book(in_use=None if known.in_use == name else known.in_use, contexts=rest))
    return found


def forget(url: str, token: str) -> bool:
    """Remove this token for this service, and no other; returns whether it was saved. Its context stays: whoever was
    signed in there isn't to work elsewhere all at once."""
    path = file()
    known = _read(path)
    ended = {
        one.name: replace(one, token=None) for one in known.contexts.values() if (one.url, one.token) == (url, token)
    }
    if not ended:
        return False
    _write(path, replace(known, contexts={**known.contexts, **ended}))
    return True


def _read(path: Path) -> Book:
    try:
        with path.open("rb") as opened:
            mode, raw = os.fstat(opened.fileno()).st_mode, opened.read(FILE_CAP)
    except FileNotFoundError:
        return Book()
    except OSError as error:
        raise Misconfigured(f"the token file can't be read ({error.strerror})", file=path) from None
    if stat.S_IMODE(mode) & 0o077:
        raise Misconfigured("other users can read the token file", file=path, fix=f"Run: chmod 600 {path}")
    try:
        return _understood(json.loads(raw))
    except (ValueError, TypeError, KeyError, AttributeError):
        raise Misconfigured(
            "this isn't a valid token file", file=path, fix="Remove it, then run: kbslurm login"
        ) from None


def _understood(told: Any) -> Book:
    """What the file says; in its first form it had a token by address, and no names."""
    if not isinstance(told.get("contexts"), dict):
        found = Book()
        for url, token in told.items():
            name = found.free_name(address(url))
            found = Book(contexts={**found.contexts, name: Kept(name=name, url=url, token=token + "")})
        return found
    contexts = {
        str(name): Kept(name=name, url=one["url"] + "", token=None if one["token"] is None else one["token"] + "")
        for name, one in told["contexts"].items()
    }
    return Book(in_use=told["in_use"] if told["in_use"] in contexts else None, contexts=contexts)


def _write(path: Path, known: Book) -> None:
    """Written atomically, and never readable by anyone else."""
    contexts = {one.name: {"url": one.url, "token": one.token} for one in known.contexts.values()}
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as opened:
            json.dump({"in_use": known.in_use, "contexts": contexts}, opened, indent=2)
        draft.rename(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise Misconfigured(f"the token can't be saved ({error.strerror})", file=path) from None
