"""What judges: inputs from a seed, the right answer, and the comparison. It never leaves the judge's process."""

import torch

from task import input_t, output_t

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def generate_input(m: int, k: int, n: int, seed: int) -> input_t:
    draw = torch.Generator(device=DEVICE).manual_seed(seed)
    a = torch.randn(m, k, generator=draw, device=DEVICE)
    b = torch.randn(k, n, generator=draw, device=DEVICE)
    return a.half(), b.half()


def ref_kernel(data: input_t) -> output_t:
    a, b = data
    return (a.float() @ b.float()).half()


def check_implementation(data: input_t, output: output_t) -> tuple[bool, str]:
    a, b = data
    # Judged against double precision, so that no order of summation is favoured. Sums grow like √k; libraries may keep
    # partial sums in half precision, which has 11 bits, and that is allowed. bfloat16 has 8, and is not.
    exact = a.double() @ b.double()
    room = 2.0**-10 * exact.abs() + 2.0**-9 * a.shape[1] ** 0.5
    wrong = ~((output.double() - exact).abs() <= room)  # a NaN is wrong, too
    if not wrong.any():
        return True, ""
    row, column = (int(place) for place in wrong.nonzero()[0])
    got, want = float(output[row, column]), float(exact[row, column])
    return False, f"row {row}, column {column}: {got:g} instead of {want:g}; {int(wrong.sum())} values in all"
