"""A script in a submission's place: run once in the cage, with its output, its exit status and one verdict."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kbslurm_eval.shared import scripts, wire
from kbslurm_eval.shared.scripts import SCRIPT
from tests.flow import harness_ground as ground


def _ran(
    folder: Path, source: str, *, seconds: float = 60.0, level: str = "2", **limits: Any
) -> wire.Report:  # fmt: skip
    told = ground.manifest(
        source,
        mode="test",
        tests=[],
        benchmarks=[],
        hidden=[],
        files={},
        runner_files=[],
        build=wire.Build(when="never"),
        config={SCRIPT: True},
        limits=wire.Limits(test_s=seconds, **limits),
    )
    return ground.judged(folder, told, env={"KBSLURM_EVAL_LEVEL": level}).told


@pytest.mark.parametrize("level", ["0", "1", "2"])
def test_in_every_cage_it_starts_programs_and_writes_files_of_its_own(tmp_path: Path, level: str) -> None:
    source = (
        "import subprocess, sys, tempfile\n"
        "subprocess.run([sys.executable, '-c', 'print(1)'], check=True)\n"
        "open('beside', 'w').write('2')\n"
        "print(open('beside').read(), bool(tempfile.mkstemp()))\n"
    )
    report = _ran(tmp_path, source, level=level)
    assert (report.verdict, report.log) == ("passed", "1\n2 True\n"), report.log
    assert report.isolation.level <= int(level)


def test_its_output_comes_back_whole_and_in_order(tmp_path: Path) -> None:
    source = (
        "import sys, os\n"
        "print('args', sys.argv[1:], __name__)\n"
        "print('to stderr', file=sys.stderr)\n"
        "import subprocess\n"
        "subprocess.run([sys.executable, '-c', 'print(6 * 7)'], check=True)\n"
        "print(sys.stdin.read() == '')\n"
    )
    report = _ran(tmp_path, source)
    assert (report.verdict, report.reason) == ("passed", "exit status 0"), report.log
    assert report.log.splitlines() == ["args [] __main__", "to stderr", "42", "True"]
    assert scripts.exit_status(report.host) == 0
    assert (report.score_s, report.tests, report.benchmarks) == (None, [], [])


@pytest.mark.parametrize(
    ("source", "status", "reason", "said"),
    [
        ("import sys; sys.exit(3)", 3, "exit status 3", ""),
        ("import os; os._exit(7)", 7, "exit status 7", ""),
        ("raise ValueError('no such thing')", 1, "exit status 1", "ValueError: no such thing"),
        ("def f(:\n", 1, "exit status 1", "SyntaxError"),
        ("import os; os.abort()", 134, "exit status 134 (killed by signal 6)", ""),
        ("import atexit, os; atexit.register(print, 'at exit')", 0, "exit status 0", "at exit"),
    ],
)
def test_its_exit_status_is_the_verdict(tmp_path: Path, source: str, status: int, reason: str, said: str) -> None:
    report = _ran(tmp_path, source)
    assert (report.verdict, report.reason) == ("passed" if status == 0 else "error", reason)
    assert scripts.exit_status(report.host) == status
    assert said in report.log
    assert "kbslurm_eval" not in report.log


def test_a_trace_that_it_writes_twice_stays_twice(tmp_path: Path) -> None:
    source = (
        "import traceback\nfor _ in range(2):\n    try:\n        1 / 0\n    except ZeroDivisionError:\n"
        "        traceback.print_exc()\n"
    )
    assert _ran(tmp_path, source).log.count("ZeroDivisionError: division by zero") == 2


def test_at_its_limit_it_is_stopped_and_what_it_wrote_is_kept(tmp_path: Path) -> None:
    report = _ran(tmp_path, "import time\nprint('so far')\ntime.sleep(600)\n", seconds=3)
    assert (report.verdict, report.reason) == ("timeout", "it was still running after 3 s and was stopped")
    assert report.log == "so far\n"
    assert scripts.exit_status(report.host) is None


def test_a_flood_is_cut_and_the_log_says_so(tmp_path: Path) -> None:
    report = _ran(tmp_path, "print('x' * 1_000_000)\n")
    assert report.verdict == "passed"
    assert len(report.log) <= wire.LOG_CAP
    assert report.log.endswith("…") or "bytes more were dropped" in report.log


def test_too_much_memory_ends_it(tmp_path: Path) -> None:
    source = "import time\nkept = [bytearray(b'x' * (32 << 20)) for _ in range(64)]\ntime.sleep(30)\n"
    report = _ran(tmp_path, source, memory_bytes=256 << 20)
    assert report.verdict in ("memory", "error"), report.reason  # by the limit on its addresses, or by the judge
    assert report.verdict == "memory" or "MemoryError" in report.log


def test_it_is_caged_like_any_submission(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(ground.SECRET)
    source = (
        "import os, socket\n"
        f"print('secret', os.path.exists({str(secret)!r}) and open({str(secret)!r}).read())\n"
        "try:\n    socket.create_connection(('127.0.0.1', 9), 1)\n    print('connected')\n"
        "except ConnectionRefusedError:\n    print('refused by a network that it shares')\n"
        "except OSError as error:\n    print('no network')\n"
    )
    caged, judged = _ran(tmp_path, source), ground.judged(tmp_path / "other", _network_of_a_submission()).told
    assert caged.isolation.level == judged.isolation.level
    if caged.isolation.level >= 2:
        assert ground.SECRET not in caged.log
    if caged.isolation.level >= 1:
        assert "connected" not in caged.log


def _network_of_a_submission() -> wire.Manifest:
    return ground.manifest("def custom_kernel(data):\n    return sorted(data)\n", mode="test")
