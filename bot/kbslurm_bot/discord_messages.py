"""Discord messages, in the JSON of cards."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from typing import Any

import discord
from discord.http import Route

from kbslurm_bot import cards
from kbslurm_bot.messages import Gone, NoFiles, Shelved, Worn

ARCHIVED = 50083  # a thread that must be reopened first
WORN = 30046  # too many edits of a message that is over an hour old


class DiscordMessages:
    """Discord messages, in the JSON of cards."""

    def __init__(self, client: discord.Client) -> None:
        self._client = client

    async def post(
        self, channel: int, message: dict[str, Any], nonce: str, pictures: Sequence[cards.Picture] = ()
    ) -> int:
        # If we are killed and post it again within minutes, Discord recognises the nonce: it is the same message.
        sent = {**message, "nonce": nonce, "enforce_nonce": True}
        route = Route("POST", "/channels/{channel_id}/messages", channel_id=channel)
        return int((await self._sent(route, sent, pictures))["id"])

    async def edit(
        self, channel: int, message_id: int, message: dict[str, Any], pictures: Sequence[cards.Picture] = ()
    ) -> None:
        path = "/channels/{channel_id}/messages/{message_id}"
        route = Route("PATCH", path, channel_id=channel, message_id=message_id)
        await self._sent(route, message, pictures)

    async def _sent(
        self, route: Route, message: dict[str, Any], pictures: Sequence[cards.Picture] = ()
    ) -> dict[str, Any]:
        files = [discord.File(io.BytesIO(one.data), filename=one.name) for one in pictures]
        try:
            if files:
                form: list[dict[str, Any]] = [
                    {"name": "payload_json", "value": json.dumps(message), "content_type": "application/json"},
                    *(
                        {"name": f"files[{n}]", "value": one.fp, "filename": one.filename, "content_type": "image/png"}
                        for n, one in enumerate(files)
                    ),
                ]
                told: dict[str, Any] = await self._client.http.request(route, form=form, files=files)
            else:
                told = await self._client.http.request(route, json=message)
        except discord.NotFound as error:
            raise Gone("the message or its channel was deleted") from error
        except discord.HTTPException as error:
            if error.code == ARCHIVED:
                raise Shelved("the thread is archived") from error
            if error.code == WORN:
                raise Worn("Discord takes no more edits of that message") from error
            if files and error.status in (400, 403, 413):
                raise NoFiles(str(error)) from error
            if error.status == 403:
                raise Gone("the bot isn't allowed to write there: give it View Channel and Send Messages") from error
            raise
        return told
