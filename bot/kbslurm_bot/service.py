"""The bot's calls to kbslurm's API: in the name of the Discord user who asked, and only for them.

Calls block, so each runs in a thread. The API decides what a person may do, never the bot.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import TypeVar

from kbslurm.client.answers import BoardInfo, PersonInfo, StandingInfo
from kbslurm.client.errors import ServerGone
from kbslurm.client.http import Client
from kbslurm.errors import KbslurmError
from kbslurm.observe.logs import teller
from kbslurm_bot.cards import Row, ScoreContext
from kbslurm_bot.plot import Point
from kbslurm_bot.text import printable

tell = teller("bot")
T = TypeVar("T")
BOARDS_FRESH_S = 10.0
# Its own threads: a hanging service must not use up those that resolve Discord's host names.
THREADS = 32
# Each call times out itself; this bounds waiting for a thread, and syncing problems takes minutes.
PATIENCE_S = 200.0
PLACES = 100
LINES = 100


class Away(ServerGone):
    """The service isn't responding at the moment; accepted submissions go on"""

    def __init__(self, why: str, *, hint: str = "Try again in a minute.") -> None:
        super().__init__("service", why, hint=hint)
        self.message, self.why = str(type(self).__doc__), why


class Service:
    """One per bot; `url` is the API's, `token` identifies us as the bot. Calls time out after this long."""

    def __init__(self, url: str, token: str, *, patience_s: float = PATIENCE_S) -> None:
        self.client = Client(url, admin=token)
        self._patience_s = patience_s
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="service")
        self._people: dict[int, PersonInfo] = {}
        self._meeting = asyncio.Lock()
        self._boards: dict[tuple[int, str | None], tuple[float, list[BoardInfo]]] = {}

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        self.client.close()

    async def _called(self, call: Callable[[Client], T], client: Client) -> T:
        try:
            async with asyncio.timeout(self._patience_s):
                return await asyncio.get_running_loop().run_in_executor(self._threads, call, client)
        except ServerGone as error:
            raise Away(error.message) from error
        except TimeoutError as error:
            raise Away("no answer") from error

    async def ask(self, call: Callable[[Client], T]) -> T:
        """Call as the bot itself."""
        return await self._called(call, self.client)

    async def person(self, user: int, name: str) -> PersonInfo:
        """This Discord user's person in kbslurm, created if new."""
        if (known := self._people.get(user)) is not None:
            return known
        # One after the other: a new user who types twice at once becomes one person.
        try:
            async with asyncio.timeout(self._patience_s), self._meeting:
                known = self._people.get(user)
                if known is None:
                    known = await self.ask(lambda client: client.discord_user(str(user), printable(name) or str(user)))
                    self._people[user] = known
                return known
        except TimeoutError as error:
            raise Away("no answer") from error

    async def for_user(self, user: int, name: str, call: Callable[[Client], T], *, roles: str | None = None) -> T:
        """Call in the name of the user who just typed or pressed, with these Discord roles."""
        await self.person(user, name)
        return await self.for_owner(user, call, roles=roles)

    async def for_owner(self, user: int, call: Callable[[Client], T], *, roles: str | None = None) -> T:
        """Call in the name of a user who is already known."""
        return await self._called(call, self.client.acting_for(f"discord:{user}", roles=roles))

    async def boards(self, user: int, roles: str | None = None) -> list[BoardInfo]:
        """The boards that this user may see, cached between keystrokes. Doesn't create a person."""
        at, known = self._boards.get((user, roles), (0.0, []))
        if at and time.monotonic() - at < BOARDS_FRESH_S:
            return known
        found = await self.for_owner(user, Client.boards, roles=roles)
        if len(self._boards) > 1000:
            self._boards.clear()
        self._boards[user, roles] = (time.monotonic(), found)
        return found

    async def score_contexts(self, owner: int, full: Row) -> dict[str, ScoreContext]:
        """The standing of each score of a ranked submission. What can't be read at the moment is left out."""
        told = full["submission"]
        gpus = [row["gpu"] for row in told["runs"] if row["verdict"] and row["verdict"]["ranked"]]
        if told["mode"] != "leaderboard" or not gpus:
            return {}

        def asked(client: Client) -> dict[str, ScoreContext]:
            lines = client.submission_rows(told["board"], limit=LINES)
            return {
                gpu: score_context(told, gpu, lines, client.ranking(told["board"], gpu, limit=PLACES)) for gpu in gpus
            }

        try:
            return await self.for_owner(owner, asked)
        except KbslurmError as error:
            tell("no standings", level="warning", submission=told["id"], why=error.message)
            return {}

    async def leaders(self, user: int, full: Row) -> dict[str, float]:
        """The leader's score for each of its GPU types."""
        told = full["submission"]

        def asked(client: Client) -> dict[str, float]:
            found = {row["gpu"]: client.ranking(told["board"], row["gpu"], limit=1) for row in told["runs"]}
            return {gpu: places[0].score_s for gpu, places in found.items() if places}

        return await self.for_owner(user, asked)


def score_context(told: Row, gpu: str, lines: Sequence[Row], places: Sequence[StandingInfo]) -> ScoreContext:
    """Pure: one's own list and the board's top places → this submission's standing."""
    history = history_of([line for line in lines if line["id"] <= told["id"]], gpu)
    before = [one.score_s for n, one in history if n < told["id"]]
    mine = next((n for n, place in enumerate(places) if _is_of(place, told)), None)
    ahead = [place.score_s for place in places[: mine or 0]]
    return ScoreContext(
        rank=None if mine is None else places[mine].rank,
        of=len(places) if len(places) < PLACES else None,
        best_before_s=min(before, default=None),
        next_s=ahead[-1] if ahead else None,
        history=tuple(one for _, one in history),
    )


def _is_of(place: StandingInfo, told: Row) -> bool:
    """Whether this line of a board is that submission's author's, or their team's where teams count together."""
    if place.team is not None or told.get("team") is not None:
        return place.team == told.get("team")
    return place.person_id == int(told["person_id"])


def history_of(lines: Sequence[Row], gpu: str) -> list[tuple[int, Point]]:
    """The ranked scores in one's own list (newest first) → by number, oldest first."""
    return [
        (
            line["id"],
            Point(
                at=datetime.fromisoformat(line["submission_time"]),
                score_s=run["score"],
                low_s=(run.get("interval") or (None, None))[0],
                high_s=(run.get("interval") or (None, None))[1],
            ),
        )
        for line in sorted(lines, key=lambda one: int(one["id"]))
        if line["mode"] == "leaderboard"
        for run in line["runs"]
        if run["gpu_type"] == gpu and run["score"] is not None
    ]
