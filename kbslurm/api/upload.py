"""The single file of an upload, or the files of a form."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field

from fastapi import Request
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from kbslurm.domain.source import FILES_CAP, SOURCE_CAP
from kbslurm.errors import Invalid

PART = "file"
TYPED_CAP = 2 * SOURCE_CAP + 1  # bytes of a field; what is in it is measured once its lines end as in a file
FIELDS = 12 + FILES_CAP  # of a form, beside its files: each file of a submission may be written in one
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


@dataclass(frozen=True, kw_only=True)
class FormFiles:
    """The files of a form by name, as the browser sent them, and its other fields."""

    files: Mapping[str, bytes]
    fields: Mapping[str, str]


async def read(request: Request) -> Upload:
    """The file, or Invalid. Its size has been limited by the call's cap (see `calls`)."""
    found = await _parsed(request, most=1, fields=8, hint="Send one part, `file`, with a file name.")
    if not found.files:
        raise Invalid("the upload has no part `file` with a file name")
    ((name, data),) = found.files.items()
    return Upload(file_name=name, data=data, fields=found.fields)


async def read_form(request: Request) -> FormFiles:
    """All files of a form, or Invalid; none if none was chosen. Their size has been limited likewise."""
    return await _parsed(request, most=FILES_CAP, fields=FIELDS, hint="Choose one file, several, or a zip of them.")


async def _parsed(request: Request, *, most: int, fields: int, hint: str) -> FormFiles:
    body = await request.body()
    if not request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        raise Invalid("the upload isn't multipart/form-data", hint=hint)

    async def once() -> AsyncGenerator[bytes, None]:
        yield body

    parser = MultiPartParser(request.headers, once(), max_files=most, max_fields=fields, max_part_size=TYPED_CAP)
    try:
        form = await parser.parse()
    except (MultiPartException, KeyError, UnicodeDecodeError, LookupError) as error:
        said = (getattr(error, "message", "") or "it can't be read").rstrip(".")
        what = "a single file" if most == 1 else f"at most {most} files"
        raise Invalid(f"the upload isn't {what}: {said}", hint=hint) from None
    try:
        files: dict[str, bytes] = {}
        for part in form.getlist(PART):
            if isinstance(part, UploadFile) and part.filename:
                if part.filename in files:
                    raise Invalid(
                        f"two files are called {part.filename[:80]!r}", hint="Put them into folders of a zip."
                    )
                files[part.filename] = await part.read()
        return FormFiles(files=files, fields={name: value for name, value in form.items() if isinstance(value, str)})
    finally:
        for file in parser._files_to_close_on_error:  # the form doesn't have those of parts that never end
            file.close()
