"""`kbslurm budget …`: how many GPU-hours at home a course, its sections and its people may use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kbslurm.cli.arguments import Json
from kbslurm.cli.host.connect import host
from kbslurm.cli.output import printing
from kbslurm.domain import gpu_budgets
from kbslurm.errors import EXIT_OK, Invalid, NoHost, NotFound, Unauthenticated

if TYPE_CHECKING:
    from kbslurm.cli.host.connect import Hosts
    from kbslurm.domain.gpu_budgets import Each

Course = Annotated[str, typer.Argument(metavar="COURSE", help="The course.", show_default=False)]
Section = Annotated[str | None, typer.Option(help="Of this section.", show_default=False)]
Person = Annotated[
    str | None, typer.Option(help="Of this person: name, number, e-mail or student ID.", show_default=False)
]
EachSection = Annotated[bool, typer.Option("--each-section", help="Of each section that has none of its own.")]
EachPerson = Annotated[bool, typer.Option("--each-person", help="Of each person who has none of their own.")]
Gpu = Annotated[str | None, typer.Option(help="Only on this GPU type.", show_default="all together")]


def show_(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="COURSE|BOARD", help="Courses, or boards of theirs (default: every course that has budgets)."
        ),
    ] = None,
    as_json: Json = False,
) -> int:
    """Show courses' budgets in GPU-hours at home: what is used, what open runs may use, and what is left."""
    with host() as hosts:
        found = [hosts.budgets(course) for course in _courses(hosts, names or [])]
    if not names:
        found = [one for one in found if one["budgets"]]
    if as_json:
        printing.as_json({"courses": found})
        return EXIT_OK
    for one in found:
        _say(one)
    if not found:
        printing.say("no course has a budget; set one: kbslurm budget set COURSE --gpu-hours 100")
    return EXIT_OK


def set_(
    course: Course,
    gpu_hours: Annotated[float, typer.Option("--gpu-hours", help="How many GPU-hours.", show_default=False)],
    section: Section = None,
    person: Person = None,
    each_section: EachSection = False,
    each_person: EachPerson = False,
    gpu: Gpu = None,
    begins: Annotated[
        str | None,
        typer.Option(
            "--from", help="Count from then on: 2026-10-01 or with a time, in UTC.", show_default="from the beginning"
        ),
    ] = None,
    until: Annotated[
        str | None, typer.Option(help="It ends then: 2026-12-24 or with a time, in UTC.", show_default="no end")
    ] = None,
    as_json: Json = False,
) -> int:
    """Set how many GPU-hours at home a course may use, or a section, a person, or each of them. What was used before
    counts, what is queued or runs goes on, and staff aren't held up."""
    each = _each(each_section, each_person)
    gpu_budgets.hours(gpu_hours)
    with host() as hosts:
        found = hosts.set_budget(
            course, gpu_hours, section=section, person=person, each=each, gpu=gpu, begins=begins, until=until
        )
    return _printed(found, as_json)


def clear(
    course: Course,
    section: Section = None,
    person: Person = None,
    each_section: EachSection = False,
    each_person: EachPerson = False,
    gpu: Gpu = None,
    as_json: Json = False,
) -> int:
    """Take a budget away: that of a course, or of a section, a person, or each of them."""
    each = _each(each_section, each_person)
    with host() as hosts:
        found = hosts.set_budget(course, None, section=section, person=person, each=each, gpu=gpu)
    return _printed(found, as_json)


def _each(sections: bool, people: bool) -> Each | None:
    if sections and people:
        raise Invalid("a budget is of each section or of each person", hint="Set one, then the other.")
    return "section" if sections else "person" if people else None


def _courses(hosts: Hosts, names: Sequence[str]) -> list[str]:
    """The courses that are meant. Whoever isn't a host knows only the names of those where they help."""
    try:
        known = hosts.courses()
    except Unauthenticated as error:
        if error.kind != NoHost.__name__ or not names:
            raise
        known = []
    of_board = {str(board).lower(): str(one["course"]) for one in known for board in one["boards"]}
    of_course = {str(one["course"]) for one in known}
    if not names:
        return sorted(of_course)
    found: dict[str, None] = {}
    for name in names:
        wanted = name.strip().lower()
        if known and wanted not in of_course and wanted not in of_board:
            raise NotFound("course, or board of one,", name, known=sorted(of_course | set(of_board)))
        found[wanted if wanted in of_course else of_board.get(wanted, wanted)] = None
    return list(found)


def _printed(found: Mapping[str, Any], as_json: bool) -> int:
    if as_json:
        printing.as_json(found)
    else:
        _say(found)
    return EXIT_OK


def _say(found: Mapping[str, Any]) -> None:
    if not found["budgets"]:
        printing.say(f"course {found['course']} has no budget in GPU-hours")
    for one in found["budgets"]:
        now = "" if one["holds_now"] else " (it doesn't hold now)"
        printing.say(f"{printing.escape(one['in_words'])}{now}")
        rows = [
            (
                printing.escape(held["name"]),
                f"{held['used_gpu_hours']:.2f}",
                f"{held['open_gpu_hours']:.2f}",
                f"{held['left_gpu_hours']:.2f}",
                f"{held['percent']:.0f} %",
                f"{held['cost']:.2f}",
                "" if held["state"] == "ok" else held["state"],
            )
            for held in one["held"]
        ]
        if rows:
            currency = printing.escape(found["currency"])
            printing.table((one["scope"], "used", "open at most", "left", "used of it", currency, ""), rows)
