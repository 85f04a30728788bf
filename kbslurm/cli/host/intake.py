"""`kbslurm intake …`: whether submissions are accepted."""

from __future__ import annotations

from kbslurm.cli.arguments import Json
from kbslurm.cli.host.connect import host
from kbslurm.cli.output import printing
from kbslurm.errors import EXIT_OK


def start(as_json: Json = False) -> int:
    """Accept submissions again."""
    return _switch(True, as_json)


def stop(as_json: Json = False) -> int:
    """Pause submissions until they are started again; accepted ones still run. Still holds after a restart."""
    return _switch(False, as_json)


def show_(as_json: Json = False) -> int:
    """Show whether submissions are accepted."""
    with host() as hosts:
        return _accepts(hosts.accepting(), as_json)


def _switch(accepts: bool, as_json: bool) -> int:
    with host() as hosts:
        return _accepts(hosts.set_accepting(accepts), as_json)


def _accepts(accepts: bool, as_json: bool) -> int:
    if as_json:
        printing.as_json({"accepts_jobs": accepts})
    else:
        printing.say(
            "submissions are accepted" if accepts else "submissions are paused; kbslurm intake start accepts them again"
        )
    return EXIT_OK
