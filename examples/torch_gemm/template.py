#!POPCORN leaderboard torch_gemm

from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    a, b = data
    raise NotImplementedError("return the product")
