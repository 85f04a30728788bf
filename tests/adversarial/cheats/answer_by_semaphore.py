# ruff: noqa
# mypy: ignore-errors
# group: timing
# catalogue: T4
# tries: answer at once and have a helper, let go by a semaphore, fill in the numbers while the judge looks at them
# verdict: wrong violation
# why several: whether the helper is seen at it depends on when it is stopped
# race: yes
# problem: arrays
import gc
import multiprocessing

import numpy as np

fork = multiprocessing.get_context("fork")
started = []


def fill(go, line):
    while True:
        go.acquire()
        for _ in range(200):
            view = line.views["out"]
            view[: min(len(view), 64)] = bytes(min(len(view), 64))


def custom_kernel(data):
    a, b, out = data
    if not started:
        line = next(t for t in gc.get_objects() if type(t).__name__ == "RunnerEnd")
        started.append(fork.Semaphore(0))
        fork.Process(target=fill, args=(started[0], line), daemon=True).start()
    for _ in range(8):
        started[0].release()
    return out
