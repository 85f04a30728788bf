"""Whether a submission was taken back, as SQL: its own author removed it. What staff remove says nothing about it."""

from __future__ import annotations


def taken_back(submission: str) -> str:
    """Whether the first who removed it was its author."""
    return f"""({submission}.removed_at IS NOT NULL AND (
        SELECT e.data ->> 'person' FROM event e
        WHERE e.subject = 'submission:' || {submission}.id AND e.kind = 'submission.removed' ORDER BY e.id LIMIT 1
    ) = {submission}.person_id::text)"""
