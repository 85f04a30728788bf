"""Who may see what, and until when. Pure: values in, yes or no out; whoever shows something asks here first.

| what | who |
|---|---|
| a board: its problem, ranking and final | everybody where it is public; else those invited, and staff |
| a board's name in a channel that everybody reads | only where the board is public |
| a submission: code, log, report, artifacts | its author, until it is taken back; hosts, by calls of their own |
| why a run is where it is | the author, until it is taken back, and staff |
| what a run costs | staff |
| the hidden cases: inputs, count, times, messages, log | hosts; anybody else only whether they passed |
| cancelling a submission; a profile's files from the database | the author and staff |
| the staff page | staff |
| pages, calls and streams as oneself | whoever isn't banned |
| banning somebody, or lifting a ban | hosts; of staff, owners; nobody their own |
| giving or taking a role; tokens and accounts of others; acting for others | hosts; of staff, owners |

A host is a member of staff, or for one call whoever has a Discord role that the configuration names. Whoever is banned
is nobody until the ban is lifted: no staff, no author, no reader of a private board.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal, Protocol

from kbslurm.domain.run import PersonId
from kbslurm.errors import Refused

Role = Literal["owner", "staff", "participant"]
Visibility = Literal["public", "closed"]
CaseList = Literal["tests", "benchmarks"]

HIDDEN = "hidden"
# For hosts only: the hidden cases' log, what proves a report, the machine, and the length of each phase's launches.
WITHHELD = frozenset({"secret_log", "token", "nonce", "host", "budget"})
PHASES = frozenset({"start", "test", "benchmark", "ranked", HIDDEN, "profile"})
MOST_CASES = 100_000


class Viewer(Protocol):
    """Whoever asks to see something."""

    @property
    def id(self) -> PersonId: ...
    @property
    def role(self) -> Role: ...
    @property
    def banned_at(self) -> datetime | None: ...


class Submitted(Protocol):
    """A submission, as far as these rules ask."""

    @property
    def person_id(self) -> PersonId: ...
    @property
    def removed_at(self) -> datetime | None: ...


def is_staff(role: str | None) -> bool:
    """Whether that role is one of staff; None is that of nobody."""
    return role in ("owner", "staff")


def has_staff_rights(viewer: Viewer) -> bool:
    """Whether they may do now what staff may: a ban takes that away, whatever the role."""
    return is_staff(viewer.role) and viewer.banned_at is None


def may_sign_in(viewer: Viewer | None) -> bool:
    """Whether they are somebody here: on the pages, and to the API."""
    return viewer is not None and viewer.banned_at is None


def may_see_staff_page(viewer: Viewer | None) -> bool:
    """Whether the queue, the places and the audit log are shown to them."""
    return viewer is not None and has_staff_rights(viewer)


def check_may_ban(host: Viewer | None, whom: Viewer) -> None:
    """Refused if this host may not ban that person, or lift their ban. Without a person it is whoever runs the
    service: by its own token, or in its database."""
    if host is None or (host.role == "owner" and host.id != whom.id):
        return
    if host.id == whom.id:
        raise Refused("you can't ban yourself or lift your own ban", hint="Ask another host.")
    if is_staff(whom.role):
        raise Refused("only an owner may ban staff or lift their bans", hint="Ask an owner.")


def check_may_give(host: Viewer | None, role: Role) -> None:
    """Refused if this host may not give or take that role, nor what speaks for people who have it: tokens, accounts.
    Otherwise any member of staff could become an owner."""
    if host is not None and is_staff(role) and not (host.role == "owner" and has_staff_rights(host)):
        raise Refused("only an owner may change the rights, tokens and accounts of staff", hint="Ask an owner.")


def check_may_act_for(host: Viewer | None, whom: Viewer) -> None:
    """Refused if this host may not make that person's own calls for them: otherwise any member of staff could submit or
    delete as an owner."""
    if host is None or host.id == whom.id or not is_staff(whom.role):
        return
    if not (host.role == "owner" and has_staff_rights(host)):
        raise Refused("only an owner may act for staff", hint="Ask an owner.")


def is_for_everybody(visibility: str) -> bool:
    """Whether a board may be named where anybody reads."""
    return visibility == "public"


def may_see_board(visibility: Visibility, *, invited: bool, staff: bool) -> bool:
    """Whether a board is shown to whoever asks."""
    return is_for_everybody(visibility) or invited or staff


def may_see_submission(viewer: Viewer | None, submission: Submitted) -> bool:
    """Whether its code, log, report and artifacts are shown to them."""
    return viewer is not None and viewer.id == submission.person_id and submission.removed_at is None


def may_see_reasons(viewer: Viewer, submission: Submitted) -> bool:
    """Whether they are told why its runs are where they are."""
    return may_handle(viewer.id, viewer.role, submission.person_id) and submission.removed_at is None


def may_see_costs(viewer: Viewer) -> bool:
    """Whether they are told what a run costs."""
    return has_staff_rights(viewer)


def may_handle(person: PersonId, role: str | None, author: PersonId) -> bool:
    """Whether a person of this role may cancel that author's submission, or read its artifacts from the database."""
    return person == author or is_staff(role)


def shown_report(detail: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """A verdict's detail as the submission's author may see it."""
    if detail is None:
        return None
    shown = {name: value for name, value in detail.items() if name not in WITHHELD}
    shown["tests"] = shown_cases(detail, "tests")
    shown["benchmarks"] = shown_cases(detail, "benchmarks")
    shown["phases"] = [_shown_phase(row) for row in detail.get("phases", ())]
    if "physics" in detail:  # a hidden case's least time tells its size
        shown["physics"] = [row for row in detail["physics"] if not is_hidden(row.get("phase"))]
    return shown


def shown_cases(detail: Mapping[str, Any], which: CaseList) -> list[Mapping[str, Any]]:
    """A verdict's test or benchmark cases without the hidden ones."""
    return [row for row in detail.get(which, ()) if not is_hidden(row.get("phase"))]


def is_hidden(phase: object) -> bool:
    """Whether of this phase nobody but hosts may know more than whether it passed."""
    return phase == HIDDEN


def _shown_phase(row: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": HIDDEN, "passed": bool(row.get("passed"))} if is_hidden(row.get("name")) else dict(row)


def shown_progress(beat: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """A running job's progress: `phase`, and `done` and `of` if its cases are public.

    It comes from where the submission runs, so anything malformed is None.
    """
    found = (beat or {}).get("phase")
    if not isinstance(found, str) or found not in PHASES:
        return None
    if is_hidden(found):
        return {"phase": HIDDEN}
    done, of = (beat or {}).get("done"), (beat or {}).get("of")
    if type(done) is not int or type(of) is not int or not 0 <= done <= of <= MOST_CASES or of == 0:
        return {"phase": found}
    return {"phase": found, "done": done, "of": of}


def progress_text(shown: Mapping[str, Any] | None) -> str:
    """`test 3/17`, `hidden cases`, or nothing."""
    if not shown:
        return ""
    name = "hidden cases" if is_hidden(shown.get("phase")) else str(shown.get("phase", ""))
    return f"{name} {shown['done']}/{shown['of']}" if "of" in shown else name
