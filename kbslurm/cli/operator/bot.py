"""`kbslurm bot …`: check the Discord bot's set-up, or run it alone."""

from __future__ import annotations

import os
import subprocess
import sys

from kbslurm.cli.arguments import Json
from kbslurm.cli.context import configuration
from kbslurm.cli.operator.bot_process import ARGV, environment


def check(as_json: Json = False) -> int:
    """Look at token, intents, servers, permissions and the service; each failure with its remedy."""
    argv = [*ARGV, "check", *(["--json"] if as_json else [])]
    return subprocess.run(argv, env=environment(configuration(), checks=True), check=False).returncode


def run(as_json: Json = False) -> int:
    """Run the bot alone, on another host than the service; `kbslurm up` starts it by itself.

    Both hosts need the same KBSLURM_BOT_TOKEN; KBSLURM_URL or [server] public_url says where the service is.
    """
    env = environment(configuration())
    os.execve(sys.executable, list(ARGV), {**env, **({"KBSLURM_LOG_JSON": "1"} if as_json else {})})
