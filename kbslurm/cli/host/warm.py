"""`kbslurm warm …`: jobs that hold a GPU for a while, so that runs start in them at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from kbslurm.cli.arguments import Json
from kbslurm.cli.host.connect import host
from kbslurm.cli.output import printing
from kbslurm.domain.amounts import counted
from kbslurm.errors import EXIT_OK

On = Annotated[str | None, typer.Option("--on", help="The place (default: the only one that allows any).")]
Gpu = Annotated[str | None, typer.Option("--gpu", help="The GPU type (default: the only one that allows any).")]
HEADINGS = ("worker", "place", "GPU", "state", "node", "age", "served", "idle", "ends in")


def list_(as_json: Json = False) -> int:
    """List the warm workers, and what the sites allow and what was made of it."""
    with host() as hosts:
        told = hosts.warm()
    if as_json:
        printing.as_json(told)
        return EXIT_OK
    show(told["workers"])
    for rule in told["rules"]:
        printing.say(rule_in_words(rule))
    if not told["rules"]:
        printing.say("no site allows warm workers; docs/site-admin.md says how one does")
    return EXIT_OK


def start(
    count: Annotated[int, typer.Argument(min=1, max=64, help="How many.")] = 1,
    on: On = None,
    gpu: Gpu = None,
    as_json: Json = False,
) -> int:
    """Start warm workers, within what the site's file allows. They end by themselves after a while without a run, and
    when other people wait."""
    with host() as hosts:
        told = hosts.warm_start(count, on, gpu)
    if as_json:
        printing.as_json(told)
        return EXIT_OK
    named = ", ".join(map(str, told["started"]))
    printing.say(f"{counted(len(told['started']), 'warm worker')} asked for: {named}; kbslurm warm list shows them")
    return EXIT_OK


def drain(
    worker: Annotated[int | None, typer.Argument(min=1, help="Its number, as in kbslurm warm list.")] = None,
    every: Annotated[bool, typer.Option("--all", help="All of them.")] = False,
    on: On = None,
    gpu: Gpu = None,
    as_json: Json = False,
) -> int:
    """Let warm workers go: each finishes its run, takes no other, and gives its GPU back."""
    with host() as hosts:
        told = hosts.warm_drain(worker, on, gpu, every=every)
    if as_json:
        printing.as_json(told)
        return EXIT_OK
    many = counted(len(told["drained"]), "warm worker")
    named = ", ".join(map(str, told["drained"]))
    printing.say(f"{many} let go: {named}" if named else "no warm worker to let go")
    return EXIT_OK


def show(workers: list[Mapping[str, Any]]) -> None:
    """The table of them, if there are any."""
    if not workers:
        return
    rows = [
        (
            str(row["worker"]),
            printing.escape(row["place"]),
            printing.escape(row["gpu"]),
            "busy" if row["busy"] and row["state"] == "holding" else row["state"],
            printing.escape(row["node"] or "–"),
            printing.span(row["age_s"]),
            str(row["served"]),
            "–" if row["busy"] or row["held_s"] is None else printing.span(row["idle_s"]),
            "–" if row["ends_in_s"] is None else printing.span(row["ends_in_s"]),
        )
        for row in workers
    ]
    printing.table(HEADINGS, rows, title="warm workers")
    for row in workers:
        if row["leaving"]:
            printing.say(f"{row['worker']} is leaving: {row['leaving']}")


def rule_in_words(rule: Mapping[str, Any]) -> str:
    """What a site allows, and what was made of it."""
    share = f"idle for {rule['idle_share']:.0%} of {printing.span(rule['held_s'])} held in the last 24 h"
    used = share if rule["held_s"] else "none in the last 24 h"
    why = f"; {rule['why']}" if rule["why"] else ""
    return f"{rule['place']}, {rule['gpu']}: {rule['open']} of {rule['most']}, {used}{why}"
