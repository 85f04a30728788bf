"""The service over HTTP: for the bot, and for commands on a laptop. Every refusal is the same error as at the server.

One `Client` may be shared by threads. `acting_for` gives the hosts' client the voice of one person: the bot's way.
"""

from __future__ import annotations

from kbslurm.client.bot_calls import BotCalls
from kbslurm.client.feed import Feed
from kbslurm.client.host_board_calls import HostBoardCalls
from kbslurm.client.host_calls import HostCalls
from kbslurm.client.person_calls import PersonCalls
from kbslurm.client.public_calls import PublicCalls


class Client(PublicCalls, PersonCalls, BotCalls, HostCalls, HostBoardCalls, Feed):
    """Calls by method; JSON becomes values. Connections are kept; `close` gives them back."""

    def acting_for(self, whom: str, *, roles: str | None = None) -> Client:
        """The same hosts' client as this person: `discord:ID`, `github:ID` or `person:ID`. Shares its connections.

        `roles` are the person's on Discord, as `GUILD:ROLE,ROLE`; only the bot is believed.
        """
        return Client(
            self._url, admin=self._admin, timeout_s=self._timeout_s, _shared=self._http, _acting=whom, _roles=roles
        )
