"""Which images the sites want: by file, what their files say of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from kbslurm.cli.context import configuration
from kbslurm.errors import Invalid, Misconfigured, NotFound

if TYPE_CHECKING:
    from kbslurm.domain.site import Site

SIF = ".sif"


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """An image that a site's jobs start: its path there, the GPU types that want it, and its digest by the site's file,
    if that says one."""

    path: PurePosixPath
    image: str
    tag: str
    gpus: tuple[str, ...]
    pinned: str

    @property
    def names(self) -> frozenset[str]:
        """What it may be called on a command line."""
        return frozenset({self.path.name, PurePosixPath(self.image).name, PurePosixPath(self.image).stem})


def wanted_at(site: Site) -> list[Wanted]:
    """The images of a site, each file once."""
    found: dict[PurePosixPath, Wanted] = {}
    for gpu in site.gpus.values():
        if not gpu.image or site.container.runtime == "none":
            continue
        path = PurePosixPath(site.image_of(gpu))
        known = found.get(path)
        pinned = gpu.image_digest or (known.pinned if known else "")
        if known and known.pinned and pinned != known.pinned:
            raise Misconfigured(
                f"{site.name} pins {path} to {known.pinned} for {known.gpus[0]} and to {pinned} for {gpu.name}",
                key=f"gpus.{gpu.name}.image_digest",
                fix="Give the two images different names, or an image_tag each.",
            )
        names = (*(known.gpus if known else ()), gpu.name)
        found[path] = Wanted(path=path, image=gpu.image, tag=gpu.image_tag, gpus=names, pinned=pinned)
    return list(found.values())


def chosen(wanted: Sequence[Wanted], names: Sequence[str]) -> list[Wanted]:
    """Those with these names, or all."""
    return [one for one in wanted if not names or one.names & set(names)]


def check_names(everywhere: Sequence[Wanted], names: Sequence[str]) -> None:
    """NotFound for a name that no site's image has."""
    known = {name for one in everywhere for name in one.names}
    for name in names:
        if name not in known:
            files = sorted({one.path.name for one in everywhere})
            raise NotFound("image", name, known=files, hint=f"The sites' files name {', '.join(files) or 'none'}.")


def sites_in_use() -> list[Site]:
    """The configured sites."""
    from kbslurm import wiring

    found = list(wiring.sites(configuration()))
    if not found:
        raise Invalid("no site is in use", hint='Name one, or write use = ["NAME"] below [sites] of kbslurm.toml.')
    return found
