"""`python -m tests.contract.github_submitter`: submits one job to GitHub on loopback, and is killed at a step."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from kbslurm.backends.github.backend import GithubBackend
from tests.contract.submitter import submit


def made(told: dict[str, Any], die: Callable[[str], None]) -> GithubBackend:
    return GithubBackend(
        told["repository"],
        {told["gpu"]: ["ubuntu-latest"]},
        {told["gpu"]: 1},
        tokens=told["tokens"],
        key=bytes.fromhex(told["run_key"]),
        eval_dir=Path(told["eval_dir"]),
        api_url=told["api_url"],
        min_isolation=0,
        crash_point=die,
    )


if __name__ == "__main__":
    submit(made)
