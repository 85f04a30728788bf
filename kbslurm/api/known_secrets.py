"""The secrets that were valid lately, by their hash: so that whoever shares an address with a stranger can be told from
that stranger without asking the database."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict

MOST = 50_000


class KnownSecrets:
    """For any thread. It gives no right: who calls is always checked in the database."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, bool] = OrderedDict()  # whether it is a host's
        self._lock = threading.Lock()

    def note(self, secret: str, *, is_valid: bool, is_hosts: bool = False) -> None:
        """Whether it was valid just now, and then whether it is a host's or the bot's."""
        name = _name(secret)
        with self._lock:
            self._known.pop(name, None)
            if is_valid:
                self._known[name] = is_hosts
            while len(self._known) > MOST:
                self._known.popitem(last=False)

    def name_of(self, secret: str) -> str | None:
        """A name for whoever has this secret; None if it isn't known to be valid."""
        name = _name(secret)
        return name if name in self._known else None

    def is_hosts(self, secret: str) -> bool:
        """Whether it was a host's or the bot's lately."""
        return self._known.get(_name(secret), False)


def _name(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
