# ruff: noqa
# mypy: ignore-errors
# group: timing
# catalogue: T3 T4
# tries: queue the work on a stream of its own, which the last wait isn't for (a stand-in: a queue with a worker thread)
# verdict: wrong violation passed
# why several: whether the worker is stopped before its first write, or while it writes, or, on a busy machine, the judge
# sees the answer after the worker has written it, and counts that time
# problem: arrays
# race: yes
import queue
import threading
import time

import numpy as np

stream = queue.Queue()


def worker():
    while True:
        a, b, out = stream.get()
        time.sleep(0.002)
        np.multiply(a, b, out=out)
        out += np.float32(1)


threading.Thread(target=worker, daemon=True).start()


def custom_kernel(data):
    stream.put(data)
    return data[2]
