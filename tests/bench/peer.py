"""KernelBot's own eval beside this harness: the same problem, the same submission, the same processor, in turns.

Nothing of KernelBot is in this repository: `KBSLURM_PEER` names a problem's folder in a checkout of it or of
reference-kernels (a task.yml with its eval.py), `KBSLURM_PEER_SUBMISSION` a submission's file, and
`KBSLURM_TORCH_PYTHON` a Python that has torch. `KBSLURM_PEER_CASE` are the parameters of the one benchmark, as JSON;
without it the problem's last counts. Where the machine has no GPU its
`cuda` is the processor for both, and the peer's events are a clock.

What is compared is the peer's three steps of a ranked run (test, benchmark, leaderboard) with all four phases of ours.
The service that runs the peer does its three steps a second time with a secret seed; that isn't counted here. The
peer's interval is what its own error of the mean gives: of one process, so that it doesn't contain what differs between
launches.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from kbslurm.domain.manifest import manifest_for
from kbslurm.domain.problem import Problem
from kbslurm.problems import loading
from kbslurm_eval.run import reachable
from kbslurm_eval.shared import wire
from tests.adversarial import trial
from tests.bench import Row, scaled

APART = True
TURNS, LIMIT_S = 3, 1800
KEY = b"k" * 32
SUBMISSION = "KBSLURM_PEER_SUBMISSION"  # the file that both are given
NEEDED = ("KBSLURM_PEER", SUBMISSION, "KBSLURM_TORCH_PYTHON")
CLOCK = """
import contextlib, sys, time
sys.path.insert(0, {eval!r})
import torch
from kbslurm_eval.device import cuda_on_cpu


class Event:
    def __init__(self, **kwargs):
        self.at = 0

    def record(self, *args):
        self.at = time.perf_counter_ns()

    def elapsed_time(self, other):
        return (other.at - self.at) / 1e6


if cuda_on_cpu.install():
    torch.cuda.Event = Event
    torch.cuda.nvtx.range = lambda *args: contextlib.nullcontext()
"""


def why_not() -> str | None:
    """What is missing for the comparison, if anything is."""
    return next((f"{name} isn't set; see make help, bench-peer" for name in NEEDED if not os.environ.get(name)), None)


def run() -> list[Row]:
    if why := why_not():
        raise SystemExit(why)
    told = {name: os.environ[name] for name in NEEDED}
    problem, python = _problem(Path(told["KBSLURM_PEER"]).resolve()), told["KBSLURM_TORCH_PYTHON"]
    source = Path(told[SUBMISSION]).read_text(encoding="utf-8")
    level, _ = reachable()
    ours, theirs = [], []
    for _ in range(scaled(TURNS, least=1)):
        theirs.append(_peer(problem, source, python))
        ours.append(_harness(problem, source, python, level))
    spent = statistics.median(one / other for (one, _, _), (other, _, _) in zip(ours, theirs, strict=True))
    half, their_half = (statistics.median(found) for found in ([h for _, _, h in ours], [h for _, _, h in theirs]))
    case = "; ".join(f"{k}: {v}" for k, v in problem.benchmarks[-1].items())
    return [
        Row(
            name=f"a whole ranked run of {problem.name} ({case})",
            value=statistics.median(seconds for seconds, _, _ in ours),
            unit="s",
            against=f"{statistics.median(seconds for seconds, _, _ in theirs):.3g} s by the problem's own eval.py",
            ratio=spent,
            at_most=1.0,
        ),
        Row(
            name="half of its 95 % interval",
            value=100 * half,
            unit="%",
            against=f"{100 * their_half:.2g} % from the peer's error of its mean",
            ratio=half / max(their_half, 1e-9),
            at_most=1.0,
        ),
        Row(
            name="how far repeated scores are apart",
            value=100 * _apart([score for _, score, _ in ours]),
            unit="%",
            against=f"{100 * _apart([score for _, score, _ in theirs]):.2g} % for the peer's",
        ),
    ]


def _problem(folder: Path) -> Problem:
    """With one benchmark, which is what counts for both."""
    found = loading.load(folder)
    case = os.environ.get("KBSLURM_PEER_CASE")
    return replace(found, benchmarks=(json.loads(case) if case else found.benchmarks[-1],))


def _apart(scores: list[float]) -> float:
    return max(scores) / min(scores) - 1


def _harness(problem: Problem, source: str, python: str, level: int) -> tuple[float, float, float]:
    """How long a run took, its score, and half of its interval relative to that."""
    told = manifest_for(
        problem, token="peer", attempt=1, nonce="peer", mode="leaderboard", gpu="cpu", source=source, secret_seed="s"
    )
    with tempfile.TemporaryDirectory(prefix="kbpeer-") as place:
        folder = Path(place)
        (folder / "manifest.json").write_text(wire.dumps(told))
        (folder / "key").write_bytes(KEY)
        argv = [python, "-I", str(trial.EVAL), str(folder / "manifest.json"), "--key", str(folder / "key")]
        env = {"PATH": "/usr/bin:/bin", "KBSLURM_EVAL_LEVEL": str(level)}
        began = time.perf_counter()
        subprocess.run([*argv, "--out", str(folder / "out")], check=True, timeout=LIMIT_S, env=env)
        took = time.perf_counter() - began
        report = wire.unseal((folder / "out" / "report.json").read_bytes(), KEY)
    assert report.verdict == "passed", report.reason
    assert report.score_s is not None
    assert report.interval_s is not None
    low, high = report.interval_s
    return took, report.score_s, (high - low) / 2 / report.score_s


def _peer(problem: Problem, source: str, python: str) -> tuple[float, float, float]:
    with tempfile.TemporaryDirectory(prefix="kbpeer-") as place:
        folder = Path(place)
        for name, text in {**problem.files, "submission.py": source}.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
        shutil.copyfile(_own_eval(problem), folder / "eval.py")
        (folder / "clock").mkdir()
        (folder / "clock" / "sitecustomize.py").write_text(CLOCK.format(eval=str(trial.EVAL)))
        tests, benchmarks = (_lines(cases) for cases in (problem.tests, problem.benchmarks))
        began, found = time.perf_counter(), {}
        for mode, cases in (("test", tests), ("benchmark", benchmarks), ("leaderboard", benchmarks)):
            found = _step(folder, python, mode, cases)
        took = time.perf_counter() - began
    mean, error = float(found["benchmark.0.mean"]), float(found["benchmark.0.err"])
    return took, mean / 1e9, 1.96 * error / mean


def _own_eval(problem: Problem) -> Path:
    folder = Path(os.environ["KBSLURM_PEER"]).resolve()
    return next(at for at in (folder / "eval.py", folder.parent / "eval.py") if at.exists())


def _lines(cases: Any) -> str:
    return "".join("; ".join(f"{k}: {v}" for k, v in case.items()) + "\n" for case in cases)


def _step(folder: Path, python: str, mode: str, cases: str) -> dict[str, str]:
    """The submission by itself, as the peer compiles it, and then its eval.py: what that told by its pipe."""
    (folder / "cases").write_text(cases)
    env = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "PYTHONPATH": str(folder / "clock"), "POPCORN_GPUS": "1"}
    subprocess.run([python, "submission.py"], check=True, cwd=folder, env=env, timeout=LIMIT_S)
    read, write = os.pipe()
    argv = [python, "eval.py", mode, "cases"]
    with subprocess.Popen(argv, cwd=folder, env={**env, "POPCORN_FD": str(write)}, pass_fds=(write,)) as process:
        os.close(write)
        with os.fdopen(read) as pipe:
            lines = pipe.read().splitlines()
        process.wait(timeout=LIMIT_S)
    told = dict(line.split(": ", 1) for line in lines if ": " in line)
    assert told.get("check") == "pass", lines
    return told
