"""`kbslurm demo --discord` and `--overflow`: plays with stand-ins on loopback, which are among the tests."""

from __future__ import annotations

import os
import sys

from kbslurm.errors import Misconfigured


def play(flag: str, module: str, missing: str, *, as_json: bool) -> int:
    """Become the play of this module: ^C and the exit code are its own. `missing`: what a wheel has not for it."""
    from kbslurm.config import shared_folders

    checkout = shared_folders.checkout()
    if checkout is None or not checkout.joinpath(*module.split(".")).with_suffix(".py").is_file():
        raise Misconfigured(
            f"--{flag} needs a checkout: the wheel has no {missing} in it",
            fix=f"Clone kbslurm, then make demo-{flag}.",
        )
    os.chdir(checkout)
    os.execv(sys.executable, [sys.executable, "-m", module, *(["--json"] if as_json else [])])
