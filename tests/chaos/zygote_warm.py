"""As `zygote`, for daemons whose runs go into keepers: `python -m tests.chaos.zygote_warm URL ROOT`.

The site's Slurm is a folder (`standin_slurm.sh`); its jobs run keepers' and attempts' real scripts on this machine.
While ROOT/hold-AT exists, where AT is a step of a submission or a hand-over, a daemon that gets there says so by
ROOT/at-AT and waits.
"""

from __future__ import annotations

import shlex
import shutil
import sys
import threading
from pathlib import Path

from kbslurm.backends.slurm.backend import SlurmBackend
from kbslurm.config import shared_folders, sites
from kbslurm.domain.site import Site
from kbslurm.flow.place import Place
from kbslurm.flow.script import KEEPER, SUPERVISOR, keeper_writer, keepers_folder, script_writer
from kbslurm.observe.crash_points import crash_point
from tests.chaos.zygote import GPU, INSTANT, main, serve

STANDIN = Path(__file__).with_name("standin_slurm.sh")
TOOLS = ("sbatch", "srun", "squeue", "sacct", "scancel", "scontrol")
SITE = """\
name = "folder"
untrusted = false
ranked_min_isolation = 0
[paths]
shared_root = "{root}"
[container]
runtime = "none"
[slurm]
bin_dir = "{root}/bin"
[poll]
min_interval = 0
calls_per_minute = 100000
[gpus.{gpu}]
request = "--gres=gpu:1"
vendor = "none"
memory = "1G"
max_open = 5
[gpus.{gpu}.warm]
max = 3
idle = "10m"
life = "1h"
"""


def furnish(root: Path) -> None:
    """The site, its Slurm and the harness that is over at once, below `root`."""
    for folder in ("bin", "slurm/jobs", "slurm/names"):
        (root / folder).mkdir(parents=True)
    (root / "site.toml").write_text(SITE.format(root=root, gpu=GPU))
    for tool in TOOLS:
        program = root / "bin" / tool
        script = f'STANDIN={shlex.quote(f"{root}/slurm")} exec /bin/sh {shlex.quote(str(STANDIN))} {tool} "$@"'
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
    harness_at(root / "harness")


def harness_at(folder: Path, *, first: str = "") -> None:
    """The harness that is over at once, or has this to do first; the real scripts of attempts and keepers beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    program = f"{first}import runpy\nrunpy.run_path({str(INSTANT / '__main__.py')!r}, run_name='__main__')\n"
    (folder / "__main__.py").write_text(program)
    for script in (SUPERVISOR, KEEPER):
        shutil.copy(shared_folders.eval_dir() / script, folder / script)


def site_of(root: Path) -> Site:
    return sites.load(root / "site.toml")


def place(root: Path) -> Place:
    """The site as a daemon has it."""

    def step(name: str) -> None:
        hold, here = root / f"hold-{name}", root / f"at-{name}"
        while hold.exists():
            here.touch()
            threading.Event().wait(0.02)
        crash_point(f"slurm.{name}")

    site, templates, harness = site_of(root), shared_folders.path("sbatch_templates"), root / "harness"
    backend = SlurmBackend(site, eval_dir=harness, crash_point=step)
    return Place(
        backend=backend,
        root=backend.root,
        script=script_writer(site, templates=templates, eval_dir=harness),
        keepers_root=keepers_folder(site),
        keeper_script=keeper_writer(site, templates=templates, eval_dir=harness),
        warm={name: gpu.warm for name, gpu in site.gpus.items() if gpu.warm is not None},
        poll_s=0.2,
        grace_s=0.0,
        sweep_gap_s=0.1,
        patience_s=300.0,
    )


if __name__ == "__main__":
    at = Path(sys.argv[2])
    found = place(at)  # here: a daemon that isn't told to end before it listens to that
    main(lambda: serve(sys.argv[1], found, at / "daemon.log"))
