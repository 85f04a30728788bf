"""Which slots keepers add, and which runs a free slot leaves for them: each run goes where it is predicted to start
first. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from kbslurm.domain.amounts import span
from kbslurm.domain.keepers import Facts, Keeper, KeeperState, beyond_s, kept_for_warm
from kbslurm.domain.placement import HAD_ROOM
from kbslurm.domain.run import Slot

Spot = tuple[str, str]  # a place and a GPU type
MUST_BE_ALONE = "it is a job of its own: it may not go into a warm worker"
SOONER_ALONE = "it is a job of its own: no warm worker was free or would have been sooner"


def with_keepers(
    slots: Sequence[Slot],
    keepers: Sequence[Keeper],
    facts: Mapping[Spot, Facts],
    cold_s: Mapping[Spot, float],
    now: datetime,
    *,
    staff_only: Collection[str] = (),
) -> list[Slot]:
    """These slots and those of the free keepers, which come first. `cold_s`: when a place would start a job of its own,
    if it said so. Runs that start earlier in a keeper aren't offered to the other slots, the rest and those that no
    keeper takes are."""
    warm = [
        Slot(
            backend=one.backend,
            gpu=one.gpu,
            free=1,
            staff_only=one.backend in staff_only,
            most=1,
            way="warm",
            keeper=one.id,
            fits_s=one.room_s(now),
            why=_why(one, facts.get((one.backend, one.gpu), Facts()), cold_s.get((one.backend, one.gpu))),
        )
        for one in keepers
        if not one.busy and one.room_s(now) > 0
    ]
    found: list[Slot] = [*warm]
    for slot in slots:
        spot = (slot.backend, slot.gpu)
        mine = [one for one in keepers if (one.backend, one.gpu) == spot]
        kept = kept_for_warm(mine, facts[spot], cold_s.get(spot), now) if mine and spot in facts else 0
        if kept:
            most_s = max((_longest_s(one, now) for one in mine), default=0.0)
            found.append(replace(slot, way="cold", fits_s=most_s, why=_roomy(slot, MUST_BE_ALONE)))
            found.append(replace(slot, skip=kept, why=_roomy(slot, SOONER_ALONE)))
        elif any(one.drain_at is None for one in mine):
            found.append(replace(slot, why=_roomy(slot, SOONER_ALONE)))
        else:
            found.append(slot)
    return found


def _roomy(slot: Slot, but: str) -> str:
    return slot.why or f"{slot.backend} {HAD_ROOM}, and {but}"


def _longest_s(one: Keeper, now: datetime) -> float:
    return one.life_s - beyond_s(one.start_s) if one.state is KeeperState.SUBMITTED else one.room_s(now)


def _why(one: Keeper, facts: Facts, said_s: float | None) -> str:
    """Why a run goes into this keeper, for its author."""
    cold_s = facts.cold_s if said_s is None else said_s
    where = f" on {one.node}" if one.node else ""
    against = "" if cold_s is None or cold_s < 1 else f", and a job of its own would start in about {span(cold_s)}"
    return f"a warm worker was free there{where}{against}"
