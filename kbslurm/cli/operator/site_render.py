"""`kbslurm site render`: the job script that would run, with a comment on where each line comes from."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kbslurm.cli.arguments import Json, checked_mode
from kbslurm.cli.lookup import site_named
from kbslurm.cli.output import printing
from kbslurm.config import shared_folders
from kbslurm.errors import EXIT_OK, NotFound

if TYPE_CHECKING:
    from kbslurm.domain.site import Site
    from kbslurm_eval.shared.wire import Mode

NAME = "kb-the-attempts-random-name"
ACCOUNT = "the-persons-account"


def render(
    site: Annotated[str, typer.Argument(help="A name, or a .toml file.")],
    gpu: Annotated[str, typer.Argument(metavar="GPU", help="One of its GPU types.")],
    mode: Annotated[str, typer.Option("--mode", "-m", help="test, benchmark, leaderboard or profile.")] = "leaderboard",
    gpus: Annotated[int, typer.Option("--gpus", min=1, help="How many GPUs the problem takes.")] = 1,
    plain: Annotated[bool, typer.Option("--plain", help="Without the comments: byte for byte.")] = False,
    as_json: Json = False,
) -> int:
    """Print the job script that a GPU type's runs would have, with a comment on where each line comes from.

    It is for a problem with the default limits. What differs from run to run is filled in: name and folder, and the
    person's account where each pays. Doesn't contact the cluster.
    """
    from kbslurm.flow.script_notes import annotated, notes_on

    found, wanted = site_named(site), checked_mode(mode)
    known = {name.lower(): name for name in found.gpus}
    if gpu.lower() not in known:
        raise NotFound("GPU type", gpu, known=sorted(found.gpus))
    kind = found.gpus[known[gpu.lower()]]
    script = script_of(found, kind.name, wanted, gpus=gpus)
    notes = notes_on(script, found, kind)
    if as_json:
        told = {"site": found.name, "gpu": kind.name, "mode": wanted, "gpus": gpus, "script": script}
        printing.as_json({**told, "notes": [asdict(note) for note in notes]})
    else:
        print(script if plain else annotated(script, notes), end="")
    return EXIT_OK


def script_of(site: Site, gpu: str, mode: Mode, *, gpus: int = 1, fitting: bool = False) -> str:
    """The job script of this GPU type for a problem with the default limits; `fitting`: no longer than it may take."""
    from kbslurm.domain.manifest import time_limit_s
    from kbslurm.domain.problem import Problem
    from kbslurm.domain.run import JobName
    from kbslurm.flow.script import MARGIN_S, Charged, attempts_folder, harness_folder, script_for, supervisor_digest
    from kbslurm_eval.shared.wire import Limits

    harness: Path = shared_folders.eval_dir()
    limit_s = time_limit_s(Problem(name=NAME, files={}, tests=(), limits=Limits(total_s=math.inf)), mode)
    if fitting:
        most = [most_s for most_s in (site.gpus[gpu].max_time_s, site.max_time_s) if most_s is not None]
        limit_s = min([limit_s, *(most_s - site.start_s - MARGIN_S for most_s in most)])
    return script_for(
        site,
        name=JobName(NAME),
        gpu=gpu,
        directory=attempts_folder(site) / NAME,
        harness=harness_folder(site, harness),
        supervisor=supervisor_digest(harness),
        time_limit_s=limit_s,
        memory_bytes=Limits().memory_bytes,
        templates=shared_folders.path("sbatch_templates"),
        gpus=gpus,
        charged=Charged(person="somebody", account=ACCOUNT),
        mode=mode,
    )
