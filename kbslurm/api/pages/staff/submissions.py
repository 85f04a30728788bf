"""The staff's pages of submissions, also for a board's graders: a list by what they are, and one with its code."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, get_args
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from kbslurm.api.context import Context
from kbslurm.api.pages.page_files import Table, most, page_and_files
from kbslurm.api.pages.visitors import Offset, Visitors, to_login
from kbslurm.api.parameters import Name, Number
from kbslurm.domain import contest
from kbslurm.domain.lookup import parsed_since, verdict_named
from kbslurm.domain.source import files_of
from kbslurm_eval.shared.wire import VerdictName

Words = Annotated[str, Query(max_length=contest.WHOM_CAP)]
SHOWN = 50
RUNS = (
    "submission", "board", "person", "mode", "file_name", "submitted_at", "gpu", "standing", "score_s", "not_ranked",
)  # fmt: skip
PHASES = ("runner", "mode", "secret", "passed", "score", "not_ranked", "start_time", "end_time")


def staff_submission_pages(router: APIRouter, context: Context, visitors: Visitors) -> None:
    @page_and_files(router, "/staff/board/{leaderboard}/submissions")
    def submissions(
        leaderboard: Name,
        request: Request,
        person: Words = "",
        verdict: Words = "",
        since: Words = "",
        start: Offset = 0,
    ) -> Response:
        """A board's submissions, newest first: somebody's, those with a verdict, or those since a time."""
        reader = visitors.who(request)
        if reader is None:
            return to_login(request)
        work = visitors.at_board(reader, leaderboard, "grade")
        held = work.held(leaderboard)
        wanted = {"person": person.strip(), "verdict": verdict.strip(), "since": since.strip()}
        rows = work.find_submissions(
            board=held.name,
            person=wanted["person"] or None,
            verdict=verdict_named(verdict) if wanted["verdict"] else None,
            since=parsed_since(since, work.now, contest.zone(held.zone)) if wanted["since"] else None,
            limit=most(request, SHOWN),
            offset=start,
        )
        chosen = {name: text for name, text in wanted.items() if text}
        return visitors.page(
            request,
            "staff/submissions.html",
            reader,
            as_files={"submissions": Table(columns=RUNS, rows=run_rows(rows))},
            board=held,
            rows=rows,
            wanted=wanted,
            verdicts=get_args(VerdictName),
            newer=f"?{urlencode({**chosen, 'from': max(0, start - SHOWN)})}" if start else "",
            older=f"?{urlencode({**chosen, 'from': start + SHOWN})}" if len(rows) == SHOWN else "",
        )

    @page_and_files(router, "/staff/submissions/{submission_id}")
    def submission(submission_id: Number, request: Request) -> Response:
        """Anyone's submission: how it went, its log and its code. Nothing of hidden cases but whether they passed."""
        reader = visitors.who(request)
        if reader is None:
            return to_login(request)
        work, view = visitors.at_submission(reader, submission_id)
        found = work.any_submission(view.id)
        board = context.store.boards.find(view.board, counted=False)
        return visitors.page(
            request,
            "staff/submission.html",
            reader,
            as_files={"phases": Table(columns=PHASES, rows=found["runs"])},
            found=found,
            shadows=work.shadow_places() if reader.is_staff else [],
            remarks=[(run.gpu, line) for run in view.runs for line in run.remarks],
            is_there=board is not None and board.id == view.board_id,
            files=files_of(found["file_name"], found["code"]) if found["code"] else {},
        )


def run_rows(rows: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Submissions as rows of a file: one for each run, and one without a GPU type for whatever has none."""
    for one in rows:
        told = {
            "submission": one["id"],
            "board": one["leaderboard_name"],
            "person": one["user_name"],
            "mode": one["mode"],
            "file_name": one["file_name"],
            "submitted_at": one["submission_time"],
        }
        runs: Sequence[Mapping[str, Any]] = one["runs"] or ({},)
        for run in runs:
            yield {
                **told,
                "gpu": run.get("gpu_type"),
                "standing": run.get("standing"),
                "score_s": run.get("score"),
                "not_ranked": run.get("not_ranked"),
            }
