"""Run one submission through the whole harness on this machine: no database, no daemon, nothing stored.

Used by `kbslurm try` and `kbslurm problem verify`. Judging works as in a job: the same manifest, harness and sealed
report. Only what a site adds (an exclusive GPU, and a container unless an image is named) is missing.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from kbslurm.backends.paths import AttemptPaths, put, read_artifacts, read_capped, said
from kbslurm.backends.supervisor_exit import blamed
from kbslurm.domain import profiles
from kbslurm.domain.intake import chosen_benchmark
from kbslurm.domain.manifest import manifest_for, manifest_text, time_limit_s
from kbslurm.domain.problem import Problem
from kbslurm.domain.run import CHECK_DIED, OWN_FAULT, Ending, new_job_name
from kbslurm.domain.source import check_beside, check_language, checked_source
from kbslurm.errors import EXIT_INFRASTRUCTURE, EXIT_OK, EXIT_REJECTED, Misconfigured
from kbslurm.trial import in_image
from kbslurm.trial import keeper as trial_keeper
from kbslurm.trial.in_image import TrialImage
from kbslurm_eval.shared import remove_tree
from kbslurm_eval.shared.wire import (
    ARTIFACT_CAP,
    REPORT_CAP,
    WIRE_VERSION,
    Isolation,
    Manifest,
    Mode,
    Report,
    VerdictName,
    WireError,
    unseal,
)

SHOWN_LOG_CAP = 20_000
HEARTBEAT_CAP = 65_536
LOOK_EVERY_S = 0.1
ENDING_S = 30.0
# What a submission may see of the caller's environment: where programs, libraries and devices are.
KEPT_VARIABLES = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_VISIBLE_DEVICES", "TZ")

Heartbeat = Callable[[Mapping[str, Any]], None]


@dataclass(frozen=True, kw_only=True)
class Trial:
    """The result of one try. Without a report the verdict is infrastructure, or timeout at the hard limit.

    `artifacts`: the profile's files, whose contents the submission controls.
    """

    report: Report
    took_s: float
    artifacts: Mapping[str, bytes] = field(default_factory=dict)


def run_trial(
    problem: Problem,
    source_file_name: str,
    source_text: str,
    mode: Mode,
    gpu: str = "cpu",
    *,
    work: Path,
    eval_dir: Path,
    on_heartbeat: Heartbeat | None = None,
    timeout_s: float | None = None,
    benchmark: int | None = None,
    profiler: str | None = None,
    python: str | None = None,
    image: TrialImage | None = None,
) -> Trial:
    """Judge one submission below `work`, which is left as it was; no started process survives.

    Raises Invalid for an invalid submission and for a mode that the problem doesn't have. `timeout_s` is the hard limit
    from outside; by default the one that a backend would use. `benchmark`: the only one to profile. `profiler`: the
    program that profiles besides torch and Python. `python`: the one that judge and runner run in (default: this one).
    `image`: they run in that, with its own Python.
    """
    source = checked_source(source_file_name, source_text.encode())
    check_language(source, problem.lang)
    check_beside(source, problem.runner_files)
    name = new_job_name()
    manifest = manifest_for(
        problem,
        token=name,
        attempt=1,
        nonce=secrets.token_hex(16),
        mode=mode,
        gpu=gpu,
        source=source.text,
        secret_seed=secrets.token_hex(16),
        profile_benchmark=None if benchmark is None else chosen_benchmark(problem, mode, benchmark),
    )
    key = secrets.token_bytes(32)
    paths = AttemptPaths(root=work, name=name)
    limit_s = timeout_s or time_limit_s(problem, mode)
    try:
        work.mkdir(parents=True, exist_ok=True)
        paths.create(manifest=manifest_text(manifest), key=key)
    except OSError as error:
        sentence, fix = said(error, work)
        raise Misconfigured(sentence, fix=fix) from None
    try:
        if image is not None:
            command = image.command(paths, eval_dir, limit_s, profiler)
        else:
            command = _by_python(python or sys.executable, eval_dir, paths)
        found = _judged(paths, manifest, key, command, limit_s, on_heartbeat, profiler)
        names = [one.name for one in found.report.artifacts]
        return replace(found, artifacts=read_artifacts(paths.artifacts, names, ARTIFACT_CAP))
    finally:
        remove_tree.remove(paths.dir)
        if image is not None:
            image.clear()


def as_try_json(trial: Trial) -> dict[str, Any]:
    """What `kbslurm try --json` prints: one object."""
    report, means = trial.report, trial.report.isolation.means
    return {
        "verdict": report.verdict,
        "reason": report.reason,
        "score_s": report.score_s,
        "interval_s": report.interval_s,
        "paired": report.paired,
        "mode": report.mode,
        "tests": [asdict(test) for test in report.tests],
        "benchmarks": [asdict(benchmark) for benchmark in report.benchmarks],
        "phases": [asdict(phase) for phase in report.phases],
        "isolation": asdict(report.isolation),
        "flags": list(report.flags),
        "profile": profiles.placed(report.profile, means),
        "digests": [{**asdict(one), "trouble": profiles.placed(one.trouble, means)} for one in report.digests],
        "took_s": round(trial.took_s, 3),
        "log": report.log if len(report.log) <= SHOWN_LOG_CAP else report.log[:SHOWN_LOG_CAP] + "\n[… cut]",
    }


def exit_code(verdict: VerdictName) -> int:
    """0 passed, 3 rejected, 6 infrastructure."""
    match verdict:
        case "passed":
            return EXIT_OK
        case "infrastructure":
            return EXIT_INFRASTRUCTURE
        case "wrong" | "error" | "timeout" | "memory" | "violation":
            return EXIT_REJECTED


def _by_python(python: str, eval_dir: Path, paths: AttemptPaths) -> list[str]:
    return [python, "-I", str(eval_dir), str(paths.manifest), "--key", str(paths.key), "--out", str(paths.out)]


def _judged(
    paths: AttemptPaths,
    manifest: Manifest,
    key: bytes,
    command: Sequence[str],
    limit_s: float,
    on_heartbeat: Heartbeat | None,
    profiler: str | None,
) -> Trial:
    started_at_ns, started_at = time.time_ns(), time.monotonic()
    code = _ran(paths, command, limit_s, on_heartbeat, profiler)
    took_s = time.monotonic() - started_at
    said_by_it = (read_capped(paths.log, 1 << 30) or b"")[-SHOWN_LOG_CAP:].decode(errors="replace")

    def without_report(verdict: VerdictName, reason: str) -> Trial:
        report = _report_of_ours(manifest, verdict, reason, said_by_it, started_at_ns)
        return Trial(report=report, took_s=took_s)

    sealed = read_capped(paths.report, 2 * REPORT_CAP)
    if sealed is None:
        if code == trial_keeper.OVER_LIMIT:
            return without_report("timeout", f"it was killed at the time limit of {limit_s:g} s")
        left = in_image.left_by(paths)
        status, checking = (left.status, left.checking) if left else (code, read_capped(paths.checking, 2) == b"1\n")
        ending = blamed(Ending.NO_REPORT, status, checking=checking)
        if ending in OWN_FAULT:
            return without_report(OWN_FAULT[ending], CHECK_DIED)
        why = (left and left.why) or f"the harness ended with exit code {code} and left no report"
        return without_report("infrastructure", why)
    try:
        report = unseal(sealed, key)
    except WireError as error:
        return without_report("infrastructure", f"the harness's report can't be trusted: {error}")
    if (report.token, report.attempt, report.nonce, report.mode, report.problem_digest) != (
        *(manifest.token, manifest.attempt, manifest.nonce, manifest.mode, manifest.problem_digest),
    ):
        return without_report("infrastructure", "the harness's report is about another run")
    return Trial(report=report, took_s=took_s)


def _ran(
    paths: AttemptPaths,
    command: Sequence[str],
    limit_s: float,
    on_heartbeat: Heartbeat | None,
    profiler: str | None,
) -> int:
    keeper = [sys.executable, "-I", trial_keeper.__file__, str(limit_s), *command]
    put(paths.log, b"", 0o600)
    with paths.log.open("wb") as log:
        process = subprocess.Popen(
            keeper,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=paths.scratch,
            env={**environment(paths.scratch), **({"KBSLURM_PROFILER": profiler} if profiler else {})},
            start_new_session=True,  # we pass on a ^C from the terminal by closing stdin
        )
    seen = b""
    try:
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.wait(LOOK_EVERY_S)
            if on_heartbeat and (beat := read_capped(paths.heartbeat, HEARTBEAT_CAP)) and beat != seen:
                seen = beat
                with contextlib.suppress(ValueError):
                    if isinstance(told := json.loads(beat), dict):
                        on_heartbeat(told)
    finally:
        if process.stdin:
            process.stdin.close()
        try:
            process.wait(ENDING_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def environment(scratch: Path) -> dict[str, str]:
    kept = {name: value for name in KEPT_VARIABLES if (value := os.environ.get(name))}
    return {**kept, "HOME": str(scratch), "TMPDIR": str(scratch)}


def _report_of_ours(manifest: Manifest, verdict: VerdictName, reason: str, log: str, started_at_ns: int) -> Report:
    return Report(
        version=WIRE_VERSION,
        token=manifest.token,
        attempt=manifest.attempt,
        nonce=manifest.nonce,
        mode=manifest.mode,
        problem_digest=manifest.problem_digest,
        harness_digest="",
        verdict=verdict,
        reason=reason,
        score_s=None,
        interval_s=None,
        tests=[],
        benchmarks=[],
        phases=[],
        isolation=Isolation(level=0, means="unknown: there is no report"),
        started_at_ns=started_at_ns,
        ended_at_ns=max(started_at_ns, time.time_ns()),
        log=log,
    )
