"""What the harness finds by imports: whether a text needs the stand-in for CUDA, or Triton's interpreter."""

from __future__ import annotations

import pytest

from kbslurm_eval.device import cuda_on_cpu


@pytest.mark.parametrize(
    "text",
    [
        "import torch, triton",
        "import os, torch as t; import triton.language as tl",
        "def load():\n    from torch import nn\n    from triton import jit\n",
        "try:\n    import torch\n    import triton\nexcept ImportError:\n    pass\n",
        "import importlib\ntorch = importlib.import_module('torch')\n__import__('triton')\n",
        "x = 1; import torch.nn.functional as F\nif x: import triton\n",
    ],
)
def test_an_import_is_found_wherever_it_stands(text: str) -> None:
    assert cuda_on_cpu.wanted("cpu", [text])
    assert cuda_on_cpu.interpreted("CPU", ["", text])
    assert not cuda_on_cpu.wanted("H100", [text])


@pytest.mark.parametrize(
    "text",
    [
        "'''\nimport torch\nimport triton\n'''\n",
        "# import torch, triton\n",
        "import torchvision, tritonclient\nfrom .torch import nn\nfrom . import triton\n",
        "import torch, triton (",  # not Python, so nothing is imported
    ],
)
def test_what_only_looks_like_an_import_is_none(text: str) -> None:
    assert not cuda_on_cpu.wanted("cpu", [text])
    assert not cuda_on_cpu.interpreted("cpu", [text])
