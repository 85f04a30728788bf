"""What forms of the staff's pages do, by name, and what is asked before an act that can't be undone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kbslurm.api.context import Context
from kbslurm.api.host_lookup import at_work
from kbslurm.api.hosting.hosting import Hosting
from kbslurm.api.pages.rendering import isolated, when
from kbslurm.domain import access, contest
from kbslurm.domain.run import SubmissionId
from kbslurm.errors import Invalid
from kbslurm.flow.cancel import cancel
from kbslurm.flow.remove import remove
from kbslurm.store.views import Person, SubmissionView

Form = Mapping[str, str]
Acts = Mapping[str, Callable[[Person, Form], None]]
Questions = Mapping[str, Callable[[Person, Form], "Question"]]


class Unchanged(Exception):
    """It is so already, by a second click or by somebody else: the page with the form was old. Says what is so."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is asked before an act that can't be undone. `form` is what confirms it, about the very thing shown."""

    heading: str
    lines: Sequence[str]
    yes: str
    form: Form


class StaffActs:
    """The acts at `/staff/ACT`: `acts` does them, `asked` has the question before some of them."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.acts: Acts = {
            "pause": self._switch(False), "resume": self._switch(True), "cancel": self._cancel, "remove": self._remove,
            "shadow": self._shadow, "add": self._add, "ban": self._ban, "unban": self._unban, "delete": self._delete,
            "rank": self._rank, "team": self._team, "account": self._account, "link": self._link,
            "revoke": self._revoke, "warm-start": self._warm_start, "warm-drain": self._warm_drain,
            "place-drain": self._place_drain, "place-resume": self._place_resume,
        }  # fmt: skip
        self.asked: Questions = {
            "cancel": self._cancelling, "remove": self._removing, "ban": self._banning, "delete": self._deleting,
            "revoke": self._revoking,
        }  # fmt: skip

    def _work(self, person: Person) -> Hosting:
        return at_work(self._context, person.name, person)

    def _switch(self, accepting: bool) -> Callable[[Person, Form], None]:
        def switched(person: Person, form: Form) -> None:
            if self._context.store.settings.accepts_jobs() is accepting:
                raise Unchanged(f"Submissions are {'accepted' if accepting else 'paused'} already.")
            self._work(person).set_accepting(accepting)

        return switched

    # ---------------------------------------------------------------------------------------------- submissions

    def _still_open(self, number: SubmissionId) -> SubmissionView:
        view = self._context.store.submissions.get(number)
        if view.is_done:
            raise Unchanged(f"Submission {number} has ended already, so there is nothing to cancel.")
        if all(run.ended_at is not None or run.cancel_at is not None for run in view.runs):
            raise Unchanged(f"Submission {number} is being cancelled already.")
        return view

    def _cancel(self, person: Person, form: Form) -> None:
        number, now = _number(form), self._context.clock.now()
        self._still_open(number)
        cancel(self._context.store.submissions, number, None, now)
        self._context.store.events.audit(person.name, "cancel", f"submission:{number}", now=now)

    def _cancelling(self, person: Person, form: Form) -> Question:
        view = self._still_open(_number(form))
        still = sum(run.ended_at is None for run in view.runs)
        runs = f"{still} open run{'' if still == 1 else 's'} of {len(view.runs)}"
        return Question(
            heading=f"Cancel submission {view.id}?",
            lines=(
                f"{isolated(view.file_name)} by {isolated(view.person)} on {view.board}: {runs}.",
                "Queued runs are cancelled now, and running jobs are killed. A cancelled run doesn't come back.",
            ),
            yes="Cancel its runs",
            form={"submission": str(view.id)},
        )

    def _there(self, number: SubmissionId) -> SubmissionView:
        view = self._context.store.submissions.get(number)
        if view.removed_at is not None:
            raise Unchanged(f"Submission {number} was taken back or removed already.")
        return view

    def _remove(self, person: Person, form: Form) -> None:
        number, now = _number(form), self._context.clock.now()
        self._there(number)
        remove(self._context.store.submissions, number, None, person.name, now)
        self._context.store.events.audit(person.name, "remove_submission", f"submission:{number}", now=now)

    def _removing(self, person: Person, form: Form) -> Question:
        view = self._there(_number(form))
        return Question(
            heading=f"Remove submission {view.id}?",
            lines=(
                f"{isolated(view.file_name)} by {isolated(view.person)} on {view.board}.",
                "It disappears from every list and board, its open runs are cancelled, and its source is deleted.",
                "This can't be undone.",
            ),
            yes="Remove it",
            form={"submission": str(view.id)},
        )

    def _shadow(self, person: Person, form: Form) -> None:
        where = form.get("place", "").strip()[:100]
        self._work(person).shadow(_number(form), where or None, cold=not where)

    # --------------------------------------------------------------------------------------------------- people

    def _add(self, person: Person, form: Form) -> None:
        role = contest.role(form.get("role", "participant"))
        self._work(person).add_user(form.get("person", "").strip(), role)

    def _ban(self, person: Person, form: Form) -> None:
        work = self._work(person)
        _not_banned(person, work.whom(_whom(form)))
        work.ban(_whom(form), _reason(form))

    def _banning(self, person: Person, form: Form) -> Question:
        whom, reason = self._work(person).whom(_whom(form)), _reason(form)
        _not_banned(person, whom)
        return Question(
            heading=f"Ban {isolated(whom.name)}?",
            lines=(
                f"{isolated(whom.name)} is person {whom.id}, {whom.role}, since {when(whom.created_at)}.",
                "Their tokens and sessions end at once, and they disappear from every board.",
                "Their queued runs are cancelled now, and running jobs are killed.",
                f"They are told this reason: {isolated(reason)}" if reason else "They are told no reason.",
            ),
            yes="Ban",
            form={"person": f"person:{whom.id}", "reason": reason},
        )

    def _unban(self, person: Person, form: Form) -> None:
        work = self._work(person)
        whom = work.whom(_whom(form))
        access.check_may_ban(person, whom)
        if whom.banned_at is None:
            raise Unchanged(f"{isolated(whom.name)} isn't banned.")
        work.unban(_whom(form))

    def _delete(self, person: Person, form: Form) -> None:
        self._work(person).delete_user(_whom(form))

    def _deleting(self, person: Person, form: Form) -> Question:
        found = self._work(person).delete_preview(_whom(form))
        name, erased = isolated(found["name"]), found["erased"]
        return Question(
            heading=f"Delete {name} for good?",
            lines=(
                f"Erased: their name, {erased['accounts']} accounts, {erased['tokens']} tokens and all personal data.",
                f"Their {erased['questions']} questions are erased, with the answers that only they were given.",
                f"They leave {erased['courses']} rosters, and {found['open_runs']} open runs are cancelled.",
                f"{found['submissions']} submissions stay under a pseudonym, with their code.",
                f"In {found['audit_lines']} lines of the audit log the pseudonym takes their name's place.",
                *(
                    f"An earlier archive of {one['leaderboard']} has to be written again: {isolated(one['place'])}."
                    for one in found["archives"]
                ),
                "This can't be undone.",
            ),
            yes="Delete",
            form={"person": f"person:{found['person_id']}"},
        )

    def _rank(self, person: Person, form: Form) -> None:
        self._work(person).set_role(_whom(form), contest.role(form.get("role", "")))

    def _team(self, person: Person, form: Form) -> None:
        self._work(person).set_team(_whom(form), form.get("team", "").strip() or None)

    def _account(self, person: Person, form: Form) -> None:
        self._work(person).set_cluster_account(_whom(form), form.get("account", "").strip()[:100] or None)

    def _link(self, person: Person, form: Form) -> None:
        self._work(person).link_account(_whom(form), form.get("account", "").strip())

    def _revoke(self, person: Person, form: Form) -> None:
        token = form.get("token", "").strip()
        if token and not (token.isascii() and token.isdecimal() and len(token) < 19):
            raise Invalid(f"{token[:40]!r} isn't the number of a token")
        self._work(person).revoke_tokens(_whom(form), int(token) if token else None)

    def _revoking(self, person: Person, form: Form) -> Question:
        whom, token = self._work(person).whom(_whom(form)), form.get("token", "").strip()[:20]
        which = f"token {token} of {isolated(whom.name)}" if token else f"all tokens of {isolated(whom.name)}"
        return Question(
            heading=f"Revoke {which}?",
            lines=("Whatever uses it is signed out at once. A revoked token doesn't come back.",),
            yes="Revoke",
            form={"person": f"person:{whom.id}", "token": token},
        )

    # --------------------------------------------------------------------------------------------------- places

    def _place_drain(self, person: Person, form: Form) -> None:
        self._work(person).place_drain(form.get("place", ""), form.get("why", ""), form.get("gpu") or None)

    def _place_resume(self, person: Person, form: Form) -> None:
        name = form.get("place", "")
        if not any(one.place == name for one in self._context.store.places.drains()):
            raise Unchanged(f"{isolated(name[:100])} takes runs already.")
        self._work(person).place_resume(name)

    # --------------------------------------------------------------------------------------------- warm workers

    def _warm_start(self, person: Person, form: Form) -> None:
        text = form.get("count", "1").strip()
        if not (text.isascii() and text.isdecimal() and len(text) < 4 and int(text) > 0):
            raise Invalid(f"{text[:40]!r} isn't a number of workers", hint="Give a number from 1 on.")
        self._work(person).warm_start(int(text), form.get("place") or None, form.get("gpu") or None)

    def _warm_drain(self, person: Person, form: Form) -> None:
        text = form.get("worker", "").strip()
        if not (text.isascii() and text.isdecimal() and len(text) < 19):
            raise Invalid(f"{text[:40]!r} isn't the number of a warm worker")
        self._work(person).warm_drain(int(text))


def _not_banned(person: Person, whom: Person) -> None:
    access.check_may_ban(person, whom)
    if whom.banned_at is not None:
        why = f", for this reason: {isolated(whom.ban_reason)}" if whom.ban_reason else ""
        raise Unchanged(f"{isolated(whom.name)} is banned already{why}.")


def _number(form: Form) -> SubmissionId:
    text = form.get("submission", "").strip()
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise Invalid(f"{text[:40]!r} isn't a submission number")
    return SubmissionId(int(text))


def _whom(form: Form) -> str:
    return form.get("person", "").strip()[:100]


def _reason(form: Form) -> str:
    return form.get("reason", "").strip()[:200]
