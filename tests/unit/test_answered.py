"""When a call counts as answered: by a word that another process writes while the judge reads it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kbslurm_eval.judge.heartbeat import Heartbeat
from kbslurm_eval.judge.launch import Launch
from kbslurm_eval.judge.replies import Rejected
from kbslurm_eval.shared import runner_link
from kbslurm_eval.shared.runner_link import JudgeEnd

LAST, TOKEN = bytes.fromhex("5545a61f6180ea13"), bytes.fromhex("34736456c8f98434")
HALF = LAST[:6] + TOKEN[6:]


class Runs:
    """A runner that goes on, and holds no more than it may."""

    @staticmethod
    def ended() -> None:
        return None

    @staticmethod
    def overdrawn() -> str:
        return ""


def _answered(folder: Path, *reads: bytes) -> int:
    launch = object.__new__(Launch)
    launch._link, launch._last = JudgeEnd(folder), LAST
    plain, left = os.pread, list(reads)
    with pytest.MonkeyPatch.context() as patched:  # no process can be made to write at that very moment
        patched.setattr(os, "pread", lambda fd, size, at: left.pop(0) if left else plain(fd, size, at))
        os.pwrite(launch._link.bell, TOKEN, runner_link.DONE)
        return launch._answered(TOKEN, 0, 1.0)


def test_a_word_that_is_half_there_is_read_again(tmp_path: Path) -> None:
    """One honest call in some 8,000 was a violation: of the eight bytes some were of the call before."""
    assert _answered(tmp_path / "link", LAST, HALF) > 0


def test_no_file_is_written_while_a_call_is_timed(tmp_path: Path) -> None:
    """Who leaves much to write behind had that take 30 to 90 ms, once a second, in whosever call it was."""
    launch, file = object.__new__(Launch), tmp_path / "heartbeat.json"
    launch._heartbeat, launch._weighed_at_ns, launch._weighing_ns, launch._looking_ns = Heartbeat(file), 0, 0, 0
    launch.runner = Runs()  # type: ignore[assignment]
    for ms in range(1, 3_000, 2):
        launch._look(ms * 1_000_000, 600.0)
    assert not file.exists()
    launch._look(3_000_000_000, 600.0)
    assert file.exists(), "a call that takes long is seen to go on"


def test_another_word_is_no_answer(tmp_path: Path) -> None:
    with pytest.raises(Rejected, match="a call that wasn't made"):
        _answered(tmp_path / "link", LAST, HALF, HALF)
