"""What can be typed: one file per kind. `ALL` is what Discord is told of; nothing is in it that doesn't work.

`house.audience` says which are for hosts and creators; who may is decided by the service, never here.
"""

from __future__ import annotations

from typing import Any

from discord import app_commands

from kbslurm_bot.commands import admin, creating, house, mine, running, submitting
from kbslurm_bot.commands.boards import leaderboard

leaderboard.add_command(submitting.modes)
leaderboard.add_command(creating.create)
leaderboard.add_command(house.help_there)
ALL: tuple[app_commands.Command[Any, ..., Any] | app_commands.Group, ...] = (
    leaderboard,
    submitting.submit,
    running.run,
    mine.me,
    mine.queue,
    mine.cancel,
    mine.link,
    house.ping,
    house.help_,
    running.verify,
    admin.group,
)
