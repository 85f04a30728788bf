# ruff: noqa
# mypy: ignore-errors
# group: timing
# catalogue: T7
# tries: ring 'done' first and do the work afterwards, while the judge is copying
# verdict: violation wrong
# why several: wrong where the answer was still as it had been, violation where it changed between two looks
# race: yes
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
    end.answer(end.words[0], 0)
    spun = 0
    while spun < 3_000_000:
        spun += 1
    return sorted(data)
