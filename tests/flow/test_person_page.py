"""A person's page shows what boards show of them under their own name, and no more: it links nobody to a pseudonym."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from kbslurm.domain.run import SubmissionId
from tests.flow import gallery
from tests.flow.stage import HandClock
from tests.flow.test_pages import HOSTILE, browsing
from tests.popcorn.served_api import GPUS, ServedApi, served

LICENCE = "MIT"


@pytest.fixture
def api(database_url: str, tmp_path: Path) -> Iterator[ServedApi]:
    with served(database_url, tmp_path, clock=HandClock()) as built:
        yield built


def judged(api: ServedApi, by: str, score_s: float, **told: Any) -> SubmissionId:
    assert isinstance(api.context.clock, HandClock)
    api.context.clock.go(60)
    return gallery.judged(api.store, by, api.now, score_s, **told)


def another_board(api: ServedApi, name: str) -> None:
    api.store.boards.add(name, api.store.boards.get("transpose").problem, gpus=GPUS, confirm=False, now=api.now)


def page_of(api: ServedApi, whose: str, reader: str | None = None) -> tuple[int, str]:
    """Its status and its words."""
    with browsing(api, reader) as browser:
        answer = browser.get(f"/person/{whose}")
    return answer.status_code, " ".join(html.unescape(re.sub(r"<[^>]+>", " ", answer.text)).split())


def test_anybody_reads_places_and_records_that_boards_show(api: ServedApi) -> None:
    judged(api, "ada", 4e-3)
    judged(api, "bob", 3e-3)
    judged(api, "ada", 2e-3)
    judged(api, "ada", 9e-3, gpu="A100")
    status, told = page_of(api, "ADA")
    assert status == 200
    assert "transpose H100 1 of 2 2.000 ms" in told and "transpose A100 1 of 1 9.000 ms" in told
    assert "not published" in told and "Records" in told and "4.000 ms" in told
    assert page_of(api, "bob")[1].count("3.000 ms") == 2, "the place, and the record that it was"
    number = api.store.people.ensure("ada").id
    assert page_of(api, str(number))[0] == 200, "names may have characters that no address has"


@pytest.mark.parametrize("shown", [{"names": "anonymous"}, {"names": "nicknames"}, {"standings": "own"},
                                   {"standings": "hidden"}])  # fmt: skip
def test_a_board_that_hides_people_or_places_is_not_on_it(api: ServedApi, shown: dict[str, Any]) -> None:
    """Not even of somebody who has chosen no nickname: whoever has one could be told from who is missing."""
    judged(api, "ada", 4e-3)
    another_board(api, "open")
    api.store.boards.edit("transpose", by="hana", now=api.now, **shown)
    missing = page_of(api, "nobody")
    assert missing[0] == 404
    for reader in (None, "bob", "ada"):
        status, told = page_of(api, "ada", reader)
        assert status == 404 and "transpose" not in told and "4.000" not in told
    assert page_of(api, "ada")[1].replace("ada", "nobody") == missing[1], "nothing tells whether there is somebody"
    judged(api, "ada", 7e-3, board="open")
    status, told = page_of(api, "ada")
    assert status == 200 and "open H100" in told and "transpose" not in told


def test_a_private_board_is_only_on_it_for_those_who_see_the_board(api: ServedApi) -> None:
    judged(api, "ada", 4e-3)
    store = api.store
    store.boards.set_visibility("transpose", "closed", now=api.now)
    for reader in (None, "eve"):
        assert page_of(api, "ada", reader)[0] == 404
    _, (code,) = store.invites.make(["transpose"], 1, by="hana", now=api.now)
    store.invites.claim(code, store.people.ensure("cyd").id, now=api.now)
    assert "transpose H100 1 of 1" in page_of(api, "ada", "cyd")[1]


def test_what_a_freeze_hides_is_not_on_it(api: ServedApi) -> None:
    judged(api, "ada", 4e-3)
    assert isinstance(api.context.clock, HandClock)
    api.context.clock.go(60)
    api.store.times.freeze("transpose", api.now, by="hana", now=api.now)
    judged(api, "ada", 2e-3)
    judged(api, "bob", 1e-3)
    told = page_of(api, "ada")[1]
    assert "1 of 1 4.000 ms" in told and "2.000" not in told
    assert page_of(api, "bob")[0] == 404


def test_who_is_banned_or_counts_for_a_team_has_no_page(api: ServedApi) -> None:
    store = api.store
    judged(api, "ada", 4e-3)
    judged(api, "eve", 3e-3)
    assert page_of(api, "eve")[0] == 200
    store.people.ban(store.people.ensure("eve").id, "cheated", by="hana", now=api.now)
    assert page_of(api, "eve")[0] == 404
    store.boards.edit("transpose", by="hana", teams=True, now=api.now)
    store.people.set_team(store.people.ensure("bob").id, "team-x", by="hana", now=api.now)
    judged(api, "bob", 1e-3)
    assert page_of(api, "bob")[0] == 404, "the board shows the team, not who is in it"
    assert page_of(api, "ada")[0] == 200


def test_no_account_and_no_address_leads_to_somebody(api: ServedApi) -> None:
    judged(api, "ada", 4e-3)
    ada = api.store.people.ensure("ada").id
    api.store.people.link_account(ada, "discord", "123456")
    with psycopg.connect(api.store.url) as connection:
        connection.execute(
            "INSERT INTO personal_data (person_id, email, changed_at) VALUES (%s, 'ada@example.org', now())", (ada,)
        )
    for whose in ("discord:123456", "123456", "ada@example.org", f"person:{ada}"):
        assert page_of(api, whose)[0] == 404, whose


def test_published_code_is_linked_with_its_licence_and_no_other(api: ServedApi) -> None:
    store = api.store
    board = store.boards.get("transpose").id
    store.publishing.set_rule(board, "consent", LICENCE, by="hana", now=api.now)
    number = judged(api, "ada", 4e-3)
    judged(api, "bob", 3e-3)
    store.publishing.consent(board, store.people.ensure("ada").id, is_given=True, now=api.now)
    link = f"/board/transpose/H100/code/{number}"
    with browsing(api) as anybody:
        assert link not in anybody.get("/person/ada").text, "others may still submit"
        store.boards.close("transpose", by="hana", now=api.now)
        assert isinstance(api.context.clock, HandClock)
        api.context.clock.go(timedelta(hours=1).total_seconds())
        text = anybody.get("/person/ada").text
        assert f'href="{link}"' in text and LICENCE in text
        code = anybody.get(link).text
        assert "data-copy" in code and LICENCE in code
        assert "/code/" not in anybody.get("/person/bob").text, "bob hasn't agreed"


def test_names_are_only_text(api: ServedApi) -> None:
    judged(api, HOSTILE.replace("/", ""), 4e-3)
    with browsing(api) as anybody:
        answer = anybody.get(f"/person/{api.store.people.ensure(HOSTILE.replace('/', '')).id}")
    assert answer.status_code == 200 and "<script>alert" not in answer.text and "&lt;script&gt;" in answer.text
