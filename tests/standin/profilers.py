"""The stand-ins for profilers, laid where a cage shows them: below CUDA_HOME, with the driver that tells `ncu` when to
begin."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from pathlib import Path

from tests import standin

DATA = Path(__file__).resolve().parents[1] / "golden/data/profiles"
PROGRAMS = {"ncu": "ncu", "rocprof": "rocprofv3"}


def profiler(folder: Path, tool: str, *state: str) -> dict[str, str]:
    """The environment in which the harness finds this profiler. `state`: how it is: `old`, `refused`, `size N` …"""
    env = standin.device(folder)
    programs = folder / "bin"
    programs.mkdir(mode=0o755, exist_ok=True)
    program = PROGRAMS[tool]
    text = Path(__file__).with_name(f"{program}.py").read_text(encoding="utf-8")
    (programs / f"{program}.py").write_text(text, encoding="utf-8")
    (programs / program).write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$0.py" "$@"\n', encoding="utf-8")
    (programs / program).chmod(0o755)
    (programs / f"{tool}.json").write_text(json.dumps(state))
    for table in DATA.glob("*.csv"):
        shutil.copy(table, programs)
    return {**env, "KBSLURM_PROFILER": tool}
