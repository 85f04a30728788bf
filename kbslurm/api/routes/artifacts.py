"""A profile's files as bytes, for the submission's author and for hosts.

They were made where the submission ran and may be anything. So they are only offered as downloads, under the judge's
names, with every header that tells a browser not to show or run them.
"""

from __future__ import annotations

import base64
import io
import re
import zipfile
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Path, Response

from kbslurm.api import identity
from kbslurm.api.answers import Ascii, answers
from kbslurm.api.context import Context
from kbslurm.api.door import Door
from kbslurm.api.identity import Sender
from kbslurm.api.lookup import own
from kbslurm.api.parameters import Gpu, Number
from kbslurm.contract.artifacts import Artifacts
from kbslurm.domain import contest
from kbslurm.domain.run import SubmissionId
from kbslurm.errors import NotFound
from kbslurm.store.views import ArtifactView, RunView, SubmissionView

ZIP_CAP = 6 << 20
BYTES: dict[int | str, dict[str, Any]] = {
    200: {"description": "The file, as a download.", "content": {"application/octet-stream": {}}}
}
FileName = Annotated[str, Path(max_length=64, description="The file's name, as listed.")]


def routes(context: Context) -> APIRouter:
    """The router of these calls."""
    router = APIRouter(route_class=Door)

    @router.get(
        "/user/submissions/{submission_id}/artifacts",
        tags=["popcorn"],
        responses=answers(Artifacts, 400, 401, 403, 404),
    )
    def listed(submission_id: Number, sender: Sender) -> Ascii:
        """The files of one's own profile that are still stored."""
        return Ascii(_told(context, own(context, sender, submission_id), "user"))

    @router.get(
        "/user/submissions/{submission_id}/artifacts/{gpu}/{name}",
        tags=["popcorn"],
        response_class=Response,
        responses={**answers(Artifacts, 400, 401, 403, 404), **BYTES},
    )
    def fetched(submission_id: Number, gpu: Gpu, name: FileName, sender: Sender) -> Response:
        """One of these files, as a download."""
        return download(context, own(context, sender, submission_id), gpu, name)

    @router.get(
        "/admin/submissions/{submission_id}/artifacts",
        tags=["hosts"],
        responses=answers(Artifacts, 401, 404),
    )
    def hosts_listed(submission_id: Number, sender: Sender) -> Ascii:
        """The files of anyone's profile."""
        identity.host(context, sender)
        return Ascii(_told(context, context.store.submissions.get(SubmissionId(submission_id)), "admin"))

    @router.get(
        "/admin/submissions/{submission_id}/artifacts/{gpu}/{name}",
        tags=["hosts"],
        response_class=Response,
        responses={**answers(Artifacts, 401, 404), **BYTES},
    )
    def hosts_fetched(submission_id: Number, gpu: Gpu, name: FileName, sender: Sender) -> Response:
        """One of these files, as a download. A competitor made it, so open it with care."""
        identity.host(context, sender)
        return download(context, context.store.submissions.get(SubmissionId(submission_id)), gpu, name)

    return router


def path_of(view: SubmissionView, found: ArtifactView | None = None, *, side: str = "user") -> str:
    """The URL of one file, or of the list."""
    base = f"/{side}/submissions/{view.id}/artifacts"
    return base if found is None else f"{base}/{found.gpu}/{found.name}"


def popcorn_profile(context: Context, view: SubmissionView, run: RunView) -> dict[str, Any] | None:
    """A run's profile in popcorn's format: the files as one zip in base64, and the URL for downloading them singly."""
    found = [one for one in context.store.artifacts.of_submission(view.id) if one.gpu == run.gpu]
    if not found:
        return None
    chosen, room = [], ZIP_CAP
    for one in sorted(found, key=lambda one: one.size):  # tables first, then as many traces as fit
        if one.size <= room:
            chosen.append(one)
            room -= one.size
    files = {one.name: context.store.artifacts.read(view.id, run.gpu, one.name) for one in chosen}
    return {
        "profiler": profiler_of([one.name for one in found]),
        "trace": base64.b64encode(zipped(files)).decode("ascii"),
        "download_url": path_of(view),
    }


def profiler_of(names: list[str]) -> str:
    """The program that made them, by the judge's file names."""
    known = {"trace.json.gz": "torch", "functions.json": "cProfile", "ncu-rep": "Nsight Compute",
             "kernel_stats.csv": "rocprofv3"}  # fmt: skip
    used = [tool for end, tool in known.items() if any(name.endswith(end) for name in names)]
    return ", ".join(used) or "none"


def zipped(files: Mapping[str, bytes]) -> bytes:
    """All files in one zip; the same files always give the same bytes."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(files):
            archive.writestr(zipfile.ZipInfo(name), files[name], compress_type=zipfile.ZIP_DEFLATED)
    return out.getvalue()


def _told(context: Context, view: SubmissionView, side: str) -> dict[str, Any]:
    found = context.store.artifacts.of_submission(view.id)
    rows = [
        {"gpu": one.gpu, "name": one.name, "size": one.size, "at": one.at.isoformat(),
         "url": path_of(view, one, side=side)}
        for one in found
    ]  # fmt: skip
    return {"status": "ok", "submission_id": view.id, "artifacts": rows}


def download(context: Context, view: SubmissionView, gpu: str, name: str) -> Response:
    """One of a submission's files as bytes that no browser displays."""
    known = contest.known_gpu(gpu, tuple(run.gpu for run in view.runs))
    if not re.fullmatch(r"[a-z0-9][a-z0-9._-]{0,63}", name):
        raise NotFound("artifact", name)
    return as_download(context.store.artifacts.read(view.id, known, name), f"{view.id}-{known}-{name}")


def as_download(data: bytes, file_name: str) -> Response:
    """Bytes that no browser displays."""
    return Response(
        data,
        media_type="application/octet-stream",
        headers={
            "Content-Disposition": f'attachment; filename="{file_name}"',
            "X-Content-Type-Options": "nosniff",
            "Content-Security-Policy": "sandbox; default-src 'none'",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Cache-Control": "private, no-store",
        },
    )
