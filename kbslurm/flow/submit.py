"""Room 1, submit: what a person did becomes rows, or nothing does. Next room: `queue`."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import datetime

from kbslurm.domain import contest
from kbslurm.domain.intake import Offer, check_may_submit, check_mode, chosen_gpus, chosen_place
from kbslurm.domain.manifest import time_limit_s
from kbslurm.domain.run import PersonId
from kbslurm.domain.source import checked_source, directives, settled_board, settled_gpus
from kbslurm.observe.crash_points import crash_point
from kbslurm.ports import NewSubmission, Receipt, Store
from kbslurm_eval.wire import Mode


def accept(
    store: Store,
    person: PersonId,
    board: str | None,
    file_name: str,
    text: bytes | str,
    mode: Mode,
    gpus: Sequence[str],
    now: datetime,
    *,
    via: str = "cli",
    on: str | None = None,
    offers: Sequence[Offer] = (),
) -> Receipt:
    """Take a submission: after the receipt it will not be lost. Every refusal is a KbslurmError and stores nothing.

    `board` and `gpus` are what was asked for beside the file; its `#!POPCORN` lines say the rest. `on`: the one of
    `offers` where a try is to run, which waits for that place however long it takes.
    """
    source = checked_source(file_name, text.encode() if isinstance(text, str) else text)
    said = directives(source.text)
    intake = store.intake(person, contest.board_name(settled_board(said, board)), mode)
    check_may_submit(intake, now)
    check_mode(intake, mode, source)
    wanted = chosen_gpus(intake, settled_gpus(said, gpus))
    new = NewSubmission(
        person_id=person,
        board_id=intake.board_id,
        problem_version_id=intake.problem_version_id,
        mode=mode,
        file_name=source.file_name,
        source=source.text,
        source_sha256=source.sha256,
        gpus=wanted,
        secret_seed=secrets.token_hex(16),
        cost_s=time_limit_s(intake.problem.limits, mode),
        by_staff=intake.by_staff,
        via=via,
        place=None if on is None else chosen_place(intake, mode, wanted, on, offers),
        basis=intake.basis,
    )
    crash_point("accept.before_commit")
    receipt = store.accept(new, now)
    crash_point("accept.after_commit")
    return receipt
