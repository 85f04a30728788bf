"""A GPU in the harness: memory that the judge lends, and what a submission can do with it. The device is a stand-in
(`tests/standin`), judge, cage and runner are the real ones."""

from __future__ import annotations

import array
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kbslurm_eval.cage.dead_sockets import QUIET
from kbslurm_eval.judge import device_memory, output_checks
from kbslurm_eval.shared import wire
from tests import standin
from tests.flow import harness_ground as ground
from tests.services import USER_NAMESPACES, needs

DOUBLING = """
import array
import random


def generate_input(n, seed):
    r = random.Random(seed)
    return array.array("d", [r.random() for _ in range(n)]), array.array("d", bytes(8 * n)), 3


def ref_kernel(data):
    x, _, k = data
    return array.array("d", [v * k for v in x])


def check_implementation(data, output):
    bad = [n for n, (v, w) in enumerate(zip(data[0], output)) if not abs(v * data[2] - w) < 1e-12]
    return not bad, f"wrong at {bad[0]}" if bad else ""
"""
# The device's memory is the host's, so that Python can do what a kernel would.
KERNEL = """
import ctypes
import kbslurm_eval.runner.device_arrays as device_arrays

gpu = ctypes.CDLL("libcuda.so.1")
gpu.standin_write.argtypes = [ctypes.c_uint64, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint64]
gpu.standin_busy.argtypes = [ctypes.c_uint64]


def view(a):
    return (ctypes.c_double * a.shape[0]).from_address(a.ptr)


def kernel(data):
    x, y, k = data
    view(y)[:] = [v * k for v in view(x)]
    return y

"""
HONEST = KERNEL + "\ncustom_kernel = kernel\n"
# A runner that says done without waiting for its device.
HURRIED = (
    KERNEL
    + """
import kbslurm_eval.shared.values

device_arrays.Side.end = lambda side: 1000


def later(y, found, ns):
    for at in range(0, len(found), 2000):
        part = (ctypes.c_double * len(found[at : at + 2000]))(*found[at : at + 2000])
        assert gpu.standin_write(y + 8 * at, part, ctypes.sizeof(part), ns) == 0


def place():
    return kbslurm_eval.shared.values.device_side._out  # where the judge looks
"""
)
IN_C = """
#include "kbslurm.h"
KB_ENTRY int custom_kernel(const kb_array *in, int inputs, kb_array *out, int outputs) {
  const double *x = static_cast<const double *>(in[0].data);
  double *y = static_cast<double *>(out[0].data);
  const long long k = *static_cast<const long long *>(in[2].data);
  if (inputs != 3 || outputs != 1 || in[0].size != out[0].size) return 9;
  for (long long i = 0; i < in[0].size; ++i) y[i] = x[i] * k;
  return 0;
}
"""


@pytest.fixture
def gpu(tmp_path: Path) -> Any:
    """An environment with a device of these settings."""
    return lambda **settings: standin.device(tmp_path / "toolkit", **settings)


def on_device(source: str, **changed: Any) -> wire.Manifest:
    """A manifest whose arrays lie on a device."""
    told: dict[str, Any] = {
        "mode": "test",
        "gpu": "H100",
        "files": {"reference.py": DOUBLING},
        "config": {"arrays": "device"},
        "tests": [{"n": 5, "seed": 1}, {"n": 3000, "seed": 2}],
        "benchmarks": [{"n": 4000, "seed": 7}],
        "hidden": [],
        "budget": wire.Budget(launches=2, calls=5),
    }
    return ground.manifest(source, **{**told, **changed})


def _judged(folder: Path, env: dict[str, str], source: str, **changed: Any) -> wire.Report:
    return ground.judged(folder, on_device(source, **changed), env=env).told


CALLS = """
import os, sys
sys.path.insert(0, sys.argv[1])
from kbslurm_eval.device import driver
device = driver.found().open(0)
mine, fd = device.share(100_000)
theirs = device.imported(fd, mine.size)
os.close(fd)
device.cover(mine.at, bytes(range(251)), mine.size)
held = device.read(theirs.at, 100_000)
assert held == (bytes(range(251)) * 400)[:100_000]
assert device.gather(theirs.at + 7, 5000, 64, 16) == b"".join(held[7 + n * 5000 :][:64] for n in range(16))
private = device.allocate(5000)
device.copy(private.at, theirs.at + 251, 5000)
assert device.read(private.at, 5000) == held[:5000]
first, last = device.event(), device.event()
device.record(first)
device.record(last)
device.synchronize()
assert device.elapsed_ns(first, last) >= 0
free = device.free_bytes()[0]
device.free(private)
assert device.free_bytes()[0] == free + 5000
device.free(theirs)
device.free(mine)
device.close()
print(device.facts.kind, device.facts.name)
"""


@pytest.mark.parametrize("kind", ["cuda", "hip"])
def test_each_driver_is_called_as_it_wants(tmp_path: Path, kind: str) -> None:
    argv = [sys.executable, "-I", "-c", CALLS, str(ground.EVAL)]
    done = subprocess.run(
        argv, env=standin.device(tmp_path / "toolkit", kind), capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.stdout, done.stderr) == (f"{kind} Stand-in 1\n", "")


def test_inputs_and_outputs_lie_in_memory_of_the_judge_s(tmp_path: Path, gpu: Any) -> None:
    report = _judged(tmp_path, gpu(), HONEST, mode="benchmark", budget=wire.Budget(launches=1, calls=5))
    assert report.verdict == "passed", report.reason
    assert report.isolation.level == ground.achieved_level()
    told = report.host["device"]
    assert (told["name"], told["pci"], told["transport"]) == ("Stand-in 1", "0000:01:00.0", "shared memory")
    assert told["uuid"] == "40" * 16
    assert [(row["phase"], row["index"]) for row in told["times"]] == [("benchmark", 0)]
    assert told["times"][0]["claimed_ns"] > 0
    assert "HOST_COPIES" not in report.flags
    assert report.score_s is not None


@pytest.mark.parametrize("level", [1, 2])
def test_the_driver_may_name_its_threads(tmp_path: Path, gpu: Any, level: int) -> None:
    """Without that a real one refuses to start (error 304), whatever else a cage lets through."""
    env = gpu(names_threads=1) | {"KBSLURM_EVAL_LEVEL": str(level)}
    found = ground.judged(tmp_path, on_device(HONEST), env=env, program=standin.with_device_files(tmp_path / "eval"))
    assert found.told.verdict == "passed", found.told.reason
    assert found.told.isolation.level == min(level, ground.achieved_level())


def test_compiled_code_gets_the_device_s_addresses(tmp_path: Path, gpu: Any) -> None:
    report = _judged(tmp_path, gpu(), IN_C, lang="cu", entry="submission.cu", mode="benchmark",
                     tests=[], budget=wire.Budget(launches=1, calls=5))  # fmt: skip
    assert report.verdict == "passed", report.reason
    assert report.host["device"]["transport"] == "shared memory"
    assert report.host["device"]["times"][0]["claimed_ns"] > 0


NUMPY = """
import numpy as np


def generate_input(n, seed):
    r = np.random.default_rng(seed)
    return r.random((n, n + 1)).T, np.zeros((n + 1, n), dtype="float32")


def ref_kernel(data):
    return (data[0] * 2).astype("float32")


def check_implementation(data, output):
    return bool((output == ref_kernel(data)).all()), ""
"""
STRIDED = """
import ctypes


def custom_kernel(data):
    x, y = data
    told = x.__cuda_array_interface__
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            at = told["data"][0] + i * told["strides"][0] + j * told["strides"][1]
            value = ctypes.c_double.from_address(at).value
            ctypes.c_float.from_address(y.ptr + 4 * (i * y.shape[1] + j)).value = value * 2
    return ANSWER
"""


@pytest.mark.parametrize(
    ("answer", "verdict", "said"),
    [
        ("y", "passed", ""),
        ("x", "wrong", "output has dtype <f8; <f4 was expected"),
        ("[1.0]", "wrong", "output is a list; an array on the device was expected"),
    ],
)
def test_numpy_s_arrays_by_their_interface(tmp_path: Path, gpu: Any, answer: str, verdict: str, said: str) -> None:
    source, files = STRIDED.replace("ANSWER", answer), {"reference.py": NUMPY}
    report = _judged(tmp_path, gpu(), source, files=files, tests=[{"n": 9, "seed": 1}])
    assert report.verdict == verdict, report.reason
    assert said in report.reason


def test_a_builder_and_a_profiler_have_the_device_too(tmp_path: Path, gpu: Any) -> None:
    """Their calls aren't judged: they put copies onto the device themselves."""
    told = on_device(HONEST, mode="profile", build=wire.Build(when="always"), budget=wire.Budget(launches=1, calls=3))
    outcome = ground.judged(tmp_path, told, env=gpu())
    assert outcome.told.verdict == "passed", outcome.told.reason
    assert outcome.told.profile.startswith("benchmark-0 (n: 4000; seed: 7): "), outcome.told.profile
    assert {one.name for one in outcome.told.artifacts} == {"benchmark-0.table.txt", "benchmark-0.functions.json"}


# ------------------------------------------------------------------------------------------------------------ cheats

AFTER_DONE = (
    HURRIED
    + """
class Nothing:
    def __init__(self, at, shape):
        self.__cuda_array_interface__ = {"typestr": "<f8", "shape": shape, "data": (at, False)}


def custom_kernel(data):
    x, y, k = data
    later(place(), [v * k for v in view(x)], AFTER)
    return Nothing(place(), y.shape)  # already there, so nothing is copied
"""
)
# A small array between two large ones: what takes the time may be that one.
IN_THE_MIDDLE = """
import array
import random


def generate_input(n, seed):
    r = random.Random(seed)
    return array.array("d", [r.random() for _ in range(n)])


def ref_kernel(data):
    twice, thrice = (array.array("d", [v * k for v in data]) for k in (2, 3))
    return twice, array.array("d", [sum(data)]), thrice
"""
MIDDLE_LATER = (
    AFTER_DONE.rpartition("def custom_kernel")[0]
    + """
def custom_kernel(data):
    x, n, base = list(view(data)), data.shape[0], place()
    middle = -(-8 * n // 256) * 256
    for at, numbers in ((base, [v * 2 for v in x]), (base + middle + 256, [v * 3 for v in x])):
        (ctypes.c_double * n).from_address(at)[:] = numbers
    later(base + middle, [sum(x)], AFTER)
    return Nothing(base, (n,)), Nothing(base + middle, (1,)), Nothing(base + middle + 256, (n,))
"""
)
# The same, by a second mapping of the same memory: what was imported second is the output's.
TWICE = AFTER_DONE.replace(
    "class Nothing",
    """
again = kbslurm_eval.shared.values.device_side.device._mapped(2, 65536).at


class Nothing""",
).replace("later(place()", "later(again")
SWAPPED = (
    KERNEL
    + """
import kbslurm_eval.shared.values

libc = ctypes.CDLL(None)
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.mmap.restype = ctypes.c_void_p


def custom_kernel(data):
    at = kbslurm_eval.shared.values.device_side._out
    libc.mmap(at, 65536, 3, 0x32, -1, 0)  # private memory where the judge's was
    return kernel(data)
"""
)
OTHER_FD = (
    KERNEL
    + """
import os
import kbslurm_eval.runner.serve as serve
import kbslurm_eval.shared.values

mine = os.open("/tmp", os.O_TMPFILE | os.O_RDWR)
os.ftruncate(mine, 4 << 20)
serve._line.sendmsg([b"swap"], [(1, 1, mine.to_bytes(4, "little"))])  # SCM_RIGHTS: nobody takes it
side = kbslurm_eval.shared.values.device_side
side._out = side.device.imported(mine, 65536).at
custom_kernel = kernel
"""
)
UNMAPPED = (
    KERNEL
    + """
import kbslurm_eval.shared.values


def custom_kernel(data):
    gpu.cuMemUnmap(ctypes.c_uint64(kbslurm_eval.shared.values.device_side._out), ctypes.c_size_t(65536))
    return kernel(data)
"""
)
HOARDING = (
    KERNEL
    + """
at = ctypes.c_uint64()
size = 1 << 30


def custom_kernel(data):
    global size
    while size >= 4096:
        if gpu.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(size)) != 0:
            size //= 2
    return kernel(data)
"""
)
REPLAYED = (
    KERNEL
    + """
kept = []


def custom_kernel(data):
    if kept:
        return kept[0]
    kept.append(kernel(data))
    return kept[0]
"""
)
LEFT_BUSY = (
    KERNEL
    + """
device_arrays.Side.end = lambda side: gpu.standin_busy(BUSY) or 1000
custom_kernel = kernel
"""
)
CHEATS = {
    "it writes when it has said done": (AFTER_DONE.replace("AFTER", "400_000_000"), "violation", "still being written"),
    "by a second mapping": (TWICE.replace("AFTER", "400_000_000"), "violation", "still being written"),
    "its own memory in the judge's place": (SWAPPED, "wrong", ""),
    "another descriptor": (OTHER_FD, "wrong", ""),
    "unmapped": (UNMAPPED, "error", "SIGSEGV"),
    "all of the memory taken": (HOARDING, "memory", "MiB of the device's memory free"),
    "the first answer again": (REPLAYED, "wrong", ""),
    "work that doesn't end": (LEFT_BUSY.replace("BUSY", "10_000_000_000"), "violation", "still on the device"),
}


def test_a_small_array_of_an_answer_that_comes_later_is_seen(tmp_path: Path, gpu: Any) -> None:
    """Hardly ever was one of the places there that the judge looks at, and 50 ms of work after "done" were free."""
    told = on_device(
        MIDDLE_LATER.replace("AFTER", "50_000_000"), files={"reference.py": IN_THE_MIDDLE}, mode="benchmark", tests=[],
        benchmarks=[{"n": 20_000, "seed": 7}], budget=wire.Budget(launches=1, calls=6),
    )  # fmt: skip
    report = ground.judged(tmp_path, told, env=gpu(sync_ns=50_000_000)).told
    assert report.verdict == "violation", report.reason
    assert "still being written" in report.reason


@pytest.mark.parametrize("name", CHEATS)
def test_cheats_on_the_device(tmp_path: Path, gpu: Any, name: str) -> None:
    source, verdict, said = CHEATS[name]
    report = _judged(tmp_path, gpu(), source, tests=[{"n": 50, "seed": 1}, {"n": 3000, "seed": 2}])
    assert report.verdict == verdict, report.reason
    assert said in report.reason


def _timed(folder: Path, env: dict[str, str], source: str, **config: Any) -> wire.Report:
    told: dict[str, Any] = {"mode": "benchmark", "tests": [], "benchmarks": [{"n": 50, "seed": 7}]}
    told |= {"budget": wire.Budget(launches=1, calls=3), "config": {"arrays": "device", **config}}
    return _judged(folder, env, source, **told)


# Several short calls are made in one go, without stopping the runner, unless caches are flushed.
ONE_BY_ONE = pytest.mark.parametrize("cold", [True, False], ids=["one by one", "in one go"])


@ONE_BY_ONE
def test_what_the_judge_waits_for_is_in_the_time(tmp_path: Path, gpu: Any, cold: bool) -> None:
    """On a device that lets copies wait for their turn, deferred work is done before the judge's look at it: it passes,
    at the time that it really took, whatever it claims."""
    source = AFTER_DONE.replace("AFTER", "1_500_000")
    # A wait for the whole device that takes so long makes the reference slow, and slow calls are made one by one.
    report = _timed(tmp_path, gpu(copies_wait=1, sync_ns=50_000_000 if cold else 0), source, cold=cold)
    assert report.verdict == "passed", report.reason
    assert (report.host["calls_in_one_go"]["benchmark"]["0"] == 1) == cold
    assert min(report.samples[0].own.calls_ns) >= 1_500_000
    assert report.score_s is not None
    assert report.score_s >= 0.001_5, "what it hid by saying done at once was taken off again"


WAITED_FOR = AFTER_DONE.replace("device_arrays.Side.end = lambda side: 1000\n", "").replace("AFTER", "1_000_000")


@ONE_BY_ONE
@pytest.mark.parametrize("baseline", [True, False], ids=["beside a baseline", "without"])
def test_a_final_has_goes_on_a_device_too(tmp_path: Path, gpu: Any, cold: bool, baseline: bool) -> None:
    raises = "def custom_kernel(data):\n    raise RuntimeError('no')\n"
    config: dict[str, Any] = {"arrays": "device", "cold": cold, "rivals": [HONEST, raises, f"{HONEST}# another\n"]}
    report = _judged(
        tmp_path, gpu(), HONEST, mode="leaderboard", benchmarks=[{"n": 50, "seed": 7}],
        config={**config, **({"baseline": HONEST} if baseline else {})}, budget=wire.Budget(launches=2, calls=10),
    )  # fmt: skip
    assert report.verdict == "passed", report.reason
    assert (report.host["calls_in_one_go"]["benchmark"]["0"] == 1) == cold
    assert [row["verdict"] for row in report.host["rivals"]] == ["passed", "error", "passed"], report.host["rivals"]
    calls = {n: [len(s.own.calls_ns) for s in report.samples if (s.phase, s.rival) == ("ranked", n)] for n in (0, 1, 3)}
    assert calls == {0: [10, 10], 1: [10, 10], 3: [10, 10]}
    assert all((s.baseline is not None) == baseline for s in report.samples)


@ONE_BY_ONE
def test_changing_over_to_a_runner_is_its_own_time(tmp_path: Path, gpu: Any, cold: bool) -> None:
    """A device takes longer to work for another process than a short kernel does. It is in every call, once, and never
    taken off; and who measures that on a null call too takes a kernel's time for noise."""
    settings = {"change_over_ns": 3_000_000, "copies_wait": 1, "sync_ns": 50_000_000 if cold else 0}
    report = _timed(tmp_path, gpu(**settings), WAITED_FOR, cold=cold)
    assert report.verdict == "passed", report.reason
    assert (report.host["calls_in_one_go"]["benchmark"]["0"] == 1) == cold
    assert report.score_s is not None
    assert report.score_s >= 0.003_5
    null_ns = report.benchmarks[0].null_ns
    assert null_ns is not None
    assert null_ns < 2_000_000
    assert set(report.flags) <= {"ONE_LAUNCH"}


SPINNING = (
    KERNEL
    + """
import kbslurm_eval.shared.values

gpu.standin_spin.argtypes = [ctypes.c_uint64, ctypes.c_uint64, ctypes.c_size_t, ctypes.c_double, ctypes.c_uint64]
gpu.standin_spun.argtypes = [ctypes.c_uint64]
device_arrays.Side.end = lambda side: 1000
calls = 0


class Nothing:
    def __init__(self, at, shape):
        self.__cuda_array_interface__ = {"typestr": "<f8", "shape": shape, "data": (at, False)}


def custom_kernel(data):
    global calls
    calls += 1
    x, y, k = data
    side = kbslurm_eval.shared.values.device_side
    if calls == 1:
        found = kernel(data)
    else:
        while not gpu.standin_spun(side._out):
            pass
        found = Nothing(side._out, y.shape)
    assert gpu.standin_spin(side._in, side._out, x.shape[0], 3.0, 1_500_000) == 0  # for the next input
    return found
"""
)


@ONE_BY_ONE
def test_a_kernel_that_spins_until_the_input_changes_gains_nothing(tmp_path: Path, gpu: Any, cold: bool) -> None:
    """It is at work from the moment of the judge's copy: nothing of the way to the runner and back delays it, so none
    of that may be taken off. Warm-ups bring it into place."""
    report = _timed(tmp_path, gpu(copies_wait=1, sync_ns=50_000_000 if cold else 0), SPINNING, cold=cold)
    assert report.verdict == "passed", report.reason
    assert (report.host["calls_in_one_go"]["benchmark"]["0"] == 1) == cold
    assert report.score_s is not None
    assert report.score_s >= 0.001_5
    row = report.host["device"]["times"][0]
    assert row["raw_ns"] >= 1_500_000, "the time without anything taken off stands beside it"


COUNTS_ROUNDS = """
import sys
sys.path.insert(0, EVAL)
from kbslurm_eval.cage import dead_sockets

plain = dead_sockets._round


def counted():
    with open(FILE, "a") as file:
        file.write("x")
    plain()


dead_sockets._round = counted
from kbslurm_eval import run
raise SystemExit(run.main(sys.argv[1:]))
"""


@needs(USER_NAMESPACES)
def test_the_socket_by_which_memory_is_lent_is_none_that_the_kernel_must_look_for(tmp_path: Path, gpu: Any) -> None:
    """Each stop of each launch took 17 ms: five seconds of the ranked limit for 5 x 30 calls."""
    program, rounds = tmp_path / "counts.py", tmp_path / "rounds"
    rounds.write_text("")
    program.write_text(COUNTS_ROUNDS.replace("EVAL", repr(str(ground.EVAL))).replace("FILE", repr(str(rounds))))
    found = ground.judged(tmp_path / "run", on_device(HONEST, mode="benchmark"), env=gpu(), program=program).told
    assert found.verdict == "passed", found.reason
    assert found.host["calls_checked"] >= 10
    assert len(rounds.read_text()) <= 3 * 2 * QUIET, "in each of three launches, before the judge has it"


def test_a_claimed_device_time_is_a_claim(tmp_path: Path, gpu: Any) -> None:
    source = (
        KERNEL
        + """
import time

ended = device_arrays.Side.end
device_arrays.Side.end = lambda side: ended(side) // 1000


def custom_kernel(data):
    time.sleep(0.1)
    return kernel(data)
"""
    )
    report = _timed(tmp_path, gpu(), source)
    assert report.verdict == "passed", report.reason
    assert "TIMING_DISPUTED" in report.flags
    assert "the runner claims" in report.host["evidence"]["TIMING_DISPUTED"]
    assert min(report.samples[0].own.calls_ns) >= 100_000_000, "the judge's clock is what counts"


def test_a_device_that_is_left_busy_is_told(tmp_path: Path, gpu: Any) -> None:
    source = LEFT_BUSY.replace("BUSY", "600_000_000")
    tests = [{"n": 50, "seed": n} for n in range(2)]
    report = _judged(tmp_path, gpu(), source, tests=tests)
    assert report.verdict == "passed", report.reason
    assert report.flags == ["DEVICE_BUSY"]
    assert re.match(r"after [23] of 3 calls", report.host["evidence"]["DEVICE_BUSY"]), "the first test is asked twice"


# ------------------------------------------------------------------------------------------ where it can't be shared


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"export": 0}, "can't export memory"),
        ({"import": 0}, "the runner can't map the judge's memory"),
        ({"mode": 3}, "exclusive-process mode"),
    ],
    ids=["no export", "no import", "exclusive"],
)
def test_host_copies_where_memory_can_t_be_lent(tmp_path: Path, gpu: Any, settings: dict[str, int], why: str) -> None:
    """The stand-in gives an exclusive device's context to one process: the baseline has it before the candidate."""
    config = {"arrays": "device", "baseline": HONEST} if "mode" in settings else {"arrays": "device"}
    report = _judged(tmp_path, gpu(**settings), HONEST, mode="benchmark", tests=[{"n": 50, "seed": 1}], config=config,
                     budget=wire.Budget(launches=1, calls=5))  # fmt: skip
    assert report.verdict == "passed", report.reason
    assert report.flags[0] == "HOST_COPIES"
    assert why in report.host["evidence"]["HOST_COPIES"]
    assert report.paired == ("mode" in settings)


# Only who has an exclusive device to himself can open it: a check can do so when no runner is left.
LOOKING = f"""
from kbslurm_eval.device import driver

{DOUBLING.replace("def check_implementation", "def right")}

def check_implementation(data, output):
    driver.found().open(0).close()
    return right(data, output)
"""
LATER = (
    KERNEL
    + """
calls = 0


def custom_kernel(data):
    global calls
    calls += 1
    if calls in (WRONG):
        view(data[1])[:] = [0.5] * data[1].shape[0]
        return data[1]
    if calls in (RAISES):
        raise ValueError("no more")
    return kernel(data)
"""
)


def test_on_an_exclusive_device_answers_are_checked_when_the_runner_has_ended(tmp_path: Path, gpu: Any) -> None:
    config = {"arrays": "device", "baseline": HONEST}
    report = _judged(tmp_path, gpu(mode=3), HONEST, mode="benchmark", files={"reference.py": LOOKING}, config=config)
    assert report.verdict == "passed", report.reason
    assert report.host["calls_checked"] > 20
    assert report.paired


def test_a_check_that_opens_an_exclusive_device_beside_a_runner_would_fail(tmp_path: Path, gpu: Any) -> None:
    """The other test's ground: without the wait every answer would be wrong."""
    held = LOOKING.replace("def generate_input(n, seed):", "def generate_input(n, seed):\n    open_now()").replace(
        "import random", "import random\n\n\ndef open_now():\n    driver.found().open(0).close()"
    )
    report = _judged(tmp_path, gpu(mode=3), HONEST, files={"reference.py": held})
    assert report.verdict == "infrastructure"
    assert "generate_input failed" in report.reason


@pytest.mark.parametrize(
    ("wrong", "raises", "mode", "verdict", "reason", "statuses"),
    [
        ("3, 0", "0,", "test", "wrong", "test phase, test 2 of 3 (n: 3000; seed: 2)", ["pass", "fail", "pass"]),
        ("2, 0", "0,", "test", "wrong", "test phase, test 1 of 3 (n: 5; seed: 1)", ["fail", "pass", "pass"]),
        ("3, 0", "4,", "test", "wrong", "test phase, test 2 of 3 (n: 3000; seed: 2)", ["pass", "fail", "error"]),
        ("4, 0", "3,", "test", "error", "test phase, test 2 of 3 (n: 3000; seed: 2)", ["pass", "error", "fail"]),
        ("6, 0", "0,", "benchmark", "wrong", "benchmark phase: an answer is wrong: wrong at 0", ["pass"] * 3),
    ],
    ids=["a later test", "the second time", "and an exception after it", "and one before it", "a timed call"],
)
def test_what_an_exclusive_device_answered_wrongly_is_told_as_elsewhere(
    tmp_path: Path, gpu: Any, wrong: str, raises: str, mode: str, verdict: str, reason: str, statuses: list[str]
) -> None:
    source = LATER.replace("WRONG", wrong).replace("RAISES", raises)
    tests = [{"n": 5, "seed": 1}, {"n": 3000, "seed": 2}, {"n": 70, "seed": 3}]
    report = _judged(tmp_path, gpu(mode=3), source, mode=mode, tests=tests)
    assert (report.verdict, report.reason[: len(reason)]) == (verdict, reason)
    assert [test.status for test in report.tests] == statuses
    assert ("NONDETERMINISTIC" in report.flags) == (wrong == "2, 0")


def test_compiled_code_with_host_copies(tmp_path: Path, gpu: Any) -> None:
    report = _judged(tmp_path, gpu(export=0), IN_C, lang="cu", entry="submission.cu")
    assert report.verdict == "passed", report.reason
    assert report.flags == ["HOST_COPIES"]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"version": 10020}, "the driver supports CUDA 10.2, but 11.4 is needed; update it"),
        ({"devices": 0}, "the CUDA driver is installed but shows no device; is one allocated to this job?"),
        ({"memory": 70_000}, "the device has too little memory free for this problem's arrays"),
        (None, "no GPU driver is installed: this machine has neither libcuda.so.1 nor libamdhip64.so"),
    ],
    ids=["old driver", "no device", "no memory", "no driver"],
)
def test_a_machine_without_a_usable_device_is_its_own_trouble(
    tmp_path: Path, gpu: Any, settings: dict[str, int] | None, said: str
) -> None:
    env = {} if settings is None else gpu(**settings)
    report = _judged(tmp_path, env, HONEST)
    assert report.verdict == "infrastructure"
    assert report.reason.endswith(said)


HUNGRY = (
    KERNEL
    + """
calls = 0


def custom_kernel(data):
    global calls
    calls += 1
    if calls > 2:
        raise MemoryError("the device is out of memory")
    return kernel(data)
"""
)


@pytest.mark.parametrize(("held", "verdict"), [(600, "memory"), (100, "infrastructure")])
def test_a_baseline_without_memory_is_the_fault_of_who_holds_it(
    tmp_path: Path, gpu: Any, held: int, verdict: str
) -> None:
    """Who has taken more than half of the device's memory is to blame, and isn't measured again for it."""
    taken = f"at = ctypes.c_uint64()\nassert gpu.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t({held} << 20)) == 0"
    source, config = f"{KERNEL}\n{taken}\ncustom_kernel = kernel\n", {"arrays": "device", "baseline": HUNGRY}
    report = _judged(tmp_path, gpu(), source, mode="benchmark", tests=[], benchmarks=[{"n": 50, "seed": 7}],
                     config=config, budget=wire.Budget(launches=1, calls=3))  # fmt: skip
    assert report.verdict == verdict, report.reason
    assert (f"the submission held {held} of the device's 1024 MiB" in report.reason) == (verdict == "memory")


NEEDY = DOUBLING.replace("    r = random", "    need()\n    r = random").replace(
    "import random\n",
    """import random

from kbslurm_eval.device import driver


def need():
    gpu = driver.found().open(0)
    if gpu.free_bytes()[0] < 500 << 20:
        raise MemoryError("the device is out of memory")
""",
)


def test_an_input_without_memory_is_the_fault_of_who_holds_it(tmp_path: Path, gpu: Any) -> None:
    """Taking all but what must be free was a free retry: the judge's next input failed as machine trouble."""
    hoard = HOARDING.replace("size = 1 << 30", "size = 480 << 20").replace("while size >= 4096", "if size").replace(
        "size //= 2", "raise MemoryError"
    ).replace("    return kernel", "    size = 0\n    return kernel")  # fmt: skip
    report = _judged(tmp_path, gpu(), hoard.replace("480 <<", "700 <<"), files={"reference.py": NEEDY})
    assert report.verdict == "memory", report.reason


NAPS = """
import time

from kbslurm_eval.runner import serve

own, asked = serve._Ahead.__init__, 0


def slow(self, *given):
    global asked
    asked += 1
    if asked > 2:
        time.sleep(3)
    own(self, *given)


serve._Ahead.__init__ = slow
"""


def test_a_wait_before_a_call_is_in_its_limit_on_a_device(gpu: Any, tmp_path: Path) -> None:
    """It was in none: the run's whole time was over at some point, which is tried again for nothing."""
    told = on_device(HONEST + NAPS, mode="benchmark", tests=[], limits=ground.limits(benchmark_s=6.0, total_s=60.0))
    report = ground.judged(tmp_path / "run", told, env=gpu()).told
    assert report.verdict == "timeout", report.reason
    assert "no answer within 6 s" in report.reason


def test_each_array_in_a_container_is_looked_at_whatever_stands_first() -> None:
    class There:
        __cuda_array_interface__ = {"shape": (3,), "typestr": "<f4", "data": (4096, False), "version": 3}

    class Device:
        @staticmethod
        def read(at: int, size: int) -> bytes:
            return array.array("f", [math.nan] * (size // 4)).tobytes()

    memory: Any = device_memory.DeviceMemory(lambda: Device(), lambda: True)  # type: ignore[arg-type, return-value]
    for value in ((1.0, There()), (There(), 1.0), [0.5, There()], {"loss": 1.0, "gradients": There()}):
        assert not output_checks.finite(memory.seen(value))
    assert memory.seen([0.5, 1]) == [0.5, 1]
