"""More of the hosts' calls: new boards from an upload, rejudging looked at, places to take away, people found by name,
and a canary that shows whether places work.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path as FilePath
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.concurrency import run_in_threadpool

from kbslurm.api import identity, upload
from kbslurm.api.answers import Ascii, answers
from kbslurm.api.context import Context
from kbslurm.api.identity import Sender
from kbslurm.api.routes.admin import held, whom
from kbslurm.api.routes.popcorn import Limit, Name, person_told
from kbslurm.contract.boards import BoardMade
from kbslurm.contract.people import People
from kbslurm.contract.rankings import Places
from kbslurm.contract.rejudging import RejudgeWanted, RejudgingTold
from kbslurm.contract.verifying import Verifies, VerifyWanted
from kbslurm.domain import board as boards
from kbslurm.domain import contest, places
from kbslurm.domain.intake import Offer
from kbslurm.errors import Invalid, NotFound
from kbslurm.flow import rejudge
from kbslurm.flow.submit import accept
from kbslurm.problems import roles
from kbslurm.problems import upload as problem_upload
from kbslurm.problems.python_code import parsed_code
from kbslurm.store.rejudging import Wanted
from kbslurm.store.views import Board, SubmissionView, Visibility

VERIFIES = "verify"
FAILURES = (400, 401, 404)


def routes(context: Context) -> APIRouter:
    """The router of these calls."""
    router = APIRouter(prefix="/admin", tags=["hosts"])
    _making(router, context)
    _looking(router, context)
    return router


def _making(router: APIRouter, context: Context) -> None:
    @router.post(
        "/leaderboards/upload",
        responses=answers(BoardMade, 400, 401, 408, 413),
        openapi_extra=upload.OPENAPI,
    )
    async def create(
        request: Request,
        sender: Sender,
        name: Annotated[str, Query(max_length=contest.NAME_CAP)],
        gpu: Annotated[list[str] | None, Query(max_length=64, description="May be said again.")] = None,
        deadline: Annotated[str | None, Query(max_length=64, description="2026-12-24, 2026-12-24 18:00, …")] = None,
        zone: Annotated[str, Query(max_length=64, description="The deadline's, like Europe/Berlin.")] = "UTC",
        description: Annotated[str | None, Query(max_length=4000)] = None,
        visibility: Visibility = "public",
    ) -> Ascii:
        """Make a board of a problem that is sent: a zip of its folder, or one reference file. Creators may, too."""
        sent = await upload.read(request, cap=problem_upload.PACKED_CAP, hint=problem_upload.PACKED_HINT)

        def made() -> Ascii:
            by, creator = identity.creator(context, sender)
            now, board_name = context.clock.now(), contest.board_name(name)
            closes = contest.parsed_deadline(deadline, zone) if deadline else None
            if closes is not None and contest.closed(closes, now):
                raise Invalid(f"the deadline {deadline} ({zone}) has passed already", hint="Pick one in the future.")
            if context.store.board(board_name, counted=False) is not None:
                raise Invalid(f"there is already a board {board_name!r}", hint="Pick another name.")
            problem = problem_upload.loaded(sent.file_name, sent.data, name=board_name)
            gpus = [contest.gpu_name(one) for one in gpu or []] or list(problem.gpus)
            board = context.store.add_board(
                board_name,
                problem,
                gpus=gpus,
                deadline_at=closes,
                zone=zone,
                description=description,
                visibility=visibility,
                min_isolation=context.config.policy.ranked_min_isolation,
                created_by=creator,
                now=now,
            )
            context.store.audit(by, "create_board", f"board:{board.id}", {"name": board.name}, now=now)
            idle = [one for one in board.gpus if one not in context.slots]
            warnings = [*problem.warnings, *(f"no place offers {one} now: what is submitted waits" for one in idle)]
            told = {"status": "ok", "leaderboard": board.name, "gpu_types": list(board.gpus)}
            return Ascii({**told, "warnings": warnings[:20]})

        return await run_in_threadpool(made)

    @router.post("/leaderboards/{leaderboard}/verify", responses=answers(Verifies, *FAILURES))
    def verify(leaderboard: Name, wanted: VerifyWanted, sender: Sender) -> Ascii:
        """Submit what is known to be right, unranked, as the house, to each place for each GPU type of the board that
        it has: do they work? One submission for each place, and one for types that no place has now.
        """
        by = identity.host(context, sender)
        board, now = held(context, leaderboard), context.clock.now()
        source = canary(board)
        gpus = [contest.known_gpu(one, board.gpus) for one in wanted.gpus or ()] or list(board.gpus)
        everywhere = canaries(gpus, context.offers, wanted.place)
        person, numbers = context.store.house(now=now), []
        for place, here in everywhere:
            receipt = accept(
                context.store,
                person,
                board.name,
                "baseline.cu" if board.problem.lang == "cu" else "baseline.py",
                source,
                wanted.mode,
                here,
                now,
                via=VERIFIES,
                on=place,
                offers=context.offers,
            )
            numbers.append(receipt.submission_id)
        about = {"board": board.name, "submissions": numbers}
        context.store.audit(by, "verify", f"submission:{numbers[0]}", about, now=now)
        return Ascii(
            {
                "status": "ok",
                "leaderboard": board.name,
                "submission_id": numbers[0],
                "submission_ids": numbers,
                "places": [place for place, _ in everywhere if place is not None],
                "gpu_types": gpus,
                "left_out": sorted(set(context.slots) - set(board.gpus)),
            }
        )


def _looking(router: APIRouter, context: Context) -> None:
    @router.post("/leaderboards/{leaderboard}/rejudge-preview", responses=answers(RejudgingTold, *FAILURES))
    def preview(leaderboard: Name, wanted: RejudgeWanted, sender: Sender) -> Ascii:
        """How the board's open rejudging stands; where there is none, order one. Nothing counts until it is applied."""
        by = identity.host(context, sender)
        board, chosen = held(context, leaderboard), rejudge.parsed(wanted.filter or [])
        found = context.store.preview_rejudging(
            board.name,
            Wanted(
                submission=chosen.submission,
                gpu=chosen.gpu,
                verdict=chosen.verdict,
                mode=chosen.mode,
                person=whom(context, chosen.person).id if chosen.person else None,
            ),
            wanted.version,
            by=by,
            now=context.clock.now(),
        )
        return Ascii(found.told("preview"))

    @router.get("/leaderboards/{leaderboard}/export", responses=answers(Places, *FAILURES))
    def export(leaderboard: Name, sender: Sender) -> Ascii:
        """Every place of a board, each person's best per GPU type, with the scores unrounded."""
        by = identity.host(context, sender)
        board = held(context, leaderboard)
        rows = [
            places.row(board.name, gpu, one, paired=board.problem.baseline is not None)
            for gpu in board.gpus
            for one in boards.ranked(context.store.best(board.name, gpu))
        ]
        context.store.audit(by, "export", f"board:{board.id}", {"places": len(rows)}, now=context.clock.now())
        return Ascii({"leaderboard": board.name, "places": rows})

    @router.get("/people", responses=answers(People, 401))
    def people(sender: Sender, matching: Annotated[str, Query(max_length=64)] = "", limit: Limit = 25) -> Ascii:
        """People whose names have this text in them."""
        identity.host(context, sender)
        return Ascii({"people": [person_told(one) for one in context.store.people_like(matching, limit=limit)]})


def canary(board: Board) -> str:
    """What is known to be right on this board: its baseline, else the reference's own answer."""
    problem = board.problem
    if problem.baseline is not None:
        return problem.baseline
    if problem.lang == "py":
        text = problem.files[problem.reference]
        code = parsed_code(text, FilePath(problem.reference), problem.reference)
        for answer in roles.ANSWERS:
            if code.function(answer) is not None:
                return f"{text.rstrip()}\n\n\ncustom_kernel = {answer}\n"
    raise Invalid(f"the problem of board {board.name} has no baseline", hint="Verify on a board that has one.")


def canaries(
    gpus: Sequence[str], offers: Sequence[Offer], place: str | None = None
) -> list[tuple[str | None, list[str]]]:
    """Which GPU types are to be tried where, each place once; those that no place has now go to whichever gets them."""
    if place is not None:
        found = next((offer for offer in offers if offer.name.lower() == place.strip().lower()), None)
        if found is None:
            raise NotFound("place", place, known=[offer.name for offer in offers])
        here = [gpu for gpu in gpus if gpu in found.gpus]
        if not here:
            having = [offer.name for offer in offers if set(gpus) & set(offer.gpus)]
            hint = f"Of these have something: {', '.join(having)}." if having else "No place has any of them."
            raise Invalid(f"{found.name} has none of {', '.join(gpus)}", hint=hint)
        return [(found.name, here)]
    made: list[tuple[str | None, list[str]]] = [
        (offer.name, here) for offer in offers if (here := [gpu for gpu in gpus if gpu in offer.gpus])
    ]
    nowhere = [gpu for gpu in gpus if not any(gpu in offer.gpus for offer in offers)]
    return [*made, (None, nowhere)] if nowhere else made


def verification(views: Sequence[tuple[SubmissionView, str | None]]) -> dict[str, Any]:
    """How canaries stand that were ordered together, each with its place: nothing of them is anybody's secret."""
    first = views[0][0]
    return {
        "submission_id": first.id,
        "submission_ids": [view.id for view, _ in views],
        "leaderboard": first.board,
        "mode": first.mode,
        "done": all(view.is_done for view, _ in views),
        "runs": [
            {
                "gpu": run.gpu,
                "place": place,
                "state": run.state.value,
                "backend": run.attempts[-1].backend if run.attempts else None,
                "attempts": len(run.attempts),
                "verdict": run.verdict.name if run.verdict else None,
                "took_s": (run.verdict_at - run.queued_at).total_seconds() if run.verdict_at else None,
            }
            for view, place in views
            for run in view.runs
        ],
    }
