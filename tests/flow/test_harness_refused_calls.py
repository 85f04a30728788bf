"""What the system call filter lets a runner ask of the kernel, asked of a real one: each process here puts the filter
on itself, calls the kernel by number, and tells what that said."""

from __future__ import annotations

import errno
import json
import os
import resource
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from kbslurm_eval.cage.kernel import forbid_cores
from tests.flow import harness_ground as ground
from tests.services import LANDLOCK, USER_NAMESPACES, need, pointless

CALLER = """
import ctypes, json, os, resource, sys

from kbslurm_eval.cage.syscall_filter import put_on_seccomp, seccomp_filter

told = json.loads(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
here = os.uname().machine == "aarch64"
room = ctypes.create_string_buffer(4096)
put_on_seccomp(seccomp_filter(own_pid=os.getpid(), **told["how"]))
said = {}
for name, (numbers, *arguments) in told["calls"].items():
    values = [ctypes.c_long(ctypes.addressof(room) if one == "room" else one) for one in arguments]
    ctypes.set_errno(0)
    said[name] = 0 if libc.syscall(ctypes.c_long(numbers[here]), *values) >= 0 else ctypes.get_errno()
print(json.dumps([said, resource.getrlimit(resource.RLIMIT_CORE)]))
"""
BARE, NAMESPACES, RANKS = {"bare": True}, {"bare": False}, {"bare": False, "inet": True, "memfd": True}
EVERYWHERE = [
    pytest.param(BARE, id="bare"), pytest.param(NAMESPACES, id="namespaces"), pytest.param(RANKS, id="ranks"),
]  # fmt: skip
SOCKET, SOCKETPAIR, IOCTL, SETSOCKOPT = (41, 198), (53, 199), (16, 29), (54, 208)
SETRLIMIT, PRLIMIT, CORE = (160, 164), (302, 261), resource.RLIMIT_CORE
UNIX, INET, STREAM, RAW = 1, 2, 1, 3
NOWHERE = 9999  # a descriptor that isn't open


def said(how: Mapping[str, bool], **calls: tuple[object, ...]) -> tuple[dict[str, int], tuple[int, int]]:
    """What the kernel said to each of these calls, 0 if it was made, and how large a core may be afterwards."""
    told = json.dumps({"how": how, "calls": calls})
    env = {**os.environ, "PYTHONPATH": str(ground.EVAL)}
    done = subprocess.run(
        [sys.executable, "-c", CALLER, told], env=env, preexec_fn=forbid_cores, text=True, capture_output=True
    )
    assert done.returncode == 0, done.stderr
    found, cores = json.loads(done.stdout)
    return found, tuple(cores)


@pytest.mark.parametrize("how", EVERYWHERE)
def test_no_page_is_kept_in_a_pipe_or_a_socket(how: Mapping[str, bool]) -> None:
    found, _ = said(
        how,
        splice=((275, 76), NOWHERE, 0, NOWHERE, 0, 1, 0),
        tee=((276, 77), NOWHERE, NOWHERE, 1, 0),
        vmsplice=((278, 75), NOWHERE, 0, 0, 0),
        sendfile=((40, 71), NOWHERE, NOWHERE, 0, 1),
    )
    assert found.pop("vmsplice") == errno.EPERM
    assert set(found.values()) == {errno.ENOSYS}, "C++'s copy_file goes another way then"


@pytest.mark.parametrize("how", EVERYWHERE)
def test_a_nodes_own_stock_of_large_pages_is_for_nobody(how: Mapping[str, bool]) -> None:
    private, anonymous, large = 2, 0x20, 0x4_0000
    found, _ = said(
        how,
        large=((9, 222), 0, 2 << 20, 3, private | anonymous | large, -1, 0),
        giant=((9, 222), 0, 1 << 30, 3, private | anonymous | large | 30 << 26, -1, 0),
        plain=((9, 222), 0, 4096, 3, private | anonymous, -1, 0),
    )
    assert found == {"large": errno.ENOMEM, "giant": errno.ENOMEM, "plain": 0}
    if how.get("memfd"):
        found, _ = said(how, large=((319, 279), "room", 4), plain=((319, 279), "room", 0))
        assert found == {"large": errno.ENOMEM, "plain": 0}


def test_nothing_that_ranks_send_is_sent_later() -> None:
    """By a timer of the kernel's own, also while all of them are stopped."""
    later = {f"{level}, {option}": (SETSOCKOPT, NOWHERE, level, option, "room", 16)
             for level, option in ((1, 47), (1, 61), (6, 13), (6, 37))}  # fmt: skip
    found, _ = said(RANKS, **later)
    assert set(found.values()) == {errno.EPERM}, found
    options = ((1, 13), (1, 2), (1, 7), (1, 37), (6, 1), (6, 47), (0, 47), (41, 26), (41, 51))
    usual = {f"{level}, {option}": (SETSOCKOPT, NOWHERE, level, option, "room", 16) for level, option in options}
    found, _ = said(RANKS, **usual)
    assert set(found.values()) == {errno.EBADF}, found


@pytest.mark.parametrize("how", EVERYWHERE)
def test_no_program_is_started_by_the_kernel_for_a_module(how: Mapping[str, bool]) -> None:
    """It would run as root, outside of any tree, in the turn that follows."""
    families = {f"pair of {family}": (SOCKETPAIR, family, STREAM, 0, "room") for family in (3, 9, 21, 30, 44)}
    requests = {f"ioctl {one:#x}": (IOCTL, 1, one, "room") for one in (0x5423, 0x8940, 0x8941, 0x8982, 0x8983)}
    found, _ = said(how, raw=(SOCKET, INET, RAW, 250), sctp=(SOCKET, INET, STREAM, 132), **families, **requests)
    assert set(found.values()) == {errno.EPERM}, found
    found, _ = said(how, pair=(SOCKETPAIR, UNIX, STREAM, 0, "room"))
    assert found == {"pair": 0}


def test_ranks_speak_tcp_with_each_other() -> None:
    tcp = {f"tcp {protocol}": (SOCKET, INET, STREAM, protocol) for protocol in (0, 6)}
    found, _ = said(RANKS, **tcp, udp=(SOCKET, INET, 2, 17), names=(SOCKET, 16, RAW, 0), six=(SOCKET, 10, STREAM, 0))
    assert set(found.values()) <= {0, errno.EAFNOSUPPORT}, found  # a machine may have no IPv6


@pytest.mark.parametrize("how", EVERYWHERE)
@pytest.mark.parametrize("option", [26, 50, 51, 52])
def test_no_filter_is_put_on_a_socket(how: Mapping[str, bool], option: int) -> None:
    found, _ = said(how, filter=(SETSOCKOPT, NOWHERE, 1, option, "room", 16))
    assert found == {"filter": errno.EPERM}


@pytest.mark.parametrize("how", EVERYWHERE)
def test_turning_cores_off_is_said_to_be_done_and_isnt(how: Mapping[str, bool]) -> None:
    """With a limit of 0 the kernel starts the node's handler of cores, as root; with 1 it doesn't."""
    if resource.getrlimit(CORE)[1] == 0 and os.getuid() != 0:
        pointless("this machine's own limit can't be raised to 1")
    found, cores = said(
        how, set=(SETRLIMIT, CORE, "room"), both=(PRLIMIT, 0, CORE, "room", 0), other=(PRLIMIT, 0, 7, 0, 0)
    )
    assert (set(found.values()), cores) == ({0}, (1, 1))


HOLDER = """
import os, shutil, tempfile


def custom_kernel(data):
    folder = tempfile.mkdtemp()
    path = os.path.join(folder, "one")
    with open(path, "wb") as file:
        file.write(b"x" * 4096)
    assert shutil.copyfile(path, path + ".copy") and os.path.getsize(path + ".copy") == 4096
    with open(path, "r+b") as file:
        kept = os.pipe()
        try:
            os.splice(file.fileno(), kept[1], 4096, offset_src=0)
        except OSError:
            return sorted(data)
    raise RuntimeError("memory that nobody counts")
"""


@pytest.mark.parametrize("level", [1, 2])
def test_files_can_be_copied_but_kept_in_no_pipe(tmp_path: Path, level: int) -> None:
    """One place in a pipe kept two megabytes of a file that was gone: four gigabytes with one allowed."""
    need(USER_NAMESPACES if level == 2 else LANDLOCK)
    told = ground.manifest(HOLDER, mode="test")
    report = ground.judged(tmp_path, told, env={"KBSLURM_EVAL_LEVEL": str(level)}).told
    assert report.verdict == "passed", report.reason


HUGE = """
import ctypes, mmap

libc = ctypes.CDLL(None, use_errno=True)


def custom_kernel(data):
    refused = libc.prctl(41, 0, 0, 0, 0)
    room = mmap.mmap(-1, 64 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    room.madvise(mmap.MADV_HUGEPAGE)
    for at in range(0, len(room), 4096):
        room[at] = 1
    address = (ctypes.addressof(ctypes.c_char.from_buffer(room)) + (2 << 20)) & -(2 << 20)
    collapsed = libc.madvise(ctypes.c_void_p(address), ctypes.c_size_t(2 << 20), 25)
    with open("/proc/self/smaps") as file:
        huge = sum(int(line.split()[1]) for line in file if line.startswith("AnonHugePages:"))
    if (refused, collapsed, huge) != (-1, -1, 0):
        raise RuntimeError(f"huge pages: {refused}, {collapsed}, {huge} KiB")
    return sorted(data)
"""


@pytest.mark.parametrize("level", [1, 2])
def test_nobody_has_a_nodes_huge_pages(tmp_path: Path, level: int) -> None:
    """Of which all but four kilobytes were given back, and which the kernel kept whole: 18 GB of a node, in no count,
    and a baseline that asks for memory took four times as long."""
    need(USER_NAMESPACES if level == 2 else LANDLOCK)
    told = ground.manifest(HUGE, mode="test", tests=[{"n": 40, "seed": 1}])
    report = ground.judged(tmp_path, told, env={"KBSLURM_EVAL_LEVEL": str(level)}).told
    assert report.verdict == "passed", report.reason
