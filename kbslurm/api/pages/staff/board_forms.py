"""The forms of a board's page for staff: each does what the command of that name does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import cast

from kbslurm.api.hosting.hosting import Hosting
from kbslurm.domain import access, contest
from kbslurm.domain.lateness import Unit
from kbslurm.errors import Invalid
from kbslurm.flow.rejudge import KEYS

Form = Mapping[str, str]
LEVELS = ("0", "1", "2", "3")


def gpus_of(form: Form) -> list[str]:
    """The GPU types in a form, as `kbslurm board create --gpus` takes them."""
    return [contest.gpu_name(one) for one in form.get("gpus", "").replace(",", " ").split()]


def text_of(form: Form, name: str) -> str:
    """What is in a field of one line."""
    return form.get(name, "").strip()[:100]


def number_of(form: Form, name: str) -> float:
    """The number in a field; 0 if it is empty."""
    text = text_of(form, name) or "0"
    try:
        found = float(text)
    except ValueError:
        found = float("nan")
    if not 0 <= found < 1e6:
        raise Invalid(f"{text!r} isn't a valid number for {name.replace('_', ' ')}")
    return found


def submission_of(form: Form, name: str) -> int:
    """The number of a submission in a field."""
    text = text_of(form, name).removeprefix("#")
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise Invalid(f"{text!r} isn't the number of a submission")
    return int(text)


def chosen_of(form: Form) -> list[str]:
    """Which runs to judge again, as `kbslurm rejudge` takes them."""
    found = {key: text_of(form, key) for key in KEYS}
    return [f"{key}={text.removeprefix('#')}" for key, text in found.items() if text]


def version_of(form: Form) -> int | None:
    """The problem version in a field; None: the live one."""
    text = text_of(form, "version")
    if text and not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise Invalid(f"{text!r} isn't the number of a problem version")
    return int(text) if text else None


def isolation_of(form: Form) -> int | None:
    """The isolation level in a field; None if it is empty."""
    level = text_of(form, "min_isolation")
    if level not in ("", *LEVELS):
        raise Invalid(f"{level!r} isn't an isolation level", hint=f"Choose one of: {', '.join(LEVELS)}.")
    return int(level) if level else None


def _late(work: Hosting, board: str, form: Form) -> None:
    unit = form.get("per", "day")
    if unit not in ("hour", "day"):
        raise Invalid(f"{unit[:40]!r} isn't a unit of the late penalty", hint="Choose hour or day.")
    work.set_late(
        board,
        until=text_of(form, "until") or "none",
        grace=text_of(form, "grace") or "0s",
        percent=number_of(form, "percent"),
        per=cast("Unit", unit),
        slip_days=int(number_of(form, "slip_days")),
    )


def _extend(work: Hosting, board: str, form: Form) -> None:
    whom = text_of(form, "whom")
    if not whom:
        raise Invalid("nobody is named", hint="Name a person, or a section as section:NAME.")
    named = whom if whom.startswith(("section:", "person:")) else f"person:{whom}"
    work.extend(board, named, text_of(form, "until") or None)


def _code(work: Hosting, board: str, form: Form) -> None:
    rule = next((known for known in access.CODE_RULES if known == form.get("rule")), None)
    if rule is None:
        raise Invalid("no rule was chosen", hint=f"Choose one of: {', '.join(access.CODE_RULES)}.")
    work.set_code_rule(board, rule, form.get("licence", ""))


def _freeze(work: Hosting, board: str, form: Form) -> None:
    work.freeze(board, text_of(form, "at") or None)


def _unfreeze(work: Hosting, board: str, form: Form) -> None:
    work.unfreeze(board)


def _finalise(work: Hosting, board: str, form: Form) -> None:
    top = int(number_of(form, "top"))
    again, finals = form.get("again") == "yes", form.get("finals") == "yes"
    work.finalise(board, top=top or None, finals=finals, again=again, note=text_of(form, "note"))


def _unfinalise(work: Hosting, board: str, form: Form) -> None:
    work.unfinalise(board, text_of(form, "note"))


def _shows(work: Hosting, board: str, form: Form) -> None:
    names, standings = contest.names_shown(text_of(form, "names")), contest.standings_shown(text_of(form, "standings"))
    work.edit_board(board, names=names, standings=standings)


def _teams(work: Hosting, board: str, form: Form) -> None:
    together, only = form.get("teams") == "yes", form.get("teams_only") == "yes"
    work.edit_board(board, teams=together, teams_only=only)


def _practice(work: Hosting, board: str, form: Form) -> None:
    work.edit_board(board, practice=form.get("practice") == "yes")


def _reference(work: Hosting, board: str, form: Form) -> None:
    work.edit_board(board, publishes_reference=form.get("publish") == "yes")


def _about(work: Hosting, board: str, form: Form) -> Sequence[str]:
    shown_to = contest.visibility(text_of(form, "visibility"))
    description = form.get("description", "").strip()
    changed = work.edit_board(board, description=description, gpus=gpus_of(form), visibility=shown_to)
    warnings: Sequence[str] = changed["warnings"]
    return warnings


def _deadline(work: Hosting, board: str, form: Form) -> None:
    work.edit_board(board, deadline=text_of(form, "deadline") or "never", zone=text_of(form, "zone") or None)


def _judging(work: Hosting, board: str, form: Form) -> None:
    work.edit_board(board, min_isolation=isolation_of(form), cold=form.get("cold") == "yes")


def _course(work: Hosting, board: str, form: Form) -> None:
    work.edit_board(board, course=text_of(form, "course"))


def _close(work: Hosting, board: str, form: Form) -> None:
    work.close_board(board)


def _reopen(work: Hosting, board: str, form: Form) -> None:
    work.edit_board(board, reopen=True)


# What an act returns are warnings: it was done all the same.
ACTS: Mapping[str, Callable[[Hosting, str, Form], Sequence[str] | None]] = {
    "about": _about,
    "deadline": _deadline,
    "course": _course,
    "judging": _judging,
    "close": _close,
    "reopen": _reopen,
    "late": _late,
    "extend": _extend,
    "code": _code,
    "freeze": _freeze,
    "unfreeze": _unfreeze,
    "shows": _shows,
    "teams": _teams,
    "practice": _practice,
    "reference": _reference,
    "finalise": _finalise,
    "unfinalise": _unfinalise,
}
