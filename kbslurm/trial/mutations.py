"""Whether a problem's check notices corrupted answers."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbslurm.backends.paths import put
from kbslurm.domain.manifest import manifest_for, manifest_text
from kbslurm.domain.problem import Problem
from kbslurm.domain.run import new_job_name
from kbslurm.trial.run import environment

MUTATING_S = 300.0


@dataclass(frozen=True, kw_only=True)
class Mutations:
    """How the problem's check handled corrupted answers. `trouble`: why it couldn't be tested."""

    findings: tuple[dict[str, Any], ...] = ()
    trouble: str = ""

    @property
    def sound(self) -> bool:
        """Whether no finding is an error; warnings may be intended."""
        return not self.trouble and all(found["severity"] != "error" for found in self.findings)


def try_mutations(problem: Problem, *, work: Path, eval_dir: Path, timeout_s: float = MUTATING_S) -> Mutations:
    """Corrupt the reference's own answers to the test cases in known ways, and see what the problem's check says."""
    manifest = manifest_for(
        problem,
        token=new_job_name(),
        attempt=1,
        nonce=secrets.token_hex(16),
        mode="test",
        gpu="cpu",
        source="\n",
        secret_seed=secrets.token_hex(16),
    )
    if problem.world_size > 1:
        return Mutations(trouble="this isn't supported for problems with several ranks")
    work.mkdir(parents=True, exist_ok=True)
    file = work / f"{manifest.token}.json"
    put(file, manifest_text(manifest).encode(), 0o600)
    try:
        done = subprocess.run(
            [sys.executable, "-I", str(eval_dir), "--mutate", str(file)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            cwd=work,
            env=environment(work),
            timeout=timeout_s,
            check=False,
        )
        told = json.loads(done.stdout.splitlines()[-1])
        return Mutations(findings=tuple(told["findings"]), trouble=told["trouble"])
    except subprocess.TimeoutExpired:
        return Mutations(trouble=f"the problem's own code took longer than {timeout_s:g} s")
    except (ValueError, KeyError, IndexError):
        said = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        return Mutations(trouble=f"the problem's own code ended the test {' '.join(said)}".rstrip())
    finally:
        file.unlink(missing_ok=True)
