"""What every API call needs: the store, the clock, the configuration, and the event listener."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from anyio import CapacityLimiter, to_thread

from kbslurm.api.connections import ConnectionLimits, Connections
from kbslurm.api.known_secrets import KnownSecrets
from kbslurm.api.listener import EventListener
from kbslurm.api.metrics import ApiMetrics
from kbslurm.api.node_keys import NodeKeys
from kbslurm.api.turns import Turns
from kbslurm.domain.intake import Offer
from kbslurm.kernelguard.scans import Scans
from kbslurm.ports import Clock

if TYPE_CHECKING:
    from kbslurm.config.settings import Config
    from kbslurm.store.postgres import PostgresStore

# As many as there are pooled connections: more threads would only wait, or open a new connection each time.
THREADS = 16
PATIENT_THREADS = 4
HOSTS_TURNS = 2
T = TypeVar("T")


@dataclass(eq=False, kw_only=True)
class Context:
    """One per app. Only `take` changes it, between requests.

    `slots` is how many attempts may be open at once, by GPU type, across all places; `offers` says which place has
    what.
    """

    store: PostgresStore
    config: Config
    clock: Clock
    listener: EventListener
    slots: Mapping[str, int] = field(default_factory=dict)
    offers: Sequence[Offer] = ()
    metrics: ApiMetrics = field(default_factory=ApiMetrics)
    connections: Connections = field(default_factory=lambda: Connections(ConnectionLimits()))
    known_secrets: KnownSecrets = field(default_factory=KnownSecrets)
    node_keys: NodeKeys = field(default_factory=NodeKeys)
    turns: Turns = field(default_factory=lambda: Turns(THREADS, reserved=HOSTS_TURNS))
    scans: Scans = field(default_factory=Scans)
    patient: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(PATIENT_THREADS))

    def __post_init__(self) -> None:
        self.node_keys.read(self.config)

    def take(self, config: Config, slots: Mapping[str, int], offers: Sequence[Offer]) -> None:
        """Go on with this configuration. What is only read at a start, like the address, stays."""
        self.config, self.slots, self.offers = config, slots, offers
        self.node_keys.read(config)

    async def patiently(self, call: Callable[[], T]) -> T:
        """Run a call that waits for others (a sign-in provider, git) where it doesn't delay polls."""
        return await to_thread.run_sync(call, limiter=self.patient)

    @property
    def bot_token(self) -> str | None:
        """The Discord bot's token; None: there is no bot."""
        return self.config.secret("KBSLURM_BOT_TOKEN") or None

    @property
    def admin_token(self) -> str | None:
        """The token for the hosts' calls; None: they are off."""
        return self.config.secret("POPCORN_ADMIN_TOKEN") or None
