"""The harness on a real GPU: `make test-gpu`, on a machine that has one. Each test says what it would show.

What the stand-in of `test_harness_device.py` can't tell is here: that a real driver exports and maps memory between two
cages, that tensors over it are tensors, and that a kernel which goes on after "done" is caught on hardware.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kbslurm_eval.device import driver
from kbslurm_eval.shared import wire
from tests.flow import harness_ground as ground
from tests.flow.test_harness_device import DOUBLING
from tests.flow.test_harness_resident import TENSORS_IN_PLACE, TENSORS_THERE
from tests.services import GPU, NCU, TORCH, missing, needs

pytestmark = pytest.mark.gpu

TENSORS = """
import torch


def generate_input(n, seed, device):
    g = torch.Generator(device=device).manual_seed(seed)
    x = torch.randn(n, n, generator=g, device=device)
    return x, torch.empty_like(x)


def ref_kernel(data):
    return data[0] * 2 + 1


def check_implementation(data, output):
    good = torch.equal(data[0] * 2 + 1, output)
    return good, "" if good else "not twice and one"
"""
HONEST = """
import torch


def custom_kernel(data):
    x, y = data
    torch.mul(x, 2, out=y)
    y += 1
    return y
"""
# A kernel that begins some milliseconds late, on a stream of its own, in a runner that doesn't wait for it.
LATE = """
import torch
import kbslurm_eval.runner.device_arrays as device_arrays
import kbslurm_eval.shared.values as values

device_arrays.Side.end = lambda side: 1000
device_arrays.Side.take = lambda side, node, value, out, where: None
stream = torch.cuda.Stream()


def custom_kernel(data):
    x, y = data
    side = values.device_side
    with torch.cuda.stream(stream):
        torch.cuda._sleep(100_000_000)
        side._over(side._out, "float32", list(x.shape)).copy_(x * 2 + 1)
    return y
"""
IN_CUDA = """
#include "kbslurm.h"
#include <cuda_runtime.h>

__global__ void scale(const double *x, double *y, long long n, double k) {
  const long long i = blockIdx.x * static_cast<long long>(blockDim.x) + threadIdx.x;
  if (i < n) y[i] = x[i] * k;
}

KB_ENTRY int custom_kernel(const kb_array *in, int inputs, kb_array *out, int outputs) {
  const double k = static_cast<double>(*static_cast<const long long *>(in[2].data));
  const long long n = in[0].size;
  scale<<<(n + 127) / 128, 128>>>(static_cast<const double *>(in[0].data), static_cast<double *>(out[0].data), n, k);
  return cudaGetLastError();
}
"""

PACES_US = (20, 100, 1_000)
# HONEST, and so many cycles beside it
PACED = HONEST.replace("    y += 1\n", "    y += 1\n    torch.cuda._sleep(CYCLES)\n")
# How many cycles take so long with HONEST's two kernels, and what events say of that, one call at a time.
EVENTS = """
import json
import statistics
import sys

import torch

x = torch.randn(64, 64, device="cuda")
y = torch.empty_like(x)


def events_us(cycles, times=40):
    took = []
    for _ in range(times):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        begin.record()
        torch.mul(x, 2, out=y)
        y.add_(1)
        torch.cuda._sleep(cycles)
        end.record()
        end.synchronize()
        took.append(1000 * begin.elapsed_time(end))
    return statistics.median(took[5:])


events_us(1_000_000)  # its clocks rise
short, long = events_us(1_000_000), events_us(11_000_000)
each = 10_000_000 / (long - short)
rows = []
for pace in map(int, sys.argv[1:]):
    cycles = max(1, int(each * pace))
    rows.append([pace, cycles, events_us(cycles)])
print(json.dumps({"device": torch.cuda.get_device_name(), "rows": rows}))
"""


def bias_table(device: str, rows: Sequence[tuple[int, float, float, float]]) -> str:
    """Of each pace, in microseconds: what events say, the runner's claim, and the score's median."""
    lines = [f"{device}: one call at a time, medians in us", "  asked   events  claimed     ours  ours - events"]
    for pace, events, claimed, ours in rows:
        lines.append(f"{pace:7d} {events:8.1f} {claimed:8.1f} {ours:8.1f} {ours - events:14.1f}")
    return "\n".join(lines)


@pytest.fixture
def env() -> dict[str, str]:
    """An environment in which this machine's device is found."""
    try:
        driver.found()
    except driver.DriverError as error:
        missing(GPU, str(error))
    kept = ("CUDA_HOME", "CUDA_PATH", "ROCM_PATH", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES")
    return {"PATH": os.environ["PATH"], **{name: os.environ[name] for name in kept if name in os.environ}}


def _judged(folder: Path, env: dict[str, str], source: str, **changed: Any) -> wire.Report:
    told: dict[str, Any] = {
        "gpu": "cuda",
        "files": {"reference.py": TENSORS},
        "mode": "test",
        "tests": [{"n": 64, "seed": 1}, {"n": 1000, "seed": 2}],
        "benchmarks": [{"n": 4096, "seed": 3}],
        "hidden": [],
        "limits": ground.limits(memory_bytes=32 << 30, file_bytes=256 << 20, processes=512),
    }
    return ground.judged(folder, ground.manifest(source, **{**told, **changed}), env=env).told


def test_the_driver_lends_memory_and_sees_what_is_written(env: dict[str, str]) -> None:
    """Allocate, export, import and map in one process: the two mappings are one memory."""
    device = driver.found().open(0)
    mine, fd = device.share(1 << 20)
    theirs = device.imported(fd, mine.size)
    os.close(fd)
    device.write(mine.at, b"lent" * 1000)
    assert device.read(theirs.at, 4000) == b"lent" * 1000
    device.cover(theirs.at, os.urandom(777), mine.size)
    assert device.gather(mine.at + 5, 70_000, 64, 3) == b"".join(
        device.read(mine.at + 5 + 70_000 * n, 64) for n in range(3)
    )
    device.free(theirs)
    device.free(mine)


@needs(TORCH)
def test_tensors_lie_in_the_judge_s_memory(tmp_path: Path, env: dict[str, str]) -> None:
    """Shared across the cage (otherwise the flag HOST_COPIES says why), timed, and the claimed device time agrees."""
    report = _judged(tmp_path, env, HONEST, mode="benchmark")
    assert report.verdict == "passed", report.reason
    assert "HOST_COPIES" not in report.flags, report.host["evidence"]
    assert "TIMING_DISPUTED" not in report.flags, report.host["evidence"]
    assert report.host["device"]["transport"] == "shared memory"


@needs(TORCH)
@pytest.mark.parametrize(("more", "verdict"), [("1", "passed"), ("2", "wrong")])
def test_destinations_are_over_the_output_and_tensors_stay_there(
    tmp_path: Path, env: dict[str, str], more: str, verdict: str
) -> None:
    """What the stand-in shows on the host's memory, by a real driver: strides, places, the check on the device."""
    files = {"reference.py": TENSORS_THERE}
    report = _judged(tmp_path, env, TENSORS_IN_PLACE.replace("MORE", more), files=files, mode="benchmark")
    assert report.verdict == verdict, report.reason
    assert "HOST_COPIES" not in report.flags, report.host["evidence"]
    assert "DEVICE_BUSY" not in report.flags, report.host["evidence"]


@needs(TORCH)
def test_the_largest_problem_is_judged_at_all(tmp_path: Path, env: dict[str, str]) -> None:
    """16384 x 16384 numbers of 4 bytes: 1 GiB each way, within default limits."""
    limits = ground.limits(memory_bytes=32 << 30, file_bytes=256 << 20, processes=512)
    cases: list[dict[str, Any]] = [{"n": 16384, "seed": 3}]
    told: dict[str, Any] = {"files": {"reference.py": TENSORS_THERE}, "tests": [], "benchmarks": cases}
    report = _judged(tmp_path, env, TENSORS_IN_PLACE.replace("MORE", "1"), mode="benchmark", limits=limits, **told)
    assert report.verdict == "passed", report.reason
    assert report.host["spent"]["benchmark"]["whole_s"] > 0


@needs(TORCH)
def test_a_short_kernel_is_timed_beside_what_the_runner_claims(tmp_path: Path, env: dict[str, str]) -> None:
    """Some 5 us on the device. The report has what the judge saw, raw and without its trip, and the runner's claim."""
    report = _judged(tmp_path, env, HONEST, mode="benchmark", benchmarks=[{"n": 128, "seed": 3}])
    assert report.verdict == "passed", report.reason
    row = report.host["device"]["times"][0]
    assert 0 < row["claimed_ns"] < row["raw_ns"], row


@needs(TORCH)
def test_a_kernel_that_goes_on_after_done_gains_nothing(tmp_path: Path, env: dict[str, str]) -> None:
    """Caught by the look at the output, or waited for in it: rejected, or with the time that it really took."""
    report = _judged(tmp_path, env, LATE, mode="benchmark")
    if report.verdict == "passed":
        assert min(report.samples[0].own.calls_ns) > 10_000_000
    else:
        assert report.verdict in ("violation", "wrong"), report.reason


def test_cuda_code_gets_device_pointers(tmp_path: Path, env: dict[str, str]) -> None:
    """`arrays: device` without torch: nvcc's kernel works on the judge's memory, nothing is copied by it."""
    report = _judged(
        tmp_path, env, IN_CUDA, lang="cu", entry="submission.cu", files={"reference.py": DOUBLING},
        config={"arrays": "device"}, mode="benchmark", build=wire.Build(limit_s=240),
        benchmarks=[{"n": 9000, "seed": 1}],
    )  # fmt: skip
    assert report.verdict == "passed", report.reason
    assert report.host["device"]["transport"] == "shared memory", report.host["evidence"]


@needs(TORCH)
def test_the_bias_table(tmp_path: Path, env: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """Kernels of 20 us, 100 us and 1 ms: what CUDA's events say around the same call in a process of its own, beside
    the median of ours. Nothing is taken off that a submission could influence, so ours is never below the kernel."""
    argv = [sys.executable, "-c", EVENTS, *map(str, PACES_US)]
    told = json.loads(subprocess.run(argv, capture_output=True, text=True, check=True, timeout=120).stdout)
    rows = []
    for pace, cycles, events in told["rows"]:
        report = _judged(
            tmp_path / str(pace), env, PACED.replace("CYCLES", str(cycles)), mode="benchmark",
            tests=[{"n": 64, "seed": 1}], benchmarks=[{"n": 64, "seed": 3}], budget=wire.Budget(launches=3, calls=20),
        )  # fmt: skip
        assert report.verdict == "passed", report.reason
        claimed = report.host["device"]["times"][0]["claimed_ns"] / 1000
        rows.append((pace, events, claimed, (report.benchmarks[-1].median_ns or 0.0) / 1000))
    with capsys.disabled():
        print(f"\n{bias_table(told['device'], rows)}")
    for pace, _, _, ours in rows:
        assert ours > 0.9 * pace, rows


@needs(TORCH, NCU)
def test_nsight_compute_profiles_a_kernel(tmp_path: Path, env: dict[str, str]) -> None:
    """What the stand-in shows of its files and their digest, by the program itself."""
    told = {**env, "KBSLURM_PROFILER": "ncu"}
    report = _judged(tmp_path, told, HONEST, mode="profile", benchmarks=[{"n": 1024, "seed": 3}])
    assert report.verdict == "passed", report.reason
    (counters,) = [one for one in report.digests if one.tool == "ncu"]
    if "only administrators" in counters.trouble or "holds the GPU's counters" in counters.trouble:
        missing(NCU, counters.trouble)
    assert counters.trouble == "", report.profile
    names = {one.name for one in report.artifacts}
    assert names >= {f"benchmark-0.ncu-{one}" for one in ("rep", "details.csv", "raw.csv")}, report.profile
    assert counters.kernels and counters.limits, counters
