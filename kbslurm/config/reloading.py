"""The configuration read anew by a process that goes on: what can change under it, and what is only read at a start."""

from __future__ import annotations

import dataclasses

from kbslurm.config import settings
from kbslurm.config.secret_values import Secrets
from kbslurm.config.sections.kbslurm_toml import leaves
from kbslurm.config.settings import Config
from kbslurm.errors import Misconfigured

START_ONLY = ("server.", "daemon.metrics", "daemon.state_dir")


def again(config: Config) -> tuple[Config, list[str]]:
    """The configuration as file, environment and secrets say it now, and the settings that changed but only hold from
    the next start on; those keep their earlier values. Misconfigured if it can't be used, or a secret in use can't be
    read."""
    found = settings.load(config.file)
    if (found.database_url is None) is not (config.database_url is None):
        raise Misconfigured(
            "DATABASE_URL was set or unset, which a running service can't follow", fix="Restart it: kbslurm up"
        )
    for name in config.secrets.in_use() if isinstance(config.secrets, Secrets) else ():
        found.secret(name)
    before = dict(leaves(config))
    restart = [key for key, value in leaves(found) if key.startswith(START_ONLY) and before.get(key) != value]
    daemon = dataclasses.replace(found.daemon, metrics=config.daemon.metrics, state_dir=config.daemon.state_dir)
    return dataclasses.replace(found, server=config.server, daemon=daemon), restart
