"""Step 2, queue: a free slot and the next queued run (in fair order) become an attempt. Next step: `render`.

The queue is `run.state = 'queued'`, ordered by the virtual time stamped by `accept`; nothing is kept in memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from kbslurm.domain.keepers import Keeper
from kbslurm.domain.placement import Rules
from kbslurm.domain.run import OpenAttempt, Slot
from kbslurm.observe.crash_points import crash_point
from kbslurm.ports import Queue


def claim(store: Queue, slots: Sequence[Slot], now: datetime, *, rules: Rules | None = None) -> OpenAttempt | None:
    """Give the next queued run (in fair order) that fits a slot a new attempt; None if none fits.

    The attempt's number is the fence for every later write; its row, with the job's name, is committed before any
    backend is called.
    """
    if not slots:
        return None
    crash_point("queue.before_claim")
    attempt = store.claim(slots, now, rules=rules)
    crash_point("queue.after_claim")
    return attempt


def free_slots(
    capacity: Mapping[str, Mapping[str, int]],
    open_attempts: Iterable[OpenAttempt],
    *,
    staff_only: Iterable[str] = (),
    widest: Mapping[str, Mapping[str, int]] | None = None,
    keepers: Iterable[Keeper] = (),
) -> list[Slot]:
    """The remaining capacity by backend and GPU type, in the order of `capacity`: earlier backends are preferred.

    An attempt on several GPUs takes as many slots, but it may start with a single free one: waiting until enough are
    free would starve it behind small runs, and a slot isn't a GPU. `widest` says, by backend and GPU type, how many
    GPUs one run may have at all. Each of the open `keepers` takes a slot, whether a run is in it or not.
    """
    used: Counter[tuple[str, str]] = Counter()
    held = {one.id: one for one in keepers}
    for attempt in open_attempts:
        if attempt.keeper is None or attempt.keeper.id not in held:
            used[attempt.backend, attempt.gpu] += attempt.gpus
    for one in held.values():
        used[one.backend, one.gpu] += 1
    closed, bounds = frozenset(staff_only), widest or {}
    return [
        Slot(
            backend=backend,
            gpu=gpu,
            free=free,
            staff_only=backend in closed,
            most=bounds.get(backend, {}).get(gpu),
        )
        for backend, gpus in capacity.items()
        for gpu, most in gpus.items()
        if (free := most - used[backend, gpu]) > 0
    ]


def taken(slots: Sequence[Slot], attempt: OpenAttempt) -> list[Slot]:
    """The slots that are left after this attempt took its own."""
    left = []
    for slot in slots:
        if slot.alone and slot.backend == attempt.backend:
            continue
        if attempt.keeper is not None:
            if slot.keeper != attempt.keeper.id:
                here = (slot.backend, slot.gpu) == (attempt.backend, attempt.gpu)
                left.append(replace(slot, skip=max(0, slot.skip - 1)) if here else slot)
            continue
        if slot.keeper is not None:
            left.append(slot)
            continue
        mine = slot.backend == attempt.backend and slot.gpu == attempt.gpu
        free = slot.free - attempt.gpus if mine else slot.free
        if free > 0:
            left.append(replace(slot, free=free))
    return left
