"""The problem's page and the page to submit from, on the real service: what they tell, and what a form does."""

from __future__ import annotations

import dataclasses
import html
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from kbslurm.api import may_submit
from kbslurm.api.pages.rendering import static_file
from kbslurm.domain.gpu_budgets import HOUR_S, GpuBudget, Held
from kbslurm.domain.run import SubmissionId
from kbslurm.domain.source import SOURCE_CAP, files_of
from kbslurm.flow.submit import accept
from tests.flow import gallery
from tests.flow.stage import HandClock
from tests.flow.test_pages import HIDDEN_SPEC, HOSTILE, browsing, contrast, csrf, judged
from tests.popcorn.served_api import GOOD, ServedApi, served

PROBLEM, SUBMIT = "/problem/transpose", "/problem/transpose/submit"
MULTI = {
    "main.py": "from half import half\n\n\ncustom_kernel = half\n",
    "half.py": "def half(data):\n    return data\n",
}


@pytest.fixture
def api(database_url: str, tmp_path: Path) -> Iterator[ServedApi]:
    with served(database_url, tmp_path, clock=HandClock()) as built:
        yield built


def clock(api: ServedApi) -> HandClock:
    assert isinstance(api.context.clock, HandClock)
    return api.context.clock


def editors(page: str) -> dict[str, str]:
    """What stands in the editors, by their fields' names, as a browser reads it."""
    found = re.findall(r'<textarea [^>]*? name="([^"]+)"[^>]*>\n?(.*?)</textarea>', page, flags=re.DOTALL)
    return {html.unescape(name): html.unescape(text) for name, text in found}


def chosen(page: str, name: str) -> str:
    found = re.search(rf'<input type="radio" name="{name}" value="([^"]*)" checked>', page)
    assert found is not None
    return found[1]


def sent(by: httpx.Client, page: str = "", **fields: Any) -> httpx.Response:
    """The form as browsers send it: lines end in CR LF, and a field for files that holds none is there."""
    token = csrf(page or by.get("/me").text)
    told = {name: value.replace("\n", "\r\n") for name, value in fields.items()}
    return by.post(SUBMIT, data={"csrf": token, "gpu": "H100", "mode": "test", **told}, files=[("file", ("", b""))])


# ------------------------------------------------------------------------------------------------- the problem's page


def test_a_problem_tells_its_task_cases_limits_and_what_the_judge_does(api: ServedApi) -> None:
    store = api.store
    problem = dataclasses.replace(
        store.boards.get("transpose").problem,
        description=f"# The task\n\nTranspose $A^T$. {HOSTILE}\n\n## Bounds\n\n- one\n\n```cuda\nint x;\n```\n",
        tests=({"rows": 1, "kind": "flat"}, {"rows": 8, "wide": True, "shape": [2, 3]}),
        hidden=({"rows": 987654321},),
        sizes={"A100": {"benchmarks": [{"rows": 77}]}},
        ranking_by="mean",
    )
    store.boards.add("told", problem, gpus=["H100", "A100"], now=api.now)
    with browsing(api) as anybody:
        page = anybody.get("/problem/told").text
        for told in (
            '<h3 id="task-the-task">The task</h3>', '<a href="#task-the-task">The task</a>', "<msup><mi>A</mi>",
            "&lt;script&gt;alert(1)", '<span class="c-type">int </span>', "2 tests", "1 benchmark on A100",
            "2 benchmarks on H100", '<td class="number">yes</td>', '<td class="number">2, 3</td>', "512 MiB",
            "The score is the mean of the benchmarks&#39; times", "ranked runs have hidden ones, too",
            "What would improve your score is measured a second time", "kbslurm mcp", "%%submit told --gpu H100",
            "POPCORN_API_URL", "kbslurm submit kernel.py --board told", "/leaderboard submit test",
            'data-copy="with-kbslurm"', "from kbslurm.client import Client",
        ):  # fmt: skip
            assert told in page, told
        assert "987654321" not in page and HIDDEN_SPEC not in page and HOSTILE not in page
        columns = re.findall(r'<th scope="col" class="number">([^<]*)</th>', page.partition("2 tests")[2])[:5]
        assert set(columns[1:]) == {"rows", "kind", "wide", "shape"}, "a column per parameter, each once"


def test_templates_are_shown_to_copy_and_to_begin_with(api: ServedApi) -> None:
    with browsing(api, "ada") as ada:
        page = ada.get(PROBLEM).text
        assert 'id="L3"' in page and 'href="#L3"' in page and 'data-copy="code-L"' in page
        assert '<span class="c-name">custom_kernel</span>' in page and f"{SUBMIT}?template=Python" in page
        begun = ada.get(f"{SUBMIT}?template=Python").text
        template = ada.get(f"{PROBLEM}/template/Python").text
        assert editors(begun) == {"source": template}, "exactly"


def test_colours_of_code_can_be_read() -> None:
    style = static_file("style.css").decode()
    themes = [one for one in re.findall(r":root \{(.+?)\}", style, flags=re.DOTALL) if "--code-keyword" in one]
    papers = [one for one in re.findall(r":root \{(.+?)\}", style, flags=re.DOTALL) if "--paper" in one]
    assert len(themes) == len(papers) == 2
    for theme, paper in zip(themes, papers, strict=True):
        colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", theme))
        below = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", paper))
        assert len(colours) == 7
        for name, colour in colours.items():
            for behind in ("paper", "surface", "raised"):
                assert contrast(colour, below[behind]) >= 4.5, (name, behind)


# ------------------------------------------------------------------------------------------------ before one submits


def test_the_form_tells_the_queue_limits_and_the_time_that_is_left(api: ServedApi) -> None:
    store, now = api.store, api.now
    store.boards.set_deadline("transpose", now + timedelta(days=2, hours=3), by="host", now=now)
    store.limits.set_rate("transpose", "leaderboard", 4, by="host", now=now)
    store.limits.set_quota("transpose", 600.0, by="host", now=now)
    judged(api, "ada")
    bob = store.people.ensure("bob")
    accept(store.intake, bob.id, "transpose", "k.py", GOOD, "test", ["A100"], now)
    with browsing(api) as nobody, browsing(api, "ada") as ada, browsing(api, "bob") as his:
        answer = nobody.get(SUBMIT)
        assert (answer.status_code, answer.headers["location"]) == (303, f"/login?next={SUBMIT}")
        page = ada.get(SUBMIT).text
        for told in ("Closes", "in 2 days 2 h", "1 of 4", "of 600 s", "0 waiting, 0 running", "1 waiting, 0 running",
                     "The scheduler is down; queued runs will start when it is back."):  # fmt: skip
            assert told in page, told
        assert "0 of 4" in his.get(SUBMIT).text, "of one's own"
        assert (chosen(page, "mode"), chosen(page, "gpu")) == ("test", "H100"), "nobody ranks by accident"
        page = ada.get(f"{SUBMIT}?gpu=a100&mode=benchmark").text
        assert (chosen(page, "mode"), chosen(page, "gpu")) == ("benchmark", "A100")


def test_what_would_be_refused_is_told_before_in_the_same_sentence(api: ServedApi) -> None:
    store, now = api.store, api.now

    def told() -> str:
        return html.unescape(ada.get(SUBMIT).text)

    def refusal() -> str:
        answer = sent(ada, name="k.py", source=GOOD.decode(), mode="leaderboard")
        assert answer.status_code in (403, 429, 503), answer.status_code
        page = html.unescape(answer.text)
        assert GOOD.decode() in page, "what was written is there"
        found = re.search(r"It wasn't submitted:</strong> (.+?)</p>", page)
        assert found is not None
        return found[1][1:]

    with browsing(api, "ada") as ada:
        assert '<form method="post" action="/problem/transpose/submit"' in told()
        store.limits.set_rate("transpose", "leaderboard", 0, by="host", now=now)
        assert refusal() in told() and "Leaderboard submissions to transpose per hour: 0 of 0 used" in told()
        assert '<form method="post" action="/problem/transpose/submit"' in told(), "tests still go"
        store.limits.drop_rate("transpose", "leaderboard", by="host", now=now)
        store.settings.set_accepts_jobs(False, by="host", now=now)
        assert refusal() in told() and "Submissions are paused" in told()
        store.settings.set_accepts_jobs(True, by="host", now=now)
        store.boards.set_deadline("transpose", now - timedelta(hours=1), by="host", now=now)
        assert refusal() in told() and "Board transpose closed on" in told()
        assert '<form method="post" action="/problem/transpose/submit"' not in told()
        assert "<textarea" not in told()
        store.limits.extend("transpose", store.people.ensure("ada"), now + timedelta(hours=5), by="host", now=now)
        assert '<form method="post" action="/problem/transpose/submit"' in told() and "in 5 h" in told()
    assert store.submissions.newest() == []


def test_of_a_courses_budgets_people_are_told_their_own_alone(api: ServedApi) -> None:
    own = GpuBudget(course="hpc", scope="person", gpu_s=2 * HOUR_S)
    whole = GpuBudget(course="hpc", scope="course", gpu_s=9 * HOUR_S)
    held = [Held(budget=own, used_s=HOUR_S), Held(budget=whole, used_s=HOUR_S)]
    assert [may_submit._is_own(one, api.now) for one in held] == [True, False]


# ---------------------------------------------------------------------------------------------------------- the form


def test_what_is_written_is_submitted_and_leads_to_its_page(api: ServedApi) -> None:
    with browsing(api, "ada") as ada:
        answer = sent(ada, name="mine.py", source=GOOD.decode())
        assert answer.status_code == 303
        number = SubmissionId(int(answer.headers["location"].removeprefix("/s/")))
        view = api.store.submissions.get(number)
        assert (view.file_name, view.source, view.via) == ("mine.py", GOOD.decode(), "page"), "its lines end as before"
        assert sent(ada, name="mine.py", source=GOOD.decode()).headers["location"] == f"/s/{number}", "once"
        parts = {f"part:{name}": text for name, text in MULTI.items()}
        answer = sent(ada, entry="main.py", **parts)
        view = api.store.submissions.get(SubmissionId(int(answer.headers["location"].removeprefix("/s/"))))
        assert files_of(view.file_name, view.source or "") == MULTI


def test_a_refusal_comes_back_with_what_was_written(api: ServedApi) -> None:
    text = f"\n\n# {HOSTILE}</textarea>\nx = '&lt;'\n"
    with browsing(api, "ada") as ada:
        for fields, status, said in (
            ({"name": "k.txt", "source": text}, 400, "k.txt must end in one of"),
            ({"name": "k.cu", "source": text}, 400, "this problem accepts .py"),
            ({"name": "", "source": text}, 400, "isn't a valid file name"),
            ({"name": "k.py", "source": text, "mode": "odd"}, 400, "there is no mode 'odd'"),
            ({"name": "k.py", "source": text, "gpu": "B200"}, 404, "B200"),
            ({"name": "k.py", "source": f"#!POPCORN leaderboard x\n{text}"}, 400, "the file names leaderboard x"),
            ({"name": "k.py", "source": text, "mode": "profile", "benchmark": "9"}, 400, "has no benchmark 9"),
        ):  # fmt: skip
            answer = sent(ada, **fields)
            assert (answer.status_code, said in html.unescape(answer.text)) == (status, True), answer.text
            assert editors(answer.text)["source"] == fields["source"]
            assert HOSTILE not in answer.text and answer.headers["x-kbslurm-error"] in ("Invalid", "NotFound")
            assert answer.headers["cache-control"] == "no-store"
        answer = sent(ada, name="k.py", source=" \n")
        assert answer.status_code == 400 and "nothing is written" in answer.text
        parts = {f"part:{name}": text for name, text in MULTI.items()}
        answer = sent(ada, entry="none.py", **parts)
        assert answer.status_code == 400 and editors(answer.text) == parts
        form = {"csrf": csrf(ada.get("/me").text), "gpu": "H100", "mode": "odd"}
        answer = ada.post(SUBMIT, data=form, files={"file": ("k.py", GOOD)})
        assert editors(answer.text) == {"source": GOOD.decode()}, "a single file is in the editor from now on"
        answer = ada.post(SUBMIT, data=form, files=[("file", ("a.py", GOOD)), ("file", ("b.zip", b"PK"))])
        assert answer.status_code == 400 and "a.py, b.zip" in answer.text, "these have to be chosen again"
        asks = {"Accept": "application/json"}
        answer = ada.post(SUBMIT, data=form, files={"file": ("k.py", GOOD)}, headers=asks)
        assert answer.status_code == 400 and "there is no mode" in answer.json()["detail"]
    assert api.store.submissions.newest() == []


def test_a_form_of_an_earlier_session_comes_back_with_what_was_written(api: ServedApi) -> None:
    """Whoever has signed in again meanwhile loses nothing; another site's form brings nothing."""
    text = "import sys\n\n\ndef custom_kernel(data):\n    return data\n"
    with browsing(api, "ada") as before, browsing(api, "ada") as ada, browsing(api) as nobody:
        old = before.get(SUBMIT).text
        answer = sent(ada, old, name="mine.py", source=text, mode="benchmark")
        assert answer.status_code == 403 and "this form has expired" in answer.text
        assert editors(answer.text)["source"] == text and 'value="mine.py"' in answer.text
        assert chosen(answer.text, "mode") == "benchmark"
        assert sent(ada, answer.text, name="mine.py", **editors(answer.text)).status_code == 303
        form = {"csrf": csrf(old), "name": "planted.py", "source": "planted = 1", "mode": "test", "gpu": "H100"}
        parts: Any = {"data": form, "files": [("file", ("", b""))]}
        for headers in ({"Sec-Fetch-Site": "cross-site"}, {"Origin": "https://evil.example"}):
            answer = ada.post(SUBMIT, **parts, headers=headers)
            assert answer.status_code == 403 and "planted" not in answer.text, headers
        assert nobody.post(SUBMIT, **parts).status_code == 403
    assert len(api.store.submissions.newest()) == 1


def test_what_is_written_is_measured_as_the_file_that_it_is(api: ServedApi) -> None:
    """A browser sends CR LF: a text within the limit is taken, and one that is over it comes back whole."""
    line = "x = 1\n"
    fits = line * (SOURCE_CAP // len(line))
    with browsing(api, "ada") as ada:
        answer = sent(ada, name="k.py", source=fits)
        assert answer.status_code == 303, answer.text[:2000]
        view = api.store.submissions.get(SubmissionId(int(answer.headers["location"].removeprefix("/s/"))))
        assert view.source == fits
        over = fits + line
        answer = sent(ada, name="k.py", source=over)
        assert answer.status_code == 413 and "over the limit of 1,000,000" in answer.text
        assert editors(answer.text)["source"] == over


def test_a_former_submission_is_changed_or_sent_again_by_its_author_alone(api: ServedApi) -> None:
    number = judged(api, "ada")
    with browsing(api, "ada") as ada, browsing(api, "eve") as eve, browsing(api, "hana", "staff") as hana:
        for other in (eve, hana):
            assert other.get(f"{SUBMIT}?from={number}").status_code == 404
        page = ada.get(f"{SUBMIT}?from={number}").text
        assert editors(page) == {"source": GOOD.decode()} and f"Submission {number}, as it was submitted" in page
        assert (chosen(page, "mode"), chosen(page, "gpu")) == ("leaderboard", "H100")
        again = sent(ada, page, name="k.py", **editors(page), mode="leaderboard")
        view = api.store.submissions.get(SubmissionId(int(again.headers["location"].removeprefix("/s/"))))
        assert view.id != number and view.source == GOOD.decode()
        assert sent(ada, page, name="k.py", **editors(page), mode="leaderboard").headers["location"] == f"/s/{view.id}"

        parts = {f"part:{name}": text for name, text in MULTI.items()}
        several = sent(ada, entry="main.py", **parts).headers["location"].removeprefix("/s/")
        page = ada.get(f"{SUBMIT}?from={several}").text
        assert editors(page) == parts and 'name="entry" value="main.py"' in page
        assert sent(ada, page, entry="main.py", **editors(page)).headers["location"] == f"/s/{several}", "it is open"
        assert ada.get(f"{SUBMIT}?from=999").status_code == 404
        assert ada.get(f"{SUBMIT}?from=x").status_code == 422


def test_a_private_board_has_no_form_for_others(api: ServedApi) -> None:
    api.store.boards.set_visibility("transpose", "closed", by="host", now=api.now)
    with browsing(api, "eve") as eve:
        assert eve.get(SUBMIT).status_code == 404
        answer = sent(eve, name="k.py", source=GOOD.decode())
        assert answer.status_code == 404 and "<textarea" not in answer.text


def test_the_likely_wait_is_told_for_each_gpu_type(api: ServedApi) -> None:
    """As a submission that came now would be told, behind all that are queued."""
    store = api.store
    for _ in range(3):
        gallery.judged(store, "ada", api.now, 0.5)  # it takes 40 s
        clock(api).go(300)
    held: dict[str, dict[str, dict[str, str]]] = {"overflow": {"held_up": {}}}
    store.leases.hold("daemon", "here", 9e6, api.now, info=held)
    with browsing(api, "ada") as ada:
        page = ada.get(SUBMIT).text
        assert page.count("0 waiting, 0 running; starts within a minute") == 2
        for _ in range(3):
            accept(store.intake, store.people.ensure("bob").id, "transpose", "k.py", GOOD, "test", ["H100"], api.now)
        page = ada.get(SUBMIT).text
        assert re.search(r"3 waiting, 0 running; starts (within|in about) [^<]*min", page), "behind these"
        assert "0 waiting, 0 running; starts within a minute" in page
        held["overflow"]["held_up"]["H100"] = "the only site is being drained"
        store.leases.hold("daemon", "here", 9e6, api.now, info=held)
        assert "3 waiting, 0 running; the only site is being drained" in ada.get(SUBMIT).text
