"""`python -m tests.contract.modal_submitter`: submits one job to Modal on loopback, and is killed at a step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kbslurm.backends.modal.backend import ModalBackend, ModalGpu
from kbslurm.backends.modal.connection import Connection
from tests.contract.submitter import submit


def made(told: dict[str, Any], die: Callable[[str], None]) -> ModalBackend:
    return ModalBackend(
        Connection(*told["token"], api_url=told["url"]),
        app=told["app"],
        gpus={told["gpu"]: ModalGpu(slots=2, timeout_s=told["timeout_s"], memory_bytes=1 << 40)},
        harness_digest=told["digest"],
        start_within_s=told["start_within_s"],
        margin_s=told["margin_s"],
        crash_point=die,
    )


if __name__ == "__main__":
    submit(made)
