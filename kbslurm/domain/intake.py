"""Who may submit what where: the rules of the walk's first step. Pure; the facts come from the store in one read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from kbslurm.domain import contest, lateness
from kbslurm.domain.placement import PlaceRole
from kbslurm.domain.problem import Problem
from kbslurm.domain.run import PersonId
from kbslurm.domain.source import Source, check_language
from kbslurm.errors import DeadlinePassed, Invalid, NotAccepting, NotFound, Refused
from kbslurm_eval.shared.wire import Mode

KEY_CAP = 200


@dataclass(frozen=True, kw_only=True)
class Basis:
    """Everything that the decision depends on, as one string: the decision is valid as long as that is unchanged.

    Includes the person's last open run, which determines the next one's place in the queue.
    """

    seen: str
    fair_at: datetime | None
    cost_s: float


@dataclass(frozen=True, kw_only=True)
class Admission:
    """What `accept` must know about a person, a board and the service. `gpus` are the board's; `closed`: closed by a
    host; `teamless`: only teams may, and the person is in none;
    `practice`: it goes on after the end.

    There is no `basis` if something has to be counted, which must be decided inside the transaction.
    """

    person_id: PersonId
    person: str
    board_id: int
    board: str
    gpus: tuple[str, ...]
    problem_version_id: int
    problem: Problem
    by_staff: bool = False
    banned: str | None = None
    accepting: bool = True
    closed: bool = False
    private: bool = False
    teamless: bool = False
    practice: bool = False
    deadline_at: datetime | None = None
    late_until: datetime | None = None
    zone: str = "UTC"
    basis: Basis | None = None


@dataclass(frozen=True, kw_only=True)
class ServiceToken:
    """A token for a person's programs. Its submissions never rank, wait behind everyone's runs, and use a quota of
    their own, in GPU-seconds per day; None: no limit."""

    id: int
    gpu_s_per_day: float | None = None


@dataclass(frozen=True, kw_only=True)
class Offer:
    """What a place offers people who choose where their test run goes: its GPU types, and whose runs it accepts."""

    name: str
    gpus: tuple[str, ...]
    role: PlaceRole = "home"
    staff_only: bool = False

    def is_for(self, *, staff: bool) -> bool:
        """Whether they may choose it. Places other than home cost money, so competitors can't choose them."""
        return staff or (self.role == "home" and not self.staff_only)


def check_may_submit(admission: Admission, now: datetime) -> None:
    """Refuse people who may not submit here now. Staff may even when submissions are paused or the board is closed."""
    if admission.banned is not None:
        raise Refused(
            f"{admission.person} may not submit: {admission.banned or 'banned by the hosts'}", hint="Ask a host."
        )
    if admission.by_staff:
        return
    if not admission.accepting:
        raise NotAccepting("submissions are paused", hint="Nothing was stored. Try again later, or ask a host when.")
    if admission.private:
        raise Refused(
            f"board {admission.board} is private, and you weren't invited",
            hint="Ask a host for a code, then: popcorn join CODE",
        )
    if admission.teamless:
        raise Refused(
            f"board {admission.board} is for teams, and you are in none", hint="Ask a host to put you into a team."
        )
    if admission.closed:
        raise Refused(f"board {admission.board} is closed", hint="Pick another board.")
    last_at = lateness.accepted_until(admission.deadline_at, admission.late_until)
    if last_at is not None and contest.closed(last_at, now) and not admission.practice:
        local = last_at.astimezone(contest.zone(admission.zone))
        raise DeadlinePassed(admission.board, closed_at=local, zone=admission.zone)


def is_practice(admission: Admission, now: datetime) -> bool:
    """Whether what this person submits now comes after the end, and counts nowhere."""
    last_at = lateness.accepted_until(admission.deadline_at, admission.late_until)
    return admission.practice and contest.closed(last_at, now)


def check_mode(admission: Admission, mode: Mode, source: Source) -> None:
    """Refuse a mode or a language that the problem doesn't have."""
    if mode not in admission.problem.modes:
        raise Invalid(
            f"board {admission.board} has no {mode} mode", hint=f"It has: {', '.join(admission.problem.modes)}."
        )
    check_language(source, admission.problem.lang)


def check_service(mode: Mode) -> None:
    """Refuse a leaderboard submission of a program's: it would stand among people's."""
    if mode == "leaderboard":
        raise Refused(
            "a service token can't submit to a leaderboard",
            hint="Use mode test, benchmark or profile; what should rank is submitted with your own token.",
        )


def checked_key(key: str) -> str:
    """A key by which a submission is found again, or Invalid."""
    if not 1 <= len(key) <= KEY_CAP or not key.isascii() or not key.isprintable():
        raise Invalid(
            f"the idempotency key must be 1 to {KEY_CAP} printable ASCII characters", hint="A UUID or a digest will do."
        )
    return key


def chosen_benchmark(problem: Problem, mode: Mode, asked: int) -> int:
    """The only benchmark to profile, if the problem has it. They count from 0, as in the names of a profile's files."""
    if mode != "profile":
        what = f"mode {mode} can't be limited to one benchmark"
        raise Invalid(what, hint="Choose one benchmark with mode profile only.")
    count = len(problem.benchmarks)
    if not 0 <= asked < count:
        which = "only benchmark 0" if count == 1 else f"benchmarks 0 to {count - 1}"
        raise Invalid(f"{problem.name} has no benchmark {asked}", hint=f"It has {which}.")
    return asked


def chosen_gpus(admission: Admission, asked: Sequence[str]) -> tuple[str, ...]:
    """The requested GPU types of the board, each once, in the requested order; all of the board's if none are
    requested."""
    if not admission.gpus:
        raise Refused(f"board {admission.board} has no GPU type", hint="A host has to add one.")
    known = [contest.known_gpu(name, admission.gpus) for name in asked] or list(admission.gpus)
    return tuple(dict.fromkeys(known))


def chosen_place(admission: Admission, mode: Mode, gpus: Sequence[str], asked: str, offers: Sequence[Offer]) -> str:
    """The place requested by name, if this submission may be pinned there."""
    if mode == "leaderboard":
        raise Invalid(
            "a leaderboard submission can't choose its place", hint="Use mode test, benchmark or profile there."
        )
    mine = [offer for offer in offers if offer.is_for(staff=admission.by_staff)]
    found = next((offer for offer in offers if offer.name.lower() == asked.strip().lower()), None)
    if found is None:
        raise NotFound("place", asked, known=[offer.name for offer in mine])
    if found not in mine:
        raise Refused(
            f"only hosts can choose {found.name}", hint="Leave it out: the hosts' rules decide which runs go there."
        )
    for gpu in gpus:
        if gpu not in found.gpus:
            having = [offer.name for offer in mine if gpu in offer.gpus]
            hint = f"Places with {gpu}: {', '.join(having)}." if having else f"No place that you may choose has {gpu}."
            raise Invalid(f"{found.name} has no {gpu}", hint=hint)
    return found.name
