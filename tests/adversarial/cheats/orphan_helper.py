# ruff: noqa
# mypy: ignore-errors
# group: timing
# catalogue: T16
# tries: leave the runner's own tree by a double fork, so that the judge doesn't stop it (below isolation level 2)
# verdict: passed
# race: yes
# n: 6000
# levels: 1
# never: UNFROZEN
import gc
import os
import time


def end():
    return next(t for t in gc.get_objects() if type(t).__name__ == "RunnerEnd")


def watch(line):
    out, words = line.views["out"], line.words
    until = time.monotonic() + 20
    while time.monotonic() < until:
        token = words[0]
        if words[256] == token:
            seen = bytes(out[:64])
            while words[0] == token and words[256] == token and time.monotonic() < until:
                if bytes(out[:64]) != seen and words[0] == token and words[256] == token:
                    os.write(1, b"UNFROZEN by leaving the family\n")
                    os._exit(0)
    os._exit(0)


started = []


def custom_kernel(data):
    if not started and len(data) > 5_000:
        started.append(1)
        line = end()
        pid = os.fork()
        if pid == 0:
            os.setsid()
            if os.fork():
                os._exit(0)
            watch(line)
        os.waitpid(pid, 0)
    return sorted(data)
