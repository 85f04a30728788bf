"""`kbslurm place …`: how the places do, let them drain and take runs again, their log, and reload."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

import typer

from kbslurm.cli.arguments import Json
from kbslurm.cli.host.connect import host
from kbslurm.cli.output import printing
from kbslurm.domain.drains import in_full
from kbslurm.errors import EXIT_OK, BackendTrouble, Misconfigured, Refused

PlaceName = Annotated[str, typer.Argument(metavar="NAME", help="The place's name, as in kbslurm place list.")]
Gpu = Annotated[str | None, typer.Option("--gpu", help="Only this GPU type.")]
STATES = {"open": "green", "draining": "yellow", "resting": "red", "unknown": "dim"}
FOLLOW_S = 2.0
ANSWER_EVERY_S = 0.25


def list_(as_json: Json = False) -> int:
    """List the places: kind, GPUs in use, role, state, cost, last trouble."""
    with host() as hosts:
        told = hosts.place_list()
    if as_json:
        printing.as_json(told)
        return EXIT_OK
    rows = [
        (
            printing.escape(row["place"]),
            printing.escape(row["kind"] or "–"),
            "\n".join(_gpu(one) for one in row["gpus"]) or "none",
            row["role"] or "–",
            f"[{STATES[row['state']]}]{row['state']}[/]{printing.escape(_because(row))}",
            printing.escape(_cost(row)),
            printing.escape(_trouble(row["trouble"])),
        )
        for row in told["places"]
    ]
    if rows:
        printing.table(("place", "kind", "in use", "role", "state", "cost/h", "last trouble"), rows, wrap=4)
    else:
        printing.say("no place is configured; kbslurm place init describes one")
    _say_broken(told["reload"])
    return EXIT_OK


def drain(
    name: PlaceName,
    why: Annotated[str, typer.Option("--why", help="The reason, for everybody to read.")] = "",
    gpu: Gpu = None,
    as_json: Json = False,
) -> int:
    """Let nothing new go to a place; what is open there ends as usual. It holds across restarts, until
    kbslurm place resume.

    What waits goes elsewhere by the overflow rule, or waits. Warm workers there are let go.
    """
    with host() as hosts:
        told = hosts.place_drain(name, why, gpu)
    if as_json:
        printing.as_json(told)
        return EXIT_OK
    row = _named(told, name)
    still = sum(one["used"] for one in row["gpus"] if gpu is None or one["gpu"].lower() == gpu.lower())
    what = f"{gpu} at {row['place']}" if gpu else row["place"]
    printing.say(f"{what} takes no new runs; {still} {'slot is' if still == 1 else 'slots are'} still in use")
    return EXIT_OK


def resume(name: PlaceName, gpu: Gpu = None, as_json: Json = False) -> int:
    """Let new runs go to a place again."""
    with host() as hosts:
        told = hosts.place_resume(name, gpu)
    if as_json:
        printing.as_json(told)
        return EXIT_OK
    printing.say(f"{f'{gpu} at {name}' if gpu else name} takes runs again")
    return EXIT_OK


def logs(
    name: PlaceName,
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, max=1_000, help="How many, the newest.")] = 50,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what comes, until ^C.")] = False,
    as_json: Json = False,
) -> int:
    """Show what the daemon's log says about a place, and the attempts that went wrong there. Newest last, from the last
    14 days.

    Each run's own steps aren't in it: kbslurm why and kbslurm logs show those. With --follow, --json prints one object
    per line.
    """
    with host() as hosts:
        told = hosts.place_log(name, lines)
        if as_json and not follow:
            printing.as_json(told)
            return EXIT_OK
        _show_lines(told["lines"], as_json)
        if not told["lines"] and not follow:
            printing.say(f"nothing is known of {told['place']} in the last 14 days")
        seen = list(told["lines"])
    while follow:
        time.sleep(FOLLOW_S)
        since = seen[-1]["at"] if seen else None
        with host() as hosts:  # with the time as it is now
            found = hosts.place_log(name, 1_000, since)["lines"]
        fresh = [one for one in found if one not in seen[-1_000:]]
        _show_lines(fresh, as_json)
        seen = (seen + fresh)[-1_000:]
    return EXIT_OK


def reload(
    wait_s: Annotated[float, typer.Option("--wait", min=1, max=600, help="Seconds to wait for the answer.")] = 60.0,
    as_json: Json = False,
) -> int:
    """Have the daemon take the changed configuration without losing anything, and show its answer. SIGHUP does the
    same.

    Open runs go on. A place that is gone from the file drains until they have ended. A file that can't be used changes
    nothing: exit code 2.
    """
    with host() as hosts:
        ordered = hosts.reload()
        if ordered["leader"] is None:
            if not ordered["ticks"]:
                raise Refused("no daemon is running, so there is nothing to reload", hint="kbslurm up reads it anew.")
            said = "kbslurm tick does the daemon's work here, and reads the configuration each time"
            return printing.answer(as_json, said, **ordered)
        until, answer = time.monotonic() + wait_s, None
        with printing.progress(as_json) as tell:
            tell({"phase": f"waiting for {ordered['leader']}"})
            while (answer := hosts.reloaded(ordered["order"])) is None and time.monotonic() < until:
                time.sleep(ANSWER_EVERY_S)
    if answer is None:
        raise BackendTrouble(
            "daemon",
            f"{ordered['leader']} hasn't answered within {wait_s:.0f} s",
            hint="It reads the configuration between two ticks; kbslurm status shows how that went.",
        )
    if not answer["ok"]:
        raise Misconfigured(f"nothing was changed: {answer['why']}", fix="Mend it, then reload again.")
    if as_json:
        printing.as_json({**ordered, "answer": answer})
        return EXIT_OK
    for line in answer["changes"] or ["nothing changed at the places"]:
        printing.say(line)
    if answer["restart"]:
        printing.caution(f"these hold from the next start of kbslurm up on: {', '.join(answer['restart'])}")
    return EXIT_OK


def _named(told: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = next(row for row in told["places"] if row["place"].lower() == name.lower())
    return found


def _gpu(one: Mapping[str, Any]) -> str:
    mark = " [yellow]draining[/]" if one["draining"] else ""
    return f"{printing.escape(one['gpu'])} {one['used']}/{one['slots']}{mark}"


def _because(row: Mapping[str, Any]) -> str:
    """Why it is in its state, or which of its GPU types drain and why."""
    if row["state"] != "open":
        return f", {row['why']}" if row["why"] else ""
    some = {one["gpu"]: one["draining"] for one in row["gpus"] if one["draining"]}
    return "".join(f"; {gpu} {in_full(told)}" for gpu, told in some.items())


def _cost(row: Mapping[str, Any]) -> str:
    costs = [f"{one['cost_per_gpu_hour']:.2f} {row['currency']}".strip() for one in row["gpus"]]
    return "\n".join(costs) if any(one["cost_per_gpu_hour"] for one in row["gpus"]) else "–"


def _trouble(told: Mapping[str, Any] | None) -> str:
    if told is None:
        return "–"
    return f"{printing.ago(datetime.fromisoformat(told['at']))} ago: {told['text']}"


def _say_broken(told: Mapping[str, Any]) -> None:
    if told and not told.get("ok", True):
        printing.caution(f"the configuration can't be used as it is now, so the earlier one holds: {told['why']}")


def _show_lines(lines: list[Mapping[str, Any]], as_json: bool) -> None:
    for one in lines:
        if as_json:
            print(json.dumps(one), flush=True)
            continue
        mark = {"warning": "[yellow]warning[/] ", "error": "[red]trouble[/] "}.get(one["level"], "")
        at = printing.when(datetime.fromisoformat(one["at"]))
        printing.out().print(f"[dim]{at}[/] {mark}{printing.escape(one['text'])}", soft_wrap=True)
    sys.stdout.flush()
