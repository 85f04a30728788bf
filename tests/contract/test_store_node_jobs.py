"""The right to start a job, as one row: claimed once, by one process, and never after its attempt was given up."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from contextlib import closing

import pytest

from kbslurm.domain.node_jobs import LEASE_MARGIN_S
from kbslurm.domain.run import Ending, JobName, new_job_name
from kbslurm.errors import NotFound, Refused
from kbslurm.store.node_jobs import NodeJobs
from kbslurm.store.postgres import PostgresStore
from tests.contract.store_rig import Rig, at_once

POOL = "pool"
NUMBERS = itertools.count(1)


@pytest.fixture
def rig(database_url: str) -> Iterator[Rig]:
    with closing(PostgresStore(database_url)) as store:
        yield Rig.on(store)


def offered(rig: Rig) -> tuple[NodeJobs, JobName]:
    """A job of an open attempt."""
    rig.accept()
    attempt = rig.claimed()
    jobs = rig.store.node_jobs
    assert jobs.offer(attempt.name, POOL, b"sealed", 120.0, rig.now).can_start
    return jobs, attempt.name


def claimed(rig: Rig, jobs: NodeJobs, name: JobName, who: str, place: str = POOL) -> bytes | None:
    try:
        return jobs.claim(name, place, who=who, node=f"node-{who}", number=next(NUMBERS), now=rig.now)
    except Refused:
        return None


def test_of_many_that_claim_at_once_one_gets_the_order_and_keeps_it(rig: Rig) -> None:
    jobs, name = offered(rig)
    got = Counter[str]()

    def ask(who: str) -> None:
        got[who] += claimed(rig, jobs, name, who) == b"sealed"

    at_once([lambda who=who: ask(who) for who in "abcdefgh"])  # type: ignore[misc]
    assert sum(got.values()) == 1
    (winner,) = +got
    assert claimed(rig, jobs, name, winner) == b"sealed", "its answer may have been lost"
    assert [who for who in "abcdefgh" if claimed(rig, jobs, name, who)] == [winner]
    assert jobs.look([name])[name].node == f"node-{winner}"


def test_nothing_is_claimed_that_was_never_offered_or_at_another_place(rig: Rig) -> None:
    jobs, name = offered(rig)
    assert claimed(rig, jobs, new_job_name(), "a") is None
    assert claimed(rig, jobs, name, "a", place="lake") is None
    assert jobs.look([name])[name].can_start


def test_an_attempt_that_was_given_up_cancelled_or_superseded_starts_nothing(rig: Rig) -> None:
    jobs, name = offered(rig)
    (attempt,) = rig.store.attempts.open()
    rig.give_up(attempt, Ending.VANISHED)
    assert claimed(rig, jobs, name, "a") is None
    second = rig.claimed()
    jobs.offer(second.name, POOL, b"again", 120.0, rig.now)
    assert claimed(rig, jobs, name, "a") is None, "the first one stays fenced"
    rig.store.submissions.cancel(rig.store.attempts.work(second.id).submission_id, None, rig.now)
    assert claimed(rig, jobs, second.name, "a") is None


def test_a_claimant_of_an_attempt_that_was_given_up_is_told_to_end(rig: Rig) -> None:
    jobs, name = offered(rig)
    assert claimed(rig, jobs, name, "a")
    assert jobs.hear(name, POOL, who="a", number=next(NUMBERS), progress={"phase": "test"}, now=rig.later(10))
    assert jobs.look([name])[name].progress == {"phase": "test"}
    assert not jobs.hear(name, POOL, who="b", number=next(NUMBERS), progress={}, now=rig.now), "it isn't theirs"
    (attempt,) = rig.store.attempts.open()
    rig.give_up(attempt)
    assert not jobs.hear(name, POOL, who="a", number=next(NUMBERS), progress={}, now=rig.later(10))


@pytest.mark.parametrize("unclaimed", [True, False])
def test_forbidding_and_claiming_exclude_each_other(rig: Rig, unclaimed: bool) -> None:
    jobs, name = offered(rig)
    order = list[bytes | None]()
    at_once(
        [
            lambda: order.append(claimed(rig, jobs, name, "a")),
            lambda: jobs.forbid(name, POOL, rig.now, unclaimed=unclaimed),
        ]
    )
    row = jobs.look([name])[name]
    assert (row.claimed_at is not None) == (order == [b"sealed"])
    if unclaimed:
        assert (row.claimed_at is None) != (row.forbidden_at is None)
    else:
        assert row.forbidden_at is not None
        assert not jobs.hear(name, POOL, who="a", number=next(NUMBERS), progress={}, now=rig.now)


def test_what_was_forbidden_before_it_was_offered_stays_so(rig: Rig) -> None:
    jobs, name = rig.store.node_jobs, new_job_name()
    jobs.forbid(name, POOL, rig.now)
    assert not jobs.offer(name, POOL, b"sealed", 120.0, rig.now).can_start
    assert claimed(rig, jobs, name, "a") is None


def test_the_first_result_counts_and_its_order_is_forgotten(rig: Rig) -> None:
    jobs, name = offered(rig)
    assert claimed(rig, jobs, name, "a")
    with pytest.raises(NotFound):
        jobs.deliver(name, POOL, who="b", result=b"forged", now=rig.now)
    assert jobs.result(name) is None
    for result in (b"first", b"second"):
        jobs.deliver(name, POOL, who="a", result=result, now=rig.now)
    assert jobs.result(name) == b"first" and jobs.look([name])[name].reported
    assert claimed(rig, jobs, name, "a") is None
    assert rig.rows(f"SELECT sealed_order FROM node_job WHERE name = '{name}'") == [{"sealed_order": None}]


def test_silence_is_proof_only_after_the_lease_and_a_margin(rig: Rig) -> None:
    jobs, name = offered(rig)
    assert not jobs.look([name])[name].is_silent(rig.later(10_000)), "nobody has claimed it"
    assert claimed(rig, jobs, name, "a")
    row = jobs.look([name])[name]
    assert not row.is_silent(rig.later(120 + LEASE_MARGIN_S))
    assert row.is_silent(rig.later(1))


def test_old_ones_are_removed_but_not_what_is_open(rig: Rig) -> None:
    jobs, name = offered(rig)
    other = new_job_name()
    jobs.offer(other, POOL, b"sealed", 120.0, rig.now)
    jobs.offer(new_job_name(), "lake", b"sealed", 120.0, rig.now)
    assert jobs.prune(POOL, rig.now, keep=[]) == 0
    assert jobs.prune(POOL, rig.later(1), keep=[name]) == 1
    assert set(jobs.look([name, other])) == {name}


def test_an_order_that_is_sent_again_is_the_newest_until_it_is_claimed(rig: Rig) -> None:
    jobs, name = offered(rig)
    assert jobs.offer(name, POOL, b"newer", 60.0, rig.now).lease_s == 60.0
    assert claimed(rig, jobs, name, "a") == b"newer"
    jobs.offer(name, POOL, b"newest", 60.0, rig.now)
    assert claimed(rig, jobs, name, "a") == b"newer"


def test_a_call_that_somebody_repeats_is_no_sign_of_life(rig: Rig) -> None:
    jobs, name = offered(rig)
    told = {"who": "a", "node": "n", "number": 1}
    assert jobs.claim(name, POOL, **told, now=rig.now)  # type: ignore[arg-type]
    assert jobs.hear(name, POOL, who="a", number=2, progress={"phase": "test"}, now=rig.later(10))
    heard_at = jobs.look([name])[name].heard_at
    assert heard_at == rig.now
    assert jobs.hear(name, POOL, who="a", number=2, progress={"phase": "other"}, now=rig.later(200))
    assert jobs.claim(name, POOL, **told, now=rig.now)  # type: ignore[arg-type]
    row = jobs.look([name])[name]
    assert row.heard_at == heard_at and row.progress == {"phase": "test"} and row.is_silent(rig.now)
    assert jobs.hear(name, POOL, who="a", number=3, progress={}, now=rig.now)
    assert not jobs.look([name])[name].is_silent(rig.now)


def test_a_process_that_asks_again_for_its_order_is_alive(rig: Rig) -> None:
    """The answer was lost; its lease begins with the last time that it asked."""
    jobs, name = offered(rig)
    assert claimed(rig, jobs, name, "a")
    rig.later(119)
    assert claimed(rig, jobs, name, "a")
    assert jobs.look([name])[name].heard_at == rig.now
