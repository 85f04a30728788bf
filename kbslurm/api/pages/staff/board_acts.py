"""The forms of a board's further pages for staff: rejudges, finals, invitations, limits, roles, and its end. Each does
what the command of that name does; before what can't be undone it asks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import cast

from kbslurm.api.hosting.hosting import Hosting
from kbslurm.api.pages.rendering import isolated
from kbslurm.api.pages.staff.acts import Question, Unchanged
from kbslurm.api.pages.staff.board_forms import chosen_of, number_of, text_of, version_of
from kbslurm.domain import access, policy
from kbslurm.domain.amounts import counted
from kbslurm.errors import Invalid, NotFound

Form = Mapping[str, str]


def _rejudge(work: Hosting, board: str, form: Form) -> None:
    work.rejudge_preview(board, chosen_of(form), version_of(form))


def _rejudge_apply(work: Hosting, board: str, form: Form) -> None:
    _check_the_one(work, board, form)
    work.rejudge_apply(board)


def _rejudge_cancel(work: Hosting, board: str, form: Form) -> None:
    _check_the_one(work, board, form)
    work.rejudge_cancel(board)


def _check_the_one(work: Hosting, board: str, form: Form) -> None:
    """That it is the rejudge that the page showed: somebody else may have decided on that one, and ordered another."""
    known, meant = work.rejudge_open(board), text_of(form, "rejudging")
    if known is None:
        raise Unchanged(f"No rejudge of {board} is open any more.")
    if meant and meant != str(known["rejudging"]):
        raise Unchanged(f"Another rejudge of {board} is open now.")


def _applying(work: Hosting, board: str, form: Form) -> Question:
    _check_the_one(work, board, form)
    known = work.rejudge_open(board)
    assert known is not None
    moved = sum(len(one["moves"]) for one in known["moves"])
    version = "" if known["version"] == known["live"] else f" Version {known['version']} of the problem becomes live."
    return Question(
        heading=f"Make the new verdicts of {board} count?",
        lines=(
            f"{counted(known['changed'], 'run')} would get another verdict.",
            f"{counted(moved, 'person')} would move, or get another score.{version}".replace("persons", "people"),
            "They all count together from then on; the old verdicts are kept, but there is no way back to them.",
        ),
        yes="Make them count",
        form={"rejudging": str(known["rejudging"])},
    )


def _discarding(work: Hosting, board: str, form: Form) -> Question:
    _check_the_one(work, board, form)
    known = work.rejudge_open(board)
    assert known is not None
    return Question(
        heading=f"Discard the rejudge of {board}?",
        lines=(
            f"Its verdicts are discarded, and {counted(known['open'], 'run')} that haven't ended are cancelled.",
            f"{known['spent_gpu_s']:.0f} GPU-seconds were spent on it.",
        ),
        yes="Discard it",
        form={"rejudging": str(known["rejudging"])},
    )


def _version(work: Hosting, board: str, form: Form) -> None:
    work.edit_board(board, version=_other_version(work, board, form))


def _other_version(work: Hosting, board: str, form: Form) -> int:
    version = version_of(form)
    if version is None:
        raise Invalid("no version was chosen", hint="Choose one of the problem's.")
    if version == work.held(board).problem_version_id:
        raise Unchanged(f"Version {version} is the live one of {board} already.")
    return version


def _versioning(work: Hosting, board: str, form: Form) -> Question:
    version, held = _other_version(work, board, form), work.held(board)
    return Question(
        heading=f"Make version {version} live on {board}?",
        lines=(
            f"It is judged by version {held.problem_version_id} of {held.problem_name} now.",
            f"From then on, only scores by version {version} are in its standings.",
            "Nobody's submissions are judged again by this: until people submit anew, its standings may be empty.",
            "A rejudge with that version judges them first, and makes it live when it is applied.",
        ),
        yes="Make it live",
        form={"version": str(version)},
    )


def _final(work: Hosting, board: str, form: Form) -> None:
    gpu, top = text_of(form, "gpu"), int(number_of(form, "top"))
    if not any(gpu.lower() == known.lower() for known in work.held(board).gpus):
        raise NotFound(f"GPU type of board {board}", gpu, known=list(work.held(board).gpus))
    if work.store.finals.open(board, gpu) is not None:
        raise Unchanged(f"A final of {board} on {gpu} is open already.")
    work.final(board, gpu, top or None)


def _final_apply(work: Hosting, board: str, form: Form) -> None:
    work.final_apply(board, _open_final(work, board, form))


def _final_forget(work: Hosting, board: str, form: Form) -> None:
    work.final_forget(board, _open_final(work, board, form))


def _open_final(work: Hosting, board: str, form: Form) -> str:
    gpu = text_of(form, "gpu")
    if work.store.finals.open(board, gpu) is None:
        raise Unchanged(f"No final of {board} on {gpu} is open any more.")
    return gpu


def _settling(work: Hosting, board: str, form: Form) -> Question:
    gpu = _open_final(work, board, form)
    return Question(
        heading=f"Make the final on {gpu} count?",
        lines=(f"Its scores replace those of everybody who took part, on {board}. This can't be undone.",),
        yes="Make it count",
        form={"gpu": gpu},
    )


def _forgetting(work: Hosting, board: str, form: Form) -> Question:
    gpu = _open_final(work, board, form)
    return Question(
        heading=f"Discard the final on {gpu}?",
        lines=("What it measured is discarded, and its job is killed if it is running. Another can be ordered.",),
        yes="Discard it",
        form={"gpu": gpu},
    )


def _uninvite(work: Hosting, board: str, form: Form) -> None:
    work.revoke_invite(text_of(form, "code"))


def _uninviting(work: Hosting, board: str, form: Form) -> Question:
    code = text_of(form, "code")
    known = next((one for one in work.invites(board) if one["code"] == code), None)
    if known is None:
        raise Unchanged("This invitation was revoked already.")
    who = known["user_name"]
    lines = (
        f"{isolated(who)} claimed it and loses access to {board}." if who else "Nobody has claimed it; nobody can then."
    )
    return Question(
        heading="Revoke this invitation?",
        lines=(lines, "A revoked invitation doesn't come back; make another."),
        yes="Revoke it",
        form={"code": code},
    )


def _rate(work: Hosting, board: str, form: Form) -> None:
    text = text_of(form, "max")
    if text and not (text.isascii() and text.isdecimal()):
        raise Invalid(f"{text!r} isn't a number of submissions", hint="Leave it empty for no limit.")
    work.set_rate_limit(board, policy.category_named(text_of(form, "category")), int(text) if text else None)


def _quota(work: Hosting, board: str, form: Form) -> None:
    text = text_of(form, "gpu_s")
    try:
        wanted = float(text) if text else None
    except ValueError:
        wanted = math.nan
    if wanted is not None and not math.isfinite(wanted):
        raise Invalid(f"{text!r} isn't a number of GPU-seconds", hint="Leave it empty for no limit.")
    work.set_quota(board, wanted)


def _role(work: Hosting, board: str, form: Form) -> None:
    whom, role = text_of(form, "person"), text_of(form, "role")
    if not whom:
        raise Invalid("nobody is named", hint="Name a person.")
    if role not in (*access.BOARD_ROLES, "none"):
        raise Invalid(
            f"{role!r} isn't a role on a board", hint=f"Choose one of: {', '.join(access.BOARD_ROLES)}, none."
        )
    given = None if role == "none" else cast("access.BoardRole", role)
    work.set_board_role(board, whom, given)


def _delete(work: Hosting, board: str, form: Form) -> None:
    work.delete_board(board, force=True, only=int(number_of(form, "only")))


def _deleting(work: Hosting, board: str, form: Form) -> Question:
    held = work.held(board)
    return Question(
        heading=f"Delete the board {board}?",
        lines=(
            f"It has {counted(held.submissions or 0, 'submission')}; its pages and standings disappear for everybody.",
            "Its data stays in the database, but no command brings the board back. Its name can be used again.",
            "Download its archive first if you may want it.",
        ),
        yes="Delete it",
        form={"only": str(held.id)},
    )


WORK: Mapping[str, Callable[[Hosting, str, Form], None]] = {
    "rejudge": _rejudge,
    "rejudge-apply": _rejudge_apply,
    "rejudge-cancel": _rejudge_cancel,
    "version": _version,
    "final": _final,
    "final-apply": _final_apply,
    "final-forget": _final_forget,
    "uninvite": _uninvite,
    "rate": _rate,
    "quota": _quota,
    "role": _role,
    "delete": _delete,
}
ASKED: Mapping[str, Callable[[Hosting, str, Form], Question]] = {
    "rejudge-apply": _applying,
    "rejudge-cancel": _discarding,
    "version": _versioning,
    "final-apply": _settling,
    "final-forget": _forgetting,
    "uninvite": _uninviting,
    "delete": _deleting,
}
# The page that has the form, below the board's own.
PAGES = {
    "rejudge": "rejudge", "rejudge-apply": "rejudge", "rejudge-cancel": "rejudge", "final": "finals",
    "final-apply": "finals", "final-forget": "finals", "uninvite": "entry", "rate": "entry", "quota": "entry",
    "role": "entry", "invite": "entry",
}  # fmt: skip
