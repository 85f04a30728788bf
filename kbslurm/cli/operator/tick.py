"""`kbslurm tick`: the daemon's work in one bounded visit, where no process may stay."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from kbslurm.cli.arguments import Json, Verbose
from kbslurm.cli.context import configuration
from kbslurm.cli.output import printing
from kbslurm.cli.service_in_use import say_database
from kbslurm.errors import EXIT_INFRASTRUCTURE, EXIT_OK

if TYPE_CHECKING:
    from kbslurm.daemon.ticks import Visit


def tick(
    for_s: Annotated[
        float | None,
        typer.Option(
            "--for",
            min=1,
            max=86_400,
            metavar="SECONDS",
            help="Keep working for this long (default: until nothing is due, at most 45 s).",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
    verbose: Verbose = False,
) -> int:
    """Do the daemon's work once and exit: for cron, scrontab or a timer, instead of kbslurm up.

    It claims, submits, polls, collects and scores what is due, under the daemon's lease. Exit code 5 if another daemon
    or an earlier tick holds it, 6 if a place or the database is in trouble. With --json its log is JSON, too.
    """
    from kbslurm import wiring
    from kbslurm.daemon.ticks import visit

    config = configuration()
    say_database(config, as_json=as_json)
    wiring.check_slots(config)
    done = visit(config, for_s=for_s, log_json=as_json, verbose=verbose)
    if as_json:
        printing.as_json(asdict(done))
    else:
        printing.say(printing.escape(_said(done)))
    return EXIT_INFRASTRUCTURE if done.troubles or done.unfinished else EXIT_OK


def _said(done: Visit) -> str:
    did = [(done.claimed, "claimed"), (done.launched, "launched"), (done.settled, "settled")]
    left = [(done.queued, "queued"), (done.open, "open")]
    texts = [", ".join(f"{count} {what}" for count, what in some if count) for some in (did, left)]
    found = f"{texts[0] or 'nothing was due'}; {texts[1] or 'nothing'} left"
    found += "".join(f"; trouble: {why}" for why in done.troubles.values())
    return found + "".join(f"; {name} hasn't answered in time" for name in done.unfinished)
