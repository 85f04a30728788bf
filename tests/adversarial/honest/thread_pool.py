# ruff: noqa
# mypy: ignore-errors
# does: thread pool
from concurrent.futures import ThreadPoolExecutor
import heapq

POOL = ThreadPoolExecutor(2)


def custom_kernel(data):
    half = len(data) // 2
    return list(heapq.merge(*POOL.map(sorted, (data[:half], data[half:]))))
