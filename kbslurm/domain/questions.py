"""Questions at a board or a submission, and appeals: what may be asked, how often, and when. Pure; the caller passes
the facts.

An appeal is a question at a submission that asks for it to be judged again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, get_args

from kbslurm.domain import contest
from kbslurm.errors import Invalid, QuotaSpent, Refused

State = Literal["open", "answered", "closed"]
STATES: tuple[State, ...] = get_args(State)

TEXT_CAP = 4000
WINDOW = timedelta(hours=1)
MOST_PER_HOUR = 10
MOST_OPEN = 20


@dataclass(frozen=True, kw_only=True)
class Asking:
    """What decides on a question beyond what it says. `recent_at`: when its author asked within the last hour; `open`:
    how many of theirs wait for an answer. The others are about the submission: whether its runs have ended, and the
    open appeal that it has."""

    recent_at: Sequence[datetime] = ()
    open: int = 0
    is_done: bool = True
    appeal: int | None = None


def checked_text(text: str, what: str = "question") -> str:
    """The text as it is kept, or Invalid."""
    found = contest.within(f"the {what}", text.replace("\r\n", "\n").strip(), TEXT_CAP)
    if not found:
        raise Invalid(f"the {what} is empty", hint="Write a few words.")
    if "\x00" in found or any("\ud800" <= one <= "\udfff" for one in found):
        raise Invalid(f"the {what} contains a character that isn't text", hint="Leave it out.")
    return found


def state_named(text: str) -> State | None:
    """The state with that name, None for all; otherwise Invalid."""
    for known in STATES:
        if text.strip().lower() == known:
            return known
    if text.strip().lower() == "all":
        return None
    raise Invalid(
        f"there is no state {contest.shown(text)} of questions", hint=f"Choose one of: {', '.join(STATES)}, all."
    )


def check_may_ask(known: Asking, submission: int | None, *, appeal: bool, staff: bool, now: datetime) -> None:
    """Refuse an appeal that comes too early or twice, and whoever asks too often; rates don't apply to staff."""
    if appeal and submission is None:
        raise Invalid("an appeal is about a submission", hint="Name it with --submission NUMBER.")
    if appeal and not known.is_done:
        raise Refused(f"submission {submission} hasn't been judged yet", hint="Appeal once all of its runs have ended.")
    if appeal and known.appeal is not None:
        raise Refused(
            f"submission {submission} has an open appeal already, question {known.appeal}",
            hint="Wait for its answer.",
        )
    if staff:
        return
    recent = sorted(at for at in known.recent_at if at > now - WINDOW)
    if len(recent) >= MOST_PER_HOUR:
        resets_at = recent[len(recent) - MOST_PER_HOUR] + WINDOW
        raise QuotaSpent("questions per hour", used=len(recent), limit=MOST_PER_HOUR, resets_at=resets_at)
    if known.open >= MOST_OPEN:
        raise Refused(f"{known.open} questions of yours wait for an answer", hint="Ask again once some have one.")


def outcome_in_words(one: Mapping[str, Any]) -> str:
    """What a rejudge changed about one GPU type's run."""
    before, after = one["before"], one["after"]
    if not one["counts"]:
        return f"{one['gpu']}: it couldn't be judged again, so {before} stands"
    return f"{one['gpu']}: {before} stands" if before == after else f"{one['gpu']}: {before} became {after}"
