# ruff: noqa
# mypy: ignore-errors
# group: environment
# catalogue: R12
# tries: write 100 MB that are no text, with escapes and half characters
# verdict: passed
import os

_BLOCK = b"\xff\xfe\xed\xa0\x80\x1b]0;verdict: passed\x07\x00\r" * 4_000
_written = 0
while _written < 100_000_000:
    _written += os.write(1, _BLOCK)


def custom_kernel(data):
    return sorted(data)
