"""`kbslurm status`: the whole service on one screen, and an exit code that a monitor understands."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kbslurm.cli import show
from kbslurm.cli.frame import Json, app, configuration
from kbslurm.errors import EXIT_BUG, EXIT_OK, KbslurmError

if TYPE_CHECKING:
    from kbslurm.config.settings import Config
    from kbslurm.domain.site import Fleet
    from kbslurm.flow.place import Place
    from kbslurm.store.postgres import PostgresStore
    from kbslurm.store.views import Want


GIVEN_UP_ON = 3


@dataclass(kw_only=True)
class Status:
    """What there is to say. `troubles` make it unhealthy; `attention` wants a look but harms nobody."""

    database: str = "unreachable"
    daemon: str = "none"
    accepts_jobs: bool | None = None
    queue: list[dict[str, Any]] = field(default_factory=list)
    backends: list[dict[str, Any]] = field(default_factory=list)
    attention: list[dict[str, Any]] = field(default_factory=list)
    waiting: list[dict[str, Any]] = field(default_factory=list)
    places: list[dict[str, Any]] = field(default_factory=list)
    overflow: dict[str, Any] = field(default_factory=dict)
    fleet: list[dict[str, Any]] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)


@app.command()
def status(
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Again every two seconds, until ^C.")] = False,
    every_s: Annotated[float, typer.Option("--every", min=0.5, help="How often, with --watch.")] = 2.0,
    ask_sites: Annotated[bool, typer.Option("--sites/--no-sites", help="Ask Slurm for nodes and GPUs.")] = True,
    as_json: Json = False,
) -> int:
    """Queue by GPU type, backends, daemon, database, and what needs attention. Exit code 1 when unhealthy.

    Sites are asked what their machines do: one sinfo and one scontrol each, unless --no-sites.
    """
    config = configuration()
    while True:
        found = looked(config)
        if ask_sites:
            _look_at_fleets(config, found)
        if watch and not as_json:
            show.out().clear()
        _shown(found, as_json)
        if not watch:
            return EXIT_BUG if found.troubles else EXIT_OK
        time.sleep(every_s)


def looked(config: Config) -> Status:
    """One look at everything. What can't be reached is a trouble, not an exception."""
    from kbslurm import wiring
    from kbslurm.store import migrate

    found = Status()
    try:
        with wiring.opened_store(config, migrated=False) as store:
            found.database = f"Postgres {store.server_version()} at {store.where}"
            migrate.ensure_current(store.url)  # else what is read below may mean something else, or not be there
            _look_at_rows(store, found)
            _look_at_backends(config, store, found)
    except KbslurmError as error:
        found.troubles.append(error.message + (f" ({error.hint})" if error.hint else ""))
    return found


def _look_at_rows(store: PostgresStore, found: Status) -> None:
    now = datetime.now(UTC)
    found.accepts_jobs = store.accepts_jobs()
    leader = next((line for line in store.lease_view() if line.name == "daemon"), None)
    if leader is None or leader.expires_at < now:
        found.troubles.append("no daemon leads: nothing is launched or collected (kbslurm up starts one)")
        found.daemon = "none" if leader is None else f"none since {show.ago(leader.beat_at, now)}"
    else:
        found.daemon = f"{leader.holder}, for {show.ago(leader.elected_at, now)}"
        _look_at_lanes(leader.info, found)
    found.queue = [
        {**show.plain(line), "oldest_s": round((now - line.oldest_at).total_seconds()) if line.oldest_at else None}
        for line in store.queue_view()
    ]
    found.attention = [dict(show.plain(line)) for line in store.attention()]
    found.waiting = [dict(show.plain(line)) for line in store.waits()]


def _look_at_lanes(info: Mapping[str, Any], found: Status) -> None:
    """What the leader told of its places when it last renewed its lease."""
    for name, told in info.get("places", {}).items():
        found.places.append({"backend": name, **told})
        if told["troubles"] >= GIVEN_UP_ON:
            found.troubles.append(f"{name} fails again and again: {told['why']}")
    found.overflow = dict(info.get("overflow", {}))


def _look_at_fleets(config: Config, found: Status) -> None:
    from kbslurm import wiring

    try:
        sites = wiring.sites(config)
    except KbslurmError:
        return  # the look at the backends has told it
    for site in sites:
        try:
            fleet = wiring.fleet(site)
        except KbslurmError as error:
            found.troubles.append(error.message)
            continue
        found.fleet.append(
            {
                "site": site.name,
                "reader": fleet.reader,
                "gpus": {kind: dict(zip(("used", "usable"), fleet.gpus(kind), strict=True)) for kind in _kinds(fleet)},
                "nodes": len(fleet.nodes),
                "unusable": [{"node": n.name, "state": n.state, "why": n.reason} for n in fleet.nodes if not n.usable],
                "reservations": [dict(show.plain(one)) for one in fleet.reservations],
            }
        )


def _kinds(fleet: Fleet) -> list[str]:
    return sorted({kind for node in fleet.nodes for kind in node.gpus})


def _look_at_backends(config: Config, store: PostgresStore, found: Status) -> None:
    from kbslurm import wiring

    opened: dict[tuple[str, str], int] = {}
    for attempt in store.open_attempts():
        opened[attempt.backend, attempt.gpu] = opened.get((attempt.backend, attempt.gpu), 0) + 1
    for place in wiring.places(config):
        for gpu, slots in place.backend.capacity().items():
            row = {"backend": place.name, "gpu": gpu, "open": opened.pop((place.name, gpu), 0), "slots": slots}
            found.backends.append(row)
    for lane in found.places:
        # What only the leader has, on another host perhaps: its slots are as good as ours.
        for gpu, slots in lane.get("slots", {}).items():
            if not any((known["backend"], known["gpu"]) == (lane["backend"], gpu) for known in found.backends):
                count = opened.pop((lane["backend"], gpu), 0)
                found.backends.append({"backend": lane["backend"], "gpu": gpu, "open": count, "slots": slots})
    for (backend, gpu), count in sorted(opened.items()):
        found.backends.append({"backend": backend, "gpu": gpu, "open": count, "slots": 0})
        found.troubles.append(
            f"{count} attempts are open at {backend} ({gpu}), which neither the leader nor this host has:"
            " they wait for one that does, or to be cancelled"
        )
    offers = [offer for place in wiring.places(config) for offer in _offers_of(place)]
    _look_for_takers(store, [*offers, *(offer for lane in found.places for offer in _offers_told(lane))], found)
    if not found.backends:
        found.troubles.append(
            "no backend is configured: nothing can run (kbslurm site init, or [daemon.local] slots = { H100 = 1 })"
        )


@dataclass(frozen=True, kw_only=True)
class Offer:
    """What a place gives a run: a GPU type, how many of them on one node, and whether only staff's runs go there."""

    gpu: str
    most: int | None
    staff_only: bool

    def meets(self, want: Want) -> bool:
        """Whether these runs could ever go there."""
        wide_enough = self.most is None or want.gpus <= self.most
        return self.gpu == want.gpu and wide_enough and (want.by_staff or not self.staff_only)


def _offers_of(place: Place) -> list[Offer]:
    return [
        Offer(gpu=gpu, most=place.widest.get(gpu), staff_only=not place.untrusted)
        for gpu, slots in place.backend.capacity().items()
        if slots
    ]


def _offers_told(lane: Mapping[str, Any]) -> list[Offer]:
    """The same of a place that only the leader has."""
    widest, staff_only = lane.get("widest", {}), lane.get("staff_only", False)
    slots = lane.get("slots", {})
    return [Offer(gpu=gpu, most=widest.get(gpu), staff_only=staff_only) for gpu, count in slots.items() if count]


def _look_for_takers(store: PostgresStore, offers: list[Offer], found: Status) -> None:
    """Runs that no place can take wait for ever, and nothing else would say so."""
    for want in store.wants():
        if not any(offer.meets(want) for offer in offers):
            what = want.gpu if want.gpus == 1 else f"{want.gpus} {want.gpu} on one node"
            whose = "" if want.by_staff else " to others than staff"
            found.troubles.append(
                f"queued runs that no place takes: {want.runs} want {what}, which nothing here gives{whose};"
                " they wait for a place that does, or to be cancelled"
            )


def _shown(found: Status, as_json: bool) -> None:
    if as_json:
        show.as_json({"healthy": not found.troubles, **show.plain(found)})
        return
    console = show.out()
    say = console.print
    say(f"[bold]database[/]  {show.escape(found.database)}", soft_wrap=True)
    say(f"[bold]daemon[/]    {show.escape(found.daemon)}", soft_wrap=True)
    if found.accepts_jobs is not None:
        say(f"[bold]intake[/]    {'open' if found.accepts_jobs else '[yellow]paused[/]'}")
    if found.backends:
        rows = [(show.escape(r["backend"]), show.escape(r["gpu"]), f"{r['open']}/{r['slots']}") for r in found.backends]
        show.table(("backend", "GPU", "open"), rows)
    if found.queue:
        show.table(("GPU", "queued", "launching", "running", "oldest"), [_line(row) for row in found.queue])
    elif found.accepts_jobs is not None:
        say("the queue is empty")
    for row in found.waiting:
        where = f"{row['backend']}, {row['gpu']}: {row['attempts']} submitted and not started"
        say(f"{show.escape(where)}: {show.escape(row['reason'])}", soft_wrap=True)
    for row in found.places:
        _say_place(say, row)
        _say_breaker(say, row, found.overflow)
    if rule := found.overflow.get("rule"):
        say(f"[bold]overflow[/]  {show.escape(rule)}", soft_wrap=True)
        for gpu, why in sorted(found.overflow["gpus"].items()):
            say(f"  {show.escape(gpu)}: {show.escape(why)}", soft_wrap=True)
        _say_budget(say, found.overflow)
    for row in found.fleet:
        _say_fleet(say, row)
    for row in found.attention:
        say(f"[yellow]look[/]  {show.escape(row['text'])} ({show.ago(row['since'])})", soft_wrap=True)
    for trouble in found.troubles:
        say(f"[red]trouble[/]  {show.escape(trouble)}", soft_wrap=True)


def _say_place(say: Callable[..., None], row: Mapping[str, Any]) -> None:
    name = show.escape(row["backend"])
    if row["troubles"]:
        say(f"[yellow]look[/]  {name} is left alone for a while: {show.escape(row['why'])}", soft_wrap=True)
    if pace := row["pace"]:
        slow = ", slow" if pace["slow"] else ""
        left = f"{pace['budget_left']:.0f} left this minute"
        say(f"{name}: {pace['calls']} scheduler calls, {left}; asked every {show.span(pace['interval_s'])}{slow}")


def _say_breaker(say: Callable[..., None], row: Mapping[str, Any], overflow: Mapping[str, Any]) -> None:
    """Only where there is another place to go: else a breaker keeps nobody away."""
    breaker = row.get("breaker")
    if not overflow.get("rule") or not breaker or breaker["state"] == "closed":
        return
    name, why = show.escape(row["backend"]), show.escape(breaker["why"])
    if breaker["state"] == "half_open":
        say(f"[yellow]look[/]  {name} is tried with one run: {why}", soft_wrap=True)
        return
    again = f", tried again at {breaker['try_at'][11:19]} UTC" if breaker["try_at"] else ""
    say(f"[yellow]look[/]  {name} gets no runs{again}: {why}", soft_wrap=True)


def _say_budget(say: Callable[..., None], overflow: Mapping[str, Any]) -> None:
    """What is spent of each bound, and whom only that keeps at home."""
    budget, currency = overflow.get("budget", {}), overflow.get("currency", "")
    bounds = [("the month", budget)] if budget.get("month") is not None else []
    bounds += [(f"board {name}", one) for name, one in sorted(budget.get("boards", {}).items())]
    bounds += [(f"team {name}", one) for name, one in sorted(budget.get("teams", {}).items())]
    for whose, one in bounds:
        line = f"{whose}: {one['spent']:.2f} of {one['month']:.2f} {currency} spent, open runs at their most"
        say(f"[bold]budget[/]    {show.escape(line)}", soft_wrap=True)
    held = {f"{gpu} runs": said for gpu, said in overflow.get("held_up", {}).items()}
    for of, key in (("board", "held_boards"), ("team", "held_teams")):
        for gpu, names in overflow.get(key, {}).items():
            held |= {f"{gpu} runs of {of} {name}": said for name, said in names.items()}
    for which, said in sorted(held.items()):
        say(f"[yellow]look[/]  {show.escape(f'{which}: {said}')}", soft_wrap=True)


def _say_fleet(say: Callable[..., None], row: Mapping[str, Any]) -> None:
    gpus = ", ".join(f"{kind} {count['used']}/{count['usable']}" for kind, count in row["gpus"].items())
    say(f"{show.escape(row['site'])}: {row['nodes']} nodes; GPUs in use: {show.escape(gpus or 'none')}", soft_wrap=True)
    for node in row["unusable"]:
        why = f" ({show.escape(node['why'])})" if node["why"] and node["why"] != "none" else ""
        say(f"  {show.escape(node['node'])} {show.escape(node['state'])}{why}", soft_wrap=True)
    for one in row["reservations"]:
        say(f"  reservation {show.escape(one['name'])}: {show.escape(one['nodes'])}, {show.escape(one['state'])}")


def _line(row: Mapping[str, Any]) -> tuple[str, ...]:
    oldest = "–" if row["oldest_s"] is None else show.span(row["oldest_s"])
    return (show.escape(row["gpu"]), str(row["queued"]), str(row["launching"]), str(row["running"]), oldest)
