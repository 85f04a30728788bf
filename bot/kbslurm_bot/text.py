"""Text helpers: comma-separated lists, names, errors, and messages that fit."""

from __future__ import annotations

from kbslurm.client.answers import (
    BoardInfo,
)
from kbslurm.errors import KbslurmError


def printable(name: str) -> str:
    """A Discord name as kbslurm keeps names."""
    return " ".join("".join(one if one.isprintable() else " " for one in name).split())[:60]


def sentence(error: KbslurmError) -> str:
    """What went wrong and what to do next, in one or two sentences."""
    text = f"{error.message}." if not error.message.endswith((".", "!", "?")) else error.message
    # Capitalise the first word, unless it is the name of a file or board.
    if text.partition(" ")[0].isalpha():
        text = text[:1].upper() + text[1:]
    return f"{text} {error.hint}" if error.hint else text


ALL_GPUS = "all"


def gpus_named(text: str | None, board: BoardInfo | None) -> list[str]:
    """`H100, A100` → both; `all` is every type of the board; empty is none."""
    named = gpus_typed(text)
    if [one.lower() for one in named] == [ALL_GPUS] and board is not None:
        return list(board.gpus)
    return named


def gpus_typed(text: str | None) -> list[str]:
    """The words between the commas."""
    return [part.strip() for part in (text or "").split(",") if part.strip()]


def fitting(lines: list[str], cap: int = 2000) -> str:
    """As many lines as fit into a message; a line that is too long is cut, and a cut code block is closed."""
    text, fence = "", False
    for line in lines:
        room = cap - len(text) - 8
        if len(line) > room:
            text += f"{line[: room - 1]}…\n" if room > 40 and not fence else ""
            break
        text += line + "\n"
        fence ^= line == "```"
    return text + ("```" if fence else "")
