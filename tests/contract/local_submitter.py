"""`python -m tests.contract.local_submitter`: submits one job to the local backend, and is killed at a step."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kbslurm.backends.local.backend import LocalBackend
from tests.contract.submitter import submit


def made(told: dict[str, Any], die: Callable[[str], None]) -> LocalBackend:
    return LocalBackend(
        Path(told["root"]),
        {told["gpu"]: 1},
        Path(told["eval_dir"]),
        Path(sys.executable),
        told["name"],
        crash_point=die,
    )


if __name__ == "__main__":
    submit(made)
