"""Discord on loopback: gateway and REST, as strict as it is, for the real discord.py.

A test is the people: `command`, `complete` and `press` are what they do, `wait_for` is what they see, and `drop`,
`invalidate`, `fail_next` and `limit_next` are Discord's bad days. Tokens of interactions end by `clock`, which a test
may hold in its hand; so does the time in which an interaction has to be answered.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from aiohttp import WSMsgType, web

from tests.fakes.discord import strict

TOKEN = "a-bot.token.of-the-fake"
APPLICATION, BOT_USER = 1000, 1000
ACK_S, TOKEN_S = 3.0, 900.0
PRIVILEGED = 1 << 1 | 1 << 8 | 1 << 15
PATIENCE_S = 120.0
VIEW, SEND, ATTACH = 1 << 10, 1 << 11, 1 << 15
NEEDED = str(VIEW | SEND | ATTACH)
PING, COMMAND, COMPONENT, COMPLETE = 1, 2, 3, 4
Json = dict[str, Any]
HEADERS = web.RequestKey("headers", dict[str, str])


@dataclass
class User:
    """Somebody who types."""

    id: int
    name: str
    roles: tuple[int, ...] = ()

    def told(self) -> Json:
        return {
            "id": str(self.id),
            "username": self.name,
            "global_name": self.name,
            "discriminator": "0",
            "avatar": None,
        }


@dataclass
class Asked:
    """An interaction: `said` are the messages that answer it, `choices` what a completion gave."""

    id: int
    token: str
    kind: int
    at: float
    acked_at: float | None = None
    deferred: bool = False
    said: list[Json] = field(default_factory=list)
    choices: list[Json] | None = None

    @property
    def text(self) -> str:
        return "\n".join(str(one["content"]) for one in self.said)


class Discord:
    """The server. `limits` is how many calls a bucket takes in how many seconds."""

    def __init__(self, *, clock: Callable[[], float], limits: tuple[int, float] = (50, 1.0)) -> None:
        self.clock, self.limits = clock, limits
        self.url = self.gateway_url = ""
        self.guilds: dict[int, Json] = {}
        self.channels: dict[int, Json] = {}
        self.messages: dict[int, dict[int, Json]] = {}
        self.commands: list[Json] = []
        self.guild_commands: dict[int, list[Json]] = {}
        self.roles: dict[int, list[int]] = {}
        self.edits: Counter[int] = Counter()
        self.calls: list[tuple[str, str, int]] = []
        self.refusals: list[str] = []
        self.sessions: dict[str, list[Json]] = {}
        self.met: Counter[str] = Counter()
        self.permissions = NEEDED
        self.refuses_writes = False
        self.archived: set[int] = set()
        self.worn: set[int] = set()  # messages that are over an hour old and were edited too often
        self.refuses_intents = False
        self.hidden: set[int] = set()
        self._direct: dict[int, int] = {}  # the channel with each person whom the bot wanted to write to
        self._closed: set[int] = set()
        self.pings: list[Json] = []
        self._late = 0
        self._asked: dict[str, Asked] = {}
        self._by_id: dict[int, Asked] = {}
        self._files: dict[str, bytes] = {}
        self.loaded: list[str] = []  # the attachments that were read, by name
        self.guilds_late_s = 0.0
        self._nonces: dict[tuple[int, str], int] = {}
        self._buckets: dict[str, tuple[float, int]] = {}
        self._faults: list[tuple[int, int, bool]] = []
        self._ids = itertools.count(1_440_000_000_000_005_000)  # snowflakes have 19 digits
        self._sockets: dict[str, web.WebSocketResponse] = {}
        self._changed = threading.Condition()
        self._changes = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self.add_guild(2000, 3000)

    # ------------------------------------------------------------------------------------------------- the people

    def add_guild(self, guild: int, *channels: int) -> None:
        for channel in channels:
            self.channels[channel] = {
                "id": str(channel),
                "type": 0,
                "name": f"c{channel}",
                "guild_id": str(guild),
                "position": 0,
                "permission_overwrites": [],
                "nsfw": False,
                "parent_id": None,
            }
            self.messages[channel] = {}
        self.guilds[guild] = {"id": str(guild), "name": f"guild {guild}"}

    def command(
        self,
        who: User,
        name: str,
        channel: int = 3000,
        *,
        files: Mapping[str, tuple[str, bytes]] | None = None,
        **values: Any,
    ) -> Asked:
        """Type a command: it has to be one that was synced, with options that it has."""
        guild = self.channels[channel].get("guild_id")
        data = self._data(name, {**values, **(files or {})}, focused=None, guild=guild)
        return self._ask(COMMAND, who, channel, data)

    def add_direct(self, channel: int) -> None:
        """A channel between the bot and one person, in no server."""
        self.channels[channel] = {"id": str(channel), "type": 1, "last_message_id": None, "recipients": [], "flags": 0}
        self.messages[channel] = {}

    def close_direct(self, who: User) -> None:
        """Somebody who takes direct messages from friends only: Discord opens the channel, and refuses what is sent."""
        self._closed.add(who.id)

    def direct(self, who: User) -> list[Json]:
        """What the bot sent somebody directly, oldest first."""
        return self.shown(self._direct[who.id]) if who.id in self._direct else []

    def complete(self, who: User, name: str, focused: str, typed: str, channel: int = 3000, **values: Any) -> list[str]:
        """What Discord shows while somebody types into an option."""
        guild = self.channels[channel].get("guild_id")
        data = self._data(name, {**values, focused: typed}, focused=focused, guild=guild)
        asked = self._ask(COMPLETE, who, channel, data)
        self.wait_for(lambda: asked.choices is not None, f"completions of {name}")
        assert asked.choices is not None
        return [str(one["value"]) for one in asked.choices]

    def press(self, who: User, message: Json, label: str) -> Asked:
        """Press a button that is on the message."""
        found = [one for one in strict.walked(message["components"]) if one.get("label") == label]
        assert found, f"there is no button {label!r}"
        data = {"component_type": strict.BUTTON, "custom_id": found[0]["custom_id"], "id": found[0]["id"]}
        return self._ask(COMPONENT, who, int(message["channel_id"]), data, message=message)

    def choose(self, who: User, message: Json, *labels: str) -> Asked:
        """Choose from the menu that is on the message."""
        found = [one for one in strict.walked(message["components"]) if one.get("type") == strict.SELECT]
        assert found, "there is no menu"
        values = {one["label"]: one["value"] for one in found[0]["options"]}
        assert set(labels) <= set(values), f"the menu has {list(values)}"
        assert found[0]["min_values"] <= len(labels) <= found[0]["max_values"], f"{len(labels)} can't be chosen"
        chosen = [values[label] for label in labels]
        data = {"component_type": strict.SELECT, "custom_id": found[0]["custom_id"], "id": found[0]["id"]}
        return self._ask(COMPONENT, who, int(message["channel_id"]), {**data, "values": chosen}, message=message)

    def say(
        self,
        who: User,
        text: str,
        channel: int = 3000,
        *,
        files: Sequence[tuple[str, bytes]] = (),
        mentions: bool = True,
        **more: Any,
    ) -> Json:
        """Write a message. As Discord does it, an application without the Message Content intent gets text and files
        of those that mention it or are sent to it directly, and of all others neither."""
        number, guild = next(self._ids), self.channels[channel].get("guild_id")
        told = self._message({"content": f"<@{BOT_USER}> {text}" if mentions else text}, files, channel, number)
        self.pings = [one for one in self.pings if one.get("content") != told["content"]]
        told |= {"author": who.told(), "mentions": [self._me()] if mentions else [], **more}
        if guild is not None:
            told |= {"guild_id": guild, "member": {**self._member_of(who), "user": None}}
            del told["member"]["user"]
            if not mentions:
                told |= {"content": "", "attachments": [], "embeds": [], "components": []}
        loop = self._loop
        assert loop is not None
        asyncio.run_coroutine_threadsafe(self._dispatch("MESSAGE_CREATE", told), loop).result(PATIENCE_S)
        return told

    def wait_for(self, is_so: Callable[[], Any], what: str = "it", *, patience_s: float = PATIENCE_S) -> Any:
        """Return what is found when it is; looks whenever something was asked of the server.

        It looks without holding the lock: `is_so` may ask the server, whose thread needs the lock to answer.
        """
        until = time.monotonic() + patience_s
        seen = self._changes
        while not (found := is_so()):
            left_s = until - time.monotonic()
            assert left_s > 0, f"{what} never came; the last calls: {self.calls[-12:]}"
            with self._changed:
                if self._changes == seen:
                    self._changed.wait(min(left_s, 0.5))
                seen = self._changes
        return found

    def answer(self, asked: Asked) -> str:
        """What an interaction was answered with, as text."""
        self.wait_for(lambda: asked.said, "an answer")
        return asked.text

    def file(self, attachment: Json) -> bytes:
        """What was attached."""
        return self._files[str(attachment["url"]).removeprefix(self.url)]

    def shown(self, channel: int = 3000) -> list[Json]:
        """The bot's messages in a channel, oldest first."""
        return [one for _, one in sorted(self.messages[channel].items())]

    # ------------------------------------------------------------------------------------------------- bad days

    def drop(self, code: int = 4000) -> None:
        """Close every gateway connection; the sessions can be resumed."""
        self._each_socket(code, forget=False)

    def invalidate(self) -> None:
        """Close every gateway connection, and know no session any more."""
        self._each_socket(4000, forget=True)

    def reconnect(self) -> None:
        """Ask every connection to come again: op 7, the sessions can be resumed."""
        self._to_each_socket({"op": 7, "d": None, "s": None, "t": None})

    def spoil(self, *, resumable: bool) -> None:
        """Tell every connection that its session isn't valid: op 9."""
        if not resumable:
            self.sessions.clear()
        self._to_each_socket({"op": 9, "d": resumable, "s": None, "t": None})

    def late_next(self, times: int = 1) -> None:
        """The next interactions reach the bot when Discord has given up on them."""
        self._late += times

    def fail_next(self, status: int, times: int = 1) -> None:
        """The next REST calls that write a message fail so."""
        self._faults += [(status, 0, False)] * times

    def limit_next(self, times: int = 1, *, globally: bool = False) -> None:
        """The next REST calls that write a message are told to wait."""
        self._faults += [(429, 0, globally)] * times

    def _to_each_socket(self, told: Json) -> None:
        loop = self._loop
        assert loop is not None

        async def send() -> None:
            for one in list(self._sockets.values()):
                if not one.closed:
                    await one.send_str(json.dumps(told))

        asyncio.run_coroutine_threadsafe(send(), loop).result(PATIENCE_S)

    def _each_socket(self, code: int, *, forget: bool) -> None:
        loop = self._loop
        assert loop is not None

        async def close() -> None:
            if forget:
                self.sessions.clear()
            for one in list(self._sockets.values()):
                await one.close(code=code)

        asyncio.run_coroutine_threadsafe(close(), loop).result(PATIENCE_S)

    # ------------------------------------------------------------------------------------------------- interactions

    def _data(self, name: str, values: Mapping[str, Any], focused: str | None, guild: str | None) -> Json:
        words = name.split()
        here = self.guild_commands.get(int(guild or 0), [])
        known = next((one for one in (*here, *self.commands) if one["name"] == words[0]), None)
        assert known, f"/{words[0]} isn't synced"
        data: Json = {"id": known["id"], "name": known["name"], "type": 1, "resolved": {}, "options": []}
        data |= {"guild_id": known["guild_id"]} if "guild_id" in known else {}
        inner, options = data["options"], known.get("options") or []
        for word in words[1:]:
            found = next((one for one in options if one["name"] == word), None)
            assert found, f"there is no /{name}"
            step: Json = {"name": word, "type": found["type"], "options": []}
            inner.append(step)
            inner, options = step["options"], found.get("options") or []
        by_name = {one["name"]: one for one in options}
        assert set(values) <= set(by_name), f"/{name} has no option {set(values) - set(by_name)}"
        missing = [
            one["name"] for one in options if one.get("required") and one["name"] not in values and focused is None
        ]
        assert not missing, f"/{name} needs {missing}"
        for option, value in values.items():
            told: Json = {"name": option, "type": by_name[option]["type"], "value": value}
            if told["type"] == 11:
                number = next(self._ids)
                path = f"/attachments/3000/{number}/{value[0]}"
                self._files[path] = value[1]
                told["value"] = str(number)
                data["resolved"].setdefault("attachments", {})[str(number)] = {
                    "id": str(number),
                    "filename": value[0],
                    "size": len(value[1]),
                    "url": f"{self.url}{path}",
                    "proxy_url": f"{self.url}{path}",
                    "content_type": "text/plain",
                }
            if choices := by_name[option].get("choices"):
                assert value in [one["value"] for one in choices], f"{value!r} is no choice of {option}"
            if option == focused:
                assert by_name[option].get("autocomplete"), f"{option} completes nothing"
                told["focused"] = True
            inner.append(told)
        return data

    def _ask(self, kind: int, who: User, channel: int, data: Json, message: Json | None = None) -> Asked:
        number = next(self._ids)
        asked = Asked(id=number, token=f"interaction-{number}", kind=kind, at=self.clock())
        if self._late:
            self._late, asked.at = self._late - 1, asked.at - ACK_S - 1.0
        self._asked[asked.token] = self._by_id[number] = asked
        guild = self.channels[channel].get("guild_id")
        member = self._member_of(who)
        told: Json = {
            "id": str(number),
            "application_id": str(APPLICATION),
            "type": kind,
            "token": asked.token,
            "version": 1,
            "guild_id": guild,
            "guild": {"id": guild, "locale": "en-US", "features": []},
            "channel_id": str(channel),
            "channel": {**self.channels[channel], "permissions": NEEDED, "flags": 0},
            "member": member,
            "app_permissions": self.permissions,
            "locale": "en-US",
            "guild_locale": "en-US",
            "entitlements": [],
            "authorizing_integration_owners": {"0": guild},
            "context": 0,
            "data": data,
            "attachment_size_limit": 10485760,
        }
        if guild is None:
            for name in ("guild_id", "guild", "member", "guild_locale"):
                del told[name]
            told |= {"user": who.told(), "context": 1, "authorizing_integration_owners": {"0": "0"}}
        if message is not None:
            told["message"] = message
        loop = self._loop
        assert loop is not None
        asyncio.run_coroutine_threadsafe(self._dispatch("INTERACTION_CREATE", told), loop).result(PATIENCE_S)
        return asked

    @staticmethod
    def _member_of(who: User) -> Json:
        return {
            "user": who.told(),
            "roles": [str(one) for one in who.roles],
            "joined_at": _now(),
            "deaf": False,
            "mute": False,
            "flags": 0,
            "permissions": NEEDED,
            "premium_since": None,
            "nick": None,
            "pending": False,
            "avatar": None,
        }

    async def _dispatch(self, name: str, data: Json) -> None:
        for session, events in self.sessions.items():
            sent = {"op": 0, "t": name, "s": len(events) + 1, "d": data}
            events.append(sent)
            socket = self._sockets.get(session)
            if socket is not None and not socket.closed:
                await socket.send_str(json.dumps(sent))

    # ------------------------------------------------------------------------------------------------- the gateway

    async def _gateway(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(max_msg_size=0)
        await socket.prepare(request)
        await socket.send_str(json.dumps({"op": 10, "d": {"heartbeat_interval": 41250}, "s": None, "t": None}))
        async for one in socket:
            if one.type != WSMsgType.TEXT:
                break
            said = json.loads(one.data)
            match said["op"]:
                case 1:
                    await socket.send_str(json.dumps({"op": 11, "d": None, "s": None, "t": None}))
                case 2:
                    await self._identify(socket, said["d"])
                case 6:
                    await self._resume(socket, said["d"])
                case _:
                    self.met[f"op {said['op']}"] += 1
            self._tell()
        return socket

    async def _identify(self, socket: web.WebSocketResponse, said: Json) -> None:
        if said["token"] != TOKEN:
            await socket.close(code=4004)
            return
        if said["intents"] & PRIVILEGED or self.refuses_intents:
            await socket.close(code=4014)
            return
        session = f"session-{next(self._ids)}"
        self.sessions[session], self._sockets[session] = [], socket
        self.met["identify"] += 1
        ready = {
            "v": 10,
            "user": self._me(),
            "guilds": [{"id": str(one), "unavailable": True} for one in self.guilds],
            "session_id": session,
            "resume_gateway_url": self.gateway_url,
            "application": {"id": str(APPLICATION), "flags": 0},
        }
        await self._dispatch_to(session, "READY", ready)
        await asyncio.sleep(self.guilds_late_s)
        for guild in self.guilds:
            await self._dispatch_to(session, "GUILD_CREATE", self._guild(guild))

    async def _dispatch_to(self, session: str, name: str, data: Json) -> None:
        events = self.sessions[session]
        events.append({"op": 0, "t": name, "s": len(events) + 1, "d": data})
        await self._sockets[session].send_str(json.dumps(events[-1]))

    async def _resume(self, socket: web.WebSocketResponse, said: Json) -> None:
        events = self.sessions.get(said["session_id"])
        if said["token"] != TOKEN or events is None:
            self.met["invalid session"] += 1
            await socket.send_str(json.dumps({"op": 9, "d": False, "s": None, "t": None}))
            return
        self._sockets[said["session_id"]] = socket
        for event in events[said["seq"] :]:
            await socket.send_str(json.dumps(event))
        self.met["resume"] += 1
        await self._dispatch_to(said["session_id"], "RESUMED", {})

    def _guild(self, number: int) -> Json:
        everybody = {
            "id": str(number),
            "name": "@everyone",
            "color": 0,
            "hoist": False,
            "position": 0,
            "permissions": self.permissions,
            "managed": False,
            "mentionable": False,
            "flags": 0,
        }
        me = {"user": self._me(), "roles": [], "joined_at": _now(), "deaf": False, "mute": False, "flags": 0}
        return {
            **self.guilds[number],
            "owner_id": "1",
            "member_count": 2,
            "large": False,
            "unavailable": False,
            "roles": [
                {**everybody, "id": str(one), "name": f"role {one}"} for one in (number, *self.roles.get(number, ()))
            ],
            "emojis": [],
            "stickers": [],
            "features": [],
            "channels": [one for one in self.channels.values() if one.get("guild_id") == str(number)],
            "threads": [],
            "members": [me],
            "presences": [],
            "voice_states": [],
            "stage_instances": [],
            "guild_scheduled_events": [],
            "soundboard_sounds": [],
            "verification_level": 0,
            "default_message_notifications": 0,
            "explicit_content_filter": 0,
            "mfa_level": 0,
            "premium_tier": 0,
            "preferred_locale": "en-US",
            "nsfw_level": 0,
            "afk_timeout": 300,
            "system_channel_flags": 0,
            "premium_progress_bar_enabled": False,
            "afk_channel_id": None,
            "joined_at": _now(),
        }

    @staticmethod
    def _me() -> Json:
        return {
            **User(BOT_USER, "kbslurm").told(),
            "bot": True,
            "verified": True,
            "mfa_enabled": False,
            "flags": 0,
            "email": None,
        }

    # ------------------------------------------------------------------------------------------------- REST

    @web.middleware
    async def _guarded(self, request: web.Request, handler: Any) -> web.StreamResponse:
        if request.path.startswith(("/gateway", "/attachments/")):
            return await handler(request)  # type: ignore[no-any-return]
        free = request.path.startswith(("/api/v10/interactions/", "/api/v10/webhooks/"))
        if not free and request.headers.get("Authorization") != f"Bot {TOKEN}":
            answer: web.StreamResponse = _json({"message": "401: Unauthorized", "code": 0}, 401)
        else:
            limited = self._limited(request)
            answer = await self._handled(request, handler) if limited is None else limited
        self.calls.append((request.method, request.path, answer.status))
        self._tell()
        return answer

    async def _handled(self, request: web.Request, handler: Any) -> web.StreamResponse:
        try:
            return await handler(request)  # type: ignore[no-any-return]
        except strict.Refusal as refusal:
            self.refusals.append(str(refusal))
            return _json(refusal.body, 400)
        except KeyError:
            return _json({"message": "Unknown", "code": 10008}, 404)

    def _limited(self, request: web.Request) -> web.Response | None:
        """The bucket's answer when it is empty, or the bad day that was asked for."""
        writes = "/messages" in request.path and request.method in ("POST", "PATCH") and "/channels/" in request.path
        if writes and self._faults:
            status, _, globally = self._faults.pop(0)
            if status != 429:
                return _json({"message": "a bad day", "code": 0}, status)
            return self._wait(0.05, globally)
        if not writes:
            return None
        key, now = f"{request.method} {request.match_info['channel']}", time.monotonic()
        began, used = self._buckets.get(key, (now, 0))
        most, per_s = self.limits
        if now - began >= per_s:
            began, used = now, 0
        if used >= most:
            return self._wait(began + per_s - now, False)
        self._buckets[key] = (began, used + 1)
        request[HEADERS] = {
            "X-RateLimit-Limit": str(most),
            "X-RateLimit-Remaining": str(most - used - 1),
            "X-RateLimit-Reset": str(time.time() + began + per_s - now),
            # rounded up: who waits as long as they are told mustn't come too early
            "X-RateLimit-Reset-After": f"{math.ceil((began + per_s - now) * 1000) / 1000:.3f}",
            "X-RateLimit-Bucket": f"bucket-{request.method}",
        }
        return None

    def _wait(self, after_s: float, globally: bool) -> web.Response:
        self.met["429"] += 1
        headers = {
            "Via": "1.1 google",
            "Retry-After": f"{math.ceil(after_s * 1000) / 1000:.3f}",
            "X-RateLimit-Scope": "global" if globally else "user",
            **({"X-RateLimit-Global": "true"} if globally else {}),
        }
        return _json(
            {"message": "You are being rate limited.", "retry_after": after_s, "global": globally}, 429, headers
        )

    async def _body(self, request: web.Request) -> tuple[Json, list[tuple[str, bytes]]]:
        if not request.content_type.startswith("multipart/"):
            return await request.json(), []
        told: Json = {}
        files = []
        async for part in await request.multipart():
            if part.name == "payload_json":  # type: ignore[union-attr]
                told = json.loads(await part.text())  # type: ignore[union-attr]
            else:
                files.append((str(part.filename), bytes(await part.read())))  # type: ignore[union-attr]
        return told, files

    def _message(self, sent: Mapping[str, Any], files: Sequence[tuple[str, bytes]], channel: int, number: int) -> Json:
        numbers = itertools.count(1)
        said = sent.get("content") or sent.get("components")
        if said and (sent.get("allowed_mentions") or {"parse": None}).get("parse") != []:
            self.pings.append(dict(sent))

        def numbered(one: Mapping[str, Any]) -> Json:
            found = {"id": next(numbers), **one}
            return (
                {**found, "components": [numbered(child) for child in one["components"]]}
                if "components" in one
                else found
            )

        kept = []
        for name, data in files:
            path = f"/attachments/{channel}/{number}/{name}"
            self._files[path] = data
            kept.append(
                {
                    "id": str(next(self._ids)),
                    "filename": name,
                    "size": len(data),
                    "url": f"{self.url}{path}",
                    "proxy_url": f"{self.url}{path}",
                }
            )
        return {
            "id": str(number),
            "channel_id": str(channel),
            "author": self._me(),
            "content": sent.get("content") or "",
            "timestamp": _now(),
            "edited_timestamp": None,
            "tts": False,
            "mention_everyone": False,
            "mentions": [],
            "mention_roles": [],
            "attachments": kept,
            "embeds": [],
            "pinned": False,
            "type": 0,
            "flags": sent.get("flags") or 0,
            "components": [numbered(one) for one in sent.get("components") or []],
        }

    async def _user(self, request: web.Request) -> web.Response:
        return _json(self._me())

    async def _application(self, request: web.Request) -> web.Response:
        owner = User(1, "host").told()
        return _json(
            {
                "id": str(APPLICATION),
                "name": "kbslurm",
                "description": "",
                "icon": None,
                "bot_public": False,
                "bot_require_code_grant": False,
                "verify_key": "k",
                "owner": owner,
                "flags": 0,
                "summary": "",
            }
        )

    async def _guilds(self, request: web.Request) -> web.Response:
        return _json(
            [
                {**one, "owner": False, "permissions": self.permissions, "features": [], "icon": None}
                for one in self.guilds.values()
            ]
        )

    async def _channel(self, request: web.Request) -> web.Response:
        number = int(request.match_info["channel"])
        if number in self.hidden:
            return _json({"message": "Missing Access", "code": 50001}, 403)
        return _json(self.channels[number])

    async def _opened(self, request: web.Request) -> web.Response:
        who = int((await request.json())["recipient_id"])
        if who not in self._direct:
            self._direct[who] = next(self._ids)
            self.add_direct(self._direct[who])
            self.channels[self._direct[who]]["recipients"] = [User(who, f"u{who}").told()]
        return _json(self.channels[self._direct[who]])

    async def _member(self, request: web.Request) -> web.Response:
        number = int(request.match_info["guild"])
        assert number in self.guilds
        return _json({"user": self._me(), "roles": [], "joined_at": _now(), "deaf": False, "mute": False, "flags": 0})

    async def _synced(self, request: web.Request) -> web.Response:
        sent = await request.json()
        strict.commands(sent)
        self.met["sync"] += 1
        self.commands = [self._registered(one) for one in sent]
        return _json(self.commands)

    def _registered(self, sent: Json) -> Json:
        return {
            **sent,
            "id": str(next(self._ids)),
            "application_id": str(APPLICATION),
            "version": "1",
            "default_member_permissions": sent.get("default_member_permissions"),
        }

    async def _synced_here(self, request: web.Request) -> web.Response:
        sent = await request.json()
        strict.commands(sent)
        self.met["guild sync"] += 1
        guild = request.match_info["guild"]
        self.guild_commands[int(guild)] = [{**self._registered(one), "guild_id": guild} for one in sent]
        return _json(self.guild_commands[int(guild)])

    async def _posted(self, request: web.Request) -> web.Response:
        channel = int(request.match_info["channel"])
        sent, files = await self._body(request)
        strict.message(sent, files=[name for name, _ in files])
        if self._may_not(files):
            return _json({"message": "Missing Permissions", "code": 50013}, 403)
        if any(self._direct.get(who) == channel for who in self._closed):
            return _json({"message": "Cannot send messages to this user", "code": 50007}, 403)
        key = (channel, str(sent.get("nonce")))
        if sent.get("enforce_nonce") and key in self._nonces:
            return _json(self.messages[channel][self._nonces[key]], headers=request[HEADERS])
        number = next(self._ids)
        self.messages[channel][number] = self._message(sent, files, channel, number)
        self._nonces[key] = number
        self.archived.discard(channel)
        return _json(self.messages[channel][number], headers=request[HEADERS])

    async def _edited(self, request: web.Request) -> web.Response:
        channel, number = int(request.match_info["channel"]), int(request.match_info["message"])
        sent, files = await self._body(request)
        strict.message({"flags": self.messages[channel][number]["flags"], **sent}, files=[name for name, _ in files])
        if self._may_not(files):
            return _json({"message": "Missing Permissions", "code": 50013}, 403)
        if channel in self.archived:
            return _json({"message": "Thread is archived", "code": 50083}, 400)
        if number in self.worn:
            self.met["30046"] += 1
            said = "Maximum number of edits to messages older than 1 hour reached. Try again later"
            told = {"message": said, "code": 30046, "retry_after": 0.05, "global": False}
            return _json(told, 429, {"Via": "1.1 google", "Retry-After": "0.05"})
        self.messages[channel][number] = {**self._message(sent, files, channel, number), "edited_timestamp": _now()}
        self.edits[number] += 1
        return _json(self.messages[channel][number], headers=request[HEADERS])

    def _may_not(self, files: Sequence[Any]) -> bool:
        return self.refuses_writes or bool(files and not int(self.permissions) & ATTACH)

    async def _called_back(self, request: web.Request) -> web.Response:
        asked = self._by_id[int(request.match_info["id"])]
        if asked.token != request.match_info["token"] or self.clock() - asked.at > ACK_S:
            return _json({"message": "Unknown interaction", "code": 10062}, 404)
        if asked.acked_at is not None:
            return _json({"message": "Interaction has already been acknowledged.", "code": 40060}, 400)
        told, files = await self._body(request)
        kind, data = told["type"], told.get("data") or {}
        if (kind == 8) != (asked.kind == COMPLETE) or (kind in (6, 7) and asked.kind != COMPONENT):
            raise strict.Refusal("type", f"{kind} doesn't answer {asked.kind}")
        if kind == 8:
            if len(data["choices"]) > 25 or any(len(one["name"]) > 100 for one in data["choices"]):
                raise strict.Refusal("choices", "25 of 100 characters")
            asked.choices = data["choices"]
        elif kind == 4:
            strict.message(data, files=[name for name, _ in files])
            asked.said.append(self._message(data, files, 3000, next(self._ids)))
        else:
            asked.deferred = True
        asked.acked_at = self.clock()
        empty = self._message({"flags": data.get("flags")}, [], 3000, next(self._ids))
        resource = {"type": kind, **({"message": empty} if kind in (4, 5) else {})}
        told = {
            "interaction": {"id": str(asked.id), "type": asked.kind, "response_message_id": empty["id"]},
            "resource": resource,
        }
        return _json(told)

    async def _followed_up(self, request: web.Request) -> web.Response:
        asked = self._asked[request.match_info["token"]]
        if asked.acked_at is None or self.clock() - asked.at > TOKEN_S:
            return _json({"message": "Invalid Webhook Token", "code": 50027}, 401)
        sent, files = await self._body(request)
        strict.message(sent, files=[name for name, _ in files])
        asked.said.append(self._message(sent, files, 3000, next(self._ids)))
        return _json(asked.said[-1])

    async def _follow_up_edited(self, request: web.Request) -> web.Response:
        asked, number = self._asked[request.match_info["token"]], request.match_info["message"]
        if self.clock() - asked.at > TOKEN_S:
            return _json({"message": "Invalid Webhook Token", "code": 50027}, 401)
        (place,) = [n for n, one in enumerate(asked.said) if one["id"] == number]
        sent, files = await self._body(request)
        whole = {name: asked.said[place][name] for name in ("content", "components", "flags")}
        strict.message({**whole, **sent}, files=[name for name, _ in files])
        asked.said[place] = self._message({**whole, **sent}, files, 3000, int(number))
        return _json(asked.said[place])

    async def _file(self, request: web.Request) -> web.Response:
        self.loaded.append(request.match_info["name"])
        return web.Response(body=self._files[request.path], content_type="application/octet-stream")

    def _tell(self) -> None:
        with self._changed:
            self._changes += 1
            self._changed.notify_all()

    def app(self) -> web.Application:
        """Everything that is asked of it; what isn't here is 404, as at Discord."""
        app = web.Application(middlewares=[self._guarded], client_max_size=32 << 20)
        base = "/api/v10"
        app.add_routes(
            [
                web.get("/gateway/", self._gateway),
                web.get("/attachments/{channel}/{id}/{name}", self._file),
                web.get(f"{base}/users/@me", self._user),
                web.get(f"{base}/users/@me/guilds", self._guilds),
                web.post(f"{base}/users/@me/channels", self._opened),
                web.get(f"{base}/oauth2/applications/@me", self._application),
                web.get(f"{base}/applications/@me", self._application),
                web.get(base + "/channels/{channel}", self._channel),
                web.get(base + "/guilds/{guild}/members/{member}", self._member),
                web.put(base + "/applications/{app}/commands", self._synced),
                web.put(base + "/applications/{app}/guilds/{guild}/commands", self._synced_here),
                web.post(base + "/channels/{channel}/messages", self._posted),
                web.patch(base + "/channels/{channel}/messages/{message}", self._edited),
                web.post(base + "/interactions/{id}/{token}/callback", self._called_back),
                web.post(base + "/webhooks/{app}/{token}", self._followed_up),
                web.patch(base + "/webhooks/{app}/{token}/messages/{message}", self._follow_up_edited),
            ]
        )
        return app


@contextmanager
def served(*, clock: Callable[[], float] = lambda: 0.0, limits: tuple[int, float] = (50, 1.0)) -> Iterator[Discord]:
    """One on loopback, in a thread. By default its clock stands still: a loaded machine is never too slow for it."""
    found, started, stop = Discord(clock=clock, limits=limits), threading.Event(), threading.Event()

    async def serve() -> None:
        runner = web.AppRunner(found.app(), access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        found.url, found.gateway_url = f"http://127.0.0.1:{port}", f"ws://127.0.0.1:{port}/gateway/"
        found._loop = asyncio.get_running_loop()
        started.set()
        await asyncio.to_thread(stop.wait)
        for socket in list(found._sockets.values()):
            await socket.close()
        await runner.cleanup()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), name="discord")
    thread.start()
    started.wait(PATIENCE_S)
    try:
        yield found
    finally:
        stop.set()
        thread.join(PATIENCE_S)


def _json(told: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    # discord.py only parses an answer whose type is exactly this.
    return web.Response(
        body=json.dumps(told).encode(), status=status, headers={"Content-Type": "application/json", **(headers or {})}
    )


def _now() -> str:
    return datetime.now(UTC).isoformat()
