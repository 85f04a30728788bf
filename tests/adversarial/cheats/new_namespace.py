# ruff: noqa
# mypy: ignore-errors
# group: environment
# catalogue: E8
# tries: gain capabilities in a user namespace, mount, change the root
# verdict: passed
# never: ESCAPED
import ctypes
import os

_libc = ctypes.CDLL(None, use_errno=True)
for _flags in (0x10000000, 0x20000, 0x40000000, 0x20000000):
    if _libc.unshare(_flags) == 0:
        print("ESCAPED", hex(_flags))
if _libc.mount(b"x", b"/tmp", b"tmpfs", 0, None) == 0 or _libc.chroot(b"/tmp") == 0 or _libc.setuid(0) == 0:
    print("ESCAPED")
if _libc.syscall(56, 0x10000000 | 17, 0, 0, 0, 0) >= 0:
    print("ESCAPED by clone")
for _path in ("/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname", "/proc/sysrq-trigger"):
    try:
        open(_path, "w").write("x")
        print("ESCAPED", _path)
    except OSError:
        pass


def custom_kernel(data):
    return sorted(data)
