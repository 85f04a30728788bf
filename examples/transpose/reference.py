"""What judges: inputs from a seed, the right answer, and the comparison. It never leaves the judge's process."""

import random

from task import input_t, output_t


def generate_input(rows: int, cols: int, seed: int) -> input_t:
    return rows, cols, random.Random(seed).randbytes(rows * cols)


def ref_kernel(data: input_t) -> output_t:
    rows, cols, pixels = data
    return b"".join(pixels[col::cols] for col in range(cols))


def check_implementation(data: input_t, output: output_t) -> tuple[bool, str]:
    rows, cols, _ = data
    if not isinstance(output, bytes | bytearray):
        return False, f"bytes were expected, not {type(output).__name__}"
    if len(output) != rows * cols:
        return False, f"{rows * cols} bytes were expected, not {len(output)}"
    expected = ref_kernel(data)
    if output == expected:
        return True, ""
    place = next(n for n, (got, want) in enumerate(zip(output, expected)) if got != want)
    return False, f"row {place // rows}, column {place % rows}: {output[place]} instead of {expected[place]}"
