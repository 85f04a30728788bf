"""Secrets: from the environment, from a file that it names, or from a command that prints one; never shown by mistake.

Files are read when the configuration is, commands when their secret is first needed. Both are read again by a reload,
and when a service rejects what was read.
"""

from __future__ import annotations

import hmac
import os
import re
import shlex
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from kbslurm.config import toml_file
from kbslurm.domain.secret_names import is_secret, named_in
from kbslurm.errors import Misconfigured

# Where people might write a secret, and the message for that.
MISPLACED = {
    "database_url": "DATABASE_URL",
    "server.database_url": "DATABASE_URL",
    "server.admin_token": "POPCORN_ADMIN_TOKEN",
    "daemon.database_url": "DATABASE_URL",
    "discord.token": "DISCORD_TOKEN",
    "discord.client_secret": "CLI_DISCORD_CLIENT_SECRET",
    "github.client_secret": "CLI_GITHUB_CLIENT_SECRET",
    "oidc.client_secret": "OIDC_CLIENT_SECRET",
    "github.token": "GITHUB_TOKEN",
    "github.tokens": "GITHUB_TOKEN",
    "github.run_key": "KBSLURM_RUN_KEY",
    "modal.token_id": "MODAL_TOKEN_ID",
    "modal.token_secret": "MODAL_TOKEN_SECRET",
}
MASK = "********"
COMMAND_S = 20.0
FAILED_FOR_S = 30.0
LONGEST = 65_536


class Secret:
    """A string that isn't shown when it, or an object containing it, is printed by mistake."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Reveal it."""
        return self._text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and hmac.compare_digest(self._text.encode(), other._text.encode())

    def __hash__(self) -> int:
        return hash(self._text)

    def __repr__(self) -> str:
        return MASK


def masked_url(url: str) -> str:
    """The URL without its password, wherever that is in it."""
    masked = re.sub(r"(?<=://)([^/?#]*):([^/?#]*)@", rf"\1:{MASK}@", url)
    masked = re.sub(r"([?&]\w*password=)[^&#]*", rf"\1{MASK}", masked)
    return masked if "://" in url else MASK


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where a secret comes from: the variable `variable`, which holds it, names its file, or is the command."""

    name: str
    variable: str
    way: Literal["value", "file", "command"]
    text: str = field(repr=False)


class Secrets(Mapping[str, Secret]):
    """All secrets that are set, by name. A command is run when its secret is first asked for, and not again for a while
    after it failed; nobody waits for the command of another secret, or for any once its secret is known."""

    def __init__(self, env: Mapping[str, str], here: Path, *, steady: Callable[[], float] = time.monotonic) -> None:
        self._env, self._here, self._steady = env, here, steady
        self._found: dict[str, Secret] = {}
        self._failed: dict[str, tuple[float, Misconfigured]] = {}
        self.sources: Mapping[str, Source] = {
            name: source for name in named_in(env) if (source := source_of(name, env)) is not None
        }
        self._locks = {name: threading.Lock() for name in self.sources}

    def __getitem__(self, name: str) -> Secret:
        source = self.sources[name]
        found = self._found.get(name)
        return found if found is not None else self._read(source, instead_of=None)

    def __contains__(self, name: object) -> bool:
        return name in self.sources

    def __iter__(self) -> Iterator[str]:
        return iter(self.sources)

    def __len__(self) -> int:
        return len(self.sources)

    def __repr__(self) -> str:
        return f"Secrets({', '.join(self.sources)})"

    def __deepcopy__(self, memo: object) -> Secrets:
        return self

    def read_files(self) -> None:
        """Read those that are in files, or Misconfigured."""
        for source in self.sources.values():
            if source.way != "command":
                self[source.name]

    def in_use(self) -> tuple[str, ...]:
        """The names of those that were asked for, and found."""
        return tuple(self._found)

    def again(self, name: str) -> str | None:
        """The secret as its file or command says it now: a service has rejected what it said before."""
        source = self.sources.get(name)
        return None if source is None else self._read(source, instead_of=self._found.get(name)).reveal()

    def _read(self, source: Source, *, instead_of: Secret | None) -> Secret:
        """Read it, unless another thread has meanwhile, or its command failed just now."""
        name = source.name
        with self._locks[name]:
            found = self._found.get(name)
            if found is not None and found is not instead_of:
                return found
            if name in self._failed:
                until, error = self._failed[name]
                if self._steady() < until:
                    raise Misconfigured(error.message, fix=error.fix)
            try:
                self._found[name] = Secret(read(source, self._env, self._here))
            except Misconfigured as error:
                if source.way == "command":
                    self._failed[name] = (self._steady() + FAILED_FOR_S, error)
                raise
            self._failed.pop(name, None)
            return self._found[name]

    def path(self, name: str) -> Path | None:
        """The file that this secret is in, if it is in one."""
        source = self.sources.get(name)
        return toml_file.resolved(source.text, self._here) if source is not None and source.way == "file" else None


def source_of(name: str, env: Mapping[str, str]) -> Source | None:
    """Where this secret comes from, or Misconfigured if two say so."""
    ways: tuple[tuple[str, Literal["value", "file", "command"]], ...] = (
        (name, "value"), (f"{name}_FILE", "file"), (f"{name}_COMMAND", "command"),
    )  # fmt: skip
    found = [Source(name=name, variable=named, way=way, text=env[named]) for named, way in ways if env.get(named)]
    if len(found) > 1:
        both = " and ".join(one.variable for one in found)
        how = "both" if len(found) == 2 else "all of"
        raise Misconfigured(f"{how} {both} are set", fix="Keep one of them and unset the rest.")
    return found[0] if found else None


def read(source: Source, env: Mapping[str, str], here: Path) -> str:
    """The secret itself, or Misconfigured without any of it."""
    match source.way:
        case "value":
            text = source.text
        case "file":
            text = _in_file(source, here)
        case "command":
            text = _printed(source, env, here)
    _note(text)
    return text


def secret_in(name: str, env: Mapping[str, str], here: Path) -> str | None:
    """The secret from this environment variable, the file named by NAME_FILE, or the command in NAME_COMMAND."""
    source = source_of(name, env)
    return None if source is None else read(source, env, here)


def known() -> frozenset[str]:
    """Every secret that this process has read: what no log may show."""
    with _KNOWN_LOCK:
        return frozenset(_KNOWN)


_KNOWN: set[str] = set()
_KNOWN_LOCK = threading.Lock()


def _note(text: str) -> None:
    """URLs may appear in logs, without their password."""
    password = re.search(r"://[^/?#:@]*:([^/?#]*)@", text)
    parts = [password[1]] if password else [] if "://" in text else [text, *text.replace(",", " ").split()]
    with _KNOWN_LOCK:
        _KNOWN.update(part for part in parts if part)


def _in_file(source: Source, here: Path) -> str:
    path = toml_file.resolved(source.text, here)
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        said = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise Misconfigured(f"the file in {source.variable} can't be read ({said})", file=path) from None
    if not text:
        raise Misconfigured(f"the file in {source.variable} is empty", file=path)
    return text


def _printed(source: Source, env: Mapping[str, str], here: Path) -> str:
    """What the command prints. It runs without a shell and without our other secrets, and nothing of its output is
    shown."""

    def failed(how: str) -> Misconfigured:
        fix = "Run it by hand as this account to see what it says; its output isn't shown here."
        return Misconfigured(f"the command in {source.variable} {how}", fix=fix)

    try:
        argv = shlex.split(source.text)
    except ValueError:
        raise failed("can't be split into words: a quotation mark isn't closed") from None
    if not argv:
        raise failed("is empty")
    # Not a pipe: a helper that it leaves behind may keep that open.
    with os.fdopen(os.memfd_create("secret"), "w+b") as printed:
        try:
            done = subprocess.run(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=subprocess.DEVNULL,
                timeout=COMMAND_S,
                check=False,
                cwd=here,
                env={name: value for name, value in env.items() if not is_secret(name)},
            )
        except subprocess.TimeoutExpired:
            raise failed(f"didn't end within {COMMAND_S:.0f} s") from None
        except (OSError, ValueError) as error:
            said = error.strerror if isinstance(error, OSError) and error.strerror else "it isn't a valid command"
            raise failed(f"can't be started ({said})") from None
        printed.seek(0)
        output = printed.read(4 * LONGEST + 1)
    if done.returncode:
        how = f"exit code {done.returncode}" if done.returncode > 0 else f"signal {-done.returncode}"
        raise failed(f"failed ({how})")
    if len(output) > 4 * LONGEST:
        raise failed("printed what can't be a secret: it is too long, or contains a NUL")
    try:
        text = output.decode().strip()
    except UnicodeDecodeError:
        raise failed("printed something that isn't UTF-8") from None
    if not text:
        raise failed("printed nothing")
    if len(text) > LONGEST or "\0" in text:
        raise failed("printed what can't be a secret: it is too long, or contains a NUL")
    return text
