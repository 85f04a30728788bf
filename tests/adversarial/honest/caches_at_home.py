# ruff: noqa
# mypy: ignore-errors
# does: a cache in the home folder, and what a program says thrown away
import os, subprocess, sys

_place = os.path.expanduser("~/.cache/of/mine")
os.makedirs(_place, exist_ok=True)
with open(os.path.join(_place, "table"), "w") as file:
    file.write("1")
with open(os.devnull, "w") as nothing:
    print("nobody reads this", file=nothing)
subprocess.run([sys.executable, "-c", "print(1)"], stdout=subprocess.DEVNULL, check=True)


def custom_kernel(data):
    return sorted(data)
