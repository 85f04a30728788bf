"""What a submission came to: the rank, one's own best before it, the leader; as far as one may see it, and the same by
the database and over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from kbslurm.client.http import Client
from tests.command_line import CommandLine, Said
from tests.flow.stage import HandClock
from tests.flow.test_cli_http import judged
from tests.popcorn.served_api import ADMIN, ServedApi, served


@pytest.fixture
def api(database_url: str, tmp_path: Path) -> Iterator[ServedApi]:
    with served(database_url, tmp_path / "service", clock=HandClock()) as built:
        yield built


@pytest.fixture
def host(api: ServedApi) -> Iterator[Client]:
    with Client(api.url, admin=ADMIN) as client:
        yield client


class Person:
    """Somebody's commands, over HTTP and beside it by the database: both have to say the same."""

    def __init__(self, api: ServedApi, name: str, folder: Path) -> None:
        (folder / name).mkdir()
        token = api.store.tokens.issue(api.store.people.ensure(name).id, now=api.now)
        env = {"KBSLURM_PERSON": name}
        self.http = CommandLine(
            cwd=folder / name, env={**env, "KBSLURM_URL": api.url, "KBSLURM_TOKEN": token, "XDG_CONFIG_HOME": name}
        )
        self.database = CommandLine(cwd=folder / name, env={**env, "DATABASE_URL": api.store.url})

    def __call__(self, *words: str) -> Said:
        here, there = self.http(*words), self.database(*words)
        if words[0] == "board" and "--json" in words:  # the rest of a board isn't all the same
            assert here.json()["own"] == there.json()["own"]
        else:
            assert (here.code, here.out) == (there.code, there.out), (words, here.err, there.err)
        return here

    def watched(self, number: int) -> tuple[list[dict[str, Any]], str]:
        """What `watch` ends with, as JSON and as text."""
        told = self("watch", str(number), "--json")
        assert told.code == 0, told
        return told.json()["places"], self("watch", str(number)).out


def later(api: ServedApi, hours: float = 1) -> None:
    cast("HandClock", api.context.clock).at += timedelta(hours=hours)


def test_watching_ends_with_the_rank_ones_own_best_and_the_leader(api: ServedApi, tmp_path: Path) -> None:
    ada, bob = (Person(api, name, tmp_path) for name in ("ada", "bob"))
    first = judged(api, "ada", 0.5)
    (one,), text = ada.watched(first)
    assert (one["stands"], one["place"]["rank"], one["place"]["of"]) == (True, 1, 1)
    assert one["before"] is None and one["leader"] is None and one["remark"] is None
    assert "rank 1 of 1" in text and "your first score here" in text

    bobs = judged(api, "bob", 0.2)
    faster = judged(api, "ada", 0.4)
    (one,), text = ada.watched(faster)
    assert (one["place"]["rank"], one["place"]["of"], one["place"]["submission_id"]) == (2, 2, faster)
    assert (one["before"]["submission_id"], one["before"]["separated"]) == (first, True)
    assert one["before"]["ratio"] == pytest.approx(1.25)
    assert (one["leader"]["shown_as"], one["leader"]["separated"]) == ("bob", True)
    assert one["leader"]["ratio"] == pytest.approx(0.5)
    assert f"1.25× faster than your best before it, #{first} (500 ms)" in text
    assert "2× slower than the leader, bob (200 ms)" in text

    slower = judged(api, "ada", 0.45)
    (one,), text = ada.watched(slower)
    assert (one["stands"], one["place"]["submission_id"], one["before"]["submission_id"]) == (False, faster, faster)
    assert f"you stay at rank 2 of 2 with #{faster}" in text and "1.13× slower than your best before it" in text

    (one,), text = bob.watched(bobs)
    assert one["leader"] is None and "you lead: 2× faster than the second, ada (400 ms)" in text


def test_what_cannot_be_told_apart_is_called_within_measurement_error(api: ServedApi, tmp_path: Path) -> None:
    ada = Person(api, "ada", tmp_path)
    judged(api, "bob", 0.4)
    judged(api, "ada", 0.402, doubt_s=0.01)
    again = judged(api, "ada", 0.401, doubt_s=0.01)
    (one,), text = ada.watched(again)
    assert (one["before"]["separated"], one["leader"]["separated"]) == (False, False)
    assert (one["place"]["best_rank"], one["place"]["worst_rank"]) == (1, 2)
    assert "rank 2 of 2 (1–2 within measurement error)" in text
    assert "within measurement error of your best before it" in text
    assert "within measurement error of the leader, bob" in text


def test_what_does_not_rank_ends_without_a_rank(api: ServedApi, tmp_path: Path) -> None:
    ada = Person(api, "ada", tmp_path)
    judged(api, "ada", 0.5)
    (tmp_path / "k.py").write_text("def custom_kernel(data):\n    return data\n")
    sent = ada.database("submit", str(tmp_path / "k.py"), "-l", "transpose", "-g", "H100", "-m", "test", "--json")
    number = sent.json()["submission"]
    ada.database("cancel", str(number))
    told = ada("watch", str(number), "--json")
    assert told.code == 130 and told.json()["places"] == []


def test_a_frozen_boards_newer_submissions_get_no_rank_but_ones_own_best(
    api: ServedApi, host: Client, tmp_path: Path
) -> None:
    ada = Person(api, "ada", tmp_path)
    first = judged(api, "ada", 0.5)
    judged(api, "bob", 0.4)
    later(api)
    host.freeze("transpose")
    later(api)
    judged(api, "bob", 0.001)
    number = judged(api, "ada", 0.3)
    (one,), text = ada.watched(number)
    assert (one["stands"], one["place"]["rank"], one["place"]["submission_id"]) == (False, 2, first)
    assert one["leader"]["score"] == pytest.approx(0.4), "what everybody sees, not bob's newest"
    assert one["before"]["submission_id"] == first
    assert "the standings are frozen: this submission isn't in them yet" in text and "1 ms" not in text
    host.unfreeze("transpose")
    (one,), _ = ada.watched(number)
    assert (one["stands"], one["remark"], one["leader"]["score"]) == (True, None, pytest.approx(0.001))


@pytest.mark.parametrize("standings", ["own", "hidden"])
def test_hidden_standings_tell_at_most_ones_own_place(
    api: ServedApi, host: Client, tmp_path: Path, standings: Any
) -> None:
    ada = Person(api, "ada", tmp_path)
    judged(api, "bob", 0.4)
    first, second = judged(api, "ada", 0.6), judged(api, "ada", 0.5)
    host.edit_board("transpose", standings=standings)
    (one,), text = ada.watched(second)
    assert one["leader"] is None and "bob" not in text and "0.4" not in text and "400" not in text
    assert one["before"]["submission_id"] == first, "one's own verdicts, always"
    mine = ada("board", "transpose", "--mine", "--json").json()["own"]
    if standings == "own":
        assert (one["place"]["rank"], one["place"]["neighbours"], one["place"]["leader"]) == (2, [], None)
        assert (mine[0]["rank"], mine[0]["neighbours"], mine[0]["leader"]) == (2, [], None)
    else:
        assert one["place"] is None and mine == []
        assert "the standings are hidden" in text and "hidden" in ada("board", "transpose", "--mine").out


def test_pseudonyms_hold_for_the_leader_and_the_neighbours(api: ServedApi, host: Client, tmp_path: Path) -> None:
    ada = Person(api, "ada", tmp_path)
    judged(api, "beatrice", 0.4)
    number = judged(api, "ada", 0.5)
    host.edit_board("transpose", names="anonymous")
    (one,), text = ada.watched(number)
    board = api.store.boards.get("transpose")
    name = api.store.boards.disguise(board).name_of(api.store.people.ensure("beatrice").id, None)
    assert name and one["leader"]["shown_as"] == name and one["place"]["neighbours"][0]["shown_as"] == name
    mine = ada("board", "transpose", "--mine")
    assert "beatrice" not in text + mine.out and name in mine.out


def test_practice_and_what_became_late_get_no_rank(api: ServedApi, host: Client, tmp_path: Path) -> None:
    ada = Person(api, "ada", tmp_path)
    judged(api, "ada", 0.5)
    later(api, 2)
    number = judged(api, "ada", 0.3)
    with api.store._pool.statement() as connection:  # a deadline in the past, which no host can set any more
        connection.execute(b"UPDATE leaderboard SET deadline_at = %(at)s", {"at": api.now - timedelta(hours=1)})
    told, text = ada.watched(number)
    assert told == [] and "not ranked" in text
    host.edit_board("transpose", practice=True)
    later(api)
    assert ada.watched(judged(api, "ada", 0.2))[0] == []


def test_a_board_shows_ones_own_place_its_neighbours_and_the_gaps(api: ServedApi, tmp_path: Path) -> None:
    ada = Person(api, "ada", tmp_path)
    unranked = ada("board", "transpose", "--mine", "--gpu", "h100")
    assert unranked.code == 0 and "you haven't ranked yet" in unranked.out
    for nth, name in enumerate(("bob", "cleo", "dan", "eve", "ada", "fay", "gus", "hal")):
        judged(api, name, 0.1 * (nth + 1))
    (mine,) = ada("board", "show", "transpose", "--mine", "--gpu", "h100", "--json").json()["own"]
    assert (mine["rank"], mine["of"]) == (5, 8)
    assert [row["shown_as"] for row in mine["neighbours"]] == ["dan", "eve", "fay", "gus"]
    assert (mine["leader"]["shown_as"], mine["leader"]["ratio"]) == ("bob", pytest.approx(0.2))
    text = ada("board", "transpose", "--mine").out
    lines = [line.split() for line in text.splitlines()]
    ranks = [words[0] for words in lines if words and words[0].isdigit()]
    assert ranks == ["1", "3", "4", "5", "6", "7"], text
    assert "5× faster" in text and f"you, #{mine['submission_id']}" in text and "hal" not in text
    bad = ada("board", "transpose", "--mine", "--practice")
    assert bad.code == 2 and not bad.out


def test_whoever_is_not_signed_in_has_no_own_place(api: ServedApi, tmp_path: Path) -> None:
    nobody = CommandLine(cwd=tmp_path, env={"KBSLURM_URL": api.url, "XDG_CONFIG_HOME": str(tmp_path)})
    said = nobody("board", "transpose", "--mine")
    assert said.code == 4 and "you aren't signed in" in said.err


def test_submissions_are_compared_beside_the_rest_of_them(api: ServedApi, tmp_path: Path) -> None:
    ada = Person(api, "ada", tmp_path)
    first, second = judged(api, "ada", 0.5), judged(api, "ada", 0.4)
    asked = (str(first), str(second), "--json")
    assert ada("submission", "diff", *asked).json() == ada("diff", *asked).json()
