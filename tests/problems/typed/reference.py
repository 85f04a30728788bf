"""Typed parameters (a flag, a float, a list, a text that looks like a flag), an output that is allocated before, and
a check that answers with a text."""

import array
import random

from tolerance import close


def generate_input(shape: list, scale: float, masked: bool, kind: str, seed: int):
    if not isinstance(masked, bool) or not isinstance(kind, str) or not isinstance(shape, list):
        raise TypeError(f"parameters lost their types: {masked!r} {kind!r} {shape!r}")
    draw = random.Random(seed)
    rows, cols = shape
    found = [array.array("d", [draw.uniform(-1, 1) * scale for _ in range(cols)]) for _ in range(rows)]
    weights = array.array("d", [draw.random() if not masked or n % 2 else 0.0 for n in range(cols)])
    return found, weights, array.array("d", bytes(8 * rows))


def ref_kernel(data):
    rows, weights, out = data
    for n, row in enumerate(rows):
        out[n] = sum(a * b for a, b in zip(row, weights, strict=True))
    return out


def check_implementation(data, output):
    for n, (want, got) in enumerate(zip(ref_kernel(data), output, strict=True)):
        if not close(want, got):
            return f"row {n} is {got}, not {want}"
    return ""
