"""Honest but tricky submissions: each must pass, unflagged by anything but the clock."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kbslurm_eval import clock, wire
from tests.flow import harness_ground as ground

HONEST = sorted((ground.ROOT / "tests" / "honest").glob("*.py"))
NOTED = {clock.UNRESOLVED, clock.ONE_LAUNCH}


@pytest.mark.parametrize("path", HONEST, ids=lambda p: p.stem)
def test_passes(tmp_path: Path, path: Path) -> None:
    told = ground.manifest(path.read_text(), mode="benchmark", budget=wire.Budget(launches=1, calls=4))
    report = ground.judged(tmp_path, told).told
    assert report.verdict == "passed", f"{report.reason}\n{report.log}"
    assert set(report.flags) <= NOTED


def test_there_are_enough_and_each_says_what_it_does() -> None:
    assert len(HONEST) >= 15
    for path in HONEST:
        assert re.search(r"^# does: \w", path.read_text(), re.MULTILINE), path
