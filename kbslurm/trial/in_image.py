"""A trial inside an Apptainer image: what a job on a cluster runs, on this machine and without Slurm."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from kbslurm.backends.paths import AttemptPaths, read_capped
from kbslurm.domain import profiler as profilers
from kbslurm.domain.apptainer import VENDOR_OPTIONS, hardened, quoted
from kbslurm.domain.site import Profiler, Vendor
from kbslurm.errors import Invalid, Misconfigured
from kbslurm_eval.shared import remove_tree

PROGRAMS = ("apptainer", "singularity")
SCRATCH_MB = 2048
EXIT_CAP = 65_536
# What a job's script tells the supervisor, which is read and evaluated as there.
SCRIPT = r"""
umask 077
DIR=$1 EVAL=$2 IMAGE=$3 RUNTIME=$4 CONTAINER=$5 VENDOR=$6 GPU_OPTION=$7 LIMIT_S=$8
shift 8
SHM_ROOT=$1 SCRATCH_MB=$2 PROFILER=$3 PROFILE=$4
JOB=$$ NODE=$(uname -n) SCRATCH_ROOT='' SCRATCH_NEEDS='' PINNED='' WHOLE='' PYTHON=python3
export LC_ALL=C.UTF-8
mkdir "$DIR/claim" && SUPERVISOR=$(cat "$EVAL/supervise.sh") || exit 71
eval "$SUPERVISOR"
trap 'finish term 143 76' TERM INT HUP
set_up
supervise
"""


@dataclass(frozen=True, kw_only=True)
class TrialImage:
    """The image that judge and runners run in, and the program that runs it."""

    path: Path
    program: str

    def command(self, paths: AttemptPaths, eval_dir: Path, limit_s: float, profiler: str | None) -> list[str]:
        """The argv that does in it what a job does."""
        vendor = _vendor()
        told = [
            *(str(paths.dir), str(eval_dir), str(self.path), Path(self.program).name),
            " ".join(map(quoted, hardened(self.program, "none"))),
            *(vendor, " ".join(VENDOR_OPTIONS[vendor]), str(max(1, round(limit_s))), _memory(), str(SCRATCH_MB)),
            *((profiler, " ".join(profilers.around(_profiler(profiler), "/link"))) if profiler else ("", "")),
        ]
        return ["/bin/sh", "-c", SCRIPT, "trial", *told]

    def clear(self) -> None:
        """Remove what the supervisor has in memory if it was killed, as at ^C; the next one would do so, too."""
        for told in Path(_memory()).glob("kb-*/script"):
            with contextlib.suppress(OSError, ValueError):
                if told.parent.stat().st_uid == os.getuid() and not Path(f"/proc/{int(told.read_text())}").exists():
                    remove_tree.remove(told.parent)


def image_at(place: Path) -> TrialImage:
    """The image at this place. Invalid if none is there, Misconfigured if nothing here can run it."""
    if not place.exists():
        raise Invalid(f"there is no image {place}", hint="--image takes a .sif file, or an image's directory.")
    program = next((found for name in PROGRAMS if (found := shutil.which(name))), None)
    if program is None:
        raise Misconfigured(
            "--image needs Apptainer, and this machine has none",
            fix="Install Apptainer (or SingularityCE), or leave out --image: then this Python judges.",
        )
    return TrialImage(path=place.resolve(), program=program)


def why_it_ended(paths: AttemptPaths) -> str | None:
    """What the supervisor says of its end where no report came; None if it says nothing."""
    try:
        told = json.loads(read_capped(paths.dir / AttemptPaths.EXIT, EXIT_CAP) or b"")
        return str(told["why"]) or None
    except (ValueError, KeyError, TypeError):
        return None


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
