"""What the service sends to a node that is about to start an attempt: the node program and the harness, as one zip."""

from __future__ import annotations

import functools
import io
import zipfile
from pathlib import Path

from kbslurm.flow.script import harness_files

_OURS = {
    "kbslurm/__init__.py": b"",
    "kbslurm/backends/__init__.py": b"",
    **{f"kbslurm/backends/{one}/__init__.py": b"" for one in ("github", "local", "ray")},
}
_PROGRAMS = (
    "github/runner_program.py",
    "local/supervise.py",
    "ray/calls.py",
    "ray/contained.py",
    "ray/leftovers.py",
    "ray/node_program.py",
    "supervisor_call.py",
)
_MADE_AT = (2020, 1, 1, 0, 0, 0)  # so that the same files are the same bytes


@functools.lru_cache(maxsize=4)
def kit(eval_dir: Path) -> bytes:
    """The zip; small, and the same for every attempt."""
    files = dict(_OURS)
    for name in _PROGRAMS:
        files[f"kbslurm/backends/{name}"] = (Path(__file__).parent.parent / name).read_bytes()
    for path in harness_files(eval_dir):
        files[f"eval/{path.relative_to(eval_dir).as_posix()}"] = path.read_bytes()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in sorted(files.items()):
            archive.writestr(zipfile.ZipInfo(name, _MADE_AT), data, zipfile.ZIP_DEFLATED)
    return packed.getvalue()


@functools.cache
def boot_text() -> str:
    """The program of an entrypoint, without its comments: Ray keeps it with each job."""
    text = Path(__file__).with_name("boot.py").read_text(encoding="utf-8")
    return text.partition('"""\n')[2].strip() + "\n"
