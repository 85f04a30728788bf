"""Hosts' calls about warm workers: which there are, start some, let them go."""

from __future__ import annotations

from fastapi import APIRouter

from kbslurm.api import waiting
from kbslurm.api.answers import Ascii, answers
from kbslurm.api.context import Context
from kbslurm.api.host_lookup import HOSTS_FAILURES, hosting
from kbslurm.api.identity import Sender
from kbslurm.contract.warm import WarmDrain, WarmTold, WarmWanted


def add_warm(router: APIRouter, context: Context, histories: waiting.Histories) -> None:
    @router.get("/warm", responses=answers(WarmTold, 401))
    def warm(sender: Sender) -> Ascii:
        """The jobs that hold a GPU so that runs start in them at once, and what the sites allow."""
        return Ascii(hosting(context, sender).warm())

    @router.post("/warm", responses=answers(WarmTold, *HOSTS_FAILURES, 403))
    def start(wanted: WarmWanted, sender: Sender) -> Ascii:
        """Start some, within what the site's file allows; a daemon sends them."""
        return Ascii(hosting(context, sender).warm_start(wanted.count, wanted.place, wanted.gpu))

    @router.post("/warm/drain", responses=answers(WarmTold, *HOSTS_FAILURES))
    def drain(wanted: WarmDrain, sender: Sender) -> Ascii:
        """Let one go, or those of a place or GPU type, or all: each ends when its run has."""
        host = hosting(context, sender)
        return Ascii(host.warm_drain(wanted.worker, wanted.place, wanted.gpu, every=wanted.every))
