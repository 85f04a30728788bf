"""In the runner: some calls of the submission under a profiler, for its author's eyes.

This runs in the submission's own process, so whatever it writes is the submission's word and nothing else. It goes into
slots of the link's output that the judge has laid out: a length of eight bytes, then so many bytes.
"""

from __future__ import annotations

import contextlib
import ctypes
import gzip
import importlib
import io
import json
import os
import struct
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

WARM_UPS = 2
ROWS = 25
SUMMARY_ROWS = 14
KERNEL_TIMES = ("self_device_time_total", "self_cuda_time_total", "self_cpu_time_total")


def traced(call: Callable[[Any], Any], told: Mapping[str, Any], fresh: Callable[[], Any], out: memoryview) -> str:
    """Profile `told["calls"]` calls into the slots, and say in a few lines what was seen."""
    slots = {name: (at, cap) for name, at, cap in told["slots"]}
    for at, _ in slots.values():
        struct.pack_into("<Q", out, at, 0)
    for _ in range(WARM_UPS):
        call(fresh())
    if told["tool"] in ("ncu", "rocprof"):
        with _kernels_watched():
            for _ in range(told["calls"]):
                call(fresh())
        return ""
    inputs = [fresh() for _ in range(told["calls"])]
    files, said = _by_torch(call, inputs) if "torch" in sys.modules else _by_cprofile(call, inputs)
    for name, blob in files.items():
        if name not in slots:
            continue
        at, cap = slots[name]
        if len(blob) > cap - 8:
            said += f"\n{name} has {len(blob)} bytes, over the limit of {cap - 8}: left out"
            continue
        out[at + 8 : at + 8 + len(blob)] = blob
        struct.pack_into("<Q", out, at, len(blob))
    return said


def _by_cprofile(call: Callable[[Any], Any], inputs: list[Any]) -> tuple[dict[str, bytes], str]:
    import cProfile
    import pstats

    profile = cProfile.Profile()
    for data in inputs:
        try:
            profile.enable()
        except ValueError:  # from Python 3.12 on there is one at a time, and no two versions say so in the same words
            return {}, "no profile: the submission runs a profiler of its own"
        try:
            call(data)
        finally:
            profile.disable()
    text = io.StringIO()
    found = pstats.Stats(profile, stream=text).strip_dirs()
    found.sort_stats("cumulative").print_stats(ROWS)
    rows = [
        {"file": file, "line": line, "function": name, "calls": calls, "primitive_calls": primitive,
         "own_s": own, "cumulative_s": cumulative}
        for (file, line, name), (primitive, calls, own, cumulative, _) in found.stats.items()  # type: ignore[attr-defined]
    ]  # fmt: skip
    rows.sort(key=lambda row: -row["cumulative_s"])
    table = "\n".join(line.rstrip() for line in text.getvalue().splitlines() if line.strip())
    files = {"table.txt": table.encode(), "functions.json": json.dumps(rows).encode()}
    return files, _head(f"cProfile, {len(inputs)} calls", table)


def _by_torch(call: Callable[[Any], Any], inputs: list[Any]) -> tuple[dict[str, bytes], str]:
    torch: Any = sys.modules["torch"]
    profiler: Any = importlib.import_module("torch.profiler")
    activities = [profiler.ProfilerActivity.CPU]
    gpu = torch.cuda.is_available()
    if gpu:
        activities.append(profiler.ProfilerActivity.CUDA)
        torch.cuda.synchronize()
    with profiler.profile(activities=activities, record_shapes=True) as found:
        for data in inputs:
            call(data)
        if gpu:
            torch.cuda.synchronize()
    averages = found.key_averages()
    times = [n for n in (KERNEL_TIMES if gpu else KERNEL_TIMES[2:]) if averages and hasattr(averages[0], n)]
    table = averages.table(sort_by=times[0] if times else None, row_limit=ROWS, max_name_column_width=60)
    path = os.path.join(os.environ.get("TMPDIR", "/tmp"), f"trace{os.environ.get('RANK', '')}.json")
    found.export_chrome_trace(path)
    with open(path, "rb") as file:
        trace = gzip.compress(file.read(), 6, mtime=0)
    os.unlink(path)
    rows = [(str(row.key), float(getattr(row, times[0], 0.0)), int(row.count)) for row in averages] if times else []
    rows.sort(key=lambda row: -row[1])
    told = [{"name": name, "calls": count, "self_us": spent} for name, spent, count in rows]
    lines = "\n".join(f"{name[:70]:70} {spent:12.1f} us {count:8}x" for name, spent, count in rows)
    what = "on the GPU" if gpu else "on the CPU"
    files = {"table.txt": table.encode(), "operators.json": json.dumps(told).encode(), "trace.json.gz": trace}
    return files, _head(f"torch.profiler, {len(inputs)} calls, own time {what}", lines)


def _head(title: str, table: str) -> str:
    return "\n".join([title, *table.splitlines()[:SUMMARY_ROWS]])


@contextlib.contextmanager
def _kernels_watched() -> Iterator[None]:
    """A profiler that was started around this process looks at what is launched in here only."""
    driver: Any = None
    regions: Any = None
    with contextlib.suppress(OSError, AttributeError):
        driver = ctypes.CDLL("libcuda.so.1")
        driver.cuProfilerStart()
    with contextlib.suppress(OSError, AttributeError):  # rocprofv3 preloads it where it is asked for regions
        regions = ctypes.CDLL("librocprofiler-sdk-roctx.so")
        regions.roctxProfilerResume(0)
    try:
        yield
    finally:
        if (torch := sys.modules.get("torch")) is not None and torch.cuda.is_available():
            torch.cuda.synchronize()
        if driver is not None:
            driver.cuProfilerStop()
        if regions is not None:
            regions.roctxProfilerPause(0)
