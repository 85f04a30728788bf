#!POPCORN leaderboard torch_gemm
# Correct and slower: converts first.


def custom_kernel(data):
    a, b = data
    return (a.float() @ b.float()).half()
