"""The environment variables that hold secrets. They are masked when shown, redacted in logs, and withheld from the
bot."""

from __future__ import annotations

import re
from collections.abc import Iterable

SECRET_VARIABLES = (
    "DATABASE_URL",
    "DISCORD_TOKEN",
    "GITHUB_TOKEN",
    "KBSLURM_RUN_KEY",
    "POPCORN_ADMIN_TOKEN",
    "KBSLURM_BOT_TOKEN",
    "MODAL_TOKEN_ID",
    "MODAL_TOKEN_SECRET",
    "CLI_DISCORD_CLIENT_SECRET",
    "CLI_GITHUB_CLIENT_SECRET",
    "OIDC_CLIENT_SECRET",
)

# Each Ray cluster has two of its own, named after its place.
_OF_RAY = re.compile(r"RAY_[A-Z0-9_]+_(TOKEN|KEY)")


def of_ray(place: str) -> tuple[str, str]:
    """The variables of a Ray cluster: the token of its API, and the run key that its nodes hold too."""
    name = place.upper().replace("-", "_")
    return f"RAY_{name}_TOKEN", f"RAY_{name}_KEY"


def secret_ones(names: Iterable[str]) -> list[str]:
    """Those of these environment variables that hold a secret."""
    return [name for name in names if name in SECRET_VARIABLES or _OF_RAY.fullmatch(name)]
