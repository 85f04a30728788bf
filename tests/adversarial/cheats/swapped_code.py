# ruff: noqa
# mypy: ignore-errors
# group: forgery
# catalogue: E2
# tries: put other code into the harness's own functions, whose identity stays
# verdict: wrong
from kbslurm_eval.shared import layouts


def nothing(node, value, out, where):
    pass


layouts._write_leaf.__code__ = nothing.__code__
layouts.Layout.read.__code__ = (lambda self, found: None).__code__


def custom_kernel(data):
    return data
