"""Whether a submission is late, as SQL: it came after the board's deadline and its author's extensions.

`domain.policy.deadline` is the same rule for whoever submits, `kb_extended_to` in `programs` knows the extensions.
"""

from __future__ import annotations


def in_time(submission: str) -> str:
    """Whether a submission, of the board `b`, came before its author's deadline. Extensions, of which there are few,
    are looked up only for what came after the board's."""
    at, own = f"{submission}.accepted_at", _extended_to(submission)
    return f"(b.deadline_at IS NULL OR {at} <= b.deadline_at OR {at} <= {own})"


def late_s(submission: str) -> str:
    """By how many seconds a submission, of the board `b`, came after its author's deadline; 0: it is in time."""
    late = f"extract(epoch FROM {submission}.accepted_at - greatest(b.deadline_at, {_extended_to(submission)}))"
    return f"(CASE WHEN {in_time(submission)} IS TRUE THEN 0 ELSE {late} END)::float8"


def practice(submission: str) -> str:
    """Whether a submission, of the board `b`, came after the end, for practice: whoever was given an extension later
    didn't practise."""
    return f"({submission}.practice IS TRUE AND {in_time(submission)} IS NOT TRUE)"


def _extended_to(submission: str) -> str:
    return f"kb_extended_to({submission}.board_id, {submission}.person_id)"
