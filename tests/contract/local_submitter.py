"""A process that submits one job to the local backend and is killed at a step.

`python -m tests.contract.local_submitter`; on standard input comes one JSON object with the backend's folders, the
job, and the step ("" for none).
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from kbslurm.backends.local import LocalBackend
from kbslurm.domain.run import JobName
from kbslurm.ports import JobSpec


def main() -> None:
    told = json.load(sys.stdin)

    def die(step: str) -> None:
        if step == told["step"]:
            os.kill(os.getpid(), signal.SIGKILL)

    backend = LocalBackend(
        Path(told["root"]), {told["gpu"]: 1}, Path(told["eval_dir"]), Path(sys.executable), told["name"], probe=die
    )
    backend.submit(
        JobSpec(
            name=JobName(told["job"]),
            gpu=told["gpu"],
            manifest=told["manifest"],
            key=bytes.fromhex(told["key"]),
            time_limit_s=told["time_limit_s"],
            memory_bytes=told["memory_bytes"],
        )
    )


if __name__ == "__main__":
    main()
