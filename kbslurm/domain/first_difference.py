"""The first element of a wrong answer that differs, out of what the judge says of it in a sentence. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

_SENTENCE = re.compile(
    r"the first element that differs from the reference's answer is (?P<where>\S.{0,200}?): (?P<got>[^,;:]{1,80}), not "
    r"(?P<want>[^;]{1,80}); (?P<wrong>\d+) of (?P<whole>\d+) (?P<by>differ[^;]{0,120})(?:; (?P<pattern>.{1,300}))?"
)


@dataclass(frozen=True, kw_only=True)
class FirstDifference:
    """Where, what stood there, what should have, how many differ, and a pattern if one was seen."""

    where: str
    got: str
    want: str
    wrong: int
    whole: int
    by: str
    pattern: str


def of_message(message: str) -> FirstDifference | None:
    """What a test's message says; None if it says something else."""
    found = _SENTENCE.search(message)
    if found is None:
        return None
    told = found.groupdict()
    return FirstDifference(
        where=told["where"],
        got=told["got"],
        want=told["want"],
        wrong=int(told["wrong"]),
        whole=int(told["whole"]),
        by=told["by"],
        pattern=(told["pattern"] or "").rstrip("."),
    )
