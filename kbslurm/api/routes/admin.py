"""The hosts' calls: popcorn-cli's admin commands, and what the bot and the staff page need beside them.

Each is behind the hosts' bearer, and each act is in the audit log with the name of whoever did it.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path as FilePath
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query

from kbslurm import wiring
from kbslurm.api import identity, popcorn_submission, waiting
from kbslurm.api.answers import Ascii, answers
from kbslurm.api.context import Context
from kbslurm.api.identity import Sender
from kbslurm.api.routes.popcorn import Limit, Name, Number, Offset, person_told
from kbslurm.contract.boards import BoardDeleted, BoardNamed, Extension, NewBoard, NewVisibility, VisibilityTold
from kbslurm.contract.invites import InviteRevoked, Invites, InvitesMade, InvitesWanted
from kbslurm.contract.limits import Quota, QuotaTold, RateLimitGone, RateLimits, RateLimitSet, RateLimitWanted
from kbslurm.contract.operations import Accepts, Audit, Overview, Stats
from kbslurm.contract.people import Banned, Link, NewPerson, PersonTold
from kbslurm.contract.problems import SyncTold, SyncWanted
from kbslurm.contract.submissions import HostsSubmissionTold, Removed, SubmissionIds
from kbslurm.contract.usage import UsageTold
from kbslurm.domain import contest, placement
from kbslurm.domain.run import SubmissionId
from kbslurm.domain.usage import By, told
from kbslurm.errors import Invalid, NoHost, NotFound
from kbslurm.flow.cancel import cancel
from kbslurm.flow.remove import remove
from kbslurm.problems import loading, sync
from kbslurm.store.views import Board, Person, RateLimit, SubmissionView

Category = Annotated[Literal["test", "leaderboard"], Path(description="What modes count as.")]
Whom = Annotated[str, Path(max_length=100, description="A person's number, name, or discord:ID, github:ID.")]
InviteCode = Annotated[str, Path(max_length=64)]
FAILURES = (400, 401, 404)


def routes(context: Context, histories: waiting.Histories) -> APIRouter:
    """The router of these calls."""
    router = APIRouter(prefix="/admin", tags=["hosts"])
    for more in (_switches, _submissions, _boards, _limits, _invites, _people):
        more(router, context, histories)
    return router


def _switches(router: APIRouter, context: Context, histories: waiting.Histories) -> None:
    def switched(sender: identity.Given, accepting: bool) -> Ascii:
        by = identity.host(context, sender)
        context.store.set_accepts_jobs(accepting, by=by, now=context.clock.now())
        return Ascii({"status": "ok", "accepts_jobs": accepting})

    @router.post("/start", responses=answers(Accepts, 401))
    def start(sender: Sender) -> Ascii:
        """Take submissions again."""
        return switched(sender, True)

    @router.post("/stop", responses=answers(Accepts, 401))
    def stop(sender: Sender) -> Ascii:
        """Take no submissions, also after a restart; what was accepted goes on."""
        return switched(sender, False)

    @router.get("/stats", responses=answers(Stats, *FAILURES))
    def stats(
        sender: Sender,
        last_day_only: bool = False,
        leaderboard_name: Annotated[str | None, Query(max_length=contest.NAME_CAP)] = None,
    ) -> Ascii:
        """Counts, of one board or of all, of the last day or of all days."""
        identity.host(context, sender)
        since = context.clock.now() - timedelta(days=1) if last_day_only else None
        return Ascii({"status": "ok", "stats": context.store.stats(board=leaderboard_name, since=since)})

    @router.get("/usage", responses=answers(UsageTold, *FAILURES))
    def usage(
        sender: Sender,
        by: Annotated[By, Query(description="Told by what.")] = "board",
        month: Annotated[str | None, Query(max_length=32, description="UTC, like 2026-11; default: this one.")] = None,
        leaderboard: Annotated[str | None, Query(max_length=contest.NAME_CAP, description="Only this board's.")] = None,
    ) -> Ascii:
        """GPU-seconds and money of a month, by board, person, team, place or run: as `kbslurm usage` tells it."""
        identity.host(context, sender)
        now = context.clock.now()
        begins, ends = placement.month_of(now) if month is None else placement.month_named(month)
        board = None if leaderboard is None else contest.board_name(leaderboard)
        rows = context.store.usage(by, begins, ends, now, board=board)
        return Ascii(told(rows, begins=begins, by=by, board=board, budget=wiring.budget(context.config)))

    @router.get("/overview", responses=answers(Overview, 401))
    def overview(sender: Sender) -> Ascii:
        """Queue, leader, and what a host should look at."""
        identity.host(context, sender)
        now = context.clock.now()
        leaders = [lease.holder for lease in context.store.lease_view() if lease.expires_at > now]
        return Ascii(
            {
                "accepts_jobs": context.store.accepts_jobs(),
                "leader": leaders[0] if leaders else None,
                "queue": [
                    {
                        "gpu": line.gpu,
                        "queued": line.queued,
                        "launching": line.launching,
                        "running": line.running,
                        "oldest_at": line.oldest_at.isoformat() if line.oldest_at else None,
                    }
                    for line in context.store.queue_view()
                ],
                "attention": [
                    {"kind": one.kind, "subject": one.subject, "text": one.text, "since": one.since.isoformat()}
                    for one in context.store.attention(now=now)
                ],
            }
        )

    @router.get("/audit", responses=answers(Audit, 401))
    def audit(
        sender: Sender, limit: Limit = 50, before: Annotated[int | None, Query(ge=0, le=2**63 - 1)] = None
    ) -> Ascii:
        """What hosts did, newest first; `before` is the number of the oldest line that is known already."""
        identity.host(context, sender)
        return Ascii({"audit": [audit_line(event) for event in context.store.audit_log(limit=limit, before=before)]})

    @router.post("/update-problems", responses=answers(SyncTold, *FAILURES, 403))
    async def update_problems(wanted: SyncWanted, sender: Sender) -> Ascii:
        """Bring boards up to date with a repository of problems, read at one commit."""
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


def _submissions(router: APIRouter, context: Context, histories: waiting.Histories) -> None:
    @router.get("/submissions/{submission_id}", responses=answers(HostsSubmissionTold, 401, 404))
    def show(submission_id: Number, sender: Sender) -> Ascii:
        """A submission with what only hosts see: the logs, also that of the hidden cases."""
        identity.host(context, sender)
        view = context.store.submission(SubmissionId(submission_id))
        return Ascii({"status": "ok", "submission": hosts_submission(context, histories, view)})

    @router.delete("/submissions/{submission_id}", responses=answers(Removed, 401, 404))
    def delete(submission_id: Number, sender: Sender) -> Ascii:
        """Take a submission off every list; its open runs are cancelled, its source is purged."""
        by = identity.host(context, sender)
        number, now = SubmissionId(submission_id), context.clock.now()
        remove(context.store, number, None, by, now)
        context.store.audit(by, "remove_submission", f"submission:{number}", now=now)
        return Ascii({"status": "ok", "submission_id": number})

    @router.post("/submissions/{submission_id}/cancel", responses=answers(Removed, 401, 404))
    def cancel_(submission_id: Number, sender: Sender) -> Ascii:
        """Cancel the open runs of a submission; verdicts stay."""
        by = identity.host(context, sender)
        number, now = SubmissionId(submission_id), context.clock.now()
        cancel(context.store, number, None, now)
        context.store.audit(by, "cancel", f"submission:{number}", now=now)
        return Ascii({"status": "ok", "submission_id": number})

    @router.get("/leaderboards/{leaderboard}/submissions", responses=answers(SubmissionIds, *FAILURES))
    def of_board(leaderboard: Name, sender: Sender, limit: Limit = 100, offset: Offset = 0) -> Ascii:
        """The numbers of a board's submissions, newest first."""
        identity.host(context, sender)
        board = held(context, leaderboard)
        ids = context.store.submission_ids(board.id, limit=limit, offset=offset)
        told = {"status": "ok", "leaderboard": board.name, "limit": limit, "offset": offset, "submission_ids": ids}
        return Ascii(told)


def _boards(router: APIRouter, context: Context, histories: waiting.Histories) -> None:
    @router.post("/leaderboards", responses=answers(BoardNamed, *FAILURES, 403))
    def create(wanted: NewBoard, sender: Sender) -> Ascii:
        """Make a board of a problem's directory on the server; it is called as the directory is."""
        by = identity.host(context, sender)
        identity.check_reaches_files(context, sender)
        place = FilePath(wanted.directory)
        problem = loading.load(place, name=contest.board_name(place.resolve().name.removesuffix(".py")))
        board = context.store.add_board(
            problem.name,
            problem,
            gpus=problem.gpus or tuple(context.slots),
            visibility=wanted.visibility or "public",
            min_isolation=context.config.policy.ranked_min_isolation,
            now=context.clock.now(),
        )
        context.store.audit(by, "create_board", f"board:{board.id}", {"name": board.name}, now=context.clock.now())
        return Ascii({"status": "ok", "leaderboard": board.name})

    @router.delete("/leaderboards/{leaderboard}", responses=answers(BoardDeleted, *FAILURES))
    def delete(leaderboard: Name, sender: Sender, force: bool = False, only: Number | None = None) -> Ascii:
        """Take a board away; with submissions only by force. The rows stay. `only`: the id that was looked at before;
        a board of the same name that was made since then isn't taken for it.
        """
        by = identity.host(context, sender)
        board = held(context, leaderboard)
        context.store.delete_board(board.name, force=force, only=only, by=by, now=context.clock.now())
        return Ascii({"status": "ok", "leaderboard": board.name, "force": force})

    @router.post("/leaderboards/{leaderboard}/visibility", responses=answers(VisibilityTold, *FAILURES))
    def visibility(leaderboard: Name, wanted: NewVisibility, sender: Sender) -> Ascii:
        """Show a board to everybody, or only to those who were invited."""
        by = identity.host(context, sender)
        board = held(context, leaderboard)
        context.store.set_visibility(board.name, wanted.visibility, by=by, now=context.clock.now())
        return Ascii({"status": "ok", "leaderboard": board.name, "visibility": wanted.visibility})

    @router.post("/leaderboards/{leaderboard}/close", responses=answers(BoardNamed, *FAILURES))
    def close(leaderboard: Name, sender: Sender) -> Ascii:
        """Take no more submissions to a board; what is there stays."""
        by = identity.host(context, sender)
        board = held(context, leaderboard)
        context.store.close_board(board.name, by=by, now=context.clock.now())
        return Ascii({"status": "ok", "leaderboard": board.name})

    @router.post("/leaderboards/{leaderboard}/extend", responses=answers(BoardNamed, *FAILURES))
    def extend(leaderboard: Name, wanted: Extension, sender: Sender) -> Ascii:
        """Let one person submit for longer."""
        by = identity.host(context, sender)
        board = held(context, leaderboard)
        until = contest.parsed_deadline(wanted.until, board.zone) if wanted.until else None
        context.store.extend(board.name, whom(context, wanted.person), until, by=by, now=context.clock.now())
        return Ascii({"status": "ok", "leaderboard": board.name})


def _limits(router: APIRouter, context: Context, histories: waiting.Histories) -> None:
    path = "/leaderboards/{leaderboard}/rate-limits"

    @router.put(path, responses=answers(RateLimitSet, *FAILURES))
    def put(leaderboard: Name, wanted: RateLimitWanted, sender: Sender) -> Ascii:
        """How many submissions of a category a person may make to a board within an hour."""
        by = identity.host(context, sender)
        found = context.store.set_rate_limit(
            held(context, leaderboard).name,
            wanted.mode_category,
            wanted.max_submissions_per_hour,
            by=by,
            now=context.clock.now(),
        )
        return Ascii({"status": "ok", "rate_limit": rate_limit(found)})

    @router.get(path, responses=answers(RateLimits, *FAILURES))
    def get(leaderboard: Name, sender: Sender) -> Ascii:
        """A board's rate limits."""
        identity.host(context, sender)
        found = context.store.rate_limits(held(context, leaderboard).name)
        return Ascii({"rate_limits": [rate_limit(one) for one in found]})

    @router.delete(path + "/{category}", responses=answers(RateLimitGone, *FAILURES))
    def delete(leaderboard: Name, category: Category, sender: Sender) -> Ascii:
        """Let everybody submit as often as they like."""
        by = identity.host(context, sender)
        board = held(context, leaderboard)
        context.store.drop_rate_limit(board.name, category, by=by, now=context.clock.now())
        return Ascii({"status": "ok", "leaderboard": board.name, "mode_category": category})

    @router.put("/leaderboards/{leaderboard}/quota", responses=answers(QuotaTold, *FAILURES))
    def quota(leaderboard: Name, wanted: Quota, sender: Sender) -> Ascii:
        """How many GPU-seconds a person may use on a board within a day; null: no limit."""
        by = identity.host(context, sender)
        board = held(context, leaderboard)
        context.store.set_quota(board.name, wanted.gpu_s_per_day, by=by, now=context.clock.now())
        return Ascii({"status": "ok", "leaderboard": board.name, "gpu_s_per_day": wanted.gpu_s_per_day})


def _invites(router: APIRouter, context: Context, histories: waiting.Histories) -> None:
    @router.post("/invites", responses=answers(InvitesMade, *FAILURES))
    def make(wanted: InvitesWanted, sender: Sender) -> Ascii:
        """New invitations, each for one person and to all of these boards."""
        by = identity.host(context, sender)
        names = [held(context, name).name for name in wanted.leaderboards]
        boards, codes = context.store.make_invites(names, wanted.count, by=by, now=context.clock.now())
        return Ascii({"status": "ok", "leaderboards": boards, "codes": codes})

    @router.get("/leaderboards/{leaderboard}/invites", responses=answers(Invites, *FAILURES))
    def of_board(leaderboard: Name, sender: Sender) -> Ascii:
        """The invitations to a board, and who took them up."""
        identity.host(context, sender)
        found = context.store.invites(held(context, leaderboard).name)
        return Ascii(
            {
                "invites": [
                    {
                        "code": one.code,
                        "user_id": None if one.person_id is None else str(one.person_id),
                        "user_name": one.person,
                        "claimed_at": one.claimed_at.isoformat() if one.claimed_at else None,
                        "created_at": one.created_at.isoformat(),
                    }
                    for one in found
                ]
            }
        )

    @router.delete("/invites/{code}", responses=answers(InviteRevoked, *FAILURES))
    def revoke(code: InviteCode, sender: Sender) -> Ascii:
        """End an invitation, and the access of whoever took it up."""
        by = identity.host(context, sender)
        claimed = context.store.revoke_invite(code, by=by, now=context.clock.now())
        return Ascii({"status": "ok", "code": code, "was_claimed": claimed})


def _people(router: APIRouter, context: Context, histories: waiting.Histories) -> None:
    @router.post("/ban/{user_id}", responses=answers(Banned, *FAILURES))
    def ban(user_id: Whom, sender: Sender, reason: Annotated[str, Query(max_length=200)] = "") -> Ascii:
        """Take no more submissions from a person, and leave them off every board."""
        by = identity.host(context, sender)
        person = whom(context, user_id)
        context.store.ban(person.id, reason, by=by, now=context.clock.now())
        return Ascii({"status": "ok", "user_id": str(person.id), "banned": True})

    @router.delete("/ban/{user_id}", responses=answers(Banned, *FAILURES))
    def unban(user_id: Whom, sender: Sender) -> Ascii:
        """Lift a ban."""
        by = identity.host(context, sender)
        person = whom(context, user_id)
        context.store.unban(person.id, by=by, now=context.clock.now())
        return Ascii({"status": "ok", "user_id": str(person.id), "banned": False})

    @router.post("/people", responses=answers(PersonTold, *FAILURES))
    def people(wanted: NewPerson, sender: Sender) -> Ascii:
        """The person of this account, made when there is none: for the bot, whose users have proved who they are."""
        by = identity.host(context, sender)
        person = context.store.person_for_account(
            wanted.provider, wanted.account, wanted.name, by=by, now=context.clock.now()
        )
        return Ascii(person_told(person))

    @router.get("/people/{user_id}", responses=answers(PersonTold, *FAILURES))
    def person(user_id: Whom, sender: Sender) -> Ascii:
        """Who that is."""
        identity.host(context, sender)
        return Ascii(person_told(whom(context, user_id)))

    @router.post("/link", responses=answers(PersonTold, *FAILURES))
    def link(wanted: Link, sender: Sender) -> Ascii:
        """Give a pending token to the person that it is for. Once; afterwards it is theirs until it is revoked."""
        by = identity.host(context, sender)
        if identity.is_bot(context, sender):
            # A right of one call must not become a token that lasts, least of all somebody else's.
            raise NoHost("over Discord nobody gives a token to somebody else", hint="They type /link themselves.")
        person = whom(context, wanted.person)
        now = context.clock.now()
        if not context.store.claim_token(wanted.token, person.id, now=now):
            raise Invalid("this token isn't waiting to be linked", hint="Get another: popcorn reregister discord")
        context.store.audit(by, "link", f"person:{person.id}", now=now)
        return Ascii(person_told(person))


def held(context: Context, name: str) -> Board:
    """The board of that name, or NotFound."""
    found = context.store.board(name)
    if found is None:
        raise NotFound("board", name, known=context.store.board_names())
    return found


def whom(context: Context, text: str) -> Person:
    """The person that is meant: person:ID, discord:ID, github:ID, a number of ours, else an account, else a name."""
    provider, colon, account = text.partition(":")
    found: Person | None
    if colon and provider in ("discord", "github"):
        found = context.store.person_by_account(provider, account)
    elif colon and provider == "person":
        found = context.store.person_by_name_or_id(account)
    else:
        found = context.store.person_by_name_or_id(text) or context.store.person_by_account("discord", text)
    if found is None:
        raise NotFound("person", text)
    return found


def rate_limit(found: RateLimit) -> dict[str, Any]:
    """A rate limit in popcorn's words."""
    return {
        "leaderboard": found.board,
        "mode_category": found.category,
        "max_submissions_per_hour": found.most_per_hour,
    }


def audit_line(event: Any) -> dict[str, Any]:
    """One act of a host."""
    data = dict(event.data)
    by = str(data.pop("by", ""))
    act = event.kind.removeprefix("staff.")
    return {"id": event.id, "act": act, "subject": event.subject, "by": by, "data": data, "at": event.at.isoformat()}


def hosts_submission(context: Context, histories: waiting.Histories, view: SubmissionView) -> dict[str, Any]:
    """All that its owner sees, and the logs."""
    details = [(run.verdict.detail if run.verdict else None) or {} for run in view.runs]
    return {
        **popcorn_submission.submission(view, waiting.of_submission(context, histories, view)),
        "user_name": view.person,
        "removed_at": view.removed_at.isoformat() if view.removed_at else None,
        "log": "\n".join(str(one.get("log", "")) for one in details),
        "secret_log": "\n".join(str(one.get("secret_log", "")) for one in details),
    }
