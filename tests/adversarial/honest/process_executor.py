# ruff: noqa
# mypy: ignore-errors
# does: an executor of processes, in the way that this Python starts them when nobody says how, and one per call
# levels: 1 2
import heapq
from concurrent.futures import ProcessPoolExecutor

kept = []


def custom_kernel(data):
    if not kept:
        kept.append(ProcessPoolExecutor(2))
    half = len(data) // 2
    low, high = kept[0].map(sorted, [data[:half], data[half:]])
    if len(kept) == 1:
        kept.append(None)
        with ProcessPoolExecutor(1) as once:
            assert once.submit(sum, [1, 2]).result() == 3
    return list(heapq.merge(low, high))
