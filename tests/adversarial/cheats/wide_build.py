# ruff: noqa
# mypy: ignore-errors
# group: environment
# catalogue: R12
# tries: leave twenty thousand folders with a file in every tenth, made as a builder makes them
# verdict: error
import os

_home = os.environ.get("KBSLURM_CACHE", "")
for _n in range(1000):
    _place = os.path.join(_home, str(_n), *"abcdefghijklmnopqrst"[: 20 if _n < 900 else 1])
    os.makedirs(_place, exist_ok=True)
    with open(os.path.join(_place, "file"), "w") as _file:
        _file.write("x")


def custom_kernel(data):
    return sorted(data)
