"""Processes that submit one job and are killed at a step: what those of all backends share.

On standard input comes one JSON object with what the backend is made of, the job, and the step ("" for none).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any

from kbslurm.domain.run import JobName
from kbslurm.ports import Backend, JobSpec
from tests.contract.backend_suite import REPOSITORY


def started(module: str, made_of: Mapping[str, Any], job: JobSpec, step: str) -> subprocess.Popen[str]:
    """The process of this module, with its order."""
    told = {
        **made_of,
        "gpu": job.gpu,
        "job": job.name,
        "manifest": job.manifest,
        "key": job.key.hex(),
        "time_limit_s": job.time_limit_s,
        "memory_bytes": job.memory_bytes,
        "step": step,
    }
    process = subprocess.Popen([sys.executable, "-m", module], cwd=REPOSITORY, stdin=subprocess.PIPE, text=True)
    assert process.stdin is not None
    process.stdin.write(json.dumps(told))
    process.stdin.close()
    return process


def submit(made: Callable[[dict[str, Any], Callable[[str], None]], Backend]) -> None:
    """In that process: make the backend of its order and of a crash point that kills us there, and submit."""
    told = json.load(sys.stdin)

    def die(step: str) -> None:
        if step == told["step"]:
            os.kill(os.getpid(), signal.SIGKILL)

    made(told, die).submit(
        JobSpec(
            name=JobName(told["job"]),
            gpu=told["gpu"],
            manifest=told["manifest"],
            key=bytes.fromhex(told["key"]),
            time_limit_s=told["time_limit_s"],
            memory_bytes=told["memory_bytes"],
        )
    )
