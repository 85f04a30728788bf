"""The environment variables that hold secrets. They are masked when shown, redacted in logs, and withheld from the
bot. Each may also be NAME_FILE, which names a file, or NAME_COMMAND, which prints it."""

from __future__ import annotations

import re
from collections.abc import Iterable

SECRET_VARIABLES = (
    "DATABASE_URL",
    "DISCORD_TOKEN",
    "DISCORD_DEBUG_TOKEN",
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
# Of kinds of places of which there may be several: `{}` is the place's name, as `for_place` writes it.
PLACE_SECRETS = ("RAY_{}_TOKEN", "RAY_{}_KEY")
WAYS = ("", "_FILE", "_COMMAND")

_OF_PLACES = re.compile("|".join(one.format("[A-Z0-9_]+") for one in PLACE_SECRETS))


def for_place(pattern: str, place: str) -> str:
    """The variable of this place's secret: `RAY_GPU_EAST_TOKEN` of `RAY_{}_TOKEN` and `gpu-east`."""
    return pattern.format(re.sub(r"[^A-Z0-9]+", "_", place.upper()).strip("_"))


def of_ray(place: str) -> tuple[str, str]:
    """The variables of a Ray cluster: the token of its API, and the run key that its nodes hold too."""
    token, key = PLACE_SECRETS
    return for_place(token, place), for_place(key, place)


def named_in(variables: Iterable[str]) -> tuple[str, ...]:
    """The secrets that these variables may set, in order: the general ones, then those of places."""
    known = {_without_way(name) for name in variables}
    return (*SECRET_VARIABLES, *sorted(name for name in known if _OF_PLACES.fullmatch(name)))


def is_secret(variable: str) -> bool:
    """Whether this variable holds a secret, or says where one is."""
    name = _without_way(variable)
    return name in SECRET_VARIABLES or _OF_PLACES.fullmatch(name) is not None


def _without_way(variable: str) -> str:
    return next((variable.removesuffix(way) for way in WAYS[1:] if variable.endswith(way)), variable)
