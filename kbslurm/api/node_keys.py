"""The run keys of the places whose nodes call us, read before anybody calls: a stranger's call must not run a secret's
command, nor wait for one."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from kbslurm.backends.ray import calls
from kbslurm.domain.secret_names import of_ray
from kbslurm.errors import KbslurmError
from kbslurm.observe.logs import teller

if TYPE_CHECKING:
    from kbslurm.config.settings import Config

tell = teller("api")

AGAIN_S = 30.0


class NodeKeys:
    """By place. One that can't be read, or isn't a key, opens nothing: its nodes are refused, which a warning says."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._keys: Mapping[str, bytes | None] = {}
        self._read_at = 0.0

    def of(self, place: str) -> bytes | None:
        """The key as it was read last; None: there is no such place, or no key."""
        return self._keys.get(place)

    def read(self, config: Config) -> None:
        """Read those of this configuration."""
        self._keys = {place: _key(config, place) for place in config.ray}
        self._read_at = self._monotonic()

    def read_missing(self, config: Config) -> None:
        """Read those that couldn't be read half a minute ago: a secret store may have been away."""
        if None not in self._keys.values() or self._monotonic() - self._read_at < AGAIN_S:
            return
        self._keys = {place: key or _key(config, place) for place, key in self._keys.items()}
        self._read_at = self._monotonic()


def _key(config: Config, place: str) -> bytes | None:
    variable = of_ray(place)[1]
    try:
        key = calls.key_in(config.secret(variable))
        why = f"{variable} isn't a 32-byte key (64 hexadecimal digits)"
    except KbslurmError as error:
        key, why = None, error.message
    if key is None:
        tell("nodes are refused", level="warning", place=place, why=why)
    return key
