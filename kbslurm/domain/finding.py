"""What a check found: one sentence, a grade, and what to do about it. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Grade(StrEnum):
    """A check's grade. UNSEEN: not checked, neither good nor bad."""

    PASS = "PASS"
    CAUTION = "CAUTION"
    FAIL = "FAIL"
    UNSEEN = "not looked at"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One check. Anything but PASS has a remedy: what to change, or whom to ask for what.

    `where` is empty for this machine, else the node or GPU type concerned.
    """

    name: str
    grade: Grade
    text: str
    remedy: str = ""
    where: str = ""

    def __post_init__(self) -> None:
        if self.grade is not Grade.PASS and not self.remedy:
            raise ValueError(f"{self.name}: a {self.grade} needs a remedy")


def passed(name: str, text: str, *, where: str = "") -> Finding:
    """All is well."""
    return Finding(name=name, grade=Grade.PASS, text=text, where=where)


def caution(name: str, text: str, remedy: str, *, where: str = "") -> Finding:
    """It works, but not as well or as safely as it could."""
    return Finding(name=name, grade=Grade.CAUTION, text=text, remedy=remedy, where=where)


def failed(name: str, text: str, remedy: str, *, where: str = "") -> Finding:
    """Runs will fail, or won't be isolated."""
    return Finding(name=name, grade=Grade.FAIL, text=text, remedy=remedy, where=where)


def unseen(name: str, text: str, remedy: str, *, where: str = "") -> Finding:
    """Not checked."""
    return Finding(name=name, grade=Grade.UNSEEN, text=text, remedy=remedy, where=where)


def worst(findings: Iterable[Finding]) -> Grade:
    """The overall grade: FAIL before CAUTION before PASS; unchecked ones don't count."""
    grades = {finding.grade for finding in findings}
    return next((grade for grade in (Grade.FAIL, Grade.CAUTION) if grade in grades), Grade.PASS)
