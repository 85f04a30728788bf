"""Hosts' calls about the service as a whole: pause, counts, usage, audit log, and problems from a repository."""

from __future__ import annotations

import dataclasses
from typing import Annotated

from fastapi import APIRouter, Query

from kbslurm.api import identity, waiting
from kbslurm.api.answers import Ascii, answers
from kbslurm.api.context import Context
from kbslurm.api.host_lookup import HOSTS_FAILURES, hosting
from kbslurm.api.identity import Sender
from kbslurm.api.parameters import Limit
from kbslurm.contract.operations import Accepts, Audit, DatabaseTold, Overview, ServiceStatus, Stats
from kbslurm.contract.problems import SyncTold, SyncWanted
from kbslurm.contract.usage import UsageTold
from kbslurm.domain import contest
from kbslurm.domain.usage import By
from kbslurm.problems import sync


def add_operations(router: APIRouter, context: Context, histories: waiting.Histories) -> None:
    def switched(sender: identity.Given, accepting: bool) -> Ascii:
        return Ascii({"status": "ok", "accepts_jobs": hosting(context, sender).set_accepting(accepting)})

    @router.post("/start", responses=answers(Accepts, 401))
    def start(sender: Sender) -> Ascii:
        """Accept submissions again."""
        return switched(sender, True)

    @router.post("/stop", responses=answers(Accepts, 401))
    def stop(sender: Sender) -> Ascii:
        """Pause submissions, even across restarts; accepted ones still run."""
        return switched(sender, False)

    @router.get("/stats", responses=answers(Stats, *HOSTS_FAILURES))
    def stats(
        sender: Sender,
        last_day_only: bool = False,
        leaderboard_name: Annotated[str | None, Query(max_length=contest.NAME_CAP)] = None,
    ) -> Ascii:
        """Counts for one board or all, for the last day or all time."""
        return Ascii(
            {"status": "ok", "stats": hosting(context, sender).stats(leaderboard_name, last_day=last_day_only)}
        )

    @router.get("/usage", responses=answers(UsageTold, *HOSTS_FAILURES))
    def usage(
        sender: Sender,
        by: Annotated[By, Query(description="What to group by.")] = "board",
        month: Annotated[str | None, Query(max_length=32, description="UTC, like 2026-11; default: this one.")] = None,
        leaderboard: Annotated[str | None, Query(max_length=contest.NAME_CAP, description="Only this board.")] = None,
    ) -> Ascii:
        """A month's GPU-seconds and cost by board, person, team, place or run, like `kbslurm usage`."""
        return Ascii(hosting(context, sender).usage(by=by, month=month, board=leaderboard))

    @router.get("/status", responses=answers(ServiceStatus, 401))
    def status(sender: Sender) -> Ascii:
        """How the service is doing, like `kbslurm status --json`: daemon, places, queue, what needs attention."""
        return Ascii(dataclasses.asdict(hosting(context, sender).service_status()))

    @router.get("/database", responses=answers(DatabaseTold, 401))
    def database(sender: Sender) -> Ascii:
        """How the database is doing, like `kbslurm db check --json`: schema, leader, lag, last event."""
        return Ascii(hosting(context, sender).database())

    @router.get("/overview", responses=answers(Overview, 401))
    def overview(sender: Sender) -> Ascii:
        """Queue, leader, and what needs attention."""
        identity.host(context, sender)
        now = context.clock.now()
        leaders = [lease.holder for lease in context.store.leases.all() if lease.expires_at > now]
        return Ascii(
            {
                "accepts_jobs": context.store.settings.accepts_jobs(),
                "leader": leaders[0] if leaders else None,
                "queue": [
                    {
                        "gpu": line.gpu,
                        "queued": line.queued,
                        "launching": line.launching,
                        "running": line.running,
                        "oldest_at": line.oldest_at.isoformat() if line.oldest_at else None,
                    }
                    for line in context.store.overview.queue()
                ],
                "attention": [
                    {"kind": one.kind, "subject": one.subject, "text": one.text, "since": one.since.isoformat()}
                    for one in context.store.overview.attention(now=now)
                ],
            }
        )

    @router.get("/audit", responses=answers(Audit, 401))
    def audit(
        sender: Sender, limit: Limit = 50, before: Annotated[int | None, Query(ge=0, le=2**63 - 1)] = None
    ) -> Ascii:
        """The audit log, newest first; `before` is the number of the oldest line already seen."""
        return Ascii({"audit": hosting(context, sender).audit(limit=limit, before=before)})

    @router.post("/update-problems", responses=answers(SyncTold, *HOSTS_FAILURES, 403))
    async def update_problems(wanted: SyncWanted, sender: Sender) -> Ascii:
        """Update boards from a repository of problems, read at one commit."""
        return await context.patiently(lambda: synced(wanted, sender))

    def synced(wanted: SyncWanted, sender: identity.Given) -> Ascii:
        host = hosting(context, sender)
        if sync.is_local(wanted.repository):
            identity.check_reaches_files(context, sender)
        return Ascii(
            host.update_problems(
                wanted.repository,
                wanted.problem_set,
                branch=wanted.branch,
                force=bool(wanted.force),
                visibility=wanted.visibility or "public",
            )
        )
