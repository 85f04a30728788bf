"""What `make bench-harness` and `make bench-peer` print of KernelBot's own eval, with a small stand-in for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.bench import Row, peer
from tests.services import MAKE, needs

ROOT = Path(__file__).resolve().parents[2]
TASK = """
files:
  - {name: submission.py, source: "@SUBMISSION@"}
  - {name: reference.py, source: reference.py}
  - {name: eval.py, source: eval.py}
lang: py
config: {main: eval.py}
tests: [{n: 8, seed: 1}]
benchmarks: [{n: 64, seed: 2}]
kbslurm: {launches: 2, calls: 5}
"""
REFERENCE = """
import random


def generate_input(n, seed):
    return [random.Random(seed).random() for _ in range(n)]


def ref_kernel(data):
    return sorted(data)


def check_implementation(data, output):
    return "" if output == sorted(data) else "wrong"
"""
EVAL = """
import os
import sys
import time

with os.fdopen(int(os.environ["POPCORN_FD"]), "w") as told:
    print("check: pass", file=told)
    if sys.argv[1] != "test":
        time.sleep(PACE)
        print("benchmark.0.mean: 1000.0", file=told)
        print("benchmark.0.err: 1.0", file=told)
"""
SORTED = "def custom_kernel(data):\n    return sorted(data)\n"


@pytest.fixture
def problem(tmp_path: Path) -> Path:
    place = tmp_path / "sorting"
    place.mkdir()
    for name, text in (("task.yml", TASK), ("reference.py", REFERENCE), ("eval.py", EVAL), ("submission.py", SORTED)):
        (place / name).write_text(text)
    return place


def rows(problem: Path, pace_s: float) -> list[dict[str, Any]]:
    file = problem / "eval.py"
    file.write_text(EVAL.replace("PACE", str(pace_s)))
    given = {
        "KBSLURM_PEER": str(problem), peer.SUBMISSION: str(problem / "submission.py"),
        "KBSLURM_PEER_CASE": "", "KBSLURM_TORCH_PYTHON": sys.executable,
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench", "peer", "--json", "--scale", "0.1"],
        capture_output=True, text=True, check=False, cwd=ROOT, env={**os.environ, **given},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_wall_time_and_interval_are_aims_beside_the_peer(problem: Path) -> None:
    """It takes its time here, and gives an interval of 0.2 %, which two launches of five calls don't reach."""
    whole, interval, apart = rows(problem, 30.0)
    assert whole["name"] == "a whole ranked run of sorting (n: 64; seed: 2)"
    assert (whole["at_most"], whole["is_met"]) == (1.0, True)
    assert 0 < whole["ratio"] < 1
    assert interval["name"] == "half of its 95 % interval"
    assert (interval["at_most"], interval["is_met"]) == (1.0, False)
    assert interval["ratio"] == pytest.approx(interval["value"] / (100 * 1.96 * 1.0 / 1000.0))
    assert apart["is_met"] is None


def test_what_isnt_measured_is_told_and_no_aim_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.bench import harness

    for name in peer.NEEDED:
        monkeypatch.setenv(name, "given")
    assert peer.why_not() is None
    monkeypatch.delenv("KBSLURM_PEER")
    why = peer.why_not()
    assert why == "KBSLURM_PEER isn't set; see make help, bench-peer"
    row = harness._not_beside_the_peer(why)
    assert row == Row(name=row.name, value=None, unit="", against=f"not measured: {why}")
    assert row.is_met is None
    with pytest.raises(SystemExit, match="KBSLURM_PEER isn't set"):
        peer.run()


@needs(MAKE)
def test_make_passes_a_checkout_on_to_both() -> None:
    for target, module in (("bench-harness", "harness"), ("bench-peer", "peer")):
        words = ["make", "-n", target, "READY=", "PEER=/there/p", "SUBMISSION=s.py", "TORCH_PYTHON=/py"]
        said = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        assert 'KBSLURM_PEER="/there/p" KBSLURM_PEER_SUBMISSION="s.py"' in said
        assert f"-m tests.bench {module}" in said
        without = subprocess.run(words[:4], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        assert "KBSLURM_PEER" not in without
