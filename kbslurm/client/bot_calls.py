"""What the Discord bot asks, for the person that it acts for."""

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
    """What the Discord bot asks."""

    def discord_user(self, account: str, name: str) -> PersonInfo:
        """The bot's call: the person of this Discord account, made when there is none."""
        return parsed(PersonInfo, self._told("POST", "/bot/people", json={"account": account, "name": name}))

    def link_mine(self, token: str) -> PersonInfo:
        """The bot's call: give a pending token to the person that this client acts for."""
        return parsed(PersonInfo, self._told("POST", "/bot/link", json={"token": token}))

    def may(self) -> May:
        """The bot's call: what the person that this client acts for may beside submitting."""
        return parsed(May, self._get("/bot/may"))

    def resync(self) -> None:
        """The bot's call: refused unless a host asks for it."""
        self._told("POST", "/bot/resync")

    def verification(self, number: int) -> Mapping[str, Any]:
        """The bot's call: how a canary stands."""
        found: Mapping[str, Any] = self._get(f"/bot/verifications/{number}")
        return found
