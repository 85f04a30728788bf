"""Whether what isn't a problem here is one of a collection that can be imported, as far as its text shows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from kbslurm.problems.fields import FILE_CAP

FILES_READ = 20
_SIGNS = {  # of a file's text, all of them
    ("kernelbench", ".py"): (r"^class Model\b", r"^def get_inputs\("),
    ("reference-kernels", ".py"): (r"^def generate_inputs\(", r"^def reference_forward\("),
    ("tritonbench", ".py"): (r"^#{100,}[ \t]*$", r"^(?:@triton\b|import triton\b|import torch\b)"),
    ("flashinfer-bench", ".json"): (r'"axes"\s*:', r'"reference"\s*:', r'"outputs"\s*:'),
}


def hint(place: Path) -> str:
    """What to do with this file, or with this folder's own; empty if it looks like no collection's."""
    for file in _files(place):
        try:
            with file.open(encoding="utf-8", errors="replace") as stream:
                text = stream.read(FILE_CAP)
        except OSError:
            continue
        for (collection, suffix), signs in _SIGNS.items():
            if file.suffix == suffix and all(re.search(sign, text, re.MULTILINE) for sign in signs):
                return (
                    f"{file.name} looks like a problem of {collection}, whose directory is imported:"
                    f" kbslurm problem import {collection} DIRECTORY."
                )
    return ""


def _files(place: Path) -> Iterator[Path]:
    if place.suffix in (".yml", ".yaml"):
        place = place.parent
    try:
        found = sorted(place.iterdir()) if place.is_dir() else [place]
    except OSError:
        return
    yield from [one for one in found if one.suffix in (".py", ".json") and one.is_file()][:FILES_READ]
