"""What a check may allocate, and how much memory control groups of both kinds have left."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from kbslurm_eval.judge import check_memory
from kbslurm_eval.judge.check_memory import LEAST, CheckMemory, left

GIB = 1 << 30


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


MEMINFO = {"proc/meminfo": "MemTotal: 99999999 kB\nMemAvailable: 8388608 kB\n"}


@pytest.mark.parametrize(
    ("files", "most"),
    [
        pytest.param({}, 8 * GIB, id="no groups"),
        pytest.param(
            {
                "proc/self/cgroup": "0::/job/step\n",
                "sys/fs/cgroup/job/memory.max": str(3 * GIB),
                "sys/fs/cgroup/job/memory.current": str(2 * GIB),
                "sys/fs/cgroup/job/memory.stat": f"anon 1\ninactive_file {GIB // 2}\n",
                "sys/fs/cgroup/job/step/memory.max": "max\n",
                "sys/fs/cgroup/job/step/memory.current": "7\n",
            },
            3 * GIB // 2,
            id="the second version, the limit further up",
        ),
        pytest.param(
            {
                "proc/self/cgroup": "5:cpu:/x\n4:memory:/job\n0::/\n",
                "sys/fs/cgroup/memory/job/memory.limit_in_bytes": str(2 * GIB),
                "sys/fs/cgroup/memory/job/memory.usage_in_bytes": str(GIB),
                "sys/fs/cgroup/memory/job/memory.stat": f"total_inactive_file {GIB // 4}\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": str((1 << 63) - 4096),
                "sys/fs/cgroup/memory/memory.usage_in_bytes": str(9 * GIB),
            },
            5 * GIB // 4,
            id="the first version",
        ),
        pytest.param(
            {
                "proc/self/cgroup": "0::/../elsewhere\n",
                "sys/fs/cgroup/memory.max": str(GIB),
                "sys/fs/cgroup/memory.current": str(GIB // 2),
            },
            GIB // 2,
            id="a container that sees its own group alone",
        ),
    ],
)
def test_what_is_left(tmp_path: Path, files: dict[str, str], most: int) -> None:
    assert left(tree(tmp_path, {**MEMINFO, **files})) == most


def test_no_more_than_that_can_be_allocated_and_afterwards_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_memory, "left", lambda: 0)
    before = resource.getrlimit(resource.RLIMIT_DATA)
    with CheckMemory().bounded():
        bytearray(LEAST // 4)
        with pytest.raises(MemoryError):
            bytearray(2 * LEAST)
    assert resource.getrlimit(resource.RLIMIT_DATA) == before


def test_processes_that_check_at_the_same_time_share_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_memory, "left", lambda: 9 * LEAST + check_memory.KEPT)
    limits = []
    for processes in (1, 3):
        with CheckMemory(processes).bounded():
            limits.append(resource.getrlimit(resource.RLIMIT_DATA)[0])
    assert 5.9 * LEAST < limits[0] - limits[1] < 6.1 * LEAST
