"""A board's pages for staff beside its settings: a rejudge with what it would move, finals, and who gets in and how
often."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, get_args

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from kbslurm.api.context import Context
from kbslurm.api.host_lookup import at_work
from kbslurm.api.hosting import measuring
from kbslurm.api.pages.page_files import Table, page_and_files
from kbslurm.api.pages.staff.board_forms import chosen_of, version_of
from kbslurm.api.pages.visitors import Visitors, to_login
from kbslurm.api.parameters import Name
from kbslurm.domain import access, contest
from kbslurm.domain.measure import Calibration
from kbslurm.domain.policy import Category
from kbslurm.errors import Invalid, NotFound
from kbslurm_eval.shared.wire import Mode, VerdictName

Words = Annotated[str, Query(max_length=contest.WHOM_CAP)]

SHADOWS = ("place", "gpu", "ratio", "low", "high", "pairs", "is_drift", "open", "without_score")
INVITATIONS = ("code", "user_name", "claimed_at", "created_at")
MATRIX, MOVES = ("before", "after", "runs"), ("gpu", "person", "submission", "before", "after", "before_s", "after_s",
                                              "percent")  # fmt: skip
ESTIMATE = ("gpu", "place", "runs", "gpu_s", "money", "cold_s", "warm_s")
RIVALS = ("place", "person", "submission", "before_s", "score_s", "low_s", "high_s", "verdict")
CALIBRATIONS = ("gpu", "b_ref_s", "at", "state", "reason")


def _of_rejudge(found: Mapping[str, Any] | None, cost: Mapping[str, Any] | None) -> dict[str, Table]:
    if found is None:
        return {"estimate": Table(columns=ESTIMATE, rows=cost["rows"])} if cost else {}
    moves = [{"gpu": one["gpu"], **move} for one in found["moves"] for move in one["moves"]]
    return {"moves": Table(columns=MOVES, rows=moves), "verdicts": Table(columns=MATRIX, rows=found["matrix"])}


def _of_finals(rows: Sequence[Mapping[str, Any]], calibrations: Mapping[str, Calibration]) -> dict[str, Table]:
    found = {
        f"{row['gpu']}-{state}": Table(columns=RIVALS, rows=map(_rival, row[state]["rivals"]))
        for row in rows
        for state in ("open", "applied")
        if row[state]
    }
    told = [{"gpu": gpu, **vars(one)} for gpu, one in calibrations.items()]
    return {**found, "calibrations": Table(columns=CALIBRATIONS, rows=told)}


def _rival(one: Mapping[str, Any]) -> dict[str, Any]:
    low, high = one["interval_s"] or (None, None)
    return {**one, "low_s": low, "high_s": high}


def staff_board_work_pages(router: APIRouter, context: Context, visitors: Visitors) -> None:
    @page_and_files(router, "/staff/board/{leaderboard}/rejudge")
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
            as_files=_of_rejudge(found, cost),
            board=held,
            found=found,
            cost=cost,
            why=why,
            wanted={**wanted, "version": version},
            verdicts=get_args(VerdictName),
            modes=get_args(Mode),
            versions=[one for one in work.problems() if one["name"] == held.problem_name],
        )

    @page_and_files(router, "/staff/board/{leaderboard}/finals")
    def finals(leaderboard: Name, request: Request) -> Response:
        """Each GPU type's final: ordered, measured, applied; and the form for another."""
        reader = visitors.who(request)
        if reader is None:
            return to_login(request)
        visitors.staff(reader)
        work = at_work(context, reader.name, reader)
        held = work.held(leaderboard)
        rows, calibrations = work.finals(held.name), context.store.calibrations.of_board(held)
        return visitors.page(
            request, "staff/finals.html", reader, board=held, rows=rows, usual=measuring.USUAL_TOP,
            as_files=_of_finals(rows, calibrations), calibrations=calibrations,
        )  # fmt: skip

    @page_and_files(router, "/staff/board/{leaderboard}/shadows")
    def shadows(leaderboard: Name, request: Request) -> Response:
        """Times at other places against those at home."""
        reader = visitors.who(request)
        if reader is None:
            return to_login(request)
        visitors.staff(reader)
        work = at_work(context, reader.name, reader)
        held = work.held(leaderboard)
        rows = work.shadows(held.name)["places"]
        plain = ({**row, **(row["drift"] or {})} for row in rows)
        files = {"shadows": Table(columns=SHADOWS, rows=plain)}
        return visitors.page(request, "staff/shadows.html", reader, as_files=files, board=held, rows=rows)

    @page_and_files(router, "/staff/board/{leaderboard}/entry")
    def entry(leaderboard: Name, request: Request) -> Response:
        """Who gets in by an invitation, who helps, and how much each person may submit."""
        reader = visitors.who(request)
        if reader is None:
            return to_login(request)
        visitors.staff(reader)
        work = at_work(context, reader.name, reader)
        held = work.held(leaderboard)
        invites = work.invites(held.name)
        return visitors.page(
            request,
            "staff/entry.html",
            reader,
            as_files={"invitations": Table(columns=INVITATIONS, rows=invites)},
            board=held,
            limits=work.limits(held.name),
            categories=get_args(Category),
            invites=invites,
            roles=work.board_roles(held.name),
            board_roles=access.BOARD_ROLES,
            made=(),
        )
