"""Step 3, render: a run's new attempt becomes text and limits. Pure. Next step: `launch`."""

from __future__ import annotations

from kbslurm.domain.manifest import manifest_for, manifest_text, time_limit_s
from kbslurm.domain.run import Work
from kbslurm.flow.place import Place
from kbslurm.ports import JobSpec

REFERENCE_BYTES = 1 << 30  # if a problem has ranks, its reference has as many, each in its own process


def job(work: Work, place: Place) -> JobSpec:
    """The job for this attempt at this place. The same work and place give the same text, byte for byte.

    Neither text contains the key that seals the report; the manifest names no person and no board.
    """
    attempt, limits = work.attempt, work.problem.limits
    directory = place.root / attempt.name if place.root is not None else None
    limit_s = time_limit_s(work.problem, work.mode)
    ranks = work.problem.world_size
    memory_bytes = limits.memory_bytes if ranks == 1 else ranks * (limits.memory_bytes + REFERENCE_BYTES)
    return JobSpec(
        name=attempt.name,
        gpu=attempt.gpu,
        manifest=manifest_text(
            manifest_for(
                work.problem,
                token=attempt.name,
                attempt=attempt.number,
                nonce=work.nonce,
                mode=work.mode,
                gpu=attempt.gpu,
                source=work.source,
                secret_seed=work.secret_seed,
                problem_digest=work.problem_digest,
                profile_benchmark=work.benchmark,
            )
        ),
        key=work.key,
        time_limit_s=limit_s,
        memory_bytes=memory_bytes,
        directory=directory,
        script=place.script(work, directory, limit_s) if place.script and directory else None,
        keeper=attempt.keeper,
    )
