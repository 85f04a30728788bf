"""Judges princeton/cross_entropy_py, whose reference has two functions and whose own eval.py compares them."""

import inspect

from reference import ATOL, RTOL, generate_inputs, reference_backward, reference_forward  # noqa: F401

BATCH = 4096


def generate_input(vocab_size: int, seed: int = 42, batch: int = BATCH):
    takes = inspect.signature(generate_inputs).parameters
    logits, targets, grad_output = generate_inputs(batch, vocab_size, **({"seed": seed} if "seed" in takes else {}))
    return {"cross_entropy_forward": (logits, targets), "cross_entropy_backward": (logits, targets, grad_output)}


def ref_kernel(data):
    return {
        "cross_entropy_forward": reference_forward(*data["cross_entropy_forward"]),
        "cross_entropy_backward": reference_backward(*data["cross_entropy_backward"]),
    }
