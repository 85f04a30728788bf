"""Whether a problem's inputs can be made and sent, tried when it is added: once, in the harness's cage."""

from __future__ import annotations

import dataclasses
import secrets
import subprocess
import sys
import tempfile
from pathlib import Path

from kbslurm.backends.paths import put
from kbslurm.domain.manifest import manifest_for, manifest_text
from kbslurm.domain.problem import Problem
from kbslurm.domain.run import new_job_name
from kbslurm.errors import Invalid
from kbslurm.trial.run import environment

TRYING_S = 45.0  # less than a client waits for the answer to an upload
LEAST_S = 5.0
CHECKED = "checked"
REMEMBERED = 256
_checked: set[tuple[str, Path]] = set()  # by digest: what this process has found good


def with_checked_inputs(problem: Problem, *, eval_dir: Path, within_s: float = TRYING_S) -> Problem:
    """The problem, with what trying its inputs came to; Invalid if they can't be made or sent.

    Its code runs in a process of its own at the highest isolation that this machine allows, never in ours.
    """
    key = (problem.digest, eval_dir)
    said = CHECKED if key in _checked else _tried(problem, eval_dir, min(within_s, TRYING_S))
    if said == CHECKED:
        if len(_checked) >= REMEMBERED:
            _checked.clear()
        _checked.add(key)
    if said.startswith("faulty: "):
        raise Invalid(
            f"problem {problem.name}: {said.removeprefix('faulty: ')}",
            hint="The problem author's guide says what inputs may be made of.",
        )
    return dataclasses.replace(problem, inputs=said)


def _tried(problem: Problem, eval_dir: Path, limit_s: float) -> str:
    if limit_s < LEAST_S:
        return "unchecked: trying the inputs of the problems before it took all the time that there was"
    manifest = manifest_for(
        problem,
        token=new_job_name(),
        attempt=1,
        nonce=secrets.token_hex(16),
        mode="test" if "test" in problem.modes else problem.modes[0],  # type: ignore[arg-type]
        gpu="cpu",
        source="\n",
        secret_seed=secrets.token_hex(16),
    )
    with tempfile.TemporaryDirectory(prefix="kbslurm-inputs-") as folder:
        work = Path(folder)
        put(work / "manifest.json", manifest_text(manifest).encode(), 0o600)
        try:
            done = subprocess.run(
                [sys.executable, "-I", str(eval_dir), "--inputs", str(work / "manifest.json")],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                cwd=work,
                env=environment(work),
                timeout=limit_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"unchecked: generate_input took longer than {limit_s:.0f} s"
    lines = done.stdout.decode(errors="replace").strip().splitlines()
    found = lines[-1] if lines else ""
    if found == CHECKED or found.startswith(("unchecked: ", "faulty: ")):
        return found
    return f"unchecked: the harness ended with {done.returncode}"
