"""The calls of popcorn-cli's `--profile-brev`, which profiles by a service of its own: ours, if that is where
`POPCORN_BREV_PROFILER_URL` points.

The client names no GPU type: it is what the file's `#!POPCORN gpu` line says, or all of the board's.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response
from starlette.concurrency import run_in_threadpool

from kbslurm.api import popcorn_submission, upload, waiting
from kbslurm.api.answers import Ascii, answers
from kbslurm.api.context import Context
from kbslurm.api.door import Door
from kbslurm.api.identity import Sender
from kbslurm.api.lookup import own
from kbslurm.api.parameters import Gpu
from kbslurm.api.routes.artifacts import BYTES, as_download, zipped
from kbslurm.api.routes.submitting import accepted
from kbslurm.contract.profiling import ProfileAccepted, ProfileJob
from kbslurm.domain import contest, profiles
from kbslurm.errors import Invalid, NotFound
from kbslurm.store.views import SubmissionView

STATUS = {"pending": "queued", "hacked": "failed"}
SPEC_SHOWN = 60

JobId = Annotated[int, Path(ge=0, le=2**63 - 1, description="The job's number, which is its submission's.")]
Index = Annotated[int, Path(ge=0, le=10_000, description="Which benchmark, from 0.")]


def routes(context: Context, histories: waiting.Histories) -> APIRouter:
    """The router of these calls."""
    router = APIRouter(tags=["popcorn"], route_class=Door)

    @router.post(
        "/profile",
        status_code=202,
        responses=answers(ProfileAccepted, 400, 401, 403, 404, 408, 413, 429, status=202),
        openapi_extra=upload.OPENAPI,
    )
    async def profile(request: Request, sender: Sender) -> Ascii:
        """Submit a file to be profiled, with the fields `leaderboard` and, for one benchmark, `benchmark_index`."""
        with context.metrics.submitting("profile"):
            sent = await upload.read(request)
            board, index = sent.fields.get("leaderboard") or None, _index(sent.fields.get("benchmark_index"))
            told = await run_in_threadpool(
                accepted, context, histories, sender, board, [], "profile", sent, None, index
            )
        number = told["details"]["id"]
        return Ascii({"job_id": str(number), "status": "queued", "submission_id": number}, status_code=202)

    @router.get("/jobs/{job_id}", responses=answers(ProfileJob, 400, 401, 403, 404))
    def job(job_id: JobId, sender: Sender) -> Ascii:
        """The state of one's own profile, its zips and its digests."""
        return Ascii(_told(context, histories, _profile(context, sender, job_id)))

    @router.get(
        "/jobs/{job_id}/artifacts/{gpu}/{index}",
        response_class=Response,
        responses={**answers(ProfileJob, 400, 401, 403, 404), **BYTES},
    )
    def zip_of(job_id: JobId, gpu: Gpu, index: Index, sender: Sender) -> Response:
        """All files of one benchmark's profile, as a zip."""
        view = _profile(context, sender, job_id)
        known = contest.known_gpu(gpu, tuple(run.gpu for run in view.runs))
        names = [name for name in _names(context, view, known) if _benchmark_of(name) == index]
        if not names:
            raise NotFound("profile of benchmark", str(index))
        files = {name: context.store.artifacts.read(view.id, known, name) for name in names}
        return as_download(zipped(files), _zip_name(view, known, index))

    return router


def _profile(context: Context, sender: Sender, number: int) -> SubmissionView:
    view = own(context, sender, number)
    if view.mode != "profile":
        raise NotFound("profile", str(number))
    return view


def _index(text: str | None) -> int | None:
    if text is None or not text.strip():
        return None
    if not re.fullmatch(r"[0-9]{1,5}", text.strip(), re.ASCII):
        raise Invalid(f"benchmark_index is {text[:40]!r}, which isn't a number", hint="0 is the first benchmark.")
    return int(text)


def _told(context: Context, histories: waiting.Histories, view: SubmissionView) -> dict[str, Any]:
    status = popcorn_submission.job_status(view)
    queue = None if view.is_done else waiting.of_submission(context, histories, view)
    details = [(run.gpu, run.verdict.detail if run.verdict else None) for run in view.runs]
    found = {
        (gpu, index): _zip_name(view, gpu, index)
        for gpu, _ in details
        for name in _names(context, view, gpu)
        if (index := _benchmark_of(name)) is not None
    }
    return {
        "job_id": str(view.id),
        "submission_id": view.id,
        "status": STATUS.get(status, status),
        "queue_position": None if queue is None else queue.get("queued_jobs"),
        "error": None if status in ("pending", "running", "succeeded") else popcorn_submission.report(view),
        "artifacts": [
            {"name": name, "url": f"/jobs/{view.id}/artifacts/{gpu}/{index}"} for (gpu, index), name in found.items()
        ],
        "digests": [{"gpu": gpu, **row} for gpu, detail in details for row in profiles.digests(detail)],
    }


def _names(context: Context, view: SubmissionView, gpu: str) -> list[str]:
    return [one.name for one in context.store.artifacts.of_submission(view.id) if one.gpu == gpu]


def _benchmark_of(name: str) -> int | None:
    found = re.match(r"benchmark-([0-9]{1,5})\.", name)
    return None if found is None else int(found.group(1))


def _zip_name(view: SubmissionView, gpu: str, index: int) -> str:
    """As the client's own service names them: it becomes a file where the client runs."""
    detail = next((run.verdict.detail for run in view.runs if run.gpu == gpu and run.verdict), None)
    spec = next((row["spec"] for row in profiles.digests(detail) if row["benchmark"] == index), "")
    plain = re.sub(r"[^A-Za-z0-9]+", "-", spec)[:SPEC_SHOWN].strip("-")
    return f"profile.{index}-{gpu}{'-' if plain else ''}{plain}.zip"
