"""Who may see what, and until when. Pure: values in, yes or no out; whoever shows something asks here first.

| what | who |
|---|---|
| a board: its problem, ranking and final | everybody where it is public; else those invited, and staff |
| a board's name in a channel that everybody reads | only where the board is public |
| standings after a freeze: ranks, scores, records, finals | hosts; others what was submitted before it, and their own |
| hidden standings | hosts; others nothing, or where the board says so their own place |
| who is who where people have nicknames or pseudonyms | hosts and graders; everybody their own |
| what was submitted for the ranking, whether it passed, its score | as standings; how it failed: its author, hosts |
| a submission: code, log, report, artifacts | its author, until it is taken back; hosts, graders |
| others' code, where a board publishes it | whoever may see the board, once it is over |
| why a run is where it is | the author, until it is taken back, and staff |
| what a run costs | staff |
| the hidden cases: inputs, count, times, messages, log | hosts; anybody else only whether they passed |
| a question and its answer | who asked; who grades its board, with the name; if it is to all: whoever sees the board |
| cancelling a submission; a profile's files from the database | the author and staff |
| the staff page | staff; a board's submissions, questions, work logs and export also by a role on it |
| pages, calls and streams as oneself | whoever isn't banned |
| banning somebody, or lifting a ban | hosts; of staff, owners; nobody their own |
| giving or taking a role; tokens and accounts of others; acting for others | hosts; of staff, owners |

On a board, or on all of a course, somebody who isn't staff may have a role; each may also do what those below it may:

| role on the board | may |
|---|---|
| owner | give roles, show it to others, order finals, delete it; set its course's budgets |
| assistant | change it, close it, extend deadlines, set limits, judge again, cancel, answer everyone; see budgets |
| grader | read code, logs and grades; see who is who on the roster; read and answer questions |
| observer | see it where it is private, its limits and its export |

A host is a member of staff, or for one call whoever has a Discord role that the configuration names. Whoever is banned
is nobody until the ban is lifted: no staff, no author, no reader of a private board.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Literal, Protocol, get_args

from kbslurm.domain.run import PersonId
from kbslurm.errors import Refused

Role = Literal["owner", "staff", "participant"]
Visibility = Literal["public", "closed"]
CaseList = Literal["tests", "benchmarks"]
NamesShown = Literal["real", "nicknames", "anonymous"]
StandingsShown = Literal["shown", "own", "hidden"]
BoardRole = Literal["owner", "assistant", "grader", "observer"]
BoardAct = Literal["see", "grade", "run", "own"]
CodeRule = Literal["never", "deadline", "consent"]
KeptBack = Literal["hidden", "names", "frozen"]
CODE_RULES: tuple[CodeRule, ...] = get_args(CodeRule)
BOARD_ROLES: tuple[BoardRole, ...] = get_args(BoardRole)
MAY_ON_BOARD: Mapping[BoardRole, frozenset[BoardAct]] = {
    "observer": frozenset({"see"}),
    "grader": frozenset({"see", "grade"}),
    "assistant": frozenset({"see", "grade", "run"}),
    "owner": frozenset({"see", "grade", "run", "own"}),
}
# What a host does with the questions at a board, and as what.
ON_QUESTIONS: Mapping[Literal["read", "answer", "announce", "rejudge"], BoardAct] = {
    "read": "grade",
    "answer": "grade",
    "announce": "run",
    "rejudge": "run",
}
NEEDS: Mapping[BoardAct, str] = {"see": "observer", "grade": "grader", "run": "assistant", "own": "owner"}

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


def may_give(host: Viewer | None, role: Role) -> bool:
    """Whether this host may give or take that role. Without a person it is whoever runs the service."""
    return host is None or not is_staff(role) or (host.role == "owner" and has_staff_rights(host))


def check_may_give(host: Viewer | None, role: Role) -> None:
    """Refused if this host may not give or take that role, nor what speaks for people who have it: tokens, accounts.
    Otherwise any member of staff could become an owner."""
    if not may_give(host, role):
        raise Refused("only an owner may change the rights, tokens and accounts of staff", hint="Ask an owner.")


def check_may_act_for(host: Viewer | None, whom: Viewer) -> None:
    """Refused if this host may not make that person's own calls for them: otherwise any member of staff could submit or
    delete as an owner."""
    if host is None or host.id == whom.id or not is_staff(whom.role):
        return
    if not (host.role == "owner" and has_staff_rights(host)):
        raise Refused("only an owner may act for staff", hint="Ask an owner.")


def may_on_board(viewer: Viewer | None, role: BoardRole | None, act: BoardAct) -> bool:
    """Whether they may do this on a board on which they have that role. Staff may do everything on every board; a ban
    ends a role, too."""
    if viewer is None or not may_sign_in(viewer):
        return False
    return has_staff_rights(viewer) or (role is not None and act in MAY_ON_BOARD[role])


def check_may_on_board(viewer: Viewer, role: BoardRole | None, act: BoardAct, board: str) -> None:
    """Refused if they may not; says who may."""
    if not may_on_board(viewer, role, act):
        mine = f"you are {role} of {board}, and this needs" if role else f"on {board} this needs"
        raise Refused(f"{mine} its {NEEDS[act]}'s rights, or a host's", hint="Ask its owner, or a host.")


def strongest(roles: Iterable[BoardRole]) -> BoardRole | None:
    """Of somebody's roles on a board, the one that may most."""
    return min(roles, key=BOARD_ROLES.index, default=None)


def is_for_everybody(visibility: str) -> bool:
    """Whether a board may be named where anybody reads."""
    return visibility == "public"


def may_see_board(visibility: Visibility, *, invited: bool, staff: bool) -> bool:
    """Whether a board is shown to whoever asks."""
    return is_for_everybody(visibility) or invited or staff


def shown_until(frozen_at: datetime | None, *, host: bool = False) -> datetime | None:
    """Standings are shown of what was submitted until then; None: of everything.

    The one rule for every outlet: pages, tables, streams, pictures, the bot, files. It holds for standings, records and
    finals, that is for what tells people about one another. Their own verdicts people see always.
    """
    return None if host else frozen_at


def is_frozen(frozen_at: datetime | None, now: datetime) -> bool:
    """Whether standings are frozen now; a freeze can be set for later."""
    return frozen_at is not None and frozen_at <= now


def shows_standings(standings: StandingsShown, *, host: bool = False) -> bool:
    """Whether standings, records and finals are shown at all. The one rule for every outlet, like a freeze's."""
    return host or standings == "shown"


def shows_own_place(standings: StandingsShown) -> bool:
    """Whether people are told their own place."""
    return standings != "hidden"


def names_people(names: NamesShown, *, host: bool = False) -> bool:
    """Whether everybody is shown under their own name; else `domain.pseudonyms` says what others see."""
    return host or names == "real"


def may_be_handed_on(names: NamesShown, standings: StandingsShown) -> bool:
    """Whether a board may publish code, or an archive of it may be for others: not where people or places are hidden,
    since a source, like a submission's number and moment, tells whose it is."""
    return names_people(names) and shows_standings(standings)


def may_tell_others(
    accepted_at: datetime,
    frozen_at: datetime | None,
    *,
    names: NamesShown = "real",
    standings: StandingsShown = "shown",
) -> bool:
    """Whether a submission's score may stand where others read it beside its author, like a card in a channel."""
    return why_kept_back(accepted_at, frozen_at, names=names, standings=standings) is None


def why_kept_back(
    accepted_at: datetime, frozen_at: datetime | None, *, names: NamesShown, standings: StandingsShown
) -> KeptBack | None:
    """Why it may not: the standings are `hidden`, or `frozen` since before it; or people have other `names`, and a
    score beside the real one would tell whose is whose. None: it may."""
    if not shows_standings(standings):
        return "hidden"
    if not names_people(names):
        return "names"
    until = shown_until(frozen_at)
    return None if until is None or accepted_at <= until else "frozen"


def may_count_for(viewer: Viewer | None, person: int, *, names: NamesShown, standings: StandingsShown) -> bool:
    """Whether they are told how often this person submitted to a board: asked again and again, that tells when, and
    with it whose place is new."""
    host = viewer is not None and has_staff_rights(viewer)
    is_open = names_people(names, host=host) and shows_standings(standings, host=host)
    return is_open or (viewer is not None and viewer.id == person)


def may_see_how_it_failed(viewer: PersonId | None, author: PersonId, *, host: bool = False) -> bool:
    """Whether they are told which verdict a submission got; others learn only whether it passed."""
    return host or viewer == author


def may_see_submission(viewer: Viewer | None, submission: Submitted) -> bool:
    """Whether its code, log, report and artifacts are shown to them."""
    return viewer is not None and viewer.id == submission.person_id and submission.removed_at is None


def is_past(at: datetime | None, now: datetime) -> bool:
    """Whether that moment has come; None never does."""
    return at is not None and at <= now


def may_read_code(
    rule: CodeRule,
    *,
    is_over: bool,
    has_agreed: bool,
    announced_at: datetime | None,
    accepted_at: datetime,
    frozen_at: datetime | None,
) -> bool:
    """Whether a submission that ranks is published with its code, to whoever may see its board.

    The one rule for every outlet of others' code; hosts have calls of their own. Nobody's is while anybody could still
    submit, nor what a freeze hides. `announced_at`: since when the board has its rule; what was submitted before it
    was announced is published only with its author's consent.
    """
    if rule == "never" or not is_over or not may_tell_others(accepted_at, frozen_at):
        return False
    return has_agreed or (rule == "deadline" and announced_at is not None and announced_at <= accepted_at)


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


def shown_samples(rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """A run's raw samples, launch by launch, as the submission's author may see them: without those of hidden cases,
    and of rivals' kernels that a final measured beside it."""
    return [row for row in rows if not is_hidden(row.get("phase")) and row.get("rival") == 0]


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
