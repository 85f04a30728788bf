"""`kbslurm site …`: the files that describe clusters: write a first one, check, show."""

from __future__ import annotations

import dataclasses
import getpass
import json
import shutil
import socket
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kbslurm.cli import show
from kbslurm.cli.frame import Json, app, configuration
from kbslurm.config import shared_folders
from kbslurm.errors import EXIT_OK, BackendTrouble, Invalid, KbslurmError, NotFound

if TYPE_CHECKING:
    from kbslurm.domain.site import Site

group = typer.Typer(help="Clusters' files: init, check, list, show, schema.", no_args_is_help=True)
app.add_typer(group, name="site")


@group.command()
def init(
    name: Annotated[str, typer.Option("--name", help="What it will be called (default: the cluster's name).")] = "",
    out: Annotated[Path | None, typer.Option("--out", help="Write it there instead of printing it.")] = None,
    shared_root: Annotated[
        Path | None, typer.Option("--shared-root", help="A folder that login and compute nodes see.")
    ] = None,
    image_dir: Annotated[Path | None, typer.Option("--image-dir", help="Where the images are.")] = None,
    image: Annotated[str, typer.Option("--image", help="The image of every GPU type, below --image-dir.")] = "",
    gpu: Annotated[list[str] | None, typer.Option("--gpu", help="Only these GPU types.")] = None,
    bin_dir: Annotated[str, typer.Option("--bin-dir", help="Where Slurm's commands are, if not in PATH.")] = "",
    force: Annotated[bool, typer.Option("--force", help="Replace what is there.")] = False,
    as_json: Json = False,
) -> int:
    """Write a cluster's first file from what Slurm shows here. Run it on the login node; see its lines with a `?`."""
    from kbslurm.backends.slurm.doctor import site_file, survey
    from kbslurm.config import sites

    if out is not None and out.exists() and not force:
        raise Invalid(f"{out} is there already", hint="Choose another name, or say --force.")
    program = shutil.which("apptainer") or shutil.which("singularity") or ""
    try:
        found = survey.survey(survey.asker(bin_dir=bin_dir), user=getpass.getuser(), program=program)
    except BackendTrouble as error:
        raise NotFound(
            "Slurm", f"on {socket.gethostname()}", hint=f"Use a login node, or --bin-dir ({error.message})."
        ) from None
    wishes = site_file.Wishes(
        name=name or (out.stem if out else ""),
        shared_root=str((shared_root or Path.home() / "kbslurm").absolute()),
        image_dir=str(image_dir.absolute()) if image_dir else "",
        image=image,
        checked_on=datetime.now(UTC).date().isoformat(),
        bin_dir=bin_dir,
        gpus=tuple(gpu or ()),
    )
    text = site_file.toml_of(found, wishes)
    if out is not None:
        try:
            out.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Invalid(f"{out.parent} can't be made: {error.strerror}", hint="Choose another --out.") from None
    with tempfile.TemporaryDirectory(prefix="kb-site-", dir=out.parent if out else None) as folder:
        fresh = Path(folder) / (out.name if out else "site.toml")
        fresh.write_text(text, encoding="utf-8")
        site = sites.load(fresh)  # what we write ourselves has to be taken by whoever reads it
        if out is not None:
            fresh.replace(out)
    if as_json:
        where = None if out is None else str(out)
        show.as_json({"site": site.name, "gpus": sorted(site.gpus), "file": where, "toml": text})
        return EXIT_OK
    if out is None:
        print(text, end="")
        return EXIT_OK
    show.say(f"{out} is written; look at the lines with a ?")
    show.say(f"then: kbslurm site check {out}; kbslurm doctor --site {out} --live")
    return EXIT_OK


@group.command()
def check(
    site: Annotated[str, typer.Argument(help="A name, or a file that ends in .toml.")], as_json: Json = False
) -> int:
    """Read a cluster's file and render a job for each of its GPU types. Nothing is asked of the cluster."""
    from kbslurm.domain.run import JobName
    from kbslurm.flow.script import script_for

    found = site_named(site)
    for gpu in found.gpus:
        script_for(
            found,
            name=JobName("kb-check"),
            gpu=gpu,
            directory=Path("/check"),
            harness=Path("/check"),
            time_limit_s=60,
            memory_bytes=1 << 30,
            templates=shared_folders.path("sbatch_templates"),
        )
    if as_json:
        show.as_json({"site": found.name, "gpus": sorted(found.gpus)})
    else:
        show.say(f"{found.name} is fine: {', '.join(found.gpus)}; kbslurm doctor --site asks the cluster itself")
    return EXIT_OK


@group.command("list")
def list_(as_json: Json = False) -> int:
    """The clusters whose files are here, and which of them are used."""
    rows = _listed()
    if as_json:
        show.as_json(rows)
    else:
        lines = [
            (
                show.escape(row["name"]),
                "[green]yes[/]" if row["used"] else "",
                show.escape(", ".join(row["gpus"])),
                show.escape(row["verified"] or f"[red]{row['trouble']}[/]"),
            )
            for row in rows
        ]
        show.table(("site", "used", "GPUs", "verified"), lines, wrap=2)
    return EXIT_OK


@group.command("show")
def show_(
    site: Annotated[str, typer.Argument(help="A name, or a file that ends in .toml.")], as_json: Json = False
) -> int:
    """Everything that holds for a cluster, defaults included."""
    found = site_named(site)
    values = dataclasses.asdict(found)
    if as_json:
        show.as_json(values)
    else:
        rows = [(show.escape(key), show.escape(text)) for key, text in _leaves(values)]
        show.table(("setting", "value"), rows, wrap=1)
    return EXIT_OK


@group.command()
def schema(as_json: Json = False) -> int:
    """The JSON schema of a cluster's file, for editors."""
    from kbslurm.config import sites

    print(json.dumps(sites.schema(), indent=2, sort_keys=True))
    return EXIT_OK


def site_named(name: str) -> Site:
    """The site of this name among the configured ones and those that are here, or of this file."""
    from kbslurm.config import sites

    if name.endswith(".toml") or "/" in name:
        return sites.load(Path(name))
    config = configuration()
    for used in config.sites.use:
        if used.endswith(".toml") and Path(used).is_file() and (found := sites.load(Path(used))).name == name:
            return found
    return sites.load_all(_folder(), [name])[0]


def _folder() -> Path:
    return configuration().sites_dir or shared_folders.path("site-configs")


def _listed() -> list[dict[str, Any]]:
    from kbslurm.config import sites

    used = configuration().sites.use
    files = {path.stem: path for path in sorted(_folder().glob("*.toml"))}
    files |= {name: Path(name) for name in used if name.endswith(".toml")}
    rows = []
    for name, file in files.items():
        row: dict[str, Any] = {"name": name, "used": name in used, "gpus": [], "verified": "", "trouble": ""}
        try:
            found = sites.load(file)
        except KbslurmError as error:
            row["trouble"] = error.message
        else:
            row |= {"name": found.name, "gpus": list(found.gpus), "verified": found.verified, "file": str(file)}
        rows.append(row)
    return rows


def _leaves(values: Any, at: str = "") -> list[tuple[str, str]]:
    if isinstance(values, dict):
        return [leaf for key, value in values.items() for leaf in _leaves(value, f"{at}.{key}" if at else str(key))]
    if isinstance(values, list | tuple):
        return [(at, ", ".join(map(str, values)))] if values else []
    return [] if values in (None, "") else [(at, str(values))]
