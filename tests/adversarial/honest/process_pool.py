# ruff: noqa
# mypy: ignore-errors
# does: a pool of processes kept from call to call
# levels: 1 2
import multiprocessing

POOL = multiprocessing.get_context("fork").Pool(2)


def custom_kernel(data):
    half = len(data) // 2
    low, high = POOL.map(sorted, [data[:half], data[half:]])
    import heapq

    return list(heapq.merge(low, high))
