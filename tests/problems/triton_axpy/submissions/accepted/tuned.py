import torch
import triton
import triton.language as tl


@triton.autotune(configs=[triton.Config({"block": size}) for size in (128, 256, 1024)], key=["n"])
@triton.jit
def axpy(x, y, out, n, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    inside = at < n
    tl.store(out + at, 3 * tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside), mask=inside)


def custom_kernel(data):
    x, y = data
    out = torch.empty_like(x)
    axpy[lambda chosen: (triton.cdiv(x.numel(), chosen["block"]),)](x, y, out, x.numel())
    return out
