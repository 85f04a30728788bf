"""A submission of several files, as one text: a line that lists them, then each below its name, the entry first.

A submission of one file is its plain text. Sizes are in characters, so nothing that a file contains can end it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

MARK = "#!KBSLURM-FILES "
HEAD = "#=== "


class BadBundle(ValueError):
    """A text that begins like a bundle and isn't one."""


def joined(files: Mapping[str, str]) -> str:
    """These files as one text; the first is the entry."""
    listed = json.dumps([[name, len(text)] for name, text in files.items()])
    return f"{MARK}{listed}\n" + "".join(f"{HEAD}{name}\n{text}\n" for name, text in files.items())


def is_bundle(text: str) -> bool:
    return text.startswith(MARK)


def files(text: str) -> dict[str, str]:
    """The files of a bundle, the entry first; BadBundle if the text doesn't match its first line."""
    line, _, rest = text.partition("\n")
    try:
        listed = json.loads(line.removeprefix(MARK))
        rows = [(name, size) for name, size in listed if isinstance(name, str) and type(size) is int and size >= 0]
        if len(rows) != len(listed) or not rows:
            raise ValueError
    except (ValueError, TypeError, RecursionError):
        raise BadBundle("its first line doesn't list files with their sizes") from None
    found: dict[str, str] = {}
    for name, size in rows:
        head = f"{HEAD}{name}\n"
        if name in found:
            raise BadBundle(f"it lists {name} twice")
        if not rest.startswith(head) or rest[len(head) + size : len(head) + size + 1] != "\n":
            raise BadBundle(f"it doesn't contain {name} as its first line says")
        found[name] = rest[len(head) : len(head) + size]
        rest = rest[len(head) + size + 1 :]
    if rest:
        raise BadBundle("it goes on after its last file")
    return found


def parts(text: str) -> tuple[str, dict[str, str]]:
    """The entry's text and the other files of a submission. The entry is among them under its own name where there are
    others, so that they can import it."""
    try:
        found = files(text) if is_bundle(text) else {}
    except BadBundle:
        found = {}
    if not found:
        return text, {}
    return next(iter(found.values())), found


def place_of(entry: str, own: Mapping[str, str]) -> str:
    """Where the file that is called lies: under the problem's name for it at the top, or in a folder of its own beside
    the others of that folder."""
    first = next(iter(own), entry)
    return first if "/" in first else entry
