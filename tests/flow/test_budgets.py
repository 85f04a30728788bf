"""Budgets in GPU-hours at home over every door: commands here and over HTTP, the API, the staff's pages."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from kbslurm.api.pages.visitors import Visitors
from kbslurm.api.sessions import SESSION
from tests.command_line import CommandLine
from tests.flow.stage import START, HandClock
from tests.flow.test_courses import by_host, imported
from tests.flow.test_pages import judged
from tests.popcorn.served_api import GOOD, ServedApi, served

PATH = "/admin/courses/gpu/budgets"


@pytest.fixture
def api(database_url: str, tmp_path: Path) -> Iterator[ServedApi]:
    """Ada has used 50 minutes of an H100 on a board of the course `gpu`."""
    with served(database_url, tmp_path, clock=HandClock(), bot="the-bots-own-token") as built:
        imported(built)
        by_host(built, "PATCH", "/admin/leaderboards/transpose", json={"course": "gpu"})
        judged(built, "Ada Lovelace")
        with psycopg.connect(database_url) as connection:
            ends = START + timedelta(minutes=50)
            connection.execute("UPDATE attempt SET started_at = %s, ended_at = %s", (START, ends))
        yield built


def submitted(api: ServedApi, who: str) -> httpx.Response:
    person = api.store.people.find(who)
    assert person is not None
    headers = {"X-Popcorn-Cli-Id": api.store.tokens.issue(person.id, now=api.now)}
    files = {"file": ("kernel.py", GOOD)}
    return httpx.post(f"{api.url}/submission/transpose/H100/test", headers=headers, files=files, timeout=60)


def signed_in(api: ServedApi, name: str, role: str | None = None) -> str:
    """A token; with a role on the course."""
    person = api.store.people.find(name) or api.store.people.add(name, now=api.now)
    if role is not None:
        by_host(api, "PUT", f"/admin/courses/gpu/people/{name}", json={"role": role})
    return api.store.tokens.issue(person.id, now=api.now)


def test_the_refusal_says_what_was_used_and_whom_to_ask(api: ServedApi) -> None:
    by_host(api, "PUT", PATH, json={"gpu_hours": 0.5, "each": "person", "until": "2099-12-24"})
    answer = submitted(api, "Ada Lovelace")
    assert answer.status_code == 429, answer.text
    assert answer.json()["detail"] == (
        "your GPU-hours in course gpu: 0.833 of 0.5 used. The budget ends at 2099-12-24 23:59 UTC; before that ask an"
        " owner of the course or a host for more."
    )
    assert int(answer.headers["Retry-After"]) > 86_400
    assert submitted(api, "Grace Hopper").status_code == 202
    by_host(api, "PUT", PATH, json={"gpu_hours": 0.5, "each": "person"})
    never = submitted(api, "Ada Lovelace")
    assert (never.status_code, "Retry-After" in never.headers) == (429, False)
    by_host(api, "PUT", PATH, json={"gpu_hours": 2, "person": "ada@example.edu"})
    assert submitted(api, "Ada Lovelace").status_code == 202


def test_owners_of_the_course_set_them_and_assistants_see_them(api: ServedApi, tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path / "home"), "KBSLURM_URL": api.url}
    owner, assistant, grader, host = (
        CommandLine(cwd=tmp_path, env={**home, "KBSLURM_TOKEN": signed_in(api, name, role)})
        for name, role in (("otto", "owner"), ("tess", "assistant"), ("gail", "grader"), ("hana", None))
    )
    hana = api.store.people.find("hana")
    assert hana is not None
    api.store.people.set_role(hana.id, "staff", now=api.now)
    set_ = owner("budget", "set", "gpu", "--gpu-hours", "1", "--section", "A", "--json")
    assert set_.code == 0, set_.err
    (told,) = set_.json()["budgets"]
    assert (told["in_words"], told["held"][0]["name"]) == ("section a: 1 GPU-hour", "A")
    (held,) = told["held"]
    figures = {key: round(held[key], 3) for key in ("used_gpu_hours", "open_gpu_hours", "left_gpu_hours", "percent")}
    assert figures == {"used_gpu_hours": 0.833, "open_gpu_hours": 0, "left_gpu_hours": 0.167, "percent": 83.333}
    assert held["state"] == "low"
    for of in (assistant("budget", "show", "gpu"), host("budget", "show", "transpose"), host("budget", "show")):
        assert (of.code, of.err) == (0, "")
        assert "section a: 1 GPU-hour" in of.out and "83 %" in of.out and "low" in of.out, of.out
    assert assistant("budget", "set", "gpu", "--gpu-hours", "9").code == 5
    assert grader("budget", "show", "gpu").code == 5
    assert assistant("budget", "show").code == 4, "which courses there are is for hosts"
    cleared = owner("budget", "clear", "gpu", "--section", "A")
    assert (cleared.code, cleared.out) == (0, "course gpu has no budget in GPU-hours\n")
    assert "no course has a budget" in host("budget", "show").out


def test_hosts_see_that_little_is_left(api: ServedApi, tmp_path: Path, database_url: str) -> None:
    kbslurm = CommandLine(cwd=tmp_path, env={"DATABASE_URL": database_url})
    assert kbslurm("budget", "set", "gpu", "--gpu-hours", "1").code == 0
    line = "course gpu has used 83 % of 1 GPU-hour"
    assert line in " ".join(kbslurm("status", "--no-sites").out.split())
    assert line in by_host(api, "GET", "/admin/overview")["attention"][0]["text"]
    session, _ = staff(api)
    page = httpx.get(f"{api.url}/staff", cookies={SESSION: session}, timeout=60).text
    assert line in page
    assert kbslurm("budget", "set", "gpu", "--gpu-hours", "2").code == 0
    assert line not in kbslurm("status", "--no-sites").out


def staff(api: ServedApi) -> tuple[str, dict[str, str]]:
    """A host's session, and what a form needs."""
    hana = api.store.people.add("hana", "staff", now=api.now)
    session = api.store.tokens.issue(hana.id, kind="web", now=api.now)

    class Browser:
        cookies: Any = {SESSION: session}

    return session, {"csrf": Visitors(api.context).csrf(Browser())}  # type: ignore[arg-type]


def test_the_courses_staff_page_does_all_of_it(api: ServedApi) -> None:
    session, csrf = staff(api)
    with httpx.Client(base_url=api.url, timeout=60, cookies={SESSION: session}) as http:

        def post(**form: str) -> httpx.Response:
            return http.post("/staff/courses/gpu/budget", data={**csrf, **form})

        assert "There is no budget." in http.get("/staff/courses/gpu").text
        assert post(of="", gpu_hours="1").status_code == 303
        assert post(of="person", gpu_hours="2.5", gpu="h100", begins="2026-01-01").status_code == 303
        assert post(of="section", whom="B", gpu_hours="3").status_code == 303
        line = next(iter(api.store.events.audit_log(limit=1)))
        assert (line.kind, line.subject, line.data["by"], line.data["via"]) == (
            "staff.budget", "course:gpu", "hana", "page",
        )  # fmt: skip
        page = http.get("/staff/courses/gpu").text
        for words in (
            "gpu: 1 GPU-hour",
            "each person on H100: 2.5 GPU-hours from 2026-01-01 00:00 UTC",
            "section b: 3",
        ):
            assert f"<caption>{words}" in page, words
        assert '<td class="number">83 %</td>' in page
        for form, why in (
            ({"of": "", "gpu_hours": "many"}, "isn't a number of GPU-hours"),
            ({"of": "", "whom": "Ada", "gpu_hours": "1"}, "Choose a section or a person."),
            ({"of": "section", "whom": "Z", "gpu_hours": "1"}, "Choose one of: A, B."),
            ({"of": "person", "whom": "", "gpu_hours": "1", "gpu": "T4"}, "there is no GPU 'T4'"),
            ({"of": "all", "gpu_hours": "1"}, "there is no kind of budget"),
        ):
            said = post(**form)
            assert said.status_code in (400, 404) and why in said.text, (form, said.status_code, said.text)
        for form in ({"of": ""}, {"of": "person", "gpu": "H100"}, {"of": "section", "whom": "B"}):
            assert post(**form, gpu_hours="").status_code == 303
        assert "There is no budget." in http.get("/staff/courses/gpu").text
        assert http.post("/staff/courses/gpu/budget", data={"csrf": "x", "gpu_hours": "1"}).status_code == 403
