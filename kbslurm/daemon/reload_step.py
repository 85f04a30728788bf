"""The reload step of a tick: a changed configuration is read beside the ticks and taken between two of them, and a
broken one changes nothing.

Asked for by SIGHUP, or by a host through the database. Attempts stay open whatever the file says: a place that it no
longer has is kept, and drains, until they have ended; one that moves to another folder or address moves after them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from queue import SimpleQueue
from typing import Any

from kbslurm.daemon.lane import Lane
from kbslurm.daemon.timing import Timing
from kbslurm.domain.placement import Rules
from kbslurm.errors import KbslurmError
from kbslurm.flow.place import Place
from kbslurm.observe.logs import teller
from kbslurm.ports import Closes, Store

tell = teller("daemon")


@dataclass(frozen=True, kw_only=True)
class Configured:
    """What a configuration says of the daemon's work. `restart`: settings that changed and are only read at a start."""

    places: Sequence[Place]
    rules: Rules
    timing: Timing
    restart: Sequence[str] = ()


Read = Callable[[], Configured]


class ReloadStep:
    """Has the configuration read anew when somebody wants it, and says what came of it. That is done on a thread of its
    own: a secret's command may take longer than the lease lasts."""

    def __init__(self, store: Store, holder: str, read: Read | None, ring: Callable[[], None]) -> None:
        self.store, self.holder, self._read, self._ring = store, holder, read, ring
        self._asked = threading.Event()
        self._order: str | None = None
        self._came: SimpleQueue[Configured | Exception] = SimpleQueue()
        self.busy = False
        self.last: Mapping[str, Any] = {}

    def ask(self) -> None:
        """Have it done in the next tick; from any thread or signal handler."""
        self._asked.set()

    def begin(self) -> None:
        """Begin to read it if somebody wants that; one who wants it meanwhile has it read once more."""
        if not self.busy and self._due():
            self.busy = True
            threading.Thread(target=self._run, name="reload", daemon=True).start()

    def came(self) -> Configured | Exception | None:
        """What was read since the last tick, if anything was."""
        if not self.busy or self._came.empty():
            return None
        self.busy = False
        return self._came.get()

    def usable(self, came: Configured | Exception, now: datetime) -> Configured | None:
        """The configuration that was read; None, with nothing changed, if it can't be used."""
        match came:
            case KbslurmError():
                why = came.message + (f" ({came.hint})" if came.hint else "")
                tell("the configuration wasn't reloaded", level="warning", why=why, holds="the earlier one")
                self._note(now, ok=False, why=why)
                return None
            case Exception():
                raise came
            case _:
                return came

    def taken(self, changes: Sequence[str], restart: Sequence[str], now: datetime) -> None:
        """Say what a reload changed."""
        tell("reloaded", changes="; ".join(changes) or "none", restart=", ".join(restart) or "nothing")
        self._note(now, ok=True, changes=list(changes), restart=list(restart))

    def answer(self) -> None:
        """Store what came of the last one, for whoever ordered it; the leader does."""
        if self.last and not self.last.get("stored"):
            self.last = {**self.last, "stored": True}
            self.store.places.answer_reload({name: value for name, value in self.last.items() if name != "stored"})

    def told(self) -> dict[str, Any]:
        """The last one, for the leader's published state; empty if there was none."""
        return {name: value for name, value in self.last.items() if name != "stored"}

    def _due(self) -> bool:
        """Whether somebody wants it now. An order from before this process started has been followed by its start."""
        if self._read is None:
            return False
        before, self._order = self._order, self.store.places.reload_order()
        ordered = before is not None and before != self._order
        asked = self._asked.is_set()
        self._asked.clear()
        return ordered or asked

    def _run(self) -> None:
        assert self._read is not None
        try:
            self._came.put(self._read())
        except Exception as error:  # noqa: BLE001 - the daemon's thread meets it in its next tick
            self._came.put(error)
        self._ring()

    def _note(self, now: datetime, **said: Any) -> None:
        usual = {"ok": True, "why": "", "changes": [], "restart": []}
        self.last = {**usual, **said, "order": self._order or "", "holder": self.holder, "at": now.isoformat()}


def merged(lanes: dict[str, Lane], places: Sequence[Place], made: Callable[[Place], Lane], now: datetime) -> list[str]:
    """Bring the lanes to these places, in their order, and those that are no longer wanted last. Returns what changed,
    in words. Nothing is lost: a lane with open attempts stays."""
    said: list[str] = []
    wanted = {place.name: place for place in places}
    for name, place in wanted.items():
        lane = lanes.get(name)
        if lane is None:
            lanes[name] = made(place)
            said.append(f"{name} is new: {_slots(place)}")
            continue
        before, returned, lane.leaving = lane.changed or lane.place, lane.leaving, False
        if before.settings == place.settings and place.settings:
            if isinstance(place.backend, Closes):
                place.backend.close()
            said += [f"{name} is back"] if returned else []
            continue
        if lane.changed is not None and isinstance(lane.changed.backend, Closes):
            lane.changed.backend.close()
        lane.changed, lane.changed_at = place, now
        said.append(f"{name} changed{_difference(before, place)}")
    for name, lane in lanes.items():
        if name not in wanted and not lane.leaving:
            lane.leaving, lane.changed_at = True, now
            said.append(f"{name} is gone")
    ordered = {name: lanes[name] for name in [*wanted, *(name for name in lanes if name not in wanted)]}
    lanes.clear()
    lanes.update(ordered)
    return said


def _slots(place: Place) -> str:
    return ", ".join(f"{gpu} {slots}" for gpu, slots in place.backend.capacity().items()) or "no GPU"


def _difference(before: Place, after: Place) -> str:
    old, new = before.backend.capacity(), after.backend.capacity()
    told = [
        f"{gpu} {old.get(gpu, 0)} → {new.get(gpu, 0)}" for gpu in {**old, **new} if old.get(gpu, 0) != new.get(gpu, 0)
    ]
    return f": {', '.join(told)}" if told else ""
