"""Errors of a compiler that a submission calls itself (`load_inline`, Triton, a compiler by name): found again in the
lines of its own file, whatever file the compiler saw them in."""

from __future__ import annotations

import re

source = ""  # the submission's text
TEXT_CAP = 1 << 18
LOOK_BACK, LOOK_ON = 6, 4
_CARET = re.compile(r"[\s|]*[\^~]+[\s^~]*$")
_NUMBER = re.compile(r"\s*\d+ \|")
_ERROR = re.compile(r"\berror\b:?\s*(.*)", re.IGNORECASE)


def told(error: BaseException) -> tuple[str, int, str] | None:
    """The compiler's first error that is about a line of the submission's file: what it is, the line, and its text."""
    found = [getattr(error, name, None) for name in ("stderr", "output", "stdout")]
    more = (one.decode("utf-8", "replace") if isinstance(one, bytes) else one for one in found)
    text = "\n".join([str(error), *(one for one in more if isinstance(one, str))])[:TEXT_CAP]
    if "^" not in text or "Traceback (most recent call last)" in text:
        return None
    lines, own = text.splitlines(), [line.strip() for line in source.splitlines()]
    for at, line in enumerate(lines):
        if at == 0 or not _CARET.match(line):
            continue
        code = _NUMBER.sub("", lines[at - 1]).strip()
        above = (_ERROR.search(one) for one in reversed(lines[max(0, at - LOOK_BACK) : at - 1]))
        if own.count(code) != 1 or not code:
            continue
        why = next((one[1] for one in above if one), "")
        why = why or next((one.strip() for one in lines[at + 1 : at + LOOK_ON] if one.strip()), "")
        return why[:300], own.index(code) + 1, code[:200]
    return None
