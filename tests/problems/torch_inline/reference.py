"""A reference that says 'cuda', as many do: on a CPU the harness gives it the CPU."""

import torch


def generate_input(n: int, seed: int):
    draw = torch.Generator(device="cuda").manual_seed(seed)
    return torch.randn(n, device="cuda", generator=draw)


def ref_kernel(data):
    return data * data + 1


def check_implementation(data, output):
    torch.cuda.synchronize()
    return torch.allclose(ref_kernel(data), output, rtol=1e-5, atol=1e-6), "not close"
