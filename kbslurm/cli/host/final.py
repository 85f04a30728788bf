"""`kbslurm final`: the leaders of a board head to head on one node in one job; it counts once a host applies it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from kbslurm.cli.arguments import BoardName, Json
from kbslurm.cli.context import opened_store, own_name
from kbslurm.cli.lookup import board_named
from kbslurm.cli.output import printing
from kbslurm.domain.run import SubmissionId
from kbslurm.errors import EXIT_OK, Invalid

if TYPE_CHECKING:
    from kbslurm.store.finals import Final
    from kbslurm.store.views import Board


def final(
    name: BoardName,
    top: Annotated[int | None, typer.Option("--top", min=2, help="How many take part (default: 5).")] = None,
    gpu: Annotated[str | None, typer.Option("--gpu", "-g", help="The GPU type, if the board has several.")] = None,
    apply: Annotated[bool, typer.Option("--apply", help="Make its scores count for those who took part.")] = False,
    forget: Annotated[bool, typer.Option("--forget", help="Discard it, killing its job if it is running.")] = False,
    as_json: Json = False,
) -> int:
    """Measure a board's leaders against each other in one job, or show how that went. Nothing counts until --apply."""
    from datetime import UTC, datetime

    if apply and forget:
        raise Invalid("--apply and --forget exclude each other", hint="Pass one of them.")
    if top is not None and (apply or forget):
        raise Invalid("a final is applied or discarded as a whole", hint="Leave --top out.")
    with opened_store() as store:
        board, by = board_named(store, name), own_name()
        kind = _gpu(board, gpu)
        if apply:
            return _told(store.finals.apply(board.name, kind, by=by), "applied", as_json)
        if forget:
            submission = SubmissionId(store.finals.submission(board.name, kind))
            found = store.finals.forget(board.name, kind, by=by)
            store.submissions.cancel(submission, None, datetime.now(UTC))
            return _told(found, "forgotten", as_json)
        known = store.finals.open(board.name, kind)
        if known is not None and top is not None:
            raise Invalid(
                f"a final of {board.name} on {kind} is open already",
                hint="Leave --top out to see it; --apply or --forget closes it.",
            )
        return _told(known or store.finals.order(board.name, kind, top or 5, by=by), "open", as_json)


def _gpu(board: Board, asked: str | None) -> str:
    from kbslurm.domain import contest

    if asked is not None:
        return contest.known_gpu(asked, board.gpus)
    if len(board.gpus) != 1:
        raise Invalid(
            f"board {board.name} has {len(board.gpus)} GPU types", hint=f"Pick one, for example --gpu {board.gpus[0]}."
        )
    return board.gpus[0]


def _told(found: Final, state: str, as_json: bool) -> int:
    if as_json:
        printing.as_json(_json(found, state))
        return EXIT_OK
    rows = [
        (
            str(rival.place),
            printing.escape(rival.person),
            f"#{rival.submission_id}",
            printing.score(rival.before_s),
            _now(found, n),
        )
        for n, rival in enumerate(found.rivals)
    ]
    title = f"{found.board} · {found.gpu}: final, {state}"
    printing.table(("place", "person", "submission", "before", "in the final"), rows, title=title)
    for gap in found.gaps:
        ahead, behind = found.rivals[gap.ahead], found.rivals[gap.behind]
        separation = "a clear difference" if gap.separated else "within measurement error"
        printing.say(
            f"{behind.person} takes {gap.ratio:.4f} times as long as {ahead.person}"
            f" ({gap.low:.4f} to {gap.high:.4f}): {separation}"
        )
    if state == "open":
        printing.say(_next(found))
    return EXIT_OK


def _now(found: Final, number: int) -> str:
    outcome = found.rivals[number].outcome
    if outcome is None:
        return found.run_state.value
    if outcome.score_s is None:
        return printing.coloured(outcome.verdict)
    return printing.score(outcome.score_s, outcome.low_s, outcome.high_s)


def _next(found: Final) -> str:
    if found.is_done:
        return f"kbslurm final {found.board} --gpu {found.gpu} --apply makes it count, --forget discards it"
    if found.is_over:
        return f"it wasn't measured ({found.reason or found.run_state.value}); use --forget, then order another"
    return f"it is {found.run_state.value}; kbslurm final {found.board} --gpu {found.gpu} shows its state"


def _json(found: Final, state: str) -> dict[str, Any]:
    return {
        "final": found.id,
        "board": found.board,
        "gpu": found.gpu,
        "state": state,
        "run_state": found.run_state,
        "reason": found.reason,
        "measured": found.is_done,
        "rivals": [
            {
                "place": rival.place,
                "person": rival.person,
                "submission": rival.submission_id,
                "before_s": rival.before_s,
                "verdict": rival.outcome.verdict if rival.outcome else None,
                "score_s": rival.outcome.score_s if rival.outcome else None,
                "interval_s": [rival.outcome.low_s, rival.outcome.high_s]
                if rival.outcome and rival.outcome.score_s is not None
                else None,
            }
            for rival in found.rivals
        ],
        "gaps": [
            {
                "ahead": found.rivals[gap.ahead].person,
                "behind": found.rivals[gap.behind].person,
                "ratio": gap.ratio,
                "interval": [gap.low, gap.high],
                "separated": gap.separated,
            }
            for gap in found.gaps
        ],
    }
