import torch
import triton
import triton.language as tl


@triton.jit
def axpy(x, y, out, n, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    inside = at < n
    tl.store(out + at, 3 * tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside), mask=inside)


def custom_kernel(data):
    x, y = data
    out = torch.empty_like(x)
    axpy[(x.numel() // 256 or 1,)](x, y, out, x.numel(), block=256)
    return out
