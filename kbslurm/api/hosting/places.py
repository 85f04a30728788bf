"""Hosts' acts about places: how they do, let them drain, take new runs again, and have the configuration read anew."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from kbslurm import wiring
from kbslurm.api.hosting.host_acts import iso
from kbslurm.api.hosting.status import Status, StatusActs
from kbslurm.domain import contest, drains
from kbslurm.domain.amounts import span
from kbslurm.errors import Invalid, KbslurmError, NotFound
from kbslurm.ports import TICKS

if TYPE_CHECKING:
    from kbslurm.domain.drains import PlaceLine

LINES_FOR = timedelta(days=14)
MOST_LINES = 1_000


class PlaceActs(StatusActs):
    """Places."""

    def place_list(self) -> Mapping[str, Any]:
        """Every place with its slots, role, state, cost and last trouble."""
        status = self.service_status()
        return {"places": _rows(status, self._kinds(), self.store.places.last_troubles()), "reload": status.reload}

    def place_drain(self, place: str, why: str = "", gpu: str | None = None) -> Mapping[str, Any]:
        """Let nothing new go to a place, or to one GPU type there; what is open there ends as usual."""
        row, kind = self._place(place, gpu)
        self.store.places.drain(row["place"], kind or "", drains.checked_why(why), by=self.by, now=self.now)
        return self.place_list()

    def place_resume(self, place: str, gpu: str | None = None) -> Mapping[str, Any]:
        """Let new runs go there again; without a GPU type, all of them."""
        row, kind = self._place(place, gpu, drained=True)
        if not self.store.places.resume(row["place"], kind, by=self.by, now=self.now):
            what = f"{kind} at {row['place']}" if kind else row["place"]
            hint = None
            if kind and any(one.place == row["place"] and not one.gpu for one in self.store.places.drains()):
                hint = f"All of {row['place']} is: kbslurm place resume {row['place']}"
            raise Invalid(f"{what} isn't draining", hint=hint or "kbslurm place list shows what is.")
        return self.place_list()

    def place_log(self, place: str, lines: int = 50, since: str | None = None) -> Mapping[str, Any]:
        """The daemon's log lines about a place and the attempts that went wrong there, oldest first."""
        row, _ = self._place(place, None)
        after = self.now - LINES_FOR if since is None else _moment(since)
        if not 1 <= lines <= MOST_LINES:
            raise Invalid(f"{lines} lines can't be shown at once", hint=f"Choose 1 to {MOST_LINES}.")
        found = self.store.places.lines(row["place"], most=lines, since=after)
        return {"place": row["place"], "lines": [_line(one) for one in found]}

    def reload(self) -> Mapping[str, Any]:
        """Have the daemons read their configuration anew; `reloaded` says what came of it."""
        leases = {line.name: line for line in self.store.leases.all() if line.expires_at > datetime.now(UTC)}
        order = secrets.token_hex(8)
        self.store.places.order_reload(order, by=self.by, now=self.now)
        return {
            "order": order,
            "leader": leases["daemon"].holder if "daemon" in leases else None,
            "ticks": TICKS in leases,
            "answer": None,
        }

    def reloaded(self, order: str) -> Mapping[str, Any] | None:
        """What the leading daemon answered to that order; None: nothing yet."""
        found = self.store.places.reload_answer()
        return found if found.get("order") == order else None

    def _kinds(self) -> Mapping[str, str]:
        """The kind of each place in this process's own configuration."""
        try:
            return wiring.kinds(self.config)
        except KbslurmError:
            return {}

    def _place(self, name: str, gpu: str | None, *, drained: bool = False) -> tuple[Mapping[str, Any], str | None]:
        """The place with that name in any case, and its GPU type if one is named. `drained`: also one that drains and
        isn't known otherwise."""
        name = contest.within("place", name, 100)
        known = {row["place"]: row for row in self.place_list()["places"]}
        if drained:
            rest = {one.place for one in self.store.places.drains()} - set(known)
            known |= {one: {"place": one, "gpus": []} for one in rest}
        row = known.get(name) or next((row for one, row in known.items() if one.lower() == name.lower()), None)
        if row is None:
            raise NotFound("place", name, known=sorted(known), hint=None if known else "No place is configured.")
        if gpu is None:
            return row, None
        gpus = [one["gpu"] for one in row["gpus"]]
        gpus += [one.gpu for one in self.store.places.drains() if drained and one.place == row["place"] and one.gpu]
        found = next((one for one in gpus if one.lower() == gpu.lower()), None)
        if found is None:
            raise NotFound("GPU type", f"{gpu} at {row['place']}", known=sorted(set(gpus)))
        return row, found


def _rows(status: Status, kinds: Mapping[str, str], troubles: Mapping[str, PlaceLine]) -> list[dict[str, Any]]:
    told = {lane["backend"]: lane for lane in status.places}
    names = dict.fromkeys((*told, *(row["backend"] for row in status.backends)))
    return [_row(name, told.get(name), status, kinds, troubles.get(name)) for name in names]


def _row(
    name: str,
    lane: Mapping[str, Any] | None,
    status: Status,
    kinds: Mapping[str, str],
    trouble: PlaceLine | None,
) -> dict[str, Any]:
    known = lane or {}
    slots = [row for row in status.backends if row["backend"] == name]
    draining = known.get("draining") or {
        gpu: {name: value for name, value in one.items() if name != "place"}
        for row in slots
        for one in status.drains
        if one["place"] == name and one["gpu"] in ("", gpu := row["gpu"])
    }
    prices, classes = known.get("prices", {}), known.get("classes", {})
    gpus = [
        {
            "gpu": row["gpu"],
            "used": row["open"],
            "slots": row["slots"],
            "gpu_class": classes.get(row["gpu"], ""),
            "cost_per_gpu_hour": round(float(prices.get(row["gpu"], 0.0)) * 3_600, 6),
            "draining": draining.get(row["gpu"]),
            "shut": known.get("shut", {}).get(row["gpu"], ""),
        }
        for row in slots
    ]
    all_drain = bool(gpus) and all(one["draining"] for one in gpus)
    state, why = ("draining", _why(gpus[0]["draining"])) if all_drain else _state(lane)
    return {
        "place": name,
        "kind": known.get("kind") or kinds.get(name, ""),
        "role": known.get("role", ""),
        "state": state,
        "why": why,
        "gpus": gpus,
        "staff_only": bool(known.get("staff_only", False)),
        "currency": status.overflow.get("currency", ""),
        "trouble": None if trouble is None else {"at": iso(trouble.at), "text": trouble.text},
    }


def _why(drain: Mapping[str, Any]) -> str:
    return f"by {drain['by']}{': ' + drain['why'] if drain['why'] else ''}"


def _state(lane: Mapping[str, Any] | None) -> tuple[str, str]:
    """Open, resting for a while, or unknown since no daemon has told of it; and why."""
    if lane is None:
        return "unknown", "no daemon has told of it"
    breaker = lane.get("breaker") or {}
    if lapse := lane.get("lapse"):
        return "resting", str(lapse)
    if breaker.get("state") == "open":
        at = breaker.get("try_at")
        left_s = (datetime.fromisoformat(at) - datetime.now(UTC)).total_seconds() if at else 0.0
        return "resting", str(breaker.get("why", "")) + (f"; tried again in {span(left_s)}" if left_s > 0 else "")
    if breaker.get("state") == "half_open":
        return "resting", f"it is being tested with one run: {breaker.get('why', '')}"
    if lane.get("troubles"):
        return "resting", str(lane.get("why", ""))
    return "open", ""


def _moment(text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise Invalid(f"{text[:40]!r} isn't a time", hint="Write it like 2026-11-28T12:00:00+00:00.") from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _line(one: PlaceLine) -> dict[str, Any]:
    return {"at": iso(one.at), "level": one.level, "text": one.text}
