"""A competition with people, records and failures at fixed moments, for looking at pages."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from kbslurm.domain.access import Role
from kbslurm.domain.run import SubmissionId
from kbslurm.flow.queue import claim, free_slots
from kbslurm.flow.score import score
from kbslurm.flow.submit import accept
from kbslurm.store.postgres import PostgresStore
from kbslurm_eval.shared.wire import PhaseResult
from tests.flow.puppet import Puppet, sealed_report
from tests.popcorn.served_api import GOOD

NAMES = (
    "ada", "Grace Hopper", "katherine.johnson", "Барбара Лисков", "محمد الخوارزمي", "בת-שבע", "陈景润", "linus",
    "radia", "a-name-that-goes-on-and-on-without-any-space-for-as-long-as-may", "noor", "zoë",
)  # fmt: skip


def judged(
    store: PostgresStore, by: str, at: datetime, score_s: float | None, *, board: str = "transpose", gpu: str = "H100",
    spread: float = 0.01, file_name: str = "kernel.py", source: bytes | str = GOOD, role: Role = "participant",
    **told: Any,
) -> SubmissionId:  # fmt: skip
    """A ranked submission of somebody's with this score, or one with the verdict in `told`."""
    person = store.people.ensure(by, role)
    number = accept(store.intake, person.id, board, file_name, source, "leaderboard", [gpu], at).submission_id
    attempt = claim(store.queue, free_slots({"puppet": Puppet(slots={gpu: 9}).capacity()}, store.attempts.open()), at)
    assert attempt is not None
    if score_s is not None:
        told |= {"score_s": score_s, "interval_s": [score_s * (1 - spread), score_s * (1 + spread)]}
    if told.get("verdict", "passed") != "passed":
        told.setdefault("phases", [PhaseResult(name="test", passed=False, started_at_ns=1, ended_at_ns=2)])
    score(store, attempt, sealed_report(store.attempts.work(attempt.id), **told), at + timedelta(seconds=40))
    return number


def played(store: PostgresStore, start: datetime, *, names: Sequence[str] = NAMES, gpu: str = "H100") -> None:
    """Each of these people submits twice in as many hours, most of them faster the second time; every third has a
    wide interval that overlaps its neighbour's."""
    for n, name in enumerate(names):
        first, better = 4e-3 * 1.11**n, 3.1e-3 * 1.06**n
        spread = 0.05 if n % 3 == 1 else 0.008
        judged(store, name, start + timedelta(hours=n), first, gpu=gpu, spread=spread)
        judged(store, name, start + timedelta(hours=30 + 2 * n), better, gpu=gpu, spread=spread)
