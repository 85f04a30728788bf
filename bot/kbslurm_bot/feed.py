"""Follows the API's event feed forever."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kbslurm.client.answers import (
    FeedEvent,
)
from kbslurm.errors import Invalid, KbslurmError
from kbslurm.observe.logs import teller
from kbslurm_bot.live_cards import LiveCards
from kbslurm_bot.service import Service

tell = teller("bot")
BACK_OFF_S = (1.0, 30.0)


async def follow(service: Service, cards: LiveCards, *others: Callable[[FeedEvent], None]) -> None:
    """Forward events to the cards and others, forever. After the feed was interrupted, everything is checked once."""
    since, back_off = "now", BACK_OFF_S[0]
    while True:
        try:
            cards.stir()
            async for event in service.client.follow(since):
                since, back_off = event.token, BACK_OFF_S[0]
                for listener in (cards.heard, *others):
                    try:
                        listener(event)
                    except Exception as error:  # noqa: BLE001 - one event isn't the end of all others
                        tell("an event was skipped", level="error", token=since, why=repr(error))
        except Invalid:
            since = "now"  # it is another feed: a different database
        except KbslurmError as error:
            tell("the feed is unreachable", level="warning", why=error.message)
        except Exception as error:  # noqa: BLE001 - asked for again it would be no better: go on behind it
            tell("the feed can't be read", level="error", since=since, why=repr(error))
            since = "now"
        await asyncio.sleep(back_off)
        back_off = min(back_off * 2, BACK_OFF_S[1])
