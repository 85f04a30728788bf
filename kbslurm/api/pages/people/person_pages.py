"""One's own page, and what boards show of anybody under their own name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, get_args

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import RedirectResponse, Response
from starlette.concurrency import run_in_threadpool

from kbslurm.api import popcorn_submission, providers, published_code
from kbslurm.api.context import Context
from kbslurm.api.pages.boards.board_list import BoardList, seen_boards
from kbslurm.api.pages.charts.lines import Lines, Point, lines
from kbslurm.api.pages.page_files import Table, page_and_files
from kbslurm.api.pages.people.submissions import histories_of, history_files
from kbslurm.api.pages.rendering import took
from kbslurm.api.pages.visitors import Offset, Visitors, form_of, to_login
from kbslurm.api.standings_cache import StandingsCache
from kbslurm.domain import access, contest
from kbslurm.domain.amounts import score
from kbslurm.domain.board import Entry, Standing
from kbslurm.domain.verdict import why_unranked
from kbslurm.errors import Invalid, NotFound
from kbslurm.observe.logs import teller
from kbslurm.store.publishing import CodePolicy
from kbslurm.store.views import Board, Person, RunView, SubmissionView
from kbslurm_eval.shared.wire import VerdictName

tell = teller("api.pages")
MINE = 50
SCORES = 1000  # the newest that the plots show
PLOTS = 6  # on a page that isn't of one board
PLACES = ("board", "gpu", "rank", "of", "score_s", "low_s", "high_s", "at", "code", "licence")
RECORDS = ("board", "gpu", "at", "score_s", "low_s", "high_s")
Word = Annotated[str, Query(max_length=contest.NAME_CAP)]


def people_pages(
    router: APIRouter, context: Context, visitors: Visitors, standings: StandingsCache, listed: BoardList
) -> None:

    @page_and_files(router, "/me", at="/scores")
    def me(request: Request, start: Offset = 0, linked: bool = False, board: Word = "", verdict: Word = "") -> Response:
        """One's own scores over time and submissions, newest first, all or of one board or verdict."""
        person = visitors.who(request)
        if person is None:
            return to_login(request)
        if verdict and verdict not in get_args(VerdictName):
            raise Invalid(
                f"{contest.shown(verdict)} isn't a verdict", hint=f"Choose one of: {', '.join(get_args(VerdictName))}."
            )
        boards = context.store.own_scores.submitted_to(person.id)
        chosen = next((name for name in boards if name.lower() == board.strip().lower()), board.strip())
        found = []
        if not chosen or chosen in boards:
            found = context.store.submissions.newest(
                person=person.id, board=chosen or None, verdict=verdict or None, limit=MINE + 1, offset=start
            )
        scored = context.store.own_scores.scored(person.id, most=SCORES)
        history = histories_of([one for one in scored if not chosen or one.board == chosen])
        return visitors.page(
            request,
            "people/me.html",
            person,
            as_files=history_files(history, at="/scores"),
            rows=[_listed(view) for view in found[:MINE]],
            more=len(found) > MINE,
            start=start,
            step=MINE,
            boards=boards,
            board=chosen,
            verdict=verdict,
            verdicts=get_args(VerdictName),
            history=history[:PLOTS] if not chosen else history,
            others=sorted({one["board"] for one in history[PLOTS:]}) if not chosen else [],
            seen={one.board.name for one in seen_boards(context, listed, person)},
            linked=linked,
            providers=providers.providers(context),
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

    @page_and_files(router, "/person/{whose}", at="/places")
    def person_(whose: Annotated[str, Path(max_length=200)], request: Request) -> Response:
        """Somebody's places and records on the boards that the reader may see and that show people as themselves.

        NotFound looks the same for whoever there isn't and for whoever no such board shows.
        """
        reader = visitors.who(request)
        somebody = context.store.people.by_name_or_id(whose)
        places = [] if somebody is None else list(_places(context, standings, listed, reader, somebody))
        if somebody is None or not places:
            raise NotFound("person on a board that you may see", whose)
        held = [{"board": one["board"], "gpu": one["gpu"], **row} for one in places for row in one["records"]]
        files = {
            "places": Table(columns=PLACES, rows=places, at="/places"),
            "records": Table(columns=RECORDS, rows=held, at="/places"),
        }
        return visitors.page(
            request, "people/person.html", reader, as_files=files, somebody=somebody.name, places=places
        )


def status_in_list(view: SubmissionView) -> str:
    """Its state in a list."""
    unranked = any(why_unranked(run.verdict, view.mode) for run in view.runs)
    return popcorn_submission.job_status(view) + (", not ranked" if unranked else "")


def _listed(view: SubmissionView) -> dict[str, Any]:
    return {
        "view": view,
        "status": status_in_list(view),
        "runs": [_listed_run(run, view.mode) for run in view.runs],
    }


def _listed_run(run: RunView, mode: str) -> dict[str, Any]:
    verdict = run.verdict
    timed = verdict is not None and verdict.score_s is not None
    return {
        "gpu": run.gpu,
        "verdict": verdict.name if verdict else run.shown_state,
        "score": score(verdict.score_s, verdict.low_s, verdict.high_s, ranked=verdict.ranked)
        if verdict is not None and timed
        else "",
        "not_ranked": why_unranked(verdict, mode),
    }


def _places(
    context: Context, standings: StandingsCache, listed: BoardList, reader: Person | None, somebody: Person
) -> Iterator[dict[str, Any]]:
    """Where boards show this person to everybody who reads them, under their own name and for themselves."""
    shown = [
        one.board
        for one in seen_boards(context, listed, reader)
        if access.names_people(one.board.names) and access.shows_standings(one.board.standings)
    ]
    theirs = context.store.own_scores.boards_of(somebody.id, [board.id for board in shown])
    now = context.clock.now()
    for board in (one for one in shown if one.id in theirs):
        policy = context.store.publishing.of_board(board.id)
        for gpu in board.gpus:
            rows, records = standings.now(board, gpu)
            found = next((n for n, one in enumerate(rows.entries) if _is_theirs(one, somebody)), None)
            if found is not None:
                code = published_code.is_published(policy, board, rows[found], now)
                yield _place(board, gpu, rows[found], len(rows), records, somebody, policy if code else None)


def _place(
    board: Board, gpu: str, row: Standing, of: int, records: list[Entry], somebody: Person, policy: CodePolicy | None
) -> dict[str, Any]:
    entry = row.entry
    held = [one for one in records if _is_theirs(one, somebody)]
    return {
        "board": board.name,
        "gpu": gpu,
        "rank": row.rank,
        "ranks": row.ranks,
        "of": of,
        **_amounts(entry),
        "at": entry.at,
        "records": [{"at": one.at, **_amounts(one)} for one in held],
        "drawn": _record(records, held, board.zone) if len(records) > 1 and held else None,
        "code": None if policy is None else entry.submission_id,
        "licence": "" if policy is None else policy.licence,
    }


def _amounts(one: Entry) -> dict[str, Any]:
    shown = score(one.score_s, one.low_s, one.high_s, ranked=True)
    return {"score": shown, "score_s": one.score_s, "low_s": one.low_s, "high_s": one.high_s}


def _is_theirs(one: Entry, somebody: Person) -> bool:
    return one.person_id == somebody.id and one.team is None


def _record(records: list[Entry], held: list[Entry], zone: str) -> Lines:
    """The board's record, and the steps of it that are theirs."""
    series = [
        [Point(at=one.at, value=one.score_s, said=f"{took(one.score_s)}, {one.person}") for one in rows]
        for rows in (records, held)
    ]
    return lines(series, written=took, zone=zone, steps=True)
