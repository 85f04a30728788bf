"""A script of a host's, run as a program of its own inside the cage; what it writes goes into the runner's log."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import Any

from kbslurm_eval.runner.importing import placed
from kbslurm_eval.shared.runner_link import Status
from kbslurm_eval.shared.scripts import KILLED_FROM


def run_script(told: dict[str, Any]) -> tuple[int, str]:
    """Run it to its end, however long that takes: the judge has the clock. The text is its exit status."""
    path, work = placed(told)
    env = {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    # a process of its own: threads, exit handlers and crashes of a program end that, and not what reports of it
    done = subprocess.run([sys.executable, path], cwd=work, env=env, stdin=subprocess.DEVNULL, check=False).returncode
    if done == -signal.SIGKILL:
        return Status.MEMORY, ""  # nobody else kills one process of it; the judge sees what it held
    return Status.OK, str(done if done >= 0 else KILLED_FROM - done)
