"""What a roster's file says, and what it refuses: one sentence for each problem, with its line."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbslurm.domain import roster, spreadsheet
from kbslurm.domain.roster import Known, Row, planned, read
from kbslurm.errors import Invalid

PLAIN = "name,email,student id,section,team,comment\nAda Lovelace,ada@example.edu,1815,A,Team Engine,likes loops\n"
CANVAS = (
    '"Student","ID","SIS User ID","SIS Login ID","Section","Transpose (4314282)","Final Score"\n'
    '"","","","","","Manual Posting",""\n'
    '"    Points Possible","","","","","10.00","(read only)"\n'
    '"Lovelace, Ada","101","1815","ada@example.edu","GPU-A","9.50","95.00"\n'
    '"Noether, Emmy","102","1882","noether3","GPU-B","","0.00"\n'
    '"Student, Test","999","","f3b1ac9e","GPU-A","",""\n'
)
CANVAS_GROUPS = (
    "name,canvas_user_id,user_id,login_id,sections,group_name,canvas_group_id,group_id\n"
    '"Lovelace, Ada",101,1815,ada@example.edu,GPU-A,Engine 1,55,7\n'
)
MOODLE = (
    '"First name","Last name","ID number","Institution","Department","Email address","Transpose (Real)",'
    '"Last downloaded from this course"\n'
    "Ada,Lovelace,1815,Analytical,Maths,ada@example.edu,95.00,1760000000\n"
)
MOODLE_GERMAN = (
    "Vorname;Nachname;ID-Nummer;Institution;Abteilung;E-Mail-Adresse;Kurs gesamt (Punkte)\n"
    "Käthe;Müller;1815;;;kaethe@example.edu;95,00\n"
)


def one(text: str | bytes) -> Row:
    found = read(text if isinstance(text, bytes) else text.encode())
    assert not found.problems, found.problems
    (row,) = found.rows
    return row


def problems(text: str | bytes) -> list[str]:
    return [str(problem) for problem in read(text if isinstance(text, bytes) else text.encode()).problems]


def test_a_list_of_ones_own() -> None:
    row = one(PLAIN)
    assert (row.line, row.name, row.email, row.student_id) == (2, "Ada Lovelace", "ada@example.edu", "1815")
    assert (row.section, row.team) == ("A", "team-engine")
    assert row.extra == {"comment": "likes loops"}


def test_canvas_as_it_comes() -> None:
    found = read(CANVAS.encode())
    assert (found.platform, found.problems) == ("canvas", [])
    ada, emmy = found.rows
    assert (ada.line, ada.name, ada.email, ada.student_id) == (4, "Ada Lovelace", "ada@example.edu", "1815")
    assert (emmy.name, emmy.email, emmy.student_id, emmy.section) == ("Emmy Noether", None, "1882", "GPU-B")
    # What the gradebook wants back, and none of what others graded.
    assert ada.extra == {
        "Student": "Lovelace, Ada", "ID": "101", "SIS User ID": "1815", "SIS Login ID": "ada@example.edu",
        "Section": "GPU-A",
    }  # fmt: skip
    assert "3 lines of Canvas's own" in " ".join(found.notes)


def test_canvass_groups_are_teams() -> None:
    row = one(CANVAS_GROUPS)
    assert (row.name, row.student_id, row.section, row.team) == ("Ada Lovelace", "1815", "GPU-A", "engine-1")
    assert row.extra["canvas_user_id"] == "101"


@pytest.mark.parametrize("text", [MOODLE, MOODLE.replace(",", ";"), MOODLE.replace(",", "\t")])
def test_moodle_with_each_separator_that_it_offers(text: str) -> None:
    row = one(text)
    assert (row.name, row.email, row.student_id) == ("Ada Lovelace", "ada@example.edu", "1815")
    assert row.extra["Department"] == "Maths"
    assert not any("Real" in heading or "downloaded" in heading for heading in row.extra)


@pytest.mark.parametrize(
    "data",
    [
        MOODLE_GERMAN.encode(),
        MOODLE_GERMAN.encode("utf-8-sig"),
        MOODLE_GERMAN.encode("cp1252"),
        MOODLE_GERMAN.encode("utf-16"),
        MOODLE_GERMAN.replace("\n", "\r\n").encode(),
        MOODLE_GERMAN.replace("\n", "\r").encode(),
        b"sep=;\n" + MOODLE_GERMAN.encode(),
    ],
)
def test_however_a_spreadsheet_saved_it(data: bytes) -> None:
    row = one(data)
    assert (row.name, row.email) == ("Käthe Müller", "kaethe@example.edu")
    assert not any("gesamt" in heading for heading in row.extra)


def test_what_was_read_as_windows_1252_is_said() -> None:
    assert "Windows-1252" in " ".join(read(MOODLE_GERMAN.encode("cp1252")).notes)


HEAD = "name,email,student id,section,team,role\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the file is empty"),
        ("\n\n", "the file is empty"),
        (HEAD, "nobody below them"),
        ("email,section\nada@example.edu,A\n", "no column has people's names"),
        ("name,section\nAda,A\n", "tells people with the same name apart"),
        ("name,email,e-mail\nAda,a@example.edu,b@example.edu\n", "both look like the e-mail address"),
        (f"{HEAD},ada@example.edu\n", "line 2: the name is missing"),
        (f"{HEAD}Ada,ada at example\n", "line 2: 'ada at example' isn't an e-mail address"),
        (f"{HEAD}Ada,ada@example.edu.\n", "isn't an e-mail address"),
        (f'{HEAD}Ada,"a@example.edu, b@example.edu"\n', "isn't an e-mail address"),
        (f"{HEAD}Ada,\n", "line 2: Ada has neither an e-mail address nor a student ID"),
        (f"{HEAD}A\x07da,a@example.edu\n", r"line 2: the name 'A\x07da' has a control character"),
        (f"{HEAD}A\u202eda,a@example.edu\n", r"line 2: the name 'A\u202eda' has a control character"),
        (f"{HEAD}{'A' * 201},a@example.edu\n", "line 2: the name is too long: 201 characters, at most 200"),
        (f"{HEAD}Ada,a@example.edu,1,{'A' * 501}\n", "line 2: 'section' is too long: 501 characters"),
        (f"{HEAD}Ada,a@example.edu,1,A,---\n", "line 2: '---' isn't a valid team name"),
        (f"{HEAD}Ada,a@example.edu,1,A,b,boss\n", "line 2: 'boss' isn't a role that a file can give"),
        (f"{HEAD}Ada,a@example.edu,1,A,b,owner\n", "line 2: 'owner' isn't a role that a file can give"),
        (f"{HEAD}Ada,a@example.edu,1,A,b,student,7\n", "line 2: it has 7 cells for 6 columns"),
        (f"{HEAD}Ada,a@example.edu\nBob,A@example.edu\n", "line 3: the e-mail address 'A@example.edu' is on line 2"),
        (f"{HEAD}Ada,a@example.edu,7\nBob,,7\n", "line 3: the student ID '7' is on line 2 already"),
        (f'{HEAD}Ada,a@example.edu\n"Bob,b@example.edu\nEve,e@example.edu\n', "line 3: this isn't CSV"),
        (f"{HEAD}Ada,a@example.edu\nB\x00b,b@example.edu\n", "line 3"),
        (f"{HEAD}Ada,{'a' * 140_000}\n", "line 2: this isn't CSV (field larger than field limit"),
        ("PK\x03\x04\x14", "this is a spreadsheet, not a CSV"),
    ],
)
def test_one_sentence_for_each_problem(text: str, said: str) -> None:
    found = problems(text)
    assert len(found) == 1, found
    assert said in found[0]


def test_every_wrong_line_is_named_at_once_and_nothing_is_taken() -> None:
    lines = [f"P{n},{'x' if n % 2 else f'p{n}@example.edu'}" for n in range(60)]
    found = read((HEAD + "\n".join(lines)).encode())
    assert [one.line for one in found.problems] == [n + 2 for n in range(60) if n % 2]
    told = roster.refusal(found.problems).message
    assert "nothing was changed" in told
    assert told.count("line ") == roster.SHOWN_PROBLEMS
    assert "and 10 more" in told


def test_a_hundred_thousand_lines_are_one_sentence() -> None:
    lines = "".join(f"P{n},p{n}@e.edu\n" for n in range(100_000))
    assert problems("name,email\n" + lines) == ["line 10002: this is one more than the 10,000 people that a course has"]
    assert "at most 4,000,000 are allowed" in problems(b"name,email\n" + b"x" * 4_000_000)[0]


@given(st.binary(max_size=400) | st.text(max_size=400).map(lambda text: (HEAD + text).encode("utf-8", "replace")))
def test_whatever_the_bytes_are(data: bytes) -> None:
    found = read(data)
    assert found.rows or found.problems
    for row in found.rows:
        assert row.name.isprintable() and row.name
        assert all(cell.isprintable() for cell in row.extra.values())
    for problem in found.problems:
        assert str(problem).isprintable(), problem


# ------------------------------------------------------------------------------------------------------ what it does

ADA = Known(
    person_id=7, name="ada", full_name="Ada Lovelace", email="ada@example.edu", student_id="1815", section="A",
    team="team-engine", role="student", extra={"comment": "likes loops"},
)  # fmt: skip


def test_importing_the_same_again_changes_nothing() -> None:
    plan = planned([one(PLAIN)], [ADA], remove=True)
    assert [(change.what, change.person_id) for change in plan.changes] == [("same", 7)]


def test_nobody_leaves_unasked_and_helpers_never() -> None:
    bob = Known(person_id=8, name="bob", email="bob@example.edu", role="student")
    tess = Known(person_id=9, name="tess", email="tess@example.edu", role="grader")
    kept = planned([one(PLAIN)], [ADA, bob, tess], remove=False)
    assert kept.of("remove") == []
    assert "1 on the roster is not in the file and stays" in kept.notes[0]
    gone = planned([one(PLAIN)], [ADA, bob, tess], remove=True)
    assert [change.name for change in gone.of("remove")] == ["bob"]


def test_a_column_that_the_file_lacks_changes_nothing_and_an_empty_cell_does() -> None:
    without = one("name,email\nAda Lovelace,ada@example.edu\n")
    assert planned([without], [ADA], remove=False).changes[0].what == "same"
    empty = one("name,email,team\nAda Lovelace,ada@example.edu,\n")
    (change,) = planned([empty], [ADA], remove=False).changes
    assert (change.what, change.differences) == ("change", {"team": ("team-engine", None)})


def test_a_name_alone_finds_nobody() -> None:
    stranger = Known(person_id=3, name="Ada Lovelace")
    (change,) = planned([one(PLAIN)], [stranger], remove=False).changes
    assert (change.what, change.person_id) == ("add", None)


def test_two_people_in_one_line_are_a_problem() -> None:
    bob = Known(person_id=8, name="bob", student_id="1815", role="student")
    ada = Known(person_id=7, name="ada", email="ada@example.edu", role="student")
    (problem,) = planned([one(PLAIN)], [ada, bob], remove=False).problems
    assert str(problem) == (
        "line 2: Ada Lovelace has the e-mail address of ada and the student ID of bob: two different people"
    )


def test_what_is_exported_is_imported_unchanged() -> None:
    people = [
        {
            "person_id": 7, "person": "ada", "name": "=HYPERLINK(1)", "email": "ada@example.edu", "student_id": "-1815",
            "section": "A", "team": "team-engine", "role": "owner", "columns": {"comment": "+1", "Student": "x"},
        }
    ]  # fmt: skip
    text = roster.as_csv(people)
    for row in csv.reader(io.StringIO(text)):
        assert not any(cell.startswith(spreadsheet.FORMULA) for cell in row), row
    found = one(text)
    assert (found.name, found.student_id, found.role, found.person) == ("=HYPERLINK(1)", "-1815", None, "person:7")


@pytest.mark.parametrize("cell", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1"])
def test_a_spreadsheet_runs_no_cell(cell: str) -> None:
    assert spreadsheet.inert(cell) == f"'{cell}"
    assert spreadsheet.as_written(spreadsheet.inert(cell)) == cell


@pytest.mark.parametrize(
    ("text", "name"), [("Team Rocket!", "team-rocket"), ("Équipe 7", "equipe-7"), ("a_b.c", "a_b.c")]
)
def test_teams_have_names_for_paths(text: str, name: str) -> None:
    assert roster.team_name(text) == name


@pytest.mark.parametrize("text", ["", "…", "x" * 65, "../etc"[:2]])
def test_what_isnt_a_name_for_a_course(text: str) -> None:
    with pytest.raises(Invalid, match="isn't a valid course name"):
        roster.course_name(text)
