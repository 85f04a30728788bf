"""The files of a zip that somebody sent: within limits, and none of them outside of it."""

from __future__ import annotations

import lzma
import stat
import zipfile
import zlib
from io import BytesIO
from pathlib import PurePosixPath

from kbslurm.errors import Invalid, TooLarge

STEP = 65_536


def contents(data: bytes, *, files_cap: int, bytes_cap: int, hint: str, outside: str) -> dict[str, bytes]:
    """Each file's bytes by its path, or Invalid; `hint` is for a zip that is too large, `outside` for one that points
    elsewhere."""
    try:
        with zipfile.ZipFile(BytesIO(data)) as packed:
            rows = [row for row in packed.infolist() if not row.is_dir() and not row.filename.startswith("__MACOSX/")]
            if len(rows) > files_cap:
                raise TooLarge(f"the zip has {len(rows)} files, over the limit of {files_cap}", hint=hint)
            if (size := sum(row.file_size for row in rows)) > bytes_cap:
                raise TooLarge(f"the zip unpacks to {size:,} bytes, over the limit of {bytes_cap:,}", hint=hint)
            return {_name(row, outside): _read(packed, row) for row in rows}
    # What the standard library raises for a faulty or hostile archive.
    except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, RuntimeError, NotImplementedError) as error:
        raise Invalid(f"the zip can't be read ({error})", hint="Pack it again, without a password.") from None
    except (OSError, ValueError) as error:
        raise Invalid(f"the zip can't be unpacked ({getattr(error, 'strerror', None) or error})") from None


def _read(packed: zipfile.ZipFile, row: zipfile.ZipInfo) -> bytes:
    """Unpack one file in small steps: reading it whole could unpack more than the zip declares."""
    if row.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise Invalid(f"{row.filename!r} uses an unsupported compression", hint="Pack it as an ordinary zip.")
    found = bytearray()
    with packed.open(row) as file:
        while piece := file.read(STEP):
            found += piece
    return bytes(found)


def _name(row: zipfile.ZipInfo, outside: str) -> str:
    name = PurePosixPath(row.filename)
    if name.is_absolute() or ".." in name.parts or "\\" in row.filename or "\0" in row.filename:
        raise Invalid(f"{row.filename!r} points outside the zip", hint=outside)
    if stat.S_IFMT(row.external_attr >> 16) not in (0, stat.S_IFREG):
        raise Invalid(f"{row.filename!r} isn't a regular file", hint="Pack the linked files instead of links.")
    return str(name)
