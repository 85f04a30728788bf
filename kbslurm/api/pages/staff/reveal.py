"""The reveal of a frozen board in front of everybody: from the bottom up, one result a step.

A step's page holds what was opened up to it and nothing more. Nothing is shown to anybody else by it: the board stays
frozen until a host unfreezes it, which the last step offers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import RedirectResponse, Response

from kbslurm.api.context import Context
from kbslurm.api.pages.boards.hall import SHOWN, hall_rows
from kbslurm.api.pages.rendering import closes
from kbslurm.api.pages.visitors import Visitors, to_login
from kbslurm.api.parameters import Name
from kbslurm.domain import access, contest
from kbslurm.domain.amounts import seconds
from kbslurm.domain.pseudonyms import Disguise
from kbslurm.domain.reveal import Revealed, revealed, step_of_top

Step = Annotated[int, Query(ge=0, le=2**31 - 1)]
Top = Annotated[int | None, Query(ge=0, le=2**31 - 1)]
OnGpu = Annotated[str, Query(max_length=contest.NAME_CAP)]
TOPS = (10, 20)


def reveal_page(router: APIRouter, context: Context, visitors: Visitors) -> None:
    @router.get("/staff/board/{leaderboard}/reveal")
    def reveal(leaderboard: Name, request: Request, gpu: OnGpu = "", step: Step = 0, top: Top = None) -> Response:
        """One step of it; with `top` the one after which only the first few are left. Also for whoever may see all
        standings by a role on the board."""
        person = visitors.who(request)
        if person is None:
            return to_login(request)
        work = visitors.at_board(person, leaderboard, "grade")
        board = work.held(leaderboard)
        gpu = contest.known_gpu(gpu or next(iter(board.gpus), ""), board.gpus)
        both = context.store.standings.around_freeze(board, gpu)
        if top is not None:
            here = f"/staff/board/{board.name}/reveal?gpu={gpu}"
            return RedirectResponse(f"{here}&step={step_of_top(*both, top)}#opened", status_code=303)
        shown, disguise = revealed(*both, step), context.store.boards.disguise(board)
        return visitors.page(
            request,
            "staff/reveal.html",
            person,
            board=board.name,
            gpu=gpu,
            gpus=board.gpus,
            tops=[one for one in TOPS if one < len(shown.rows)],
            is_frozen=access.is_frozen(board.frozen_at, work.now),
            is_running=board.closed_at is None and not contest.closed(board.deadline_at, work.now),
            open_runs=context.store.finalisations.open_runs(board),
            is_hidden=not access.shows_standings(board.standings),
            may_unfreeze=access.may_see_staff_page(person),
            closes=closes(board),
            **told(shown, disguise),
        )


def told(shown: Revealed, disguise: Disguise) -> dict[str, Any]:
    """A step as its page shows it, with people as whom others see them."""
    opened, rows = shown.opened, shown.rows
    sides = [one.side for one in rows.entries]
    looked_at = shown.following if opened is None else opened.side
    here = sides.index(looked_at) if looked_at in sides else 0
    start = max(0, min(here - SHOWN // 2, len(sides) - SHOWN))
    part = [replace(one, entry=disguise.entry(one.entry)) for one in rows[start : start + SHOWN]]
    best_s = rows.entries[0].score_s if rows else None
    return {
        "step": shown.step,
        "is_over": shown.is_over,
        "rows": [
            {
                "row": row,
                "is_opened": opened is not None and side == opened.side,
                "is_waiting": side in shown.waiting,
                "is_following": shown.following is not None and side == shown.following,
            }
            for row, side in zip(hall_rows(part, best_s), sides[start : start + SHOWN], strict=True)
        ],
        "above": start,
        "below": max(0, len(sides) - start - SHOWN),
        "opened": _opened(shown, disguise),
        "following": None
        if shown.following is None
        else disguise.entry(rows.entries[sides.index(shown.following)]).person,
    }


def _opened(shown: Revealed, disguise: Disguise) -> dict[str, Any] | None:
    """What the step has opened, for a sentence."""
    opened = shown.opened
    if opened is None:
        return None
    entry, was = opened.entry, opened.was
    known = entry or was
    assert known is not None
    return {
        "person": disguise.entry(known).person,
        "score": "" if entry is None else seconds(entry.score_s),
        "was": seconds(was.score_s) if was is not None and was != entry else "",
        "before": opened.before,
        "after": opened.after,
        "rises": opened.rises,
    }
