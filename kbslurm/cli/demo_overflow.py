"""`kbslurm demo --overflow`: the only site goes down, and GitHub and Modal on loopback take its runs."""

from __future__ import annotations

import os
import sys

from kbslurm.errors import Misconfigured


def played_elsewhere(*, as_json: bool) -> int:
    """Become the play, which is among the tests since its GitHub and Modal are theirs."""
    from kbslurm import share

    checkout = share.checkout()
    if checkout is None or not (checkout / "tests" / "fakes" / "overflow_play.py").is_file():
        raise Misconfigured(
            "--overflow needs a checkout: the wheel has no stand-ins for GitHub and Modal in it",
            fix="Clone kbslurm, then make demo-overflow.",
        )
    os.chdir(checkout)
    words = ["-m", "tests.fakes.overflow_play", *(["--json"] if as_json else [])]
    os.execv(sys.executable, [sys.executable, *words])
