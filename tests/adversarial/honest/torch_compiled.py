# ruff: noqa
# mypy: ignore-errors
# does: torch.compile at the first call, on tensors that share the arrays' memory
# problem: arrays
# needs: torch
import os

os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", os.path.join(os.getcwd(), "inductor"))
import torch


@torch.compile(dynamic=True)
def work(a, b):
    return a * b + 1.0


def custom_kernel(data):
    a, b, _ = (torch.from_numpy(part) for part in data)
    return work(a, b).numpy()
