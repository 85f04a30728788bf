"""Look up boards, people and sites by name; NotFound lists the existing ones."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kbslurm.cli.context import configuration
from kbslurm.config import shared_folders
from kbslurm.domain import contest
from kbslurm.errors import NotFound

if TYPE_CHECKING:
    from kbslurm.domain.site import Site
    from kbslurm.store.postgres import PostgresStore
    from kbslurm.store.views import Board, Person

AT_A_SERVICE = "If you take part at a service: kbslurm join CODE, or kbslurm login URL."
NO_BOARDS = f"This database has no boards. {AT_A_SERVICE}"


def board_named(store: PostgresStore, name: str) -> Board:
    """The board with that name in any case, or NotFound with the existing ones."""
    found = store.boards.find(contest.board_name(name))
    if found is None:
        known = store.boards.names()
        raise NotFound("board", name, known=known, hint=None if known else NO_BOARDS)
    return found


def person_named(store: PostgresStore, name: str) -> Person:
    """The person with that name, or NotFound with those that are spelt alike."""
    person = store.people.find(name)
    if person is None:
        told = contest.did_you_mean(name, [known.name for known in store.people.all()])
        raise NotFound("person", name, hint=f"{told} kbslurm user list shows everyone.".strip())
    return person


def site_named(name: str) -> Site:
    """The site with this name, among the configured ones and the files found here, or the site in this file."""
    from kbslurm.config import sites

    return sites.load(site_file(name))


def site_file(name: str) -> Path:
    """The file of that site."""
    from kbslurm.config import sites

    if name.endswith(".toml") or "/" in name:
        return Path(name)
    for used in configuration().sites.use:
        if used.endswith(".toml") and Path(used).is_file() and sites.load(Path(used)).name == name:
            return Path(used)
    return sites.file_of(sites_folder(), name)


def sites_folder() -> Path:
    """The folder of the cluster files."""
    return configuration().sites_dir or shared_folders.path("site-configs")
