"""Every cheat of tests/cheats is judged for real: rejected, or its score is no better than the time it took."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.flow import harness_ground as ground
from tests.services import missing

CHEATS = sorted((ground.ROOT / "tests" / "cheats").glob("*.py"))
IMPATIENT = {"endless", "self_stop", "broken_words", "fork_bomb", "forged_status"}


def _header(text: str, name: str) -> list[str]:
    found = re.search(rf"^# {name}: (.*)$", text, re.MULTILINE)
    return found.group(1).split() if found else []


@pytest.fixture(scope="module")
def level() -> int:
    return ground.achieved_level()


@pytest.mark.parametrize("path", CHEATS, ids=lambda p: p.stem)
def test_gains_nothing(path: Path, tmp_path: Path, level: int) -> None:
    source = path.read_text()
    limit = ground.limits(test_s=8.0, processes=16) if path.stem in IMPATIENT else ground.limits()
    size = int((_header(source, "n") or ["300"])[0])
    for wanted in map(int, _header(source, "levels") or ["2"]):
        told = ground.manifest(source, limits=limit, benchmarks=[{"n": size, "seed": 7}])
        outcome = ground.judged(tmp_path / str(wanted), told, env={"KBSLURM_EVAL_LEVEL": str(wanted)})
        if level < wanted:
            missing("isolation", f"this machine reaches level {level}, these verdicts need {wanted}")
        _holds(source, outcome, wanted)


def _holds(source: str, outcome: ground.Outcome, level: int) -> None:
    report = outcome.told
    assert outcome.code == 0
    assert report.isolation.level >= level
    assert report.verdict in _header(source, "verdict"), report.reason
    least = _header(source, "at least s")
    if least and report.score_s is not None and report.interval_s is not None:
        assert report.score_s >= float(least[0]), report
        assert report.interval_s[0] > 0
    shown = "\n".join([report.log, report.secret_log, report.reason, *(t.message for t in report.tests)])
    for word in _header(source, "never"):
        assert word.encode().decode("unicode_escape") not in shown
    assert ground.SECRET not in shown
    assert len(report.reason.splitlines()) <= 1, "a reason of several lines can pass for a report of ours"
    assert len(report.log) <= 65_536
    assert not Path("/tmp/kbslurm-cheat-was-here").exists()


def test_every_cheat_says_what_it_tries() -> None:
    assert len(CHEATS) >= 40
    for path in CHEATS:
        assert _header(path.read_text(), "tries"), path
        assert _header(path.read_text(), "verdict"), path
