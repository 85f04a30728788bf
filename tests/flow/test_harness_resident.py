"""Inputs and answers that stay on the device: what goes through the host, what a submission finds where, and that
nothing of it outlives a call. The device is a stand-in (`tests/standin`), judge, cage and runner are the real ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kbslurm_eval.shared import runner_link, wire
from tests import standin
from tests.flow import harness_ground as ground
from tests.flow.test_harness_device import AFTER_DONE, DOUBLING, HONEST, KERNEL, LATER, REPLAYED, on_device
from tests.services import GXX, needs

N = 50_000  # an array of 400 kB: more than what is written of anything else
# The device's memory is the host's, so that Python can do what a kernel would. y is added to: what is in it counts.
MADE_THERE = """
import ctypes
import random

from kbslurm_eval.device import arrays, driver

opened = []


class Owner:
    def __init__(self, size):
        if not opened:
            opened.append(driver.found().open(0))
        self.memory = opened[0].allocate(size)

    def __del__(self):
        opened[0].free(self.memory)


def array_of(numbers):
    owner = Owner(8 * len(numbers))
    made = arrays.DeviceArray(owner.memory.at, "<f8", (len(numbers),), owner=owner)
    view(made)[:] = numbers
    return made


def view(a):
    assert "__cuda_array_interface__" in dir(a), "a problem that works on the device gets what is there"
    return (ctypes.c_double * a.shape[0]).from_address(a.ptr)


def generate_input(n, seed):
    r = random.Random(seed)
    return array_of([r.random() for _ in range(n)]), array_of([r.random()] * n), 3


def ref_kernel(data):
    x, y, k = data
    view(y)[:] = [v * k + w for v, w in zip(view(x), view(y))]
    return y


def check_implementation(data, output):
    x, y, k = data
    bad = [n for n, (v, w, z) in enumerate(zip(view(x), view(y), view(output))) if abs(v * k + w - z) > 1e-12]
    return not bad, f"wrong at {bad[0]}" if bad else ""
"""
ADDING = KERNEL.replace("[v * k for v in view(x)]", "[v * k + w for v, w in zip(view(x), view(y))]")


def judged(folder: Path, source: str, **changed: Any) -> wire.Report:
    settings = changed.pop("settings", {})
    told: dict[str, Any] = {"files": {"reference.py": MADE_THERE}, "config": {}, "mode": "benchmark"}
    told |= {"tests": [], "benchmarks": [{"n": N, "seed": 7}], "budget": wire.Budget(launches=1, calls=3)}
    env = standin.device(folder / "toolkit", log=1, **settings)
    return ground.judged(folder, on_device(source, **{**told, **changed}), env=env).told


def acts(folder: Path) -> list[tuple[str, int]]:
    """What the judge had the device do, and with how many bytes."""
    lines = [line.split() for line in (folder / "toolkit" / "device.log").read_text().splitlines()]
    return [(name, int(size)) for name, size in lines]


def test_what_is_made_on_the_device_never_travels_through_the_host(tmp_path: Path) -> None:
    report = judged(tmp_path, ADDING + "\ncustom_kernel = kernel\n")
    assert report.verdict == "passed", report.reason
    assert report.host["device"]["transport"] == "shared memory"
    assert report.host["calls_checked"] >= 5
    large = [name for name, size in acts(tmp_path) if size >= 8 * N]
    assert set(large) == {"within", "to_host"}
    # whether all its numbers are finite can't be seen on a device without torch
    assert large.count("to_host") == report.host["calls_checked"]


def test_what_is_made_on_the_host_does(tmp_path: Path) -> None:
    """The other test's ground."""
    report = judged(tmp_path, HONEST, files={"reference.py": DOUBLING}, config={"arrays": "device"})
    assert report.verdict == "passed", report.reason
    assert {name for name, size in acts(tmp_path) if size >= 8 * N} == {"within", "to_device", "to_host"}


IN_PLACE = (
    ADDING
    + """
import kbslurm_eval.shared.values


def custom_kernel(data):
    y, side = data[1], kbslurm_eval.shared.values.device_side
    if not side._out <= y.ptr < side._out + side._out_size:
        raise RuntimeError("its destination isn't where an answer is read")
    return kernel(data)
"""
)


def test_a_destination_on_the_device_is_where_the_answer_is_read(tmp_path: Path) -> None:
    """The reference answers in an array of its input: so may everybody, on a device too. The copy of what was in it
    comes in the time, and no other one after it."""
    report = judged(tmp_path, IN_PLACE)
    assert report.verdict == "passed", report.reason
    calls = [n for n, act in enumerate(acts(tmp_path)) if act == ("within", 8 * N)]
    assert calls


TWO = MADE_THERE.replace("array_of([r.random()] * n), 3", "array_of([0.0] * n), array_of([0.0] * n)")
TWO = (
    TWO[: TWO.index("def ref_kernel")]
    + """
def ref_kernel(data):
    x, y, z = data
    view(y)[:] = [v + 1 for v in view(x)]
    view(z)[:] = [v + 2 for v in view(x)]
    return y, z


def check_implementation(data, output):
    good = [[w - v for v, w in zip(view(data[0]), view(one))] for one in output]
    return all(abs(a - 1) < 1e-9 and abs(b - 2) < 1e-9 for a, b in zip(*good)), "not one and two more"
"""
)
CROSSED = (
    KERNEL
    + """

def custom_kernel(data):
    x, y, z = data
    view(y)[:] = [v + 2 for v in view(x)]
    view(z)[:] = [v + 1 for v in view(x)]
    return z, y
"""
)


def test_answers_at_each_others_places_are_told_apart(tmp_path: Path) -> None:
    report = judged(tmp_path, CROSSED, files={"reference.py": TWO})
    assert report.verdict == "passed", report.reason


@pytest.mark.parametrize("settings", [{"export": 0}, {"import": 0}], ids=["no export", "no import"])
def test_where_memory_cant_be_lent_it_travels_after_all(tmp_path: Path, settings: dict[str, int]) -> None:
    report = judged(tmp_path, ADDING + "\ncustom_kernel = kernel\n", settings=settings)
    assert report.verdict == "passed", report.reason
    assert report.flags[0] == "HOST_COPIES"


# ------------------------------------------------------------------------------------------------------------ cheats

WRONG = ADDING + "\n\ndef custom_kernel(data):\n    y = kernel(data)\n    view(y)[N - 1] = VALUE\n    return y\n"
LENIENT = MADE_THERE.replace("> 1e-12", "> 1e9")


@pytest.mark.parametrize(
    ("value", "problem", "said"),
    [("0.5", MADE_THERE, f"wrong at {N - 1}"), ("float('nan')", LENIENT, "a number isn't finite")],
    ids=["one number", "no number"],
)
def test_a_wrong_answer_on_the_device_is_wrong(tmp_path: Path, value: str, problem: str, said: str) -> None:
    source = WRONG.replace("N - 1", str(N - 1)).replace("VALUE", value)
    report = judged(tmp_path, source, files={"reference.py": problem})
    assert report.verdict == "wrong", report.reason
    assert said in report.reason


# Fresh numbers would hide what a call left; these are the same each time.
FIXED = MADE_THERE.replace("random.Random(seed)", "random.Random(1)")
SCRIBBLER = (
    ADDING
    + """
import kbslurm_eval.shared.values


def custom_kernel(data):
    x, y, k = data
    found = [v * k + w for v, w in zip(view(x), view(y))]
    side = kbslurm_eval.shared.values.device_side
    ctypes.memset(side._in, 0x3F, 8 * x.shape[0])
    view(y)[:] = found
    return y
"""
)


@pytest.mark.parametrize("files", [MADE_THERE, FIXED], ids=["fresh", "the same"])
def test_what_a_submission_does_to_its_input_is_its_own(tmp_path: Path, files: str) -> None:
    """Reference, check and the next call get the judge's own bytes, whatever was written to the lent ones."""
    case = {"n": 3 * N, "seed": 7}  # from 1 MiB on an input that is the same each time is kept
    report = judged(tmp_path, SCRIBBLER, files={"reference.py": files}, benchmarks=[case])
    assert report.verdict == "passed", report.reason


SAME = DOUBLING.replace("random.Random(seed)", "random.Random(1)")


def test_an_input_that_is_always_the_same_is_staged_once(tmp_path: Path) -> None:
    """Over launches, warm-ups and the baseline's calls."""
    config = {"arrays": "device", "baseline": HONEST}
    case, budget = {"n": 4 * N, "seed": 7}, wire.Budget(launches=2, calls=4)
    report = judged(tmp_path, HONEST, files={"reference.py": SAME}, config=config, benchmarks=[case], budget=budget)
    assert report.verdict == "passed", report.reason
    written = [size for name, size in acts(tmp_path) if name == "to_device" and size == 32 * N]
    copied = [size for name, size in acts(tmp_path) if name == "within" and size > 32 * N]
    assert len(copied) >= 2 * 2 * (4 + 2), "each call's input, to the runner's memory"
    assert len(written) <= 2 * 4, "x and y, until three seeds have shown that they never change"


LOOKS_BEHIND = (
    KERNEL
    + """
import kbslurm_eval.shared.values

side = kbslurm_eval.shared.values.device_side
mark = b"left by the launch before" * 4


def remains(at, size):
    return mark in ctypes.string_at(at, size)


if remains(side._in, 65536) or remains(side._out, side._out_size):
    raise RuntimeError("something of the launch before is there")


def custom_kernel(data):
    y = kernel(data)
    ctypes.memmove(side._in, mark, len(mark))
    return y
"""
)


def test_lent_memory_never_is_anothers(tmp_path: Path) -> None:
    """What is lent is made for a launch, overwritten before it is, and never used for another."""
    told = {"mode": "leaderboard", "hidden": [{"n": 70, "seed": 4}], "tests": [{"n": 90, "seed": 3}]}
    report = judged(tmp_path, LOOKS_BEHIND, files={"reference.py": DOUBLING}, config={"arrays": "device"},
                    benchmarks=[{"n": 900, "seed": 7}], budget=wire.Budget(launches=2, calls=3), **told)  # fmt: skip
    assert report.verdict == "passed", report.reason
    assert report.host["launches"] >= 5


# -------------------------------------------------------------------------------------- made before the clock runs

# The runner's own frame says whether the arrays were there before the call was asked for.
LOOKS_UP = """
import sys

calls = 0


def custom_kernel(data):
    global calls
    calls += 1
    frame = sys._getframe()
    while frame is not None and "ahead" not in frame.f_locals:
        frame = frame.f_back
    if frame is None or calls > 2 and frame.f_locals["ahead"] is None:
        raise RuntimeError(f"call {calls}: its arrays were made while the clock ran")
    return kernel(data)
"""


@pytest.mark.parametrize(
    ("kernel", "files", "config"),
    [(ADDING, MADE_THERE, {}), (KERNEL, DOUBLING, {"arrays": "device"})],
    ids=["made on the device", "made on the host"],
)
def test_a_devices_arrays_are_made_before_the_clock(
    tmp_path: Path, kernel: str, files: str, config: dict[str, Any]
) -> None:
    report = judged(tmp_path, kernel + LOOKS_UP, files={"reference.py": files}, config=config, benchmarks=[{"n": 900,
                    "seed": 1}])  # fmt: skip
    assert report.verdict == "passed", report.reason
    assert "DEVICE_BUSY" not in report.flags


# The link's words are in this process: one of them says what was told before.
LOOKS_IN_C = """
#include "kbslurm.h"
#include <cstdio>
#include <cstring>
static unsigned long long told_ahead() {
  char line[512];
  unsigned long long at = 0;
  FILE *maps = fopen("/proc/self/maps", "r");
  while (maps && fgets(line, sizeof line, maps))
    if (strstr(line, "/bell") && sscanf(line, "%llx", &at) == 1) break;
  if (maps) fclose(maps);
  return at ? reinterpret_cast<unsigned long long *>(at)[AHEAD] : 0;
}
static int calls;
KB_ENTRY int custom_kernel(const kb_array *in, int inputs, kb_array *out, int outputs) {
  if (WHEN && !told_ahead()) return 9;
  const double *x = static_cast<const double *>(in[0].data);
  double *y = static_cast<double *>(out[0].data);
  for (long long i = 0; i < in[0].size; ++i) y[i] = x[i] * *static_cast<const long long *>(in[2].data);
  return 0;
}
""".replace("AHEAD", str(runner_link.AHEAD // 8))


@needs(GXX)
def test_compiled_code_finds_its_arrays_made_before_the_clock(tmp_path: Path) -> None:
    told = on_device(LOOKS_IN_C.replace("WHEN", "++calls"), gpu="cpu", config={}, lang="cu", entry="submission.cu",
                     mode="benchmark", tests=[], benchmarks=[{"n": 100, "seed": 1}])  # fmt: skip
    report = ground.judged(tmp_path, told).told
    assert report.verdict == "passed", report.reason


def test_compiled_code_on_a_device_does_too(tmp_path: Path) -> None:
    source = LOOKS_IN_C.replace("WHEN", "++calls > 2")
    told: dict[str, Any] = {"lang": "cu", "entry": "submission.cu", "config": {"arrays": "device"}}
    report = judged(tmp_path, source, files={"reference.py": DOUBLING}, benchmarks=[{"n": 900, "seed": 1}], **told)
    assert report.verdict == "passed", report.reason


# --------------------------------------------------------------------------------------------------- in one go

SHORT: dict[str, Any] = {"files": {"reference.py": DOUBLING}, "config": {"arrays": "device"}}
SHORT |= {"benchmarks": [{"n": 8, "seed": 7}], "budget": wire.Budget(launches=2, calls=20)}


def test_short_calls_are_made_in_one_go_each_with_its_own_data_and_check(tmp_path: Path) -> None:
    report = judged(tmp_path, HONEST, **{**SHORT, "config": {"arrays": "device", "baseline": HONEST}})
    assert report.verdict == "passed", report.reason
    assert report.host["calls_in_one_go"] == {"benchmark": {"0": 9}}
    for one in report.samples:
        assert one.baseline is not None
        assert len(one.own.calls_ns) == len(one.baseline.calls_ns) == 20, "as many count as were asked for"
    assert report.host["calls_checked"] >= 2 * 2 * (2 + 9 + 9 + 5), "every call of every go"
    assert report.host["device"]["times"][0]["claimed_ns"] > 0


def test_where_caches_are_flushed_every_runner_is_stopped_for_it(tmp_path: Path) -> None:
    report = judged(tmp_path, HONEST, **{**SHORT, "config": {"arrays": "device", "cold": True}})
    assert report.verdict == "passed", report.reason
    assert report.host["calls_in_one_go"] == {"benchmark": {"0": 1}}
    assert report.host["caches"]["flushed_bytes"] > 0


# Returns as soon as its kernel is launched, as everybody does.
SLOW_THERE = MADE_THERE.replace("    return y\n", "    gpu.standin_mine(50_000_000)\n    return y\n")
CHECKED = "def check_implementation(data, output):\n"
SLOW_THERE = SLOW_THERE.replace(CHECKED, f"{CHECKED}    opened[0].synchronize()  # whoever reads a result waits\n")
SLOW_THERE = SLOW_THERE.replace(
    "opened = []",
    """opened = []
gpu = ctypes.CDLL("libcuda.so.1")
gpu.standin_mine.argtypes = [ctypes.c_uint64]
""",
)


def test_the_references_pace_includes_what_it_left_on_the_device(tmp_path: Path) -> None:
    """A launch returns long before its end: far too many calls would be planned."""
    budget = wire.Budget(launches=1, calls=30, target_s=0.05)
    told = {**SHORT, "files": {"reference.py": SLOW_THERE}, "config": {}, "budget": budget}
    report = judged(tmp_path, ADDING + "\ncustom_kernel = kernel\n", **told)
    assert report.verdict == "passed", report.reason
    assert report.budget["benchmark"]["calls"] == [5]


# Waits for the next input before it answers.
PEEKING = (
    KERNEL
    + """
import time


def custom_kernel(data):
    x = view(data[0])
    before = x[:]
    y = kernel(data)
    until = time.monotonic() + 0.002
    while time.monotonic() < until:
        if x[:] != before:
            raise RuntimeError("the next input was there before this one was answered")
    return y
"""
)


def test_no_input_is_there_before_the_one_before_it_is_answered(tmp_path: Path) -> None:
    """Nothing of several calls can be done together, or left out."""
    report = judged(tmp_path, PEEKING, **SHORT)
    assert report.verdict == "passed", report.reason
    assert report.host["calls_in_one_go"] == {"benchmark": {"0": 9}}
    assert report.score_s is not None
    assert report.score_s > 0.002


OF_ANOTHER_KIND = """
calls = 0


def custom_kernel(data):
    global calls
    calls += 1
    return [1.0] if calls == 16 else kernel(data)
"""


@pytest.mark.parametrize(
    ("source", "verdicts"),
    [
        (REPLAYED, {"wrong"}),
        (KERNEL + OF_ANOTHER_KIND, {"wrong"}),
        (AFTER_DONE.replace("AFTER", "3_000_000"), {"violation", "wrong"}),
        (LATER.replace("WRONG", "16, 0").replace("RAISES", "0,"), {"wrong"}),
        (LATER.replace("WRONG", "0,").replace("RAISES", "16,"), {"error"}),
    ],
    ids=[
        "the first answer again",
        "one of another kind",
        "written after it has said done",
        "one of them wrong",
        "one of them raises",
    ],
)
def test_each_of_several_answers_is_looked_at_at_once(tmp_path: Path, source: str, verdicts: set[str]) -> None:
    report = judged(tmp_path, source, **SHORT)
    assert report.verdict in verdicts, report.reason


# ------------------------------------------------------------------------------------------------------------- torch

TENSORS_THERE = """
import torch


def generate_input(n, seed, device):
    g = torch.Generator(device=device).manual_seed(seed)
    x = torch.randn(n, n, generator=g, device=device)
    return x.t(), torch.empty(n, n, device=device)


def ref_kernel(data):
    return data[1].copy_(data[0] * 2 + 1)


def check_implementation(data, output):
    assert {one.device.type for one in (*data, output)} == {"cuda"}
    return torch.equal(data[0] * 2 + 1, output), "not twice and one"
"""
TENSORS_IN_PLACE = """
import torch
import kbslurm_eval.shared.values as values


def custom_kernel(data):
    x, y = data
    side = values.device_side
    assert not x.is_contiguous(), "its strides are the problem's"
    assert side._out <= y.data_ptr() < side._out + side._out_size, "it isn't where an answer is read"
    torch.mul(x, 2, out=y)
    y += MORE
    return y
"""


@pytest.mark.torch
@pytest.mark.usefixtures("with_torch")
@pytest.mark.parametrize(("more", "verdict"), [("1", "passed"), ("2", "wrong")])
def test_tensors_stay_on_the_device(tmp_path: Path, more: str, verdict: str) -> None:
    """Torch's device is a stand-in, too (`standin/torch_device.py`): all of them over the same memory."""
    n = 512
    told = ground.manifest(
        TENSORS_IN_PLACE.replace("MORE", more), gpu="cuda", files={"reference.py": TENSORS_THERE}, mode="benchmark",
        tests=[], benchmarks=[{"n": n, "seed": 3}], hidden=[], budget=wire.Budget(launches=1, calls=3),
        limits=ground.limits(memory_bytes=8 << 30, processes=512, file_bytes=256 << 20),
    )  # fmt: skip
    env = standin.device(tmp_path / "toolkit", log=1)
    report = ground.judged(tmp_path, told, env=env, program=standin.with_torch_device(tmp_path / "eval")).told
    assert report.verdict == verdict, report.reason
    assert report.host["device"]["transport"] == "shared memory"
    assert {name for name, size in acts(tmp_path) if size >= 4 * n * n} == {"within"}


SECOND_THOUGHTS = (
    KERNEL
    + """
import time

calls = 0


def custom_kernel(data):
    global calls
    calls += 1
    if calls == 13:
        time.sleep(0.2)
    return [1] if calls == 14 else kernel(data)
"""
)


def test_calls_of_a_go_cant_be_taken_back_by_another_kind_of_answer(tmp_path: Path) -> None:
    """All nine would be made again, one by one, whenever one of them was unlucky."""
    report = judged(tmp_path, SECOND_THOUGHTS, **SHORT)
    assert report.verdict == "wrong", report.reason
