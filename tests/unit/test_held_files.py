"""What a runner keeps in files is its own, whatever it puts in a folder's place while the judge looks."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

from kbslurm_eval.cage.held_files import HeldFiles

LARGE = 1 << 20
scandir = os.scandir


@pytest.fixture
def own(tmp_path: Path) -> Path:
    (tmp_path / "own" / "inside" / "deeper").mkdir(parents=True)
    (tmp_path / "own" / "inside" / "deeper" / "mine").write_bytes(bytes(LARGE))
    (tmp_path / "others" / "deeper").mkdir(parents=True)
    for name in ("one", "deeper/two"):
        (tmp_path / "others" / name).write_bytes(bytes(4 * LARGE))
    return tmp_path / "own"


class SwappedOnceSeen:
    """The listing of a folder; when it has been read, a link is where the other folder was."""

    def __init__(self, listing: Any, swapped: Path, to: Path) -> None:
        self._listing, self._swapped, self._to = listing, swapped, to

    def __enter__(self) -> Any:
        return self._listing.__enter__()

    def __exit__(self, *how: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._listing.__exit__(*how)
        self._swapped.rename(f"{self._swapped}.was")
        self._swapped.symlink_to(self._to)


def test_it_is_counted_in_folders(own: Path) -> None:
    assert LARGE <= HeldFiles(own).seen([]) < 2 * LARGE


@pytest.mark.parametrize("swapped", ["inside", "inside/deeper"])
def test_a_link_that_took_a_folders_place_is_not_followed(
    own: Path, monkeypatch: pytest.MonkeyPatch, swapped: str
) -> None:
    """The whole of /tmp was counted as a submission's, which took a minute where that is full."""
    many = iter(range(9))

    def listed(place: Any) -> Any:
        found = scandir(place)
        return SwappedOnceSeen(found, own / swapped, own.parent / "others") if next(many) == seen else found

    seen = swapped.count("/")
    monkeypatch.setattr("kbslurm_eval.cage.held_files.os.scandir", listed)
    found = HeldFiles(own)
    assert found.seen([]) < 2 * LARGE and not found.too_many


def test_a_folder_on_the_way_may_be_swapped_too(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    many = iter(range(9))

    def listed(place: Any) -> Any:
        found = scandir(place)  # the second one lists "inside"; then it is a link, and "deeper" is another's
        return SwappedOnceSeen(found, own / "inside", own.parent / "others") if next(many) == 1 else found

    monkeypatch.setattr("kbslurm_eval.cage.held_files.os.scandir", listed)
    assert HeldFiles(own).seen([]) < 2 * LARGE
