"""Through the real harness: inputs whose arrays share memory or have gaps, and sparse tensors, reach a submission as
they were made, in checks and in timed calls."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command_line import CommandLine

IN_NUMPY = """
import numpy as np

TESTS = [{"n": 6, "seed": 1}]
BENCHMARKS = [{"n": 300, "seed": 2}]


def generate_input(n, seed):
    whole = np.random.default_rng(seed).random((n, n))
    return {"whole": whole, "even": whole[:, ::2], "back": whole[::-1], "row": np.broadcast_to(whole[0], (4, n))}


def ref_kernel(data):
    data["even"][...] += 1.0
    return data["whole"] + data["back"]


def check_implementation(output, reference):
    return bool(np.array_equal(output, reference))
"""
NUMPY_MINE = """
import numpy as np


def custom_kernel(data):
    whole, n = data["whole"], len(data["whole"])
    assert data["even"].strides == (8 * n, 16) and data["back"].strides == (-8 * n, 8)
    assert data["row"].strides == (0, 8) and np.shares_memory(data["row"], whole)
    whole[:, ::2] += 1.0
    assert np.array_equal(data["even"], whole[:, ::2])
    return whole + data["back"]
"""
IN_TORCH = """
import torch

TESTS = [{"n": 6, "seed": 1}]
BENCHMARKS = [{"n": 64, "seed": 2}]


def generate_input(n, seed, device):
    torch.manual_seed(seed)
    qkv = torch.randn(n, 3 * n, device=device)
    q, k, v = qkv.chunk(3, dim=-1)
    mask = (torch.rand(n, n, device=device) < 0.3).float()
    return q, k, v, qkv, [mask.to_sparse(), mask.to_sparse_csr(), mask.to_sparse_csc()]


def ref_kernel(data):
    q, k, v, qkv, masks = data
    return q @ k.t() @ v + sum(mask.to_dense() for mask in masks)


def check_implementation(output, reference):
    return bool(torch.allclose(output, reference, atol=1e-3))
"""
TORCH_MINE = """
import torch


def custom_kernel(data):
    q, k, v, qkv, masks = data
    n = len(q)
    assert q.stride() == k.stride() == v.stride() == (3 * n, 1)
    assert v.data_ptr() - q.data_ptr() == 2 * n * 4 and qkv.data_ptr() == q.data_ptr()
    assert [mask.layout for mask in masks] == [torch.sparse_coo, torch.sparse_csr, torch.sparse_csc]
    assert masks[0].is_coalesced()
    return qkv[:, :n] @ qkv[:, n : 2 * n].t() @ qkv[:, 2 * n :] + 3 * masks[1].to_dense()
"""


def test_arrays_that_share_memory_are_judged_as_where_they_were_made(tmp_path: Path) -> None:
    (tmp_path / "problem.py").write_text(IN_NUMPY)
    (tmp_path / "mine.py").write_text(NUMPY_MINE)
    done = CommandLine(cwd=tmp_path)("try", "problem.py", "mine.py", "--mode", "benchmark", "--json")
    assert done.json()["verdict"] == "passed", done.json()["reason"]


def test_who_relies_on_copies_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "problem.py").write_text(IN_NUMPY)
    apart = "def custom_kernel(data):\n    return data['whole'] + data['back']\n"
    (tmp_path / "mine.py").write_text(apart)
    done = CommandLine(cwd=tmp_path)("try", "problem.py", "mine.py", "--mode", "test", "--json")
    assert done.json()["verdict"] == "wrong"


@pytest.mark.torch
def test_tensors_of_one_storage_and_sparse_ones_are_judged(tmp_path: Path) -> None:
    (tmp_path / "problem.py").write_text(IN_TORCH)
    (tmp_path / "mine.py").write_text(TORCH_MINE)
    here = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*map(str, (here, here / "eval")), *sys.path])}
    words = ("try", "problem.py", "mine.py", "--mode", "benchmark", "--json")
    argv = [os.environ["KBSLURM_TORCH_PYTHON"], "-m", "kbslurm", *words]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment)
    told = json.loads(done.stdout)
    assert told["verdict"] == "passed", told["reason"]
