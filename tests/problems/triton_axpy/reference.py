import torch


def generate_input(n: int, seed: int, device: str):
    draw = torch.Generator(device=device).manual_seed(seed)
    return torch.randn(n, device=device, generator=draw), torch.randn(n, device=device, generator=draw)


def ref_kernel(data):
    x, y = data
    return 3 * x + y


def check_implementation(data, output):
    return torch.allclose(ref_kernel(data), output, rtol=1e-5, atol=1e-6), "not close"
