"""Slots and the queue's order: no slot idles while a run that fits it waits, and nobody starves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from kbslurm.domain.fairness import fair_at
from kbslurm.domain.run import AttemptId, AttemptState, JobName, OpenAttempt, RunId, Slot
from kbslurm.flow.queue import free_slots, taken

START = datetime(2026, 5, 1, tzinfo=UTC)
GPUS = ("A100", "H100")
BACKENDS = ("cluster", "local")


@dataclass
class Waiting:
    person: int
    gpu: str
    fair_at: datetime
    by_staff: bool = False


def attempt(number: int, backend: str, gpu: str) -> OpenAttempt:
    return OpenAttempt(
        id=AttemptId(number),
        run_id=RunId(number),
        number=1,
        name=JobName(f"kb-{number}"),
        backend=backend,
        gpu=gpu,
        state=AttemptState.RUNNING,
        handle=None,
        opened_at=START,
        deadline_at=None,
    )


def test_a_run_on_several_gpus_takes_as_many_slots_and_never_waits_for_them_all() -> None:
    four = replace(attempt(1, "cluster", "H100"), gpus=4)
    one = attempt(2, "cluster", "H100")
    capacity = {"cluster": {"H100": 6}}
    assert [slot.free for slot in free_slots(capacity, [four, one])] == [1]
    left = taken(free_slots(capacity, [one, one]), four)
    assert left == []
    assert [slot.free for slot in free_slots(capacity, [four, four])] == []


def claim_like_the_store(queue: list[Waiting], slots: Sequence[Slot]) -> tuple[Waiting, Slot] | None:
    """The rule that the store's SQL states: smallest virtual time first, among those that fit a slot."""
    fitting = [(w.fair_at, n) for n, w in enumerate(queue) if any(fits(w, slot) for slot in slots)]
    if not fitting:
        return None
    run = queue.pop(min(fitting)[1])
    return run, next(slot for slot in slots if fits(run, slot))


def fits(run: Waiting, slot: Slot) -> bool:
    return slot.gpu == run.gpu and (run.by_staff or not slot.staff_only)


capacities = st.dictionaries(
    st.sampled_from(BACKENDS), st.dictionaries(st.sampled_from(GPUS), st.integers(0, 4)), max_size=2
)
queues = st.lists(
    st.builds(
        Waiting,
        person=st.integers(1, 4),
        gpu=st.sampled_from(GPUS),
        fair_at=st.integers(0, 1000).map(lambda s: START + timedelta(seconds=s)),
        by_staff=st.booleans(),
    ),
    max_size=20,
)


@given(capacity=capacities, queue=queues, already=st.lists(st.tuples(st.sampled_from(BACKENDS), st.sampled_from(GPUS))))
def test_no_slot_idles_while_an_eligible_run_waits(
    capacity: dict[str, dict[str, int]], queue: list[Waiting], already: list[tuple[str, str]]
) -> None:
    running = [attempt(n, backend, gpu) for n, (backend, gpu) in enumerate(already)]
    slots = free_slots(capacity, running, staff_only=["cluster"])
    while (found := claim_like_the_store(queue, slots)) is not None:
        run, slot = found
        assert fits(run, slot)
        new = attempt(1000 + len(running), slot.backend, slot.gpu)
        slots, running = taken(slots, new), [*running, new]
    assert slots == free_slots(capacity, running, staff_only=["cluster"])
    assert not [run for run in queue if any(fits(run, slot) for slot in slots)]
    opened = Counter((a.backend, a.gpu) for a in running[len(already) :])
    for (backend, gpu), count in opened.items():
        assert count <= max(0, capacity[backend][gpu] - already.count((backend, gpu)))


@given(burst=st.integers(1, 200), after_s=st.integers(0, 600))
def test_a_burst_by_one_person_never_starves_another(burst: int, after_s: int) -> None:
    cost_s, last = 60.0, None
    queue = []
    for _ in range(burst):
        last = fair_at(START, last, cost_s=cost_s)
        queue.append(Waiting(1, "A100", last))
    moment = START + timedelta(seconds=after_s)
    queue.append(Waiting(2, "A100", fair_at(moment, None, cost_s=cost_s)))
    ahead = sum(run.person == 1 and run.fair_at <= moment for run in queue)
    order = sorted(range(len(queue)), key=lambda n: (queue[n].fair_at, n))
    assert order.index(burst) == ahead <= after_s / cost_s + 1


def test_a_slot_says_how_wide_a_run_may_be_there_also_when_another_has_taken_its_part() -> None:
    slots = free_slots({"a": {"H100": 4}, "b": {"H100": 4}}, [], widest={"a": {"H100": 2}})
    assert [slot.most for slot in slots] == [2, None]
    assert [(slot.free, slot.most) for slot in taken(slots, attempt(1, "a", "H100"))] == [(3, 2), (4, None)]


def test_earlier_backends_are_preferred_and_full_ones_left_out() -> None:
    slots = free_slots({"cluster": {"A100": 1}, "local": {"A100": 2}}, [attempt(1, "cluster", "A100")])
    assert slots == [Slot(backend="local", gpu="A100", free=2)]
    assert [slot.backend for slot in free_slots({"b": {"A100": 1}, "a": {"A100": 1}}, [])] == ["b", "a"]
