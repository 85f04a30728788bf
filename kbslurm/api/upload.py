"""The single file of an upload."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field

from fastapi import Request
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from kbslurm.domain.source import SOURCE_CAP
from kbslurm.errors import Invalid

PART = "file"
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


@dataclass(frozen=True, kw_only=True)
class Upload:
    """The uploaded file, and the form's other fields."""

    file_name: str
    data: bytes
    fields: Mapping[str, str] = field(default_factory=dict)


async def read(request: Request) -> Upload:
    """The file, or Invalid. Its size has been limited by the call's cap (see `calls`)."""
    body = await request.body()
    if not request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        raise Invalid("the upload isn't multipart/form-data", hint="Send one part, `file`, with a file name.")
    return await _parsed(request, body)


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
        fields = {name: value for name, value in form.items() if isinstance(value, str)}
        return Upload(file_name=part.filename, data=await part.read(), fields=fields)
    finally:
        for file in parser._files_to_close_on_error:  # the form doesn't have those of parts that never end
            file.close()
