"""Grades of a real board: everybody on the roster, late ones and teams, in each platform's format, both ways."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest
from psycopg.types.json import Jsonb

from kbslurm.client.http import Client
from kbslurm.errors import Invalid, KbslurmError
from tests.command_line import CommandLine
from tests.flow.stage import START, HandClock
from tests.flow.test_board_times import clock, due
from tests.flow.test_pages import browsing, csrf, judged
from tests.popcorn.served_api import ADMIN, ServedApi, served

SCHEME = """
gpu = "H100"
by = "time"
passed = 40

[[steps]]
at_most = "300 ms"
points = 100

[[steps]]
at_most = "600 ms"
points = 80
"""


@pytest.fixture
def api(database_url: str, tmp_path: Path) -> Iterator[ServedApi]:
    with served(database_url, tmp_path, clock=HandClock()) as built:
        yield built


@pytest.fixture
def host(api: ServedApi) -> Iterator[Client]:
    with Client(api.url, admin=ADMIN) as client:
        yield client


def enrol(api: ServedApi, name: str, full_name: str, section: str = "A", **extra: str) -> None:
    """Put somebody on the roster of the board's course, as an import does."""
    person = api.store.people.ensure(name).id
    with psycopg.connect(api.store.url, autocommit=True) as connection:
        connection.execute(b"UPDATE leaderboard SET course = 'gpu'")
        connection.execute(
            b"INSERT INTO roster (course, person_id, section, added_at) VALUES ('gpu', %s, %s, now())",
            (person, section),
        )
        connection.execute(
            b"INSERT INTO personal_data (person_id, full_name, email, student_id, extra, changed_at)"
            b" VALUES (%s, %s, %s, %s, %s, now())",
            (person, full_name, f"{name}@example.edu", f"s{person}", Jsonb(extra)),
        )


def course(api: ServedApi, host: Client) -> None:
    """ada in time, bea late by two hours, cyd with nothing, and eve, who isn't on the roster."""
    due(api, hours=1)
    enrol(api, "ada", "=Ada Lovelace", **{"ID": "4711", "SIS Login ID": "al1", "Student": "Lovelace, Ada"})
    enrol(api, "bea", "Bea B", "B")
    enrol(api, "cyd", "Cyd C", "B", **{"Email address": "Cyd.C@Example.edu"})
    judged(api, "ada", 0.5)
    judged(api, "eve", 0.1)
    host.set_late("transpose", until=(START + timedelta(days=2)).isoformat(), percent=10, per="hour")
    clock(api).go(2 * 3600)
    judged(api, "bea", 0.25)


def test_everybody_on_the_roster_gets_a_grade_and_is_told_why(api: ServedApi, host: Client) -> None:
    course(api, host)
    found = host.grades("transpose", SCHEME)
    assert [(row["name"], row["points"]) for row in found["grades"]] == [("ada", 80), ("bea", 80), ("cyd", 0)]
    ada, bea, cyd = found["grades"]
    assert ada["why"][0] == "#1: the one that is worth most of 1 ranked submission"
    assert "80 of 100 points" in ada["why"][1]
    assert bea["why"][2].startswith("late by 1 h ") and bea["why"][2].endswith("20 % of the points lost")
    assert (bea["before_penalty"], bea["lost_percent"]) == (100, 20)
    assert cyd["why"] == ["no ranked submission: 0 points"]
    assert (found["of"], found["open_runs"], found["gpu"]) == (100, 0, "H100")
    assert host.grades("transpose", SCHEME) == found, "nothing changes by looking"
    assert '_s" : ' not in json.dumps(found)

    host.extend("transpose", "person:bea", (api.now + timedelta(hours=1)).isoformat())
    assert [row["points"] for row in host.grades("transpose", SCHEME)["grades"]] == [80, 100, 0]
    ranks = 'gpu = "H100"\nby = "rank"\n[[steps]]\nup_to = 1\npoints = 100\n[[steps]]\nup_to = 9\npoints = 50\n'
    assert [row["points"] for row in host.grades("transpose", ranks)["grades"]] == [50, 50, 0], "eve is ahead of both"


def test_a_scheme_that_does_not_fit_the_board_is_refused(api: ServedApi, host: Client) -> None:
    steps = "\n[[steps]]\nat_least = 1\npoints = 1\n"
    with pytest.raises(Invalid, match="has 2 GPU types, and the scheme has no `gpu`"):
        host.grades("transpose", f'by = "light"{steps}')
    with pytest.raises(Invalid, match="no baseline that was measured on H100"):
        host.grades("transpose", f'by = "speedup"\ngpu = "h100"{steps}')
    with pytest.raises(KbslurmError, match="B200"):
        host.grades("transpose", f'by = "light"\ngpu = "B200"{steps}')
    with pytest.raises(Invalid, match="`by` can't be 'luck'"):
        host.grades("transpose", 'by = "luck"')


def test_each_format_keeps_the_platforms_columns_and_runs_no_formula(
    api: ServedApi, host: Client, tmp_path: Path
) -> None:
    course(api, host)
    scheme = tmp_path / "scheme.toml"
    scheme.write_text(SCHEME)
    token = api.store.tokens.issue(api.store.people.ensure("hana", "staff").id, now=api.now)
    ways = (
        CommandLine(cwd=tmp_path, env={"DATABASE_URL": api.store.url}),
        CommandLine(cwd=tmp_path, env={"KBSLURM_URL": api.url, "KBSLURM_TOKEN": token}),
    )

    def read(form: str) -> list[list[str]]:
        words = ("grades", "transpose", "--scheme", str(scheme), "--format", form, "--column", "HW 1 (815)")
        here, there = (kbslurm(*words) for kbslurm in ways)
        assert (here.code, here.err) == (0, "") and here.out == there.out
        return list(csv.reader(io.StringIO(here.out)))

    canvas = read("canvas")
    assert canvas[0] == ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", "HW 1 (815)"]
    assert canvas[1] == ["    Points Possible", "", "", "", "", "100"]
    assert canvas[2][:2] == ["Lovelace, Ada", "4711"] and canvas[2][3:] == ["al1", "A", "80"]
    moodle = read("moodle")
    assert moodle[0] == ["First name", "Last name", "ID number", "Email address", "HW 1 (815)", "HW 1 (815) feedback"]
    assert moodle[1][0] == "'=Ada" and moodle[3][3:5] == ["Cyd.C@Example.edu", "0"]
    gradescope = read("gradescope-roster")
    assert gradescope[0][:4] == ["Name", "Email", "SID", "Section"]
    assert gradescope[1][:2] == ["'=Ada Lovelace", "ada@example.edu"]
    plain = read("csv")
    assert plain[0][:2] == ["name", "full_name"] and plain[1][1] == "'=Ada Lovelace" and "#1" in plain[1][-1]

    here, there = (
        kbslurm("grades", "why", "transpose", "bea@example.edu", "--scheme", str(scheme)) for kbslurm in ways
    )
    assert here.out == there.out and here.out.startswith("Bea B: 80 of 100 on transpose\n")
    assert "20 % of the points lost" in here.out
    assert (
        json.loads(ways[0]("grades", "why", "transpose", "bea", "--scheme", str(scheme), "--json").out)["points"] == 80
    )
    told = ways[1]("grades", "transpose", "--scheme", str(scheme))
    assert told.code == 0 and "Cyd C" in told.out
    for words, said in (
        (("transpose", "--scheme", str(tmp_path / "none.toml")), "can't be read"),
        (("transpose", "--scheme", str(scheme), "--format", "excel"), "isn't a format of grades"),
        (("why", "transpose", "zoe", "--scheme", str(scheme)), "no student"),
    ):
        wrong = ways[0]("grades", *words)
        assert wrong.code == 2 and said in wrong.err
    out = tmp_path / "grades.csv"
    assert ways[0]("grades", "transpose", "--scheme", str(scheme), "-f", "csv", "-o", str(out)).code == 0
    assert out.read_text() == ways[0]("grades", "transpose", "--scheme", str(scheme), "-f", "csv").out


def test_without_a_course_whoever_took_part_is_graded_and_teams_count_together(api: ServedApi, host: Client) -> None:
    judged(api, "ada", 0.5)
    judged(api, "bea", 0.25)
    api.store.people.ensure("cyd")
    names = [(row["name"], row["points"]) for row in host.grades("transpose", SCHEME)["grades"]]
    assert names == [("ada", 80), ("bea", 100)]
    for name in ("ada", "bea"):
        host.set_team(f"person:{name}", "blue")
    with psycopg.connect(api.store.url, autocommit=True) as connection:
        connection.execute(b"UPDATE leaderboard SET teams = true")
    judged(api, "bea", 0.28)
    ada, bea = host.grades("transpose", SCHEME)["grades"]
    assert ada["points"] == bea["points"] == 100 and "by bea for team blue" in ada["why"][0]


def test_the_staff_page_grades_and_hands_out_the_files(api: ServedApi, host: Client) -> None:
    course(api, host)
    with browsing(api, "hana", "staff") as hana:
        path = "/staff/board/transpose"
        key = csrf(hana.get(path).text)
        shown = hana.post(f"{path}/grades", data={"csrf": key, "scheme": SCHEME, "format": "table"})
        assert shown.status_code == 200 and "20 % of the points lost" in shown.text
        canvas = hana.post(f"{path}/grades", data={"csrf": key, "scheme": SCHEME, "format": "canvas"})
        assert canvas.headers["content-disposition"] == 'attachment; filename="transpose-canvas.csv"'
        assert canvas.text.startswith("Student,ID,SIS User ID,SIS Login ID,Section,transpose\n")
        wrong = hana.post(f"{path}/grades", data={"csrf": key, "scheme": "by = 3", "format": "table"})
        assert wrong.status_code == 400 and "`by` can" in wrong.text
