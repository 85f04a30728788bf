"""`kbslurm intake …`: whether submissions are taken."""

from __future__ import annotations

from kbslurm.cli.arguments import Json
from kbslurm.cli.context import opened_store, own_name
from kbslurm.cli.output import printing
from kbslurm.errors import EXIT_OK


def start(as_json: Json = False) -> int:
    """Take submissions again."""
    return _switch(True, as_json)


def stop(as_json: Json = False) -> int:
    """Take no submissions until started again; what was accepted goes on. It survives a restart."""
    return _switch(False, as_json)


def show_(as_json: Json = False) -> int:
    """Whether submissions are taken."""
    with opened_store() as store:
        accepts = store.settings.accepts_jobs()
    return _accepts(accepts, as_json)


def _switch(accepts: bool, as_json: bool) -> int:
    with opened_store() as store:
        store.settings.set_accepts_jobs(accepts, by=own_name())
    return _accepts(accepts, as_json)


def _accepts(accepts: bool, as_json: bool) -> int:
    if as_json:
        printing.as_json({"accepts_jobs": accepts})
    else:
        printing.say(
            "submissions are taken" if accepts else "submissions are paused; kbslurm intake start takes them again"
        )
    return EXIT_OK
