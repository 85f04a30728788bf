"""Who may see what, as tables: nothing of the hidden cases but the class of what happened, and no text gets out of its
block."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbslurm.api.popcorn_submission import fenced
from kbslurm.domain import access
from kbslurm.domain.access import Role, Visibility
from kbslurm.domain.run import PersonId

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
ADA, BEA = PersonId(1), PersonId(2)


@dataclass(frozen=True, kw_only=True)
class Viewer:
    id: PersonId = ADA
    role: Role = "participant"
    banned_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class Submitted:
    person_id: PersonId = ADA
    removed_at: datetime | None = None


MINE, TAKEN_BACK, ANOTHERS = Submitted(), Submitted(removed_at=NOW), Submitted(person_id=BEA)
STAFF, OWNER, BANNED = Viewer(role="staff"), Viewer(role="owner"), Viewer(banned_at=NOW)


@pytest.mark.parametrize(
    ("viewer", "submission", "code", "reasons", "handle"),
    [
        (Viewer(), MINE, True, True, True),
        (Viewer(), TAKEN_BACK, False, False, True),
        (Viewer(), ANOTHERS, False, False, False),
        (BANNED, MINE, True, True, True),
        (STAFF, MINE, True, True, True),
        (STAFF, ANOTHERS, False, True, True),
        (OWNER, ANOTHERS, False, True, True),
        (OWNER, Submitted(person_id=BEA, removed_at=NOW), False, False, True),
    ],
)
def test_whose_submission_is_shown(
    viewer: Viewer, submission: Submitted, code: bool, reasons: bool, handle: bool
) -> None:
    assert access.may_see_submission(viewer, submission) is code
    assert access.may_see_reasons(viewer, submission) is reasons
    assert access.may_handle(viewer.id, viewer.role, submission.person_id) is handle


def test_nobody_sees_a_submission_or_the_staff_page() -> None:
    assert not access.may_see_submission(None, MINE)
    assert not access.may_see_staff_page(None)
    assert not access.may_sign_in(None)
    assert not access.is_staff(None)


@pytest.mark.parametrize(
    ("viewer", "pages", "staff_page", "costs"),
    [
        (Viewer(), True, False, False),
        (BANNED, False, False, False),
        (STAFF, True, True, True),
        (OWNER, True, True, True),
        (Viewer(role="staff", banned_at=NOW), False, False, False),
        (Viewer(role="owner", banned_at=NOW), False, False, False),
    ],
)
def test_what_a_role_opens(viewer: Viewer, pages: bool, staff_page: bool, costs: bool) -> None:
    assert access.may_sign_in(viewer) is pages
    assert access.may_see_staff_page(viewer) is staff_page
    assert access.may_see_costs(viewer) is costs


@pytest.mark.parametrize(
    ("visibility", "invited", "staff", "seen"),
    [
        ("public", False, False, True),
        ("closed", False, False, False),
        ("closed", True, False, True),
        ("closed", False, True, True),
    ],
)
def test_visibility(visibility: Visibility, invited: bool, staff: bool, seen: bool) -> None:
    assert access.may_see_board(visibility, invited=invited, staff=staff) is seen
    assert access.is_for_everybody(visibility) is (visibility == "public")


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
    shown = access.shown_report(detail)
    assert shown is not None and '"S"' not in json.dumps(shown) and "77" not in json.dumps(shown)
    assert shown["phases"] == [
        {"name": "test", "passed": True, "started_at_ns": 1, "ended_at_ns": 2},
        {"name": "hidden", "passed": False},
    ]
    assert (shown["tests"], shown["benchmarks"], shown["log"]) == ([{"phase": "test", "spec": "a"}], [], "mine")
    assert access.shown_report(None) is None
    assert access.shown_cases(detail, "tests") == [{"phase": "test", "spec": "a"}]
    assert access.shown_cases({}, "benchmarks") == []


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
    assert access.shown_progress(beat) == shown  # type: ignore[arg-type]
    assert access.progress_text(shown) == words


@given(st.text(alphabet="`a\n", max_size=40))
def test_no_text_ends_the_block_that_it_stands_in(text: str) -> None:
    fence, shown, end = fenced(text)
    assert (shown, end) == (text, fence) and len(fence) >= 3 and set(fence) == {"`"}
    assert fence not in text
