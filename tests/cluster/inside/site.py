"""The test cluster as a site, and the Backend contract's case on it."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from kbslurm.backends.paths import AttemptPaths
from kbslurm.backends.slurm.backend import SlurmBackend
from kbslurm.config import shared_folders, sites
from kbslurm.domain.run import InKeeper, JobName
from kbslurm.domain.site import Site
from kbslurm.flow.script import harness_folder, script_for, supervisor_digest
from kbslurm.ports import JobSpec
from tests.cluster.conf_slurm import REST_SOCKET
from tests.cluster.run_inside import PACE, RUNTIME, VIA
from tests.contract.backend_suite import REPOSITORY

SITE = """\
name = "test"
untrusted = {untrusted}
ranked_min_isolation = {isolation}
start = "{start}"
python = "/usr/bin/python3"

[paths]
shared_root = "{root}"
image_dir = "/opt/kb/images"
{delay}

[container]
runtime = "{runtime}"

[slurm]
accounting = {accounting}
submit_timeout = 60

{poll}
[gpus.H100]
request = "--gres=gpu:h100:1"
partition = "gpu-h100"
vendor = "none"
image = "cpu"
memory = "{memory}"
count = 6
{more}
[gpus.A100]
request = "--gpus=a100:1"
partition = "gpu-a100"
vendor = "none"
image = "cpu.sif"
memory = "2G"
count = 6
"""


QUICK_POLL = """\
[poll]
min_interval = 0.1
calls_per_minute = 60000
"""


REST = f"""
[submit]
via = "rest"
url = "unix:{REST_SOCKET}"
token_command = "scontrol token lifespan=3600"
"""


LASTING_S = 7200

SSH = """
[submit]
via = "ssh"
host = "localhost"
user = "kb"
identity = "/home/kb/.ssh/id_ed25519"
known_hosts = "/home/kb/.ssh/known_hosts"
"""


def at_default_pace() -> bool:
    """Whether the walks go at the pace that an admin starts with, in real time: `make test-faults`."""
    return os.environ.get(PACE) == "default"


def site_text(
    root: Path,
    *,
    runtime: str = "",
    accounting: bool = True,
    memory: str = "2G",
    start: str = "60s",
    more: str = "",
    isolation: int | None = None,
) -> str:
    """The TOML of the test cluster with its folder at `root`."""
    runtime = runtime or os.environ.get(RUNTIME) or "apptainer"
    bare = runtime == "none"
    return SITE.format(
        root=root,
        runtime=runtime,
        accounting=str(accounting).lower(),
        untrusted=str(not bare).lower(),
        isolation=isolation if isolation is not None else 0 if bare else 2,
        memory=memory,
        start="2s" if bare else start,
        more=more if "[submit]" in more else more + _way(root),
        poll="" if at_default_pace() else QUICK_POLL,
        delay="" if at_default_pace() else "visibility_delay = 0",
    )


def _way(root: Path) -> str:
    """How the walks reach Slurm: KBSLURM_TEST_VIA."""
    match os.environ.get(VIA):
        case "rest":
            return rest_with_token(root)
        case "ssh":
            return SSH
        case _:
            return ""


@cache
def _made_token(lifespan_s: int) -> str:
    words = ["scontrol", "token", f"lifespan={lifespan_s}"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def rest_with_token(root: Path, lifespan_s: int = LASTING_S) -> str:
    """slurmrestd with a token that was made beforehand: a controller that is away makes none."""
    root.mkdir(parents=True, exist_ok=True)
    file = root / "token"
    file.write_text(_made_token(lifespan_s))
    return REST.replace('token_command = "scontrol token lifespan=3600"', f'token_file = "{file}"')


def site_at(root: Path, **options: object) -> Site:
    """The same, read."""
    root.mkdir(parents=True, exist_ok=True)
    file = root / "site.toml"
    file.write_text(site_text(root, **options))  # type: ignore[arg-type]
    return sites.load(file)


def rendered(site: Site, job: JobSpec, eval_dir: Path) -> JobSpec:
    """The job as the room `render` makes it for this site."""
    directory = Path(site.paths.shared_root) / "attempts" / job.name
    gpu = job.gpu if job.gpu in site.gpus else min(site.gpus)
    script = script_for(
        site,
        name=job.name,
        gpu=gpu,
        directory=directory,
        harness=harness_folder(site, eval_dir),
        supervisor=supervisor_digest(eval_dir),
        time_limit_s=job.time_limit_s,
        memory_bytes=job.memory_bytes,
        templates=shared_folders.path("sbatch_templates"),
    )
    return dataclasses.replace(job, directory=directory, script=script)


@dataclass
class SlurmCase:
    """Slurm as the contract suite wants it."""

    folder: Path
    eval_dir: Path
    site: Site
    name: str = "test"
    gpu: str = "H100"
    wait_s: float = 180.0
    time_limit_s: float = 1.0
    enforces_memory: bool = True
    steps: Sequence[str] = ("folder", "sent", "submitted")
    lost_at: Sequence[str] = ()
    held: dict[JobName, str] = field(default_factory=dict)

    def backend(self) -> SlurmBackend:
        return SlurmBackend(self.site, eval_dir=self.eval_dir)

    def finished(self, job: JobSpec) -> JobSpec:
        return rendered(self.site, job, self.eval_dir)

    def submit_and_die(self, job: JobSpec, step: str) -> None:
        told = {
            "site": str(Path(self.site.paths.shared_root) / "site.toml"),
            "eval_dir": str(self.eval_dir),
            "step": step,
            "job": {
                "name": job.name,
                "gpu": job.gpu,
                "manifest": job.manifest,
                "time_limit_s": job.time_limit_s,
                "memory_bytes": job.memory_bytes,
                "script": job.script,
            },
            "keeper": None if job.keeper is None else dataclasses.asdict(job.keeper),
            "key": job.key.hex(),
            "directory": str(job.directory),
        }
        done = subprocess.run(
            [sys.executable, "-m", "tests.cluster.inside.site"],
            cwd=REPOSITORY,
            input=json.dumps(told),
            text=True,
            timeout=self.wait_s,
            check=False,
        )
        assert done.returncode == -signal.SIGKILL

    def submit_unstarted(self, job: JobSpec) -> None:
        assert job.script is not None
        held = dataclasses.replace(
            job, script=job.script.replace("#SBATCH --no-requeue", "#SBATCH --no-requeue\n#SBATCH --hold")
        )
        self.held[job.name] = self.backend().submit(held)

    def let_start(self, job: JobSpec) -> None:
        # cancelled while it was held: then Slurm has nothing to release, and that is fine
        subprocess.run(
            ["scontrol", "release", self.held[job.name]],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
        )

    def wait_out(self, job: JobSpec) -> None:
        raise AssertionError("every job of Slurm's is found by its name")

    def paths(self, name: JobName) -> AttemptPaths:
        return AttemptPaths(root=self.backend().root, name=name)


def main() -> None:
    """A process that submits one job and is killed at a step."""
    told = json.load(sys.stdin)

    def die(step: str) -> None:
        if step == told["step"]:
            os.kill(os.getpid(), signal.SIGKILL)

    keeper = told["keeper"] and InKeeper(**told["keeper"])
    job = JobSpec(**told["job"], key=bytes.fromhex(told["key"]), directory=Path(told["directory"]), keeper=keeper)
    SlurmBackend(sites.load(Path(told["site"])), eval_dir=Path(told["eval_dir"]), crash_point=die).submit(job)


if __name__ == "__main__":
    main()
