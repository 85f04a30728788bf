"""popcorn-cli's calls that only read, and those with which people manage what is theirs."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal

from fastapi import APIRouter, Query

from kbslurm.api import full_submission, identity, popcorn_submission, waiting
from kbslurm.api.answers import Ascii, answers
from kbslurm.api.board_json import board_told
from kbslurm.api.cancelling import cancel_as
from kbslurm.api.context import Context
from kbslurm.api.door import Door
from kbslurm.api.hosting.questions import announced, own_question
from kbslurm.api.identity import Sender
from kbslurm.api.invitations import boards_by_invitation, entered, joined
from kbslurm.api.lookup import may_see_board, own, seen_board
from kbslurm.api.parameters import Gpu, Limit, Name, Number, Offset, OfMode, OfVerdict, RunNumber, Since, in_utc
from kbslurm.api.person_json import person_told
from kbslurm.api.standings_cache import StandingsCache, final_told, row_json
from kbslurm.contract.base import Fine
from kbslurm.contract.boards import Leaderboard
from kbslurm.contract.courses import InvitationCode, InvitationTaken
from kbslurm.contract.full_submission import FullSubmissionTold
from kbslurm.contract.invites import Code, Joined
from kbslurm.contract.nicknames import Nickname, NicknameTold
from kbslurm.contract.operations import Health
from kbslurm.contract.people import Pending, PersonTold
from kbslurm.contract.questions import Announcements, OwnQuestions, QuestionTold, QuestionWanted
from kbslurm.contract.queue import RunnerQueue
from kbslurm.contract.rankings import FinalTold, OwnPlaces, Standing, SubmissionPlaces
from kbslurm.contract.submissions import Cancelled, Count, Submission, SubmissionSummary
from kbslurm.contract.why import WhysTold, WhyTold
from kbslurm.domain import access, contest
from kbslurm.domain.board import Ranking
from kbslurm.domain.why import as_told
from kbslurm.errors import Invalid, NotFound, Refused
from kbslurm.flow.remove import remove
from kbslurm.observe.logs import teller

tell = teller("api")
PENDING_FOR = timedelta(hours=1)


def routes(context: Context, histories: waiting.Histories, standings: StandingsCache) -> APIRouter:
    """The router of these calls."""
    router = APIRouter(tags=["popcorn"], route_class=Door)

    @router.get("/health", responses=answers(Health))
    async def health() -> Ascii:
        """Whether this process answers. Makes no queries."""
        return Ascii({"status": "ok"})

    @router.get("/leaderboards", responses=answers(list[Leaderboard], 404))
    def leaderboards(sender: Sender) -> Ascii:
        """The boards that the caller may see, newest first."""
        person = identity.maybe_caller(context, sender)
        mine = context.store.invites.boards_of(person.id) if person else frozenset()
        found = [board for board in context.store.boards.all(counted=False) if may_see_board(board, person, mine)]
        return Ascii([board_told(context, board) for board in found])

    @router.get("/gpus/{leaderboard}", responses=answers(list[str], 404))
    def gpus(leaderboard: Name, sender: Sender) -> Ascii:
        """The GPU types of a board."""
        return Ascii(list(seen_board(context, leaderboard, identity.maybe_caller(context, sender)).gpus))

    @router.get("/runner_queue/{gpu}", responses=answers(RunnerQueue))
    def runner_queue(gpu: Gpu) -> Ascii:
        """The state of a GPU type's queue; a type that no place has is `unavailable`."""
        return Ascii(waiting.runner_queue(context, histories, gpu))

    @router.get("/submissions/{leaderboard}/{gpu}", responses=answers(list[Standing], 404))
    def ranking(
        leaderboard: Name,
        gpu: Gpu,
        sender: Sender,
        limit: Limit = 100,
        offset: Offset = 0,
        practice: Annotated[bool, Query(description="Instead what was submitted after the end.")] = False,
    ) -> Ascii:
        """The ranking: each person's best, best first."""
        board = seen_board(context, leaderboard, identity.maybe_caller(context, sender))
        known = contest.known_gpu(gpu, board.gpus)
        if practice:
            rows = Ranking(context.store.standings.practice(board.name, known))[offset : offset + limit]
            return Ascii([row_json(board, known, row) for row in rows])
        return Ascii(standings.page(board, known, offset=offset, limit=limit))

    @router.get("/final/{leaderboard}/{gpu}", responses=answers(FinalTold, 404))
    def final(leaderboard: Name, gpu: Gpu, sender: Sender) -> Ascii:
        """The board's final, once hosts have applied it: the leaders, measured head to head in one job."""
        board = seen_board(context, leaderboard, identity.maybe_caller(context, sender))
        found = context.store.finals.applied(board.name, contest.known_gpu(gpu, board.gpus))
        if found is None:
            raise NotFound("final of board", board.name)
        return Ascii(final_told(found))

    @router.get("/submission_count/{leaderboard}/{gpu}", responses=answers(Count, 403, 404))
    def submission_count(
        leaderboard: Name,
        gpu: Gpu,
        sender: Sender,
        user_id: Annotated[int | None, Query(ge=0, le=2**63 - 1)] = None,
    ) -> Ascii:
        """How many submissions were made to a board for a GPU type, by everyone or by one person."""
        person = identity.maybe_caller(context, sender)
        board = seen_board(context, leaderboard, person)
        known = contest.known_gpu(gpu, board.gpus)
        if user_id is not None and not access.may_count_for(
            person, user_id, names=board.names, standings=board.standings
        ):
            raise Refused(f"board {board.name} doesn't say who submits", hint="Leave out user_id, or give your own.")
        return Ascii({"count": context.store.submissions.count(board.id, known, user_id)})

    @router.get("/user/submissions", responses=answers(list[SubmissionSummary], 400, 401, 404))
    def mine(
        sender: Sender,
        leaderboard: Annotated[str | None, Query(max_length=contest.NAME_CAP)] = None,
        verdict: OfVerdict = None,
        mode: OfMode = None,
        since: Since = None,
        limit: Limit = 50,
        offset: Offset = 0,
    ) -> Ascii:
        """One's own submissions, newest first."""
        person = identity.caller(context, sender)
        if leaderboard is not None:
            leaderboard = seen_board(context, leaderboard, person).name
        found = context.store.submissions.newest(
            person=person.id, board=leaderboard, verdict=verdict, mode=mode, since=in_utc(since), limit=limit,
            offset=offset,
        )  # fmt: skip
        return Ascii([popcorn_submission.summary(view) for view in found])

    @router.get("/user/standing/{leaderboard}", responses=answers(OwnPlaces, 400, 401, 404))
    def standing(leaderboard: Name, sender: Sender) -> Ascii:
        """One's own place on a board, and as whom others see one there."""
        person = identity.caller(context, sender)
        board = seen_board(context, leaderboard, person)
        return Ascii({"leaderboard": board.name, "places": standings.own_rows(board, person.id)})

    @router.put("/user/nickname/{leaderboard}", responses=answers(NicknameTold, 400, 401, 404, 429))
    def nickname(leaderboard: Name, wanted: Nickname, sender: Sender) -> Ascii:
        """Choose as whom others see one on a board, or with null no nickname."""
        person = identity.caller(context, sender)
        board, now = seen_board(context, leaderboard, person), context.clock.now()
        chosen = context.store.nicknames.choose(board, person, wanted.nickname, now=now)
        return Ascii({"status": "ok", "leaderboard": board.name, "nickname": chosen})

    @router.get("/user/submissions/{submission_id}", responses=answers(Submission, 400, 401, 403, 404))
    def poll(submission_id: Number, sender: Sender) -> Ascii:
        """The state of one's own submission. Answered from the database alone."""
        view = own(context, sender, submission_id)
        return Ascii(popcorn_submission.submission(view, waiting.of_submission(context, histories, view)))

    @router.get("/user/submissions/{submission_id}/whole", responses=answers(FullSubmissionTold, 400, 401, 403, 404))
    def all_of_it(submission_id: Number, sender: Sender) -> Ascii:
        """One's own submission with attempts, progress and report, as `kbslurm watch` shows it."""
        view = own(context, sender, submission_id)
        queue = waiting.of_submission(context, histories, view)
        told = {
            "submission": full_submission.as_json(view),
            "runner_queue": queue,
            "message": waiting.words(view, queue),
        }
        return Ascii(told)

    @router.get("/user/submissions/{submission_id}/places", responses=answers(SubmissionPlaces, 400, 401, 403, 404))
    def places(submission_id: Number, sender: Sender) -> Ascii:
        """What one's own submission came to: one's rank, one's best before it, and the leader."""
        view = own(context, sender, submission_id)
        told = standings.of_submission(view)
        return Ascii({"leaderboard": view.board, "submission_id": view.id, "places": told})

    @router.get("/user/runs/{run_id}/why", responses=answers(WhyTold, 400, 401, 403, 404))
    def why(run_id: RunNumber, sender: Sender) -> Ascii:
        """Explains the state of one's own run (for staff: anyone's): what it waits for, where it went and why."""
        person = identity.caller(context, sender)
        told = context.store.runs.why(run_id, context.clock.now())
        try:
            own(context, sender, told.submission, staff_too=True)
        except (NotFound, Refused):  # nobody is told which runs of others there are, nor of which submission
            raise NotFound("run", str(run_id)) from None
        return Ascii(as_told(told, money=access.may_see_costs(person)))

    @router.get("/user/submissions/{submission_id}/why", responses=answers(WhysTold, 400, 401, 403, 404))
    def whys(submission_id: Number, sender: Sender) -> Ascii:
        """The same for each run of a submission."""
        now, view = context.clock.now(), own(context, sender, submission_id, staff_too=True)
        money = access.may_see_costs(identity.caller(context, sender))
        return Ascii({"runs": [as_told(context.store.runs.why(run.id, now), money=money) for run in view.runs]})

    @router.delete("/user/submissions/{submission_id}", responses=answers(Fine, 400, 401, 403, 404))
    def delete(submission_id: Number, sender: Sender) -> Ascii:
        """Delete one's own submission: open runs are cancelled, it leaves every list, its source is deleted."""
        view = own(context, sender, submission_id)
        person = identity.caller(context, sender)
        if person.service is not None:
            raise Refused("a service token deletes no submissions", hint="Use a token of your own.")
        remove(context.store.submissions, view.id, person.id, person.name, context.clock.now())
        return Ascii({"status": "ok"})

    @router.post("/user/submissions/{submission_id}/cancel", responses=answers(Cancelled, 400, 401, 403, 404))
    def cancel_(submission_id: Number, sender: Sender) -> Ascii:
        """Cancel the open runs of one's own submission, or as staff of anyone's; verdicts stay."""
        person = identity.caller(context, sender)
        view = own(context, sender, submission_id, staff_too=True)
        return Ascii({"status": "ok", "still_to_end": cancel_as(context.store, view, person, context.clock.now())})

    @router.get("/user/me", responses=answers(PersonTold, 400, 401, 404))
    def me(sender: Sender) -> Ascii:
        """The person that the token belongs to."""
        return Ascii(person_told(identity.caller(context, sender)))

    @router.post("/user/logout", responses=answers(Fine, 400, 401, 404))
    def logout(sender: Sender) -> Ascii:
        """Revoke the token that this call uses."""
        person, now = identity.caller(context, sender), context.clock.now()
        if sender.acting or not sender.key:
            raise Invalid("an impersonating client can't revoke the user's token")
        context.store.tokens.revoke_secret(sender.key, now=now)
        tell("a token was revoked by its owner", person=person.id)
        return Ascii({"status": "ok"})

    @router.post("/user/join", responses=answers(Joined, 400, 401, 403, 404))
    def join(wanted: Code, sender: Sender) -> Ascii:
        """Claim an invitation: gives the caller access to its private boards."""
        person = identity.caller(context, sender)
        boards, already = joined(context, wanted.code, person)
        return Ascii({"status": "ok", "leaderboards": boards, "already": already})

    @router.get("/announcements/{leaderboard}", responses=answers(Announcements, 404))
    def announcements(leaderboard: Name, sender: Sender) -> Ascii:
        """What hosts told everyone on a board, newest first."""
        board = seen_board(context, leaderboard, identity.maybe_caller(context, sender))
        return Ascii(announced(board.name, context.store.questions.announcements(board.id)))

    @router.get("/user/questions", responses=answers(OwnQuestions, 400, 401, 403))
    def questions(sender: Sender, limit: Limit = 50, offset: Offset = 0) -> Ascii:
        """One's own questions with their answers, newest first."""
        person = identity.caller(context, sender)
        found = context.store.questions.of_person(person.id, limit=limit, offset=offset)
        return Ascii({"questions": [own_question(one) for one in found]})

    @router.post("/user/questions", responses=answers(QuestionTold, 400, 401, 403, 404, 413, 429))
    def ask(wanted: QuestionWanted, sender: Sender) -> Ascii:
        """Ask the hosts something, at a board or at a submission of one's own; or appeal against its verdict."""
        person = identity.caller(context, sender)
        asked = context.store.questions.ask(
            person.id,
            wanted.text,
            board=None if wanted.leaderboard is None else seen_board(context, wanted.leaderboard, person).name,
            submission=wanted.submission,
            appeal=bool(wanted.appeal),
            now=context.clock.now(),
        )
        return Ascii(own_question(asked))

    @router.post("/user/invitation", responses=answers(InvitationTaken, 400, 401, 403))
    def invitation(wanted: InvitationCode) -> Ascii:
        """A token for whoever a roster's invitation is for, or for somebody new by one to boards. It works once, also
        if it is opened in a browser."""
        person, now = entered(context, wanted.code, wanted.name), context.clock.now()
        secret = context.store.tokens.issue(person.id, kind="cli", device=wanted.device or "invitation", now=now)
        tell("an invitation was taken", person=person.id)
        boards = boards_by_invitation(context, person.id)
        return Ascii({"person": person.name, "token": secret, "leaderboards": boards})

    @router.get("/auth/init", responses=answers(Pending, 400, 429))
    def auth_init(provider: Annotated[Literal["discord", "github"], Query()] = "discord") -> Ascii:
        """A new pending token. It belongs to the first person who links it, within an hour."""
        now = context.clock.now()
        context.store.tokens.check_pending_room(now=now)
        state = context.store.tokens.issue(None, kind="pending", device=provider, expires_at=now + PENDING_FOR, now=now)
        return Ascii({"state": state})

    return router
