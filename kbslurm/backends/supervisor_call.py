"""How eval/supervise.sh is called where no job script of a site does it: for a trial in an image, and on a Ray node.

Standard library only: the service sends it to a Ray node with the harness.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

PROGRAMS = ("apptainer", "singularity")
# As in a job's script, what is read is evaluated; what it is told are words NAME=VALUE, its variables.
SCRIPT = r"""
umask 077
for told in "$@"; do eval "${told%%=*}=\${told#*=}"; done
export LC_ALL=C.UTF-8
mkdir -p "$DIR/claim" && SUPERVISOR=$(cat "$EVAL/supervise.sh") || exit 71
eval "$SUPERVISOR"
trap 'finish term 143 76' TERM INT HUP
set_up
supervise
"""
_NOTHING = ("SCRATCH_ROOT", "SCRATCH_NEEDS", "PINNED", "WHOLE", "PROFILER", "PROFILE")


def command(folder: Path, harness: Path, told: Mapping[str, str]) -> list[str]:
    """The argv that judges the attempt in this folder. `told`: the rest of the supervisor's variables, as its head
    lists them; JOB and NODE among them."""
    variables = {"DIR": str(folder), "EVAL": str(harness), **dict.fromkeys(_NOTHING, ""), "PYTHON": "python3", **told}
    return ["/bin/sh", "-c", SCRIPT, "kbslurm", *(f"{name}={value}" for name, value in variables.items())]
