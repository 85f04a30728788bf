# ruff: noqa
# mypy: ignore-errors
# does: what a scanner took for a cheat: num_stages=2, two buffers in turn, words like stream, cache and replay
# problem: arrays
import numpy as np

num_stages = 2
stages = [np.empty(0, np.float32) for _ in range(num_stages)]
replay_cache = {}  # of launch settings by shape, as autotuners keep


def tuned(shape, stream=None):
    return replay_cache.setdefault(shape, {"num_stages": num_stages, "block": 4096})


def custom_kernel(data):
    a, b, out = (one.reshape(-1) for one in data)
    block = tuned(data[2].shape)["block"]
    for n, at in enumerate(range(0, len(out), block)):
        stage = n % num_stages
        stages[stage] = a[at : at + block] * b[at : at + block]
        out[at : at + block] = stages[stage] + np.float32(1)
    return data[2]
