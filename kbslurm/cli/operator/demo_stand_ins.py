"""`kbslurm demo --discord`, `--overflow` and `--ray`: demos with loopback services, which are part of the tests."""

from __future__ import annotations

import os
import sys

from kbslurm.errors import Misconfigured


def play(flag: str, module: str, missing: str, *, as_json: bool, once: bool = False) -> int:
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
    words = [*(["--json"] if as_json else []), *(["--once"] if once else [])]
    os.execv(sys.executable, [sys.executable, "-m", module, *words])
