"""The single file of an upload: always read to its end, with a cap, so that a refusal reaches the client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass

from fastapi import Request
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from kbslurm.domain.source import SOURCE_CAP
from kbslurm.errors import Invalid, TooLarge

FRAME_CAP = 16_384
DRAIN_CAP = 32 << 20
PATIENCE_S = 60.0
PART = "file"
SOURCES_ONLY = "Submit source text, not data or binaries."
OPENAPI = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": [PART],
                    "properties": {PART: {"type": "string", "format": "binary"}},
                }
            }
        },
    }
}


class TooSlow(Invalid):
    """The upload was too slow."""

    http_status = 408


@dataclass(frozen=True, kw_only=True)
class Upload:
    """The uploaded file."""

    file_name: str
    data: bytes


async def read(request: Request, *, cap: int = SOURCE_CAP, hint: str = SOURCES_ONLY) -> Upload:
    """The file, or Invalid; at most `cap` bytes. It is read to its end first, since some clients lose an answer that
    comes earlier."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            body = await _body(request, cap, hint)
    except TimeoutError:
        raise TooSlow("the upload was too slow", hint="Check your connection and try again.") from None
    if not request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        raise Invalid("the upload isn't multipart/form-data", hint="Send one part, `file`, with a file name.")
    return await _parsed(request, body)


async def _body(request: Request, most: int, hint: str) -> bytes:
    cap = most + FRAME_CAP
    found = bytearray()
    size = 0
    async for piece in request.stream():
        size += len(piece)
        if size <= cap:
            found += piece
        elif size > DRAIN_CAP:
            break
    if size > cap:
        raise TooLarge(f"the upload is larger than {most:,} bytes", hint=hint)
    return bytes(found)


async def _parsed(request: Request, body: bytes) -> Upload:
    async def once() -> AsyncGenerator[bytes, None]:
        yield body

    parser = MultiPartParser(request.headers, once(), max_files=1, max_fields=8, max_part_size=SOURCE_CAP + 1)
    try:
        form = await parser.parse()
    except (MultiPartException, KeyError, UnicodeDecodeError, LookupError) as error:
        said = (getattr(error, "message", "") or "it can't be read").rstrip(".")
        raise Invalid(
            f"the upload isn't a single file: {said}", hint="Send one part, `file`, with a file name."
        ) from None
    try:
        part = form.get(PART)
        if not isinstance(part, UploadFile) or not part.filename:
            raise Invalid("the upload has no part `file` with a file name")
        return Upload(file_name=part.filename, data=await part.read())
    finally:
        for file in parser._files_to_close_on_error:  # the form doesn't have those of parts that never end
            file.close()
