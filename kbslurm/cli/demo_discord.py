"""`kbslurm demo --discord`: a conversation with the bot, against a Discord that is a stand-in on loopback."""

from __future__ import annotations

import os
import sys

from kbslurm.errors import Misconfigured


def played_on_discord(*, as_json: bool) -> int:
    """Become the play, which is among the tests since its Discord is theirs: ^C and the exit code are its own."""
    from kbslurm import share

    checkout = share.checkout()
    if checkout is None or not (checkout / "tests" / "fakes" / "discord" / "play.py").is_file():
        raise Misconfigured(
            "--discord needs a checkout: the wheel has no stand-in for Discord in it",
            fix="Clone kbslurm, then make demo-discord.",
        )
    os.chdir(checkout)
    words = ["-m", "tests.fakes.discord.play", *(["--json"] if as_json else [])]
    os.execv(sys.executable, [sys.executable, *words])
