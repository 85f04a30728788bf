"""A small course as its lecturer lives it in a browser: by the staff's pages alone, from the roster to the grades.

What students do, and what the judge says, comes from the store; everything that a host does is clicked and typed.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from kbslurm.domain.run import PersonId
from kbslurm.flow.queue import claim, free_slots
from kbslurm.flow.score import score
from kbslurm.flow.submit import accept
from kbslurm.problems import loading
from tests.command_line import CommandLine
from tests.flow.chromium import Chromium, started, until
from tests.flow.puppet import Puppet, sealed_report
from tests.flow.stage import HandClock
from tests.flow.test_course_story import source
from tests.popcorn.served_api import TRANSPOSE, ServedApi, served
from tests.services import CHROMIUM, needs

pytestmark = needs(CHROMIUM)
NAMES = ("Ada Lovelace", "Emmy Noether", "Grace Hopper", "Joan Clarke", "Mary Shaw", "Rosa Peters")
STAFF = "/staff/board/transpose"
SCHEME = 'by = "time"\\ngpu = "H100"\\npassed = 40\\n\\n[[steps]]\\nat_most = "300 ms"\\npoints = 100\\n'
COPIED, BY = 20, 41  # whose sources in the other story are one kernel under two kinds of names


@dataclass
class Course:
    """The service, the browser in which the lecturer works, and where her files are."""

    api: ServedApi
    chromium: Chromium
    home: Path
    people: dict[str, PersonId] = field(default_factory=dict)

    @property
    def clock(self) -> HandClock:
        assert isinstance(self.api.context.clock, HandClock)
        return self.api.context.clock

    def goes_to(self, path: str) -> None:
        self.chromium.open(self.api.url + path)

    def reads(self, *words: str) -> None:
        """These words are on the page."""
        text = str(self.chromium.ask("return document.body.innerText"))
        for one in words:
            assert one in text, (one, text)

    def sends(self, form: str, title: str | None = None, /, **fields: str) -> None:
        """She fills in the fields of a form by their labels' ids, and clicks its button; then there is another page."""
        before = self.chromium.ask("return performance.timeOrigin")
        for css, text in fields.items():
            element = f"#{css.replace('_', '-')}"
            if self.chromium.ask(f"return document.querySelector('{element}').tagName") == "SELECT":
                self.chooses(element, text)
            elif text in ("tick", "untick"):
                if self.chromium.ask(f"return document.querySelector('{element}').checked") is (text == "untick"):
                    self.chromium.click(element)
            else:
                self.chromium.ask(f"document.querySelector('{element}').value = ''")
                self.chromium.write(element, text)
        self.chromium.click(form)
        until(lambda: self.chromium.ask("return performance.timeOrigin") != before, f"{form} leads to a page")
        if title is not None:
            assert self.chromium.title() == f"{title} – kbslurm"

    def chooses(self, select: str, value: str) -> None:
        """One of a list."""
        script = f"return [...document.querySelector('{select}').options].findIndex(one => one.value === '{value}')"
        self.chromium.click(f"{select} option:nth-child({self.chromium.ask(script) + 1})")

    def act(self, name: str, title: str | None = "transpose for staff", /, **fields: str) -> None:
        """The same with a form of the board's page."""
        self.sends(f"form[action='{STAFF}/{name}'] button", title, **fields)

    def downloads(self, form: str, name: str) -> Path:
        """The button gives a file."""
        self.chromium.click(form)
        file = self.home / name
        until(lambda: file.is_file() and not list(self.home.glob("*.crdownload")), f"{name} is downloaded")
        return file

    def hands_in(self, name: str, score_s: float | None, who: int = 0) -> int:
        """A student's submission, judged at once."""
        store = self.api.store
        self.clock.go(600)
        code = source(who or NAMES.index(name))
        receipt = accept(
            store.intake, self.people[name], "transpose", "k.py", code, "leaderboard", ["H100"], self.api.now
        )
        self.judged(**({"verdict": "wrong", "score_s": None} if score_s is None else {"score_s": score_s}))
        return receipt.submission_id

    def judged(self, **report: Any) -> None:
        store, slots = self.api.store, {"puppet": Puppet(slots={"H100": 1}).capacity()}
        attempt = claim(store.queue, free_slots(slots, store.attempts.open()), self.api.now)
        assert attempt is not None
        if (took := report["score_s"]) is not None:
            report["interval_s"] = [took * 0.999, took * 1.001]
        score(store, attempt, sealed_report(store.attempts.work(attempt.id), **report), self.api.now)

    def standings(self) -> list[str]:
        """The names that the staff's page ranks, best first."""
        self.goes_to(STAFF)
        return [
            str(one)
            for one in self.chromium.ask(
                "return [...document.querySelector('main table').querySelectorAll('tbody th[scope=row]')]"
                ".map(one => one.innerText)"
            )
        ]


@pytest.fixture
def course(database_url: str, tmp_path: Path) -> Iterator[Course]:
    (home := tmp_path / "home").mkdir()
    (profile := tmp_path / "chromium").mkdir()
    with (
        served(database_url, tmp_path / "service", clock=HandClock(), boards=False) as api,
        started(profile) as chromium,
    ):
        api.store.problems.add(loading.load(TRANSPOSE), by="root", now=api.now)
        told = {"behavior": "allow", "downloadPath": str(home)}
        chromium.call("POST", "/goog/cdp/execute", cmd="Browser.setDownloadBehavior", params=told)
        yield Course(api=api, chromium=chromium, home=home)


def test_a_course_by_the_staffs_pages_alone(course: Course) -> None:
    sign_in(course)
    enrol(course)
    set_up(course)
    compete(course)
    look_for_copies(course)
    freeze(course)
    appeal(course)
    reveal(course)
    grade(course)
    keep(course)
    leave(course)
    refused = "Failed to load resource"  # the three forms that were refused
    assert [one for one in course.chromium.complaints() if refused not in one] == [], "no page breaks its own policy"


def sign_in(course: Course) -> None:
    lena = course.api.store.people.ensure("lena", "owner")
    course.goes_to("/login?next=/staff")
    course.chromium.write("#token", course.api.store.tokens.issue(lena.id, now=course.api.now))
    course.sends("form[action='/login'] button", "Staff")


def enrol(course: Course) -> None:
    """The roster's preview changes nothing; then there are five people in two sections, and one who came later."""
    lines = [
        "name,email,student id,section,team",
        *(f"{name},s{n}@example.edu,{4000 + n},{'AB'[n % 2]}," for n, name in enumerate(NAMES[:5])),
    ]
    file = course.home / "roster.csv"
    file.write_text("\n".join(lines) + "\n")
    course.chromium.click("a[href='/staff/courses']")
    course.reads("There is no course yet.")
    for button in (1, 2):
        course.goes_to("/staff/courses")
        course.chromium.write("#name", "gpu-2026")
        course.chromium.write("#file", str(file))
        course.sends(f"form[enctype] button:nth-of-type({button})", "Roster of gpu-2026")
        if button == 1:
            course.reads("Nothing was changed. This import would add 5, change 0 and remove 0")
            assert course.api.store.roster.courses() == []
    course.reads("5 added, 0 changed, 0 removed", "Ada Lovelace, section A", "Emmy Noether, section B")
    course.chromium.click("a[href='/staff/courses/gpu-2026']")
    course.reads("5 on the roster", "s3@example.edu", "4003")
    course.sends(
        "form[action$='/add'] button",
        "Roster of gpu-2026",
        add_name="Rosa Peters",
        add_email="s5@example.edu",
        add_id="4005",
        add_section="B",
    )
    course.reads("1 added, 0 changed, 0 removed", "Rosa Peters, section B")
    course.chromium.click("a[href='/staff/courses/gpu-2026']")
    course.reads("6 on the roster")
    course.people = {str(one.full_name): one.person_id for one in course.api.store.roster.of_course("gpu-2026")}
    links = course.downloads("form[action$='/invite'] button", "gpu-2026-invitations.csv")
    told = list(csv.DictReader(io.StringIO(links.read_text())))
    assert {row["name"] for row in told} == set(NAMES) and all("/join/" in row["link"] for row in told)
    course.goes_to("/staff/people")
    course.sends("form[action='/staff/add'] button", "People", added="tess")
    course.goes_to("/staff/courses/gpu-2026")
    course.sends("form[action$='/set'] button", "Course gpu-2026", set_person="tess", set_role="grader")
    course.reads("7 on the roster", "tess")


def set_up(course: Course) -> None:
    """The course gets its board; late submissions cost, and somebody who was ill has two more days."""
    in_days = {n: f"{course.api.now + timedelta(days=n):%Y-%m-%d %H:%M}" for n in (6, 7)}
    course.chromium.click("a[href='/staff/boards/new?course=gpu-2026']")
    assert course.chromium.ask("return document.querySelector('#course').value") == "gpu-2026"
    course.sends(
        "form[action='/staff/boards/new'] button",
        "transpose for staff",
        name="transpose",
        gpus="H100",
        deadline=in_days[6],
        min_isolation="0",
        confirm="untick",
    )
    course.reads(f"The deadline is {in_days[6]} UTC")
    course.act("deadline", deadline=in_days[7])
    course.reads(f"The deadline is {in_days[7]} UTC")
    course.goes_to("/staff")
    course.chromium.click(f"a[href='{STAFF}']")
    course.act("late", late_until="2026-05-12", percent="10", per="day")
    course.reads("Late submissions until 2026-05-12 23:59 UTC, 10 % of the points lost per day begun.")
    course.act("extend", whom="s4@example.edu", until="2026-05-20 18:00")
    course.act("extend", whom="section:B", until="2026-05-11 18:00")
    course.reads("Who has a later deadline", "Mary Shaw", "2026-05-20 18:00", "section b")


def compete(course: Course) -> None:
    for n, name in enumerate(NAMES):
        course.hands_in(name, 0.9 - n / 10)
    assert course.standings() == list(reversed(NAMES))
    course.chromium.click(f"a[href='{STAFF}/submissions']")
    assert course.chromium.ask("return document.querySelectorAll('tbody tr').length") == len(NAMES)
    title = "Submissions to transpose"
    course.sends("form[action$='/submissions'] button", title, person="s0@example.edu", verdict="passed")
    assert course.chromium.ask("return document.querySelectorAll('tbody tr').length") == 1
    course.reads("H100 ✓ passed, 900 ms")
    course.chromium.click("tbody th a")
    course.reads("Submission 1 for staff", "by Ada Lovelace", "900 ms", "def custom_kernel")


def look_for_copies(course: Course) -> None:
    """Two have one kernel under other names, and only they are shown, side by side."""
    course.hands_in("Ada Lovelace", 0.8, COPIED)
    course.hands_in("Rosa Peters", 0.35, BY)
    course.goes_to(STAFF)
    course.act("similar", "Similar sources on transpose")
    course.reads("8 sources of 6 people were compared", "a reason to look, never a verdict", "Ada Lovelace, section A")
    pairs = course.chromium.ask("return document.querySelectorAll('tbody tr').length")
    assert pairs == 1
    course.act("similar-pair", None)
    course.reads("of Ada Lovelace", "of Rosa Peters", f"v3_{COPIED}", "tmp3_x")
    assert course.chromium.ask("return document.querySelectorAll('.pair section mark').length") > 20


def freeze(course: Course) -> None:
    """What is handed in from now on only she sees."""
    course.goes_to(STAFF)
    course.act("freeze")
    course.reads("The standings are frozen")
    course.clock.go(60)
    course.hands_in("Grace Hopper", 0.2)
    assert course.standings()[0] == "Grace Hopper"
    course.reads("also what others can't see")
    course.goes_to("/board/transpose/H100")
    text = str(course.chromium.ask("return document.body.innerText"))
    assert text.index("Rosa Peters") < text.index("Grace Hopper"), "on the page for everybody she is where she was"


def appeal(course: Course) -> None:
    """Somebody's was wrong, and is judged again: she sees what would change before it counts, and answers."""
    wrong = course.hands_in("Joan Clarke", None)
    joan = course.people["Joan Clarke"]
    ask = course.api.store.questions.ask
    ask(joan, "It is right on my machine.", submission=wrong, appeal=True, now=course.api.now)
    ask(joan, "Is it due today?", board="transpose", now=course.api.now)
    course.goes_to("/staff")
    course.chromium.click("a[href='/staff/questions']")
    course.reads("2 open", "Appeal 1 open", "It is right on my machine.", "Joan Clarke on transpose")
    course.sends("form[action='/staff/questions/1/rejudge'] button", "Questions")
    course.reads("is open; it can be applied", "wrong → not judged yet: 1 run")
    course.judged(score_s=0.1)
    course.goes_to("/staff/questions")
    course.reads("wrong → passed: 1 run")
    assert course.standings()[0] == "Grace Hopper", "nothing counts yet"
    course.goes_to("/staff/questions")
    course.sends("form[action='/staff/questions/1/apply'] button", "Questions")
    course.reads("Judged again: H100: wrong became passed")
    course.sends("form[action='/staff/questions/1/answer'] button", "Questions", text_1="It counts now.")
    course.sends("form[action='/staff/questions/2/answer'] button", "Questions", text_2="At six.", all_2="tick")
    course.reads("0 open", "Answered by lena to everyone on the board")
    found = course.api.store.questions.of_person(joan)
    assert {one.answer for one in found} == {"It counts now.", "At six."}
    assert course.standings()[0] == "Joan Clarke"


def reveal(course: Course) -> None:
    """Everything is shown, and the standings are final."""
    course.goes_to(STAFF)
    course.act("finalise", "This didn't work", finals="untick")
    course.reads("board transpose is open until 2026-05-20 18:00 UTC for somebody with an extension")
    course.clock.at += timedelta(days=20)
    sign_in(course)
    course.goes_to(STAFF)
    course.act("finalise", "This didn't work", finals="untick")
    course.reads("the standings of transpose are frozen")
    course.goes_to(STAFF)
    course.act("unfreeze")
    course.act("finalise", finals="untick", note="as announced")
    course.reads("Fix the standings anew")
    assert course.standings()[:2] == ["Joan Clarke", "Grace Hopper"]
    course.goes_to("/board/transpose/H100")
    course.reads("Joan Clarke", "Grace Hopper")


def grade(course: Course) -> None:
    """Grades on a page and as files, and what a grader reads about one person."""
    course.goes_to(STAFF)
    course.chromium.ask(f"document.querySelector('#scheme').value = '{SCHEME}'")
    course.act("grades", "Grades of transpose", format="table")
    course.reads("Everybody's points of 100", "Ada Lovelace")
    course.goes_to(STAFF)
    course.chromium.ask(f"document.querySelector('#scheme').value = '{SCHEME}'")
    course.chooses("#format", "canvas")
    course.chromium.write("#column", "HW 1")
    file = course.downloads(f"form[action='{STAFF}/grades'] button", "transpose-canvas.csv")
    rows = {row["Student"]: row["HW 1"] for row in csv.DictReader(io.StringIO(file.read_text()))}
    assert {name: float(rows[name]) for name in NAMES} == {
        name: 100.0 if name in ("Joan Clarke", "Grace Hopper") else 40.0 for name in NAMES
    }
    course.goes_to(STAFF)
    course.sends(
        f"form[action='{STAFF}/worklog'] button", "Work log of Ada Lovelace on transpose", worklog="s0@example.edu"
    )
    course.reads("2 submissions, oldest first", "What changed since #1", f"+def custom_kernel(v0_{COPIED}")


def keep(course: Course) -> None:
    """The board under pseudonyms, with who is who for her alone; and all of it as an archive that verifies."""
    course.goes_to(STAFF)
    course.act("shows", names="anonymous", standings="shown")
    course.chromium.click("details summary")
    course.reads("People have pseudonyms here", "As whom others see people", "Rosa Peters")
    course.goes_to("/board/transpose/H100")
    assert "Rosa Peters" not in str(course.chromium.ask("return document.body.innerText"))
    course.goes_to(STAFF)
    table = course.downloads(f"a[href='{STAFF}/export?format=csv']", "transpose-standings.csv")
    assert "Rosa Peters" not in table.read_text() and len(table.read_text().splitlines()) == 1 + len(NAMES)
    table = course.downloads(f"a[href='{STAFF}/export?format=json&live=true']", "transpose-all-standings.json")
    assert {row["person"] for row in json.loads(table.read_text())} == set(NAMES)
    course.act("archive", "This didn't work", private="no")
    course.reads("hides names or standings")
    course.goes_to(STAFF)
    course.act("shows", names="real")
    for private, name in (("yes", "transpose-private-archive"), ("no", "transpose-archive")):
        course.goes_to(STAFF)
        course.chooses("#private", private)
        with ZipFile(course.downloads(f"form[action='{STAFF}/archive'] button", f"{name}.zip")) as file:
            file.extractall(course.home)
        assert CommandLine(cwd=course.home)("archive", "verify", name).code == 0
        text = "".join(one.read_text() for one in (course.home / name).rglob("*") if one.is_file())
        assert ("Rosa Peters" in text) is (private == "yes") and "index.html" in text


def leave(course: Course) -> None:
    """One of them wants to be forgotten: it is asked about first, with the archives that have something of them."""
    course.goes_to("/staff/people")
    course.sends("form[action='/staff/delete'] button", "Delete Rosa Peters for good?", deleted="s5@example.edu")
    course.reads("downloaded as transpose-private-archive.zip", "This can't be undone.")
    course.sends("main form button", "People")
    course.goes_to("/staff/audit")
    course.reads("user.delete")
    assert "Rosa Peters" not in course.standings() and any(one.startswith("deleted-") for one in course.standings())
    acts = [one.kind.removeprefix("staff.") for one in reversed(course.api.store.events.audit_log(limit=100))]
    done = (
        "roster.import", "roster.invite", "user.add", "create_board", "late", "extend", "freeze", "finalise", "export",
        "archive", "user.delete",
    )  # fmt: skip
    assert [one for one in dict.fromkeys(acts) if one in done] == list(done)
