"""The stand-in for Discord refuses what Discord refuses; else a test against it would prove nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.fakes.discord import strict

TEXT = {"type": 10, "content": "x"}
BUTTON = {"type": 2, "style": 2, "label": "x", "custom_id": "kb:log:1"}
CONTAINER = {"type": 17, "components": [TEXT, {"type": 1, "components": [BUTTON]}]}
PICTURE: dict[str, Any] = {"type": 12, "items": [{"media": {"url": "attachment://a.png"}, "description": "a"}]}
GOOD: dict[str, Any] = {"flags": strict.V2, "components": [CONTAINER], "allowed_mentions": {"parse": []}}


def test_a_good_one_is_taken() -> None:
    attached = [{"id": 0, "filename": "a.png", "description": "a"}]
    assert refused(GOOD) is None
    assert refused({**GOOD, "components": [PICTURE], "attachments": attached}, files=["a.png"]) is None
    assert refused({"content": "x"}) is None
    assert refused({**GOOD, "components": [PICTURE], "attachments": attached}) is not None, "its file is missing"


def refused(sent: dict[str, Any], files: Sequence[str] = ()) -> str | None:
    try:
        strict.message(sent, files=files)
    except strict.Refusal as refusal:
        return str(refusal)
    return None


@pytest.mark.parametrize(
    "changes",
    [
        {"content": "beside components"},
        {"components": []},
        {"components": [TEXT] * 41},
        {"components": [{"type": 10, "content": "x" * 2001}] * 2},
        {"components": [BUTTON]},
        {"components": [{**CONTAINER, "colour": 1}]},
        {"components": [{"type": 1, "components": [BUTTON, BUTTON]}]},
        {"components": [{"type": 1, "components": [{**BUTTON, "label": "x" * 81}]}]},
        {"components": [{"type": 99}]},
        {"nonce": "x" * 26},
        {"surprise": 1},
        {"components": [PICTURE]},
        {"components": [{"type": 12, "items": []}]},
        {"components": [{"type": 12, "items": PICTURE["items"] * 11}]},
        {"components": [{"type": 12, "items": [{"media": {"url": "a.png"}}]}]},
        {"components": [{"type": 12, "items": [{"media": {"url": "https://x.example/a.png"}, "alt": "a"}]}]},
        {"attachments": [{"id": 0, "filename": "a.png"}]},
    ],
)
def test_a_bad_message_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(strict.Refusal):
        strict.message({**GOOD, **changes})


@pytest.mark.parametrize(
    "command",
    [
        {"name": "Loud", "description": "x"},
        {"name": "x", "description": ""},
        {"name": "x", "description": "x" * 101},
        {
            "name": "x",
            "description": "x",
            "options": [{"name": f"o{n}", "description": "x", "type": 3} for n in range(26)],
        },
        {
            "name": "x",
            "description": "x",
            "options": [
                {"name": "a", "description": "x", "type": 3},
                {"name": "b", "description": "x", "type": 3, "required": True},
            ],
        },
    ],
)
def test_a_bad_command_is_refused(command: dict[str, Any]) -> None:
    with pytest.raises(strict.Refusal):
        strict.commands([command])
