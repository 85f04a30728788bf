"""The hosts' call that tests a board at the places that run it: what is submitted where, and its state."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path as FilePath
from typing import Any

from fastapi import APIRouter

from kbslurm.api import identity, waiting
from kbslurm.api.answers import Ascii, answers
from kbslurm.api.context import Context
from kbslurm.api.host_lookup import HOSTS_FAILURES, held
from kbslurm.api.identity import Sender
from kbslurm.api.parameters import Name
from kbslurm.contract.verifying import Verifies, VerifyWanted
from kbslurm.domain import contest, physics
from kbslurm.domain.intake import Offer
from kbslurm.errors import Invalid, NotFound
from kbslurm.flow.submit import accept
from kbslurm.problems import roles
from kbslurm.problems.python_code import parsed_code
from kbslurm.store.views import Board, SubmissionView

VERIFIES = "verify"


def canary(board: Board) -> str:
    """A submission that is known to be correct on this board: its baseline, else the reference's own answer."""
    problem = board.problem
    if problem.baseline is not None:
        return problem.baseline
    if problem.lang == "py":
        text = problem.files[problem.reference]
        code = parsed_code(text, FilePath(problem.reference), problem.reference)
        for answer in roles.ANSWERS:
            if code.function(answer) is not None:
                return f"{text.rstrip()}\n\n\ncustom_kernel = {answer}\n"
    raise Invalid(f"the problem of board {board.name} has no baseline", hint="Use a board that has one.")


def canaries(
    gpus: Sequence[str], offers: Sequence[Offer], place: str | None = None
) -> list[tuple[str | None, list[str]]]:
    """Which GPU types to test where, each place once; types that no place has at the moment go to the first that gets
    them."""
    if place is not None:
        found = next((offer for offer in offers if offer.name.lower() == place.strip().lower()), None)
        if found is None:
            raise NotFound("place", place, known=[offer.name for offer in offers])
        here = [gpu for gpu in gpus if gpu in found.gpus]
        if not here:
            having = [offer.name for offer in offers if set(gpus) & set(offer.gpus)]
            hint = f"These places have some of them: {', '.join(having)}." if having else "No place has any of them."
            raise Invalid(f"{found.name} has none of {', '.join(gpus)}", hint=hint)
        return [(found.name, here)]
    made: list[tuple[str | None, list[str]]] = [
        (offer.name, here) for offer in offers if (here := [gpu for gpu in gpus if gpu in offer.gpus])
    ]
    nowhere = [gpu for gpu in gpus if not any(gpu in offer.gpus for offer in offers)]
    return [*made, (None, nowhere)] if nowhere else made


def verification(views: Sequence[tuple[SubmissionView, str | None]]) -> dict[str, Any]:
    """The state of canaries that were ordered together, each with its place. They contain no one's secrets."""
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
                "problem": physics.wrong_formula(run.verdict.detail) if run.verdict else None,
            }
            for view, place in views
            for run in view.runs
        ],
    }


def add_verifying(router: APIRouter, context: Context, histories: waiting.Histories) -> None:
    @router.post("/leaderboards/{leaderboard}/verify", responses=answers(Verifies, *HOSTS_FAILURES))
    def verify(leaderboard: Name, wanted: VerifyWanted, sender: Sender) -> Ascii:
        """Test the places: submit a known-correct kernel, unranked and as the service itself, to each place for each of
        the board's GPU types that it has. One submission per place, and one for types that no place has at the moment.
        """
        by = identity.host(context, sender)
        board, now = held(context, leaderboard), context.clock.now()
        source = canary(board)
        gpus = [contest.known_gpu(one, board.gpus) for one in wanted.gpus or ()] or list(board.gpus)
        everywhere = canaries(gpus, context.offers, wanted.place)
        person, numbers = context.store.people.service_person(now=now), []
        for place, here in everywhere:
            receipt = accept(
                context.store.intake,
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
        context.store.events.audit(by, "verify", f"submission:{numbers[0]}", about, now=now)
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
