"""Where messages are posted and edited, and what may be wrong with that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from kbslurm_bot import cards


class Gone(Exception):
    """The message or its channel isn't there any more, or isn't ours to write in; the sentence says which."""


class Shelved(Exception):
    """The message is in a thread that Discord has archived: no edit there, but a new message opens it again."""


class NoFiles(Exception):
    """Discord takes the message, but not its pictures."""


class Messages(Protocol):
    """Where cards are posted and edited: Discord, in JSON."""

    async def post(
        self, channel: int, message: dict[str, Any], nonce: str, pictures: Sequence[cards.Picture] = ()
    ) -> int: ...

    async def edit(
        self, channel: int, message_id: int, message: dict[str, Any], pictures: Sequence[cards.Picture] = ()
    ) -> None: ...
