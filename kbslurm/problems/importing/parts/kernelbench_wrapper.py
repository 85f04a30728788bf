"""Calls a submission in KernelBench's shape: a class ModelNew that computes what Model computes.

It is made once, outside of the timed calls, with Model's weights: by the same seed, and where it has the same
parameters by Model's state_dict. If its `forward` has a parameter `out` beyond the inputs, it is given the places where
its answer is read.
"""

import inspect

import torch
from kernelbench_model import model, module


def entry_point(submission):
    if not hasattr(submission, "ModelNew"):
        raise LookupError("defines no class ModelNew")
    models = {}
    before = _before_out(submission.ModelNew)

    def call(data, out=None):
        weights, constants, inputs = data
        key = (weights, tuple(sorted(constants.items())))
        if key not in models:
            theirs, ours = model(submission.ModelNew, data), model(module(constants).Model, data)
            state, wanted = ours.state_dict(), theirs.state_dict()
            same = all(name in state and state[name].shape == one.shape for name, one in wanted.items())
            if same and len(state) == len(wanted):
                theirs.load_state_dict(state)
            models[key] = theirs
        with torch.no_grad():
            if out is None or len(inputs) > before:
                return models[key](*inputs)
            return models[key](*inputs, out=out)

    def without_out(data):
        return call(data)

    return without_out if before is None else call


def _before_out(kind):
    """How many inputs a call may have before its parameter `out` is one of them; None if it has no such parameter."""
    try:
        parameters = inspect.signature(getattr(kind, "forward", kind.__call__)).parameters
    except (AttributeError, TypeError, ValueError):
        return None
    found = parameters.get("out")
    if found is None or found.kind not in (found.POSITIONAL_OR_KEYWORD, found.KEYWORD_ONLY):
        return None
    return len(parameters) if found.kind == found.KEYWORD_ONLY else list(parameters).index("out") - 1
