"""What a submission's author is told: the mistake by its name for kernels that are wrong in the usual ways, a trace
once with the tests it hit, the refusals of the cage; and nothing of it of hidden cases."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from kbslurm_eval.cage.limits import gpu_devices
from kbslurm_eval.shared import wire
from tests.flow import harness_ground as ground
from tests.services import GXX, LANDLOCK, needs, pointless

GUIDE = ground.ROOT / "docs" / "competitor-guide.md"
BEGIN, END = "<!-- wrong kernels: made by tests/flow/test_harness_hints.py -->\n\n", "\n<!-- /wrong kernels -->\n"

PRODUCT = """
import numpy


def generate_input(m, k, n, seed):
    draw = numpy.random.default_rng(seed)
    a, b = draw.integers(1, 20, (k, m)), draw.integers(1, 20, (k, n))  # whose sums are the same on every machine
    return a.astype("f4").T, b.astype("f4")


def ref_kernel(data):
    a, b = data
    return a @ b


def check_implementation(data, output):
    return numpy.allclose(output, ref_kernel(data), rtol=1e-4), "the product is wrong"
"""
CASES: list[wire.Params] = [{"m": 24, "k": 64, "n": 16, "seed": 1}, {"m": 40, "k": 64, "n": 16, "seed": 2}]
SCALED = """
import array


def generate_input(n, seed):
    return array.array("f", range(n))


def ref_kernel(data):
    return array.array("f", [2 * x for x in data])


def check_implementation(data, output):
    return output == ref_kernel(data), "another answer"
"""
KERNEL = """#include "kbslurm.h"

KB_ENTRY int custom_kernel(const kb_array *in, int inputs, kb_array *out, int outputs) {
  const float *x = (const float *)in[0].data;
  float *y = (float *)out[0].data;
  for (long long i = 0; i < in[0].size; ++i)
    y[i] = 2 * x[i];
  return 0;
}
"""
# the mistake, what such a submission does, and the submission
WRONG = [
    ("no `custom_kernel`", "`def custom_kernal(data):`", "def custom_kernal(data):\n    return data[0] @ data[1]\n"),
    ("wrong signature", "`def custom_kernel(a, b):`", "def custom_kernel(a, b):\n    return a @ b\n"),
    ("takes a tuple for an array", "`data.reshape(-1)`", "def custom_kernel(data):\n    return data.reshape(-1)\n"),
    ("returns nothing", "no `return`", "def custom_kernel(data):\n    answer = data[0] @ data[1]\n"),
    (
        "wrong dtype",
        '`a.astype("f8") @ b`',
        'def custom_kernel(data):\n    a, b = data\n    return a.astype("f8") @ b\n',
    ),
    ("wrong shape", "`(a @ b).T`", "def custom_kernel(data):\n    a, b = data\n    return (a @ b).T\n"),
    (
        "last block left out",
        "whole blocks of 16 rows only",
        (
            "import numpy\n\n\ndef custom_kernel(data):\n    a, b = data\n"
            '    out = numpy.zeros((len(a), b.shape[1]), "f4")\n'
            "    for row in range(0, len(a) // 16 * 16, 16):\n        out[row : row + 16] = a[row : row + 16] @ b\n"
            "    return out\n"
        ),
    ),
    (
        "answer never written",
        "fills another array",
        (
            "import numpy\n\n\ndef custom_kernel(data):\n    a, b = data\n"
            '    return numpy.zeros((len(a), b.shape[1]), "f4")\n'
        ),
    ),
    (
        "strides ignored",
        "reads `a` by its address",
        (
            "import ctypes\nimport numpy\n\n\ndef custom_kernel(data):\n    a, b = data\n"
            "    at = ctypes.cast(a.ctypes.data, ctypes.POINTER(ctypes.c_float))\n"
            "    return numpy.ctypeslib.as_array(at, a.shape) @ b\n"
        ),
    ),
    (
        "too little precision",
        "sums in half precision",
        'def custom_kernel(data):\n    a, b = data\n    return (a.astype("f2") @ b.astype("f2")).astype("f4")\n',
    ),
    ("wrong factor", "`2 * (a @ b)`", "def custom_kernel(data):\n    a, b = data\n    return 2 * (a @ b)\n"),
    (
        "needs the network",
        "`urllib.request.urlopen(…)`",
        'import urllib.request\n\nurllib.request.urlopen("http://192.0.2.1/weights")\n',
    ),
]
WRONG_CPP = [
    ("undefined name in C++", "`y[i] = 2 * xx[i];`", KERNEL.replace("2 * x[i]", "2 * xx[i]")),
    (
        "wrong signature in C++",
        "`int custom_kernel(float *x)`",
        "int custom_kernel(float *x) { return x != nullptr; }\n",
    ),
    (
        "the same, with a reference in C++",
        "`int custom_kernel(float *x)`",
        '#include "task.h"\nint custom_kernel(float *x) { return x != nullptr; }\n',
    ),
    ("index beyond an array in C++", "writes through a wild pointer", KERNEL.replace("y[i] =", "y[i << 40] =")),
]


def _product(source: str, **changed: object) -> wire.Manifest:
    told = {"files": {"reference.py": PRODUCT}, "tests": CASES, "benchmarks": CASES, "hidden": [], "mode": "test"}
    return ground.manifest(source, **{**told, **changed})


def _scaled(source: str) -> wire.Manifest:
    return ground.manifest(
        source, lang="cu", entry="submission.cu", files={"reference.py": SCALED}, mode="test", hidden=[]
    )


def _typed(source: str) -> wire.Manifest:
    """The same to a reference in C++, if it has the problem's types."""
    if "task.h" not in source:
        return _scaled(source)
    types = "#pragma once\n#include <vector>\nusing input_t = std::vector<float>;\nusing output_t = input_t;\n"
    reference = (
        '#include "task.h"\ninput_t generate_input(int n, int seed) { return input_t(n, seed); }\n'
        "output_t ref_kernel(input_t data) { return data; }\n"
        "bool check_implementation(output_t output, output_t expected) { return output == expected; }\n"
    )
    adapter = {
        "file": "reference.cuh", "headers": ["task.h"], "shared": ["task.h"], "own_reporter": False,
        "generate": [["int", "n"], ["int", "seed"]], "answer": "ref_kernel", "check": "output_reference",
    }  # fmt: skip
    return ground.manifest(
        source, lang="cu", entry="submission.cu", files={"task.h": types, "reference.cuh": reference}, mode="test",
        hidden=[], reference="reference.cuh", runner_files=["task.h"], build=wire.Build(adapter=adapter),
    )  # fmt: skip


def _without_a_gpu() -> None:
    """Where there is one, other compilers are used, in other words, and its driver may have nameless memory."""
    if gpu_devices():
        pointless("this machine has a GPU")


def _shown(reason: str) -> str:
    """A reason as a cell of the table."""
    told = re.sub(r"^test phase[,:] (?:test \d+ of \d+ \([^)]*\): )?", "", reason).replace("|", "\\|").split("`")
    plain = [text.replace("<", "&lt;").replace("*", "\\*") if n % 2 == 0 else text for n, text in enumerate(told)]
    return "`".join(plain)


@needs(GXX)
def test_the_guide_says_what_wrong_kernels_of_the_usual_kinds_are_told(tmp_path: Path) -> None:
    _without_a_gpu()
    kinds = [(one, _product) for one in WRONG] + [(one, _typed) for one in WRONG_CPP]
    rows = ["| mistake | for example | what you are told |", "|---|---|---|"]
    for n, ((mistake, example, source), manifest) in enumerate(kinds):
        report = ground.judged(tmp_path / str(n), manifest(source)).told
        assert report.verdict in ("wrong", "error"), f"{mistake}: {report.verdict}: {report.reason}"
        rows.append(f"| {mistake} | {example} | {_shown(report.reason)} |")
    table = "\n".join(rows) + "\n"
    before, begin, rest = GUIDE.read_text().partition(BEGIN)
    now, end, after = rest.partition(END)
    assert begin and end, "the guide's table lost its marks"
    if os.environ.get("KBSLURM_TEST_GOLDEN") == "write":
        GUIDE.write_text(before + begin + table + end + after)
    else:
        assert now == table, "KBSLURM_TEST_GOLDEN=write writes it anew; look at the difference"


EVERY_TIME = """
def helper(data):
    raise ValueError(f"no luck")


def custom_kernel(data):
    return helper(data)
"""


def test_a_trace_stands_in_the_log_once_with_the_tests_it_hit_and_without_the_harness(tmp_path: Path) -> None:
    tests: list[wire.Params] = [{"n": 5 + n, "seed": n} for n in range(8)]
    report = ground.judged(tmp_path, ground.manifest(EVERY_TIME, mode="test", tests=tests)).told
    assert [t.status for t in report.tests] == ["error"] * 8
    assert report.log.count("Traceback (most recent call last)") == 1
    assert report.log.count("no luck\n") == 1
    assert "kbslurm_eval" not in report.log and "importlib" not in report.log
    assert "[tests 1-8: ValueError: no luck (submission.py, line 3)]" in report.log
    assert {t.message for t in report.tests} == {"ValueError: no luck (submission.py, line 3)"}


def test_two_traces_stand_there_each_with_its_tests(tmp_path: Path) -> None:
    source = (
        "def custom_kernel(data):\n    if len(data) == 6:\n        raise KeyError('six')\n"
        "    raise ValueError(f'of {len(data)}')\n"
    )
    tests: list[wire.Params] = [{"n": 5, "seed": 0}, {"n": 6, "seed": 1}, {"n": 7, "seed": 2}]
    report = ground.judged(tmp_path, ground.manifest(source, mode="test", tests=tests)).told
    assert report.log.count("Traceback (most recent call last)") == 2
    assert "ValueError: of 7  [the trace is above]" in report.log
    assert "[test 2: KeyError: 'six' (submission.py, line 3)]" in report.log


ONLY_HIDDEN = "def custom_kernel(data):\n    if len(data) == 91:\n        {}\n    return sorted(data)\n"


@pytest.mark.parametrize(
    "does",
    [
        "return data",
        "return None",
        "return sorted(data)[1:]",
        "raise ValueError(data[0])",
        "import urllib.request; urllib.request.urlopen('http://192.0.2.1/')",
    ],
)
def test_of_hidden_cases_no_hint_is_given(tmp_path: Path, does: str) -> None:
    report = ground.judged(tmp_path, ground.manifest(ONLY_HIDDEN.format(does))).told
    assert report.reason in ("hidden cases: an answer is wrong", "hidden cases: the submission raised an error")
    hidden = next(t for t in report.tests if t.phase == "hidden")
    assert f"hidden cases: {hidden.message}" == report.reason
    public = json.dumps(
        [report.log, report.reason, [t.message + t.spec for t in report.tests], report.host], default=str
    )
    for word in ("91", "0.", "network", "first element", "order", "return"):
        assert word not in report.log + report.reason, word
    assert "first element" not in public


REFUSED = {
    "open('/of-its-own', 'w')": "a submission can only write to its own folder",
    "__import__('os').truncate(__file__, 33 << 20)": "a file of a submission may have at most 32 MiB",
    "__import__('os').memfd_create('x')": "the system call memfd_create is refused",
    "__import__('socket').socket()": "submissions have no network",
    "__import__('socket').getaddrinfo('example.org', 80)": "submissions have no network",
    "[open('/dev/null') for _ in range(2000)]": "a submission may have at most 1024 files open at once",
}


@needs(LANDLOCK)
@pytest.mark.parametrize("level", ["1", ""])
@pytest.mark.parametrize("does", REFUSED)
def test_what_the_cage_refuses_says_what_it_is(tmp_path: Path, does: str, level: str) -> None:
    if "memfd" in does:
        _without_a_gpu()
    told = ground.manifest(f"def custom_kernel(data):\n    return {does}\n", mode="test")
    report = ground.judged(tmp_path, told, env={"KBSLURM_EVAL_LEVEL": level} if level else {}).told
    assert report.verdict == "error", report.reason
    assert report.reason.count(" - ") == 1 and REFUSED[does] in report.reason


COMPILES = '''
import subprocess

CODE = """
extern "C" int twice(int x) {
  return 2 * xx;
}
"""


def custom_kernel(data):
    with open("twice.cpp", "w") as file:
        file.write("#include <cstdint>" + CODE)
    done = subprocess.run(
        ["g++", "-shared", "-o", "twice.so", "twice.cpp"], capture_output=True, text=True,
        env={"LC_ALL": "C", "PATH": "/usr/bin:/bin"},
    )
    if done.returncode:
        raise RuntimeError(f"Error building extension 'twice': [1/2] c++ twice.cpp\\n{done.stderr}")
    return sorted(data)
'''


@needs(GXX)
def test_an_error_of_a_compiler_that_it_calls_points_into_its_own_lines(tmp_path: Path) -> None:
    report = ground.judged(tmp_path, ground.manifest(COMPILES, mode="test")).told
    assert "RuntimeError: 'xx' was not declared in this scope" in report.reason
    assert report.reason.endswith("(submission.py, line 6): return 2 * xx;")
    assert "^" in report.log, "the compiler's own words are in the log"


@needs(GXX)
def test_an_error_in_compiled_code_shows_the_line(tmp_path: Path) -> None:
    report = ground.judged(tmp_path, _scaled(KERNEL.replace("2 * x[i]", "2 * xx[i]"))).told
    assert re.search(r"while building: submission\.cu[:(]7", report.reason) and "xx" in report.reason
    assert report.reason.endswith("in `y[i] = 2 * xx[i];`")
    assert re.search(r"    y\[i\] = 2 \* xx\[i\];\n[ |]+\^", report.log)
