"""Boards, people, problems and sites by the name that somebody typed; NotFound says which there are."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kbslurm.cli.context import configuration
from kbslurm.config import shared_folders
from kbslurm.domain import contest
from kbslurm.errors import NotFound

if TYPE_CHECKING:
    from kbslurm.domain.problem import Problem
    from kbslurm.domain.site import Site
    from kbslurm.store.postgres import PostgresStore
    from kbslurm.store.views import Board, Person


def board_named(store: PostgresStore, name: str) -> Board:
    """The board of that name in any case, or NotFound with those that there are."""
    found = store.boards.find(contest.board_name(name))
    if found is None:
        raise NotFound("board", name, known=store.boards.names())
    return found


def newest_problem(store: PostgresStore, name: str) -> Problem:
    """The newest version of the problem of that name, or NotFound with those that there are."""
    known = store.problems.all()
    ids = [version.id for version in known if version.name.lower() == name.lower()]
    if not ids:
        raise NotFound("problem", name, known=sorted({version.name for version in known}))
    return store.problems.of_version(max(ids))


def person_named(store: PostgresStore, name: str) -> Person:
    """The person of that name, or NotFound."""
    person = store.people.find(name)
    if person is None:
        raise NotFound("person", name, hint="kbslurm user list shows everybody.")
    return person


def site_named(name: str) -> Site:
    """The site of this name among the configured ones and those that are here, or of this file."""
    from kbslurm.config import sites

    if name.endswith(".toml") or "/" in name:
        return sites.load(Path(name))
    config = configuration()
    for used in config.sites.use:
        if used.endswith(".toml") and Path(used).is_file() and (found := sites.load(Path(used))).name == name:
            return found
    return sites.load_all(sites_folder(), [name])[0]


def sites_folder() -> Path:
    """Where the clusters' files are."""
    return configuration().sites_dir or shared_folders.path("site-configs")
