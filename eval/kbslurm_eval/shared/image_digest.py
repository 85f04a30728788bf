"""What an image is: a digest over its bytes, taken where it lies. The service and a job on its node take the same one.

`sha256:…` of a SIF file; `tree:…` of a directory, a sha256 over its sorted manifest: names, kinds, executable bits,
contents, links. Owners and times make no difference.
"""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

# The exit status that says so: a job asks once, not again until the image changes.
UNREADABLE = 77


def digest_of(image: Path) -> str:
    """The digest of a SIF file or of a directory image. OSError where something of it can't be read."""
    if image.is_dir():
        return f"tree:{_digest_of_tree(image)}"
    with image.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


def _digest_of_tree(root: Path) -> str:
    manifest = hashlib.sha256()
    for path in _walk(root):
        looks = path.lstat()
        name = path.relative_to(root).as_posix().encode(errors="surrogateescape")
        manifest.update(b"%s\0%s\0" % (name, _content(path, looks)))
    return manifest.hexdigest()


def _walk(root: Path) -> list[Path]:
    found = []
    for folder, folders, files in os.walk(root, followlinks=False, onerror=_raised):
        found += [Path(folder) / name for name in (*folders, *files)]
    return sorted(found, key=lambda path: os.fsencode(path.relative_to(root)))


def _raised(error: OSError) -> None:
    raise error


def _content(path: Path, looks: os.stat_result) -> bytes:
    """What of one file makes a difference."""
    if stat.S_ISLNK(looks.st_mode):
        return b"l" + os.fsencode(path.readlink())
    if stat.S_ISDIR(looks.st_mode):
        return b"d"
    if not stat.S_ISREG(looks.st_mode):
        return b"o" + oct(stat.S_IFMT(looks.st_mode)).encode()
    with path.open("rb") as file:
        return (b"x" if looks.st_mode & 0o111 else b"f") + hashlib.file_digest(file, "sha256").digest()
