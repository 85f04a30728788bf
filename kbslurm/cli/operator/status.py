"""`kbslurm status`: the whole service on one screen, with an exit code for monitoring."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Annotated, Any

import typer

from kbslurm.api.hosting.status import Status
from kbslurm.cli.arguments import Json
from kbslurm.cli.context import configuration
from kbslurm.cli.host import warm
from kbslurm.cli.operator.status_facts import Fleets, looked
from kbslurm.cli.output import printing
from kbslurm.cli.service_in_use import in_use
from kbslurm.errors import EXIT_BUG, EXIT_OK


def status(
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Refresh every two seconds, until ^C.")] = False,
    every_s: Annotated[float, typer.Option("--every", min=0.5, help="Seconds between refreshes, with --watch.")] = 2.0,
    ask_sites: Annotated[
        bool | None,
        typer.Option(
            "--sites/--no-sites", help="Query Slurm for nodes and GPUs.", show_default="only without a daemon"
        ),
    ] = None,
    as_json: Json = False,
) -> int:
    """Show the queue by GPU type, backends, daemon, database, and what needs attention. Exit code 1 when unhealthy.

    It shows what the daemon knows. Slurm itself is queried for its nodes, with one sinfo and one scontrol, only if no
    daemon is leading or with --sites: once a minute at most, and within the site's calls_per_minute. Of a service
    elsewhere you see what it says of itself.
    """
    config, fleets = configuration(), Fleets()
    while True:
        found = looked(config)
        wanted = found.daemon.startswith("none") if ask_sites is None else ask_sites
        if wanted and in_use() is None:
            fleets.show(config, found)
        if watch and not as_json:
            printing.out().clear()
        _shown(found, as_json)
        if not watch:
            return EXIT_BUG if found.troubles else EXIT_OK
        time.sleep(every_s)


def _shown(found: Status, as_json: bool) -> None:
    if as_json:
        printing.as_json({"healthy": not found.troubles, **printing.jsonable(found)})
        return
    console = printing.out()
    say = console.print
    say(f"[bold]database[/]  {printing.escape(found.database)}", soft_wrap=True)
    say(f"[bold]daemon[/]    {printing.escape(found.daemon)}", soft_wrap=True)
    if found.accepts_jobs is not None:
        say(f"[bold]intake[/]    {'open' if found.accepts_jobs else '[yellow]paused[/]'}")
    if found.backends:
        rows = [
            (printing.escape(r["backend"]), printing.escape(r["gpu"]), f"{r['open']}/{r['slots']}")
            for r in found.backends
        ]
        printing.table(("backend", "GPU", "open"), rows)
    if found.queue:
        printing.table(("GPU", "queued", "launching", "running", "oldest"), [_line(row) for row in found.queue])
    elif found.accepts_jobs is not None:
        say("the queue is empty")
    for row in found.waiting:
        how = "submitted but not started" if row["submitted"] else "not started"
        where = f"{row['backend']}, {row['gpu']}: {row['attempts']} {how}"
        say(f"{printing.escape(where)}: {printing.escape(row['reason'])}", soft_wrap=True)
    for row in found.places:
        _say_place(say, row)
        _say_limits(say, row)
        _say_breaker(say, row, found.overflow)
    for drain in found.drains:
        say(f"[yellow]attention[/]  {printing.escape(drained_in_words(drain))}", soft_wrap=True)
    if rule := found.overflow.get("rule"):
        say(f"[bold]overflow[/]  {printing.escape(rule)}", soft_wrap=True)
        for gpu, why in sorted(found.overflow["gpus"].items()):
            say(f"  {printing.escape(gpu)}: {printing.escape(why)}", soft_wrap=True)
        _say_budget(say, found.overflow)
    if found.warm:
        warm.show(found.warm["workers"])
        for rule in found.warm["rules"]:
            say(f"[bold]warm[/]      {printing.escape(warm.rule_in_words(rule))}", soft_wrap=True)
    for row in found.fleet:
        _say_fleet(say, row)
    for row in found.attention:
        since = printing.ago(datetime.fromisoformat(row["since"]))
        say(f"[yellow]attention[/]  {printing.escape(row['text'])} ({since})", soft_wrap=True)
    if found.next:
        say("nothing is set up here yet; next:")
    for step in found.next:
        say(f"  {printing.escape(step)}", soft_wrap=True)
    for trouble in found.troubles:
        say(f"[red]trouble[/]  {printing.escape(trouble)}", soft_wrap=True)


def drained_in_words(drain: Mapping[str, Any]) -> str:
    """That a place drains, since when, by whom and why."""
    what = f"{drain['gpu']} at {drain['place']}" if drain["gpu"] else drain["place"]
    since = printing.ago(datetime.fromisoformat(drain["at"]))
    why = f": {drain['why']}" if drain["why"] else ""
    return f"{what} is draining, by {drain['by']} for {since}{why}"


def _say_place(say: Callable[..., None], row: Mapping[str, Any]) -> None:
    name = printing.escape(row["backend"])
    if row["troubles"]:
        why = printing.escape(_plain(row, row["why"]))
        say(f"[yellow]attention[/]  {name} isn't used for a while: {why}", soft_wrap=True)
    if pace := row["pace"]:
        if pace.get("failing"):
            why = _plain(row, pace.get("why")) or "no answer"
            said = f"{row['backend']}: its scheduler doesn't answer ({why}); it is asked again"
            said += f" every {printing.span(pace['interval_s'])}, and running jobs aren't affected"
            say(f"[yellow]attention[/]  {printing.escape(said)}", soft_wrap=True)
        slow = ", slow" if pace["slow"] else ""
        left = f"{pace['budget_left']:.0f} left this minute"
        way = f" through {printing.escape(pace['way'])}" if pace.get("way") else ""
        every = printing.span(pace["interval_s"])
        say(f"{name}: {pace['calls']} scheduler calls{way}, {left}; polled every {every}{slow}")


def _plain(row: Mapping[str, Any], why: str | None) -> str:
    """A reason without the place's name, which the line has already."""
    return (why or "").removeprefix(f"{row['backend']}: ")


def _say_limits(say: Callable[..., None], row: Mapping[str, Any]) -> None:
    """What is left of a service's own limits, by the last answers."""
    told = []
    for one in row.get("limits") or ():
        until = f", until {printing.when(datetime.fromisoformat(one['resets_at']))}" if one["resets_at"] else ""
        told.append(f"{one['left']} of {one['most']} {one['what']}{until}")
    if told:
        say(f"{printing.escape(row['backend'])}: left are {printing.escape('; '.join(told))}", soft_wrap=True)


def _say_breaker(say: Callable[..., None], row: Mapping[str, Any], overflow: Mapping[str, Any]) -> None:
    """Shown only if there is another place to go: otherwise the breaker holds no run back."""
    breaker = row.get("breaker")
    if not overflow.get("rule") or not breaker or breaker["state"] == "closed":
        return
    name, why = printing.escape(row["backend"]), printing.escape(breaker["why"])
    if breaker["state"] == "half_open":
        say(f"[yellow]attention[/]  {name} is being tested with one run: {why}", soft_wrap=True)
        return
    again = f", tried again at {printing.when(datetime.fromisoformat(breaker['try_at']))}" if breaker["try_at"] else ""
    say(f"[yellow]attention[/]  {name} gets no runs{again}: {why}", soft_wrap=True)


def _say_budget(say: Callable[..., None], overflow: Mapping[str, Any]) -> None:
    """What is spent of each budget, and which runs only that keeps at home."""
    budget, currency = overflow.get("budget", {}), overflow.get("currency", "")
    bounds = [("the month", budget)] if budget.get("month") is not None else []
    bounds += [(f"board {name}", one) for name, one in sorted(budget.get("boards", {}).items())]
    bounds += [(f"team {name}", one) for name, one in sorted(budget.get("teams", {}).items())]
    for whose, one in bounds:
        line = (
            f"{whose}: {one['spent']:.2f} of {one['month']:.2f} {currency} spent, counting open runs at their maximum"
        )
        say(f"[bold]budget[/]    {printing.escape(line)}", soft_wrap=True)
    held = {f"{gpu} runs": said for gpu, said in overflow.get("held_up", {}).items()}
    for of, key in (("board", "held_boards"), ("team", "held_teams")):
        for gpu, names in overflow.get(key, {}).items():
            held |= {f"{gpu} runs of {of} {name}": said for name, said in names.items()}
    for which, said in sorted(held.items()):
        say(f"[yellow]attention[/]  {printing.escape(f'{which}: {said}')}", soft_wrap=True)


def _say_fleet(say: Callable[..., None], row: Mapping[str, Any]) -> None:
    gpus = ", ".join(f"{kind} {count['used']}/{count['usable']}" for kind, count in row["gpus"].items())
    say(
        f"{printing.escape(row['site'])}: {row['nodes']} nodes; GPUs in use: {printing.escape(gpus or 'none')}",
        soft_wrap=True,
    )
    if row.get("reader_why"):
        say(f"  read by Slurm's text commands, not by pyslurm: {printing.escape(row['reader_why'])}", soft_wrap=True)
    elif row.get("reader") == "pyslurm":
        say("  read by pyslurm")
    for node in row["unusable"]:
        why = f" ({printing.escape(node['why'])})" if node["why"] and node["why"] != "none" else ""
        say(f"  {printing.escape(node['node'])} {printing.escape(node['state'])}{why}", soft_wrap=True)
    for one in row["reservations"]:
        line = f"  reservation {one['name']}: {one['nodes']}, {one['state']}"
        say(printing.escape(line))


def _line(row: Mapping[str, Any]) -> tuple[str, ...]:
    oldest = "–" if row["oldest_s"] is None else printing.span(row["oldest_s"])
    return (printing.escape(row["gpu"]), str(row["queued"]), str(row["launching"]), str(row["running"]), oldest)
