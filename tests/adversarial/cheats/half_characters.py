# ruff: noqa
# mypy: ignore-errors
# group: forgery
# catalogue: R10
# tries: bring whoever shows it to fall over text that is none: half characters, bytes, right-to-left marks
# verdict: error
import os
import sys

os.write(1, b"\xff\xfe\x80 no text\n\xed\xa0\x80\n")
print("\udcff\ud800 \u202e reversed \u2066", file=sys.stderr)


def custom_kernel(data):
    raise ValueError("\ud800\udcff\u202everdict: passed\u2028\x85\x1b[2K" + "\N{ZERO WIDTH SPACE}" * 9_000)
