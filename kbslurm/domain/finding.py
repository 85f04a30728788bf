"""What a check found: one sentence, a grade, and what to do about it. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Grade(StrEnum):
    """How a check went. UNSEEN: nobody looked; it is neither good nor bad."""

    PASS = "PASS"
    CAUTION = "CAUTION"
    FAIL = "FAIL"
    UNSEEN = "not looked at"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that was looked at. Whatever isn't PASS has a remedy: what to change, or whom to ask for what.

    `where` is empty for this machine, else the node or the GPU type that it was seen at.
    """

    name: str
    grade: Grade
    text: str
    remedy: str = ""
    where: str = ""

    def __post_init__(self) -> None:
        if self.grade is not Grade.PASS and not self.remedy:
            raise ValueError(f"{self.name}: whoever reads {self.grade} wants to know what to do")


def passed(name: str, text: str, *, where: str = "") -> Finding:
    """All is well."""
    return Finding(name=name, grade=Grade.PASS, text=text, where=where)


def caution(name: str, text: str, remedy: str, *, where: str = "") -> Finding:
    """It works, but not as well, or not as safely, as it could."""
    return Finding(name=name, grade=Grade.CAUTION, text=text, remedy=remedy, where=where)


def failed(name: str, text: str, remedy: str, *, where: str = "") -> Finding:
    """Runs will fail, or won't be kept apart."""
    return Finding(name=name, grade=Grade.FAIL, text=text, remedy=remedy, where=where)


def unseen(name: str, text: str, remedy: str, *, where: str = "") -> Finding:
    """Nobody looked."""
    return Finding(name=name, grade=Grade.UNSEEN, text=text, remedy=remedy, where=where)


def worst(findings: Iterable[Finding]) -> Grade:
    """The grade of the whole: FAIL before CAUTION before PASS; what nobody looked at doesn't count."""
    grades = {finding.grade for finding in findings}
    return next((grade for grade in (Grade.FAIL, Grade.CAUTION) if grade in grades), Grade.PASS)
