# ruff: noqa
# mypy: ignore-errors
# does: rows shared out to threads that are joined before it returns
# problem: arrays
import threading

import numpy as np


def custom_kernel(data):
    a, b, out = data

    def rows(part):
        np.multiply(a[part], b[part], out=out[part])
        out[part] += np.float32(1)

    half = len(a) // 2
    threads = [threading.Thread(target=rows, args=(part,)) for part in (slice(0, half), slice(half, None))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return out
