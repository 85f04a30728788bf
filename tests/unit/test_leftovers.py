"""What killed judges and supervisors left where everybody may write is cleared, and of others' not even looked at."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kbslurm.trial import in_image
from kbslurm.trial.in_image import TrialImage
from kbslurm_eval.cage import local_runners
from kbslurm_eval.shared import remove_tree


def sweep(where: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (where / "kb-mine").mkdir()
    os.close(local_runners._sweep_and_hold(where / "kb-mine"))


def clear(where: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_image, "_memory", lambda: str(where))
    TrialImage(path=where / "cpu.sif", program="/usr/bin/apptainer").clear()


EACH = pytest.mark.parametrize("clears", [sweep, clear])
Clears = Callable[[Path, pytest.MonkeyPatch], None]


def left(folder: Path) -> Path:
    """As a killed judge and a killed supervisor leave it; no process has that number."""
    (folder / "work").mkdir(parents=True)
    (folder / "lock").touch()
    (folder / "script").write_text(f"{2**30}\n")
    return folder


@EACH
def test_only_folders_are_cleared_and_no_link_is_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clears: Clears
) -> None:
    where, elsewhere = tmp_path / "shm", left(tmp_path / "elsewhere")
    gone = left(where / "kb-gone")
    (where / "kb-link").symlink_to(elsewhere)
    (where / "kb-file").touch()
    (where / "kb-pipe").mkdir()
    os.mkfifo(where / "kb-pipe/script")
    clears(where, monkeypatch)
    assert not gone.exists()
    assert (where / "kb-link").is_symlink()
    assert sorted(one.name for one in elsewhere.iterdir()) == ["lock", "script", "work"]


@EACH
def test_what_is_somebody_elses_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clears: Clears) -> None:
    theirs = left(tmp_path / "kb-theirs")
    stranger = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: stranger)
    monkeypatch.setattr(os, "getuid", lambda: stranger)
    clears(tmp_path, monkeypatch)
    assert sorted(one.name for one in theirs.iterdir()) == ["lock", "script", "work"]


@EACH
def test_however_much_others_put_there_the_look_at_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clears: Clears
) -> None:
    (tmp_path / "kb-theirs").touch()
    with os.scandir(tmp_path) as found:
        (theirs,) = found

    @contextmanager
    def endless(where: object) -> Iterator[Iterator[os.DirEntry[str]]]:
        def entries() -> Iterator[os.DirEntry[str]]:
            for number in itertools.count():
                looked.append(number)
                yield theirs

        yield entries()

    looked: list[int] = []
    monkeypatch.setattr(os, "scandir", endless)
    clears(tmp_path, monkeypatch)
    assert 0 < len(looked) <= remove_tree.LOOKED_AT + 1
