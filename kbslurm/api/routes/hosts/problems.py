"""Hosts' calls about problems."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from starlette.concurrency import run_in_threadpool

from kbslurm.api import upload, waiting
from kbslurm.api.answers import Ascii, answers
from kbslurm.api.context import Context
from kbslurm.api.host_lookup import HOSTS_FAILURES, hosting
from kbslurm.api.identity import Sender
from kbslurm.api.parameters import Entry
from kbslurm.contract.problems import ProblemAdded, Problems, ProblemShown
from kbslurm.domain import contest
from kbslurm.domain.problem import Problem
from kbslurm.problems import upload as problem_upload

ProblemName = Annotated[str, Path(max_length=contest.NAME_CAP, description="A problem's name, in any case.")]


@dataclass(frozen=True)
class Uploaded:
    """A problem that was unpacked from an upload and loaded."""

    problem: Problem


def checked_name(text: str) -> str:
    """A problem's name as it is written, or Invalid where no board could be called so."""
    contest.board_name(text)
    return text.strip()


def add_problems(router: APIRouter, context: Context, histories: waiting.Histories) -> None:
    @router.get("/problems", responses=answers(Problems, 401))
    def problems(sender: Sender) -> Ascii:
        """Every version of every problem."""
        return Ascii({"problems": hosting(context, sender).problems()})

    @router.get("/problems/{problem}", responses=answers(ProblemShown, *HOSTS_FAILURES))
    def problem(problem: ProblemName, sender: Sender) -> Ascii:
        """The newest version of a problem. Hidden cases are counted, not shown."""
        return Ascii(hosting(context, sender).problem(problem))

    @router.post("/problems", responses=answers(ProblemAdded, 400, 401, 408, 413), openapi_extra=upload.OPENAPI)
    async def add(
        request: Request,
        sender: Sender,
        name: Annotated[str, Query(max_length=contest.NAME_CAP)],
        entry: Entry = None,
    ) -> Ascii:
        """Add a problem, or a new version of it: a zip of its folder, or one reference file."""
        sent = await upload.read(request)

        def added() -> Ascii:
            host = hosting(context, sender)
            loaded = problem_upload.loaded(sent.file_name, sent.data, name=checked_name(name), entry=entry)
            return Ascii(host.add_problem(Uploaded(loaded)))

        return await run_in_threadpool(added)
