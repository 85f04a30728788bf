"""What the staff's forms have in common: where they lead, and what was typed when one is refused."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from fastapi import Request
from fastapi.responses import Response

from kbslurm.api.context import Context
from kbslurm.api.pages.visitors import Visitors
from kbslurm.api.refusals import KIND, public_sentence
from kbslurm.domain import access, contest
from kbslurm.errors import Invalid, KbslurmError, NotFound, Refused
from kbslurm.store.views import Person

Form = Mapping[str, str]
THEN = re.compile(r"/staff(?:/\w[\w.-]*)*\Z", re.ASCII)
# Of what a form has: how it was sent, and what was chosen by the page.
OURS = frozenset({"csrf", "confirmed", "then"})
LONG = frozenset({"text", "scheme", "description", "licence"})
NAMES = {
    "to_all": "To everyone on the board", "gpu": "GPU type", "gpus": "GPU types", "gpu_hours": "GPU-hours",
    "gpu_s": "GPU-seconds per day", "at": "At", "per": "Per", "min_isolation": "Isolation", "top": "How many",
    "at_least": "Per cent in common, at least", "whom": "Whom", "of": "Budget of", "student_id": "Student ID",
    "email": "E-mail", "device": "What for", "service": "For a program", "max": "Per hour",
}  # fmt: skip
# What is chosen, not typed: the choices stay the ones that the form had.
CHOICES: Mapping[str, tuple[str, ...]] = {
    "visibility": ("public", "closed"),
    "names": ("real", "nicknames", "anonymous"),
    "standings": ("shown", "own", "hidden"),
    "rule": access.CODE_RULES,
    "per": ("hour", "day"),
}
TICKED = frozenset({
    "to_all", "again", "finals", "service", "teams", "teams_only", "practice", "publish", "confirm", "private",
    "newcomers",
})  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Field:
    """A field of a form that was refused, with what was in it."""

    name: str
    label: str
    value: str
    long: bool
    ticked: bool
    choices: tuple[str, ...]


def then_of(form: Form, otherwise: str) -> str:
    """Where a form leads afterwards: a page of the staff's, which it names, or the usual one."""
    wanted = form.get("then", "")
    return wanted if THEN.match(wanted) else otherwise


def fields_of(form: Form) -> list[Field]:
    """What was in the form, to be corrected."""
    return [
        Field(
            name=name[: contest.NAME_CAP],
            label=NAMES.get(name) or name.replace("_", " ").capitalize(),
            value=value,
            long=name in LONG,
            ticked=name in TICKED and value == "yes",
            choices=tuple(dict.fromkeys((value, *CHOICES[name]))) if name in CHOICES else (),
        )
        for name, value in form.items()
        if name not in OURS
    ]


def refused(
    context: Context, visitors: Visitors, request: Request, person: Person, form: Form, error: KbslurmError, back: str
) -> Response:
    """The page that says why, and has everything that was typed: nobody types it twice. What isn't about what was
    typed is raised on."""
    if not isinstance(error, (Invalid, NotFound, Refused)) or "text/html" not in request.headers.get("accept", ""):
        raise error
    context.metrics.met(error)
    found = visitors.page(
        request,
        "staff/refused.html",
        person,
        status=error.http_status,
        why=public_sentence(error),
        action=request.url.path,
        back=then_of(form, back),
        then=form.get("then", ""),
        fields=fields_of(form),
    )
    found.headers[KIND] = error.kind
    return found
