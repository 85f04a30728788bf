"""`kbslurm bot …`: check the Discord bot's set-up, or run only the bot."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Annotated

import typer

from kbslurm.cli.arguments import Json
from kbslurm.cli.context import configuration
from kbslurm.cli.operator.bot_process import ARGV, environment

Debug = Annotated[
    bool, typer.Option("--debug", help="The staging bot, with DISCORD_DEBUG_TOKEN in DISCORD_DEBUG_SERVER alone.")
]


def check(debug: Debug = False, as_json: Json = False) -> int:
    """Check the bot's token, intents, servers, permissions and service; each failure comes with its remedy."""
    argv = [*ARGV, "check", *(["--json"] if as_json else [])]
    return subprocess.run(argv, env=environment(configuration(), checks=True, debug=debug), check=False).returncode


def run(debug: Debug = False, as_json: Json = False) -> int:
    """Run only the bot, on a different host than the service; `kbslurm up` starts it automatically.

    Both hosts need the same KBSLURM_BOT_TOKEN; KBSLURM_URL or [server] public_url gives the service's address.
    """
    env = environment(configuration(), debug=debug)
    os.execve(sys.executable, list(ARGV), {**env, **({"KBSLURM_LOG_JSON": "1"} if as_json else {})})
