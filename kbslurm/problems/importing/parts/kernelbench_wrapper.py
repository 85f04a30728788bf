"""Calls a submission in KernelBench's shape: a class ModelNew that computes what Model computes.

It is made once, outside of the timed calls, with Model's weights: by the same seed, and where it has the same
parameters by Model's state_dict.
"""

import torch
from kernelbench_model import model, module


def entry_point(submission):
    if not hasattr(submission, "ModelNew"):
        raise LookupError("defines no class ModelNew")
    models = {}

    def call(data):
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
            return models[key](*inputs)

    return call
