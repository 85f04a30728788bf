"""`kbslurm bot check`: token, servers, permissions, our own API. Each failure says how to fix it."""

from __future__ import annotations

import asyncio
import json
import operator
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import reduce
from typing import Any

import discord

from kbslurm.client.http import Client
from kbslurm.errors import KbslurmError
from kbslurm_bot.permissions import invite_url, missing_here
from kbslurm_bot.settings import Settings

COPY = "Check the channel ID (Developer Mode, right click, Copy Channel ID) and that the bot may view the channel."


@dataclass(frozen=True, kw_only=True)
class Found:
    """One check. `fix` is empty if it passed."""

    what: str
    ok: bool
    said: str
    fix: str = ""


async def run(settings: Settings, *, as_json: bool) -> int:
    """Print the findings; 2 if something has to be fixed."""
    found = [*await discords(settings), *await asyncio.to_thread(ours, settings)]
    if as_json:
        print(json.dumps({"ok": all(one.ok for one in found), "checks": [asdict(one) for one in found]}))
    else:
        for one in found:
            print(f"{'PASS' if one.ok else 'FAIL'} {one.what}: {one.said}")
            if one.fix:
                print(f"     {one.fix}")
    return 0 if all(one.ok for one in found) else 2


async def discords(settings: Settings) -> list[Found]:
    """The checks at Discord. Opens no gateway, so a running bot isn't disturbed."""
    found: list[Found] = []
    async with discord.Client(intents=discord.Intents.none(), proxy=settings.proxy) as client:
        try:
            await client.login(settings.token)
        except discord.LoginFailure:
            fix = "Reset it in the developer portal (Bot, Reset Token) and set DISCORD_TOKEN to the new one."
            return [Found(what="token", ok=False, said="Discord rejects it", fix=fix)]
        except (discord.HTTPException, OSError) as error:
            fix = "Check that this host can reach Discord; set HTTPS_PROXY if it needs a proxy."
            return [Found(what="token", ok=False, said=f"Discord can't be reached ({error})", fix=fix)]
        found.append(Found(what="token", ok=True, said=f"it belongs to {client.user}"))
        found.append(Found(what="intents", ok=True, said="the bot uses no privileged intents"))
        assert client.application_id is not None
        link = invite_url(client.application_id)
        # What the bot's roles allow in each server, as computed by Discord.
        guilds = await client.http.get_guilds(200)
        if not guilds:
            found.append(Found(what="servers", ok=False, said="the bot isn't in any server", fix=f"Open {link}"))
        for guild in guilds:
            lacking = missing_here(discord.Permissions(int(guild.get("permissions", 0))))
            said = f"it lacks {', '.join(lacking)}" if lacking else "it has all permissions it needs"
            fix = f"Open {link}" if lacking else ""
            found.append(Found(what=f"server {guild['name']}", ok=not lacking, said=said, fix=fix))
        held = {int(one["id"]): discord.Permissions(int(one.get("permissions", 0))) for one in guilds}
        for name in ("channel", "staff_channel"):
            found.append(await _channel(client, name, settings.channels().get(name), held))
    return found


async def _channel(
    client: discord.Client, name: str, number: int | None, held: dict[int, discord.Permissions]
) -> Found:
    """Whether the bot may write there, given the channel's permission overwrites."""
    what = f"[discord] {name}"
    if number is None:
        return Found(what=what, ok=True, said="not configured, so nothing is posted there")
    try:
        told: Any = await client.http.get_channel(number)
        guild = int(told.get("guild_id") or 0)
        if guild not in held:
            return Found(what=what, ok=False, said=f"{number} isn't a channel in the bot's servers", fix=COPY)
        assert client.user is not None
        member = await client.http.get_member(guild, client.user.id)
    except (discord.NotFound, discord.Forbidden) as error:
        return Found(what=what, ok=False, said=f"the bot can't see {number} ({error.text or error.status})", fix=COPY)
    except discord.HTTPException as error:
        return Found(what=what, ok=False, said=f"Discord can't be reached ({error})", fix="Try again.")
    may = allowed(held[guild], told.get("permission_overwrites") or [], guild, member)
    lacking = [one for one in missing_here(may) if one != "Attach Files"]
    said = f"in #{told['name']} it lacks {', '.join(lacking)}" if lacking else f"it may write in #{told['name']}"
    fix = f"In #{told['name']}: Edit Channel, Permissions, add the bot, allow {', '.join(lacking)}." if lacking else ""
    return Found(what=what, ok=not lacking, said=said, fix=fix)


def allowed(base: discord.Permissions, overwrites: Sequence[Any], guild: int, member: Any) -> discord.Permissions:
    """A member's permissions in a channel: the overwrite for @everyone, then those of its roles, then its own."""
    if base.administrator:
        return discord.Permissions.all()
    may, roles = discord.Permissions(base.value), {int(one) for one in member.get("roles") or ()}
    by_id = {int(one["id"]): (int(one["allow"]), int(one["deny"])) for one in overwrites}
    of_roles = [by_id[one] for one in roles if one in by_id]
    steps = [by_id.get(guild, (0, 0)), (_or(one[0] for one in of_roles), _or(one[1] for one in of_roles))]
    for allow, deny in [*steps, by_id.get(int(member["user"]["id"]), (0, 0))]:
        may.handle_overwrite(allow=allow, deny=deny)
    return may


def _or(bits: Iterable[int]) -> int:
    return reduce(operator.or_, bits, 0)


def ours(settings: Settings) -> list[Found]:
    """The check at our own API."""
    with Client(settings.url, admin=settings.bot_token or None) as client:
        try:
            client.check()
            if not settings.bot_token:
                said = f"{settings.url} is up; kbslurm up makes the bot's token for it"
                return [Found(what="service", ok=True, said=said)]
            for _ in client.events("now", stream=False):
                break
        except KbslurmError as error:
            fix = "Check that kbslurm is running and that both have the same KBSLURM_BOT_TOKEN."
            return [Found(what="service", ok=False, said=error.message, fix=error.hint or fix)]
    return [Found(what="service", ok=True, said=f"{settings.url} accepts the bot's token")]
