"""`kbslurm image build|pull|verify`: the images that jobs run in, and whether they still match their pins."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kbslurm.cli.arguments import Json
from kbslurm.cli.lookup import site_named
from kbslurm.cli.output import printing
from kbslurm.cli.output.findings import print_findings
from kbslurm.config import shared_folders
from kbslurm.errors import EXIT_OK, Invalid, NotFound

if TYPE_CHECKING:
    from kbslurm.domain.site import Site
    from kbslurm.images.apptainer import (
        Maker,
    )
    from kbslurm.images.pins import (
        Pin,
    )
    from kbslurm.images.recipes import (
        Recipe,
    )

Out = Annotated[Path | None, typer.Option("--out", help="The target: a .sif file, or a directory without a suffix.")]
SiteName = Annotated[str | None, typer.Option("--site", help="Use the images of this site.")]
Program = Annotated[str, typer.Option("--program", help="The container program (default: apptainer, singularity).")]
Unpinned = Annotated[bool, typer.Option("--unpinned", help="Accept what the tag refers to today, and pin that.")]
Limit = Annotated[float, typer.Option("--time-limit", min=1, help="Kill it after this many seconds.")]


def build(
    recipe: Annotated[str, typer.Argument(help="A recipe's name (kbslurm image list), or a .def file.")],
    out: Out = None,
    arg: Annotated[list[str] | None, typer.Option("--arg", help="NAME=VALUE for the recipe's %arguments.")] = None,
    option: Annotated[
        list[str] | None, typer.Option("--option", help="An extra option for the container program.")
    ] = None,
    program: Program = "",
    unpinned: Unpinned = False,
    limit_s: Limit = 3600.0,
    as_json: Json = False,
) -> int:
    """Build an image and pin its digest in the digests.lock next to it."""
    from kbslurm.images import apptainer

    found = _recipe(recipe)
    target = out or Path.cwd() / f"{found.name}.sif"
    maker = apptainer.Maker(program=program, options=tuple(option or ()), timeout_s=limit_s)
    with printing.progress(as_json) as tell:
        tell({"phase": f"building {target}"})
        made = apptainer.build(
            found, target, maker, now=datetime.now(UTC), arguments=_arguments(arg or ()), unpinned=unpinned
        )
    return _made(target, made, as_json)


def pull(
    source: Annotated[str, typer.Argument(help="docker://HOST/NAME@sha256:…, oras://…")],
    out: Out = None,
    option: Annotated[
        list[str] | None, typer.Option("--option", help="An extra option for the container program.")
    ] = None,
    program: Program = "",
    unpinned: Unpinned = False,
    limit_s: Limit = 3600.0,
    as_json: Json = False,
) -> int:
    """Pull an image from a registry and pin its digest in the digests.lock next to it."""
    from kbslurm.images import apptainer

    name = source.rpartition("/")[2].partition("@")[0].partition(":")[0]
    target = out or Path.cwd() / f"{name}.sif"
    maker = apptainer.Maker(program=program, options=tuple(option or ()), timeout_s=limit_s)
    with printing.progress(as_json) as tell:
        tell({"phase": f"pulling {source}"})
        made = apptainer.pull(source, target, maker, now=datetime.now(UTC), unpinned=unpinned)
    return _made(target, made, as_json)


def verify(
    image: Annotated[list[Path] | None, typer.Argument(help="SIF files or directories.")] = None,
    site: SiteName = None,
    key: Annotated[Path | None, typer.Option("--key", help="The public key that must have signed them.")] = None,
    digest: Annotated[str, typer.Option("--digest", help="The expected digest, instead of the pinned one.")] = "",
    program: Program = "",
    as_json: Json = False,
) -> int:
    """Verify images against their pins and signatures. Exit code 1 if any of them doesn't match."""
    from kbslurm.images import apptainer, verifying

    if not image and site is None:
        raise Invalid("no images given", hint="Give files, or --site NAME for all images of a site.")
    wanted = [(path, digest, "") for path in image or ()]
    if site is not None:
        wanted += _images_of_site(site_named(site))
    maker = _maker_or_none(apptainer.Maker(program=program, timeout_s=apptainer.LOOK_S))
    findings = [
        finding
        for path, pinned, gpu in wanted
        for finding in verifying.verify(path, maker, pinned=pinned, key=key, where=gpu or path.name)
    ]
    return print_findings(findings, as_json)


def _recipe(name: str) -> Recipe:
    from kbslurm.images import recipes

    if name.endswith(".def"):
        return recipes.read_recipe(Path(name))
    folder = shared_folders.path("containers")
    file = folder / f"{name}.def"
    if not file.is_file():
        raise NotFound("recipe", name, known=[known.stem for known in folder.glob("*.def")])
    return recipes.read_recipe(file)


def _arguments(given: Sequence[str]) -> dict[str, str]:
    found = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise Invalid(f"--arg {text!r} isn't NAME=VALUE", hint="Write --arg base=/scratch/tree.")
        found[name] = value
    return found


def _made(target: Path, made: Pin, as_json: bool) -> int:
    if as_json:
        printing.as_json({"image": str(target), **printing.jsonable(made)})
    else:
        printing.say(f"{target} is ready, pinned as {made.digest}")
        printing.say(f'  image_digest = "{made.digest}" in a site\'s file pins it for that site')
    return EXIT_OK


def _images_of_site(site: Site) -> list[tuple[Path, str, str]]:
    return [(Path(site.image_of(gpu)), gpu.image_digest, gpu.name) for gpu in site.gpus.values() if gpu.image]


def _maker_or_none(maker: Maker) -> Maker | None:
    try:
        maker.executable  # noqa: B018 - asking is what finds out
    except NotFound:
        if maker.program:
            raise
        return None
    return maker
