"""One look at the database for everybody who asks at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Generic, TypeVar

from anyio import CapacityLimiter, to_thread

Q = TypeVar("Q")
A = TypeVar("A")


class Rounds(Generic[Q, A]):
    """Answers any number of askers by one call at a time: whoever asks is answered by a call that began afterwards.

    So no answer is older than its question, and a crowd costs hardly more than one asker. `look` runs in a thread and
    answers every question that it is given, or raises for all of them. For coroutines of one loop.
    """

    def __init__(self, look: Callable[[Collection[Q]], Mapping[Q, A]], limiter: CapacityLimiter) -> None:
        self._look, self._limiter = look, limiter
        self._asked: dict[Q, list[asyncio.Future[A]]] = {}
        self._going: asyncio.Task[None] | None = None

    @property
    def is_idle(self) -> bool:
        """Whether nobody waits for an answer."""
        return self._going is None

    async def ask(self, question: Q) -> A:
        """The answer. Others who ask meanwhile don't change it."""
        answer: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        self._asked.setdefault(question, []).append(answer)
        if self._going is None:
            self._going = asyncio.create_task(self._go())
        return await answer

    async def _go(self) -> None:
        try:
            while self._asked:
                asked, self._asked = self._asked, {}
                try:
                    found = await to_thread.run_sync(self._look, list(asked), limiter=self._limiter)
                except Exception as error:  # noqa: BLE001 - raised again by everybody who asked
                    await _told(asked, lambda _, error=error: error)  # type: ignore[misc]
                else:
                    await _told(asked, lambda question, found=found: found[question])  # type: ignore[misc]
        finally:
            self._going = None


async def _told(asked: Mapping[Q, list[asyncio.Future[A]]], answer: Callable[[Q], A | Exception]) -> None:
    """Answer one after another, so that other requests come in between."""
    for question, waiting in asked.items():
        found = answer(question)
        for one in waiting:
            if one.done():  # its asker left
                continue
            if isinstance(found, Exception):
                one.set_exception(found)
            else:
                one.set_result(found)
            await asyncio.sleep(0)
