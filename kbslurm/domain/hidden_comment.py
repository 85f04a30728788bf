"""Hidden cases in a compiled reference's comment, out of a text that others may read.

A reference in one file whose types submissions need is given to them whole; its cases stand in it.
"""

from __future__ import annotations

import re

# As the loader reads them: over several lines, and behind a byte order mark, which a file that was joined from others
# has in the middle as well.
_COMMENTED = re.compile(r"^(\ufeff?[ \t]*//\s*)HIDDEN\s*=(?:\s*\[.*\])?.*$", re.MULTILINE)


def without_hidden_comment(text: str) -> str:
    """The same text with an empty list there; every other line stays where it was."""
    if "HIDDEN" not in text:
        return text
    return _COMMENTED.sub(lambda found: f"{found[1]}HIDDEN = []" + "\n" * found[0][len(found[1]) :].count("\n"), text)
