"""Step 3, render: a run's new attempt becomes text and limits. Pure. Next step: `launch`."""

from __future__ import annotations

from kbslurm.domain.manifest import manifest_for, manifest_text, time_limit_s
from kbslurm.domain.run import Work
from kbslurm.flow.place import Place
from kbslurm.ports import JobSpec

REFERENCE_BYTES = 1 << 30  # of a reference in processes of its own: one in C++; one for each of a problem's ranks


def job(work: Work, place: Place) -> JobSpec:
    """The job for this attempt at this place. The same work and place give the same text, byte for byte.

    Neither text contains the key that seals the report; the manifest names no person and no board.
    """
    attempt = work.attempt
    directory = place.root / attempt.name if place.root is not None else None
    limit_s = time_limit_s(work.problem, work.mode)
    ranks = work.problem.world_size
    is_apart = ranks > 1 or bool(work.problem.build.adapter)
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
        memory_bytes=ranks * (work.problem.memory_bytes + (REFERENCE_BYTES if is_apart else 0)),
        directory=directory,
        script=place.script(work, directory, limit_s) if place.script and directory else None,
        keeper=attempt.keeper,
    )
