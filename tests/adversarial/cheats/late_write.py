# ruff: noqa
# mypy: ignore-errors
# group: timing
# catalogue: T5 T7
# tries: report a half-written output and let a thread finish it
# verdict: violation wrong
# why several: violation where the thread wrote between two looks, wrong where it came too late for both
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


import threading
import time


def finish(view, good):
    while True:
        view[: len(good)] = good
        time.sleep(0)


def custom_kernel(data):
    end = line()
    good = struct.pack(f"<{len(data)}d", *sorted(data))
    threading.Thread(target=finish, args=(end.views["out"], good), daemon=True).start()
    return [0.0] * len(data)
