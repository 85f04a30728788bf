"""Files that the judge replaces at once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kbslurm_eval.judge.heartbeat import Heartbeat, put_file


def test_progress_waits_for_no_disk_and_a_report_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[int] = []
    monkeypatch.setattr(os, "fsync", waited.append)
    Heartbeat(tmp_path / "heartbeat.json").enter("ranked", 5)
    assert (tmp_path / "heartbeat.json").read_text().endswith('"phase": "ranked", "done": 0, "of": 5}')
    assert not waited
    put_file(tmp_path / "report.json", "{}")
    assert len(waited) == 1


def test_a_full_disk_leaves_no_half_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_file(tmp_path / "report.json", "before")

    def full(_fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        put_file(tmp_path / "report.json", "after")
    assert [one.name for one in tmp_path.iterdir()] == ["report.json"]
    assert (tmp_path / "report.json").read_text() == "before"
