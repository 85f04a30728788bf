"""Honest but tricky submissions: each must pass, unflagged by anything but the clock."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbslurm_eval import clock, wire
from tests.flow import harness_ground as ground

HONEST = {
    "in place": "def custom_kernel(data):\n    data.sort()\n    return data\n",
    "workspace": "BUFFER = []\ndef custom_kernel(data):\n    BUFFER[:] = data\n    BUFFER.sort()\n    return BUFFER\n",
    "shape dispatch": (
        "def small(d):\n    return sorted(d)\ndef large(d):\n    e = list(d)\n    e.sort()\n    return e\n"
        "KERNELS = {}\ndef custom_kernel(data):\n"
        "    return KERNELS.setdefault(len(data), small if len(data) < 50 else large)(data)\n"
    ),
    "thread pool": (
        "from concurrent.futures import ThreadPoolExecutor\nimport heapq\nPOOL = ThreadPoolExecutor(2)\n"
        "def custom_kernel(data):\n    half = len(data) // 2\n"
        "    return list(heapq.merge(*POOL.map(sorted, (data[:half], data[half:]))))\n"
    ),
    "process": (
        "import json, subprocess, sys\n"
        "CODE = 'import json, sys; print(json.dumps(sorted(json.load(sys.stdin))))'\n"
        "def custom_kernel(data):\n"
        "    done = subprocess.run([sys.executable, '-I', '-S', '-c', CODE],"
        " input=json.dumps(data), capture_output=True, text=True)\n"
        "    return json.loads(done.stdout)\n"
    ),
    "code generated at the first call": (
        "MADE = {}\ndef custom_kernel(data):\n    if 'f' not in MADE:\n"
        "        exec('def f(d):\\n    return sorted(d)', MADE)\n    return MADE['f'](data)\n"
    ),
    "slow import": "import time\ntime.sleep(1)\ndef custom_kernel(data):\n    return sorted(data)\n",
    "chatty": "import sys\ndef custom_kernel(data):\n    print('x' * 500)\n    print('é', file=sys.stderr)\n"
        "    return sorted(data)\n",
    "memory given back": "def custom_kernel(data):\n    held = bytearray(200 << 20)\n    del held\n"
        "    return sorted(data)\n",
    "files of its own": (
        "import json, tempfile\ndef custom_kernel(data):\n    with tempfile.TemporaryFile('w+') as f:\n"
        "        json.dump(sorted(data), f)\n        f.seek(0)\n        return json.load(f)\n"
    ),
    "native code": (
        "import ctypes\nLIBC = ctypes.CDLL(None)\n"
        "CMP = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_double), ctypes.POINTER(ctypes.c_double))\n"
        "ORDER = CMP(lambda a, b: (a[0] > b[0]) - (a[0] < b[0]))\n"
        "def custom_kernel(data):\n    made = (ctypes.c_double * len(data))(*data)\n"
        "    LIBC.qsort(made, len(data), 8, ORDER)\n    return list(made)\n"
    ),
    "its own clock": (
        "import time\ndef custom_kernel(data):\n    began = time.perf_counter_ns()\n    out = sorted(data)\n"
        "    print(time.perf_counter_ns() - began)\n    return out\n"
    ),
    "deep recursion": (
        "def custom_kernel(data):\n    if len(data) < 2:\n        return list(data)\n    p = data[0]\n"
        "    low, high = [x for x in data[1:] if x < p], [x for x in data[1:] if x >= p]\n"
        "    return custom_kernel(low) + [p] + custom_kernel(high)\n"
    ),
    "ints where floats are": "def custom_kernel(data):\n    return [x if x % 1 else int(x) for x in sorted(data)]\n",
    "future annotations and a class": (
        "from __future__ import annotations\nimport dataclasses\n@dataclasses.dataclass\nclass Plan:\n"
        "    data: list[float]\n"
        "    def run(self) -> list[float]:\n        return sorted(self.data)\n"
        "def custom_kernel(data: list[float]) -> list[float]:\n"
        "    return Plan(data).run()\n"
    ),
    "a child that is reaped": (
        "import os\ndef custom_kernel(data):\n    pid = os.fork()\n    if pid == 0:\n        os._exit(0)\n"
        "    os.waitpid(pid, 0)\n    return sorted(data)\n"
    ),
}  # fmt: skip
NOTED = {clock.UNRESOLVED, clock.ONE_LAUNCH}


@pytest.mark.parametrize("name", sorted(HONEST))
def test_passes(tmp_path: Path, name: str) -> None:
    told = ground.manifest(HONEST[name], mode="benchmark", budget=wire.Budget(launches=1, calls=4))
    report = ground.judged(tmp_path, told).told
    assert report.verdict == "passed", f"{report.reason}\n{report.log}"
    assert set(report.flags) <= NOTED
