# ruff: noqa
# mypy: ignore-errors
# does: start a short program at each call
import subprocess, sys


def custom_kernel(data):
    subprocess.run(["/bin/true"], check=True)
    return sorted(data)
