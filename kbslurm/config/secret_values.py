"""Secrets: read from the environment or from a file that it names, and never shown by mistake."""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping
from pathlib import Path

from kbslurm.config import toml_file
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


def secret_in(name: str, env: Mapping[str, str], here: Path) -> str | None:
    """The secret from this environment variable, or from the file named by NAME_FILE."""
    named, file = env.get(name), env.get(f"{name}_FILE")
    if named and file:
        raise Misconfigured(f"both {name} and {name}_FILE are set", fix="Unset one of them.")
    if not file:
        return named or None
    path = toml_file.resolved(file, here)
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        said = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise Misconfigured(f"the file in {name}_FILE can't be read ({said})", file=path) from None
    if not text:
        raise Misconfigured(f"the file in {name}_FILE is empty", file=path)
    return text
