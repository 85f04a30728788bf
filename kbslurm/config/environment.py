"""The environment on top of `.env`, the user's home directory, and where each variable came from."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

from kbslurm.errors import Misconfigured


def default_state_dir(env: Mapping[str, str]) -> Path:
    """kbslurm's folder in the user's state folder; in the temporary folder for a user without a home directory."""
    if env.get("XDG_STATE_HOME"):
        return Path(env["XDG_STATE_HOME"]) / "kbslurm"
    home = home_in(env)
    return home / ".local" / "state" / "kbslurm" if home else Path(tempfile.gettempdir()) / f"kbslurm-{os.getuid()}"


def home_in(env: Mapping[str, str]) -> Path | None:
    """The user's home directory, if there is one."""
    if env.get("HOME"):
        return Path(env["HOME"])
    try:
        # Only the real environment may fall back on the account's entry; others are made up by a caller.
        return Path.home() if env is os.environ and "HOME" not in env else None
    except RuntimeError:
        return None


def with_dotenv(env: Mapping[str, str], file: Path) -> tuple[dict[str, str], dict[str, str]]:
    """The environment on top of `.env`, and the line in `.env` of each name."""
    try:
        text = file.read_text(encoding="utf-8") if file.is_file() else ""
    except (OSError, UnicodeDecodeError) as error:
        raise Misconfigured("it can't be read", file=file, fix="Fix its permissions, or remove it.") from error
    found: dict[str, str] = {}
    lines: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.strip().removeprefix("export ").strip()
        if not words or words.startswith("#"):
            continue
        name, sep, value = words.partition("=")
        if not sep or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name.strip()):
            raise Misconfigured("this line isn't NAME=value", file=file, line=number, fix="Fix this line.")
        found[name.strip()] = _unquoted(value.strip())
        lines[name.strip()] = f"{file}:{number}"
    return {**found, **env}, lines


def _unquoted(value: str) -> str:
    if len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'":
        return value[1:-1]
    return re.split(r"\s+#", value, maxsplit=1)[0]


def origin_of(name: str, env: Mapping[str, str], lines: Mapping[str, str]) -> str:
    """Where this variable was set: in the environment, or on a line of `.env`."""
    return f"${name}" if env.get(name) else lines.get(name, f"${name}")
