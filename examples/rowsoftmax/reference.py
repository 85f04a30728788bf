"""What judges: inputs from a seed, the right answer, and the comparison. It never leaves the judge's process."""

import math
import random

from task import input_t, output_t
from tolerance import ABSOLUTE, RELATIVE


def generate_input(rows: int, cols: int, spread: float, seed: int) -> input_t:
    draw = random.Random(seed)
    return rows, cols, [draw.uniform(-spread, spread) for _ in range(rows * cols)]


def ref_kernel(data: input_t) -> output_t:
    rows, cols, values = data
    out = []
    for row in range(rows):
        line = values[row * cols : (row + 1) * cols]
        top = max(line)
        powers = [math.exp(value - top) for value in line]
        total = math.fsum(powers)
        out += [power / total for power in powers]
    return out


def check_implementation(data: input_t, output: output_t) -> tuple[bool, str]:
    rows, cols, _ = data
    if not isinstance(output, list | tuple) or not all(isinstance(value, float) for value in output):
        return False, "a list of floats was expected"
    if len(output) != rows * cols:
        return False, f"{rows * cols} values were expected, not {len(output)}"
    for place, (got, want) in enumerate(zip(output, ref_kernel(data))):
        if not math.isclose(got, want, rel_tol=RELATIVE, abs_tol=ABSOLUTE):  # false for a NaN, too
            return False, f"row {place // cols}, column {place % cols}: {got!r} instead of {want!r}"
    return True, ""
