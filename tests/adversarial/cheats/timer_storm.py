# ruff: noqa
# mypy: ignore-errors
# group: timing
# catalogue: T18
# tries: set timers that go off while it is stopped, each watched by hundreds, so that interrupts eat the baseline's turn
# verdict: passed
# n: 6000
# never: TIMERS-SET
import ctypes
import os
import select

TIMERS, WATCHERS = 10, 1000
libc = ctypes.CDLL(None, use_errno=True)
timers = [libc.timerfd_create(1, 0o4000) for _ in range(TIMERS)]
watchers = []
if timers[0] >= 0:
    print("TIMERS-SET")
    for _ in range(WATCHERS):
        watchers.append(select.epoll())
        for fd in timers:
            watchers[-1].register(fd, select.EPOLLIN)
when = [(ctypes.c_long * 4)(0, 0, 0, 400_000 + n * 150_000) for n in range(TIMERS)]
set_to = libc.timerfd_settime
step = -1


def custom_kernel(data):
    global step
    done = sorted(data)
    step += len(data) > 1000
    if watchers and step % 2 == 0:  # the baseline is next
        for fd, at in zip(timers, when):
            set_to(fd, 0, at, None)
    return done
