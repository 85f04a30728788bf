"""The service's state as the staff's pages show it: places in sentences, and with each thing that needs attention what
mends it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from kbslurm.api.context import Context
from kbslurm.api.hosting.status import GIVEN_UP_ON, Status
from kbslurm.domain import access
from kbslurm.domain.amounts import counted, span
from kbslurm.domain.drains import BY_FILE, in_full

if TYPE_CHECKING:
    from kbslurm.store.views import Board

Kind = Literal["good", "warn", "bad"]
ORDER: tuple[Kind, ...] = ("bad", "warn", "good")


@dataclass(frozen=True, kw_only=True)
class Slots:
    """How much of a GPU type is in use at a place. `shut`: why it gets no runs there."""

    gpu: str
    open: int
    slots: int
    price: float
    shut: str
    draining: str = ""

    @property
    def percent(self) -> float:
        return min(100.0, 100 * self.open / self.slots) if self.slots else 100.0


@dataclass(frozen=True, kw_only=True)
class PlaceCard:
    """A place in sentences: what it is, how it does, what is wrong and what helps."""

    name: str
    what: str
    kind: Kind
    state: str
    why: str
    help: str
    slots: Sequence[Slots]
    asked: str
    limits: Sequence[str]
    warm: Sequence[Mapping[str, Any]]
    drains: bool = False


@dataclass(frozen=True, kw_only=True)
class Act:
    """What mends it: a link, or with `form` a button that sends it."""

    words: str
    to: str
    form: Mapping[str, str] | None = None


@dataclass(frozen=True, kw_only=True)
class ToAttend:
    """Something that needs a host, with what mends it beside it."""

    kind: str
    text: str
    since: datetime
    acts: Sequence[Act]
    advice: str = ""


def places(status: Status, now: datetime) -> list[PlaceCard]:
    """Each place that the leader has, and those of this host that it hasn't told of; trouble first."""
    told = {one["backend"]: one for one in status.places}
    names = dict.fromkeys((*told, *(row["backend"] for row in status.backends)))
    cards = [_card(name, told.get(name), status, now) for name in names]
    return sorted(cards, key=lambda card: (ORDER.index(card.kind), card.name))


def _card(name: str, told: Mapping[str, Any] | None, status: Status, now: datetime) -> PlaceCard:
    lane = told or {}
    shut, prices = lane.get("shut", {}), lane.get("prices", {})
    draining = {
        row["gpu"]: drain
        for row in status.backends
        for drain in status.drains
        if row["backend"] == name == drain["place"] and drain["gpu"] in ("", row["gpu"])
    }
    slots = [
        Slots(
            gpu=row["gpu"],
            open=row["open"],
            slots=row["slots"],
            price=float(prices.get(row["gpu"], 0.0)),
            shut=shut.get(row["gpu"], ""),
            draining=in_full(draining[row["gpu"]]) if row["gpu"] in draining else "",
        )
        for row in status.backends
        if row["backend"] == name
    ]
    kind, state, why = _state(told, now)
    if slots and all(one.draining for one in slots) and kind != "bad":
        kind, state, why = "warn", "It takes no new runs", f"It {slots[0].draining}"
    role = "Overflow" if lane.get("role") == "overflow" else "At home"
    return PlaceCard(
        name=name,
        what=f"{role}, only for staff's runs" if lane.get("staff_only") else role,
        kind=kind,
        state=state,
        why=why.removeprefix(f"{name}: "),
        help="" if kind == "good" else f"kbslurm place check {name}",
        slots=slots,
        asked=_asked(lane.get("pace")),
        limits=[f"{one['left']} of {one['most']} {one['what']} left" for one in lane.get("limits") or ()],
        warm=[rule for rule in status.warm.get("rules", ()) if rule["place"] == name],
        drains=any(one["place"] == name and one["by"] != BY_FILE for one in status.drains),
    )


def _state(lane: Mapping[str, Any] | None, now: datetime) -> tuple[Kind, str, str]:
    """How it does, in a few words, and why. None: the daemon has told nothing of it."""
    if lane is None:
        return "warn", "The daemon hasn't reported about it", ""
    breaker, pace = lane.get("breaker") or {}, lane.get("pace") or {}
    if lapse := lane.get("lapse"):
        return "bad", "It can't be used until this is mended", str(lapse)
    if breaker.get("state") == "open":
        at = breaker.get("try_at")
        again = f", tried again in {span((datetime.fromisoformat(at) - now).total_seconds())}" if at else ""
        return "bad", f"It gets no runs{again}", str(breaker.get("why", ""))
    if breaker.get("state") == "half_open":
        return "warn", "It is being tested with one run", str(breaker.get("why", ""))
    if lane.get("troubles", 0) >= GIVEN_UP_ON:
        return "bad", f"It failed {lane['troubles']} times in a row", str(lane.get("why", ""))
    if lane.get("troubles"):
        return "warn", "It isn't used for a while", str(lane.get("why", ""))
    if pace.get("failing"):
        every = span(float(pace.get("interval_s", 0.0)))
        return "warn", f"Its scheduler doesn't answer; it is asked again every {every}", str(pace.get("why", ""))
    if lane.get("shut"):
        return "warn", "It takes no runs of some GPU types", ""
    return "good", "It takes runs", ""


def _asked(pace: Mapping[str, Any] | None) -> str:
    """How often its scheduler is asked."""
    if not pace:
        return ""
    every, slow = span(float(pace["interval_s"])), ", and it answers slowly" if pace.get("slow") else ""
    return f"Asked every {every}; {pace['budget_left']:.0f} calls left this minute{slow}"


def queue(status: Status) -> list[dict[str, Any]]:
    """The open runs of each GPU type beside the slots that all places have for it."""
    rows: dict[str, dict[str, Any]] = {}
    for row in status.backends:
        line = rows.setdefault(row["gpu"], _empty(row["gpu"]))
        line["slots"] += row["slots"]
    for one in status.queue:
        rows.setdefault(one["gpu"], _empty(one["gpu"])).update(
            {name: one[name] for name in ("queued", "launching", "running", "oldest_at", "oldest_s")}
        )
    return [rows[gpu] for gpu in sorted(rows)]


def _empty(gpu: str) -> dict[str, Any]:
    return {"gpu": gpu, "queued": 0, "launching": 0, "running": 0, "oldest_at": None, "oldest_s": None, "slots": 0}


def overflow(status: Status) -> dict[str, Any]:
    """The rule, why each GPU type's runs go where they go, and the budgets; empty where there is no rule."""
    told = status.overflow
    if not told.get("rule"):
        return {}
    budget = told.get("budget", {})
    rows = [] if budget.get("month") is None else [("the month", budget)]
    rows += [(f"board {name}", one) for name, one in sorted(budget.get("boards", {}).items())]
    rows += [(f"team {name}", one) for name, one in sorted(budget.get("teams", {}).items())]
    held = {f"{gpu} runs": why for gpu, why in told.get("held_up", {}).items()}
    for of, key in (("board", "held_boards"), ("team", "held_teams")):
        for gpu, names in told.get(key, {}).items():
            held |= {f"{gpu} runs of {of} {name}": why for name, why in names.items()}
    return {
        "rule": told["rule"],
        "gpus": sorted(told.get("gpus", {}).items()),
        "currency": told.get("currency", ""),
        "budgets": [(whose, one["spent"], one["month"]) for whose, one in rows],
        "held": sorted(held.items()),
    }


def troubles(status: Status, cards: Sequence[PlaceCard]) -> list[str]:
    """What makes the service unhealthy, without what the places' own cards say."""
    told = tuple(f"{card.name}: " for card in cards) + tuple(f"{card.name} keeps failing: " for card in cards)
    return [text for text in status.troubles if not text.startswith(told)]


def to_attend(context: Context, now: datetime) -> list[ToAttend]:
    """All that needs a host, oldest first, with what mends it."""
    store = context.store
    attention, decisions = store.overview.attention(now=now), store.overview.decisions()
    runs = [int(one.subject.partition(":")[2]) for one in attention if one.subject.startswith("run:")]
    submissions = store.overview.submissions_of(runs)
    found = [_attended(one.kind, one.subject, one.text, one.since, submissions) for one in attention]
    for waits in decisions:
        where = f" on {waits.gpu}" if waits.gpu else ""
        still = f", {counted(waits.open, 'run')} still to end" if waits.open else ", and all of its runs have ended"
        page = "rejudge" if waits.kind == "rejudge" else "finals"
        found.append(
            ToAttend(
                kind=waits.kind,
                text=f"A {waits.kind} of {waits.board}{where}, ordered by {waits.by}, waits for a decision{still}.",
                since=waits.since,
                acts=[Act(words="Decide", to=f"/staff/board/{waits.board}/{page}")],
            )
        )
    return sorted(found, key=lambda one: one.since)


def _attended(kind: str, subject: str, text: str, since: datetime, submissions: Mapping[int, int]) -> ToAttend:
    of, _, name = subject.partition(":")
    acts: list[Act] = []
    if of == "run" and (number := submissions.get(int(name))) is not None:
        acts.append(Act(words=f"Look at submission {number}", to=f"/staff/submissions/{number}"))
        if kind in ("ambiguous", "old"):
            acts.append(Act(words="Cancel it", to="/staff/cancel", form={"submission": str(number)}))
    elif of == "person":
        acts.append(Act(words="Look at the person", to=f"/staff/people/{name}"))
    elif of == "course":
        acts.append(Act(words="Budgets", to=f"/staff/courses/{name}"))
    elif of in ("gpu", "node"):
        acts.append(Act(words="Look at the places", to="/staff/places"))
    return ToAttend(kind=kind, text=text, since=since, acts=acts, advice=WHAT_NEXT.get((kind, of), ""))


WHAT_NEXT: Mapping[tuple[str, str], str] = {
    ("ambiguous", "run"): "The daemon looks for the job by its name and goes on by itself; cancel it only if it stays.",
    ("failed", "run"): "This wasn't the author's fault. Once the reason is mended, judge it again.",
    ("quarantined", "node"): "It is used again by itself an hour after the last failure there.",
    ("unsteady", "node"): "Look whether something else runs on it, or its clocks are lower than they were.",
    ("old", "gpu"): "Look whether the places that have it take runs.",
    ("old", "run"): "It goes elsewhere by itself if another place may take it.",
    ("broken_off", "person"): "A flaky kernel does it, too: ask its author before you conclude anything.",
    ("budget", "course"): "Raise the budget, or tell the course.",
}


def open_boards(boards: Sequence[Board], now: datetime) -> list[Board]:
    """Those that take submissions, then the others, newest first."""
    over = {one.id: one.closed_at is not None or access.is_past(one.deadline_at, now) for one in boards}
    return sorted(boards, key=lambda one: over[one.id])
