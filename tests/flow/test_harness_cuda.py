"""Device code through the builder: compiled by nvcc from PyPI everywhere, run where a GPU is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kbslurm.domain.manifest import manifest_for
from kbslurm.problems.loading import load
from kbslurm_eval.shared import wire
from tests.flow import harness_ground as ground
from tests.flow.test_harness_build import SCALED
from tests.services import GPU, GXX, NVCC, NVCC_HOME, need, needs, pointless

# Launches its kernel; where no device is it says so, and the host does the work.
SCALES = """
#include "kbslurm.h"
#include <cuda_runtime.h>
#include <cstdint>

__global__ void scale(const float *x, float *y, long long n, float a, float b) {
  const long long i = blockIdx.x * static_cast<long long>(blockDim.x) + threadIdx.x;
  if (i < n) y[i] = x[i] * a + b;
}

static bool on_device(const float *x, float *y, long long n, float a, float b) {
  float *dx = nullptr, *dy = nullptr;
  const size_t bytes = n * sizeof(float);
  if (cudaMalloc(&dx, bytes + 1) != cudaSuccess || cudaMalloc(&dy, bytes + 1) != cudaSuccess) return false;
  cudaMemcpy(dx, x, bytes, cudaMemcpyHostToDevice);
  if (n) scale<<<(n + 127) / 128, 128>>>(dx, dy, n, a, b);
  const cudaError_t done = cudaMemcpy(y, dy, bytes, cudaMemcpyDeviceToHost);
  cudaFree(dx);
  cudaFree(dy);
  return done == cudaSuccess;
}

KB_ENTRY int custom_kernel(const kb_array *in, int inputs, kb_array *out, int outputs) {
  const float *x = static_cast<const float *>(in[0].data);
  float *y = static_cast<float *>(out[0].data);
  const float a = static_cast<float>(*static_cast<const double *>(in[1].data));
  const float b = static_cast<float>(*static_cast<const int64_t *>(in[2].data)) + 15;
  const long long n = in[0].size;
  if (!on_device(x, y, n, a, b)) {
#ifdef DEVICE_ONLY
    return 1;
#endif
    for (long long i = 0; i < n; ++i) y[i] = x[i] * a + b;
  }
  *static_cast<int64_t *>(out[1].data) = n;
  return 0;
}
"""


@pytest.fixture(scope="module")
def toolkit() -> dict[str, str]:
    """Where nvcc is, as an environment says it."""
    if os.uname().machine != "x86_64":
        pointless("the wheels of nvcc that we name are for x86_64")
    need(GXX, NVCC)
    return {"CUDA_HOME": str(NVCC_HOME), "PATH": f"{NVCC_HOME}/bin:/usr/bin:/bin"}


def _manifest(source: str, *, gpu: str, defines: tuple[str, ...] = ()) -> wire.Manifest:
    build = wire.Build(when="always", defines=list(defines), limit_s=120)
    limits = ground.limits(memory_bytes=8 << 30, file_bytes=256 << 20, processes=256)
    return ground.manifest(
        source, lang="cu", entry="submission.cu", files={"reference.py": SCALED}, mode="test", gpu=gpu, build=build,
        limits=limits,
    )  # fmt: skip


def test_device_code_is_compiled_for_the_board_s_gpu(tmp_path: Path, toolkit: dict[str, str]) -> None:
    report = ground.judged(tmp_path, _manifest(SCALES, gpu="H100"), env=toolkit).told
    assert report.verdict == "passed", report.reason
    assert report.host["build"]["bytes"] > 100_000, "the runtime is linked in"


def test_an_error_in_device_code_is_told_with_its_line(tmp_path: Path, toolkit: dict[str, str]) -> None:
    report = ground.judged(tmp_path, _manifest(SCALES.replace("y[i] = x[i] * a + b;\n}", "y[i] = z;\n}"), gpu="H100"),
                           env=toolkit).told  # fmt: skip
    assert report.verdict == "error"
    assert report.reason.startswith("test phase, while building: submission.cu(8): error:"), report.reason


def test_a_board_s_gpu_is_what_it_is_compiled_for(tmp_path: Path, toolkit: dict[str, str]) -> None:
    """An instruction that only a newer device has: the same source on two boards."""
    source = SCALES.replace("if (i < n) y", "#if __CUDA_ARCH__ >= 900\n#error newer\n#endif\n  if (i < n) y")
    assert source != SCALES
    for gpu, verdict in (("A100", "passed"), ("H100", "error")):
        report = ground.judged(tmp_path / gpu, _manifest(source, gpu=gpu), env=toolkit).told
        assert report.verdict == verdict, report.reason


@needs(GPU)
@pytest.mark.gpu
def test_device_code_runs(tmp_path: Path) -> None:
    env = {"PATH": os.environ["PATH"], "CUDA_HOME": os.environ.get("CUDA_HOME", "")}
    report = ground.judged(tmp_path, _manifest(SCALES, gpu="cuda", defines=("DEVICE_ONLY",)), env=env).told
    assert report.verdict == "passed", report.reason


ON_DEVICE = """
#include <cuda_runtime.h>
#include <vector>
// TESTS = [{"seed": 1, "n": 64}]
using input_t = std::vector<float>;
using output_t = std::vector<float>;

__global__ void twice(float *x, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] *= 2;
}
input_t generate_input(int seed, int n) { return input_t(n, seed + 0.5f); }
output_t ref_kernel(input_t data) {
  float *x = nullptr;
  cudaMalloc(&x, data.size() * sizeof(float));
  cudaMemcpy(x, data.data(), data.size() * sizeof(float), cudaMemcpyHostToDevice);
  twice<<<1, 64>>>(x, static_cast<int>(data.size()));
  cudaMemcpy(data.data(), x, data.size() * sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(x);
  return data;
}
bool check_implementation(output_t output, output_t reference) { return output == reference; }
"""


def test_a_reference_whose_cuda_calls_fail_judges_nobody(tmp_path: Path, toolkit: dict[str, str]) -> None:
    """What it returned was its input as it was, and so a submission that returns its input passed."""
    if GPU.there():
        pointless("the reference's calls succeed where a GPU is")
    (tmp_path / "reference.cu").write_text(ON_DEVICE)
    problem = load(tmp_path / "reference.cu", name="twice")
    told = manifest_for(
        problem, token="t", attempt=1, nonce="n", mode="test", gpu="H100", secret_seed=ground.SECRET,
        source='#include "reference.cu"\noutput_t custom_kernel(input_t data) { return data; }\n',
    )  # fmt: skip
    report = ground.judged(tmp_path / "run", told, env=toolkit).told
    assert report.verdict == "infrastructure", report.reason
    assert "it needs a GPU, and there is none here" in report.reason
