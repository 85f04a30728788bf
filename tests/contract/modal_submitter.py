"""A process that submits one job to Modal and is killed at a step.

`python -m tests.contract.modal_submitter`; on standard input comes one JSON object with the address, the job, and the
step ("" for none).
"""

from __future__ import annotations

import json
import os
import signal
import sys

from kbslurm.backends.modal import ModalBackend, ModalGpu
from kbslurm.backends.modal.line import Line
from kbslurm.domain.run import JobName
from kbslurm.ports import JobSpec


def main() -> None:
    told = json.load(sys.stdin)

    def die(step: str) -> None:
        if step == told["step"]:
            os.kill(os.getpid(), signal.SIGKILL)

    backend = ModalBackend(
        Line(*told["token"], api_url=told["url"]),
        app=told["app"],
        gpus={told["gpu"]: ModalGpu(slots=2, timeout_s=told["timeout_s"], memory_bytes=1 << 40)},
        harness_digest=told["digest"],
        start_within_s=told["start_within_s"],
        margin_s=told["margin_s"],
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
