"""A board's pages for staff beside its settings: a rejudge with what it would move, finals, and who gets in and how
often."""

from __future__ import annotations

from typing import Annotated, get_args

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from kbslurm.api.context import Context
from kbslurm.api.host_lookup import at_work
from kbslurm.api.hosting import measuring
from kbslurm.api.pages.staff.board_forms import chosen_of, version_of
from kbslurm.api.pages.visitors import Visitors, to_login
from kbslurm.api.parameters import Name
from kbslurm.domain import access, contest
from kbslurm.domain.policy import Category
from kbslurm.errors import Invalid, NotFound
from kbslurm_eval.shared.wire import Mode, VerdictName

Words = Annotated[str, Query(max_length=contest.WHOM_CAP)]


def staff_board_work_pages(router: APIRouter, context: Context, visitors: Visitors) -> None:
    @router.get("/staff/board/{leaderboard}/rejudge")
    def rejudge(
        leaderboard: Name,
        request: Request,
        submission: Words = "",
        person: Words = "",
        gpu: Words = "",
        verdict: Words = "",
        mode: Words = "",
        version: Words = "",
        estimate: Words = "",
    ) -> Response:
        """The open rejudge and who would move by it; without one, a form for another, with what it would cost."""
        reader = visitors.who(request)
        if reader is None:
            return to_login(request)
        visitors.staff(reader)
        work = at_work(context, reader.name, reader)
        held = work.held(leaderboard)
        wanted = {"submission": submission, "person": person, "gpu": gpu, "verdict": verdict, "mode": mode}
        found, cost, why, status = work.rejudge_open(held.name), None, "", 200
        if found is None and estimate:
            try:
                cost = work.rejudge_estimate(held.name, chosen_of(wanted), version_of({"version": version}))
            except (Invalid, NotFound) as error:
                why, status = f"{error.message}. {error.hint or ''}".strip(), error.http_status
        return visitors.page(
            request,
            "staff/rejudge.html",
            reader,
            status=status,
            board=held,
            found=found,
            cost=cost,
            why=why,
            wanted={**wanted, "version": version},
            verdicts=get_args(VerdictName),
            modes=get_args(Mode),
            versions=[one for one in work.problems() if one["name"] == held.problem_name],
        )

    @router.get("/staff/board/{leaderboard}/finals")
    def finals(leaderboard: Name, request: Request) -> Response:
        """Each GPU type's final: ordered, measured, applied; and the form for another."""
        reader = visitors.who(request)
        if reader is None:
            return to_login(request)
        visitors.staff(reader)
        work = at_work(context, reader.name, reader)
        held = work.held(leaderboard)
        return visitors.page(
            request, "staff/finals.html", reader, board=held, rows=work.finals(held.name), usual=measuring.USUAL_TOP,
            calibrations=context.store.calibrations.of_board(held),
        )  # fmt: skip

    @router.get("/staff/board/{leaderboard}/entry")
    def entry(leaderboard: Name, request: Request) -> Response:
        """Who gets in by an invitation, who helps, and how much each person may submit."""
        reader = visitors.who(request)
        if reader is None:
            return to_login(request)
        visitors.staff(reader)
        work = at_work(context, reader.name, reader)
        held = work.held(leaderboard)
        return visitors.page(
            request,
            "staff/entry.html",
            reader,
            board=held,
            limits=work.limits(held.name),
            categories=get_args(Category),
            invites=work.invites(held.name),
            roles=work.board_roles(held.name),
            board_roles=access.BOARD_ROLES,
            made=(),
        )
