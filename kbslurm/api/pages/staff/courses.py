"""The staff's pages of courses: rosters imported, changed and exported, invitations made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request
from fastapi.responses import RedirectResponse, Response
from starlette.concurrency import run_in_threadpool

from kbslurm.api import upload
from kbslurm.api.context import Context
from kbslurm.api.host_lookup import at_work
from kbslurm.api.hosting.hosting import Hosting
from kbslurm.api.pages.page_files import Table, page_and_files
from kbslurm.api.pages.visitors import Visitors, form_of, to_login
from kbslurm.domain import access, contest, roster, spreadsheet
from kbslurm.errors import Invalid, KbslurmError, NotFound
from kbslurm.store.views import Person

Course = Annotated[str, Path(max_length=contest.NAME_CAP)]
COURSES = ("course", "students", "helpers", "boards")
BUDGETS = (
    "budget", "name", "used_gpu_hours", "open_gpu_hours", "left_gpu_hours", "percent", "cost", "state",
)  # fmt: skip
INVITED = ("name", "email", "section", "team", "person", "link", "code", "expires_at")
# A newcomer's fields, by the headings that a roster's file has for them.
NEWCOMER = {
    "name": "name", "email": "email", "student_id": "student id", "section": "section", "team": "team", "role": "role",
}  # fmt: skip
KNOWN_BY = ("name", "email", "student id")
ACTS = ("add", "set", "remove", "invite", "role", "budget")


def course_pages(router: APIRouter, context: Context, visitors: Visitors) -> None:
    def work(person: Person) -> Hosting:
        return at_work(context, person.name, person)

    @page_and_files(router, "/staff/courses")
    def courses(request: Request) -> Response:
        """The courses, and a form for the first roster of another one."""
        person = visitors.who(request)
        if person is None:
            return to_login(request)
        visitors.staff(person)
        found = work(person).courses()
        files = {"courses": Table(columns=COURSES, rows=found)}
        return visitors.page(request, "staff/courses.html", person, as_files=files, courses=found)

    @page_and_files(router, "/staff/courses/{course}", at="/budgets")
    def course(course: Course, request: Request) -> Response:
        """A course's people, and what can be done with them."""
        person = visitors.who(request)
        if person is None:
            return to_login(request)
        return shown(request, person, course)

    @router.get("/staff/courses/{course}/roster.csv")
    def exported(course: Course, request: Request) -> Response:
        """The roster as `kbslurm roster export` writes it."""
        person = visitors.who(request)
        if person is None:
            return to_login(request)
        visitors.staff(person)
        found = work(person).roster(course)
        return _as_file(roster.as_csv(found["people"]), f"{found['course']}-roster.csv")

    def shown(request: Request, person: Person, course: str, status: int = 200, **told: Any) -> Response:
        visitors.staff(person)
        host = work(person)
        found = host.roster(course)
        boards = next(one["boards"] for one in host.courses() if one["course"] == found["course"])
        roles = [host.board_roles(board) for board in boards]
        more = {"why": "", "told": None, **told}
        budgets = host.budgets(found["course"])
        rows = [{"budget": one["in_words"], **row} for one in budgets["budgets"] for row in one["held"]]
        return visitors.page(
            request,
            "staff/course.html",
            person,
            as_files={"budgets": Table(columns=BUDGETS, rows=rows, at="/budgets")},
            status=status,
            course=found["course"],
            people=found["people"],
            boards=roles,
            budgets=budgets,
            given_roles=tuple(dict.fromkeys(roster.ROLES.values())),
            course_roles=("student", *access.BOARD_ROLES),
            board_roles=access.BOARD_ROLES,
            **more,
        )

    @router.post("/staff/courses/{course}/import")
    async def import_(course: Course, request: Request) -> Response:
        """Import a CSV, or show what that would change."""
        form = await upload.read_form(request)

        def taken() -> Response:
            person = visitors.staff(visitors.sender(request, form.fields))
            named = form.fields.get("name", "").strip() or course
            preview, remove = form.fields.get("preview") == "yes", form.fields.get("remove") == "yes"
            try:
                if len(form.files) != 1:
                    raise Invalid("no file was chosen", hint="Choose one CSV.")
                (data,) = form.files.values()
                told = work(person).import_roster(named, data, preview=preview, remove=remove)
            except KbslurmError as error:
                return imported(request, person, named, why=f"{error.message}\n{error.hint or ''}".splitlines())
            return imported(request, person, told["course"], told=told)

        return await run_in_threadpool(taken)

    def imported(
        request: Request, person: Person, course: str, *, why: Sequence[str] = (), told: Mapping[str, Any] | None = None
    ) -> Response:
        """What came of it, or each reason why nothing did."""
        lines = [line.strip() for line in why if line.strip()]
        status = 400 if lines else 200
        return visitors.page(request, "staff/imported.html", person, status=status, course=course, why=lines, told=told)

    def added(request: Request, person: Person, course: str, form: Mapping[str, str]) -> Response:
        """Put one person on the roster, as a file with their line alone would."""
        host = work(person)
        host.roster(course)  # none begins here
        row = {heading: form.get(name, "").strip() for name, heading in NEWCOMER.items()}
        given = [heading for heading in row if row[heading] or heading in KNOWN_BY]
        try:
            told = host.import_roster(course, spreadsheet.as_csv(given, [row]).encode("utf-8", "replace"))
        except Invalid as error:
            said, *why = [line.strip().removeprefix("line 2: ") for line in error.message.splitlines()]
            return imported(request, person, course, why=["Nobody was added.", *why] if why else [said])
        return imported(request, person, told["course"], told=told)

    @router.post("/staff/courses/{course}/{act}")
    async def act(course: Course, act: str, request: Request) -> Response:
        """Add somebody, change their place, take them off, invite, give a role on a board, or set a budget."""
        form = await form_of(request)

        def done() -> Response:
            person = visitors.staff(visitors.sender(request, form))
            if act not in ACTS:
                raise NotFound("act", act, known=list(ACTS))
            if act == "add":
                return added(request, person, course, form)
            if act == "invite":
                return _invited(work(person), course, form)
            _do(work(person), course, act, form)
            return RedirectResponse(f"/staff/courses/{course}", status_code=303)

        return await run_in_threadpool(done)


def _do(host: Hosting, course: str, act: str, form: Mapping[str, str]) -> None:
    whom = form.get("person", "").strip()
    if act == "remove":
        host.drop_from_roster(course, whom)
    elif act == "budget":
        _set_budget(host, course, form)
    elif act == "role":
        wanted = form.get("role", "")
        role = next((one for one in access.BOARD_ROLES if one == wanted), None)
        host.set_board_role(form.get("board", ""), whom, role)
    else:
        section, team, role_on = form.get("section"), form.get("team"), form.get("role", "")
        host.place_on_roster(
            course,
            whom,
            section=None if section is None else section.strip(),
            team=None if team is None else team.strip(),
            role=roster.course_role(role_on) if role_on else None,
        )


def _set_budget(host: Hosting, course: str, form: Mapping[str, str]) -> None:
    """No GPU-hours take the budget away."""
    text, of = (form.get(name, "").strip() for name in ("gpu_hours", "of"))
    named = form.get("whom", "").strip()
    try:
        wanted = float(text) if text else None
    except ValueError:
        raise Invalid(f"{contest.shown(text)} isn't a number of GPU-hours", hint="Write 100 or 0.5.") from None
    if of not in ("", "section", "person"):
        raise NotFound("kind of budget", of, known=["section", "person"])
    if of == "" and named:
        raise Invalid("a budget of the course is nobody's in particular", hint="Choose a section or a person.")
    host.set_budget(
        course,
        wanted,
        section=named if of == "section" and named else None,
        person=named if of == "person" and named else None,
        each="section" if of == "section" and not named else "person" if of == "person" and not named else None,
        gpu=form.get("gpu", "").strip() or None,
        begins=form.get("begins", "").strip() or None,
        until=form.get("until", "").strip() or None,
    )


def _invited(host: Hosting, course: str, form: Mapping[str, str]) -> Response:
    """The links, as a file: they are told only once."""
    whom = form.get("person", "").strip()
    made = host.invite_roster(course, [whom] if whom else (), again=form.get("again") == "yes")
    rows = [{**one, "expires_at": made["expires_at"]} for one in made["invitations"]]
    return _as_file(spreadsheet.as_csv(INVITED, rows), f"{made['course']}-invitations.csv")


def _as_file(text: str, name: str) -> Response:
    return Response(
        text,
        media_type="text/csv; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="{name}"', "Cache-Control": "no-store"},
    )
