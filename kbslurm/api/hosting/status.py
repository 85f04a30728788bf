"""How the service is doing: the state of the database, the daemon, the places and the queue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from kbslurm import wiring
from kbslurm.api.hosting import warm
from kbslurm.api.hosting.host_acts import HostActs
from kbslurm.domain import drains
from kbslurm.domain.amounts import counted, span
from kbslurm.domain.drains import BY_FILE
from kbslurm.errors import KbslurmError
from kbslurm.ports import TICKS

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from kbslurm.config.settings import Config
    from kbslurm.flow.place import Place
    from kbslurm.store.postgres import PostgresStore
    from kbslurm.store.views import Want

GIVEN_UP_ON = 3
FIRST_STEPS = (
    "kbslurm demo plays a competition on this machine",
    "kbslurm site init describes your cluster; [daemon.local] slots = { H100 = 1 } makes this machine play a GPU",
    "kbslurm board create NAME --gpus H100 --reference FILE.py makes the first board",
    "kbslurm up starts the service",
)


@dataclass(kw_only=True)
class Status:
    """The facts to show. `troubles` make it unhealthy; `attention` should be reviewed but does no harm. `next`: what to
    do first, in an installation that nobody has used yet."""

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
    warm: dict[str, Any] = field(default_factory=dict)
    drains: list[dict[str, Any]] = field(default_factory=list)
    reload: dict[str, Any] = field(default_factory=dict)
    troubles: list[str] = field(default_factory=list)
    next: list[str] = field(default_factory=list)


class StatusActs(HostActs):
    """How the service is doing."""

    def service_status(self) -> Status:
        """The state of the database, the daemon, the places and the queue, read once."""
        found = Status()
        look(self.config, self.store, found)
        return found


def look(config: Config, store: PostgresStore, found: Status) -> None:
    """Read everything once. What can't be reached is a trouble, not an exception."""
    from kbslurm.store import migrate

    try:
        found.database = f"Postgres {store.server_version()} at {store.where}"
        if config.database_url is None and migrate.check(store.url) is migrate.Schema.EMPTY:
            found.next = [*FIRST_STEPS]
            return
        migrate.ensure_current(store.url)  # otherwise what is read below may differ or be missing
        _look_at_rows(store, found)
        _look_at_backends(config, store, found)
        _look_at_warm(config, store, found)
        if not store.boards.names() and not store.leases.all():
            found.next, found.troubles = [*FIRST_STEPS], []  # what is missing isn't broken
    except KbslurmError as error:
        found.troubles.append(error.message + (f" ({error.hint})" if error.hint else ""))


def _look_at_rows(store: PostgresStore, found: Status) -> None:
    now = datetime.now(UTC)
    found.accepts_jobs = store.settings.accepts_jobs()
    leases = {line.name: line for line in store.leases.all()}
    leader, ticks = leases.get("daemon"), leases.get(TICKS)
    if (leader is None or leader.expires_at < now) and ticks is not None and ticks.expires_at > now:
        ago = span((now - ticks.beat_at).total_seconds())
        found.daemon = f"by kbslurm tick, the last one {ago} ago by {ticks.info.get('host', 'an unknown host')}"
        _look_at_lanes(ticks.info, found)
    elif leader is None or leader.expires_at < now:
        found.troubles.append("no daemon is leading: nothing is launched or collected (kbslurm up starts one)")
        beats = [line.beat_at for line in (leader, ticks) if line is not None]
        found.daemon = f"none since {span((now - max(beats)).total_seconds())}" if beats else "none"
    else:
        found.daemon = f"{leader.holder}, for {span((now - leader.elected_at).total_seconds())}"
        _look_at_lanes(leader.info, found)
    found.queue = [
        {
            **_plain(line),
            "oldest_s": round((now - line.oldest_at).total_seconds()) if line.oldest_at else None,
        }
        for line in store.overview.queue()
    ]
    found.attention = [_plain(line) for line in store.overview.attention()]
    found.waiting = [_plain(line) for line in store.overview.waits()]
    _look_at_drains(store, found)


def _look_at_warm(config: Config, store: PostgresStore, found: Status) -> None:
    """The warm workers, and what keeps new ones from being started."""
    told = warm.told(config, store, datetime.now(UTC))
    found.warm = {"workers": told["workers"], "rules": told["rules"]} if told["workers"] or told["rules"] else {}


def _plain(line: DataclassInstance) -> dict[str, Any]:
    """A row as JSON."""
    return {
        one.name: value.isoformat() if isinstance(value := getattr(line, one.name), datetime) else value
        for one in fields(line)
    }


def _look_at_lanes(info: Mapping[str, Any], found: Status) -> None:
    """What the leader reported about its places when it last renewed its lease."""
    for name, told in info.get("places", {}).items():
        found.places.append({"backend": name, **told})
        if lapse := told.get("lapse"):
            found.troubles.append(f"{name}: {lapse}")
        elif told["troubles"] >= GIVEN_UP_ON:
            found.troubles.append(f"{name} keeps failing: {told['why']}")
    found.overflow = dict(info.get("overflow", {}))
    found.reload = dict(info.get("reload", {}))
    if found.reload and not found.reload.get("ok", True):
        found.troubles.append(
            f"the configuration can't be used as it is now, so the earlier one holds: {found.reload.get('why', '')}"
        )


def _look_at_drains(store: PostgresStore, found: Status) -> None:
    """Which places drain: by the rows, since the leader may not have published it yet, and as the leader says of those
    that left the configuration."""
    rows = store.places.drains()
    found.drains = [{"place": one.place, **one.told()} for one in rows]
    for lane in found.places:
        own = {gpu: one for gpu, one in lane.get("draining", {}).items() if one.get("by") == BY_FILE}
        mine = drains.draining(rows, lane["backend"], lane.get("slots", {}))
        lane["draining"] = {**{gpu: one.told() for gpu, one in mine.items()}, **own}
        if own:
            found.drains.append({"place": lane["backend"], **next(iter(own.values()))})


def _look_at_backends(config: Config, store: PostgresStore, found: Status) -> None:
    opened: dict[tuple[str, str], int] = {}
    for attempt in store.attempts.open():
        opened[attempt.backend, attempt.gpu] = opened.get((attempt.backend, attempt.gpu), 0) + 1
    for place in wiring.places(config):
        for gpu, slots in place.backend.capacity().items():
            row = {"backend": place.name, "gpu": gpu, "open": opened.pop((place.name, gpu), 0), "slots": slots}
            found.backends.append(row)
    for lane in found.places:
        # Places that only the leader has, perhaps on another host, count as well.
        for gpu, slots in lane.get("slots", {}).items():
            if not any((known["backend"], known["gpu"]) == (lane["backend"], gpu) for known in found.backends):
                count = opened.pop((lane["backend"], gpu), 0)
                found.backends.append({"backend": lane["backend"], "gpu": gpu, "open": count, "slots": slots})
    for (backend, gpu), count in sorted(opened.items()):
        found.backends.append({"backend": backend, "gpu": gpu, "open": count, "slots": 0})
        found.troubles.append(
            f"{counted(count, 'attempt')} {'is' if count == 1 else 'are'} open at {backend} ({gpu}),"
            " which neither the leader nor this host has configured: configure it again, or cancel what is open"
        )
    offers = [offer for place in wiring.places(config) for offer in _offers_of(place)]
    _look_for_takers(store, [*offers, *(offer for lane in found.places for offer in _offers_told(lane))], found)
    if not found.backends:
        found.troubles.append(
            "no backend is configured: nothing can run (kbslurm site init, or [daemon.local] slots = { H100 = 1 })"
        )


@dataclass(frozen=True, kw_only=True)
class Offer:
    """What a place offers a run: a GPU type, how many of them on one node, and whether only staff's runs go there."""

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
    """The same for a place that only the leader has."""
    widest, staff_only = lane.get("widest", {}), lane.get("staff_only", False)
    slots = lane.get("slots", {})
    return [Offer(gpu=gpu, most=widest.get(gpu), staff_only=staff_only) for gpu, count in slots.items() if count]


def _look_for_takers(store: PostgresStore, offers: list[Offer], found: Status) -> None:
    """Runs that no place can take would wait forever, and nothing else would report it."""
    for want in store.overview.wants():
        if not any(offer.meets(want) for offer in offers):
            what = want.gpu if want.gpus == 1 else f"{want.gpus} {want.gpu} on one node"
            whose = "" if want.by_staff else " to anyone but staff"
            found.troubles.append(
                f"queued runs that no place takes: {want.runs} {'needs' if want.runs == 1 else 'need'} {what},"
                f" which no place offers{whose};"
                " add a place that does, or cancel them"
            )
