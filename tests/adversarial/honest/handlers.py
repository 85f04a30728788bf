# ruff: noqa
# mypy: ignore-errors
# does: signal handlers, alarms and an exit handler of its own
import atexit
import signal

signal.signal(signal.SIGALRM, lambda *_: None)
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
atexit.register(print, "bye")


def custom_kernel(data):
    return sorted(data)
