"""Step 1, submit: a submission is stored completely or not at all. Next step: `queue`."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from kbslurm.domain import contest
from kbslurm.domain.intake import (
    Offer,
    ServiceToken,
    check_may_submit,
    check_mode,
    check_service,
    checked_key,
    chosen_benchmark,
    chosen_gpus,
    chosen_place,
    is_practice,
)
from kbslurm.domain.manifest import time_limit_s
from kbslurm.domain.run import PersonId
from kbslurm.domain.source import check_beside, checked_source, directives, settled_board, settled_gpus
from kbslurm.observe.crash_points import crash_point
from kbslurm.ports import Intake, NewSubmission, Receipt
from kbslurm_eval.shared.wire import Mode


def accept(
    store: Intake,
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
    benchmark: int | None = None,
    service: ServiceToken | None = None,
    key: str | None = None,
) -> Receipt:
    """Accept a submission: once it returns, the submission can't be lost. Every refusal is a KbslurmError and stores
    nothing.

    `board` and `gpus` are what the caller chose; the file's `#!POPCORN` lines give the rest. `on`: the one of `offers`
    where a test run goes; it waits for that place however long it takes. `benchmark`: the only one to profile.
    `service`: the token of a program's by which it comes. `key`: chosen by the sender; a submission that the person has
    already sent with it isn't stored again, whatever has become of the board since.
    """
    source = checked_source(file_name, text.encode() if isinstance(text, str) else text)
    said = directives(source.text)
    chosen, asked = contest.board_name(settled_board(said, board)), settled_gpus(said, gpus)
    if key is not None:
        known = store.keyed(person, checked_key(key), board=chosen, gpus=asked, mode=mode, source_sha256=source.sha256)
        if known is not None:
            return known
    if service is not None:
        check_service(mode)
    admission = store.admission(person, chosen, mode)
    if service is not None:
        admission = replace(admission, by_staff=False)  # a program has nobody's further rights
    check_may_submit(admission, now)
    check_mode(admission, mode, source)
    check_beside(source, admission.problem.runner_files)
    wanted = chosen_gpus(admission, asked)
    new = NewSubmission(
        person_id=person,
        board_id=admission.board_id,
        problem_version_id=admission.problem_version_id,
        mode=mode,
        file_name=source.file_name,
        source=source.text,
        source_sha256=source.sha256,
        gpus=wanted,
        secret_seed=secrets.token_hex(16),
        cost_s=time_limit_s(admission.problem, mode),
        by_staff=admission.by_staff,
        via=via,
        place=None if on is None else chosen_place(admission, mode, wanted, on, offers),
        benchmark=None if benchmark is None else chosen_benchmark(admission.problem, mode, benchmark),
        practice=is_practice(admission, now),
        service=service,
        key=key,
        basis=admission.basis,
    )
    crash_point("accept.before_commit")
    receipt = store.accept(new, now)
    crash_point("accept.after_commit")
    return receipt
