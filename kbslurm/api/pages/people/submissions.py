"""The page of one's own submission, and what changed between two of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response
from starlette.concurrency import run_in_threadpool

from kbslurm.api import popcorn_submission, waiting
from kbslurm.api.case_rivals import NO_RIVALS, case_rivals
from kbslurm.api.context import Context
from kbslurm.api.lookup import may_see_board
from kbslurm.api.pages.charts.lines import Lines, Point, lines
from kbslurm.api.pages.live import version_of
from kbslurm.api.pages.page_files import Table, page_and_files
from kbslurm.api.pages.people.comparing import shown_pair
from kbslurm.api.pages.people.submission_runs import run_files, shown_run
from kbslurm.api.pages.rendering import took
from kbslurm.api.pages.visitors import Visitors, form_of, to_login
from kbslurm.api.parameters import Gpu, Number
from kbslurm.api.routes.artifacts import FileName, download
from kbslurm.api.standings_cache import StandingsCache
from kbslurm.domain.amounts import score
from kbslurm.domain.source import files_of
from kbslurm.flow.cancel import cancel
from kbslurm.store.own_scores import Scored
from kbslurm.store.views import Person

HISTORY = 200
SCORED = ("submission_id", "board", "gpu", "score_s", "low_s", "high_s", "at")
OTHERS = 20  # of one's own that the page offers to compare with


def submission_pages(
    router: APIRouter, context: Context, visitors: Visitors, histories: waiting.Histories, standings: StandingsCache
) -> None:
    @page_and_files(router, "/s/{submission_id}")
    def submission(submission_id: Number, request: Request) -> Response:
        """A submission, for its owner; NotFound for anyone else."""
        person = visitors.who(request)
        if person is None:
            return to_login(request)
        view, now = visitors.own(person, submission_id), context.clock.now()
        words = waiting.words(view, waiting.of_submission(context, histories, view))
        placed = {told["gpu_type"]: told for told in standings.of_submission(view)}
        samples = context.store.own_scores.samples(view.id) if view.runs else {}
        mine = context.store.submissions.newest(person=person.id, board=view.board, limit=OTHERS + 1)
        others = [one for one in mine if one.id != view.id and one.board_id == view.board_id][:OTHERS]
        rivals = case_rivals(context.store, view, placed, lambda board, gpu: standings.now(board, gpu)[0], now)
        runs = [
            shown_run(run, view, placed.get(run.gpu), samples.get(run.id, ()), rivals.get(run.gpu, NO_RIVALS))
            for run in view.runs
        ]
        history = histories_of(
            context.store.own_scores.scored(person.id, board=view.board_id, most=HISTORY), marked=view.id
        )
        return visitors.page(
            request,
            "people/submission.html",
            person,
            as_files=run_files(runs) | history_files(history),
            view=view,
            state=popcorn_submission.job_status(view),
            words=words,
            shown=version_of(view, words),
            runs=runs,
            first_open=next((n for n, run in enumerate(view.runs) if run.ended_at is None), None),
            gpus={run.gpu for run in view.runs},
            artifacts=context.store.artifacts.of_submission(view.id) if view.mode == "profile" else [],
            files=files_of(view.file_name, view.source) if view.source else {},
            history=history,
            others=[{"view": one, "status": popcorn_submission.job_status(one)} for one in others],
            before=next((one.id for one in others if one.id < view.id), None),
            may_see_board=_may_see_board(context, person, view.board),
        )

    @page_and_files(router, "/s/{submission_id}/diff/{other_id}")
    def diff(submission_id: Number, other_id: Number, request: Request) -> Response:
        """What changed between two of one's own submissions to one board: results, and code side by side."""
        person = visitors.who(request)
        if person is None:
            return to_login(request)
        first, last = (visitors.own(person, number) for number in sorted((submission_id, other_id)))
        return visitors.page(request, "people/compare_pair.html", person, **shown_pair(first, last))

    @router.get("/s/{submission_id}/artifacts/{gpu}/{name}")
    def artifact(submission_id: Number, gpu: Gpu, name: FileName, request: Request) -> Response:
        """A file from one's own profile, as a download."""
        person = visitors.who(request)
        if person is None:
            return to_login(request)
        view = visitors.own(person, submission_id)
        return download(context, view, gpu, name)

    @router.post("/s/{submission_id}/cancel")
    async def cancel_(submission_id: Number, request: Request) -> Response:
        """Cancel the open runs of one's own submission."""
        form = await form_of(request)

        def cancelled() -> None:
            person = visitors.sender(request, form)
            view = visitors.own(person, submission_id)
            cancel(context.store.submissions, view.id, person.id, context.clock.now())

        await run_in_threadpool(cancelled)
        return RedirectResponse(f"/s/{submission_id}", status_code=303)


def _may_see_board(context: Context, person: Person, name: str) -> bool:
    """Whether they may see it still: it may have been deleted, or their invitation revoked."""
    board = context.store.boards.find(name, counted=False)
    return board is not None and may_see_board(board, person, context.store.invites.boards_of(person.id))


def histories_of(found: list[Scored], *, marked: int | None = None) -> list[dict[str, Any]]:
    """One's own ranked scores, oldest first, by board and GPU type: a chart, the rows of its table, and the best."""
    groups: dict[tuple[str, str], list[Scored]] = {}
    for one in found:
        groups.setdefault((one.board, one.gpu), []).append(one)
    return [
        {
            "board": board,
            "gpu": gpu,
            "drawn": _drawn(rows),
            "best": min(rows, key=lambda one: (one.score_s, one.submission_id)),
            "rows": [
                {"one": one, "score": score(one.score_s, one.low_s, one.high_s, ranked=True)} for one in reversed(rows)
            ],
            "marked": marked,
        }
        for (board, gpu), rows in sorted(groups.items(), key=lambda item: (item[0][0].lower(), item[0][1]))
    ]


def history_files(history: Sequence[Mapping[str, Any]], *, at: str = "") -> dict[str, Table]:
    """The same as a file."""
    rows = [vars(row["one"]) for one in history for row in one["rows"]]
    return {"scores": Table(columns=SCORED, rows=rows, at=at)}


def _drawn(rows: list[Scored]) -> Lines:
    points = [Point(at=one.at, value=one.score_s, said=f"{took(one.score_s)}, #{one.submission_id}") for one in rows]
    return lines([points], written=took, zone=rows[0].zone)
