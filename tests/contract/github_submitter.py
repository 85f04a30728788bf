"""A process that submits one job to GitHub on loopback and is killed at a step.

`python -m tests.contract.github_submitter`; on standard input comes one JSON object with the place, the job, and the
step ("" for none).
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from kbslurm.backends.github import GithubBackend
from kbslurm.domain.run import JobName
from kbslurm.ports import JobSpec


def main() -> None:
    told = json.load(sys.stdin)

    def die(step: str) -> None:
        if step == told["step"]:
            os.kill(os.getpid(), signal.SIGKILL)

    backend = GithubBackend(
        told["repository"],
        {told["gpu"]: ["ubuntu-latest"]},
        {told["gpu"]: 1},
        tokens=told["tokens"],
        key=bytes.fromhex(told["run_key"]),
        eval_dir=Path(told["eval_dir"]),
        api_url=told["api_url"],
        min_isolation=0,
        probe=die,
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
