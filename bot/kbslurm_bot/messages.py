"""Where messages are posted and edited, and the errors of that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from kbslurm_bot import cards


class Gone(Exception):
    """The message or its channel is gone, or we may not write there; the text says which."""


class Shelved(Exception):
    """The message is in an archived thread, where it can't be edited, but a new message reopens the thread."""


class Worn(Exception):
    """Discord takes no more edits of the message, which is old and was edited often; a new message can go on."""


class NoFiles(Exception):
    """Discord accepts the message, but not its pictures."""


class Messages(Protocol):
    """Where cards are posted and edited: Discord, in JSON."""

    async def post(
        self, channel: int, message: dict[str, Any], nonce: str, pictures: Sequence[cards.Picture] = ()
    ) -> int: ...

    async def edit(
        self, channel: int, message_id: int, message: dict[str, Any], pictures: Sequence[cards.Picture] = ()
    ) -> None: ...
