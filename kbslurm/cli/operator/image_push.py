"""`kbslurm image push`: copy the images of a site to it, or one to a registry, and verify them there."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kbslurm.cli.arguments import Json
from kbslurm.cli.lookup import site_named
from kbslurm.cli.operator.image_places import SIF, Wanted, check_names, chosen, sites_in_use, wanted_at
from kbslurm.cli.output import printing
from kbslurm.errors import EXIT_OK, Invalid, KbslurmError, Misconfigured, NotFound

if TYPE_CHECKING:
    from kbslurm.domain.site import Site
    from kbslurm.images.pins import Pin

REGISTRY = "oras://"
Fact = dict[str, Any]


def push(
    place: Annotated[
        str, typer.Argument(help="A site, or a registry and folder like oras://registry.example.edu/kbslurm.")
    ] = "",
    images: Annotated[
        list[str] | None,
        typer.Argument(metavar="IMAGE", help="Only these, like cuda (default: all that it wants)."),
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="Push to every site in use.")] = False,
    folder: Annotated[
        Path, typer.Option("--from", metavar="DIR", help="Where the images and their digests.lock are here.")
    ] = Path(),
    tag: Annotated[str, typer.Option("--tag", help="The tag in a registry (default: the start of the digest).")] = "",
    option: Annotated[
        list[str] | None, typer.Option("--option", help="For a registry: an extra option for the container program.")
    ] = None,
    program: Annotated[
        str, typer.Option("--program", help="For a registry: the container program (default: apptainer, singularity).")
    ] = "",
    limit_s: Annotated[
        float, typer.Option("--time-limit", min=1, help="For a registry: give up after this many seconds.")
    ] = 3600.0,
    as_json: Json = False,
) -> int:
    """Copy images to a site, or to a registry, and verify their digests there.

    To a site they go by rsync, over its ssh login if it has one: under a temporary name, renamed when the digest there
    is right. An interrupted copy goes on where it stopped. An image that a running job has open is never overwritten.
    What is already there isn't copied again.
    """
    names = list(images or ())
    if all_:
        names = [place, *names] if place else names
        if place.startswith(REGISTRY):
            raise Invalid("--all pushes to sites, not to a registry", hint="Name the registry without --all.")
    elif not place:
        raise Invalid("no place is named", hint="kbslurm image push PLACE, or --all for every site in use.")
    if not folder.is_dir():
        raise NotFound("folder", str(folder), hint="Give the images' folder with --from DIR.")
    if place.startswith(REGISTRY) and not all_:
        from kbslurm.images.apptainer import Maker

        maker = Maker(program=program, options=tuple(option or ()), timeout_s=limit_s)
        return _to_registry(place, names, folder, tag, maker, as_json)
    if tag:
        raise Invalid("--tag is for a registry", hint="A site's images get theirs by image_tag in the site's file.")
    sites = sites_in_use() if all_ else [site_named(place)]
    wanted = {site.name: wanted_at(site) for site in sites}
    check_names([one for found in wanted.values() for one in found], names)
    if not any(wanted.values()):
        raise Invalid(f"{', '.join(wanted)} has no images", hint='Add image = "cuda.sif" to its GPU types.')
    return _to_sites(sites, {name: chosen(found, names) for name, found in wanted.items()}, folder, as_json)


def _to_sites(sites: Sequence[Site], wanted: Mapping[str, Sequence[Wanted]], folder: Path, as_json: bool) -> int:
    """Every image to every site that wants it; one that fails keeps no other from its copy."""
    facts: list[Fact] = []
    failed: list[KbslurmError] = []
    for site in sites:
        for one in wanted[site.name]:
            try:
                fact = _to_site(site, one, folder, as_json)
            except KbslurmError as error:
                failed.append(error)
                fact = {"place": site.name, "path": str(one.path), "state": "failed", "why": error.message}
                if len(sites) == 1 and len(wanted[site.name]) == 1:
                    raise
                if not as_json:
                    printing.error(error, as_json=False)
            facts.append(fact)
            if not as_json and fact["state"] != "failed":
                _say(fact)
    if as_json:
        printing.as_json({"images": facts, "failed": len(failed)})
    return failed[0].exit_code if failed else EXIT_OK


def _say(fact: Fact) -> None:
    size = f"{fact['bytes'] / 1e9:.2f} GB"
    did = "is there already" if fact["state"] == "there" else f"copied ({size} in {printing.seconds(fact['took_s'])})"
    printing.say(f"{fact['place']}: {fact['where']} {did}, verified there: {fact['digest']}")
    if not fact["pinned"]:
        printing.say(f'  image_digest = "{fact["digest"]}" in the site\'s file pins it, so that jobs refuse any other')


def _to_site(site: Site, one: Wanted, folder: Path, as_json: bool) -> Fact:
    from kbslurm.backends.slurm.image_folder import ImageFolder

    image = folder / one.path.name
    found = _pin_of(image, one, site)
    there = ImageFolder(site, one.path.parent)
    began, size = time.monotonic(), image.stat().st_size
    what = f"{site.name}: {one.path.name}"
    with printing.progress(as_json) as tell:
        tell({"phase": f"{what}: looking at what is there"})
        lying = (there.lying() or {}).get(one.path.name)
        same = lying is not None and lying.bytes == size and there.digest(one.path.name, size) == found.digest
        if not same:
            there.bring(image, one.path.name, found.digest, lambda done: tell({"phase": f"{what}: {done} % copied"}))
        if lying is None or not same or lying.recorded != found.digest:
            there.record(one.path.name, found)
    return {
        "place": site.name,
        "image": one.path.name,
        "path": str(one.path),
        "where": f"{there.where}/{one.path.name}",
        "for": list(one.gpus),
        "digest": found.digest,
        "pinned": bool(one.pinned),
        "bytes": size,
        "state": "there" if same else "copied",
        "took_s": round(time.monotonic() - began, 3),
    }


def _pin_of(image: Path, one: Wanted, site: Site) -> Pin:
    """The pin of the image here, once it is known to be what the site wants."""
    from kbslurm.images.pins import Pin, digest_of, lock_beside, read_lock

    recipe = one.image.rpartition("/")[2].partition(".")[0]
    if not image.exists():
        raise NotFound(
            "image",
            str(image),
            hint=f"kbslurm image build {recipe} --out {image} makes it; --from DIR looks for it elsewhere.",
        )
    if image.is_dir() or image.suffix != SIF:
        raise Invalid(
            f"{image} isn't a SIF file, and nothing else can be pushed",
            hint=f"kbslurm image build {recipe} --out {recipe}.sif makes one.",
        )
    known = read_lock(lock_beside(image)).get(image.name)
    digest = digest_of(image)
    if one.pinned and digest != one.pinned:
        raise Misconfigured(
            f"{image} is {digest}, but {site.name}'s file pins {one.pinned} for {one.gpus[0]}",
            fix="Push the image that is pinned, or review this one and pin it (best under a new image_tag).",
        )
    if known is not None and known.digest != digest:
        raise Misconfigured(
            f"{image} is {digest}, but it was {known.digest} when it was made",
            file=lock_beside(image),
            fix="It was replaced or is damaged: build or pull it again.",
        )
    return known or Pin(digest=digest, made_at=datetime.now(UTC), source=f"pushed from {image.name}")


def _to_registry(place: str, names: Sequence[str], folder: Path, tag: str, maker: Any, as_json: bool) -> int:
    from kbslurm.images import apptainer
    from kbslurm.images.pins import digest_of

    if not names:
        raise Invalid("no image is named", hint=f"kbslurm image push {place} cuda --from DIR")
    facts: list[Fact] = []
    for name in names:
        image = folder / (name if name.endswith(SIF) else f"{name}{SIF}")
        if not image.is_file():
            raise NotFound("image", str(image), hint="Give its folder with --from DIR.")
        address = f"{place.rstrip('/')}/{image.stem.lower()}:{tag or digest_of(image).removeprefix('sha256:')[:12]}"
        began = time.monotonic()
        with printing.progress(as_json) as tell:
            tell({"phase": f"pushing {image.name} to {address}, and pulling it again"})
            digest = apptainer.push(image, address, maker)
        took_s = round(time.monotonic() - began, 3)
        facts.append({"place": place, "image": image.name, "address": address, "digest": digest, "took_s": took_s})
        if not as_json:
            printing.say(f"{image.name} is at {address}, verified by pulling it: {digest}")
    if as_json:
        printing.as_json({"images": facts, "failed": 0})
    return EXIT_OK
