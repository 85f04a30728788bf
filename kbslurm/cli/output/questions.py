"""Questions, answers and announcements as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kbslurm.cli.output import printing
from kbslurm.domain import questions

SHOWN = 60


def about(one: Mapping[str, Any]) -> str:
    """What a question is about: `transpose, submission 12`."""
    return f"{one['leaderboard']}, submission {one['submission']}" if one["submission"] else str(one["leaderboard"])


def first_line(text: str) -> str:
    """The beginning of a text, for a table; as markup."""
    line = text.partition("\n")[0]
    cut = line != text or len(line) > SHOWN
    return printing.escape(line[:SHOWN] + ("…" if cut else ""))


def print_question(one: Mapping[str, Any]) -> None:
    """A question with its answer, as its author or, with more in it, a host sees it."""
    by = f" by {one['person']}" if "person" in one else ""
    kind = "appeal" if one["appeal"] else "question"
    printing.say(f"#{one['id']} {kind}{by} on {about(one)}, {printing.when_told(one['asked_at'])}: {one['state']}")
    printing.say(one["text"] or "(erased)")
    for changed in one["outcome"] or ():
        printing.say(f"judged again: {questions.outcome_in_words(changed)}")
    rejudge = one.get("rejudge")
    if rejudge is not None and rejudge["state"] != "applied":
        printing.say(f"rejudge {rejudge['rejudging']}: {rejudge['state']}")
    if one["answer"] is not None:
        to = "to everyone" if one["to_all"] else "to its author"
        host = f" by {one['answered_by']}" if one.get("answered_by") else ""
        printing.say(f"answered {to}{host}, {printing.when_told(one['answered_at'])}:")
        printing.say(one["answer"] or "(erased)")
