"""Hosts' calls about the service as a whole: pause, counts, usage, audit log, and problems from a repository."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Query

from kbslurm import wiring
from kbslurm.api import identity, waiting
from kbslurm.api.answers import Ascii, answers
from kbslurm.api.context import Context
from kbslurm.api.host_lookup import HOSTS_FAILURES
from kbslurm.api.identity import Sender
from kbslurm.api.parameters import Limit
from kbslurm.contract.operations import Accepts, Audit, Overview, Stats
from kbslurm.contract.problems import SyncTold, SyncWanted
from kbslurm.contract.usage import UsageTold
from kbslurm.domain import contest, placement
from kbslurm.domain.usage import By, told
from kbslurm.problems import sync


def add_operations(router: APIRouter, context: Context, histories: waiting.Histories) -> None:
    def switched(sender: identity.Given, accepting: bool) -> Ascii:
        by = identity.host(context, sender)
        context.store.settings.set_accepts_jobs(accepting, by=by, now=context.clock.now())
        return Ascii({"status": "ok", "accepts_jobs": accepting})

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
        identity.host(context, sender)
        since = context.clock.now() - timedelta(days=1) if last_day_only else None
        return Ascii({"status": "ok", "stats": context.store.overview.stats(board=leaderboard_name, since=since)})

    @router.get("/usage", responses=answers(UsageTold, *HOSTS_FAILURES))
    def usage(
        sender: Sender,
        by: Annotated[By, Query(description="What to group by.")] = "board",
        month: Annotated[str | None, Query(max_length=32, description="UTC, like 2026-11; default: this one.")] = None,
        leaderboard: Annotated[str | None, Query(max_length=contest.NAME_CAP, description="Only this board.")] = None,
    ) -> Ascii:
        """A month's GPU-seconds and cost by board, person, team, place or run, like `kbslurm usage`."""
        identity.host(context, sender)
        now = context.clock.now()
        begins, ends = placement.month_of(now) if month is None else placement.month_named(month)
        board = None if leaderboard is None else contest.board_name(leaderboard)
        rows = context.store.costs.usage(by, begins, ends, now, board=board)
        return Ascii(told(rows, begins=begins, by=by, board=board, budget=wiring.budget(context.config)))

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
        identity.host(context, sender)
        return Ascii(
            {"audit": [audit_entry(event) for event in context.store.events.audit_log(limit=limit, before=before)]}
        )

    @router.post("/update-problems", responses=answers(SyncTold, *HOSTS_FAILURES, 403))
    async def update_problems(wanted: SyncWanted, sender: Sender) -> Ascii:
        """Update boards from a repository of problems, read at one commit."""
        return await context.patiently(lambda: synced(wanted, sender))

    def synced(wanted: SyncWanted, sender: identity.Given) -> Ascii:
        by = identity.host(context, sender)
        if sync.is_local(wanted.repository):
            identity.check_reaches_files(context, sender)
        order = sync.Order(
            repository=wanted.repository,
            problem_set=wanted.problem_set,
            branch=wanted.branch,
            force=bool(wanted.force),
            visibility=wanted.visibility or "public",
            min_isolation=context.config.policy.ranked_min_isolation,
            gpus=tuple(context.slots),
            by=by,
        )
        came = sync.sync(context.store, order, context.clock.now())
        return Ascii(
            {
                "status": "ok",
                "commit": came.commit,
                "created": came.created,
                "updated": came.updated,
                "skipped": [{"name": name, "reason": reason} for name, reason in came.skipped],
                "errors": [{"name": name, "error": error} for name, error in came.errors],
            }
        )


def audit_entry(event: Any) -> dict[str, Any]:
    """One action of a host."""
    data = dict(event.data)
    by, via, where = (str(data.pop(name, "")) for name in ("by", "via", "where"))
    act = event.kind.removeprefix("staff.")
    told = {"id": event.id, "act": act, "subject": event.subject, "by": by, "via": via, "where": where}
    return {**told, "data": data, "at": event.at.isoformat()}
