"""Comparing: two submissions, one's own or published; two GPU types, as the standings show people."""

from __future__ import annotations

import dataclasses
import html
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kbslurm.domain.run import SubmissionId
from kbslurm.flow.queue import claim, free_slots
from kbslurm.flow.score import score
from kbslurm.store.rejudgings import Wanted
from tests.flow import gallery
from tests.flow.puppet import Puppet, sealed_report
from tests.flow.stage import HandClock
from tests.flow.test_pages import browsing
from tests.popcorn.served_api import ServedApi, served

OTHER_TESTS = ({"rows": 3, "cols": 3, "seed": 1},)


@pytest.fixture
def api(database_url: str, tmp_path: Path) -> Iterator[ServedApi]:
    with served(database_url, tmp_path, clock=HandClock()) as built:
        yield built


def judged(api: ServedApi, by: str, score_s: float, **told: Any) -> SubmissionId:
    assert isinstance(api.context.clock, HandClock)
    api.context.clock.go(60)
    return gallery.judged(api.store, by, api.now, score_s, **told)


def asked(api: ServedApi, query: str, reader: str | None = None) -> tuple[int, str]:
    with browsing(api, reader) as browser:
        answer = browser.get(f"/compare{query}")
    return answer.status_code, " ".join(html.unescape(re.sub(r"<[^>]+>", " ", answer.text)).split())


def test_two_of_ones_own_are_compared_in_a_sentence(api: ServedApi) -> None:
    first, last = judged(api, "ada", 4e-3), judged(api, "ada", 3e-3)
    status, told = asked(api, f"?a={last}&b=%23{first}", "ada")
    assert status == 200
    assert f"#{first} is 1.33× slower than #{last} on H100; the intervals don’t overlap." in told
    noisy = judged(api, "ada", 2.99e-3, spread=0.05)
    assert (
        f"#{noisy} is as fast as #{last} on H100, within measurement error."
        in asked(api, f"?a={last}&b={noisy}", "ada")[1]
    )


def test_others_submissions_are_not_found_unless_they_are_published(api: ServedApi) -> None:
    store = api.store
    board = store.boards.get("transpose").id
    store.publishing.set_rule(board, "consent", "MIT", by="hana", now=api.now)
    theirs, mine, third = judged(api, "eve", 3e-3), judged(api, "ada", 4e-3), judged(api, "cyd", 5e-3)
    for query in (f"?a={mine}&b={theirs}", f"?a={theirs}&b={mine}", f"?a={mine}&b=999", f"?a={theirs}&b={third}"):
        status, told = asked(api, query, "ada")
        assert status == 404 and "eve" not in told and "3.00" not in told, query
    status, _ = asked(api, f"?a={mine}&b={theirs}")
    assert status == 303, "whoever isn't signed in may sign in"
    store.publishing.consent(board, store.people.ensure("eve").id, is_given=True, now=api.now)
    assert asked(api, f"?a={mine}&b={theirs}", "ada")[0] == 404, "the board isn't over"
    store.boards.close("transpose", by="hana", now=api.now)
    assert isinstance(api.context.clock, HandClock)
    api.context.clock.go(3600)
    status, told = asked(api, f"?a={mine}&b={theirs}", "ada")
    assert status == 200 and f"#{theirs} is 1.33× faster than #{mine} on H100" in told and "by eve" in told
    assert "kernel.py" not in told.replace("kernel.py →", ""), "what its author called the file isn't told"
    assert "case 0" not in told, "others' cases aren't public"
    assert asked(api, f"?a={theirs}&b={third}", "ada")[0] == 404
    store.boards.edit("transpose", by="hana", names="anonymous", now=api.now)
    assert asked(api, f"?a={mine}&b={theirs}", "ada")[0] == 404


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("?a=x&b=2", "'x' isn't a submission's number"),
        ("?a=1", "'' isn't a submission's number"),
        ("?board=transpose&gpu=H100&other=h100", "both GPU types are the same"),
    ],
)
def test_what_cannot_be_compared_is_said_in_a_sentence(api: ServedApi, query: str, says: str) -> None:
    status, told = asked(api, query, "ada")
    assert status == 400 and says in told


def test_two_gpu_types_are_compared_by_the_same_people(api: ServedApi) -> None:
    for n, name in enumerate(("ada", "bob", "cyd")):
        judged(api, name, 2e-3 * (n + 1))
        judged(api, name, 4e-3 * (n + 1), gpu="A100")
    judged(api, "dan", 1e-3)
    status, told = asked(api, "?board=transpose&gpu=h100&other=A100")
    assert status == 200
    assert "All 3 are slower on A100 than on H100; the median is 2× slower." in told
    assert re.search(r"bob 4\.000 ms [+\d.]+ [−\d.]+ 8\.000 ms [+\d.]+ [−\d.]+ 2× slower", told) and "dan" not in told
    assert "All 3 are faster on H100 than on A100" in asked(api, "?board=transpose&gpu=A100&other=H100")[1]
    assert asked(api, "?board=transpose&gpu=H100&other=B200")[0] in (400, 404)
    assert "transpose" in asked(api, "")[1] and "GPU type" in asked(api, "?board=transpose")[1]


def test_people_are_shown_as_the_standings_show_them(api: ServedApi) -> None:
    for gpu in ("H100", "A100"):
        judged(api, "ada", 2e-3, gpu=gpu)
    path, edit = "?board=transpose&gpu=H100&other=A100", api.store.boards.edit
    edit("transpose", by="hana", names="anonymous", now=api.now)
    told = asked(api, path, "eve")[1]
    assert "ada" not in told and re.search(r"[A-Z][a-z]+ [a-z0-9]{7} 2\.000 ms", told)
    for standings in ("own", "hidden"):
        edit("transpose", by="hana", standings=standings, now=api.now)
        told = asked(api, path, "eve")[1]
        assert "The standings of this board are hidden" in told and "2.000" not in told
    api.store.boards.set_visibility("transpose", "closed", now=api.now)
    assert asked(api, path, "eve")[0] == asked(api, "?board=nowhere&gpu=H100&other=A100", "eve")[0] == 404
    assert "transpose" not in asked(api, "", "eve")[1]


def another_version(api: ServedApi) -> int:
    """The same problem with other tests, live from now on."""
    board = api.store.boards.get("transpose")
    number = api.store.problems.add(dataclasses.replace(board.problem, tests=OTHER_TESTS), now=api.now)
    api.store.boards.set_live("transpose", number, by="hana", now=api.now)
    return number


def test_two_versions_are_compared_by_the_same_people(api: ServedApi) -> None:
    for name, score_s in (("ada", 2e-3), ("bob", 3e-3), ("cyd", 4e-3)):
        judged(api, name, score_s)
    assert "Two versions" not in asked(api, "?board=transpose")[1], "there is only one"
    another_version(api)
    for name, score_s in (("ada", 1.25e-3), ("bob", 2e-3)):
        judged(api, name, score_s)
    assert "Two versions of its problem" in asked(api, "?board=transpose")[1]
    path = "?board=transpose&gpu=H100&version=1&other=2"
    status, told = asked(api, path)
    assert status == 200 and "Version 1 and version 2 on H100" in told
    assert "All 2 are faster on version 2 than on version 1; the median is 1.55× faster." in told
    assert re.search(r"ada 2\.000 ms [+\d.]+ [−\d.]+ 1\.250 ms", told) and "cyd" not in told
    assert asked(api, "?board=transpose&gpu=H100&version=1&other=3")[0] == 404
    assert asked(api, "?board=transpose&gpu=H100&version=2&other=2")[0] == 400
    store = api.store
    store.people.ban(store.people.ensure("bob").id, "cheated", by="hana", now=api.now)
    assert "The only one who ranks on both" in asked(api, path)[1]
    store.boards.edit("transpose", by="hana", names="anonymous", now=api.now)
    told = asked(api, path, "eve")[1]
    assert "ada" not in told and re.search(r"[A-Z][a-z]+ [a-z0-9]{7} 2\.000 ms", told)
    store.boards.edit("transpose", by="hana", standings="hidden", now=api.now)
    status, told = asked(api, path, "eve")
    assert status == 404 and "2.000" not in told


def test_a_rejudge_that_nobody_applied_is_for_hosts_only(api: ServedApi) -> None:
    judged(api, "ada", 2e-3)
    store, board = api.store, api.store.boards.get("transpose")
    version = store.problems.add(dataclasses.replace(board.problem, tests=OTHER_TESTS), now=api.now)
    store.rejudgings.order("transpose", Wanted(), version, by="hana", now=api.now)
    attempt = claim(store.queue, free_slots({"puppet": Puppet(slots={"H100": 9}).capacity()}, ()), api.now)
    assert attempt is not None
    told = {"score_s": 1e-3, "interval_s": [0.99e-3, 1.01e-3]}
    score(store, attempt, sealed_report(store.attempts.work(attempt.id), **told), api.now)
    assert [one.id for one in store.past_versions.of_board(board)] == [board.problem_version_id]
    assert asked(api, "?board=transpose&gpu=H100&version=1&other=2")[0] == 404
    store.rejudgings.apply("transpose", by="hana", now=api.now)
    told_of_both = asked(api, "?board=transpose&gpu=H100&version=1&other=2")[1]
    assert "The only one who ranks on both is 2× faster on version 2 than on version 1." in told_of_both


def test_what_a_freeze_hides_is_in_no_comparison(api: ServedApi) -> None:
    judged(api, "ada", 2e-3)
    another_version(api)
    assert isinstance(api.context.clock, HandClock)
    api.context.clock.go(60)
    api.store.times.freeze("transpose", api.now, by="hana", now=api.now)
    judged(api, "ada", 1e-3)
    assert asked(api, "?board=transpose&gpu=H100&version=1&other=2", "eve")[0] == 404
