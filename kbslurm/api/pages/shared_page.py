"""Pages that look the same to everybody who isn't signed in: drawn once, compressed once, and sent only to whoever
hasn't got them yet."""

from __future__ import annotations

from typing import Protocol

from fastapi import Request
from fastapi.responses import HTMLResponse, Response

from kbslurm.api.pages.packing import PACKED, accepts_packed
from kbslurm.api.pages.rendering import HEADERS

# A browser or proxy may keep what everybody sees, if it asks each time whether that still holds.
FOR_EVERYBODY = {"Cache-Control": "no-cache", "Vary": "Cookie, Accept-Encoding"}


class SharedPage(Protocol):
    """The page as text and compressed, and what names this version of it."""

    @property
    def page(self) -> str: ...
    @property
    def packed(self) -> bytes: ...
    @property
    def etag(self) -> str: ...


def sent(request: Request, found: SharedPage) -> Response:
    """The page, or 304 where the reader has it."""
    # Weak: the same page, whether or not it is compressed.
    headers = {**HEADERS, **FOR_EVERYBODY, "ETag": f"W/{found.etag}"}
    if names_version(request.headers.get("if-none-match"), found.etag):
        return Response(status_code=304, headers=headers)
    if accepts_packed(request):
        return HTMLResponse(found.packed, headers={**headers, "Content-Encoding": PACKED})
    return HTMLResponse(found.page, headers=headers)


def names_version(wanted: str | None, etag: str) -> bool:
    """Whether If-None-Match names this version, as a weak one or not."""
    return wanted is not None and not {etag, "*"}.isdisjoint(
        one.strip().removeprefix("W/") for one in wanted.split(",")
    )
