"""Why an open attempt hasn't started, and what happens next: the one sentence that the terminal, the pages, Discord and
`kbslurm status` show. Pure."""

from __future__ import annotations

from kbslurm.domain.run import AttemptState

BEING_SUBMITTED = "it is being submitted"


def for_everybody(lapse: str) -> str:
    """Why a scheduler can't be reached at all, without what only a host can type: `CAUSE; WHAT TO DO` as CAUSE."""
    cause, remedy, _ = lapse.partition("; ")
    return f"{cause}; a host has to see to it" if remedy else cause


def put_off(why: str, *, together: bool) -> str:
    """It certainly wasn't submitted. `together`: the reason holds for every run for that GPU type there."""
    if together:
        return (
            f"not submitted yet: {why}; one run at a time is tried again, at least once a minute,"
            " and the others follow as soon as it is accepted"
        )
    return f"not submitted yet: {why}; it is tried again, at least once a minute"


def unclear(why: str) -> str:
    """It may have been submitted."""
    return (
        f"it isn't clear whether its job was submitted: {why or 'no answer'}; the job is looked for until the scheduler"
        " answers, and submitted again only if it isn't there"
    )


def silent(why: str) -> str:
    """It was submitted, and the scheduler says nothing about it at the moment."""
    return (
        f"submitted, but nothing is known about its job at the moment: {why}; the scheduler is asked again at least"
        " once a minute, and a job that runs meanwhile isn't affected"
    )


def of_attempt(state: str, waits: str, reason: str) -> str:
    """The sentence for an attempt that hasn't started; empty if nothing is known, or if it isn't waiting. `waits`: what
    was last stored about its waiting."""
    match state:
        case AttemptState.AMBIGUOUS:
            return waits or unclear(reason)
        case AttemptState.INTENT | AttemptState.SUBMITTED:
            return waits
        case _:
            return ""
