# ruff: noqa
# mypy: ignore-errors
# does: code generated at the first call
MADE = {}


def custom_kernel(data):
    if "f" not in MADE:
        exec("def f(d):\n    return sorted(d)", MADE)
    return MADE["f"](data)
