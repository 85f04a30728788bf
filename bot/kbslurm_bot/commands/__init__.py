"""What can be typed: one file per kind. `ALL` is what Discord is told of; nothing is in it that doesn't work."""

from __future__ import annotations

from typing import Any

from discord import app_commands

from kbslurm_bot.commands import house, mine, submitting
from kbslurm_bot.commands.boards import leaderboard

leaderboard.add_command(submitting.modes)
ALL: tuple[app_commands.Command[Any, ..., Any] | app_commands.Group, ...] = (
    leaderboard,
    submitting.submit,
    mine.me,
    mine.queue,
    mine.cancel,
    mine.link,
    house.ping,
    house.help_,
)
