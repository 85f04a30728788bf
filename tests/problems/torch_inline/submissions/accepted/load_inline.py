import time

from torch.utils.cpp_extension import load_inline

CODE = """
torch::Tensor squares(torch::Tensor x) { return x * x + 1; }
"""
began = time.monotonic()
module = load_inline(name="squares", cpp_sources=CODE, functions=["squares"])
print(f"ready after {time.monotonic() - began:.1f} s")


def custom_kernel(data):
    return module.squares(data)
