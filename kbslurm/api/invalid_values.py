"""Values that aren't valid, in plain words: which one, what was sent, and what is allowed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kbslurm.contract.base import WITHOUT_NUL
from kbslurm.domain import contest

# What several calls name differently, and what paths call by a variable's name.
WORDS = {
    "leaderboard_name": "leaderboard",
    "user_id": "person",
    "gpu": "gpus",
    "submission_id": "the submission number",
    "run_id": "the run number",
}
Row = Mapping[str, Any]


def sentence(row: Row) -> str:
    """One value that isn't valid. `row` is what the framework found."""
    kind: str = row["type"]
    if kind == "json_invalid":
        place = next((part for part in row["loc"] if isinstance(part, int)), 0)
        return f"the body isn't valid JSON: {row['ctx']['error']} at character {place}"
    name = _name(row["loc"])
    for beginning, told in _TOLD.items():
        if kind.startswith(beginning):
            return told(name, row)
    return f"{name} isn't valid: {_sent(row)}"


def _name(loc: tuple[str | int, ...]) -> str:
    parts = loc[1:]
    if not parts or isinstance(parts[0], int):
        return "the body"
    name = WORDS.get(str(parts[0]), str(parts[0]))
    return name + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts[1:])


def _sent(row: Row) -> str:
    """What was sent, as JSON's kinds are called."""
    match row["input"]:
        case None:
            return "null"
        case bool() as given:
            return str(given).lower()
        case str() as given:
            return contest.shown(given)
        case dict():
            return "an object"
        case list() | tuple():
            return "a list"
        case bytes():
            return "something that isn't declared as JSON"
        case given:
            return str(given)[:100]


def _must_be(what: str) -> Callable[[str, Row], str]:
    return lambda name, row: f"{name} must be {what}, not {_sent(row)}"


def _bound(words: str, key: str) -> Callable[[str, Row], str]:
    return lambda name, row: f"{name} must be {words} {_amount(row['ctx'][key])}, not {_sent(row)}"


def _amount(bound: Any) -> str:
    return f"{bound:,}" if isinstance(bound, int) else f"{bound:g}" if isinstance(bound, float) else str(bound)


def _count(words: str, key: str) -> Callable[[str, Row], str]:
    return lambda name, row: (
        f"{name} has {row['ctx']['actual_length']} entries, and may have {words} {row['ctx'][key]:,}"
    )


def _too_short(name: str, row: Row) -> str:
    if not row["input"]:
        return f"{name} is empty"
    return f"{name} is too short: {len(row['input'])} characters, at least {row['ctx']['min_length']}"


def _pattern(name: str, row: Row) -> str:
    if row["ctx"]["pattern"] == WITHOUT_NUL:
        return f"{name} contains a NUL character, which it may not"
    return f"{name} must be a number of 1 to 20 digits, not {_sent(row)}"


_OBJECT = _must_be("a JSON object")
_NUMBER = _must_be("a number")
# By how the framework's name for the fault begins; the first that fits.
_TOLD: Mapping[str, Callable[[str, Row], str]] = {
    "missing": lambda name, _: (
        "the request has no body; send a JSON object" if name == "the body" else f"{name} is missing"
    ),
    "int_": _must_be("a whole number"),
    "float_": _NUMBER,
    "finite_number": _must_be("a finite number"),
    "bool_": _must_be("true or false"),
    "string_too_long": lambda name, row: contest.too_long(name, len(row["input"]), row["ctx"]["max_length"]),
    "string_too_short": _too_short,
    "string_pattern_mismatch": _pattern,
    "string_": _must_be("text"),
    "literal_error": lambda name, row: f"{name} must be {row['ctx']['expected']}, not {_sent(row)}",
    "greater_than_equal": _bound("at least", "ge"),
    "less_than_equal": _bound("at most", "le"),
    "greater_than": _bound("more than", "gt"),
    "less_than": _bound("less than", "lt"),
    "list_type": _must_be("a list"),
    "too_long": _count("at most", "max_length"),
    "too_short": _count("no fewer than", "min_length"),
    "dict_": _OBJECT,
    "model_": _OBJECT,
}
