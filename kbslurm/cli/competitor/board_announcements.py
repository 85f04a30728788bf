"""`kbslurm board announcements`: what hosts told everyone on a board."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kbslurm.cli.arguments import BoardName, Json
from kbslurm.cli.competitor.connect import reached
from kbslurm.cli.context import opened_store
from kbslurm.cli.lookup import board_named
from kbslurm.cli.output import printing
from kbslurm.cli.service_in_use import in_use
from kbslurm.errors import EXIT_OK


def board_announcements(name: BoardName, as_json: Json = False) -> int:
    """Show what hosts told everyone on a board, newest first."""
    found = _found(name)
    if as_json:
        printing.as_json(found)
        return EXIT_OK
    for one in found["announcements"]:
        printing.say(f"{printing.when_told(one['at'])}:")
        printing.say(one["text"])
    if not found["announcements"]:
        printing.say(f"nothing was announced on {found['leaderboard']}")
    return EXIT_OK


def _found(name: str) -> Mapping[str, Any]:
    if (named := in_use()) is not None:
        with reached(named.url, named.token, anybody=True) as client:
            return client.announcements(name)
    from kbslurm.api.hosting.questions import announced

    with opened_store() as store:
        board = board_named(store, name)
        return announced(board.name, store.questions.announcements(board.id))
