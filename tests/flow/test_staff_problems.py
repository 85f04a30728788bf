"""What hosts did only by command and now do on a page, too: adding problems, issuing tokens, making a version live, and
what shadow runs say."""

from __future__ import annotations

import html
import io
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from kbslurm.domain.run import PersonId
from kbslurm.flow.queue import claim, free_slots
from kbslurm.flow.score import score
from tests.flow import gallery
from tests.flow.puppet import Puppet, sealed_report
from tests.flow.stage import HandClock
from tests.flow.test_pages import HOSTILE, browsing, csrf, judged
from tests.flow.test_staff_pages import confirmed, sent, words
from tests.popcorn.served_api import TRANSPOSE, ServedApi, served

PROBLEMS = "/staff/problems"


@pytest.fixture
def api(database_url: str, tmp_path: Path) -> Iterator[ServedApi]:
    with served(database_url, tmp_path / "service", clock=HandClock()) as built:
        built.store.people.ensure("hana", "owner")
        yield built


@pytest.fixture
def hana(api: ServedApi) -> Iterator[httpx.Client]:
    with browsing(api, "hana", "owner") as browser:
        yield browser


def packed(**changed: str) -> bytes:
    """The example as a zip, with these texts at the end of its files."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for file in sorted(TRANSPOSE.rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                name = file.relative_to(TRANSPOSE).as_posix()
                archive.writestr(name, file.read_text() + changed.get(file.stem, ""))
    return data.getvalue()


def added(browser: httpx.Client, name: str, data: bytes | None, file: str = "problem.zip") -> httpx.Response:
    form = {"csrf": csrf(browser.get("/me").text), "name": name, "entry": ""}
    files = {"file": (file, data)} if data is not None else {"file": ("", b"")}
    return browser.post(PROBLEMS, data=form, files=files, headers={"Accept": "text/html"})


def test_a_problem_is_added_with_what_trying_it_found_and_a_board_is_made_on_it(
    api: ServedApi, hana: httpx.Client
) -> None:
    answer = added(hana, "turning", packed())
    assert answer.status_code == 200, answer.text
    told = words(answer.text)
    (version,) = (one for one in api.store.problems.all() if one.name == "turning")
    assert (
        f"turning has version {version.id}, its first." in told and f"Its inputs were tried: {version.inputs}" in told
    )
    assert 'href="/staff/boards/new?problem=turning"' in answer.text
    assert "<option selected>turning</option>" in hana.get("/staff/boards/new?problem=turning").text
    (act,) = api.store.events.audit_log(limit=1)
    assert act.data["by"] == "hana" and act.data["via"] == "page"
    rows = hana.get(f"{PROBLEMS}.json").json()
    assert [row["boards"] for row in rows if row["name"] == "transpose"] == [["transpose"]]


def test_a_problem_that_is_wrong_comes_back_with_one_sentence_and_nothing_is_stored(
    api: ServedApi, hana: httpx.Client
) -> None:
    before = [one.id for one in api.store.problems.all()]
    raises = packed(reference="\n\ndef generate_input(**told):\n    raise ValueError('no input')\n")
    for name, data, file, said in (
        ("turning", None, "", "no file was chosen"),
        ("turning", b"PK\x03\x04 nothing", "p.zip", "zip"),
        ("turning", b"def f(:\n", "p.py", "p.py"),
        ("turning", packed(), "../../etc/p q.zip", "isn't a valid file name here"),
        (HOSTILE[:64], packed(), "p.zip", "name"),
        ("turning", raises, "p.zip", "no input"),
    ):
        answer = added(hana, name, data, file)
        assert answer.status_code in (400, 413), (file, answer.status_code)
        assert "It wasn't added:" in answer.text and said in html.unescape(answer.text), (
            file,
            words(answer.text)[:900],
        )
        assert HOSTILE not in answer.text and f'value="{html.escape(name)}"' in answer.text
        assert "/tmp/" not in answer.text and "Traceback" not in answer.text
    assert [one.id for one in api.store.problems.all()] == before


def test_only_staff_add_problems(api: ServedApi) -> None:
    before = [one.id for one in api.store.problems.all()]
    with browsing(api, "eve") as eve, browsing(api) as nobody:
        assert added(eve, "turning", packed()).status_code == 403 and eve.get(PROBLEMS).status_code == 403
        assert nobody.post(PROBLEMS, files={"file": ("p.zip", packed())}).status_code == 403
        assert nobody.get(PROBLEMS).headers["location"].startswith("/login")
    assert [one.id for one in api.store.problems.all()] == before


def test_a_version_becomes_live_once_it_is_confirmed(api: ServedApi, hana: httpx.Client) -> None:
    old = api.store.boards.get("transpose")
    name = old.problem_name
    judged(api, "ada", 0.5)
    assert 'name="version"' not in hana.get("/staff/board/transpose").text, "there is no other"
    answer = added(hana, name, packed(reference="\n# another version\n"))
    assert re.search(r"has version \d+, its 2nd\.", words(answer.text))
    assert "It isn't live yet" in answer.text and 'href="/staff/board/transpose#to-judging"' in answer.text, answer.text
    new = max(one.id for one in api.store.problems.all() if one.name == name)
    assert new != old.problem_version_id
    assert f'<option value="{new}">' in hana.get("/staff/board/transpose").text
    asked = sent(hana, "/staff/board/transpose/version", version=str(new))
    assert f"Make version {new} live on transpose?" in words(asked.text)
    assert api.store.boards.get("transpose").problem_version_id == old.problem_version_id, "nothing yet"
    done = confirmed(hana, "/staff/board/transpose/version", version=str(new))
    assert done.status_code == 303
    assert api.store.boards.get("transpose").problem_version_id == new
    again = sent(hana, "/staff/board/transpose/version", version=str(new))
    assert again.status_code == 409 and "is the live one of transpose already" in words(again.text)
    for text, status in (("x", 400), ("", 400), ("999999", 404)):
        wrong = sent(hana, "/staff/board/transpose/version", version=text, confirmed="yes")
        assert wrong.status_code == status, (text, wrong.text)


def test_a_token_is_issued_and_shown_once(api: ServedApi, hana: httpx.Client) -> None:
    ada = api.store.people.ensure("ada")
    path = f"/staff/people/{ada.id}"
    answer = sent(hana, f"{path}/token", device=HOSTILE[:60], days="30")
    assert answer.status_code == 200 and answer.headers["cache-control"] == "no-store"
    found = re.search(r'<code id="token">([^<]+)</code>', answer.text)
    assert found is not None
    secret = html.unescape(found[1])
    owner = api.store.tokens.person_of(secret, now=api.now)
    assert owner is not None and owner.id == ada.id
    later = hana.get(path).text
    assert secret not in later and HOSTILE[:60] not in later, "it is told only once"
    service = sent(hana, f"{path}/token", device="trainer", service="yes", gpu_s="7200")
    assert "this person's program" in html.unescape(service.text)
    assert [one["kind"] for one in tokens(api, ada.id)].count("service") == 1
    for fields, said in (
        ({"days": "0"}, "isn't a number of days"),
        ({"days": "99999"}, "isn't a number of days"),
        ({"gpu_s": "nan", "service": "yes"}, "isn't a number of GPU-seconds"),
        ({"gpu_s": "10"}, "only a service token has a quota of its own"),
    ):
        count = len(tokens(api, ada.id))
        wrong = sent(hana, f"{path}/token", device="mine", **fields)
        assert wrong.status_code == 400 and said in html.unescape(wrong.text), fields
        assert 'value="mine"' in wrong.text and len(tokens(api, ada.id)) == count
    assert secret not in str([event.data for event in api.store.events.audit_log(limit=50)])


def test_nobody_gets_a_token_of_somebody_with_more_rights(api: ServedApi) -> None:
    owner = api.store.people.ensure("hana").id
    with browsing(api, "tom", "staff") as tom, browsing(api, "eve") as eve:
        for browser in (tom, eve):
            count = len(tokens(api, owner))
            answer = sent(browser, f"/staff/people/{owner}/token", device="x")
            assert answer.status_code == 403 and 'id="token"' not in answer.text
            assert len(tokens(api, owner)) == count


def tokens(api: ServedApi, person: PersonId) -> list[dict[str, str]]:
    return [{"kind": one.kind} for one in api.store.tokens.of_person(person)]


def test_the_shadow_runs_page_says_how_times_elsewhere_compare(api: ServedApi, hana: httpx.Client) -> None:
    path, store = "/staff/board/transpose/shadows", api.store
    page = hana.get(path)
    assert page.status_code == 200 and "No submission of this board was measured elsewhere." in page.text
    assert hana.get(f"{path}.json").json() == []
    number = gallery.judged(store, "ada", api.now, 0.5)
    store.shadows.order(number, "elsewhere", ["H100"], by="hana", now=api.now)
    assert "elsewhere H100 – – 0 nothing to compare yet 1 0" in words(hana.get(path).text)
    slots = free_slots({"elsewhere": Puppet(slots={"H100": 9}).capacity()}, store.attempts.open())
    attempt = claim(store.queue, slots, api.now)
    assert attempt is not None
    report = sealed_report(store.attempts.work(attempt.id), score_s=0.6, interval_s=[0.599, 0.601])
    score(store, attempt, report, api.now)
    told = words(hana.get(path).text)
    assert re.search(r"elsewhere H100 1\.[12]\d+ [\d.]+ to [\d.]+ 1 differs 0 0", told), told
    (row,) = hana.get(f"{path}.json").json()
    assert (row["place"], row["pairs"], row["is_drift"]) == ("elsewhere", 1, True)
    with browsing(api, "eve") as eve:
        assert eve.get(path).status_code == eve.get(f"{path}.csv").status_code == 403
