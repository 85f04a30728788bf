"""The pages for one's own submissions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response
from starlette.concurrency import run_in_threadpool

from kbslurm.api import popcorn_submission, providers, waiting
from kbslurm.api.context import Context
from kbslurm.api.lookup import may_see_board
from kbslurm.api.pages import drawing
from kbslurm.api.pages.live import version_of
from kbslurm.api.pages.rendering import took
from kbslurm.api.pages.visitors import Offset, Visitors, form_of, to_login
from kbslurm.api.parameters import Gpu, Number
from kbslurm.api.routes.artifacts import FileName, download
from kbslurm.api.standings_cache import StandingsCache
from kbslurm.domain import access, conditions, failed_tests, measure, physics, profiles
from kbslurm.domain.amounts import score
from kbslurm.domain.source import files_of
from kbslurm.domain.verdict import why_unranked
from kbslurm.domain.waterfall import waterfall
from kbslurm.errors import Invalid
from kbslurm.flow.cancel import cancel
from kbslurm.observe.logs import teller
from kbslurm.store.views import Person, RunView, SubmissionView

tell = teller("api.pages")
MINE = 50
LOG_CHARACTERS = 8000
HISTORY = 200


def submission_pages(
    router: APIRouter, context: Context, visitors: Visitors, histories: waiting.Histories, standings: StandingsCache
) -> None:
    @router.get("/me")
    def me(request: Request, start: Offset = 0, linked: bool = False) -> Response:
        """One's own submissions, newest first."""
        person = visitors.who(request)
        if person is None:
            return to_login(request)
        found = context.store.submissions.newest(person=person.id, limit=MINE, offset=start)
        rows = [{"view": view, "status": status_in_list(view)} for view in found]
        more = providers.providers(context)
        return visitors.page(
            request, "me.html", person, rows=rows, start=start, step=MINE, linked=linked, providers=more
        )

    @router.post("/me/link")
    async def link(request: Request) -> Response:
        """Link a token from `popcorn register` or `kbslurm login --register` to the person who is signed in."""
        form = await form_of(request)

        def linked() -> None:
            person, secret = visitors.sender(request, form), form.get("token", "").strip()[:512]
            now = context.clock.now()
            if not secret or not context.store.tokens.claim(secret, person.id, now=now):
                owner = context.store.tokens.person_of(secret, now=now) if secret else None
                if owner is not None and owner.id == person.id:
                    return  # the form was sent twice
                raise Invalid("this token isn't waiting to be linked", hint="Get a new one: kbslurm login --register")
            tell("a token was linked by its owner", person=person.id)

        await run_in_threadpool(linked)
        return RedirectResponse("/me?linked=1", status_code=303)

    @router.get("/s/{submission_id}")
    def submission(submission_id: Number, request: Request) -> Response:
        """A submission, for its owner; NotFound for anyone else."""
        person = visitors.who(request)
        if person is None:
            return to_login(request)
        view = visitors.own(person, submission_id)
        words = waiting.words(view, waiting.of_submission(context, histories, view))
        return visitors.page(
            request,
            "submission.html",
            person,
            view=view,
            state=popcorn_submission.job_status(view),
            words=words,
            shown=version_of(view, words),
            runs=[_run(run, view.mode) for run in view.runs],
            artifacts=context.store.artifacts.of_submission(view.id) if view.mode == "profile" else [],
            files=files_of(view.file_name, view.source) if view.source else {},
            history=_history(context, view),
            may_see_board=_may_see_board(context, person, view.board),
        )

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


def _run(run: RunView, mode: str) -> dict[str, Any]:
    """One run as its owner may see it: not even the number of hidden cases."""
    detail = (run.verdict.detail if run.verdict else None) or {}
    shown = None
    verdict = run.verdict
    if verdict is not None and verdict.score_s is not None:
        low_s, high_s = verdict.low_s, verdict.high_s
        shown = score(verdict.score_s, low_s, high_s, ranked=verdict.ranked)
    return {
        "gpu": run.gpu,
        "verdict": verdict.name if verdict else run.shown_state,
        "first": None if verdict or run.first_score_s is None else took(run.first_score_s),
        "ranked": verdict is not None and verdict.ranked,
        "not_ranked": why_unranked(verdict, mode),
        "score": shown,
        "light": physics.light_in_words(detail) if shown else "",
        "conditions": conditions.in_words(detail),
        "went": run.went,
        "waits": run.waits_for,
        "given_up": run.given_up,
        "report": "" if verdict is not None and verdict.name == "passed" else popcorn_submission.report_of(run),
        "bars": drawing.bars(waterfall(run.stamps)),
        "tests": _shown(detail, "tests"),
        "timed": _shown(detail, "benchmarks"),
        "log": str(detail.get("log", ""))[-LOG_CHARACTERS:],
        "profile": str(detail.get("profile", "")),
        "digests": [
            {
                "title": profiles.title(row),
                "sentences": profiles.sentences(row),
                "hints": row["hints"],
                "kernels": profiles.kernels(row),
            }
            for row in profiles.digests(detail)
        ],
    }


def status_in_list(view: SubmissionView) -> str:
    """Its state in a list."""
    unranked = any(why_unranked(run.verdict, view.mode) for run in view.runs)
    return popcorn_submission.job_status(view) + (", not ranked" if unranked else "")


def _shown(detail: Mapping[str, Any], which: access.CaseList) -> list[dict[str, Any]]:
    rows = access.shown_cases(detail, which)
    return [
        {
            "phase": row["phase"],
            "spec": row["spec"],
            "status": row["status"],
            "message": message,
            **{name: _seconds(row.get(f"{name}_ns")) for name in ("mean", "median", "worst", "null")},
            "best": _seconds(measure.shown_best_ns(row.get("best_ns"), row.get("null_ns"))),
        }
        for row, message in zip(rows, failed_tests.once(rows), strict=True)
    ]


def _seconds(ns: float | None) -> float | None:
    return None if ns is None else ns / 1e9


def _history(context: Context, view: SubmissionView) -> list[tuple[str, drawing.Curve]]:
    """One's own ranked scores on this board, one curve per GPU type."""
    points: dict[str, list[tuple[Any, float, str]]] = {}
    mine = context.store.submissions.newest(person=view.person_id, board=view.board, limit=HISTORY)
    for one in reversed(mine):
        for run in one.runs:
            if run.verdict is not None and run.verdict.ranked and run.verdict.score_s is not None:
                points.setdefault(run.gpu, []).append((one.accepted_at, run.verdict.score_s, str(one.id)))
    return [(gpu, drawing.curve(found, steps=False)) for gpu, found in sorted(points.items())]
