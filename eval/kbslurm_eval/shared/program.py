"""The program itself: the folder that it lies in, and the digest that says which harness it is."""

from __future__ import annotations

import hashlib
from pathlib import Path

_FOLDER = Path(__file__).resolve().parents[2]


def eval_folder() -> str:
    """The folder that is the program."""
    return str(_FOLDER)


def harness_digest(folder: Path = _FOLDER) -> str:
    """sha256 over the sorted sources of the program in this folder, by default this one: its `__main__.py`, its
    package, a job's supervisor."""
    package = folder / "kbslurm_eval"
    told = hashlib.sha256()
    sources = sorted(package.rglob("*.py"), key=lambda p: p.relative_to(package).as_posix())
    main = folder / "__main__.py"
    for name, path in [
        ("__main__.py", main),
        *((f"kbslurm_eval/{p.relative_to(package).as_posix()}", p) for p in sources),
        ("supervise.sh", folder / "supervise.sh"),
    ]:
        if path.is_file():
            body = path.read_bytes()
            told.update(f"{name}\0{len(body)}\0".encode() + body)
    return told.hexdigest()
