"""The tools of `kbslurm mcp`: a person's own calls of the service, for their agent. The service holds all limits."""

from __future__ import annotations

import functools
import time
import uuid
from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, cast

import anyio
import anyio.from_thread
import anyio.to_thread
from mcp.server.fastmcp import Context, FastMCP
from mcp.server.fastmcp.exceptions import ToolError
from mcp.types import ToolAnnotations
from pydantic import Field

from kbslurm.cli.competitor import agent_answers
from kbslurm.cli.competitor.agent_answers import (
    BoardsTold,
    HistoryTold,
    ProblemTold,
    ProfileTold,
    SubmissionTold,
    TrialTold,
)
from kbslurm.cli.competitor.agent_trial import tried
from kbslurm.cli.competitor.connect import reached
from kbslurm.cli.service_in_use import InUse
from kbslurm.errors import Invalid, KbslurmError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kbslurm.client.answers import Accepted
    from kbslurm.client.http import Client

T = TypeVar("T")
Mode = Literal["test", "benchmark", "profile", "leaderboard"]
Tell = Callable[[str], None]
Told = Context[Any, Any, Any]

LOOK_S = 1.0
LONGEST_WAIT_S = 600.0
INSTRUCTIONS = """\
GPU kernel competitions. A board has a problem and GPU types; a submission is one source file that is judged on them.
Call `boards`, then `problem` for the task and a template. Submit in mode test until it passes, then benchmark for
times, profile for what limits it, and leaderboard to make it count. Every answer says under `next` what to try.
Submissions are marked as an agent's and count against the person's own limits, so think before each one; `try` judges
on this machine and costs nothing. Don't try to get around the judge: such submissions are refused, and hosts see them.
"""

BoardNamed = Annotated[str, Field(description="A board's name, as `boards` lists it.")]
Number = Annotated[int, Field(ge=1, description="A submission's number.")]
Source = Annotated[str, Field(description="The whole source file.")]
FileName = Annotated[str, Field(description="What the file is called; its ending says the language.")]
READS = ToolAnnotations(readOnlyHint=True, openWorldHint=False)
ACTS = ToolAnnotations(readOnlyHint=False, destructiveHint=False, idempotentHint=False, openWorldHint=False)


def server(service: InUse, **settings: Any) -> FastMCP:
    """The tools on this service, by the token that is kept for it."""
    found = FastMCP("kbslurm", instructions=INSTRUCTIONS, **settings)
    tools = Tools(service)
    for name, tool, hints in (
        ("boards", tools.boards, READS),
        ("problem", tools.problem, READS),
        ("try", tools.try_, ACTS),
        ("submit", tools.submit, ACTS),
        ("status", tools.status, READS),
        ("profile", tools.profile, READS),
        ("history", tools.history, READS),
    ):
        found.add_tool(tool, name=name, annotations=hints, structured_output=True)
    return found


class Tools:
    """Each is one call of the service, or one trial here. What goes wrong is one sentence, and what to do."""

    def __init__(self, service: InUse) -> None:
        self._service = service

    async def boards(self) -> BoardsTold:
        """List the boards: each with its problem, GPU types, and until when it takes submissions."""

        def act(client: Client) -> BoardsTold:
            rows = [agent_answers.board_told(row) for row in client.board_rows()]
            return BoardsTold(boards=rows, next=["Call problem with a board's name for its task and a template."])

        return await self._asked(act)

    async def problem(self, board: BoardNamed) -> ProblemTold:
        """A board's problem: the task, its public cases, time limits, and a template to begin with."""

        def act(client: Client) -> ProblemTold:
            known = client.board(board)
            return agent_answers.problem_told(next(row for row in client.board_rows() if row["id"] == known.id))

        return await self._asked(act)

    async def submit(
        self,
        context: Told,
        board: BoardNamed,
        source: Source,
        mode: Annotated[Mode, Field(description="Only leaderboard counts; the others are for trying out.")] = "test",
        gpus: Annotated[list[str] | None, Field(description="GPU types of the board; all of them if left out.")] = None,
        file_name: FileName = "submission.py",
        wait_s: Annotated[
            float, Field(ge=0, le=LONGEST_WAIT_S, description="Wait this long for the verdict before answering.")
        ] = 120.0,
    ) -> SubmissionTold:
        """Submit a kernel, and wait for its verdict. It counts against the person's own limits."""

        def act(client: Client, tell: Tell) -> SubmissionTold:
            taken = _submitted(client, board, gpus or [], mode, file_name, source)
            until = time.monotonic() + wait_s
            while True:
                told = client.full_submission(taken.submission_id)
                left_s = until - time.monotonic()
                if told["submission"]["done"] or left_s <= 0:
                    return agent_answers.submission_told(told, client)
                tell(str(told["message"]))
                time.sleep(min(LOOK_S, left_s))

        return await self._asked(act, context)

    async def status(self, submission: Number) -> SubmissionTold:
        """A submission's verdicts by GPU type: the reason, failed public cases, times, and what to try next."""
        return await self._asked(
            lambda client: agent_answers.submission_told(client.full_submission(submission), client)
        )

    async def profile(self, submission: Number) -> ProfileTold:
        """What limits a kernel that was submitted in mode profile: by how much, what to try, and its kernels."""

        def act(client: Client) -> ProfileTold:
            told = client.full_submission(submission)
            mode = told["submission"]["mode"]
            if mode != "profile":
                raise Invalid(f"submission {submission} is a {mode}, not a profile", hint="Submit it in mode profile.")
            files = [f"{one.gpu} {one.name} ({one.size} bytes)" for one in client.artifacts(submission)]
            return agent_answers.profile_told(told, files)

        return await self._asked(act)

    async def history(
        self,
        board: Annotated[str | None, Field(description="Only this board.")] = None,
        limit: Annotated[int, Field(ge=1, le=100)] = 20,
    ) -> HistoryTold:
        """The person's own submissions, newest first, whoever made them, with the scores that rank."""
        return await self._asked(lambda client: agent_answers.history_told(client.submission_rows(board, limit=limit)))

    async def try_(
        self,
        context: Told,
        problem: Annotated[str, Field(description="A problem's folder on this machine, or its one reference file.")],
        source: Source,
        mode: Annotated[Mode, Field(description="leaderboard runs everything.")] = "test",
        file_name: FileName = "submission.py",
    ) -> TrialTold:
        """Judge a kernel on this machine, as the competition would. Nothing is submitted, and no limit counts."""
        return await _in_thread(functools.partial(tried, problem, source, mode, file_name), context)

    async def _asked(self, act: Callable[..., T], context: Told | None = None) -> T:
        def asked(tell: Tell) -> T:
            with reached(self._service.url, self._service.token) as client:
                return act(client) if context is None else act(client, tell)

        return await _in_thread(asked, context)


def _submitted(client: Client, board: str, gpus: list[str], mode: Mode, file_name: str, source: str) -> Accepted:
    """Submit it once, also if an answer is lost on the way."""
    from kbslurm.client.errors import ServerGone

    key = uuid.uuid4().hex
    for wait_s in (1.0, 4.0):
        try:
            return client.submit_to_many(board, gpus, mode, file_name, source.encode(), key=key, by_agent=True)
        except ServerGone:
            time.sleep(wait_s)
    return client.submit_to_many(board, gpus, mode, file_name, source.encode(), key=key, by_agent=True)


async def _in_thread(act: Callable[[Tell], T], context: Told | None) -> T:
    """The answer, without holding up other calls; an expected error as a sentence for the agent."""
    count = 0

    def tell(words: str) -> None:
        nonlocal count
        if context is not None:
            count += 1
            anyio.from_thread.run(context.report_progress, count, None, words)

    try:
        return cast("T", await anyio.to_thread.run_sync(act, tell))
    except KbslurmError as error:
        raise ToolError(f"{error.message}. {error.hint}" if error.hint else error.message) from None


@contextmanager
def quiet() -> Iterator[None]:
    """The library logs every request; an agent's host shows such lines as errors."""
    import logging

    loggers = [logging.getLogger(name) for name in ("mcp", "uvicorn", "httpx")]
    before = [one.level for one in loggers]
    for one in loggers:
        one.setLevel(logging.WARNING)
    try:
        yield
    finally:
        for one, level in zip(loggers, before, strict=True):
            one.setLevel(level)
