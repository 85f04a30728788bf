"""Hidden cases in a compiled reference's comment, out of a text that others may read.

A reference in one file whose types submissions need is given to them whole; its cases stand in it.
"""

from __future__ import annotations

import re

BYTE_ORDER_MARK = "\ufeff"
# As the loader reads them, which may be over lines.
_COMMENTED = re.compile(r"^([ \t]*//\s*)HIDDEN\s*=(?:\s*\[.*\])?.*$", re.MULTILINE)


def without_hidden_comment(text: str) -> str:
    """The same text with an empty list there; every other line stays where it was."""
    if text.startswith(BYTE_ORDER_MARK):
        return BYTE_ORDER_MARK + without_hidden_comment(text.removeprefix(BYTE_ORDER_MARK))
    if "HIDDEN" not in text:
        return text
    return _COMMENTED.sub(lambda found: f"{found[1]}HIDDEN = []" + "\n" * found[0][len(found[1]) :].count("\n"), text)
