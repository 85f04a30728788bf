"""Pseudonyms: stable, one for each, and of no use without the board's key; and which names look alike."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest

from kbslurm.domain.board import Entry
from kbslurm.domain.pseudonyms import BELOW, LEAST, Disguise, outline

AT = datetime(2026, 5, 1, 17, 42, 3, tzinfo=UTC)
ONE = Entry(
    person_id=7, person="ada", submission_id=412, run_id=900, score_s=0.5, low_s=0.4, high_s=0.6, at=AT,
    file_name="ada.py",
)  # fmt: skip
TEAM = Entry(
    person_id=7, person="blue", submission_id=412, run_id=900, score_s=0.5, low_s=0.4, high_s=0.6, at=AT,
    file_name="ada.py", team="blue",
)  # fmt: skip


def test_a_pseudonym_is_stable_and_belongs_to_one_person_on_one_board() -> None:
    here, there = (Disguise(names="anonymous", key=key) for key in ("1" * 32, "2" * 32))
    found = [here.name_of(person, None) for person in range(2000)]
    assert all(re.fullmatch(r"[A-Z][a-z]+ [a-z2-9]{7}", one or "") for one in found)
    assert len(set(found)) == 2000
    assert found[7] == here.name_of(7, None) == here.entry(ONE).person
    assert found[7] != there.name_of(7, None), "another key, another name"
    assert here.name_of(7, "blue") == here.name_of(8, "blue") != found[7], "a team has one, whoever submits"


def test_whoever_is_shown_under_another_name_is_shown_without_what_tells_theirs() -> None:
    seen = Disguise(names="anonymous", key="k").entry(ONE)
    assert min(seen.person_id, seen.submission_id, seen.run_id) >= LEAST
    assert max(seen.person_id, seen.submission_id, seen.run_id) < BELOW
    assert (seen.at, seen.file_name) == (AT.replace(hour=0, minute=0, second=0), "")
    assert (seen.score_s, seen.low_s, seen.high_s) == (0.5, 0.4, 0.6)
    team = Disguise(names="anonymous", key="k").entry(TEAM)
    assert team.team == team.person and "blue" not in repr(team)


def test_nicknames_are_of_those_who_chose_one() -> None:
    seen = Disguise(names="nicknames", key="k", nicknames={7: "Countess"})
    assert seen.entry(ONE).person == "Countess" and seen.entry(ONE).file_name == ""
    assert seen.name_of(8, None) is None and seen.entry(TEAM) == TEAM
    assert Disguise().entry(ONE) == ONE


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Ada", "ADA"), ("Ada Lovelace", "ada-lovelace"), ("Ada", "Adа"), ("Alan", "AIan"), ("Bob", "B0b"),
        ("Zoé", "Zoe"), ("ﬁne", "fine"), ("Ａda", "Ada"),
    ],
)  # fmt: skip
def test_names_that_look_alike_have_one_outline(one: str, other: str) -> None:
    assert outline(one) == outline(other)


def test_other_names_have_another_outline() -> None:
    assert len({outline(one) for one in ("Ada", "Bea", "Ada L", "🦊", "🐻", "李", "王")}) == 7
