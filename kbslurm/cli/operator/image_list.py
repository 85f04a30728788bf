"""`kbslurm image list`: the recipes, and which image lies where: pinned, behind or missing."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kbslurm.cli.arguments import Json
from kbslurm.cli.lookup import site_named
from kbslurm.cli.operator.image_places import SIF, Wanted, sites_in_use, wanted_at
from kbslurm.cli.output import printing
from kbslurm.config import shared_folders
from kbslurm.errors import EXIT_OK, BackendTrouble, Invalid, NotFound

if TYPE_CHECKING:
    from kbslurm.backends.slurm.image_folder import ImageFolder, Lying
    from kbslurm.domain.site import Site
    from kbslurm.images.pins import Pin

Row = dict[str, Any]
_COLOURS = {"pinned": "green", "behind": "bold red", "missing": "bold red", "unreachable": "bold red"}


def list_(
    folder: Annotated[Path | None, typer.Argument(help="The folder of the images here.")] = None,
    site: Annotated[str | None, typer.Option("--site", help="List the images of this site.")] = None,
    all_: Annotated[bool, typer.Option("--all", help="List the images of every site in use.")] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Compute the digests there, instead of reading what was noted.")
    ] = False,
    as_json: Json = False,
) -> int:
    """List the recipes, and a folder's or site's images with their pins.

    Of a site's images: pinned (what the site's file pins, or without that the lock in FOLDER), behind (another one lies
    there), missing, not pinned, unused. Exit code 6 if a site can't be reached.
    """
    from kbslurm.images.pins import LOCK, read_lock
    from kbslurm.images.recipes import recipes_in

    if all_ and site:
        raise Invalid("--all lists every site, so it takes no --site", hint="Leave one of the two out.")
    if folder is not None and not folder.is_dir():
        raise NotFound("folder", str(folder), hint="Name the folder of the images here.")
    recipes = recipes_in(shared_folders.path("containers"))
    pins = read_lock(folder / LOCK) if folder else {}
    images: list[Row] = []
    sites = sites_in_use() if all_ else [site_named(site)] if site else []
    with printing.progress(as_json) as tell:
        for one in sites:
            tell({"phase": f"looking at {one.name}"})
            images += _rows_of_site(one, pins, check=check)
    if folder is not None and not sites:
        images += _rows_here(folder, pins)
    if as_json:
        printing.as_json(
            {
                "recipes": [
                    {"name": recipe.name, "base": recipe.base, "pinned": bool(recipe.pinned)} for recipe in recipes
                ],
                "images": images,
            }
        )
    else:
        rows = [(recipe.name, recipe.base, "pinned" if recipe.pinned else "not pinned") for recipe in recipes]
        printing.table(("recipe", "base", ""), [tuple(map(printing.escape, row)) for row in rows], wrap=1)
        _print(images)
    return BackendTrouble.exit_code if any(row["state"] == "unreachable" for row in images) else EXIT_OK


def _print(images: list[Row]) -> None:
    if not images:
        return
    lines = [
        (
            printing.escape(row["place"]),
            printing.escape(row["path"]),
            printing.escape(row["for"]),
            _coloured(row["state"]),
            printing.escape((row["there"] or row["pinned"])[:19]),
            f"{row['bytes'] / 1e9:.2f} GB" if row["bytes"] is not None else "",
            printing.when(row["changed_at"])[:16] if row["changed_at"] else "",
        )
        for row in images
    ]
    printing.table(("place", "image", "for", "state", "digest", "size", "since"), lines, wrap=1)
    for why in dict.fromkeys(row["why"] for row in images if row.get("why")):
        printing.caution(why)


def _coloured(state: str) -> str:
    colour = _COLOURS.get(state)
    return f"[{colour}]{state}[/]" if colour else state


def _row(place: str, path: str, state: str, **told: Any) -> Row:
    empty = {"for": "", "tag": "", "pinned": "", "there": "", "bytes": None, "changed_at": None, "why": ""}
    return {"place": place, "path": path, "state": state, **empty, **told}


def _rows_here(folder: Path, pins: Mapping[str, Pin]) -> list[Row]:
    names = sorted({path.name for path in folder.glob(f"*{SIF}")} | {name for name in pins if (folder / name).exists()})
    rows = []
    for name in names:
        known, status = pins.get(name), (folder / name).stat()
        rows.append(
            _row(
                "",
                str(folder / name),
                "pinned" if known else "not pinned",
                pinned=known.digest if known else "",
                bytes=status.st_size if (folder / name).is_file() else None,
                changed_at=datetime.fromtimestamp(status.st_mtime, UTC),
            )
        )
    return rows


def _rows_of_site(site: Site, pins: Mapping[str, Pin], *, check: bool) -> list[Row]:
    """The images that the site wants, then the SIF files beside them that it doesn't."""
    from kbslurm.backends.slurm.image_folder import ImageFolder

    wanted: dict[PurePosixPath, list[Wanted]] = {}
    for one in wanted_at(site):
        wanted.setdefault(one.path.parent, []).append(one)
    rows: list[Row] = []
    for place, images in wanted.items():
        there = ImageFolder(site, place)
        try:
            lying = there.lying() or {}
            rows += [_wanted_row(site, one, lying.get(one.path.name), pins, there if check else None) for one in images]
        except BackendTrouble as error:
            rows += [
                _row(site.name, str(one.path), "unreachable", pinned=one.pinned, why=error.message) | _named(one)
                for one in images
            ]
            continue
        names = {one.path.name for one in images}
        rows += [
            _row(site.name, str(place / name), "unused", there=found.recorded) | _seen(found)
            for name, found in sorted(lying.items())
            if name.endswith(SIF) and name not in names
        ]
    return rows


def _named(one: Wanted) -> Row:
    return {"for": ", ".join(one.gpus), "tag": one.tag}


def _seen(found: Lying) -> Row:
    return {"bytes": None if found.is_folder else found.bytes, "changed_at": found.changed_at}


def _wanted_row(
    site: Site, one: Wanted, found: Lying | None, pins: Mapping[str, Pin], there: ImageFolder | None
) -> Row:
    known = pins.get(one.path.name)
    pinned = one.pinned or (known.digest if known else "")
    if found is None:
        return _row(site.name, str(one.path), "missing", pinned=pinned) | _named(one)
    digest = found.recorded
    if there is not None and not found.is_folder:
        digest = there.digest(one.path.name, found.bytes) or ""
    state = "not pinned" if not pinned else "unknown" if not digest else "pinned" if digest == pinned else "behind"
    return _row(site.name, str(one.path), state, pinned=pinned, there=digest) | _named(one) | _seen(found)
