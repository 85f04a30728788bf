"""Findings: what isn't fine says what to do, and the worst grade is the whole's."""

from __future__ import annotations

import pytest

from kbslurm.domain.finding import Finding, Grade, caution, failed, passed, unseen, worst


def test_what_isnt_fine_needs_a_remedy() -> None:
    for grade in (Grade.CAUTION, Grade.FAIL, Grade.UNSEEN):
        with pytest.raises(ValueError, match="needs a remedy"):
            Finding(name="disk", grade=grade, text="is full")
    assert passed("disk", "has room").remedy == ""


def test_the_worst_grade_is_the_wholes_and_what_nobody_looked_at_doesnt_count() -> None:
    fine, odd, bad = passed("a", "a"), caution("b", "b", "mend it"), failed("c", "c", "mend it")
    dark = unseen("d", "d", "look")
    assert worst([]) is Grade.PASS
    assert worst([fine, dark]) is Grade.PASS
    assert worst([fine, odd, dark]) is Grade.CAUTION
    assert worst([odd, bad, fine]) is Grade.FAIL
