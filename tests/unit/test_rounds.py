"""One look for many askers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Collection, Mapping

import pytest
from anyio import CapacityLimiter

from kbslurm.api.rounds import Rounds

PATIENCE_S = 60.0


class Watched:
    """A look that is held until it may go on; what it answers is the number of the look."""

    def __init__(self) -> None:
        self.asked: list[Collection[str]] = []
        self.may_go = threading.Event()
        self.began = threading.Semaphore(0)

    def __call__(self, asked: Collection[str]) -> Mapping[str, int]:
        self.asked.append(sorted(asked))
        number = len(self.asked)
        self.began.release()
        assert self.may_go.wait(PATIENCE_S)
        return dict.fromkeys(asked, number)


def test_whoever_asks_is_answered_by_a_look_that_began_afterwards() -> None:
    async def asking() -> tuple[list[int], list[Collection[str]]]:
        look = Watched()
        rounds: Rounds[str, int] = Rounds(look, CapacityLimiter(1))
        first = asyncio.create_task(rounds.ask("a"))
        assert await asyncio.to_thread(look.began.acquire, timeout=PATIENCE_S)
        others = [asyncio.create_task(rounds.ask(one)) for one in ("a", "b", "a", "c") * 20]
        await asyncio.sleep(0)
        look.may_go.set()
        found = [await first, *await asyncio.gather(*others)]
        assert rounds.is_idle
        return found, look.asked

    found, asked = asyncio.run(asking())
    assert found == [1, *[2] * 80] and asked == [["a"], ["a", "b", "c"]]


def test_a_failed_look_fails_for_those_who_asked_and_for_nobody_else() -> None:
    looks = iter([OSError("away"), None])

    def look(asked: Collection[str]) -> Mapping[str, str]:
        error = next(looks)
        if error is not None:
            raise error
        return dict.fromkeys(asked, "here")

    async def asking() -> None:
        rounds: Rounds[str, str] = Rounds(look, CapacityLimiter(1))
        for failed in await asyncio.gather(rounds.ask("a"), rounds.ask("a"), return_exceptions=True):
            assert isinstance(failed, OSError)
        assert await rounds.ask("a") == "here"

    asyncio.run(asking())


def test_whoever_leaves_takes_nobody_along() -> None:
    async def asking() -> None:
        look = Watched()
        rounds: Rounds[str, int] = Rounds(look, CapacityLimiter(1))
        leaves, stays = (asyncio.create_task(rounds.ask("a")) for _ in range(2))
        assert await asyncio.to_thread(look.began.acquire, timeout=PATIENCE_S)
        leaves.cancel()
        look.may_go.set()
        assert await stays == 1
        with pytest.raises(asyncio.CancelledError):
            await leaves

    asyncio.run(asking())
