"""kbslurm.toml and the environment → one frozen value that knows where each part came from.

The file is the first of: `--config`, $KBSLURM_CONFIG, ./kbslurm.toml, kbslurm/kbslurm.toml in the user's config folder;
without any, the defaults apply. It never contains secrets: each is an environment variable, or a file named by the
variable with _FILE appended. A `.env` next to the file (or in the current directory) is read like the environment; the
real environment takes precedence.
"""

from __future__ import annotations

import dataclasses
import os
import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kbslurm.config import toml_file
from kbslurm.config.environment import default_state_dir, home_in, origin_of, with_dotenv
from kbslurm.config.secret_values import MISPLACED, Secret, secret_in
from kbslurm.config.sections.checks import web_address
from kbslurm.config.sections.github import check_github
from kbslurm.config.sections.kbslurm_toml import KbslurmToml, check_addresses, check_reached, leaves, path_of
from kbslurm.config.sections.ray import check_ray
from kbslurm.domain import secret_names
from kbslurm.domain.secret_names import SECRET_VARIABLES

FILE_NAME = "kbslurm.toml"
LOCAL = "local"


@dataclass(frozen=True, kw_only=True)
class Config(KbslurmToml):
    """The whole configuration. `file` is the kbslurm.toml in use; `origins` says where each dotted key came from."""

    file: Path | None = None
    secrets: Mapping[str, Secret] = field(default_factory=dict)
    origins: Mapping[str, str] = field(default_factory=dict)

    @property
    def database_url(self) -> str | None:
        """The database's URL; None: an embedded one below `state_dir`."""
        return self.secret("DATABASE_URL")

    @property
    def state_dir(self) -> Path:
        """The folder for everything that isn't in the database. Reading this doesn't create it."""
        return self.daemon.state_dir or default_state_dir(os.environ)

    @property
    def local_name(self) -> str:
        """This machine's name as a place. A shared database may have runs of other machines too: the name says whose
        they are, so that no daemon looks for them in the wrong place."""
        if self.daemon.local.name or self.database_url is None:
            return self.daemon.local.name or LOCAL
        host = re.sub(r"[^A-Za-z0-9._-]", "-", platform.node())
        return f"{LOCAL}@{host}" if host else LOCAL

    @property
    def sites_dir(self) -> Path | None:
        """The folder of the sites' files, if the configuration names one or there is one next to it."""
        if self.sites.dir is not None or self.file is None:
            return self.sites.dir
        beside = self.file.parent / "site-configs"
        return beside if beside.is_dir() else None

    def secret(self, name: str) -> str | None:
        """The secret in this environment variable, in clear text."""
        found = self.secrets.get(name)
        return None if found is None else found.reveal()


def load(path: Path | None = None, env: Mapping[str, str] | None = None, *, cwd: Path | None = None) -> Config:
    """The configuration in effect, or Misconfigured with file, line and key."""
    env = os.environ if env is None else env
    here = Path.cwd() if cwd is None else cwd
    file = _found(path, env, here)
    around, lines = with_dotenv(env, (file.parent if file else here) / ".env")
    known = toml_file.parsed("", Path(FILE_NAME)) if file is None else toml_file.read(file)
    hints = {
        key: f"Secrets don't belong here: set {name} or {name}_FILE in the environment."
        for key, name in MISPLACED.items()
    }
    told = known.built(KbslurmToml, hints=hints)
    origins = {key: f"{known.path}:{known.line(path_of(key)) or 1}" for key, _ in leaves(told) if _is_in(known, key)}
    if around.get("KBSLURM_STATE_DIR"):
        state_dir = toml_file.resolved(around["KBSLURM_STATE_DIR"], here)
        told = dataclasses.replace(told, daemon=dataclasses.replace(told.daemon, state_dir=state_dir))
        origins["daemon.state_dir"] = origin_of("KBSLURM_STATE_DIR", env, lines)
    if around.get("GITHUB_API_URL"):
        api_url = web_address(around["GITHUB_API_URL"])
        told = dataclasses.replace(told, github=dataclasses.replace(told.github, api_url=api_url))
        origins["github.api_url"] = origin_of("GITHUB_API_URL", env, lines)
    if around.get("MODAL_SERVER_URL"):
        api_url = web_address(around["MODAL_SERVER_URL"])
        told = dataclasses.replace(told, modal=dataclasses.replace(told.modal, api_url=api_url))
        origins["modal.api_url"] = origin_of("MODAL_SERVER_URL", env, lines)
    if told.daemon.state_dir is None:
        state_dir = default_state_dir(env)
        told = dataclasses.replace(told, daemon=dataclasses.replace(told.daemon, state_dir=state_dir))
    secrets: dict[str, Secret] = {}
    for name in (*SECRET_VARIABLES, *(one for place in told.ray for one in secret_names.of_ray(place))):
        if found := secret_in(name, around, here):
            secrets[name] = Secret(found)
            source = name if around.get(name) else f"{name}_FILE"
            origins[name] = origin_of(source, env, lines)
    check_addresses(told, known)
    check_reached(told, known)
    check_github(told.github, known)
    check_ray(told.ray, told.server.public_url, known)
    parts = {one.name: getattr(told, one.name) for one in dataclasses.fields(told)}
    return Config(**parts, file=file, secrets=secrets, origins=origins)


def _found(path: Path | None, env: Mapping[str, str], here: Path) -> Path | None:
    named = path or (Path(env["KBSLURM_CONFIG"]) if env.get("KBSLURM_CONFIG") else None)
    if named is not None:
        return toml_file.resolved(str(named), here)
    home = home_in(env)
    folder = Path(env["XDG_CONFIG_HOME"]) if env.get("XDG_CONFIG_HOME") else home / ".config" if home else None
    for place in (here / FILE_NAME, folder / "kbslurm" / FILE_NAME if folder else None):
        if place is not None and place.is_file():
            return place
    return None


def _is_in(file: toml_file.TomlFile, key: str) -> bool:
    here: Any = file.data
    for part in path_of(key):
        if not isinstance(here, Mapping) or part not in here:
            return False
        here = here[part]
    return True
