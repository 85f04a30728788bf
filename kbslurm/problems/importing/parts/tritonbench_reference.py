"""Judges an operator of TritonBench by the calls that its own test makes.

`operator_file.py` is the operator's part of TritonBench's file, and `calls.py` that of the test.
"""

import importlib.util

import operator_file
import torch
from names import NAMES
from tritonbench_answers import answered

RTOL = ATOL = 1e-3
FUNCTIONS = {name: getattr(operator_file, name) for name in NAMES}


class _Found(BaseException):
    """The call that was wanted has been made."""


def generate_input(call: int, seed: int):
    """The name, arguments and named arguments of the test's call with this number; earlier ones are carried out."""
    made = []

    def recording(name):
        def recorded(*args, **kwargs):
            made.append((name, args, kwargs))
            if len(made) > call:
                raise _Found
            return FUNCTIONS[name](*args, **kwargs)

        return recorded

    scope = {name: value for name, value in vars(operator_file).items() if not name.startswith("__")}
    scope.update({name: recording(name) for name in NAMES})
    scope["__name__"] = "calls"
    source = importlib.util.find_spec("calls").loader.get_source("calls")
    torch.manual_seed(seed)
    try:
        exec(compile(source, "calls.py", "exec"), scope)
    except _Found:
        name, args, kwargs = made[-1]
        return name, tuple(map(_detached, args)), {key: _detached(one) for key, one in kwargs.items()}
    raise ValueError(f"the test makes {len(made)} calls, so there is none with number {call}")


def ref_kernel(data):
    return answered(FUNCTIONS, data)


def _detached(value):
    return value.detach() if isinstance(value, torch.Tensor) else value
