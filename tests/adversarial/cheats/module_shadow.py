# ruff: noqa
# mypy: ignore-errors
# group: forgery
# catalogue: R5 C3
# tries: put own modules in the place of those that a checker would import
# verdict: wrong
import sys
import types

for _name in (
    "reference",
    "utils",
    "task",
    "kbslurm_eval.judge.reference",
    "kbslurm_eval.shared.timing",
    "random",
    "statistics",
):
    _fake = types.ModuleType(_name)
    _fake.check_implementation = lambda *a: (True, "")
    _fake.ref_kernel = sorted
    sys.modules[_name] = _fake


def custom_kernel(data):
    return list(reversed(data))
