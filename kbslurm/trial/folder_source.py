"""A folder's files as one submission."""

from __future__ import annotations

import os
from pathlib import Path

from kbslurm.domain.source import FILES_CAP, ONLY_TEXT, SOURCE_CAP, Source, bundled
from kbslurm.errors import Invalid, TooLarge

SEEN_CAP = 16 * FILES_CAP


def folder_source(folder: Path, entry: str | None = None) -> Source:
    """The source that this folder is, or Invalid. Hidden files and what tools leave behind aren't read."""
    found: dict[str, bytes] = {}
    try:
        for place, folders, names in os.walk(folder):
            folders[:] = sorted(name for name in folders if not name.startswith((".", "__")))
            for name in sorted(names):
                file = Path(place) / name
                if name.startswith("."):
                    continue
                if file.is_symlink() or not file.is_file():
                    raise Invalid(f"{file} isn't a regular file", hint="Put the file itself there, not a link.")
                if len(found) >= SEEN_CAP:
                    raise TooLarge(f"{folder} has more than {SEEN_CAP} files", hint=ONLY_TEXT)
                with file.open("rb") as stream:
                    found[file.relative_to(folder).as_posix()] = stream.read(SOURCE_CAP + 1)
    except OSError as error:
        raise Invalid(f"{folder} can't be read: {error.strerror or error}", hint="Check its permissions.") from None
    # the folder's own subfolders count: the file that is called is at its top
    return bundled(found, entry)
