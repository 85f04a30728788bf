"""`kbslurm rejudge`: judge a board's runs again, review what would change, then apply or cancel it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from kbslurm.cli.arguments import BoardName, Json
from kbslurm.cli.host.connect import host
from kbslurm.cli.output import printing
from kbslurm.domain.amounts import counted
from kbslurm.errors import EXIT_OK, Invalid
from kbslurm.flow import rejudge as rules


def rejudge(
    name: BoardName,
    filter_: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]...", help="Which runs, by submission, gpu, verdict, mode or person."),
    ] = None,
    version: Annotated[
        int | None, typer.Option(help="The problem version to judge by (default: the live one).")
    ] = None,
    estimate: Annotated[
        bool, typer.Option("--estimate", help="Say what it would cost and how long it would take; order nothing.")
    ] = False,
    preview: Annotated[bool, typer.Option("--preview", help="Order a rejudge, or show how it stands.")] = False,
    apply: Annotated[bool, typer.Option("--apply", help="Make all new verdicts count and the version live.")] = False,
    cancel: Annotated[bool, typer.Option("--cancel", help="Discard the new verdicts.")] = False,
    as_json: Json = False,
) -> int:
    """Judge a board's runs again. Nothing counts until --apply, which applies everything together; until then only
    hosts see it."""
    if not (preview or apply or cancel or estimate):
        raise Invalid("--preview, --apply or --cancel is missing", hint="--preview orders a rejudge or shows it.")
    if preview + apply + cancel + estimate != 1:
        raise Invalid("--estimate, --preview, --apply and --cancel exclude each other", hint="Pass one of them.")
    rules.parsed(filter_ or [])
    if (filter_ or version is not None) and not (preview or estimate):
        raise Invalid("a rejudge is applied or cancelled as a whole", hint="Leave out the filter and --version.")
    with host() as hosts:
        if estimate:
            return costs(hosts.rejudge_estimate(name, filter_ or (), version), as_json)
        if apply:
            return told(hosts.rejudge_apply(name), as_json)
        if cancel:
            return told(hosts.rejudge_cancel(name), as_json)
        return told(hosts.rejudge_preview(name, filter_ or (), version), as_json)


def costs(found: Mapping[str, Any], as_json: bool) -> int:
    """What a rejudge would come to."""
    if as_json:
        printing.as_json(found)
        return EXIT_OK
    if not found["runs"]:
        printing.say(f"{found['board']}: no finished run matches")
        return EXIT_OK
    for row in found["rows"]:
        cold = "" if row["cold_s"] is None else f", about {printing.span(row['cold_s'])} as jobs of their own"
        workers = counted(row["warm_workers"], "warm worker")
        warm = "" if row["warm_s"] is None else f", about {printing.span(row['warm_s'])} with {workers}"
        where = f" at {row['place']}" if row["place"] else ""
        printing.say(f"{row['gpu']}{where}: {counted(row['runs'], 'run')}, {row['gpu_s']:.0f} GPU-seconds{cold}{warm}")
    price = f", {found['money']:.2f} {found['currency']}" if found["money"] else ""
    printing.say(f"{counted(found['runs'], 'run')} of {found['board']}: about {found['gpu_s']:.0f} GPU-seconds{price}")
    return EXIT_OK


def told(found: Mapping[str, Any], as_json: bool, *, command: str = "kbslurm rejudge BOARD") -> int:
    """How a rejudge stands. `command`: what applies or cancels it."""
    if as_json:
        printing.as_json(found)
        return EXIT_OK
    headings, lines = rules.rows({(row["before"], row["after"]): row["runs"] for row in found["matrix"]})
    title = f"{found['board']}: rejudge with version {found['version']}, {found['state']}"
    printing.table(headings, lines, title=title)
    printing.say(
        f"{found['changed']} would change, {found['open']} open; {found['spent_gpu_s']:.1f} GPU-seconds spent"
        f" of about {found['expected_gpu_s']:.1f}"
    )
    if found["state"] == "preview":
        printing.say(f"once all runs have ended, {command} --apply makes it count, --cancel discards it")
    return EXIT_OK
