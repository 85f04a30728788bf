# ruff: noqa
# mypy: ignore-errors
# group: timing
# catalogue: T16
# tries: have the kernel continue a stopped helper by hanging its terminal up, some ms after the last descriptor of the other side went into a cycle of sockets that only the kernel clears away
# verdict: passed
# race: yes
# n: 6000
# levels: 2 1
# never: UNFROZEN TERMINAL-OF-ITS-OWN
import array
import fcntl
import gc
import os
import signal
import socket
import struct
import termios
import time


def leave_to_the_kernel(fd):
    ours, theirs = socket.socketpair()
    fds = array.array("i", [fd, theirs.fileno()]).tobytes()
    ours.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
    os.close(fd)
    ours.close()
    theirs.close()


def watch(line, ready, go):
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGCONT, lambda *_: None)
    os.setsid()
    try:
        master = os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY)
        number = struct.unpack("I", fcntl.ioctl(master, 0x80045430, bytes(4)))[0]
        fcntl.ioctl(master, 0x40045431, struct.pack("i", 0))
        os.open(f"/dev/pts/{number}", os.O_RDWR)
        fcntl.ioctl(os.open("/dev/tty", os.O_RDWR), termios.TIOCGPGRP, bytes(4))
        os.write(1, b"TERMINAL-OF-ITS-OWN\n")
    except OSError:
        os.write(ready, b"n")
        os._exit(0)
    out, words = line.views["out"], line.words
    os.write(ready, b"y")
    os.read(go, 1)
    leave_to_the_kernel(master)
    os.write(ready, b"d")
    until = time.monotonic() + 20
    while time.monotonic() < until:
        token = words[0]
        if words[256] == token:
            seen = bytes(out[:64])
            while words[0] == token and words[256] == token and time.monotonic() < until:
                if bytes(out[:64]) != seen and words[0] == token and words[256] == token:
                    os.write(1, b"UNFROZEN by its terminal\n")
                    os._exit(0)
    os._exit(0)


started = []


def custom_kernel(data):
    if len(data) > 5_000 and len(started) < 8:
        line = next(t for t in gc.get_objects() if type(t).__name__ == "RunnerEnd")
        told, ready = os.pipe()
        wait, go = os.pipe()
        started.append(go)
        if os.fork() == 0:
            watch(line, ready, wait)
        if os.read(told, 1) == b"y":
            os.write(go, b"x")
            os.read(told, 1)
    return sorted(data)
