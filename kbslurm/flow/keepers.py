"""Keepers: jobs that hold a GPU so that runs start in them at once. What `domain.keepers` decided is carried out here.

A keeper follows the laws of an attempt: its row, with its job's name, is committed before it is sent; what may have
been sent is looked for before it is sent again; missing is not finished. It also lets go by itself (its script counts
the idle time and knows its end), so that nothing here has to live for a GPU to be given back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import assert_never

from kbslurm.domain.keepers import Keeper, KeeperEnding, KeeperSighting, KeeperState, look_is_due
from kbslurm.domain.run import KeeperId, Seen
from kbslurm.errors import BackendRefused, BackendTrouble, Misconfigured
from kbslurm.flow.collect import CLEAN_SWEEPS
from kbslurm.flow.place import Place
from kbslurm.observe.crash_points import crash_point
from kbslurm.observe.logs import teller
from kbslurm.ports import Keepers, KeeperSpec, KeepsWarm

tell = teller("keepers")

ASK_AGAIN_S = 30.0
SEND_AGAIN_S = 10.0
SEND_FOR_S = 120.0  # a keeper that can't be sent for so long isn't needed any more
SEEN_EVERY_S = 60.0
ENDS_WITHIN_S = 60.0  # a keeper without a run that was told to go


@dataclass(kw_only=True)
class KeeperNotes:
    """What one process remembers about keepers; a new process starts with an empty one. `unsent`: those that it knows
    weren't sent, and when to send them. `ask_at`: when to tell one again to go."""

    unsent: dict[KeeperId, datetime] = field(default_factory=dict)
    ask_at: dict[KeeperId, datetime] = field(default_factory=dict)

    def forget_all_but(self, keepers: Sequence[Keeper]) -> None:
        known = {one.id for one in keepers}
        for memory in (self.unsent, self.ask_at):
            for keeper in set(memory) - known:
                del memory[keeper]


def tend(store: Keepers, place: Place, keepers: Sequence[Keeper], notes: KeeperNotes, now: datetime) -> None:
    """Do what is due for a place's open keepers. An error with one doesn't hold up the others; it is raised at the
    end."""
    backend = place.backend
    if not isinstance(backend, KeepsWarm):
        return
    notes.forget_all_but(keepers)
    trouble: Exception | None = None
    for keeper in keepers:
        try:
            if keeper.id in notes.unsent:
                _send(store, place, backend, keeper, notes, now)
            elif keeper.state in (KeeperState.INTENT, KeeperState.AMBIGUOUS):
                _recover(store, place, backend, keeper, notes, now)
        except Exception as error:  # noqa: BLE001 - raised below
            trouble = error
    known = [one for one in keepers if one.handle is not None]
    try:
        seen = backend.watch_keepers(known) if known else {}
        for keeper in known:
            _see(store, place, keeper, seen.get(keeper.name), now)
    except Exception as error:  # noqa: BLE001 - raised below
        trouble, seen = error, {}
    for keeper in known:
        gone = keeper.name in seen and seen[keeper.name].seen is Seen.ENDED
        if keeper.drain_at is not None and not gone:
            try:
                _ask_to_go(backend, keeper, notes, now)
            except Exception as error:  # noqa: BLE001 - raised below
                trouble = error
    _look(store, place, backend, keepers, now)
    if trouble is not None:
        raise trouble


def is_due(keepers: Sequence[Keeper], notes: KeeperNotes, now: datetime) -> bool:
    """Whether one of these is to be sent now."""
    return any(notes.unsent.get(one.id, now + timedelta(days=1)) <= now for one in keepers)


def _send(store: Keepers, place: Place, backend: KeepsWarm, keeper: Keeper, notes: KeeperNotes, now: datetime) -> None:
    """Send one that certainly wasn't sent."""
    if keeper.drain_at is not None:
        del notes.unsent[keeper.id]
        store.end(keeper, keeper.drain_as or KeeperEnding.DRAINED, keeper.drain_why, now)
        return
    if now < notes.unsent[keeper.id]:
        return
    # From here on it may have been sent: if this dies or fails, it is looked for by name.
    del notes.unsent[keeper.id]
    try:
        spec = _spec(place, replace(keeper, avoid_nodes=tuple(store.shunned(place.name, now))))
    except Misconfigured as error:
        store.end(keeper, KeeperEnding.REFUSED, error.message, now)
        tell("refused", level="warning", keeper=keeper.name, backend=place.name, why=error.message)
        return
    crash_point("keeper.before_submit")
    try:
        handle = backend.open_keeper(spec)
    except BackendRefused as error:
        if error.permanent or (now - keeper.opened_at).total_seconds() > SEND_FOR_S:
            store.end(keeper, KeeperEnding.REFUSED, error.message, now)
            tell("refused", level="warning", keeper=keeper.name, backend=place.name, why=error.message)
        else:
            notes.unsent[keeper.id] = now + timedelta(seconds=SEND_AGAIN_S)
        return
    except Exception as error:  # noqa: BLE001 - any other end means "perhaps started", and must be written down so
        why = error.message if isinstance(error, BackendTrouble) else f"{type(error).__name__}: {error}"
        store.note_ambiguous(keeper, why, now)
        tell("unclear", level="warning", keeper=keeper.name, backend=place.name, why=why)
        return
    crash_point("keeper.after_submit")
    store.note_handle(keeper, handle, now)
    crash_point("keeper.after_note")
    tell("launched", keeper=keeper.name, backend=place.name, gpu=keeper.gpu, handle=handle, why=keeper.why)


def _spec(place: Place, keeper: Keeper) -> KeeperSpec:
    if place.keeper_script is None or place.keepers_root is None:
        raise Misconfigured(f"{place.name} has no keepers", fix="Restart the service.")
    directory = place.keepers_root / keeper.name
    return KeeperSpec(
        name=keeper.name,
        gpu=keeper.gpu,
        directory=directory,
        script=place.keeper_script(keeper, directory),
        idle_s=keeper.idle_s,
        life_s=keeper.life_s,
    )


def _recover(
    store: Keepers, place: Place, backend: KeepsWarm, keeper: Keeper, notes: KeeperNotes, now: datetime
) -> None:
    """Find out what happened to one that may have been sent."""
    if keeper.swept_at is not None and now - keeper.swept_at < timedelta(seconds=place.sweep_gap_s):
        return
    sighting = backend.find_keeper(keeper.name)
    match sighting.seen:
        case Seen.WAITING | Seen.RUNNING:
            if sighting.handle is not None:
                store.note_handle(keeper, sighting.handle, now)
            store.note_seen(keeper, sighting, now)
            tell("adopted", keeper=keeper.name, backend=place.name, handle=sighting.handle)
        case Seen.ENDED:
            _ended(store, place, keeper, sighting, now)
        case Seen.ABSENT:
            if keeper.state is KeeperState.INTENT:
                store.note_ambiguous(keeper, "the daemon ended while launching this", now)
            if not store.note_clean_sweep(keeper, now) or keeper.clean_sweeps + 1 < CLEAN_SWEEPS:
                return
            if keeper.drain_at is not None or (now - keeper.opened_at).total_seconds() > SEND_FOR_S:
                store.end(keeper, KeeperEnding.VANISHED, "it was never seen anywhere", now)
            elif store.note_resend(keeper, now):
                notes.unsent[keeper.id] = now
        case Seen.UNKNOWN:
            pass
        case _:
            assert_never(sighting.seen)


def _see(store: Keepers, place: Place, keeper: Keeper, sighting: KeeperSighting | None, now: datetime) -> None:
    """What was seen of one that was sent. What is missing, or unknown, changes nothing."""
    if sighting is None:
        return
    match sighting.seen:
        case Seen.WAITING | Seen.RUNNING:
            if _is_news(keeper, sighting, now):
                store.note_seen(keeper, sighting, now)
        case Seen.ENDED:
            _ended(store, place, keeper, sighting, now)
        case Seen.ABSENT:
            if keeper.swept_at is not None and now - keeper.swept_at < timedelta(seconds=place.sweep_gap_s):
                return
            if store.note_clean_sweep(keeper, now) and keeper.clean_sweeps + 1 >= CLEAN_SWEEPS:
                store.end(keeper, KeeperEnding.VANISHED, sighting.reason or "the cluster doesn't know it any more", now)
        case Seen.UNKNOWN:
            pass
        case _:
            assert_never(sighting.seen)


def _is_news(keeper: Keeper, sighting: KeeperSighting, now: datetime) -> bool:
    """Whether a sighting says something that isn't stored yet; repeated ones cost nothing."""
    if keeper.clean_sweeps or keeper.seen_at is None or now - keeper.seen_at > timedelta(seconds=SEEN_EVERY_S):
        return True
    if sighting.seen is Seen.WAITING:
        return keeper.expected_at != sighting.expected_at
    began = keeper.state not in (KeeperState.HOLDING, KeeperState.DRAINING)
    goes = sighting.draining and keeper.state is KeeperState.HOLDING
    return began or goes or (sighting.node is not None and sighting.node != keeper.node)


def _ended(store: Keepers, place: Place, keeper: Keeper, sighting: KeeperSighting, now: datetime) -> None:
    ending = sighting.ending or KeeperEnding.FAILED
    crash_point("keeper.before_end")
    if sighting.started_at is not None and keeper.started_at is None:  # it came and went between two looks
        store.note_seen(keeper, _running(sighting), now)
    store.end(keeper, ending, sighting.reason, now, ended_at=sighting.ended_at)
    tell("ended", keeper=keeper.name, backend=place.name, ending=ending, why=sighting.reason or keeper.drain_why)


def _running(sighting: KeeperSighting) -> KeeperSighting:
    return KeeperSighting(
        seen=Seen.RUNNING,
        handle=sighting.handle,
        node=sighting.node,
        started_at=sighting.started_at,
        reason=sighting.reason,
        draining=True,
    )


def _ask_to_go(backend: KeepsWarm, keeper: Keeper, notes: KeeperNotes, now: datetime) -> None:
    """A keeper that waits is cancelled; one that holds a GPU finishes its run first, and is killed only if it has none
    and doesn't go."""
    if now < notes.ask_at.get(keeper.id, now) or keeper.drain_at is None:
        return
    notes.ask_at[keeper.id] = now + timedelta(seconds=ASK_AGAIN_S)
    backend.drain_keeper(keeper)
    late = (now - keeper.drain_at).total_seconds() > ENDS_WITHIN_S
    if keeper.started_at is None or (late and not keeper.busy):
        crash_point("keeper.before_cancel")
        try:
            backend.end_keeper(keeper)
        except BackendRefused:
            return  # not now: it is asked again


def _look(store: Keepers, place: Place, backend: KeepsWarm, keepers: Sequence[Keeper], now: datetime) -> None:
    """Whether others wait: one call in five minutes for each GPU type, and only while a keeper holds one."""
    by_gpu: Mapping[str, list[Keeper]] = {
        gpu: [one for one in keepers if one.gpu == gpu] for gpu in {one.gpu for one in keepers}
    }
    for gpu, mine in by_gpu.items():
        warm = place.warm.get(gpu)
        if warm is None or not warm.give_back or not look_is_due(mine, now):
            continue
        try:
            others, why = backend.others_wait(gpu)
        except BackendTrouble as error:
            others, why = None, error.message
        store.note_look(place.name, gpu, others, why, now)
        tell("looked", backend=place.name, gpu=gpu, others="unknown" if others is None else others, why=why)
