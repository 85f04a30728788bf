# ruff: noqa
# mypy: ignore-errors
# group: precomputation
# catalogue: C7
# tries: import the reference or the check, which must not be there
# verdict: error
from reference import ref_kernel


def custom_kernel(data):
    return ref_kernel(data)
