"""The event feed, with and without an event loop."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx

from kbslurm.client.answers import (
    FeedEvent,
)
from kbslurm.client.connection import FEED_SILENCE_S, Connection
from kbslurm.client.errors import ServerGone, refusal, why_unreachable
from kbslurm.client.parsing import parsed
from kbslurm.client.trust import trusted


class Feed(Connection):
    """Events as they happen."""

    def events(self, since: str | None = None, *, stream: bool = True) -> Iterator[FeedEvent]:
        """Events after this token, then new ones, until the connection ends: reconnect with the last token.

        Connection errors raise ServerGone; an unknown token is Invalid. Each event comes at least once.
        """
        wanted: dict[str, Any] = {"stream": stream, **({"since_token": since} if since else {})}
        patience = httpx.Timeout(self._timeout_s, read=FEED_SILENCE_S)
        try:
            with self._http.stream("GET", "/events", params=wanted, headers=self._headers, timeout=patience) as answer:
                if answer.status_code != 200:
                    answer.read()
                    raise refusal(answer)
                for text in answer.iter_lines():
                    if text.strip():
                        yield parsed(FeedEvent, json.loads(text))
        except httpx.HTTPError as error:
            raise ServerGone(
                "server", why_unreachable(error), hint="Check that it is running, or try again soon."
            ) from error

    async def follow(self, since: str) -> AsyncIterator[FeedEvent]:
        """Like `events`, for use in an event loop: it ends immediately when its task is cancelled."""
        patience = httpx.Timeout(self._timeout_s, read=FEED_SILENCE_S)
        wanted: dict[str, Any] = {"stream": True, "since_token": since}
        try:
            async with (
                httpx.AsyncClient(
                    base_url=self._url,
                    timeout=patience,
                    trust_env=False,
                    verify=trusted(self._url, trust_env=False),
                ) as http,
                http.stream("GET", "/events", params=wanted, headers=self._headers) as answer,
            ):
                if answer.status_code != 200:
                    await answer.aread()
                    raise refusal(answer)
                async for text in answer.aiter_lines():
                    if text.strip():
                        yield parsed(FeedEvent, json.loads(text))
        except httpx.HTTPError as error:
            raise ServerGone(
                "server", why_unreachable(error), hint="Check that it is running, or try again soon."
            ) from error
