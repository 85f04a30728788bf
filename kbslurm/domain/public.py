"""What a submission's owner may see of a report or a running job. Pure; all interfaces show this and no more.

Of the hidden cases that is only the kind of outcome: no count, time or message.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

HIDDEN = "hidden"
# For hosts only: the hidden cases' log, what proves a report, the machine, and the length of each phase's launches.
WITHHELD = frozenset({"secret_log", "token", "nonce", "host", "budget"})
PHASES = frozenset({"start", "test", "benchmark", "ranked", HIDDEN, "profile"})
MOST_CASES = 100_000


def report(detail: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """A verdict's detail as its owner may see it."""
    if detail is None:
        return None
    shown = {name: value for name, value in detail.items() if name not in WITHHELD}
    for name in ("tests", "benchmarks"):
        shown[name] = [row for row in detail.get(name, ()) if row.get("phase") != HIDDEN]
    shown["phases"] = [phase(row) for row in detail.get("phases", ())]
    return shown


def phase(row: Mapping[str, Any]) -> dict[str, Any]:
    """A phase of a report; of the hidden one, only whether it passed."""
    return {"name": HIDDEN, "passed": bool(row.get("passed"))} if row.get("name") == HIDDEN else dict(row)


def progress(beat: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """A running job's progress: `phase`, and `done` and `of` if its cases are public.

    It comes from where the submission runs, so anything malformed is None.
    """
    found = (beat or {}).get("phase")
    if not isinstance(found, str) or found not in PHASES:
        return None
    if found == HIDDEN:
        return {"phase": HIDDEN}
    done, of = (beat or {}).get("done"), (beat or {}).get("of")
    if type(done) is not int or type(of) is not int or not 0 <= done <= of <= MOST_CASES or of == 0:
        return {"phase": found}
    return {"phase": found, "done": done, "of": of}


def in_words(told: Mapping[str, Any] | None) -> str:
    """`test 3/17`, `hidden cases`, or nothing."""
    if not told:
        return ""
    name = "hidden cases" if told.get("phase") == HIDDEN else str(told.get("phase", ""))
    return f"{name} {told['done']}/{told['of']}" if "of" in told else name
