"""The bot's memory on bad disks: nothing that was accepted hangs on it, and nothing is said twice for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbslurm.errors import Misconfigured
from kbslurm_bot.state import Card, State, opened

CARD = Card(submission=7, channel=3000, owner=501)


def test_what_was_kept_is_there_again(tmp_path: Path) -> None:
    with opened(tmp_path / "new" / "bot.sqlite") as kept:
        kept.put(CARD)
        kept.keep("a", "1")
    with opened(tmp_path / "new" / "bot.sqlite") as kept:
        assert (kept.open_cards(), kept.card(7), kept.word("a"), kept.word("b")) == ([CARD], CARD, "1", None)


@pytest.mark.parametrize("content", [b"this is no database at all\n" * 100, b"SQLite format 3\x00" + b"\xff" * 5000])
def test_a_broken_file_is_set_aside(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "bot.sqlite"
    file.write_bytes(content)
    with opened(file) as kept:
        kept.keep("a", "1")
        assert kept.open_cards() == []
    (set_aside,) = tmp_path.glob("bot.sqlite.broken-*")
    assert set_aside.read_bytes() == content
    with opened(file) as kept:
        assert kept.word("a") == "1"


def test_what_cant_be_opened_is_told_with_its_remedy(tmp_path: Path) -> None:
    (tmp_path / "bot.sqlite").mkdir()
    (tmp_path / "file").touch()
    for path in (tmp_path / "bot.sqlite", tmp_path / "file" / "bot.sqlite"):
        with pytest.raises(Misconfigured) as told:
            State(path)
        assert told.value.fix == "Set [daemon] state_dir to a folder on a local disk."


def test_a_disk_that_takes_nothing_costs_neither_a_card_nor_silence(tmp_path: Path) -> None:
    with opened(tmp_path / "bot.sqlite") as kept:
        kept._db.execute("PRAGMA query_only = ON")
        kept.put(CARD)
        kept.keep("said:x", "1")
        assert kept.word("said:x") == "1", "it isn't said again while this bot lives"
        kept._db.execute("PRAGMA query_only = OFF")
        kept.put(CARD)
        assert kept.card(7) == CARD
