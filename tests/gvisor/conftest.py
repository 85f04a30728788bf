"""The gVisor floor: runsc of Debian 13, which needs root but no KVM, and commands run in it on this machine's files."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from tests.cluster import tree
from tests.services import GVISOR, missing, need

Inside = Callable[..., "subprocess.CompletedProcess[str]"]
PATIENCE_S = 300


@pytest.fixture(scope="session")
def sandbox() -> Iterator[list[str]]:
    """The start of a command that runs the rest of it in gVisor: it sees this machine's files, and what it writes is
    gone with it."""
    need(GVISOR)
    try:
        runsc = tree.runsc()
    except tree.Trouble as trouble:
        missing(GVISOR, str(trouble))
    with tempfile.TemporaryDirectory(prefix="kb-runsc-") as state:
        yield [str(runsc), "--root", state, "--platform=systrap", "--network=none", "--ignore-cgroups", "do"]


@pytest.fixture
def inside(sandbox: list[str], root: Path) -> Inside:
    """Run a command in gVisor, in the checkout."""

    def run(argv: Sequence[str], env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        plain = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"}
        return subprocess.run(
            [*sandbox, *argv],
            capture_output=True,
            text=True,
            cwd=root,
            timeout=PATIENCE_S,
            env={**plain, **(env or {})},
            check=False,
        )

    return run
