# ruff: noqa
# mypy: ignore-errors
# group: environment
# catalogue: R12 R10
# tries: raise an exception whose text takes for ever
# verdict: timeout
# patience s: 3
class Slow(Exception):
    def __str__(self):
        while True:
            pass

    __repr__ = __str__


def custom_kernel(data):
    raise Slow
