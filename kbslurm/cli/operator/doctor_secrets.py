"""What `kbslurm doctor` checks of secrets: whether each is there, can be read, and can be read by nobody else."""

from __future__ import annotations

import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from kbslurm.config.place_settings import needed_secrets
from kbslurm.config.secret_values import Secrets
from kbslurm.domain.finding import Finding, caution, failed, passed
from kbslurm.domain.secret_names import is_secret
from kbslurm.errors import KbslurmError

if TYPE_CHECKING:
    from kbslurm.config.settings import Config

WAYS = {"value": "in the environment", "file": "in a file", "command": "from a command"}


def secret_findings(config: Config, names: Iterable[str]) -> Iterator[Finding]:
    """These secrets, which something that is configured needs."""
    for name in names:
        yield from _findings(config, name, needed=True)


def every_secret(config: Config) -> Iterator[Finding]:
    """All secrets that are set or needed, and the .env that may hold some."""
    from kbslurm import wiring

    needed: dict[str, None] = {}
    try:
        for place, kind in wiring.kinds(config).items():
            needed |= dict.fromkeys(needed_secrets(kind, place))
    except KbslurmError:
        pass  # a site's file that can't be read is told by the check of the sites
    needed |= {"OIDC_CLIENT_SECRET": None} if config.oidc.issuer else {}
    for name in dict.fromkeys((*needed, *config.secrets)):
        yield from _findings(config, name, needed=name in needed)
    file = (config.file.parent if config.file else Path.cwd()) / ".env"
    if file.is_file() and _holds_secrets(file):
        yield from _mode(".env", file)


def _findings(config: Config, name: str, *, needed: bool) -> Iterator[Finding]:
    secrets = config.secrets
    source = secrets.sources.get(name) if isinstance(secrets, Secrets) else None
    if source is None:
        if needed and not config.secret(name):
            remedy = f"Set {name}, {name}_FILE or {name}_COMMAND in the service's environment."
            yield failed("secret", f"{name} isn't set", remedy)
        return
    try:
        config.secret(name)
    except KbslurmError as error:
        yield failed("secret", f"{name}: {error.message}", error.hint or f"Correct {source.variable}.")
        return
    path = secrets.path(name) if isinstance(secrets, Secrets) else None
    open_to = [] if path is None else list(_mode(f"{name}", path))
    yield from open_to or [passed("secret", f"{name}, {WAYS[source.way]}")]


def _mode(what: str, path: Path) -> Iterator[Finding]:
    """Whether other accounts may read the file."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return  # whoever reads it tells that
    others = [who for who, bit in (("its group", stat.S_IRGRP), ("everybody", stat.S_IROTH)) if mode & bit]
    if others:
        text = f"{what}: {path} can be read by {' and '.join(others)} (mode {stat.S_IMODE(mode):04o})"
        yield caution("secret", text, f"Run: chmod 600 {path}")


def _holds_secrets(file: Path) -> bool:
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return False
    return any(is_secret(line.strip().removeprefix("export ").partition("=")[0].strip()) for line in lines)
