"""Which course a command is about: the one that is named, else the only one that there is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kbslurm.errors import Invalid, NotFound

if TYPE_CHECKING:
    from kbslurm.cli.host.connect import Hosts

Course = Annotated[
    str | None, typer.Option("--course", "-c", help="The course (default: the only one).", show_default=False)
]


def the_course(hosts: Hosts, named: str | None, *, new: str | None = None) -> str:
    """Its name. `new`: what it is called if there is none yet."""
    if named is not None:
        return named
    known = [str(one["course"]) for one in hosts.courses()]
    if len(known) == 1:
        return known[0]
    if known:
        raise Invalid(f"which course? There are {', '.join(known)}", hint="Pass --course NAME.")
    if new is not None:
        return new
    raise NotFound("course", "", hint="Import its roster first: kbslurm roster import FILE.csv --course NAME")
