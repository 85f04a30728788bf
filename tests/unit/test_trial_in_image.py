"""What a trial in an image leaves on the machine."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from kbslurm.trial import in_image
from kbslurm.trial.in_image import TrialImage


def test_what_a_killed_supervisor_left_in_memory_is_removed_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_image, "_memory", lambda: str(tmp_path))
    gone = subprocess.Popen(["/bin/true"])
    gone.wait()
    for name, script in (("kb-dead", str(gone.pid)), ("kb-alive", str(os.getpid())), ("kb-odd", "?"), ("other", "1")):
        (tmp_path / name / "link").mkdir(parents=True)
        (tmp_path / name / "script").write_text(f"{script}\n")
    (tmp_path / "kb-dead/link").chmod(0)
    TrialImage(path=tmp_path / "cpu.sif", program="/usr/bin/apptainer").clear()
    assert sorted(one.name for one in tmp_path.iterdir()) == ["kb-alive", "kb-odd", "other"]
