"""Calls a submission in flashinfer-bench's shape: a function `run` that takes the inputs in the definition's order.

Either it returns the outputs, or it takes them as its last parameters and fills them (destination passing). A solution
says which, and of what definition it is.
"""

import inspect

import torch
from definition import INPUTS, NAME, OUTPUTS
from flashinfer_inputs import as_outputs, places


def entry_point(submission):
    run = getattr(submission, "run", None)
    if not callable(run):
        raise LookupError("defines no function run")
    meant = getattr(submission, "DEFINITION", NAME)
    if meant != NAME:
        raise LookupError(f"is a solution of {meant}, and this is {NAME}")
    fills = getattr(submission, "DESTINATION_PASSING", None)
    if not isinstance(fills, bool):
        fills = _fills(run)

    def call(data, out=None):
        with torch.no_grad():
            if not fills:
                return as_outputs(run(*data))
            filled = [None] * len(OUTPUTS) if out is None else list(out)
            if any(one is None for one in filled):
                device = next((one.device for one in data if isinstance(one, torch.Tensor)), "cpu")
                made = places(data, device)
                filled = [ours if given is None else given for ours, given in zip(made, filled, strict=True)]
            run(*data, *filled)
            return tuple(filled)

    def without_out(data):
        return call(data)

    return call if fills else without_out


def _fills(run):
    """Whether it takes the outputs as well."""
    try:
        taken = inspect.signature(run).parameters.values()
    except (TypeError, ValueError):
        return False
    given = [p for p in taken if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    needed = [p for p in given if p.default is p.empty]
    return len(needed) > len(INPUTS) or len(given) == len(INPUTS) + len(OUTPUTS)
