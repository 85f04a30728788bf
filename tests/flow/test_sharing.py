"""What boards are outside of their pages: files, pictures, frames of other sites, the cards of links."""

from __future__ import annotations

import csv
import html
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.routing import APIRoute
from PIL import Image

from kbslurm.api.app import create_app
from kbslurm.api.pages.boards.kept_files import KeptFiles
from kbslurm.api.pages.rendering import static_file
from kbslurm.domain.access import NamesShown, StandingsShown
from tests.flow.stage import HandClock
from tests.flow.test_pages import browsing, judged
from tests.flow.test_roles import NAMES
from tests.popcorn.served_api import ServedApi, served

HERE = "http://kernels.example.edu"
BOARD = "/board/transpose/H100"
PICTURE, FRAME = f"{BOARD}/picture.png", f"/embed{BOARD}"
FILES = tuple(f"{path}.{form}" for path in (BOARD, f"{BOARD}/records") for form in ("json", "csv"))
TOML = f'[server]\npublic_url = "{HERE}"\nallowed_hosts = ["127.0.0.1"]\n'


@pytest.fixture
def api(database_url: str, tmp_path: Path) -> Iterator[ServedApi]:
    with served(database_url, tmp_path, clock=HandClock(), toml=TOML) as built:
        yield built


@pytest.fixture
def anybody(api: ServedApi) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=api.url, timeout=60) as client:
        yield client


def rows_of(answer: httpx.Response) -> list[dict[str, Any]]:
    assert answer.status_code == 200, answer.text
    if answer.headers["content-type"] == "application/json":
        found = answer.json()
        assert isinstance(found, list)
        return found
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    return list(csv.DictReader(io.StringIO(answer.text)))


def test_a_boards_tables_are_files_with_what_its_page_shows(api: ServedApi, anybody: httpx.Client) -> None:
    for name, score_s in (("ada", 0.5), ("grace", 0.4), ("linus", 0.9)):
        judged(api, name, score_s)
    for form in ("json", "csv"):
        places, records = (rows_of(anybody.get(f"{path}.{form}")) for path in (BOARD, f"{BOARD}/records"))
        assert [(int(row["rank"]), row["person"]) for row in places] == [(1, "grace"), (2, "ada"), (3, "linus")]
        assert [row["person"] for row in records] == ["ada", "grace"]
        first = places[0]
        assert [round(float(first[name]), 3) for name in ("low_s", "score_s", "high_s")] == [0.39, 0.4, 0.41]
        page = anybody.get(BOARD).text
        assert all(f'href="{path}.{form}"' in page for path in (BOARD, f"{BOARD}/records"))
    assert anybody.get(f"{BOARD}.csv").headers["content-disposition"].endswith('"transpose-H100-places.csv"')
    assert anybody.get("/board/transpose/h100.json").json() == anybody.get(f"{BOARD}.json").json()
    for path in ("/board/nowhere/H100.json", "/board/transpose/T4.csv", "/board/transpose/T4/records.csv"):
        assert anybody.get(path).status_code == 404, path


def test_a_file_is_sent_again_only_when_what_it_shows_has_changed(api: ServedApi, anybody: httpx.Client) -> None:
    judged(api, "ada", 0.5)
    for n, path in enumerate((*FILES, PICTURE, FRAME)):
        etag = anybody.get(path).headers["etag"]
        assert anybody.get(path, headers={"If-None-Match": etag}).status_code == 304, path
        judged(api, f"person-{n}", 0.4 - n / 100, 0.001)
        assert anybody.get(path, headers={"If-None-Match": etag}).status_code == 200, path


def test_the_front_and_ones_own_submissions_are_files(api: ServedApi, anybody: httpx.Client) -> None:
    number = judged(api, "ada")
    assert rows_of(anybody.get("/boards.json")) == [
        {
            "board": "transpose", "gpus": ["H100", "A100"], "visibility": "public", "is_open": True, "deadline": None,
            "gpu": "H100", "people": 1, "leader": "ada", "record_s": pytest.approx(0.5),
        }
    ]  # fmt: skip
    api.store.boards.set_visibility("transpose", "closed", by="host", now=api.now)
    assert rows_of(anybody.get("/boards.csv")) == []
    with browsing(api, "hana", "staff") as hana, browsing(api, "ada") as ada:
        assert rows_of(hana.get("/boards.csv"))[0]["gpus"] == "H100 A100"
        assert rows_of(hana.get("/me.json")) == []
        for form in ("json", "csv"):
            answer = ada.get(f"/me.{form}")
            (mine,) = rows_of(answer)
            assert (int(mine["submission"]), mine["board"], mine["mode"]) == (number, "transpose", "leaderboard")
            assert answer.headers["cache-control"] == "no-store"
            assert anybody.get(f"/me.{form}").headers["location"] == f"/login?next=/me.{form}"


def test_no_spreadsheet_takes_a_name_for_a_formula(api: ServedApi, anybody: httpx.Client) -> None:
    judged(api, '=HYPERLINK("http://evil")')
    for path in (f"{BOARD}.csv", f"{BOARD}/records.csv"):
        (row,) = rows_of(anybody.get(path))
        assert row["person"] == '\'=HYPERLINK("http://evil")'


def test_a_private_board_is_a_file_for_those_invited_and_otherwise_nothing(
    api: ServedApi, anybody: httpx.Client
) -> None:
    judged(api, "ada")
    api.store.boards.set_visibility("transpose", "closed", by="host", now=api.now)
    with browsing(api, "hana", "staff") as hana, browsing(api, "eve") as eve:
        for path in FILES:
            assert [one.get(path).status_code for one in (anybody, eve, hana)] == [404, 404, 200], path
            assert hana.get(path).headers["cache-control"] == "no-store"
        for path in (PICTURE, FRAME):
            assert [one.get(path).status_code for one in (anybody, eve, hana)] == [404, 404, 404], path
        for path in (BOARD, "/problem/transpose"):
            text = hana.get(path).text
            assert "og:" not in text and "/embed/" not in text, path
        assert [one.get("/").status_code for one in (anybody, eve)] == [200, 200]


@pytest.mark.parametrize("names", ["nicknames", "anonymous"])
def test_nothing_names_people_whom_the_page_doesnt_name(
    api: ServedApi, anybody: httpx.Client, names: NamesShown
) -> None:
    judged(api, "adelheid-lovelace")
    ada = api.store.people.ensure("adelheid-lovelace")
    before = Image.open(io.BytesIO(anybody.get(PICTURE).content)).convert("RGB")
    api.store.boards.edit("transpose", by="host", names=names, now=api.now)
    if names == "nicknames":
        api.store.nicknames.choose(api.store.boards.get("transpose"), ada, "swift fox", now=api.now)
    shown = re.findall(r'<th scope="row"><span class="name">([^<]+)</span>', anybody.get(BOARD).text)[0]
    assert shown != "adelheid-lovelace"
    for path in (*FILES, FRAME):
        text = anybody.get(path).text
        assert shown in html.unescape(text) and "lovelace" not in text, path
        if "json" in path:
            assert str(ada.id) not in re.findall(r'"person\w*": "?(\w+)', text)
    after = Image.open(io.BytesIO(anybody.get(PICTURE).content)).convert("RGB")
    assert before.tobytes() != after.tobytes(), "it is drawn anew under the other name"


@pytest.mark.parametrize("standings", ["own", "hidden"])
def test_hidden_standings_are_hidden_everywhere(
    api: ServedApi, anybody: httpx.Client, standings: StandingsShown
) -> None:
    judged(api, "ada")
    api.store.boards.edit("transpose", by="host", standings=standings, now=api.now)
    with browsing(api, "ada") as ada, browsing(api, "hana", "staff") as hana:
        for one in (anybody, ada, hana):
            assert [rows_of(one.get(path)) for path in FILES] == [[]] * len(FILES)
            assert one.get(PICTURE).status_code == 404
            frame = one.get(FRAME).text
            assert "No standings are shown here" in frame and "ada" not in frame and "people" not in frame
        page = anybody.get(BOARD).text
        assert "og:title" in page and "og:image" not in page


def test_a_frozen_board_shows_no_more_than_its_page(api: ServedApi, anybody: httpx.Client) -> None:
    judged(api, "ada", 0.5)
    anybody.get(PICTURE)
    api.store.times.freeze("transpose", api.now, by="host", now=api.now)
    judged(api, "grace", 0.25)
    for path in (*FILES, FRAME):
        text = anybody.get(path).text
        assert "ada" in text and "grace" not in text, path
    assert "grace" not in anybody.get(BOARD).text


def test_a_picture_is_a_png_of_the_size_that_cards_have(api: ServedApi, anybody: httpx.Client) -> None:
    empty = anybody.get(PICTURE)
    for n, name in enumerate(("ada", "بت سبع", "陈景润", "W" * 64, "e" + "\u0301" * 60, "linus")):
        judged(api, name, 0.5 * 1.2**n, 0.3 if n == 1 else 0.01)
    answer = anybody.get(PICTURE)
    for one in (empty, answer):
        assert one.headers["content-type"] == "image/png" and len(one.content) < 60_000
        picture = Image.open(io.BytesIO(one.content))
        picture.load()
        assert picture.size == (1200, 630)
    assert answer.content != empty.content


def test_links_to_public_pages_have_cards(api: ServedApi, anybody: httpx.Client) -> None:
    judged(api, "ada")
    hostile = '"><script>alert(1)</script> & so on'
    api.store.boards.edit("transpose", by="host", description=f"# Task\n\n{hostile}\n\nMore.", now=api.now)
    for path, title, picture in (
        (BOARD, "transpose on H100", f"{HERE}{PICTURE}"),
        ("/problem/transpose", "transpose", f"{HERE}{PICTURE}"),
        ("/", "kbslurm", ""),
    ):
        text = anybody.get(path).text
        told = {
            name: html.unescape(said)
            for name, said in re.findall(r'<meta (?:property|name)="([^"]+)" content="([^"]*)"', text)
        }
        assert told["og:title"] == title and told["og:url"] == f"{HERE}{path}"
        assert told.get("og:image", "") == picture
        assert told["twitter:card"] == ("summary_large_image" if picture else "summary")
        assert "<script>alert" not in text
        if path != "/":
            assert told["og:description"] == hostile


def test_a_board_in_a_frame_knows_nobody_and_may_be_framed(api: ServedApi, anybody: httpx.Client) -> None:
    judged(api, "<img src=x onerror=alert(1)>")
    with browsing(api, "hana", "staff") as hana:
        for query in ("", "?theme=light", "?theme=dark&top=3"):
            mine, theirs = hana.get(FRAME + query), anybody.get(FRAME + query)
            assert mine.content == theirs.content and mine.headers["etag"] == theirs.headers["etag"]
            assert "set-cookie" not in mine.headers and "x-frame-options" not in mine.headers
            policy = mine.headers["content-security-policy"]
            assert "frame-ancestors *" in policy and "form-action 'none'" in policy and "'unsafe" not in policy
            assert "<img" not in mine.text and "hana" not in mine.text and "<form" not in mine.text
            assert 'target="_blank" rel="noopener"' in mine.text
    assert anybody.get(f"{FRAME}?theme=pink").status_code == 422
    assert anybody.get(f"{FRAME}?top=9999").status_code == 422
    snippet = html.unescape(anybody.get(BOARD).text)
    assert f'<iframe src="{HERE}{FRAME}"' in snippet


def test_no_other_page_may_be_framed(api: ServedApi) -> None:
    judged(api, "ada")
    framed, count = set(), 0
    with browsing(api, "hana", "staff") as hana:
        for route in create_app(api.context).routes:
            if not isinstance(route, APIRoute) or "GET" not in (route.methods or ()) or "/live/" in route.path:
                continue
            path = route.path
            for name, value in {**NAMES, "leaderboard": "transpose"}.items():
                path = path.replace(f"{{{name}}}", value)
            with hana.stream("GET", path) as answer:
                policy = answer.headers.get("content-security-policy", "")
                if not answer.headers.get("content-type", "").startswith("text/html"):
                    continue
                count += 1
                if "frame-ancestors 'none'" not in policy or answer.headers.get("x-frame-options") != "DENY":
                    framed.add(route.path)
    assert framed == {"/embed/board/{leaderboard}/{gpu}"} and count > 20


def test_a_theme_is_the_stylesheet_without_the_other_one() -> None:
    both = static_file("style.css").decode()
    light, dark = static_file("light.css").decode(), static_file("dark.css").decode()
    assert both.count("prefers-color-scheme: dark") >= 1
    for one in (light, dark):
        assert "prefers-color-scheme" not in one and "color-scheme: light dark" not in one
        assert one.count("--paper:") == both.count("--paper:")
    assert "@media not all" in light and "@media all" in dark


def test_files_are_made_once_and_do_not_fill_the_memory() -> None:
    kept, made = KeptFiles(most=1000), []

    def make(n: int) -> bytes:
        made.append(n)
        return b"x" * 400

    for n in (1, 1, 2, 1, 3, 2):
        assert len(kept.of(n, "basis", lambda n=n: make(n)).data) == 400  # type: ignore[misc]
    assert made == [1, 2, 3, 2], "the third put out the second, which was asked for least recently"
    kept.of(2, "another basis", lambda: make(2))
    assert made == [1, 2, 3, 2, 2]
    assert len(kept.of(9, "", lambda: b"x" * 5000).data) == 5000, "one that is too large alone is still served"
