"""The permissions that the bot needs on Discord, and no others."""

from __future__ import annotations

import discord

NEEDED = discord.Permissions(view_channel=True, send_messages=True, attach_files=True)
NAMES = {"view_channel": "View Channels", "send_messages": "Send Messages", "attach_files": "Attach Files"}


IN_THREADS = {**NAMES, "send_messages_in_threads": "Send Messages in Threads"}
del IN_THREADS["send_messages"]


def missing_here(has: discord.Permissions, *, in_thread: bool = False) -> list[str]:
    """Discord's names, in the order of its settings."""
    if has.administrator:
        return []
    return [shown for name, shown in (IN_THREADS if in_thread else NAMES).items() if not getattr(has, name)]


def invite_url(application: int) -> str:
    """The link that invites the bot to a server with exactly these permissions."""
    return (
        f"https://discord.com/oauth2/authorize?client_id={application}"
        f"&scope=bot+applications.commands&permissions={NEEDED.value}"
    )
