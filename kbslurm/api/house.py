"""What every call of the API stands on: the rows, the clock, what was configured, and who is told of news."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kbslurm.api.news import News
from kbslurm.ports import Clock

if TYPE_CHECKING:
    from kbslurm.config import Config
    from kbslurm.store.postgres import PostgresStore


@dataclass(frozen=True, kw_only=True)
class House:
    """One for a whole app. `slots` is how many attempts may be open at once, by GPU type, over all places."""

    store: PostgresStore
    config: Config
    clock: Clock
    news: News
    slots: Mapping[str, int] = field(default_factory=dict)

    @property
    def admin_token(self) -> str | None:
        """The secret of the hosts' calls; None: those are off."""
        return self.config.secret("POPCORN_ADMIN_TOKEN") or None
