"""A course's roster as people have it: a CSV of their own, or what Canvas and Moodle export, as it comes.

Pure: bytes in, rows and sentences out. A file with one wrong line changes nothing, so every line is read, and each
problem is one sentence with its line number. What is read:

| column | headings, in any case |
|---|---|
| name | `name`, `student`, `full name`, or first and last name in two |
| e-mail | `e-mail`, `email address`, …; a login that is an address |
| student ID | `student id`, `sis user id`, `id number`, `matriculation number`, … |
| section, team, role | `section`, `sections`; `team`, `group`, `group name`; `role` |
| who it is here | `kbslurm`: a name or `person:ID` of kbslurm; `oidc subject`: of the sign-in provider |

Everything else is kept as it is, for whoever wants the grades back by it; of an export of Canvas or Moodle only the
columns by which that knows people, since the rest are grades.
"""

from __future__ import annotations

import csv
import io
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from kbslurm.domain import contest, spreadsheet
from kbslurm.errors import Invalid

CourseRole = Literal["student", "owner", "assistant", "grader", "observer"]
Platform = Literal["canvas", "moodle", "other"]
Field = Literal["name", "first", "last", "email", "student_id", "login", "section", "team", "role", "subject", "person"]

BYTES_CAP = 4_000_000
MOST_PEOPLE = 10_000
MOST_COLUMNS = 500
MOST_EXTRA = 40
EXPORTED = ("kbslurm", "name", "email", "student id", "section", "team", "role")
FULL_NAME_CAP = 200
CELL_CAP = 500
GROUP_CAP = 120
SHOWN_PROBLEMS = 20

HEADINGS: Mapping[Field, tuple[str, ...]] = {
    "name": ("name", "full name", "student name", "student", "display name", "participant", "vollständiger name"),
    "first": ("first name", "given name", "firstname", "forename", "vorname", "prénom", "nombre"),
    "last": ("last name", "surname", "family name", "lastname", "nachname", "nom", "apellido s", "apellidos"),
    "email": (
        "email", "e mail", "email address", "e mail address", "mail", "e mail adresse", "adresse de courriel",
        "dirección de correo",
    ),
    "student_id": (
        "student id", "sis user id", "id number", "idnumber", "sis id", "sid", "student number", "matriculation number",
        "matrikelnummer", "id nummer", "numéro d identification", "número de id",
    ),
    "login": ("sis login id", "login id", "login", "username", "user name", "anmeldename"),
    "section": ("section", "sections", "section name"),
    "team": ("team", "team name", "group", "group name", "groups"),
    "role": ("role", "roles"),
    "subject": ("oidc subject", "oidc sub"),
    "person": ("kbslurm", "kbslurm person"),
}  # fmt: skip
# By which the platforms know people. Only these are kept of their exports.
KEPT_OF: Mapping[Platform, frozenset[str]] = {
    "canvas": frozenset(
        "student|id|sis user id|sis login id|integration id|root account|section|canvas user id|user id|login id"
        "|sections|group name|canvas group id|group id|name".split("|")
    ),
    "moodle": frozenset(
        "first name|last name|surname|id number|institution|department|email address|username|groups"
        "|vorname|nachname|id nummer|institution|abteilung|e mail adresse".split("|")
    ),
}
ROLES: Mapping[str, CourseRole] = {
    "student": "student", "participant": "student", "learner": "student", "studentenrollment": "student",
    "assistant": "assistant", "ta": "assistant", "teaching assistant": "assistant", "taenrollment": "assistant",
    "grader": "grader", "observer": "observer",
}  # fmt: skip
DELIMITERS = ",;\t"
_EMAIL = re.compile(r"[^\s@,;<>\"]+@[^\s@,;<>\"]+\.[^\s@,;<>\".]+\Z")
_NOT_WORDS = re.compile(r"[^\w]+|_+")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One person of a roster. None: the file has no such column, and what is known of it stays."""

    line: int
    name: str
    email: str | None = None
    student_id: str | None = None
    section: str | None = None
    team: str | None = None
    role: CourseRole | None = None
    subject: str | None = None
    person: str | None = None
    extra: Mapping[str, str] = field(default_factory=dict)
    has_section: bool = False
    has_team: bool = False


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Why a line can't be taken; line 0: the file as a whole."""

    line: int
    text: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.text}" if self.line else self.text


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """What a file says. With problems there is nothing to import; `notes` are for whoever imports it."""

    platform: Platform
    rows: Sequence[Row]
    problems: Sequence[Problem]
    notes: Sequence[str]


class _Refused(Exception):
    """This line, or the file, can't be read; its text is the sentence."""


def course_name(text: str) -> str:
    """The course's name in canonical form, or Invalid: it is case-insensitive, and goes into paths."""
    name = text.strip().lower()
    if not contest.is_slug(name):
        raise Invalid(
            f"{contest.shown(text)} isn't a valid course name",
            hint=f"Use at most {contest.NAME_CAP} letters a-z and digits, and . _ - after the first, like gpu-2026.",
        )
    return name


def section_name(text: str) -> str:
    """The section as written, without what nobody sees; or Invalid."""
    name = " ".join(text.split())
    if not name or len(name) > GROUP_CAP or not name.isprintable():
        raise Invalid(
            f"{contest.shown(text)} isn't a valid section", hint=f"Use 1 to {GROUP_CAP} printable characters."
        )
    return name


def team_name(text: str) -> str:
    """The team that is called so: `Team Rocket!` is team-rocket. Invalid if no letter or digit a-z is left."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    name = re.sub(r"[^a-z0-9._]+", "-", plain).strip("-._")
    if not contest.is_slug(name):
        raise Invalid(
            f"{contest.shown(text)} isn't a valid team name",
            hint=f"Use at most {contest.NAME_CAP} letters a-z and digits, and . _ - after the first.",
        )
    return name


def course_role(text: str) -> CourseRole:
    """The role that is called so, or Invalid."""
    for known in get_args(CourseRole):
        if text.strip().lower() == known:
            found: CourseRole = known
            return found
    raise Invalid(f"{contest.shown(text)} isn't a role on a course", hint=f"Choose {', '.join(get_args(CourseRole))}.")


def read(data: bytes) -> Sheet:
    """The rows of a file, or its problems."""
    notes: list[str] = []
    try:
        lines = _lines(_decoded(data, notes))
        heading = next(lines, None)
        if heading is None:
            raise _Refused("the file is empty: its first line must name the columns, like name,email,student id")
        columns = _Columns.of(heading[1])
    except _Refused as why:
        return Sheet(platform="other", rows=(), problems=(Problem(line=0, text=str(why)),), notes=notes)
    rows, problems = _rows(lines, columns, notes)
    problems += _said_twice(rows)
    problems.sort(key=lambda one: one.line)
    if not rows and not problems:
        problems.append(Problem(line=0, text="the file has column names, but nobody below them"))
    return Sheet(platform=columns.platform, rows=rows, problems=problems, notes=[*notes, *columns.notes])


def refusal(problems: Sequence[Problem]) -> Invalid:
    """All of them as one error: nothing was imported."""
    told = [str(one) for one in problems[:SHOWN_PROBLEMS]]
    if len(problems) > SHOWN_PROBLEMS:
        told.append(f"and {len(problems) - SHOWN_PROBLEMS:,} more")
    return Invalid(
        "the roster can't be imported, and nothing was changed:\n" + "\n".join(f"  {one}" for one in told),
        hint="Correct the file and import it again.",
    )


@dataclass(frozen=True, kw_only=True)
class _Columns:
    """Which column is what."""

    platform: Platform
    headings: tuple[str, ...]
    place: Mapping[Field, int]
    extra: tuple[int, ...]
    notes: tuple[str, ...]

    @classmethod
    def of(cls, cells: Sequence[str]) -> _Columns:
        headings = tuple(_clean(cell) for cell in cells)
        if len(headings) > MOST_COLUMNS:
            raise _Refused(f"the file has {len(headings)} columns, at most {MOST_COLUMNS} are allowed")
        words = [_words(heading) for heading in headings]
        platform = _platform(words)
        place: dict[Field, int] = {}
        for what, names in HEADINGS.items():
            meant = names
            if what == "student_id":
                # Canvas's own ID of a person isn't theirs: that is the SIS ID, which its groups call user_id.
                meant = (*names, "user id") if platform == "canvas" else (*names, "id")
            found = [n for n, word in enumerate(words) if word in meant]
            if len(found) > 1:
                both = " and ".join(repr(headings[n]) for n in found[:2])
                raise _Refused(f"the columns {both} both look like the {SHOWN[what]}: rename or remove one of them")
            if found:
                place[what] = found[0]
        if "name" not in place and not {"first", "last"} <= place.keys():
            raise _Refused(
                f"no column has people's names: the headings are {_listed(headings)}. Call one `name`, or two `first"
                " name` and `last name`"
            )
        if not {"email", "student_id", "login", "person"} & place.keys():
            raise _Refused(
                f"no column tells people with the same name apart: the headings are {_listed(headings)}. Add `email` or"
                " `student id`"
            )
        used = set(place.values()) if platform == "other" else set()
        extra = [n for n, word in enumerate(words) if word and n not in used]
        if platform != "other":
            extra = [n for n in extra if words[n] in KEPT_OF[platform]]
        notes = []
        if len(extra) > MOST_EXTRA:
            notes.append(f"only the first {MOST_EXTRA} of {len(extra)} other columns are kept")
        if platform != "other" and (left := len(headings) - len(set(extra) | set(place.values()))):
            notes.append(
                f"this is an export of {platform.capitalize()}: {left} column{'' if left == 1 else 's'} with grades"
                f" and the like {'is' if left == 1 else 'are'} left out"
            )
        return cls(
            platform=platform, headings=headings, place=place, extra=tuple(extra[:MOST_EXTRA]), notes=tuple(notes)
        )

    def row(self, line: int, cells: Sequence[str], platform: Platform) -> Row:
        told = {what: _clean(cells[n]) if n < len(cells) else "" for what, n in self.place.items()}
        told = {what: spreadsheet.as_written(cell) for what, cell in told.items()}
        for n, cell in enumerate(cells):
            if len(cell) > CELL_CAP and (n in self.extra or n in self.place.values()):
                raise _Refused(f"{_shown(self.headings[n])} is too long: {len(cell):,} characters, at most {CELL_CAP}")
        name = _name(told, platform)
        login = told.get("login", "")
        email = told.get("email") or (login if _EMAIL.match(login) else "")
        student_id = told.get("student_id") or (login if login and not email else "")
        if email and (not _EMAIL.match(email) or len(email) > 254 or not email.isprintable()):
            raise _Refused(f"{_shown(email)} isn't an e-mail address")
        if not student_id.isprintable():
            raise _Refused(f"the student ID {_shown(student_id)} has a control character")
        if not email and not student_id and not told.get("person"):
            raise _Refused(f"{name} has neither an e-mail address nor a student ID, and could be anybody of that name")
        extra = {
            self.headings[n]: cells[n].strip() for n in self.extra if n < len(cells) and cells[n].strip().isprintable()
        }
        return Row(
            line=line,
            name=name,
            email=email or None,
            student_id=student_id or None,
            section=_checked(section_name, told.get("section")),
            team=_checked(team_name, told.get("team")),
            role=_role(told["role"]) if "role" in told else None,
            subject=_subject(told.get("subject")),
            person=told.get("person") or None,
            extra=extra,
            has_section="section" in told,
            has_team="team" in told,
        )


SHOWN: Mapping[Field, str] = {
    "name": "name", "first": "first name", "last": "last name", "email": "e-mail address", "student_id": "student ID",
    "login": "login", "section": "section", "team": "team", "role": "role", "subject": "subject", "person": "person",
}  # fmt: skip


def _decoded(data: bytes, notes: list[str]) -> str:
    if len(data) > BYTES_CAP:
        raise _Refused(f"the file has {len(data):,} bytes, at most {BYTES_CAP:,} are allowed: is it a roster?")
    if data.startswith((b"PK\x03\x04", b"\xd0\xcf\x11\xe0")):
        raise _Refused("this is a spreadsheet, not a CSV: save it as CSV (UTF-8) and import that")
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16", "replace")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        notes.append("the file isn't UTF-8: it was read as Windows-1252, so look at names with accents")
        return data.decode("cp1252", "replace")


def _lines(text: str) -> Iterator[tuple[int, list[str]]]:
    """Each record that isn't blank, with the number of the line on which it begins."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=_delimiter(text), strict=True)
    before = 0
    while True:
        try:
            cells = next(reader, None)
        except csv.Error as error:
            raise _Refused(f"line {before + 1}: this isn't CSV ({error}): is a quotation mark missing?") from None
        if cells is None:
            return
        line, before = before + 1, reader.line_num
        if line == 1 and _separator(cells[0] if cells else ""):
            continue
        if any(cell.strip() for cell in cells):
            yield line, cells


def _delimiter(text: str) -> str:
    """What separates the columns of the first line that isn't blank, or what Excel says there: `sep=;`."""
    first = next((line for line in text.splitlines() if line.strip()), "")
    if _separator(first):
        return first.strip()[4:] or ","
    bare = re.sub(r'"[^"]*"', "", first)
    return max(DELIMITERS, key=bare.count)


def _separator(text: str) -> bool:
    return text.strip().lower().startswith("sep=") and len(text.strip()) <= 5


def _rows(
    lines: Iterator[tuple[int, list[str]]], columns: _Columns, notes: list[str]
) -> tuple[list[Row], list[Problem]]:
    rows: list[Row] = []
    problems: list[Problem] = []
    left = 0
    while True:
        try:
            found = next(lines, None)
        except _Refused as why:  # where one quotation mark is missing, nothing after it can be told apart
            return rows, [*problems, Problem(line=0, text=str(why))]
        if found is None:
            break
        line, cells = found
        if _is_no_person(cells, columns):
            left += 1
            continue
        if len(rows) + len(problems) >= MOST_PEOPLE:
            return [], [Problem(line=line, text=f"this is one more than the {MOST_PEOPLE:,} people that a course has")]
        try:
            if sum(1 for cell in cells[len(columns.headings) :] if cell.strip()):
                raise _Refused(
                    f"it has {len(cells)} cells for {len(columns.headings)} columns: is a quotation mark missing?"
                )
            rows.append(columns.row(line, cells, columns.platform))
        except _Refused as why:
            problems.append(Problem(line=line, text=str(why)))
    if left:
        notes.append(f"{left} line{'' if left == 1 else 's'} of Canvas's own (points, test student) left out")
    return rows, problems


def _is_no_person(cells: Sequence[str], columns: _Columns) -> bool:
    """Canvas's lines below its headings: points possible, how grades are posted, and its test student."""
    if columns.platform != "canvas":
        return False
    name = cells[columns.place["name"]].strip().lower() if columns.place["name"] < len(cells) else ""
    return name.startswith("points possible") or name in ("", "student, test", "test student")


def _said_twice(rows: Iterable[Row]) -> list[Problem]:
    """Whoever is in the file twice, by the line that says it again."""
    problems: list[Problem] = []
    for what, of in (("e-mail address", "email"), ("student ID", "student_id"), ("person", "person")):
        first: dict[str, int] = {}
        for row in rows:
            value = getattr(row, of)
            if value is None:
                continue
            known = first.setdefault(value.casefold(), row.line)
            if known != row.line:
                problems.append(Problem(line=row.line, text=f"the {what} {_shown(value)} is on line {known} already"))
    return problems


def _platform(words: Sequence[str]) -> Platform:
    has = set(words)
    if {"student", "sis login id"} <= has or {"student", "sis user id"} <= has or "canvas user id" in has:
        return "canvas"
    if {"student", "id", "section"} <= has:
        return "canvas"
    if "last downloaded from this course" in has or {"first name", "id number", "email address"} <= has:
        return "moodle"
    return "moodle" if {"vorname", "nachname", "id nummer", "e mail adresse"} <= has else "other"


def _name(told: Mapping[Field, str], platform: Platform) -> str:
    name = told.get("name", "")
    if not name:
        name = f"{told.get('first', '')} {told.get('last', '')}".strip()
    elif platform == "canvas" and name.count(",") == 1:
        last, _, first = name.partition(",")
        name = f"{first.strip()} {last.strip()}".strip()
    if not name:
        raise _Refused("the name is missing")
    if not name.isprintable():
        raise _Refused(f"the name {_shown(name)} has a control character")
    if len(name) > FULL_NAME_CAP:
        raise _Refused(f"the name is too long: {len(name):,} characters, at most {FULL_NAME_CAP}")
    return name


def _role(text: str) -> CourseRole | None:
    if not text:
        return None
    found = ROLES.get(" ".join(text.lower().split()))
    if found is None:
        raise _Refused(f"{_shown(text)} isn't a role that a file can give: student, assistant, grader or observer")
    return found


def _subject(text: str | None) -> str | None:
    if not text:
        return None
    try:
        return contest.account_at("oidc", text)
    except Invalid as error:
        raise _Refused(error.message) from None


def _checked(rule: Callable[[str], str], text: str | None) -> str | None:
    if not text:
        return None
    try:
        return rule(text)
    except Invalid as error:
        raise _Refused(error.message) from None


def _words(heading: str) -> str:
    """A heading as it is compared: its words in lower case."""
    return " ".join(_NOT_WORDS.sub(" ", heading.casefold()).split())


def _clean(cell: str) -> str:
    """Without the blanks around it, and between its words one each; control characters stay, to be told of."""
    return re.sub("[ \u00a0]+", " ", cell).strip(" \t\r\n\ufeff")


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:60]}…")


def _listed(headings: Sequence[str]) -> str:
    told = ", ".join(_shown(heading) for heading in headings[:8])
    return f"{told}, …" if len(headings) > 8 else told or "empty"


@dataclass(frozen=True, kw_only=True)
class Known:
    """A person as far as a roster is compared with them. `role` is None for whoever isn't on it."""

    person_id: int
    name: str
    full_name: str | None = None
    email: str | None = None
    student_id: str | None = None
    subject: str | None = None
    extra: Mapping[str, str] = field(default_factory=dict)
    section: str | None = None
    team: str | None = None
    role: CourseRole | None = None


@dataclass(frozen=True, kw_only=True)
class Change:
    """What importing does with one person. `person_id` is None for a new one; `differences` are (before, after) by
    what differs."""

    what: Literal["add", "change", "same", "remove"]
    name: str
    person_id: int | None = None
    row: Row | None = None
    differences: Mapping[str, tuple[str | None, str | None]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Everything that importing a file does, in its order; with problems, nothing."""

    changes: Sequence[Change]
    problems: Sequence[Problem] = ()
    notes: Sequence[str] = ()

    def of(self, what: str) -> list[Change]:
        return [one for one in self.changes if one.what == what]


def planned(rows: Sequence[Row], known: Sequence[Known], *, remove: bool) -> Plan:
    """What importing these rows does. `remove`: students on the roster who aren't in the file leave it; whoever helps
    on the course stays."""
    by: dict[str, dict[str, Known]] = {"email": {}, "student_id": {}, "subject": {}, "person": {}}
    for one in known:
        for of in ("email", "student_id", "subject"):
            if (value := getattr(one, of)) is not None:
                by[of][value.casefold()] = one
        by["person"] |= {one.name.casefold(): one, f"person:{one.person_id}": one}
    changes: list[Change] = []
    problems: list[Problem] = []
    taken: dict[int, int] = {}
    for row in rows:
        try:
            change = _change(row, by)
        except _Refused as why:
            problems.append(Problem(line=row.line, text=str(why)))
            continue
        if change.person_id is not None:
            first = taken.setdefault(change.person_id, row.line)
            if first != row.line:
                text = f"{row.name} is the same person as on line {first}"
                problems.append(Problem(line=row.line, text=text))
        changes.append(change)
    left = [one for one in known if one.role is not None and one.person_id not in taken]
    gone = [one for one in left if one.role == "student"]
    notes = []
    if remove:
        changes += [Change(what="remove", name=one.name, person_id=one.person_id) for one in gone]
    elif gone:
        notes.append(
            f"{len(gone)} on the roster {'is' if len(gone) == 1 else 'are'} not in the file and stay"
            f"{'s' if len(gone) == 1 else ''}; --remove takes them off"
        )
    return Plan(changes=changes, problems=problems, notes=notes)


MATCHED_BY = {"person": "entry", "email": "e-mail address", "student_id": "student ID", "subject": "account"}


def _change(row: Row, by: Mapping[str, Mapping[str, Known]]) -> Change:
    found: dict[int, Known] = {}
    told: list[str] = []
    for of in MATCHED_BY:
        value = getattr(row, of)
        one = by[of].get(value.casefold()) if value is not None else None
        if of == "person" and value is not None and one is None:
            raise _Refused(f"there is no person {_shown(value)} here")
        if one is not None and one.person_id not in found:
            found[one.person_id] = one
            told.append(f"{MATCHED_BY[of]} of {one.name}")
    if len(found) > 1:
        raise _Refused(f"{row.name} has the {' and the '.join(told)}: two different people")
    if not found:
        return Change(what="add", name=row.name, row=row)
    (one,) = found.values()
    if row.subject is not None and one.subject is not None and row.subject != one.subject:
        raise _Refused(f"{one.name} has another account at this university already")
    differences = _differences(row, one)
    what: Literal["add", "change", "same"] = "change" if differences else "same"
    return Change(
        what="add" if one.role is None else what,
        name=one.name,
        person_id=one.person_id,
        row=row,
        differences=differences,
    )


def _differences(row: Row, one: Known) -> dict[str, tuple[str | None, str | None]]:
    wanted: list[tuple[str, str | None, str | None, bool]] = [
        ("name", one.full_name, row.name, True),
        ("e-mail", one.email, row.email, row.email is not None),
        ("student ID", one.student_id, row.student_id, row.student_id is not None),
        ("account", one.subject, row.subject, row.subject is not None),
        ("section", one.section, row.section, row.has_section),
        ("team", one.team, row.team, row.has_team),
        ("role", one.role, row.role, row.role is not None),
    ]
    found = {what: (before, after) for what, before, after, is_told in wanted if is_told and before != after}
    if any(one.extra.get(heading) != cell for heading, cell in row.extra.items()):
        found["other columns"] = (None, None)
    return found


def as_csv(people: Sequence[Mapping[str, Any]]) -> str:
    """A roster as `roster import` reads it."""
    more = _headings(one["columns"] for one in people)
    rows = [
        {
            **one["columns"],
            "kbslurm": f"person:{one['person_id']}",
            "name": one["name"] or one["person"],
            "email": one["email"],
            "student id": one["student_id"],
            "section": one["section"],
            "team": one["team"],
            "role": one["role"] if one["role"] != "owner" else "",  # no file gives that
        }
        for one in people
    ]
    return spreadsheet.as_csv([*EXPORTED, *more], rows)


def _headings(columns: Iterable[Mapping[str, str]]) -> list[str]:
    """Those that don't stand for one of ours: otherwise the file would say it twice."""
    ours = {*EXPORTED, *(name for names in HEADINGS.values() for name in names), "user id", "id"}
    every = dict.fromkeys(heading for one in columns for heading in one)
    return [heading for heading in every if " ".join(heading.lower().replace("_", " ").split()) not in ours]
