"""`kbslurm demo --discord` and `--overflow`: demos with stand-ins on loopback, which are part of the tests."""

from __future__ import annotations

import os
import sys

from kbslurm.errors import Misconfigured


def play(flag: str, module: str, missing: str, *, as_json: bool) -> int:
    """Replace this process with the demo in this module, so that ^C and the exit code are its own. `missing`: what the
    wheel lacks for it."""
    from kbslurm.config import shared_folders

    checkout = shared_folders.checkout()
    if checkout is None or not checkout.joinpath(*module.split(".")).with_suffix(".py").is_file():
        raise Misconfigured(
            f"--{flag} needs a checkout: the wheel doesn't contain the {missing}",
            fix=f"Clone kbslurm, then run: make demo-{flag}",
        )
    os.chdir(checkout)
    os.execv(sys.executable, [sys.executable, "-m", module, *(["--json"] if as_json else [])])
