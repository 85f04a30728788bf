"""The Discord bot's calls, for the person that it acts for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kbslurm.client.answers import (
    May,
    PersonInfo,
)
from kbslurm.client.connection import Connection
from kbslurm.client.parsing import parsed


class BotCalls(Connection):
    """The Discord bot's calls."""

    def discord_user(self, account: str, name: str) -> PersonInfo:
        """The person with this Discord account, created if needed."""
        return parsed(PersonInfo, self._told("POST", "/bot/people", json={"account": account, "name": name}))

    def link_mine(self, token: str) -> PersonInfo:
        """Link a pending token to the person that this client acts for."""
        return parsed(PersonInfo, self._told("POST", "/bot/link", json={"token": token}))

    def may(self) -> May:
        """The rights beyond submitting of the person that this client acts for."""
        return parsed(May, self._get("/bot/may"))

    def resync(self) -> None:
        """Refused unless the person is a host."""
        self._told("POST", "/bot/resync")

    def verification(self, number: int) -> Mapping[str, Any]:
        """A canary's state."""
        found: Mapping[str, Any] = self._get(f"/bot/verifications/{number}")
        return found
