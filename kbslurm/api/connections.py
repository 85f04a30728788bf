"""Who holds how many connections: limits by address, deadlines for headers and for reading answers, and a reserve.

What these limits protect, sockets and memory, is finite whoever asks. So unlike the rates in `rate_limits` they hold
for this machine's own addresses too.
"""

from __future__ import annotations

import resource
from collections import Counter as Tally
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from kbslurm.api.addresses import Network, address, is_in, key
from kbslurm.api.entrance import Entrance
from kbslurm.config.sections.server import ServerSection
from kbslurm.errors import Refused

OTHER_FILES = 256  # what a process needs besides connections to its clients
LEAST = 64
RESERVE = 32  # one connection in so many is kept for hosts and /health
Refusal = tuple[int, str]  # a status and a sentence
Why = Literal["connections", "unfinished", "full", "late", "unread"]


class Crowded(Refused):
    """Your address has too much open."""

    http_status = 429


class Connection(Protocol):
    """One connection, as its protocol sees it. `is_streaming`: its latest answer may go on for ever."""

    peer: str
    is_direct: bool
    is_in_reserve: bool
    is_streaming: bool

    def drop(self) -> None:
        """End it now."""

    def enter(self) -> bool:
        """Take up the request that has arrived on it. Whether its answer is now being made."""


@dataclass(frozen=True, kw_only=True)
class ConnectionLimits:
    """`per_client`: connections and open requests of one address, streams included; `unfinished`: those of them whose
    headers or body are still coming."""

    connections: int = 4096
    per_client: int = 1024
    unfinished: int = 256
    head_within_s: float = 20.0
    body_within_s: float = 60.0
    read_within_s: float = 60.0

    @classmethod
    def of(cls, server: ServerSection) -> ConnectionLimits:
        """The configured ones."""
        return cls(
            connections=server.connections,
            per_client=server.connections_per_client,
            unfinished=server.unfinished_per_client,
            head_within_s=server.head_within_s,
            body_within_s=server.body_within_s,
            read_within_s=server.read_within_s,
        )


class Connections:
    """All connections of one service. For its event loop only."""

    def __init__(
        self,
        limits: ConnectionLimits,
        trusted: Sequence[Network] = (),
        turned_away: Callable[[Why], None] = lambda why: None,
    ) -> None:
        self.limits, self._trusted, self.turned_away = limits, trusted, turned_away
        self.entrance = Entrance()
        self._all: set[Connection] = set()
        self._direct: Tally[str] = Tally()
        self._unfinished: Tally[str] = Tally()
        self._headless: OrderedDict[Connection, bool] = OrderedDict()  # oldest first; whether it is counted

    @property
    def count(self) -> int:
        """How many are open."""
        return len(self._all)

    @property
    def is_full(self) -> bool:
        """Whether only the reserve is left."""
        return self.count > self.limits.connections - max(2, self.limits.connections // RESERVE)

    def fit_open_files(self) -> bool:
        """Let this process have as many open files as that takes; if it may not, allow fewer connections: False."""
        wanted = self.limits.connections + OTHER_FILES
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if _is_fewer(soft, wanted):
            soft = hard if _is_fewer(hard, wanted) else wanted
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        if _is_fewer(soft, wanted):
            self.limits = replace(self.limits, connections=max(LEAST, soft - OTHER_FILES))
            return False
        return True

    def arrive(self, connection: Connection, peer: str) -> Refusal | None:
        """A connection was made, and headers are due on it. None: it may stay; else how it ends, uncounted."""
        found = address(peer)
        connection.peer = key(found) if found else peer
        is_proxy = found is not None and is_in(found, self._trusted)
        if not is_proxy and (refused := self.is_its_own(connection)) is not None:
            return refused
        self._all.add(connection)
        self.waits_for_head(connection)
        connection.is_in_reserve = self.is_full
        if self.count > self.limits.connections:
            # Whoever has just come sends its headers in a moment; the oldest without any had its time.
            self.turned_away("full")
            next(iter(self._headless)).drop()
        return None

    def is_its_own(self, connection: Connection) -> Refusal | None:
        """The connection belongs to its peer, not to someone behind a proxy. None: it may have one more."""
        if connection.is_direct:
            return None
        if self._direct[connection.peer] >= self.limits.per_client:
            self.turned_away("connections")
            return 429, f"your address already has {self.limits.per_client} connections. Close some first."
        connection.is_direct = True
        self._direct[connection.peer] += 1
        return None

    def leave(self, connection: Connection) -> None:
        """It is over. Safe to repeat."""
        self._all.discard(connection)
        self.entrance.leave(connection)
        self.has_head(connection)
        if connection.is_direct:
            connection.is_direct = False
            _less(self._direct, connection.peer)

    def waits_for_head(self, connection: Connection) -> None:
        """Headers are due on it."""
        self._headless.setdefault(connection, False)

    def is_slow(self, connection: Connection) -> Refusal | None:
        """They still are after a moment. None: it may wait longer."""
        if self._unfinished[connection.peer] >= self.limits.unfinished:
            self.turned_away("unfinished")
            return 429, _too_many(self.limits.unfinished)
        self._unfinished[connection.peer] += 1
        self._headless[connection] = True
        return None

    def has_head(self, connection: Connection) -> None:
        """They came, or never will."""
        if self._headless.pop(connection, False):
            _less(self._unfinished, connection.peer)

    @contextmanager
    def unfinished(self, client: str) -> Iterator[None]:
        """A request of this client whose body is still coming; Crowded if it has too many."""
        if self._unfinished[client] >= self.limits.unfinished:
            self.turned_away("unfinished")
            raise Crowded(_too_many(self.limits.unfinished))
        self._unfinished[client] += 1
        try:
            yield
        finally:
            _less(self._unfinished, client)


def _is_fewer(files: int, wanted: int) -> bool:
    return files != resource.RLIM_INFINITY and files < wanted


def _too_many(most: int) -> str:
    return f"your address already has {most} unfinished requests. Finish or close some first."


def _less(among: Tally[str], whose: str) -> None:
    among[whose] -= 1
    if among[whose] <= 0:
        del among[whose]
