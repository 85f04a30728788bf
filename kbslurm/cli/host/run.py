"""`kbslurm run`: run a script on a GPU of your choice, without a board."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kbslurm.cli.arguments import As, Json, read_source, submission_number
from kbslurm.cli.host.connect import host
from kbslurm.cli.output import printing
from kbslurm.domain.scripts import DEFAULT_S, MOST_S
from kbslurm.errors import (
    EXIT_INFRASTRUCTURE,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_REJECTED,
    BackendTrouble,
    Invalid,
    NotAccepting,
)

if TYPE_CHECKING:
    from kbslurm.cli.host.connect import Hosts

LOOK_S = 1.0
# Services restart: keep asking this long before giving up; the script goes on.
AWAY_S = 120.0


def run(
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="The script: one Python file.", show_default=False)
    ] = None,
    gpu: Annotated[str | None, typer.Option("--gpu", "-g", help="The GPU type; one that a place offers.")] = None,
    timeout: Annotated[
        int, typer.Option("--timeout", help="How many seconds it may take.", min=1, max=MOST_S)
    ] = DEFAULT_S,
    on: Annotated[str | None, typer.Option("--on", help="The place to run at (default: whichever is free).")] = None,
    detach: Annotated[bool, typer.Option("--detach", help="Don't wait for its end.")] = False,
    show: Annotated[
        int | None,
        typer.Option(
            "--show", help="Show a script that was started before, by its number.", parser=submission_number
        ),
    ] = None,
    as_: As = None,
    as_json: Json = False,
) -> int:  # fmt: skip
    """Run a script on a GPU type of your choice, without a board: for hosts, within a budget of GPU-seconds a day.

    It runs in the cage that a submission gets there, and never ranks. What it wrote (cut at 64 KiB) goes to stdout when
    it has ended, and how it ended to stderr. ^C cancels it.

    Exit code 0: its exit status was 0. 3: it was another, or the script hit its limit. 6: an infrastructure failure.
    130: it was cancelled.
    """
    with host(as_, creates=True) as hosts:
        if show is not None:
            if file is not None:
                raise Invalid("--show takes no file", hint="Leave one of the two out.")
            return _shown(hosts.script(show), as_json=as_json)
        if file is None:
            raise Invalid("no file given", hint="Type kbslurm run FILE.py --gpu H100.")
        if gpu is None:
            raise Invalid("no GPU type given", hint="Pass --gpu H100, for example.")
        name, source = read_source(file)
        told = hosts.run_script(name, source, gpu, timeout, on)
        if not as_json:
            printing.note(f"script #{told['script']} is queued for {told['gpu']}")
        if not detach:
            return _followed(hosts, told, as_json=as_json)
        if as_json:
            printing.as_json(told)
        else:
            printing.say(f"kbslurm run --show {told['script']} shows what it came to")
    return EXIT_OK


def _followed(hosts: Hosts, told: Mapping[str, Any], *, as_json: bool) -> int:
    """Wait for its end and show it. ^C cancels it; a second one leaves it to itself."""
    number = told["script"]
    try:
        with printing.progress(as_json) as tell:
            told = _to_the_end(hosts, told, tell)
    except KeyboardInterrupt:
        try:
            told = hosts.cancel_script(number)
            with printing.progress(as_json) as tell:
                told = _to_the_end(hosts, told, tell)
        except KeyboardInterrupt:
            what = f"script #{number} is being cancelled"
            return printing.interrupted(what, f"To see it: {printing.command()} run --show {number}", as_json=as_json)
    return _shown(told, as_json=as_json)


def _to_the_end(hosts: Hosts, told: Mapping[str, Any], tell: printing.Tell) -> Mapping[str, Any]:
    away_since: float | None = None
    while not told["done"]:
        where = f" at {told['place']}" if told["place"] and told["state"] != "queued" else ""
        tell({"phase": f"script #{told['script']} is {told['state']}{where}"})
        time.sleep(LOOK_S)
        try:
            told, away_since = hosts.script(told["script"]), None
        except (BackendTrouble, NotAccepting) as error:
            away_since = away_since or time.monotonic()
            if time.monotonic() - away_since > AWAY_S:
                raise
            tell({"phase": f"{error.message}; trying again"})
    return told


def _shown(told: Mapping[str, Any], *, as_json: bool) -> int:
    if as_json:
        printing.as_json(told)
        return _exit_code(told)
    if told["output"]:
        text = printing.harmless(told["output"])
        print(text, end="" if text.endswith("\n") else "\n", flush=True)
    at = "" if told["place"] is None else f" at {told['place']}{', ' + told['node'] if told['node'] else ''}"
    took = "" if told["took_s"] is None else f" after {printing.span(told['took_s'])}"
    ended = (told["reason"] or told["state"]) if told["done"] else told["state"]
    printing.note(f"script #{told['script']} on {told['gpu']}{at}: {ended}{took}")
    printing.note(f"{told['used_gpu_s']:g} of {told['gpu_s_per_day']:g} GPU-seconds used within a day")
    return _exit_code(told)


def _exit_code(told: Mapping[str, Any]) -> int:
    if not told["done"] or told["verdict"] == "passed":
        return EXIT_OK
    if told["state"] == "cancelled":
        return EXIT_INTERRUPTED
    return EXIT_INFRASTRUCTURE if told["verdict"] in (None, "infrastructure") else EXIT_REJECTED
