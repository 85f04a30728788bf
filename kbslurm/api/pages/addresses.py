"""The pages' addresses. Reading goes by what the API shows too; every form carries a token of its session."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from typing import Annotated, Any
from urllib.parse import parse_qs, quote

from fastapi import APIRouter, Header, Path, Query, Request
from fastapi.responses import PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.concurrency import run_in_threadpool

from kbslurm.api import popcorn_submission, waiting
from kbslurm.api.context import Context
from kbslurm.api.pages import drawing
from kbslurm.api.pages.rendering import HEADERS, STATIC, measured, page, static_file, took
from kbslurm.api.routes import admin, sign_on
from kbslurm.api.routes.artifacts import FileName, download
from kbslurm.api.routes.popcorn import Gpu, Name, Number, may_see, seen_board
from kbslurm.api.standings import Standings
from kbslurm.domain import contest, measure, public
from kbslurm.domain.board import Standing
from kbslurm.domain.run import EventId, PersonId, SubmissionId
from kbslurm.domain.waterfall import waterfall
from kbslurm.errors import Invalid, KbslurmError, NotFound, Refused
from kbslurm.flow.cancel import cancel
from kbslurm.observe.logs import teller
from kbslurm.store.finals import Final
from kbslurm.store.views import Person, RunView, SubmissionView

tell = teller("api.pages")
HEARTBEAT_S = 15.0
PROGRESS_S = 4.0  # how far a job is makes no event: a submission that somebody looks at is looked up this often
STAFF_S = 2.0
PAGE = 100
MINE = 50
LOG_CHARACTERS = 8000
HISTORY = 200

Offset = Annotated[int, Query(alias="from", ge=0, le=2**31 - 1)]
Acts = Mapping[str, Callable[[Person, Mapping[str, str]], None]]


def routes(context: Context, histories: waiting.Histories, standings: Standings) -> APIRouter:
    """The router of the pages. None of it is in the OpenAPI document: that is for machines."""
    router = APIRouter(include_in_schema=False)
    reader = _Reader(context)
    for more in (_public, _own):
        more(router, context, reader, histories, standings)
    _sign_on(router, context, reader)
    _staff(router, context, reader)
    _live(router, context, reader, histories)
    return router


class _Reader:
    """Who reads, by the session's cookie, and the token that their forms must carry."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def who(self, request: Request) -> Person | None:
        person = sign_on.signed_on(self._context, request)
        return None if person is None or person.banned_at is not None else person

    def csrf(self, request: Request) -> str:
        """What only a page of ours, read with this session, can know."""
        session = request.cookies.get(sign_on.SESSION, "")
        key = self._context.store.secret_setting("pages")
        return hmac.new(key, f"csrf:{session}".encode("utf-8", "replace"), hashlib.sha256).hexdigest()

    def page(self, request: Request, template: str, person: Person | None, **told: Any) -> Response:
        return page(template, person=person, csrf=self.csrf(request) if person else "", **told)

    def sender(self, request: Request, form: Mapping[str, str]) -> Person:
        """Who sent a form: signed on, from a page of ours."""
        sign_on.check_same_site(request)
        person = self.who(request)
        if person is None:
            raise Refused("nobody is signed on", hint="Sign on, then do it again.")
        if not hmac.compare_digest(form.get("csrf", "").encode("utf-8", "replace"), self.csrf(request).encode()):
            raise Refused("this form isn't of your session", hint="Load the page again, then do it again.")
        return person


async def _form(request: Request) -> dict[str, str]:
    if not request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
        raise Invalid("this isn't a form of ours")
    body = (await request.body()).decode("utf-8", "replace")
    try:
        found = parse_qs(body, keep_blank_values=True, max_num_fields=20)
    except ValueError:
        raise Invalid("this form has too many fields") from None
    return {name: values[0] for name, values in found.items()}


def _to_login(request: Request) -> RedirectResponse:
    return RedirectResponse(f"/login?next={quote(request.url.path)}", status_code=303)


# ------------------------------------------------------------------------------------------------------- for everybody


def _public(
    router: APIRouter, context: Context, reader: _Reader, histories: waiting.Histories, standings: Standings
) -> None:

    @router.get("/")
    def boards(request: Request) -> Response:
        """The boards that the reader may see."""
        person = reader.who(request)
        mine = context.store.joined(person.id) if person else frozenset()
        now = context.clock.now()
        rows = [
            {"board": board, "is_open": board.closed_at is None and not contest.closed(board.deadline_at, now)}
            for board in context.store.boards()
            if may_see(board, person, mine)
        ]
        return reader.page(request, "boards.html", person, rows=rows)

    @router.get("/board/{leaderboard}")
    def any_gpu(leaderboard: Name, request: Request) -> Response:
        """The board for its first GPU type."""
        board = seen_board(context, leaderboard, reader.who(request))
        if not board.gpus:
            return RedirectResponse(f"/problem/{board.name}", status_code=303)
        return RedirectResponse(f"/board/{board.name}/{board.gpus[0]}", status_code=303)

    @router.get("/board/{leaderboard}/{gpu}")
    def board(leaderboard: Name, gpu: Gpu, request: Request, start: Offset = 0) -> Response:
        """One board for one GPU type: the standings, and how the record came about."""
        person = reader.who(request)
        shown = seen_board(context, leaderboard, person)
        known = contest.known_gpu(gpu, shown.gpus)
        seen = context.store.last_event()
        rows, records = standings.of(shown, known), standings.records(shown, known)
        return reader.page(
            request,
            "board.html",
            person,
            board=shown,
            gpu=known,
            seen=seen,
            rows=[_standing(row) for row in rows[start : start + PAGE]],
            start=start,
            total=len(rows),
            step=PAGE,
            trend=drawing.curve([(one.at, one.score_s, one.person) for one in records], steps=True),
            queue=waiting.runner_queue(context, histories, known),
            final=_final(context.store.applied_final(shown.name, known)),
            note=measure.sentence(known, context.store.calibrations(shown), paired=shown.problem.baseline is not None),
        )

    @router.get("/problem/{leaderboard}")
    def problem(leaderboard: Name, request: Request) -> Response:
        """What is to be done, the templates, and how to submit."""
        person = reader.who(request)
        shown = seen_board(context, leaderboard, person)
        base = context.config.server.public_url or str(request.base_url).rstrip("/")
        return reader.page(request, "problem.html", person, board=shown, problem=shown.problem, base=base)

    @router.get("/problem/{leaderboard}/template/{language}")
    def template(
        leaderboard: Name, language: Annotated[str, Path(max_length=contest.NAME_CAP)], request: Request
    ) -> Response:
        """A template as a file."""
        shown = seen_board(context, leaderboard, reader.who(request))
        text = shown.problem.templates.get(language)
        if text is None:
            raise NotFound("template", language, known=list(shown.problem.templates))
        name = f"{shown.name}.{shown.problem.lang}"
        return PlainTextResponse(text, headers={**HEADERS, "Content-Disposition": f'attachment; filename="{name}"'})

    @router.get("/static/{name}")
    async def static(name: str) -> Response:
        """The style, the one script, the icon."""
        if name not in STATIC:
            raise NotFound("file", name)
        headers = {**HEADERS, "Cache-Control": "public, max-age=300"}
        return Response(static_file(name), media_type=STATIC[name], headers=headers)


def _final(found: Final | None) -> list[dict[str, Any]]:
    rows = []
    for rival in found.rivals if found else ():
        came, after = rival.outcome, ""
        if came is not None and came.score_s is not None:
            after = measured(came.score_s, came.low_s or came.score_s, came.high_s or came.score_s)
        elif came is not None:
            after = came.verdict
        rows.append({"place": rival.place, "person": rival.person, "before": rival.before_s, "after": after})
    return rows


def _standing(row: Standing) -> dict[str, Any]:
    entry = row.entry
    tied = f"{row.best_rank}–{row.worst_rank}" if row.tied_with else ""
    score = measured(entry.score_s, entry.low_s, entry.high_s)
    return {"rank": row.rank, "tied": tied, "person": entry.person, "score": score, "at": entry.at}


# ------------------------------------------------------------------------------------------------------------ one's own


def _own(
    router: APIRouter, context: Context, reader: _Reader, histories: waiting.Histories, standings: Standings
) -> None:
    @router.get("/me")
    def me(request: Request, start: Offset = 0, linked: bool = False) -> Response:
        """One's own submissions, newest first."""
        person = reader.who(request)
        if person is None:
            return _to_login(request)
        found = context.store.submissions(person=person.id, limit=MINE, offset=start)
        rows = [{"view": view, "status": popcorn_submission.job_status(view)} for view in found]
        more = sign_on.providers(context)
        return reader.page(request, "me.html", person, rows=rows, start=start, step=MINE, linked=linked, providers=more)

    @router.post("/me/link")
    async def link(request: Request) -> Response:
        """Make a token that `popcorn register` or `kbslurm login --register` wrote that of whoever is signed on."""
        form = await _form(request)

        def linked() -> None:
            person, secret = reader.sender(request, form), form.get("token", "").strip()[:512]
            if not secret or not context.store.claim_token(secret, person.id, now=context.clock.now()):
                raise Invalid("this token isn't waiting to be linked", hint="Get another: kbslurm login --register")
            tell("a token was linked by its holder", person=person.id)

        await run_in_threadpool(linked)
        return RedirectResponse("/me?linked=1", status_code=303)

    @router.get("/s/{submission_id}")
    def submission(submission_id: Number, request: Request) -> Response:
        """A submission, for its owner; for anybody else there is none."""
        person = reader.who(request)
        if person is None:
            return _to_login(request)
        view = context.store.submission(SubmissionId(submission_id))
        if view.person_id != person.id or view.removed_at is not None:
            raise NotFound("submission", str(submission_id))
        queue = waiting.of_submission(context, histories, view)
        return reader.page(
            request,
            "submission.html",
            person,
            view=view,
            state=popcorn_submission.job_status(view),
            words=waiting.words(view, queue),
            runs=[_run(run) for run in view.runs],
            artifacts=context.store.artifacts(view.id) if view.mode == "profile" else [],
            history=_history(context, view),
        )

    @router.get("/s/{submission_id}/artifacts/{gpu}/{name}")
    def artifact(submission_id: Number, gpu: Gpu, name: FileName, request: Request) -> Response:
        """A file of a profile of one's own, as a download."""
        person = reader.who(request)
        if person is None:
            return _to_login(request)
        view = context.store.submission(SubmissionId(submission_id))
        if view.person_id != person.id or view.removed_at is not None:
            raise NotFound("submission", str(submission_id))
        return download(context, view, gpu, name)

    @router.post("/s/{submission_id}/cancel")
    async def cancel_(submission_id: Number, request: Request) -> Response:
        """Cancel what is still open of a submission of one's own."""
        form = await _form(request)

        def cancelled() -> None:
            person = reader.sender(request, form)
            view = context.store.submission(SubmissionId(submission_id))
            if view.person_id != person.id or view.removed_at is not None:
                raise NotFound("submission", str(submission_id))
            cancel(context.store, view.id, person.id, context.clock.now())

        await run_in_threadpool(cancelled)
        return RedirectResponse(f"/s/{submission_id}", status_code=303)


def _run(run: RunView) -> dict[str, Any]:
    """One run as its owner may see it: of hidden cases not even how many there are."""
    detail = (run.verdict.detail if run.verdict else None) or {}
    score = None
    verdict = run.verdict
    if verdict is not None and verdict.score_s is not None:
        low_s, high_s = verdict.low_s, verdict.high_s
        score = measured(
            verdict.score_s,
            verdict.score_s if low_s is None else low_s,
            verdict.score_s if high_s is None else high_s,
        )
    return {
        "gpu": run.gpu,
        "verdict": verdict.name if verdict else run.standing,
        "first": None if verdict or run.first_score_s is None else took(run.first_score_s),
        "ranked": verdict is not None and verdict.ranked,
        "score": score,
        "went": run.went,
        "report": "" if verdict is not None and verdict.name == "passed" else popcorn_submission.report_of(run),
        "bars": drawing.bars(waterfall(run.stamps)),
        "tests": _shown(detail, "tests"),
        "timed": _shown(detail, "benchmarks"),
        "log": str(detail.get("log", ""))[-LOG_CHARACTERS:],
        "profile": str(detail.get("profile", "")),
    }


def _shown(detail: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    return [
        {
            "phase": row["phase"],
            "spec": row["spec"],
            "status": row["status"],
            "message": row.get("message") or "",
            **{name: _seconds(row.get(f"{name}_ns")) for name in ("mean", "median", "best", "worst")},
        }
        for row in detail.get(key, ())
        if row["phase"] != public.HIDDEN
    ]


def _seconds(ns: float | None) -> float | None:
    return None if ns is None else ns / 1e9


def _history(context: Context, view: SubmissionView) -> list[tuple[str, drawing.Curve]]:
    """One's own ranked scores on this board, a curve per GPU type."""
    points: dict[str, list[tuple[Any, float, str]]] = {}
    mine = context.store.submissions(person=view.person_id, board=view.board, limit=HISTORY)
    for one in reversed(mine):
        for run in one.runs:
            if run.verdict is not None and run.verdict.ranked and run.verdict.score_s is not None:
                points.setdefault(run.gpu, []).append((one.accepted_at, run.verdict.score_s, str(one.id)))
    return [(gpu, drawing.curve(found, steps=False)) for gpu, found in sorted(points.items())]


# -------------------------------------------------------------------------------------------------------------- sign-on


def _sign_on(router: APIRouter, context: Context, reader: _Reader) -> None:
    @router.get("/login")
    def ask(request: Request, next_: Annotated[str, Query(alias="next", max_length=500)] = "/me") -> Response:
        """Whom one can sign on with, or a token to paste."""
        known, to = sign_on.providers(context), sign_on.safe_next(next_)
        return reader.page(request, "login.html", reader.who(request), providers=known, next=to, why="")

    @router.post("/login")
    async def by_token(request: Request) -> Response:
        """A session for whoever has the token."""
        form = await _form(request)
        return await run_in_threadpool(entered, request, form)

    def entered(request: Request, form: Mapping[str, str]) -> Response:
        sign_on.check_same_site(request)
        to = sign_on.safe_next(form.get("next", "/me"))
        secret = form.get("token", "").strip()[:512]
        person = context.store.person_of_token(secret, now=context.clock.now()) if secret else None
        if person is None or person.banned_at is not None:
            why = "This token isn't known, was revoked, or waits to be linked."
            return page("login.html", status=403, providers=sign_on.providers(context), next=to, why=why)
        answer = RedirectResponse(to, status_code=303)
        sign_on.open_session(context, request, answer, person, "browser (token)")
        return answer

    @router.post("/logout")
    async def leave(request: Request) -> Response:
        """End the session of this browser."""
        form = await _form(request)

        def ended() -> None:
            reader.sender(request, form)
            context.store.revoke_secret(request.cookies[sign_on.SESSION], now=context.clock.now())

        await run_in_threadpool(ended)
        answer = RedirectResponse("/", status_code=303)
        answer.delete_cookie(sign_on.SESSION)
        return answer


# ---------------------------------------------------------------------------------------------------------------- staff


def _staff(router: APIRouter, context: Context, reader: _Reader) -> None:
    def by_staff(person: Person | None) -> Person:
        if person is None or not person.is_staff:
            raise Refused("this page is for staff")
        return person

    @router.get("/staff")
    def overview(request: Request) -> Response:
        """Queue, places, and what a host should look at."""
        person = reader.who(request)
        if person is None:
            return _to_login(request)
        by_staff(person)
        now = context.clock.now()
        return reader.page(
            request,
            "staff.html",
            person,
            accepts=context.store.accepts_jobs(),
            queue=context.store.queue_view(),
            leases=[(line, line.expires_at > now, _places(line.info)) for line in context.store.lease_view()],
            attention=context.store.attention(now=now),
            audit=[admin.audit_line(event) for event in context.store.audit_log(limit=20)],
        )

    def switch(accepting: bool) -> Callable[[Person, Mapping[str, str]], None]:
        return lambda person, form: context.store.set_accepts_jobs(accepting, by=person.name, now=context.clock.now())

    def end(person: Person, form: Mapping[str, str]) -> None:
        text = form.get("submission", "").strip()
        if not (text.isascii() and text.isdecimal() and len(text) < 19):
            raise Invalid(f"{text[:40]!r} is no submission's number")
        number, now = SubmissionId(int(text)), context.clock.now()
        cancel(context.store, number, None, now)
        context.store.audit(person.name, "cancel", f"submission:{number}", now=now)

    def ban(person: Person, form: Mapping[str, str]) -> None:
        whom = admin.whom(context, form.get("person", "").strip()[:100])
        if whom.is_staff:
            raise Refused("staff can't be banned from a page", hint="An owner uses: kbslurm user ban")
        reason = form.get("reason", "").strip()[:200]
        context.store.ban(PersonId(whom.id), reason, by=person.name, now=context.clock.now())

    def unban(person: Person, form: Mapping[str, str]) -> None:
        whom = admin.whom(context, form.get("person", "").strip()[:100])
        context.store.unban(PersonId(whom.id), by=person.name, now=context.clock.now())

    acts: Acts = {"pause": switch(False), "resume": switch(True), "cancel": end, "ban": ban, "unban": unban}

    @router.post("/staff/{act}")
    async def act(act: str, request: Request) -> Response:
        """Do it, as whoever is signed on; it is in the audit log."""
        form = await _form(request)

        def done() -> None:
            person = by_staff(reader.sender(request, form))
            if act not in acts:
                raise NotFound("act", act, known=list(acts))
            acts[act](person, form)

        await run_in_threadpool(done)
        return RedirectResponse("/staff", status_code=303)


def _places(info: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What the leader told of each place, in words."""
    places = info.get("places")
    if not isinstance(places, dict):
        return []
    return [(str(name), _in_words(told)) for name, told in places.items()]


def _in_words(told: Any) -> str:
    return ", ".join(f"{key}: {value}" for key, value in told.items()) if isinstance(told, dict) else str(told)


# ----------------------------------------------------------------------------------------------------------------- live


def _live(router: APIRouter, context: Context, reader: _Reader, histories: waiting.Histories) -> None:
    @router.get("/live/{leaderboard}")
    async def live(
        leaderboard: Name,
        request: Request,
        after: Annotated[int | None, Query(ge=0, le=2**63 - 1)] = None,
        last_event_id: Annotated[str | None, Header(max_length=20)] = None,
    ) -> StreamingResponse:
        """A short event whenever a place of this board may have moved; the reader then looks for itself."""
        board = await run_in_threadpool(lambda: seen_board(context, leaderboard, reader.who(request)))
        if last_event_id and last_event_id.isascii() and last_event_id.isdecimal():
            after = int(last_event_id)
        settled = await run_in_threadpool(context.store.last_event)
        start = settled if after is None else EventId(min(after, settled))
        return _stream(_moves(context, board.id, start))

    @router.get("/live/-/s/{submission_id}")
    async def submission(submission_id: Number, request: Request) -> StreamingResponse:
        """A short event whenever something of a submission of one's own moved, and `over` when nothing more will."""

        def owned() -> None:
            person = reader.who(request)
            view = context.store.submission(SubmissionId(submission_id))
            if person is None or view.person_id != person.id or view.removed_at is not None:
                raise NotFound("submission", str(submission_id))

        await run_in_threadpool(owned)
        return _stream(_steps(context, histories, SubmissionId(submission_id)))

    @router.get("/live/-/staff")
    async def staff(request: Request) -> StreamingResponse:
        """A short event when something happened, at most one in `STAFF_S`."""

        def checked() -> None:
            person = reader.who(request)
            if person is None or not person.is_staff:
                raise Refused("this page is for staff")

        await run_in_threadpool(checked)
        return _stream(_stirs(context))


def _stream(lines: AsyncIterator[str]) -> StreamingResponse:
    return StreamingResponse(lines, media_type="text/event-stream", headers={**HEADERS, "X-Accel-Buffering": "no"})


async def _steps(context: Context, histories: waiting.Histories, number: SubmissionId) -> AsyncIterator[str]:
    def looked() -> tuple[object, bool]:
        view = context.store.submission(number)
        standings = tuple((run.standing, run.verdict and run.verdict.name) for run in view.runs)
        words = waiting.words(view, waiting.of_submission(context, histories, view))
        return (standings, words), view.is_done or view.removed_at is not None

    before: object = None
    with context.listener.follow(number) as ring:
        yield ": here\n\n"
        while not context.listener.is_over:
            try:
                now, over = await run_in_threadpool(looked)
            except KbslurmError as error:
                context.metrics.met(error)
                return  # the reader comes back
            if over:
                yield "event: moved\ndata: {}\n\nevent: over\ndata: {}\n\n"
                return
            yield "event: moved\ndata: {}\n\n" if before not in (None, now) else ":\n\n"
            before = now
            await context.listener.rest(ring, PROGRESS_S)


async def _stirs(context: Context) -> AsyncIterator[str]:
    with context.listener.follow() as ring:
        yield ": here\n\n"
        while not context.listener.is_over:
            heard = await _rung(context, ring)
            yield "event: moved\ndata: {}\n\n" if heard else ":\n\n"
            await asyncio.sleep(STAFF_S)


async def _rung(context: Context, ring: asyncio.Event) -> bool:
    """Whether it rang before a heartbeat's time was over."""
    with suppress(TimeoutError):
        await asyncio.wait_for(ring.wait(), HEARTBEAT_S)
    heard = ring.is_set() and not context.listener.is_over
    ring.clear()
    return heard


async def _moves(context: Context, board: int, seen: EventId) -> AsyncIterator[str]:
    def moved() -> tuple[bool, EventId]:
        found = context.store.moved(board, seen)
        return found.changed or found.people is None or bool(found.people), found.upto

    with context.listener.follow() as ring:
        yield ": here\n\n"
        while not context.listener.is_over:
            try:
                news, seen = await run_in_threadpool(moved)
            except KbslurmError as error:
                context.metrics.met(error)
                return  # the reader comes back with the last id
            yield f"id: {seen}\nevent: scored\ndata: {{}}\n\n" if news else ":\n\n"
            await context.listener.rest(ring, HEARTBEAT_S)
