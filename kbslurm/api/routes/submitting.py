"""Submitting over HTTP: returning a number to poll, or followed to the end as a stream of events."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Literal, cast, get_args

from fastapi import APIRouter, Header, Path, Query, Request
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from kbslurm.api import identity, popcorn_submission, upload, waiting
from kbslurm.api.answers import Ascii, answers
from kbslurm.api.context import Context
from kbslurm.api.door import Door, Look, look_in_turn
from kbslurm.api.endless import EndlessResponse
from kbslurm.api.identity import Given, Sender
from kbslurm.api.parameters import Gpu, Name
from kbslurm.api.refusals import public_sentence, sentence
from kbslurm.api.routes import artifacts
from kbslurm.contract.submissions import Accepted
from kbslurm.contract.verifying import PlacesOffered
from kbslurm.domain import contest
from kbslurm.domain.intake import KEY_CAP
from kbslurm.domain.run import SubmissionId
from kbslurm.errors import Invalid, KbslurmError, NotFound, Refused, Unauthenticated
from kbslurm.flow.submit import accept
from kbslurm.store.views import RunView, SubmissionView
from kbslurm_eval.shared.wire import Mode

HEARTBEAT_S = 10.0
VIA = "api"
VIA_AGENT = "agent"

ModeName = Annotated[str, Path(max_length=32, description="test, benchmark, profile or leaderboard, in any case.")]
Benchmark = Annotated[
    int | None, Query(ge=0, le=10_000, description="The only benchmark to profile, from 0; mode profile only.")
]
Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        max_length=KEY_CAP,
        description="Chosen by the sender: sent again with it, a submission isn't stored twice.",
    ),
]
By = Annotated[
    str | None,
    Header(alias="X-Kbslurm-By", max_length=16, description="`agent` if an agent submits on the person's behalf."),
]
Frame = tuple[Literal["status", "result", "error"], Mapping[str, Any]]


def routes(context: Context, histories: waiting.Histories) -> APIRouter:
    """Registered after every other router: the stream's path would match other three-segment paths."""
    router = APIRouter(tags=["popcorn"], route_class=Door)
    refusals = (400, 401, 403, 404, 408, 413, 429)

    async def taken(
        leaderboard: str, gpu: str, mode: str, request: Request, sender: Given, benchmark: int | None
    ) -> dict[str, Any]:
        with context.metrics.submitting(mode):
            sent = await upload.read(request)
            return await run_in_threadpool(
                accepted, context, histories, sender, leaderboard, [gpu], mode, sent, None, benchmark
            )

    @router.post(
        "/user/submissions",
        status_code=202,
        responses=answers(Accepted, *refusals, status=202),
        openapi_extra=upload.OPENAPI,
    )
    async def submit_to_many(
        request: Request,
        sender: Sender,
        leaderboard: Annotated[
            str | None, Query(max_length=contest.NAME_CAP, description="Optional if a #!POPCORN line names it.")
        ] = None,
        gpu: Annotated[list[str] | None, Query(max_length=64, description="Can be repeated.")] = None,
        mode: Annotated[str, Query(max_length=32)] = "leaderboard",
        place: Annotated[
            str | None, Query(max_length=64, description="Run only at this place; not for mode leaderboard.")
        ] = None,
        benchmark: Benchmark = None,
        key: Key = None,
        by: By = None,
    ) -> Ascii:
        """Submit a file for several GPU types. Once answered, the submission can't be lost."""
        with context.metrics.submitting(mode):
            sent = await upload.read(request)
            told = await run_in_threadpool(
                accepted, context, histories, sender, leaderboard, gpu or [], mode, sent, place, benchmark, key, by
            )
        return Ascii(told, status_code=202)

    @router.get("/user/places", responses=answers(PlacesOffered, 400, 401, 404))
    def places(sender: Sender) -> Ascii:
        """The places that the caller may choose for a test run, with their GPU types."""
        person = identity.caller(context, sender)
        mine = [offer for offer in context.offers if offer.is_for(staff=person.is_staff)]
        return Ascii({"places": [{"name": offer.name, "gpu_types": list(offer.gpus)} for offer in mine]})

    @router.post(
        "/submission/{leaderboard}/{gpu}/{mode}",
        status_code=202,
        responses=answers(Accepted, *refusals, status=202),
        openapi_extra=upload.OPENAPI,
    )
    async def submit(
        leaderboard: Name, gpu: Gpu, mode: ModeName, request: Request, sender: Sender, benchmark: Benchmark = None
    ) -> Ascii:
        """Submit a file. Once answered, the submission can't be lost; poll `/user/submissions/{id}`."""
        told = await taken(leaderboard, gpu, mode, request, sender, benchmark)
        return Ascii(told, status_code=202)

    @router.post(
        "/{leaderboard}/{gpu}/{mode}",
        responses={
            **answers(Accepted, *refusals),
            200: {
                "description": "Server-sent events: status …, then one result or error.",
                "content": {"text/event-stream": {"schema": {"type": "string"}}},
            },
        },
        openapi_extra=upload.OPENAPI,
    )
    async def submit_and_follow(
        leaderboard: Name, gpu: Gpu, mode: ModeName, request: Request, sender: Sender, benchmark: Benchmark = None
    ) -> StreamingResponse:
        """Submit a file and follow it. Disconnecting doesn't lose the run."""
        told = await taken(leaderboard, gpu, mode, request, sender, benchmark)
        stream = followed(
            context, look_in_turn(context, request), histories, sender, SubmissionId(told["details"]["id"])
        )
        return EndlessResponse(_as_text(stream), media_type="text/event-stream")

    return router


def accepted(
    context: Context,
    histories: waiting.Histories,
    sender: Given,
    leaderboard: str | None,
    gpus: Sequence[str],
    mode: str,
    sent: upload.Upload,
    place: str | None = None,
    benchmark: int | None = None,
    key: str | None = None,
    by: str | None = None,
) -> dict[str, Any]:
    """Store an upload as a submission; what the client is told of it."""
    person = identity.caller(context, sender)
    if by not in (None, VIA_AGENT):
        raise Invalid(f"X-Kbslurm-By can't be {by!r}", hint=f"Leave it out, or set it to {VIA_AGENT}.")
    now = context.clock.now()
    receipt = accept(
        context.store.intake,
        person.id,
        leaderboard,
        sent.file_name,
        sent.data,
        mode_named(mode),
        gpus,
        now,
        via=by or VIA,
        on=place,
        offers=context.offers,
        benchmark=benchmark,
        service=person.service,
        key=key,
    )
    return {
        "status": "accepted",
        "details": {"id": receipt.submission_id, "job_status_id": receipt.run_ids[0]},
        "runner_queue": waiting.of_receipt(context, histories, receipt),
    }


def mode_named(text: str) -> Mode:
    """The mode with that name in any case, or Invalid."""
    if text.lower() not in get_args(Mode):
        raise Invalid(f"there is no mode {text!r}", hint=f"Choose one of: {', '.join(get_args(Mode))}.")
    return cast("Mode", text.lower())


async def followed(
    context: Context, in_turn: Look, histories: waiting.Histories, sender: Given, submission: SubmissionId
) -> AsyncIterator[Frame]:
    """A submission as frames: a status immediately, at every change and at least every `HEARTBEAT_S`, then the
    result; for as long as its sender may see it."""

    def look() -> tuple[SubmissionView, dict[str, Any] | None]:
        identity.caller(context, sender)
        view = context.store.submissions.get(submission)
        return view, waiting.of_submission(context, histories, view)

    with context.listener.follow(submission) as ring:
        while True:
            try:
                view, queue = await in_turn(look)
            except NotFound as error:
                yield _failed(error.message, 404)
                return
            except (Unauthenticated, Refused) as error:
                yield _failed(sentence(error), error.http_status)
                return
            except KbslurmError as error:
                context.metrics.met(error)
                yield "status", {"status": "waiting", "message": public_sentence(error)}
                await context.listener.rest(ring, HEARTBEAT_S)
                continue
            if view.removed_at is not None:
                yield _failed("it was cancelled", 404)
                return
            if view.is_done:
                yield await in_turn(partial(ended, context, view))
                return
            if context.listener.is_over:
                yield _failed(f"the server is being restarted; submission {submission} goes on, check it later", 503)
                return
            yield (
                "status",
                {"status": popcorn_submission.job_status(view), "message": waiting.words(view, queue), "id": view.id},
            )
            await context.listener.rest(ring, HEARTBEAT_S)


def ended(context: Context, view: SubmissionView) -> Frame:
    """The last frame: the complete result, or why there is none."""
    if any(run.verdict is None or run.verdict.name == "infrastructure" for run in view.runs):
        return _failed(popcorn_submission.report(view), 500)
    return "result", {
        "status": "success",
        "id": view.id,
        "results": [popcorn_submission.full(view, run, _profile(context, view, run)) for run in view.runs],
        "reports": [popcorn_submission.markdown(view, run) for run in view.runs],
    }


def _profile(context: Context, view: SubmissionView, run: RunView) -> dict[str, Any] | None:
    return artifacts.popcorn_profile(context, view, run) if view.mode == "profile" else None


def as_event(frame: Frame) -> str:
    """One event of a stream: ASCII JSON on one line, ended only by an empty line."""
    name, data = frame
    return f"event: {name}\ndata: {json.dumps(data, ensure_ascii=True, allow_nan=False)}\n\n"


async def _as_text(frames: AsyncIterator[Frame], say: Callable[[Frame], str] = as_event) -> AsyncIterator[str]:
    async for frame in frames:
        yield say(frame)


def _failed(detail: str, status: int) -> Frame:
    return "error", {"status": "error", "detail": detail, "status_code": status}
