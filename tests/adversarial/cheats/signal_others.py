# ruff: noqa
# mypy: ignore-errors
# group: environment
# catalogue: R3
# tries: signal every process that isn't its own, one by one, all at once, by group and by thread, with a helper as well
# verdict: passed
# levels: 1 2
# never: REACHED
import ctypes
import os
import signal

libc = ctypes.CDLL(None, use_errno=True)
HARMLESS = signal.SIGWINCH  # what nobody asked for is ignored


def own(pid):
    """Itself, or below it."""
    while pid > 1:
        if pid == os.getpid():
            return True
        try:
            pid = int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1])
        except OSError:
            return True  # gone
    return False


def group(pid):
    found = os.getpgid(pid)
    return found if found not in (0, os.getpgrp()) else 1 / 0  # 0 stands for its own


def everybody(who):
    for pid in [os.getppid(), *map(int, filter(str.isdigit, os.listdir("/proc")))]:
        if pid > 0 and not own(pid):
            for send in (
                lambda: os.kill(pid, HARMLESS),
                lambda: os.kill(pid, 0),
                lambda: os.killpg(group(pid), HARMLESS),
                lambda: None if libc.syscall(234, pid, pid, HARMLESS) == 0 else 1 / 0,
                lambda: None if libc.syscall(200, pid, HARMLESS) == 0 else 1 / 0,
                lambda: signal.pidfd_send_signal(os.pidfd_open(pid), HARMLESS),
                lambda: signal.pidfd_send_signal(os.open(f"/proc/{pid}", os.O_RDONLY), HARMLESS),
            ):
                try:
                    send()
                except (OSError, ZeroDivisionError):
                    continue
                # in a PID namespace of its own the first process is the keeper, which nobody inside can end
                if pid != 1:
                    print("REACHED", pid, "from", who)


everybody("the runner")
if (_child := os.fork()) == 0:
    try:
        root = os.getppid()
        os.getpid = lambda: root
        everybody("a helper")
    finally:
        os._exit(0)
os.waitpid(_child, 0)
for _all in (lambda: os.kill(-1, HARMLESS), lambda: os.kill(-1, signal.SIGCONT)):
    try:
        _all()
    except OSError:
        pass


def custom_kernel(data):
    return sorted(data)
