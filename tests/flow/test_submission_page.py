"""A submission's page: its verdict in a sentence, its charts, what changed since another; and what it never shows."""

from __future__ import annotations

import html
import json
import re
import zlib
from collections.abc import Iterator
from dataclasses import asdict, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from kbslurm.cli.output.submission import print_submission
from kbslurm.domain.run import SubmissionId
from kbslurm.flow.queue import claim, free_slots
from kbslurm.flow.score import score
from kbslurm.flow.submit import accept
from kbslurm_eval.shared import wire
from tests.flow import gallery
from tests.flow.puppet import Puppet, sealed_report
from tests.flow.stage import HandClock
from tests.flow.test_pages import HOSTILE, browsing
from tests.popcorn.served_api import GOOD, GPUS, WRONG, ServedApi, served
from tests.timed import a_launch

DIFFERS = (
    "the first element that differs from the reference's answer is output[2, 5]: 0, not 3.5; 12 of 64 differ by more "
    "than rtol 1e-05, atol 1e-08; every one is 0; was the answer written?"
)


@pytest.fixture
def api(database_url: str, tmp_path: Path) -> Iterator[ServedApi]:
    with served(database_url, tmp_path, clock=HandClock()) as built:
        yield built


def judged(api: ServedApi, by: str, score_s: float | None, **told: Any) -> SubmissionId:
    assert isinstance(api.context.clock, HandClock)
    api.context.clock.go(60)
    return gallery.judged(api.store, by, api.now, score_s, **told)


def submitted(api: ServedApi, by: str, source: bytes, mode: wire.Mode = "test", **told: Any) -> SubmissionId:
    """One in another mode, with this report."""
    assert isinstance(api.context.clock, HandClock)
    api.context.clock.go(60)
    store, now = api.store, api.now
    person = store.people.ensure(by)
    number = accept(store.intake, person.id, "transpose", "k.py", source, mode, ["H100"], now).submission_id
    attempt = claim(store.queue, free_slots({"puppet": Puppet(slots={"H100": 9}).capacity()}, ()), now)
    assert attempt is not None
    score(store, attempt, sealed_report(store.attempts.work(attempt.id), **told), now)
    return number


def seen(api: ServedApi, by: str, path: str) -> str:
    """The page's words, each run of blanks as one."""
    with browsing(api, by) as browser:
        answer = browser.get(path)
    assert answer.status_code == 200, answer.text
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", answer.text)).split())


def source_of(api: ServedApi, by: str, path: str) -> str:
    with browsing(api, by) as browser:
        return browser.get(path).text


def test_the_verdict_stands_in_a_sentence_with_the_rank_and_the_gap(api: ServedApi) -> None:
    first = judged(api, "ada", 3e-3)
    judged(api, "bob", 4e-3)
    last = judged(api, "cyd", 3.6e-3)
    told = seen(api, "cyd", f"/s/{last}")
    assert re.search(r"Passed: 3\.6\d* ms \+[\d.]+ −[\d.]+, 2nd of 3 on H100, 600 µs behind ada, who leads\.", told), (
        told
    )
    assert re.search(r"Passed: .*?, 1st of 3 on H100, 600 µs ahead of cyd\.", seen(api, "ada", f"/s/{first}"))
    worse = judged(api, "cyd", 3.9e-3)
    told = seen(api, "cyd", f"/s/{worse}")
    assert f"and you stay 2nd of 3 on H100 with #{last}" in told
    assert f"slower than your best before it, #{last} (3.60 ms)." in told
    assert "Your earlier score counts" in told and "It counts on the leaderboard" not in told


def test_scores_that_cannot_be_told_apart_are_said_to_be_so(api: ServedApi) -> None:
    judged(api, "ada", 3e-3, spread=0.05)
    last = judged(api, "cyd", 3.02e-3, spread=0.05)
    told = seen(api, "cyd", f"/s/{last}")
    assert "within measurement error of ada, who leads" in told and "behind ada" not in told


def test_a_page_tells_no_more_of_others_than_the_standings_do(api: ServedApi) -> None:
    judged(api, "ada", 3e-3)
    last = judged(api, "cyd", 3.6e-3)
    edit = api.store.boards.edit
    edit("transpose", by="hana", names="anonymous", now=api.now)
    told = seen(api, "cyd", f"/s/{last}")
    assert "2nd of 2" in told and "ada" not in told and re.search(r"behind [A-Z][a-z]+ [a-z0-9]{7}, who leads", told)
    edit("transpose", by="hana", standings="own", now=api.now)
    told = seen(api, "cyd", f"/s/{last}")
    assert "2nd of 2" in told and "who leads" not in told and "the leader," not in told
    edit("transpose", by="hana", standings="hidden", now=api.now)
    told = seen(api, "cyd", f"/s/{last}")
    assert "2nd" not in told and "who leads" not in told and "Passed: 3.6" in told
    assert "The standings are hidden until the hosts show them." in told


def test_a_wrong_answer_names_its_test_and_shows_the_first_wrong_element(api: ServedApi) -> None:
    tests = [
        wire.TestResult(phase="test", index=n, spec=f"rows: {n}", status="fail" if n else "pass", message=n * DIFFERS)
        for n in (0, 1)
    ]
    hidden = wire.TestResult(phase="hidden", index=0, spec="planted-hidden-spec", status="fail", message="planted")
    number = submitted(api, "ada", WRONG, verdict="wrong", reason="1 of 2 tests failed", tests=[*tests, hidden])
    told = seen(api, "ada", f"/s/{number}")
    assert "Wrong: test 2 (rows: 1) differs at output[2, 5] on H100." in told
    assert "2 rows: 1 output[2, 5] 0 3.5 12 of 64 every one is 0; was the answer written?" in told
    assert "1 of 2 passed" in told and "planted" not in told
    for link in (f"/problem/transpose/submit?from={number}", f"/questions?submission={number}"):
        assert f'href="{link}"' in source_of(api, "ada", f"/s/{number}")


def test_each_case_stands_beside_ones_best_and_the_leader_where_their_code_is_published(api: ServedApi) -> None:
    """Of a leader whose code isn't published only the total is told, which ranks."""
    store, board = api.store, api.store.boards.get("transpose")
    store.boards.set_deadline("transpose", api.now + timedelta(hours=1), zone="UTC", by="hana", now=api.now)
    store.publishing.set_rule(board.id, "deadline", "MIT", by="hana", now=api.now)
    first = judged(api, "cyd", 4.4e-3)
    leads = judged(api, "ada", 3e-3)
    last = judged(api, "cyd", 3.6e-3)
    path = f"/s/{last}"

    def rows() -> list[dict[str, Any]]:
        with browsing(api, "cyd") as cyd:
            return [row for row in cyd.get(f"{path}.json").json() if row["phase"] == "ranked"]

    told = seen(api, "cyd", path)
    assert "Your best before" in told and "this one is 1.22× faster" in told and " Leader " not in told
    assert all(row["before_median"] > row["median"] and row["leader_median"] is None for row in rows())
    assert isinstance(api.context.clock, HandClock)
    api.context.clock.go(2 * 3600)
    told = seen(api, "cyd", path)
    assert " Leader " in told and "this one is 1.2× slower" in told
    (run,) = store.submissions.get(leads).runs
    assert run.verdict is not None
    theirs = [one["median_ns"] / 1e9 for one in (run.verdict.detail or {})["benchmarks"] if one["phase"] == "ranked"]
    assert [row["leader_median"] for row in rows()] == theirs and theirs
    for change in ({"names": "anonymous"}, {"standings": "hidden"}):
        store.boards.edit("transpose", by="hana", now=api.now, **change)  # type: ignore[arg-type]
        assert " Leader " not in seen(api, "cyd", path) and rows()[0]["leader_median"] is None
        store.boards.edit("transpose", by="hana", names="real", standings="shown", now=api.now)
    assert " Leader " in seen(api, "cyd", path)
    store.publishing.set_rule(board.id, "never", "", by="hana", now=api.now)
    assert " Leader " not in seen(api, "cyd", path)
    assert "Your best before" not in seen(api, "cyd", f"/s/{first}"), "there was none"


def test_the_log_is_folded_by_case_and_the_failing_one_is_open(api: ServedApi) -> None:
    tests = [
        wire.TestResult(phase="test", index=n, spec=f"rows: {n}", status="fail" if n else "pass", message="no")
        for n in (0, 1)
    ]
    said = ("loaded\n", "fine\n", f"{HOSTILE}\n")
    parts = [wire.LogPart(phase="test", index=n, size=len(text)) for n, text in zip((None, 0, 1), said, strict=True)]
    number = submitted(api, "ada", WRONG, verdict="wrong", tests=tests, log="".join(said), log_parts=parts)
    page = source_of(api, "ada", f"/s/{number}")
    folds = re.findall(
        r'<details class="case-log"( open)?><summary>(.*?)</summary><pre[^>]*>(.*?)</pre>', page, re.DOTALL
    )
    assert [(bool(is_open), html.unescape(text)) for is_open, _, text in folds] == [
        (False, said[0]), (False, said[1]), (True, said[2])
    ]  # fmt: skip
    heads = [" ".join(re.sub(r"<[^>]+>", " ", head).split()) for _, head, _ in folds]
    assert heads == ["tests, outside of their cases", "test 1 (rows: 0) ✓ pass", "test 2 (rows: 1) ✕ fail"]
    old = submitted(api, "ada", WRONG, verdict="wrong", tests=tests, log="".join(said))
    folds = re.findall(
        r'<details class="case-log"( open)?><summary>(.*?)</summary>', source_of(api, "ada", f"/s/{old}")
    )
    assert folds == [(" open", "What it wrote, all tests together")]


@pytest.mark.parametrize(
    ("told", "says"),
    [
        ({"verdict": "error", "reason": "exit code 1"}, "Error: exit code 1 on H100."),
        ({"verdict": "timeout", "reason": "over 10 s"}, "Out of time: over 10 s on H100."),
        ({"verdict": "memory", "reason": ""}, "Out of memory on H100."),
        ({"verdict": "violation", "reason": HOSTILE}, f"Not allowed: {HOSTILE} on H100."),
        ({"verdict": "passed"}, "Passed on H100."),
    ],
)  # fmt: skip
def test_every_verdict_is_a_sentence(api: ServedApi, told: dict[str, Any], says: str) -> None:
    number = submitted(api, "ada", GOOD, **told)
    with browsing(api, "ada") as browser:
        text = browser.get(f"/s/{number}").text
    assert HOSTILE not in text
    (found,) = re.findall(r'<p class="says">(.*?)</p>', text)
    assert html.unescape(re.sub(r"</?strong>", "", found)) == says


def test_what_runs_shows_how_far_it_is(api: ServedApi) -> None:
    store, now = api.store, api.now
    ada = store.people.ensure("ada")
    number = accept(store.intake, ada.id, "transpose", "k.py", GOOD, "leaderboard", ["H100"], now).submission_id
    assert "Waiting for H100, place 1" in seen(api, "ada", f"/s/{number}")
    attempt = claim(store.queue, free_slots({"puppet": Puppet(slots={"H100": 9}).capacity()}, ()), now)
    assert attempt is not None
    assert "Tests" not in seen(api, "ada", f"/s/{number}"), "nothing is known of it yet"
    with psycopg.connect(store.url) as connection:
        beat = {"progress": {"phase": "benchmark", "done": 1, "of": 2}}
        connection.execute("UPDATE run SET state = 'running'")
        connection.execute("UPDATE attempt SET state = 'running', telemetry = %s", (json.dumps(beat),))
    text = source_of(api, "ada", f"/s/{number}")
    assert re.search(r'<li class="done">Tests', text) and re.search(r'<li class="later">Ranked measurement', text)
    assert re.search(r'<li class="now" aria-current="step">Benchmarks <span class="count">1/2</span>', text)
    assert '<progress max="2" value="1"' in text


def test_each_gpu_type_has_its_own_sentence(api: ServedApi) -> None:
    store, now = api.store, api.now
    ada, puppet = store.people.ensure("ada"), Puppet(slots={"H100": 9, "A100": 9})
    number = accept(store.intake, ada.id, "transpose", "k.py", GOOD, "leaderboard", list(GPUS), now).submission_id
    attempt = claim(store.queue, free_slots({"puppet": puppet.capacity()}, ()), now)
    assert attempt is not None
    score(store, attempt, sealed_report(store.attempts.work(attempt.id), score_s=2e-3), now)
    other = next(gpu for gpu in GPUS if gpu != attempt.gpu)
    said = re.findall(r'<p class="says"[^>]*>(.*?)</p>', source_of(api, "ada", f"/s/{number}"))
    told = sorted(re.sub(r"</?strong>", "", one) for one in said)
    assert [one.partition(" ")[0] for one in told] == ["Passed:", "Waiting"]
    assert f"1st of 1 on {attempt.gpu}." in told[0] and f"Waiting for {other}, place 1" in told[1]


def test_every_call_is_drawn_but_those_of_hidden_cases_and_of_rivals(api: ServedApi) -> None:
    number = judged(api, "ada", 3e-3)
    plain = source_of(api, "ada", f"/s/{number}")
    assert plain.count('class="chart strip"') == 2, "of both benchmarks the phase that counts"
    assert "less a null call of 1 µs" in plain
    (run,) = api.store.submissions.get(number).runs
    before = api.store.own_scores.samples(number)[run.id]
    secret = [
        asdict(replace(a_launch("ranked", 0, 0, 9.87e6, calls=3), phase="hidden")),
        asdict(a_launch("ranked", 0, 0, 9.87e6, calls=3, rival=1)),
    ]
    with psycopg.connect(api.store.url) as connection:
        ((data,),) = connection.execute("SELECT data FROM raw_samples").fetchall()
        rows = json.loads(zlib.decompress(data)) + secret
        connection.execute("UPDATE raw_samples SET data = %s", (zlib.compress(json.dumps(rows).encode()),))
    assert api.store.own_scores.samples(number)[run.id] == before
    after = source_of(api, "ada", f"/s/{number}")
    assert (
        after.count('<circle class="sample"') == plain.count('<circle class="sample"')
        and "9.87 ms" not in after
        and "8.87 ms" not in after
    )


def test_the_charts_of_much_that_was_measured_stay_small(api: ServedApi) -> None:
    number = judged(api, "ada", 3e-3)
    with psycopg.connect(api.store.url) as connection:
        ((data,),) = connection.execute("SELECT data FROM raw_samples").fetchall()
        rows = json.loads(zlib.decompress(data))
        for row in rows:
            row["own"]["calls_ns"] = [value + 1000 * k for value in row["own"]["calls_ns"] for k in range(500)]
        connection.execute("UPDATE raw_samples SET data = %s", (zlib.compress(json.dumps(rows).encode()),))
    text = source_of(api, "ada", f"/s/{number}")
    assert text.count('<circle class="sample"') <= 2 * 240 and len(zlib.compress(text.encode())) < 20_000


def test_what_changed_since_another_of_ones_own_stands_side_by_side(api: ServedApi) -> None:
    first = judged(api, "ada", 4e-3)
    other = GOOD + f"# {HOSTILE}\n".encode()
    last = submitted(api, "ada", other, "benchmark", score_s=3e-3, interval_s=[2.99e-3, 3.01e-3])
    text = source_of(api, "ada", f"/s/{last}/diff/{first}")
    assert HOSTILE not in text and "&lt;script&gt;" in text
    told = seen(api, "ada", f"/s/{last}/diff/{first}")
    assert told == seen(api, "ada", f"/s/{first}/diff/{last}"), "the older one is always on the left"
    assert f"#{last} is 1.33× faster than #{first} on H100; the intervals don’t overlap." in told
    assert "k.py: 0 lines removed, 1 added" in told or "kernel.py → k.py: 0 lines removed, 1 added" in told
    assert f'href="/s/{last}/diff/{first}"' in source_of(api, "ada", f"/s/{last}")
    same = judged(api, "ada", 5e-3)
    assert "The code is the same." in seen(api, "ada", f"/s/{same}/diff/{first}")


def test_a_comparison_needs_two_of_ones_own_on_one_board(api: ServedApi) -> None:
    mine, theirs = judged(api, "ada", 4e-3), judged(api, "eve", 3e-3)
    api.store.boards.add("other", api.store.boards.get("transpose").problem, gpus=GPUS, confirm=False, now=api.now)
    elsewhere = judged(api, "ada", 4e-3, board="other")
    with browsing(api, "ada") as ada, browsing(api) as nobody:
        for path in (f"/s/{mine}/diff/{theirs}", f"/s/{theirs}/diff/{mine}", f"/s/{mine}/diff/999"):
            answer = ada.get(path)
            assert answer.status_code == 404 and "eve" not in answer.text
        answer = ada.get(f"/s/{mine}/diff/{elsewhere}")
        assert answer.status_code == 400 and "two boards can&#39;t be compared" in answer.text
        assert nobody.get(f"/s/{mine}/diff/{mine}").headers["location"] == f"/login?next=/s/{mine}/diff/{mine}"


def test_ones_own_list_can_be_narrowed_and_has_scores(api: ServedApi) -> None:
    right = judged(api, "ada", 3e-3)
    wrong = submitted(api, "ada", WRONG, verdict="wrong", reason="no")
    judged(api, "eve", 2e-3)
    told = seen(api, "ada", "/me")
    assert "3.000 ms" in told and f"#{wrong}" in told and "My best 3 ms" in told
    only = seen(api, "ada", "/me?verdict=wrong&board=TRANSPOSE")
    assert f"#{wrong}" in only and f"#{right}" not in only
    assert "None of your submissions are like that." in seen(api, "ada", "/me?board=nowhere")
    with browsing(api, "ada") as browser:
        answer = browser.get("/me?verdict=nonsense")
        assert answer.status_code == 400 and "isn&#39;t a verdict" in answer.text


def test_a_chart_of_ones_scores_has_its_axes_and_its_table(api: ServedApi) -> None:
    for n in range(3):
        judged(api, "ada", 4e-3 / 1.2**n)
    assert isinstance(api.context.clock, HandClock)
    api.context.clock.go(timedelta(days=1).total_seconds())
    last = judged(api, "ada", 2e-3)
    text = source_of(api, "ada", f"/s/{last}")
    (chart,) = re.findall(r'<svg role="img" aria-label="My ranked scores on H100 over time">.*?</svg>', text, re.DOTALL)
    assert len(re.findall(r'<circle class="dot', chart)) == 4 and len(re.findall(r"<text", chart)) >= 5
    assert f"<title>2 ms, #{last}</title>" in chart
    assert f'<tr class="own"><th scope="row"><a href="/s/{last}">' in text


def test_a_devices_times_stand_on_the_page_and_in_the_terminal(
    api: ServedApi, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"phase": "ranked", "index": 0, "claimed_ns": 5_000, "judge_ns": 12_300, "raw_ns": 266_000, "agreed": True}
    number = judged(api, "ada", 3e-3, host={"device": {"times": [row]}})
    says = (
        "evice 5.00 µs as the runner claims, 12.3 µs by the judge's clock less the way there; "
        "with launch, wait and copies 266 µs"
    )
    assert f"D{says}" in seen(api, "ada", f"/s/{number}")
    print_submission(api.store.submissions.get(number))
    assert f"d{says}" in capsys.readouterr().out
