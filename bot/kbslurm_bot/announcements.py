"""Announcements to the whole channel, each once: records, podiums, new boards, hosts' answers to all, coming
deadlines, a daily digest.

No single event matters: what is public now is compared with what was announced last. After a long absence the bot
catches up silently, and nobody is ever pinged.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from kbslurm.client.answers import BoardInfo, FeedEvent, StandingInfo
from kbslurm.client.http import Client
from kbslurm.domain import access
from kbslurm.domain.amounts import score, speed_up
from kbslurm.errors import KbslurmError
from kbslurm.observe.logs import teller
from kbslurm_bot import cards
from kbslurm_bot.messages import Gone, Messages
from kbslurm_bot.service import Service
from kbslurm_bot.state import State

tell = teller("bot")
LOOK_S = 60.0
GAP_S = 2.0
# After a longer absence, what happened in between isn't news any more.
TOLD_WITHIN = timedelta(minutes=15)
REMIND = (timedelta(hours=1), timedelta(hours=24))
DIGEST_HOUR = 8
WATCHED, PODIUM = 10, 3
ABOUT = 1500  # of a description: what follows it has to fit as well
SEEN_AT = "announce:seen_at"
Rankings = dict[str, list[StandingInfo]]
Told = list[Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Announcement:
    """One message: `key` is what it is about, so that it is posted once."""

    key: str
    text: str
    colour: int = cards.BLURPLE


class Announcer:
    """Announces into one channel. `run` runs forever; call `heard` for every event."""

    def __init__(
        self, state: State, service: Service, board: Messages, channel: int, now: Callable[[], datetime] | None = None
    ) -> None:
        self._state, self._service, self._board, self._channel = state, service, board, channel
        self._now = now or (lambda: datetime.now(UTC))
        self._wake = asyncio.Event()

    def heard(self, event: FeedEvent) -> None:
        """Something happened that may be worth checking."""
        if event.kind in ("board.created", "board.announced", "staff.finalise") or (
            event.kind == "run.scored" and event.data.get("ranked")
        ):
            self._wake.set()

    async def run(self) -> None:
        while True:
            try:
                await self.look()
            except KbslurmError as error:
                tell("announcements are failing", level="warning", why=error.message)
            except Gone as error:
                tell("can't post in the announcements channel", level="error", why=str(error))
            except Exception as error:  # noqa: BLE001 - the next look finds the same things to say
                tell("an announcement is delayed", level="warning", why=repr(error))
            await asyncio.sleep(GAP_S)
            try:
                async with asyncio.timeout(LOOK_S):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()

    async def look(self) -> None:
        """Announce what is new since the last check; nothing if that was long ago."""
        now, before = self._now(), self._state.word(SEEN_AT)
        silent = before is None or now - datetime.fromisoformat(before) > TOLD_WITHIN
        boards = await self._service.ask(_public)
        for board, rankings, told in boards:
            for saying in [*self._of_board(board, now), *_told(board, told), *self._of_rankings(board, rankings)]:
                await self._say(saying, silent=silent)
            # Only after everything was posted: what Discord refuses now is still news at the next check.
            for gpu, places in rankings.items():
                self._state.keep(_first(board, gpu), json.dumps([one.submission_id for one in places]))
                self._state.keep(_scores(board, gpu), json.dumps([one.score_s for one in places]))
            self._state.keep(_names(board), board.names)
        digest = self._digest(boards, now)
        if digest is not None:
            await self._say(digest, silent=silent)
        self._state.keep(SEEN_AT, now.isoformat())

    async def _say(self, saying: Announcement, *, silent: bool) -> None:
        """Post it, then record it; if we are killed in between, Discord recognises the nonce."""
        name = f"said:{saying.key}"
        if self._state.word(name) is not None:
            return
        if not silent:
            nonce = hashlib.sha256(saying.key.encode()).hexdigest()[:24]
            await self._board.post(self._channel, cards.note(saying.text, saying.colour), nonce)
        self._state.keep(name, self._now().isoformat())

    def _of_board(self, board: BoardInfo, now: datetime) -> list[Announcement]:
        if not board.is_open:
            return []
        name, found = cards.escaped(board.name), []
        about, gpus = cards.escaped(board.description[:ABOUT]), ", ".join(map(cards.escaped, board.gpus))
        text = f"### New board: {name}\n{about}\n{gpus}"
        ends = board.deadline
        found.append(Announcement(key=f"board:{board.id}", text=f"{text}\n{_until(board)}"))
        left = None if ends is None else ends - now
        for before in REMIND:
            if left is not None and timedelta() < left <= before:
                assert ends is not None
                hours = int(before.total_seconds() // 3600)
                key = f"deadline:{board.id}:{ends.isoformat()}:{hours}"
                found.append(
                    Announcement(key=key, text=f"### {name} closes soon\n{_until(board)}", colour=cards.ORANGE)
                )
                break
        return found

    def _of_rankings(self, board: BoardInfo, rankings: Rankings) -> list[Announcement]:
        """Who reached the podium with a submission that wasn't on it before; and the podium once it is final."""
        if board.finalised_at is not None:
            return [_final(board, rankings)]
        found = []
        # Since people are called something else, the same submissions have other numbers; their scores stay.
        renamed = self._state.word(_names(board)) not in (None, board.names)
        for gpu, places in rankings.items():
            known = set(json.loads(self._state.word(_first(board, gpu)) or "[]"))
            scores = set(json.loads(self._state.word(_scores(board, gpu)) or "[]")) if renamed else set()
            for n, one in enumerate(places[:PODIUM]):
                if one.submission_id not in known and one.score_s not in scores:
                    found.append(_placed(board, gpu, places, n))
        return found

    def _digest(self, boards: list[tuple[BoardInfo, Rankings, Told]], now: datetime) -> Announcement | None:
        if now.hour != DIGEST_HOUR:
            return None
        since = now - timedelta(days=1)
        lines = []
        for board, rankings, _ in boards:
            if not board.is_open:
                continue
            for gpu, places in rankings.items():
                if places:
                    recent = sum(one.at > since for one in places)
                    lead = f"{cards.escaped(places[0].person)} {score(places[0].score_s)}"
                    fresh = f" · {recent} of the top {len(places)} are from the last day" if recent else ""
                    lines.append(f"**{cards.escaped(board.name)}** {cards.escaped(gpu)}: {lead}{fresh}")
        if not lines:
            return None
        text = "\n".join([f"### The day, {now:%Y-%m-%d %Z}", *lines[:40]])
        return Announcement(key=f"digest:{now:%Y-%m-%d}", text=text, colour=cards.GREY)


def _first(board: BoardInfo, gpu: str) -> str:
    return f"first:{board.id}:{gpu}"


def _scores(board: BoardInfo, gpu: str) -> str:
    return f"scores:{board.id}:{gpu}"


def _names(board: BoardInfo) -> str:
    return f"names:{board.id}"


def _placed(board: BoardInfo, gpu: str, places: list[StandingInfo], n: int) -> Announcement:
    one = places[n]
    who, where = cards.escaped(one.person), f"{cards.escaped(board.name)} on {cards.escaped(gpu)}"
    time = score(one.score_s, one.low_s, one.high_s, ranked=True)
    ahead = f" ({speed_up(one.score_s, places[1].score_s, 'the second')})" if n == 0 and len(places) > 1 else ""
    head = f"### ★ {who} leads {where}" if n == 0 else f"### {who} is on the podium of {where}, rank {one.rank}"
    colour = cards.GREEN if n == 0 else cards.BLURPLE
    return Announcement(key=f"place:{board.id}:{gpu}:{one.submission_id}", text=f"{head}\n{time}{ahead}", colour=colour)


def _final(board: BoardInfo, rankings: Rankings) -> Announcement:
    assert board.finalised_at is not None
    lines = [f"### The standings of {cards.escaped(board.name)} are final"]
    for gpu, places in rankings.items():
        for one in places[:PODIUM]:
            time = score(one.score_s, one.low_s, one.high_s, ranked=True)
            lines.append(f"{cards.escaped(gpu)} {one.rank}. {cards.escaped(one.person)} {time}")
    key = f"final:{board.id}:{board.finalised_at.isoformat()}"
    return Announcement(key=key, text="\n".join(lines[:40]), colour=cards.GREEN)


def _told(board: BoardInfo, told: Told) -> list[Announcement]:
    """What hosts told everyone on the board, oldest first; an answer that was replaced is another one."""
    return [
        Announcement(
            key=f"told:{board.id}:{one['id']}:{one['at']}",
            text=f"### {cards.escaped(board.name)}: announcement\n{cards.escaped(one['text'][:ABOUT])}",
        )
        for one in reversed(told)
    ]


def _until(board: BoardInfo) -> str:
    return "no deadline" if board.deadline is None else f"closes {cards.deadline(board.deadline, board.zone)}"


def _public(client: Client) -> list[tuple[BoardInfo, Rankings, Told]]:
    """What anyone may see: requested anonymously."""
    with Client(client.url) as anybody:
        return [
            (
                board,
                {gpu: anybody.ranking(board.name, gpu, limit=WATCHED) for gpu in board.gpus},
                list(anybody.announcements(board.name)["announcements"])[:WATCHED],
            )
            for board in anybody.boards()
            if access.is_for_everybody(board.visibility)
        ]
