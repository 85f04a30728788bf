# ruff: noqa
# mypy: ignore-errors
# group: forgery
# catalogue: R7
# tries: fill the link's control words with nonsense
# verdict: violation
# patience s: 8
import gc
import struct
import sys


def line():
    """The runner's own end of the link."""
    for thing in gc.get_objects():
        if type(thing).__name__ == "RunnerEnd":
            return thing
    frame = sys._getframe()
    while frame is not None:
        if "line" in frame.f_locals and hasattr(frame.f_locals["line"], "words"):
            return frame.f_locals["line"]
        frame = frame.f_back
    return None


def custom_kernel(data):
    end = line()
    for at in range(256, 512):
        end.words[at] = (1 << 64) - 1
    while True:
        pass
