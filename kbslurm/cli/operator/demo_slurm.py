"""`kbslurm demo --slurm`: the same competition on a real Slurm with real Apptainer, started on this machine for it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from kbslurm.cli.operator.demo_script import say_next, script
from kbslurm.cli.output import printing
from kbslurm.errors import Misconfigured


def played_on_slurm(*, as_json: bool) -> int:
    """Start the test cluster, run the demo on its login node as an ordinary user, and stop the cluster again."""
    from kbslurm.config import shared_folders

    checkout = shared_folders.checkout()
    if checkout is None or not (up := checkout / "tests" / "cluster" / "up.py").is_file():
        raise Misconfigured(
            "--slurm needs a checkout: the wheel doesn't contain the cluster",
            fix="Clone kbslurm, then run: make demo-slurm",
        )
    if os.getuid() != 0:
        raise Misconfigured(
            "--slurm needs root: it creates a cluster in its own namespaces", fix="Run: sudo make demo-slurm"
        )
    with tempfile.TemporaryDirectory(prefix="kb-demo-slurm-") as place:
        code = _played(up, Path(place), as_json)
    if not as_json and code == 0:
        say_next(script().problem, again="demo --slurm")
    return code


def _played(up: Path, place: Path, as_json: bool) -> int:
    # what it prints there is for programs; what people read of it comes on stderr
    _call(up, "start", "--dir", str(place), "--with-pid", str(os.getpid()), "--json", stdout=subprocess.DEVNULL)
    if not as_json:
        printing.err().print(
            f"[dim]·[/] for a shell on its login node as long as this runs: {_shown(up)} shell --dir {place}"
        )
    try:
        site = "/kb/src/tests/cluster/site.toml"
        # what to try next applies to this machine, not to that login node
        command = ["kbslurm", "demo", "--once", "--no-next", "--site", site, *(["--json"] if as_json else [])]
        found = _call(up, "exec", "--dir", str(place), "--user", "kb", "--", *command, check=False)
        return found.returncode
    finally:
        _call(up, "stop", "--dir", str(place), check=False)


def _shown(up: Path) -> str:
    """How to call it from here."""
    return f"python3 {printing.path(up)}"


def _call(up: Path, *words: str, check: bool = True, stdout: int | None = None) -> subprocess.CompletedProcess[bytes]:
    found = subprocess.run([sys.executable, str(up), *words], check=False, stdout=stdout)
    if check and found.returncode:
        raise Misconfigured(
            f"the cluster couldn't be started (exit code {found.returncode})", fix="The output above says why."
        )
    return found
