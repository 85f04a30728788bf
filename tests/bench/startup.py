"""What it costs to start `kbslurm`, in the CPU time of starting Python at all."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.bench import Row, scaled

ROOT = Path(__file__).resolve().parents[2]
AT_MOST = 8.0


def run() -> list[Row]:
    """The best of twenty each, in turns, so that whatever else the machine does hits both alike."""
    bare, asked = [], []
    for _ in range(scaled(20, least=5)):
        bare.append(_cpu_s("-c", "pass"))
        asked.append(_cpu_s("-m", "kbslurm", "--help"))
    return [
        Row(
            name="kbslurm --help, CPU time",
            value=min(asked) * 1e3,
            unit="ms",
            against=f"python -c pass, {min(bare) * 1e3:.1f} ms",
            ratio=min(asked) / min(bare),
            at_most=AT_MOST,
        )
    ]


def _cpu_s(*words: str) -> float:
    """User and system time of one Python."""
    child = subprocess.Popen([sys.executable, *words], cwd=ROOT, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0, words
    return used.ru_utime + used.ru_stime
