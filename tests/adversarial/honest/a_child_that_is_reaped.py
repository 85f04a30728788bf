# ruff: noqa
# mypy: ignore-errors
# does: a child that is reaped
import os


def custom_kernel(data):
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return sorted(data)
