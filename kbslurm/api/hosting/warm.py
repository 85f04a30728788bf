"""Hosts' acts about warm workers: which there are, start some, let them go."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from kbslurm import wiring
from kbslurm.api.hosting.host_acts import HostActs
from kbslurm.domain.keepers import DAY_S, Facts, KeeperEnding, may_start, wanted
from kbslurm.errors import Invalid, NotFound, Refused

if TYPE_CHECKING:
    from datetime import datetime

    from kbslurm.config.settings import Config
    from kbslurm.domain.keepers import Keeper, Warm
    from kbslurm.store.postgres import PostgresStore

ALLOW = "docs/site-admin.md, Warm workers, says what to agree on with a site's admins, and what its file then allows."


class WarmActs(HostActs):
    """Warm workers."""

    def warm(self) -> Mapping[str, Any]:
        """Those that may hold a GPU, and what the sites allow."""
        return told(self.config, self.store, self.now)

    def warm_start(self, count: int = 1, place: str | None = None, gpu: str | None = None) -> Mapping[str, Any]:
        """Start some, within what the site allows; a daemon sends them."""
        spot = self._spot(place, gpu)
        warm, facts = allowed(self.config)[spot], self.store.keepers.facts(*spot, self.now)
        live = [one for one in self.store.keepers.open() if (one.backend, one.gpu) == spot]
        against = may_start(warm, facts, len(live), count, self.now)
        if against is not None:
            raise Refused(f"{spot[0]} starts no warm worker for {spot[1]} now: {against}")
        made = []
        for _ in range(count):
            one = self.store.keepers.order(
                *spot, life_s=warm.life_s, idle_s=warm.idle_s, most=warm.max, why=f"{self.by} asked for it",
                now=self.now, by=self.by,
            )  # fmt: skip
            if one is not None:
                made.append(one.id)
        if not made:
            raise Refused(f"{spot[0]} starts no warm worker for {spot[1]} now: others were just asked for")
        data = {"place": spot[0], "gpu": spot[1], "workers": made}
        self.store.events.audit(self.by, "warm.start", f"gpu:{spot[1]}", data, now=self.now)
        return {**self.warm(), "started": made}

    def warm_drain(
        self, worker: int | None = None, place: str | None = None, gpu: str | None = None, *, every: bool = False
    ) -> Mapping[str, Any]:
        """Let one go, or those of a place or GPU type, or all: each ends when its run has."""
        if every is not (worker is None and place is None and gpu is None):
            said = "--all excludes the rest" if every else "which ones?"
            raise Invalid(said, hint="Pass a number, --on, --gpu or --all.")
        live = self.store.keepers.open()
        chosen = [
            one
            for one in live
            if (worker is None or one.id == worker)
            and (place is None or one.backend == place)
            and (gpu is None or one.gpu.lower() == gpu.lower())
        ]
        if worker is not None and not chosen:
            raise NotFound("warm worker", str(worker), known=[str(one.id) for one in live])
        if not chosen and not every and not _known_spots(allowed(self.config), place, gpu):
            where = " ".join((f"at {place}",) * (place is not None) + (f"for {gpu}",) * (gpu is not None))
            raise Invalid(f"there is no warm worker and no rule for one {where}", hint="kbslurm warm list shows both.")
        why = f"{self.by} let it go"
        gone = [one.id for one in chosen if self.store.keepers.drain(one.id, KeeperEnding.DRAINED, why, self.now)]
        data = {"place": place, "gpu": gpu, "workers": gone}
        self.store.events.audit(self.by, "warm.drain", f"gpu:{gpu or 'all'}", data, now=self.now)
        return {**self.warm(), "drained": gone}

    def _spot(self, place: str | None, gpu: str | None) -> tuple[str, str]:
        """The place and GPU type meant, which may be left out where there is only one."""
        known = allowed(self.config)
        if not known:
            raise Invalid("no site allows warm workers", hint=ALLOW)
        fits = _known_spots(known, place, gpu)
        if not fits:
            raise Invalid(
                f"{place or 'no place'} allows no warm workers{f' for {gpu}' if gpu else ''}",
                hint=f"These do: {_named(list(known))}.",
            )
        if len(fits) > 1:
            raise Invalid("several places or GPU types allow warm workers", hint=f"Choose one: {_named(fits)}.")
        return fits[0]


def allowed(config: Config) -> Mapping[tuple[str, str], Warm]:
    """What the sites in use allow, by place and GPU type."""
    return {
        (site.name, name): gpu.warm
        for site in wiring.sites(config)
        for name, gpu in site.gpus.items()
        if gpu.warm is not None and gpu.warm.max
    }


def told(config: Config, store: PostgresStore, now: datetime) -> dict[str, Any]:
    """The warm workers and the sites' rules, as JSON."""
    live = store.keepers.open()
    held = {(row.backend, row.gpu): row for row in store.keepers.held(now - timedelta(seconds=DAY_S), now, now)}
    rules = []
    for (place, gpu), warm in allowed(config).items():
        facts: Facts = store.keepers.facts(place, gpu, now)
        mine = [one for one in live if (one.backend, one.gpu) == (place, gpu)]
        row = held.get((place, gpu))
        rules.append(
            {
                "place": place,
                "gpu": gpu,
                "most": warm.max,
                "idle_s": warm.idle_s,
                "life_s": warm.life_s,
                "hours": list(warm.hours),
                "give_back": warm.give_back,
                "open": len(mine),
                "held_s": row.held_s if row else 0.0,
                "used_s": row.used_s if row else 0.0,
                "idle_share": facts.idle_share,
                "why": wanted(warm, facts, now)[1],
                "may_start": may_start(warm, facts, len(mine), 1, now),
            }
        )
    return {"workers": [worker_told(one, now) for one in live], "rules": rules, "started": [], "drained": []}


def worker_told(one: Keeper, now: datetime) -> dict[str, Any]:
    """One of them, as JSON."""
    ends_at = one.ends_at
    return {
        "worker": one.id,
        "job": one.name,
        "handle": one.handle,
        "place": one.backend,
        "gpu": one.gpu,
        "state": one.state.value,
        "node": one.node,
        "age_s": (now - one.opened_at).total_seconds(),
        "held_s": None if one.started_at is None else (now - one.started_at).total_seconds(),
        "served": one.served,
        "busy": one.busy,
        "idle_s": one.idle_for_s(now),
        "ends_in_s": None if ends_at is None else max(0.0, (ends_at - now).total_seconds()),
        "why": one.why,
        "asked_by": one.asked_by,
        "leaving": one.drain_why,
        "others": one.others,
    }


def _known_spots(known: Iterable[tuple[str, str]], place: str | None, gpu: str | None) -> list[tuple[str, str]]:
    """Those at this place and of this GPU type, as far as they are given."""
    return [
        spot
        for spot in known
        if (place is None or spot[0] == place) and (gpu is None or spot[1].lower() == gpu.lower())
    ]


def _named(spots: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"--on {place} --gpu {gpu}" for place, gpu in spots)
