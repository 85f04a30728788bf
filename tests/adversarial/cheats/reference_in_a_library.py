# ruff: noqa
# mypy: ignore-errors
# group: correctness
# catalogue: C6 C7
# tries: find the problem's reference in whatever is loaded or can be imported, and have it answer
# verdict: error
import gc
import importlib
import sys

found = []
for name in ("reference", "task", "eval", "utils", "solution", "kbslurm_eval.judge.reference"):
    try:
        found.append(getattr(importlib.import_module(name), "ref_kernel"))
    except (ImportError, AttributeError):
        pass
for module in list(sys.modules.values()):
    if callable(kernel := vars(module).get("ref_kernel") if module else None):
        found.append(kernel)
found += [f for f in gc.get_objects() if callable(f) and getattr(f, "__name__", "") == "ref_kernel"]


def custom_kernel(data):
    return found[0](data)
