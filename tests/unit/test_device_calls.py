"""After a C++ reference's functions the calls of its device are looked at: CUDA's, and HIP's as well."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kbslurm_eval.build import cpp_sources
from tests.services import GXX, needs

STAND_IN = """
#pragma once
enum hipError_t { hipSuccess, hipErrorNoDevice, hipErrorInsufficientDriver, hipErrorUnknown };
inline hipError_t hipGetLastError() { return AT_ONCE; }
inline hipError_t hipDeviceSynchronize() { return LATER; }
inline const char *hipGetErrorString(hipError_t) { return "it broke"; }
"""
MAIN = """
int main() {
  try { kb_device_worked(); } catch (const std::exception &e) { std::puts(e.what()); return 1; }
  std::puts("worked");
}
"""


@needs(GXX)
@pytest.mark.parametrize(
    ("at_once", "later", "said"),
    [
        ("hipSuccess", "hipSuccess", "worked"),
        ("hipErrorUnknown", "hipSuccess", "HIP: it broke"),
        ("hipSuccess", "hipErrorUnknown", "HIP: it broke"),
        ("hipErrorNoDevice", "hipSuccess", "it needs a GPU, and there is none here"),
        ("hipSuccess", "hipErrorNoDevice", "worked"),
    ],
)
def test_a_hip_call_that_failed_is_told(tmp_path: Path, at_once: str, later: str, said: str) -> None:
    unit = cpp_sources._REFERENCE_FRONT
    begin, end = unit.index("#if defined(__HIPCC__)"), unit.index("template <class F> void *kb_kept")
    (tmp_path / "hip").mkdir()
    (tmp_path / "hip/hip_runtime.h").write_text(STAND_IN)
    source = tmp_path / "unit.cpp"
    source.write_text(f"#include <cstdio>\n#include <stdexcept>\n#include <string>\n{unit[begin:end]}{MAIN}")
    flags = ["-std=c++17", "-D__HIPCC__", f"-DAT_ONCE={at_once}", f"-DLATER={later}", "-I", str(tmp_path)]
    subprocess.run(["g++", *flags, str(source), "-o", str(tmp_path / "unit")], check=True)
    done = subprocess.run([str(tmp_path / "unit")], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == said
