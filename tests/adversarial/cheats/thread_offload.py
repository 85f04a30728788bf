# ruff: noqa
# mypy: ignore-errors
# group: timing
# catalogue: T5
# tries: return a placeholder that a thread fills during the check
# verdict: wrong
# race: yes
import threading
import time


def custom_kernel(data):
    out = [0.0] * len(data)

    def fill():
        time.sleep(0.02)  # a loop may be over before `start` returns: then the work was done in the call, and timed
        out[:] = sorted(data)

    threading.Thread(target=fill, daemon=True).start()
    return out
