"""Turns a problem and a source into the manifest for the harness. Pure; shared by `render` and `try`."""

from __future__ import annotations

from dataclasses import replace

from kbslurm.domain.hidden_comment import without_hidden_comment
from kbslurm.domain.problem import Problem
from kbslurm.errors import Invalid
from kbslurm_eval.shared import time_limits
from kbslurm_eval.shared.wire import MANIFEST_CAP, WIRE_VERSION, Build, Manifest, Mode, dumps

ENDING_S = 30.0


def manifest_for(
    problem: Problem,
    *,
    token: str,
    attempt: int,
    nonce: str,
    mode: Mode,
    gpu: str,
    source: str,
    secret_seed: str,
    problem_digest: str | None = None,
    log_bytes: int | None = None,
    profile_benchmark: int | None = None,
) -> Manifest:
    """The manifest of one attempt. It names no person and no board, and doesn't contain the key that seals its report.

    `problem_digest` is the recorded digest of the problem version; without it the problem's own is used.
    """
    digest, problem = problem_digest or problem.digest, problem.for_gpu(gpu)
    if mode not in problem.modes:
        raise Invalid(f"problem {problem.name} has no {mode} mode", hint=f"It has: {', '.join(problem.modes)}.")
    limits = replace(
        problem.limits,
        total_s=job_s(problem, mode),
        log_bytes=problem.limits.log_bytes if log_bytes is None else log_bytes,
    )
    return Manifest(
        version=WIRE_VERSION,
        token=token,
        attempt=attempt,
        nonce=nonce,
        mode=mode,
        problem=problem.name,
        problem_digest=digest,
        lang=problem.lang,
        gpu=gpu,
        style=problem.style,
        files={
            name: without_hidden_comment(text) if name in problem.runner_files else text
            for name, text in problem.files.items()
        },
        runner_files=list(problem.runner_files),
        reference=problem.reference,
        entry=problem.entry,
        source=source,
        tests=list(problem.tests),
        benchmarks=list(problem.benchmarks),
        hidden=list(problem.hidden),
        seed=problem.seed,
        profile_benchmark=profile_benchmark,
        secret_seed=secret_seed,
        ranking_by=problem.ranking_by,
        limits=limits,
        budget=problem.budget,
        build=_build(problem),
        config={**problem.config, **({"cold": True} if problem.is_cold else {})},
    )


def manifest_text(manifest: Manifest) -> str:
    """The manifest as text, refused if it is too large for the harness."""
    text = dumps(manifest)
    if len(text) > MANIFEST_CAP:
        raise Invalid(
            f"problem {manifest.problem} and its submission have {len(text)} bytes, over the limit of {MANIFEST_CAP}"
        )
    return text


def _build(problem: Problem) -> Build:
    """Whoever may take so long for the tests may take as long for building."""
    return replace(problem.build, limit_s=max(problem.build.limit_s, problem.limits.test_s))


def job_s(problem: Problem, mode: Mode) -> float:
    """How long the harness may take in total for this mode: the sum of its phases, at most the problem's `total_s`, and
    what building and starting may take beside them."""
    phases_s = min(problem.limits.total_s, time_limits.phases_s(problem.limits, mode))
    return phases_s + time_limits.starting_s(mode, problem.lang, _build(problem), problem.config)


def time_limit_s(problem: Problem, mode: Mode) -> float:
    """How long a whole job of this mode may take; a backend enforces this from outside if the harness doesn't end."""
    return job_s(problem, mode) + ENDING_S
