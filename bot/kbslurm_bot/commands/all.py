"""All commands, one file per kind. `ALL` is what Discord is told about; it contains only working commands.

`about.audience` says which are for hosts and creators; the service decides who may use them, never this file.
"""

from __future__ import annotations

from typing import Any

from discord import app_commands

from kbslurm_bot.commands import about, admin, create, personal, questions, run, submit, verifying
from kbslurm_bot.commands.boards import leaderboard

leaderboard.add_command(submit.modes)
leaderboard.add_command(create.create)
leaderboard.add_command(about.help_there)
ALL: tuple[app_commands.Command[Any, ..., Any] | app_commands.Group, ...] = (
    leaderboard,
    submit.submit,
    run.run,
    personal.me,
    personal.queue,
    personal.cancel,
    personal.link,
    questions.ask,
    questions.answers,
    about.ping,
    about.help_,
    run.verify,
    verifying.verifyruns,
    verifying.verifydb,
    admin.group,
)
