"""A trial inside an Apptainer image: what a job on a cluster runs, on this machine and without Slurm."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from kbslurm.backends import supervisor_call
from kbslurm.backends.paths import AttemptPaths, read_capped
from kbslurm.backends.supervisor_exit import Exit, exit_in
from kbslurm.domain import profiler as profilers
from kbslurm.domain.apptainer import VENDOR_OPTIONS, hardened, quoted
from kbslurm.domain.site import Profiler, Vendor
from kbslurm.errors import Invalid, Misconfigured
from kbslurm_eval.shared import remove_tree

SCRATCH_MB = 2048
EXIT_CAP = 65_536
SCRIPT_CAP = 32  # a process's number


@dataclass(frozen=True, kw_only=True)
class TrialImage:
    """The image that judge and runners run in, and the program that runs it."""

    path: Path
    program: str

    def command(self, paths: AttemptPaths, eval_dir: Path, limit_s: float, profiler: str | None) -> list[str]:
        """The argv that does in it what a job does."""
        vendor = _vendor()
        told = {
            "JOB": str(os.getpid()),
            "NODE": platform.node(),
            "IMAGE": str(self.path),
            "RUNTIME": Path(self.program).name,
            "CONTAINER": " ".join(map(quoted, hardened(self.program, "none"))),
            "VENDOR": vendor,
            "GPU_OPTION": " ".join(VENDOR_OPTIONS[vendor]),
            "LIMIT_S": str(max(1, round(limit_s))),
            "SHM_ROOT": _memory(),
            "SCRATCH_MB": str(SCRATCH_MB),
        }
        if profiler:
            told |= {"PROFILER": profiler, "PROFILE": " ".join(profilers.around(_profiler(profiler), "/link"))}
        return supervisor_call.command(paths.dir, eval_dir, told)

    def clear(self) -> None:
        """Remove what the supervisor has in memory if it was killed, as at ^C; the next one would do so, too."""
        for folder in remove_tree.leftovers(Path(_memory())):
            with contextlib.suppress(OSError, ValueError):
                if not Path(f"/proc/{int(read_capped(folder / 'script', SCRIPT_CAP) or b'')}").exists():
                    remove_tree.remove(folder)


def image_at(place: Path) -> TrialImage:
    """The image at this place. Invalid if none is there, Misconfigured if nothing here can run it."""
    if not place.exists():
        raise Invalid(f"there is no image {place}", hint="--image takes a .sif file, or an image's directory.")
    program = next((found for name in supervisor_call.PROGRAMS if (found := shutil.which(name))), None)
    if program is None:
        raise Misconfigured(
            "--image needs Apptainer, and this machine has none",
            fix="Install Apptainer (or SingularityCE), or leave out --image: then this Python judges.",
        )
    return TrialImage(path=place.resolve(), program=program)


def left_by(paths: AttemptPaths) -> Exit | None:
    """What the supervisor says of its end where no report came; None if it says nothing."""
    try:
        told = json.loads(read_capped(paths.dir / AttemptPaths.EXIT, EXIT_CAP) or b"")
    except ValueError:
        return None
    return exit_in(told, None) if isinstance(told, dict) else None


def _vendor() -> Vendor:
    """Whose GPUs this machine has."""
    if Path("/dev/nvidiactl").exists():
        return "nvidia"
    return "amd" if Path("/dev/kfd").exists() else "none"


def _profiler(name: str) -> Profiler:
    return "rocprof" if name == "rocprof" else "ncu"


def _memory() -> str:
    """Where the supervisor makes a folder of its own, in memory where there is some."""
    memory = "/dev/shm"  # noqa: S108 - the name of that folder can't be guessed
    return memory if os.access(memory, os.W_OK | os.X_OK) else tempfile.gettempdir()
