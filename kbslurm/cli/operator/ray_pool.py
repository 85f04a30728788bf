"""`kbslurm ray pool`: the file from which Ray's own launcher starts a place's cluster; see docs/ray.md."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kbslurm.cli.arguments import Json
from kbslurm.cli.context import configuration
from kbslurm.cli.output import printing
from kbslurm.errors import EXIT_OK, Invalid, Misconfigured, NotFound


def pool(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The place: eu for [ray.eu].")],
    out: Annotated[Path | None, typer.Option("--out", help="Write to this file instead of printing it.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite a file that isn't from this command.")] = False,
    as_json: Json = False,
) -> int:
    """Write the file from which Ray's launcher starts a place's cluster: kinds of workers, their bounds, the idle time.

    Give it to `ray up`. It is made from [ray.NAME.pool] and holds no secret; nothing is contacted.
    """
    from kbslurm.backends.ray.pool import MADE_BY, cluster_file, digest_in, most_workers

    config = configuration()
    section = config.ray.get(name)
    if section is None:
        raise NotFound("Ray cluster", name, known=sorted(config.ray))
    if section.pool is None:
        raise Misconfigured(
            f"ray.{name} has no pool",
            file=config.file,
            key=f"ray.{name}",
            fix=f"Describe the cluster in [ray.{name}.pool]; docs/ray.md shows the lines.",
        )
    text = cluster_file(name, section, section.pool)
    if out is None and not as_json:
        print(text, end="")
        return EXIT_OK
    if out is not None:
        _write(out, text, MADE_BY, force=force)
    if as_json:
        where = None if out is None else str(out)
        printing.as_json(
            {"place": name, "file": where, "digest": digest_in(text), "max": most_workers(section.pool), "yaml": text}
        )
        return EXIT_OK
    printing.say(f"{out} written; start or change the cluster with: ray up {out}")
    printing.say(f"then: kbslurm ray check {name}")
    return EXIT_OK


def _write(out: Path, text: str, made_by: str, *, force: bool) -> None:
    """Whole or not at all, and over nothing that somebody wrote by hand."""
    from kbslurm.backends.paths import said, write_atomically

    try:
        if out.exists() and not force and not out.read_text(errors="replace").startswith(made_by):
            raise Invalid(f"{out} exists and isn't from this command", hint="Choose another name, or pass --force.")
        out.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(out, text.encode(), 0o644)
    except OSError as error:
        sentence, fix = said(error, out)
        raise Invalid(sentence, hint=fix) from None
