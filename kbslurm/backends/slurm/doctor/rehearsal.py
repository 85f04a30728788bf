"""A whole attempt of a tiny problem for `kbslurm doctor --live`: the site's own job script, the real harness, a report.

Only this shows which isolation is achieved on a node, because the judge reports it for a runner that it really started.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from pathlib import Path

from kbslurm.backends.paths import AttemptPaths, read_capped
from kbslurm.backends.slurm.evidence import SEALED_CAP
from kbslurm.backends.slurm.staged_harness import stage
from kbslurm.domain.manifest import manifest_for, manifest_text
from kbslurm.domain.problem import Problem
from kbslurm.domain.run import JobName
from kbslurm.domain.site import GpuType, Site
from kbslurm.flow.script import Charged, script_for, supervisor_digest
from kbslurm_eval.shared.wire import Limits, Report, WireError, unseal

NAME = JobName("kb-rehearsal")
SCRIPT = "rehearsal.sh"
LIMIT_S = 180.0
MEMORY_BYTES = 1 << 30
REFERENCE = """\
def generate_input(seed):
    return [seed]


def ref_kernel(data):
    return list(data)


def check_implementation(data, output):
    return list(output) == list(data), "not what was given"
"""
SOURCE = "def custom_kernel(data):\n    return list(data)\n"
PROBLEM = Problem(
    name="rehearsal",
    files={"reference.py": REFERENCE},
    tests=({"seed": 1},),
    benchmarks=({"seed": 1},),
    limits=Limits(test_s=60.0, total_s=120.0, memory_bytes=MEMORY_BYTES),
)


@dataclass(frozen=True, kw_only=True)
class Rehearsal:
    """What is needed to run it and verify its report. All its files are below the probe's own folder."""

    folder: Path
    key: bytes

    @property
    def paths(self) -> AttemptPaths:
        """The attempt's folder."""
        return AttemptPaths(root=self.folder, name=NAME)

    def report(self) -> Report | str:
        """The judge's report, or why there is none."""
        try:
            sealed = read_capped(self.paths.report, SEALED_CAP)
            if sealed is not None:
                return unseal(sealed, self.key)
        except (OSError, WireError) as error:
            return f"its report isn't valid: {error}"
        return self._why() or "it left no report"

    def _why(self) -> str:
        try:
            told = json.loads(read_capped(self.paths.exit, 65_536) or b"{}")
            said = (read_capped(self.folder / "rehearsal.log", 1 << 20) or b"").decode(errors="replace")
        except (OSError, ValueError):
            return ""
        why = str(told.get("why") or "") if isinstance(told, dict) else ""
        return why or said.strip().rpartition("\n")[2][:300]


def prepare(
    site: Site, gpu: GpuType, folder: Path, *, templates: Path, eval_dir: Path, charged: Charged | None = None
) -> Rehearsal:
    """Set up the attempt below this folder, with its own harness and its script next to it."""
    harness = stage(eval_dir, folder / "eval")
    found = Rehearsal(folder=folder, key=secrets.token_bytes(32))
    manifest = manifest_for(
        PROBLEM,
        token=NAME,
        attempt=1,
        nonce=secrets.token_hex(8),
        mode="test",
        gpu=gpu.name,
        source=SOURCE,
        secret_seed=secrets.token_hex(8),
    )
    found.paths.create(manifest=manifest_text(manifest), key=found.key)
    script = script_for(
        site,
        name=NAME,
        gpu=gpu.name,
        directory=found.paths.dir,
        harness=harness,
        supervisor=supervisor_digest(eval_dir),
        time_limit_s=LIMIT_S,
        memory_bytes=MEMORY_BYTES,
        templates=templates,
        charged=charged,
    )
    (folder / SCRIPT).write_text(script, encoding="utf-8")
    return found
