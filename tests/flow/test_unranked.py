"""A run that passes and doesn't rank says so, and why: in each answer, on the page, on the card, with the command."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from kbslurm.flow.queue import claim, free_slots
from kbslurm.flow.score import score
from kbslurm.flow.submit import accept
from kbslurm_bot import cards
from kbslurm_eval.shared.wire import Isolation
from tests.command_line import CommandLine
from tests.flow.puppet import Puppet, sealed_report
from tests.flow.test_pages import browsing
from tests.popcorn.served_api import GOOD, ServedApi, served

WHY = "passed, but at isolation level 0, and runs rank from level 2 on here"


@pytest.fixture
def api(database_url: str, tmp_path: Path) -> Iterator[ServedApi]:
    with served(database_url, tmp_path) as running:
        yield running


def judged(api: ServedApi, board: str, level: int) -> int:
    store, now = api.store, api.now
    ada = store.people.ensure("ada")
    receipt = accept(store.intake, ada.id, board, "k.py", GOOD, "leaderboard", ["H100"], now)
    slots = free_slots({"puppet": Puppet(slots={"H100": 9}).capacity()}, store.attempts.open())
    attempt = claim(store.queue, slots, now)
    assert attempt is not None
    score(
        store,
        attempt,
        sealed_report(store.attempts.work(attempt.id), isolation=Isolation(level=level, means="test")),
        now,
    )
    return receipt.submission_id


@pytest.fixture
def unranked(api: ServedApi) -> int:
    problem = api.store.boards.get("transpose").problem
    api.store.boards.add("strict", problem, gpus=["H100"], confirm=False, min_isolation=2, now=api.now)
    return judged(api, "strict", 0)


def test_every_answer_has_no_score_and_the_reason(api: ServedApi, unranked: int) -> None:
    token = api.store.tokens.issue(api.store.people.ensure("ada").id, now=api.now)
    with httpx.Client(base_url=api.url, headers={"X-Popcorn-Cli-Id": token}, timeout=60) as http:
        whole: dict[str, Any] = http.get(f"/user/submissions/{unranked}").json()
        (line,) = http.get("/user/submissions", params={"leaderboard": "strict"}).json()
        (full,) = http.get(f"/user/submissions/{unranked}/whole").json()["submission"]["runs"]
    assert whole["job"]["status"] == "succeeded"
    public = [run for run in whole["runs"] if run["mode"] == "leaderboard" and not run["secret"]]
    assert [(run["score"], run["not_ranked"], run["passed"]) for run in public] == [(None, WHY, True)]
    assert all(run["not_ranked"] is None for run in whole["runs"] if run not in public)
    assert [(run["score"], run["not_ranked"]) for run in line["runs"]] == [(None, WHY)]
    assert (full["verdict"]["ranked"], full["verdict"]["not_ranked"]) == (False, WHY)

    with browsing(api, "ada") as ada:
        page = ada.get(f"/s/{unranked}").text
        assert f"<strong>Not ranked</strong>: {WHY}." in page and "Score:" not in page
        assert "not ranked" in ada.get("/me").text and "succeeded, not ranked" in ada.get("/me.csv").text


def test_the_command_and_the_card_say_it(api: ServedApi, unranked: int, database_url: str, tmp_path: Path) -> None:
    kbslurm = CommandLine(cwd=tmp_path, env={"DATABASE_URL": database_url})
    assert f"not ranked: {WHY}" in kbslurm("watch", str(unranked), "--once").out
    assert kbslurm("watch", str(unranked), "--json").json()["runs"][0]["not_ranked"] == WHY
    assert "passed (not ranked)" in kbslurm("history").out
    token = api.store.tokens.issue(api.store.people.ensure("ada").id, now=api.now)
    with httpx.Client(base_url=api.url, headers={"X-Popcorn-Cli-Id": token}, timeout=60) as http:
        full = http.get(f"/user/submissions/{unranked}/whole").json()
    said = cards.lines(cards.Shown(full=full, owner=1))[-1]
    assert "not ranked" in said and cards.escaped(WHY) in said


def test_a_run_that_ranks_says_nothing_of_it(api: ServedApi, unranked: int, database_url: str, tmp_path: Path) -> None:
    api.store.boards.edit("strict", by="host", min_isolation=0, now=api.now)
    number = judged(api, "strict", 0)
    told = CommandLine(cwd=tmp_path, env={"DATABASE_URL": database_url})("watch", str(number), "--json").json()
    assert told["runs"][0]["ranked"] and told["runs"][0]["not_ranked"] is None


def test_a_template_names_the_board_that_it_was_asked_from(api: ServedApi) -> None:
    api.store.boards.add("autumn", api.store.boards.get("transpose").problem, gpus=["H100"], now=api.now)
    token = api.store.tokens.issue(api.store.people.ensure("ada").id, now=api.now)
    with httpx.Client(base_url=api.url, headers={"X-Popcorn-Cli-Id": token}, timeout=60) as http:
        for board in ("autumn", "transpose"):
            text = http.get(f"/problem/{board}/template/Python").text
            (row,) = [row for row in http.get("/leaderboards").json() if row["name"] == board]
            assert text == row["task"]["templates"]["Python"] and f"#!POPCORN leaderboard {board}\n" in text
            sent = {"file": ("k.py", text.encode())}
            assert http.post(f"/submission/{board}/H100/test", files=sent).status_code == 202


def test_two_boards_are_not_compared(api: ServedApi, unranked: int, database_url: str, tmp_path: Path) -> None:
    other = judged(api, "transpose", 2)
    kbslurm = CommandLine(cwd=tmp_path, env={"DATABASE_URL": database_url})
    refused = kbslurm("diff", str(unranked), str(other))
    assert refused.code == 2 and "two boards can't be compared" in refused.err and refused.out == ""
    again = judged(api, "transpose", 2)
    assert kbslurm("diff", str(other), str(again)).code == 0


def test_private_and_closed_are_two_words(database_url: str, tmp_path: Path, api: ServedApi) -> None:
    kbslurm = CommandLine(cwd=tmp_path, env={"DATABASE_URL": database_url})
    api.store.people.add("ada")
    api.store.people.add("bob")
    for word in ("closed", "PRIVATE"):
        assert kbslurm("board", "edit", "transpose", "--visibility", "public").code == 0
        assert kbslurm("board", "edit", "transpose", "--visibility", word).code == 0
        assert kbslurm("board", "list", "--json").json()[0]["visibility"] == "closed", "on the wire"
    listed = kbslurm("board", "list").out
    assert "private" in listed and "closed" not in listed
    (tmp_path / "k.py").write_bytes(GOOD)
    refused = kbslurm("submit", "k.py", "-l", "transpose")
    assert refused.code == 5 and "is private" in refused.err and "closed" not in refused.err
    assert kbslurm("board", "edit", "transpose", "--visibility", "public").code == 0
    assert kbslurm("board", "close", "transpose").code == 0
    assert "closed" in kbslurm("board", "list").out
    assert "is closed" in kbslurm("submit", "k.py", "-l", "transpose").err
    wrong = kbslurm("board", "edit", "transpose", "--visibility", "secret")
    assert wrong.code == 2 and "public or private" in wrong.err
