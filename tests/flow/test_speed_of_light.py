"""`kbslurm problem verify` holds a problem's formulas to what its own submissions take."""

from __future__ import annotations

import shutil
from pathlib import Path

from kbslurm.config import shared_folders
from tests.command_line import CommandLine


def problem(folder: Path, work: str) -> Path:
    """The transposition with one right submission and this much work."""
    shutil.copytree(shared_folders.path("examples") / "transpose", folder)
    for kind in (folder / "submissions").iterdir():
        if kind.name != "accepted":
            shutil.rmtree(kind)
    for file in (folder / "submissions/accepted").iterdir():
        if file.name != "columns.py":
            file.unlink()
    task = folder / "task.yml"
    task.write_text(task.read_text().replace("kbslurm:\n", f"kbslurm:\n  {work}\n"))
    return folder


def test_an_accepted_submission_that_beats_the_formulas_refuses_them(tmp_path: Path) -> None:
    kbslurm = CommandLine(cwd=tmp_path)
    words = ("problem", "verify", str(problem(tmp_path / "shapes", "bytes: shapes")), "--mode", "benchmark")
    fine = kbslurm(*words, "--no-mutate", "--peak-tbytes", "1000", "--json")
    assert fine.code == 0, fine.err
    assert [row["beyond"] for row in fine.json()["submissions"]] == [[]]
    beyond = kbslurm(
        *words, "--no-mutate", "--peak-tbytes", "1e-9"
    )  # 384 × 336 bytes at 1000 a second, and text has no length
    assert beyond.code == 3
    assert "NO accepted/columns.py  passed, faster than its work allows" in beyond.out
    assert "bytes allow no less than 129 s" in beyond.out


def test_a_peak_without_formulas_is_a_mistake(tmp_path: Path) -> None:
    said = CommandLine(cwd=tmp_path)(
        "problem", "verify", str(problem(tmp_path / "none", "ignored_key: 1")), "--peak-tflops", "1"
    )
    assert said.code == 2 and "has neither flops nor bytes" in said.err
