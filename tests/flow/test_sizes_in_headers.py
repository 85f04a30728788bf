"""Sizes as KernelBot's problems in CUDA give them: in the header, `N_SIZES` of them in `Ns`, all in one case."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbslurm.config import shared_folders
from kbslurm.problems import loading
from kbslurm.trial.run import run_trial
from tests.services import GXX, needs

HEADER = """#ifndef SCALE_REFERENCE_CUH
#define SCALE_REFERENCE_CUH

#include <array>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <vector>

#define N_SIZES 3
const int Ns[N_SIZES] = {16,  33,
                         100};

using input_t = std::array<std::vector<float>, N_SIZES>;
using output_t = input_t;

inline input_t generate_input(%(parameters)s) {
  %(begin)s
  input_t data;
  for (int i = 0; i < N_SIZES; ++i) {
    data[i].resize(Ns[i]);
    for (float &x : data[i]) x = static_cast<float>(rand()) / RAND_MAX;
  }
  return data;
}

inline output_t ref_kernel(input_t data) {
  for (auto &part : data)
    for (float &x : part) x *= 2;
  return data;
}

%(check)s
#endif
"""
COMPARES = """
  for (int i = 0; i < N_SIZES; ++i) {
    if (out[i].size() != static_cast<size_t>(Ns[i])) return false;
    for (int j = 0; j < Ns[i]; ++j)
      if (std::fabs(ref[i][j] - out[i][j]) > epsilon) return false;
  }
  return true;
}
"""
BY_ANSWERS = f"inline bool check_implementation(output_t out, output_t ref, float epsilon = 1e-5) {{{COMPARES}"
BY_DATA = (
    "inline bool check_implementation(const input_t& data, const output_t& out, float epsilon = 1e-5) {\n"
    f"  output_t ref = ref_kernel(data);{COMPARES}"
)
RIGHT = """#include "%s"

output_t custom_kernel(input_t data) {
  output_t out;
  for (int i = 0; i < N_SIZES; ++i)
    for (int j = 0; j < Ns[i]; ++j) out[i].push_back(data[i][j] + data[i][j]);
  return out;
}
"""
WRONG = RIGHT.replace("data[i][j] + data[i][j]", "i == 2 && j == 99 ? 0 : data[i][j] + data[i][j]")


def judged(folder: Path, header: str, source: str, name: str) -> tuple[str, str]:
    folder.mkdir(parents=True)
    (folder / name).write_text(header)
    problem = loading.load(folder / name)
    assert problem.lang == "cu" and len(problem.tests) == 1
    trial = run_trial(
        problem, "kernel.cu", source % name, "test", "cpu",
        work=folder / "work", eval_dir=shared_folders.eval_dir(),
    )  # fmt: skip
    return trial.report.verdict, trial.report.reason


@needs(GXX)
@pytest.mark.parametrize(
    ("check", "parameters", "name"),
    [
        (BY_ANSWERS, "", "reference.cuh"),
        (BY_DATA, "", "reference.cuh"),
        (BY_ANSWERS, "", "reference.cu"),
        (BY_ANSWERS, "int seed", "reference.cuh"),
    ],
)
def test_a_header_with_all_sizes_is_a_problem_as_it_stands(
    tmp_path: Path, check: str, parameters: str, name: str
) -> None:
    begin = "srand(seed);" if parameters else ""
    header = HEADER % {"check": check, "parameters": parameters, "begin": begin}
    if parameters:
        header += '// TESTS = [{"seed": 3}]\n'
    assert judged(tmp_path / "right", header, RIGHT, name)[0] == "passed"
    verdict, reason = judged(tmp_path / "wrong", header, WRONG, name)
    assert verdict == "wrong", "each size is looked at, to its last element"
    assert "answer is wrong" in reason
