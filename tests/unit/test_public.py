"""What a submission's owner may see: nothing of the hidden cases but the class of what happened, and no text gets out
of its block."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbslurm.api.popcorn_submission import fenced
from kbslurm.domain import eta, public


def test_a_report_keeps_back_what_is_the_hosts() -> None:
    detail = {
        "verdict": "wrong",
        "secret_log": "S",
        "token": "S",
        "nonce": "S",
        "host": {"node": "S"},
        "budget": {"ranked": "S"},
        "log": "mine",
        "tests": [{"phase": "test", "spec": "a"}, {"phase": "hidden", "spec": "S"}],
        "benchmarks": [{"phase": "hidden", "spec": "S"}],
        "phases": [
            {"name": "test", "passed": True, "started_at_ns": 1, "ended_at_ns": 2},
            {"name": "hidden", "passed": False, "started_at_ns": 77, "ended_at_ns": 99, "why": "S"},
        ],
    }
    shown = public.report(detail)
    assert shown is not None and '"S"' not in json.dumps(shown) and "77" not in json.dumps(shown)
    assert shown["phases"] == [
        {"name": "test", "passed": True, "started_at_ns": 1, "ended_at_ns": 2},
        {"name": "hidden", "passed": False},
    ]
    assert (shown["tests"], shown["benchmarks"], shown["log"]) == ([{"phase": "test", "spec": "a"}], [], "mine")
    assert public.report(None) is None


@pytest.mark.parametrize(
    ("beat", "shown", "words"),
    [
        ({"phase": "test", "done": 3, "of": 17, "at_ns": 5}, {"phase": "test", "done": 3, "of": 17}, "test 3/17"),
        ({"phase": "hidden", "done": 3, "of": 17}, {"phase": "hidden"}, "hidden cases"),
        ({"phase": "start", "done": 0, "of": 0}, {"phase": "start"}, "start"),
        ({"phase": "test", "done": 18, "of": 17}, {"phase": "test"}, "test"),
        ({"phase": "test", "done": True, "of": 17}, {"phase": "test"}, "test"),
        ({"phase": "test", "done": "3", "of": "<b>"}, {"phase": "test"}, "test"),
        ({"phase": "\x1b[2J", "done": 1, "of": 2}, None, ""),
        ({"phase": ["test"]}, None, ""),
        ({}, None, ""),
        (None, None, ""),
    ],
)
def test_a_beat_is_shown_only_where_it_is_plainly_one(beat: object, shown: object, words: str) -> None:
    assert public.progress(beat) == shown  # type: ignore[arg-type]
    assert public.in_words(shown) == words


@given(st.text(alphabet="`a\n", max_size=40))
def test_no_text_ends_the_block_that_it_stands_in(text: str) -> None:
    fence, shown, end = fenced(text)
    assert (shown, end) == (text, fence) and len(fence) >= 3 and set(fence) == {"`"}
    assert fence not in text


def test_a_planned_start_may_come_sooner_and_is_never_before_now() -> None:
    assert eta.planned_in_s(600) == (0.0, 630.0)
    assert eta.planned_in_s(-50) == (0.0, 30.0)
