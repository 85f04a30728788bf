"""Hosts' calls about places: their state, draining, their log, and reading the configuration anew."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query

from kbslurm.api import waiting
from kbslurm.api.answers import Ascii, answers
from kbslurm.api.context import Context
from kbslurm.api.host_lookup import HOSTS_FAILURES, hosting
from kbslurm.api.identity import Sender
from kbslurm.contract.places import DrainWanted, PlaceLog, PlacesTold, ReloadOrdered, ResumeWanted

Place = Annotated[str, Path(max_length=100, description="The place's name.")]
Order = Annotated[str, Path(max_length=64, description="What the order was answered with.")]
Lines = Annotated[int, Query(ge=1, le=1_000, description="How many, the newest.")]
Since = Annotated[str | None, Query(max_length=64, description="Only those after this time.")]


def add_places(router: APIRouter, context: Context, histories: waiting.Histories) -> None:
    @router.get("/places", responses=answers(PlacesTold, 401))
    def places(sender: Sender) -> Ascii:
        """Every place with its slots, role, state, cost and last trouble."""
        return Ascii(hosting(context, sender).place_list())

    @router.post("/places/{place}/drain", responses=answers(PlacesTold, *HOSTS_FAILURES))
    def drain(place: Place, wanted: DrainWanted, sender: Sender) -> Ascii:
        """Let nothing new go to a place, or to one GPU type there, across restarts; what is open there ends as
        usual."""
        return Ascii(hosting(context, sender).place_drain(place, wanted.why, wanted.gpu))

    @router.post("/places/{place}/resume", responses=answers(PlacesTold, *HOSTS_FAILURES))
    def resume(place: Place, wanted: ResumeWanted, sender: Sender) -> Ascii:
        """Let new runs go there again."""
        return Ascii(hosting(context, sender).place_resume(place, wanted.gpu))

    @router.get("/places/{place}/log", responses=answers(PlaceLog, *HOSTS_FAILURES))
    def log(place: Place, sender: Sender, lines: Lines = 50, since: Since = None) -> Ascii:
        """The daemon's log lines about a place and the attempts that went wrong there, oldest first."""
        return Ascii(hosting(context, sender).place_log(place, lines, since))

    @router.post("/reload", responses=answers(ReloadOrdered, 401))
    def reload(sender: Sender) -> Ascii:
        """Have the daemons read their configuration anew, without losing anything."""
        return Ascii(hosting(context, sender).reload())

    @router.get("/reload/{order}", responses=answers(ReloadOrdered, 401))
    def reloaded(order: Order, sender: Sender) -> Ascii:
        """What the leading daemon made of that order, once it has."""
        host = hosting(context, sender)
        return Ascii({"order": order, "leader": None, "ticks": False, "answer": host.reloaded(order)})
