"""Boards as contests, for scoreboards and other programs that speak the CLICS Contest API, 2026-01; nothing but GET."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from kbslurm.api import contest_feed, contest_json, identity
from kbslurm.api.answers import Ascii, answers
from kbslurm.api.contest_feed import TOLD, ContestFeed, Seen
from kbslurm.api.context import Context
from kbslurm.api.door import Door, look_in_turn
from kbslurm.api.endless import EndlessResponse
from kbslurm.api.identity import Sender
from kbslurm.api.lookup import may_see_board
from kbslurm.api.parameters import Name
from kbslurm.contract.contests import (
    ContestAccess,
    ContestEvent,
    ContestLanguage,
    ContestProblem,
    ContestState,
    ContestSubmission,
    ContestTeam,
    ContestTold,
    Judgement,
    JudgementType,
)
from kbslurm.errors import NotFound
from kbslurm.flow import announce

ObjectId = Annotated[str, Path(max_length=64, description="The object's ID.")]
HEADERS = {"X-Accel-Buffering": "no"}


def routes(context: Context) -> APIRouter:
    """The router of these calls."""
    router = APIRouter(tags=["contests"], route_class=Door)
    feed = ContestFeed(context)

    @router.get("/contests", responses=answers(list[ContestTold]))
    def contests(sender: Sender) -> Ascii:
        """The boards that the caller may see, as contests, newest first."""
        person, host = contest_feed.caller(context, sender)
        mine = context.store.invites.boards_of(person.id) if person else frozenset()
        boards = context.store.boards.all(counted=False)
        found = [board for board in boards if host or may_see_board(board, person, mine)]
        return Ascii([contest_json.contest_told(board) for board in found])

    @router.get("/contests/{leaderboard}", responses=answers(ContestTold, 404))
    def contest(leaderboard: Name, sender: Sender) -> Ascii:
        """One board as a contest."""
        return Ascii(contest_json.contest_told(contest_feed.seen(context, sender, leaderboard).board))

    @router.get("/contests/{leaderboard}/state", responses=answers(ContestState, 404))
    def state(leaderboard: Name, sender: Sender) -> Ascii:
        """Whether it has ended, is frozen, is final."""
        board = contest_feed.seen(context, sender, leaderboard).board
        return Ascii(contest_json.state_told(board, context.clock.now()))

    @router.get("/contests/{leaderboard}/access", responses=answers(ContestAccess, 404))
    def access(leaderboard: Name, sender: Sender) -> Ascii:
        """Which objects there are, with which properties."""
        contest_feed.seen(context, sender, leaderboard)
        return Ascii(contest_json.access_told())

    @router.get("/contests/{leaderboard}/judgement-types", responses=answers(list[JudgementType], 404))
    def judgement_types(leaderboard: Name, sender: Sender) -> Ascii:
        """The verdicts that there are."""
        return Ascii(few["judgement-types"](contest_feed.seen(context, sender, leaderboard)))

    @router.get("/contests/{leaderboard}/languages", responses=answers(list[ContestLanguage], 404))
    def languages(leaderboard: Name, sender: Sender) -> Ascii:
        """What submissions are written in."""
        return Ascii(few["languages"](contest_feed.seen(context, sender, leaderboard)))

    @router.get("/contests/{leaderboard}/problems", responses=answers(list[ContestProblem], 404))
    def problems(leaderboard: Name, sender: Sender) -> Ascii:
        """The board's problem on each of its GPU types."""
        return Ascii(few["problems"](contest_feed.seen(context, sender, leaderboard)))

    @router.get("/contests/{leaderboard}/teams", responses=answers(list[ContestTeam], 404))
    def teams(leaderboard: Name, sender: Sender) -> Ascii:
        """Everyone who has submitted for the ranking: people or, where teams count together, teams."""
        return Ascii(few["teams"](contest_feed.seen(context, sender, leaderboard)))

    @router.get("/contests/{leaderboard}/submissions", responses=answers(list[ContestSubmission], 404))
    async def submissions(leaderboard: Name, request: Request, sender: Sender) -> StreamingResponse:
        """The submissions for the ranking; of a frozen board those from before, and one's own."""
        return await all_of(leaderboard, request, sender, "submissions")

    @router.get("/contests/{leaderboard}/judgements", responses=answers(list[Judgement], 404))
    async def judgements(leaderboard: Name, request: Request, sender: Sender) -> StreamingResponse:
        """Their verdicts: for hosts and each author in full, for others whether it passed."""
        return await all_of(leaderboard, request, sender, "judgements")

    few: dict[str, Callable[[Seen], list[dict[str, Any]]]] = {
        "judgement-types": lambda _: contest_json.judgement_types_told(),
        "languages": lambda about: contest_json.languages_told(about.board),
        "problems": lambda about: contest_json.problems_told(about.board),
        "teams": lambda about: contest_feed.teams(context, about),
    }

    async def all_of(name: str, request: Request, sender: identity.Given, kind: str) -> StreamingResponse:
        about = await run_in_threadpool(contest_feed.seen, context, sender, name)
        told = contest_feed.collection(context, look_in_turn(context, request), about, kind)
        return StreamingResponse(told, media_type="application/json", headers=HEADERS)

    def one_of(about: Seen, kind: str, number: str) -> Ascii:
        if kind in few:
            rows = few[kind](about)
        else:
            reader, said = about.reader, number.partition("-")[0]
            known = [int(said)] if said.isascii() and said.isdecimal() and len(said) < 19 else []
            until = reader.until(about.board)
            found = context.store.contests.of(about.board, known, until=until, viewer=reader.person)
            rows = [row for one in found if (row := TOLD[kind](about, one)) is not None]
        for row in rows:
            if row["id"] == number:
                return Ascii(row)
        raise NotFound(kind.removesuffix("s").replace("-", " "), number)

    @router.get("/contests/{leaderboard}/judgement-types/{object_id}", responses=answers(JudgementType, 404))
    def judgement_type(leaderboard: Name, object_id: ObjectId, sender: Sender) -> Ascii:
        """One verdict that there is."""
        return one_of(contest_feed.seen(context, sender, leaderboard), "judgement-types", object_id)

    @router.get("/contests/{leaderboard}/languages/{object_id}", responses=answers(ContestLanguage, 404))
    def language(leaderboard: Name, object_id: ObjectId, sender: Sender) -> Ascii:
        """One language."""
        return one_of(contest_feed.seen(context, sender, leaderboard), "languages", object_id)

    @router.get("/contests/{leaderboard}/problems/{object_id}", responses=answers(ContestProblem, 404))
    def problem(leaderboard: Name, object_id: ObjectId, sender: Sender) -> Ascii:
        """The problem on one GPU type."""
        return one_of(contest_feed.seen(context, sender, leaderboard), "problems", object_id)

    @router.get("/contests/{leaderboard}/teams/{object_id}", responses=answers(ContestTeam, 404))
    def team(leaderboard: Name, object_id: ObjectId, sender: Sender) -> Ascii:
        """One person or team."""
        return one_of(contest_feed.seen(context, sender, leaderboard), "teams", object_id)

    @router.get("/contests/{leaderboard}/submissions/{object_id}", responses=answers(ContestSubmission, 404))
    def submission(leaderboard: Name, object_id: ObjectId, sender: Sender) -> Ascii:
        """One submission on one GPU type."""
        return one_of(contest_feed.seen(context, sender, leaderboard), "submissions", object_id)

    @router.get("/contests/{leaderboard}/judgements/{object_id}", responses=answers(Judgement, 404))
    def judgement(leaderboard: Name, object_id: ObjectId, sender: Sender) -> Ascii:
        """One submission's verdict."""
        return one_of(contest_feed.seen(context, sender, leaderboard), "judgements", object_id)

    @router.get(
        "/contests/{leaderboard}/event-feed",
        responses={
            **answers(ContestEvent, 400, 404),
            200: {
                "description": "One ContestEvent per line, empty lines as heartbeats.",
                "content": {"application/x-ndjson": {"schema": {"type": "string"}}},
            },
        },
    )
    async def event_feed(
        leaderboard: Name,
        request: Request,
        sender: Sender,
        since_token: Annotated[str | None, Query(max_length=32, description="The last line's token.")] = None,
        stream: Annotated[bool, Query(description="Keep streaming what changes.")] = True,
    ) -> StreamingResponse:
        """Everything that the caller may see of it, or what has changed since the token; then what changes."""
        about = await run_in_threadpool(contest_feed.seen, context, sender, leaderboard)
        after = await run_in_threadpool(announce.place_of, context.store.events, since_token, contest_feed.MARK)
        lines = feed.lines(look_in_turn(context, request), sender, about, after, stream=stream)
        kind = EndlessResponse if stream else StreamingResponse
        return kind(lines, media_type="application/x-ndjson", headers=HEADERS)

    return router
