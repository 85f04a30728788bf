"""Level 1: no namespaces, and all the same nothing that a runner writes outlives it, and little of its user's is read.

Judged as this test's user, and where that is root as an ordinary one, too, whose runners are the judge's own user.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import resource
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from kbslurm_eval import run
from kbslurm_eval.cage import kernel, landlock, limits, mounts, places, seen_inside, users
from kbslurm_eval.judge.replies import Rejected
from tests.flow import harness_ground as ground
from tests.services import LANDLOCK, PYTHON, ROOT, USER_NAMESPACES, missing, need, needs, pointless

ATTACK = """
import ctypes, json, os, socket, sys, tempfile

found = {"written": [], "read": [], "changed": []}
for place in PLACES:
    try:
        with open(f"{place}/kb-fence-marker", "w") as file:
            file.write("left")
        found["written"].append(place)
    except OSError:
        pass
    try:
        os.symlink("/", f"{place}/kb-fence-link")
        found["written"].append(place)
    except OSError:
        pass
for path in FILES:
    try:
        found["read"].append(open(path).read() and path)
    except OSError:
        pass
    for change in (lambda: os.truncate(path, 0), lambda: os.unlink(path), lambda: os.rename(path, f"{path}.away")):
        try:
            change()
            found["changed"].append(path)
        except OSError:
            pass
for folder in FOLDERS:
    try:
        found["read"] += os.listdir(folder)
    except OSError:
        pass
for pid in filter(str.isdigit, os.listdir("/proc")):
    if pid != str(os.getpid()):
        try:
            open(f"/proc/{pid}/mem", "rb").close()
            found["read"].append(f"memory of {pid}")
        except OSError:
            pass
        try:
            os.kill(int(pid), 0)
            found["changed"].append(f"signalled {pid}")
        except OSError:
            pass
try:
    socket.socket(socket.AF_UNIX).connect("\\0" + SOCKET)
    found["read"].append("an abstract socket")
except OSError:
    pass
with tempfile.TemporaryFile() as own:
    own.write(b"its own place is there")
if any(found.values()):
    raise RuntimeError(repr(found))


def custom_kernel(data):
    return sorted(data)
"""


@pytest.fixture
def known(tmp_path: Path) -> Iterator[Path]:
    """A file that everybody may read and write, beside the attempt's."""
    place = tmp_path / "open"
    place.mkdir()
    tmp_path.chmod(0o711)
    place.chmod(0o777)
    (place / "secret").write_text("secret")
    (place / "secret").chmod(0o666)
    yield place
    for path in (path for folder in places.WRITABLE_BY_ALL for path in Path(folder).glob("kb-fence-*")):
        path.unlink()


def attack(known: Path) -> str:
    places = [
        "/tmp",
        "/var/tmp",
        "/dev/shm",
        "/run/lock",
        str(known),
        sys.prefix,
        os.path.expanduser("~"),
        str(ground.EVAL),
    ]
    told = ATTACK.replace("PLACES", repr(places)).replace("FILES", repr([str(known / "secret")]))
    return told.replace("FOLDERS", repr([str(known), "/root", "/tmp", "/dev/shm"])).replace("SOCKET", repr(str(known)))


@needs(LANDLOCK)
def test_below_namespaces_nothing_is_left_and_nothing_of_others_is_read(tmp_path: Path, known: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"\0{known}")
        listening.listen()
        told = ground.manifest(attack(known), mode="test")
        report = ground.judged(tmp_path / "run", told, env={"KBSLURM_EVAL_LEVEL": "1"}).told
    assert report.verdict == "passed", report.log[-2000:]
    assert report.isolation.level == 1, report.isolation.notes
    assert (known / "secret").read_text() == "secret"
    assert [path for folder in places.WRITABLE_BY_ALL for path in Path(folder).glob("kb-fence-*")] == []


@needs(LANDLOCK, ROOT, PYTHON)
def test_an_ordinary_user_is_fenced_in_as_well(known: Path) -> None:
    """Its runners belong to the same user as the judge: only Landlock stands between them and that user's files."""
    report = ground.judged_for_an_ordinary_user(known, ground.manifest(attack(known), mode="test"))
    assert report.verdict == "passed", report.log[-2000:]
    expected = 1 if landlock.version() >= landlock.TRUNCATES else 0
    assert report.isolation.level == expected, report.isolation.notes
    assert (known / "secret").read_text() == "secret"


ORPHANS = """
import os


def custom_kernel(data):
    for _ in range(40):
        child = os.fork()
        if child == 0:
            if os.fork() == 0:
                os._exit(0)
            os._exit(0)
        os.waitpid(child, 0)
    print("judged as", os.getuid())
    return sorted(data)
"""


@needs(LANDLOCK)
def test_orphans_that_have_ended_dont_count_and_each_launch_is_another_user(tmp_path: Path) -> None:
    told = ground.manifest(ORPHANS, mode="benchmark", limits=ground.limits(processes=64))
    report = ground.judged(tmp_path, told, env={"KBSLURM_EVAL_LEVEL": "1"}).told
    assert report.verdict == "passed", report.reason
    seen = {int(line.split()[-1]) for line in report.log.splitlines() if line.startswith("judged as")}
    if os.getuid() == 0:
        assert len(seen) == 1 + told.budget.launches, seen
        assert min(seen) >= users.CAGED_UID
    else:
        assert seen == {os.getuid()}


OTHERS = """
import ctypes, fcntl, os, resource

libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_long
if libc.shmat(SEGMENT, None, 0) != -1:
    raise RuntimeError("memory of another process, by its number")
if libc.inotify_init1(0) != -1:
    raise RuntimeError("watches on files of others")
try:
    os.setxattr(FILE, "user.kb", b"left")
    raise RuntimeError("bytes beside a file's own")
except OSError:
    pass
read, write = os.pipe()
for command in (fcntl.F_SETOWN, 15):
    try:
        fcntl.fcntl(read, command, os.getppid())
    except OSError:
        continue
    raise RuntimeError("a signal to the judge")
with open("leased", "w") as file:
    file.write("x")
with open("leased") as file:
    try:
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        raise RuntimeError("others wait for whoever holds a file open")
    except OSError:
        pass
if resource.getrlimit(resource.RLIMIT_SIGPENDING)[1] > 1024:
    raise RuntimeError("as many waiting signals as all processes of its user may have")


def custom_kernel(data):
    return sorted(data)
"""


@needs(LANDLOCK)
def test_what_landlock_does_not_ask_about_the_filter_refuses(tmp_path: Path) -> None:
    """System V memory of others, attributes beside a file's bytes, watches, and a file's owner that a signal ends."""
    known = tmp_path / "known"
    known.write_text("")
    known.chmod(0o666)
    libc = ctypes.CDLL(None, use_errno=True)
    segment = libc.shmget(0, 4096, 0o1666)
    assert segment >= 0
    try:
        source = OTHERS.replace("SEGMENT", str(segment)).replace("FILE", repr(str(known)))
        told = ground.manifest(source, mode="test")
        report = ground.judged(tmp_path / "run", told, env={"KBSLURM_EVAL_LEVEL": "1"}).told
    finally:
        libc.shmctl(segment, 0, None)
    assert report.verdict == "passed", report.log[-2000:]
    assert os.listxattr(known) == []


SPEAKER = """
import socket


def custom_kernel(data):
    ours, theirs = socket.socketpair()
    ours.send(b"pairs are there")
    theirs.recv(64)
    return sorted(data)


for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
    try:
        socket.socket(socket.AF_UNIX, kind).connect(PLACE + str(int(kind)))
    except OSError:
        continue
    raise RuntimeError("spoken to")
try:
    socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0].sendto(b"x", PLACE + str(int(socket.SOCK_DGRAM)))
except OSError:
    pass
else:
    raise RuntimeError("written to")
"""


@needs(LANDLOCK)
def test_nobody_is_spoken_to_by_a_path(tmp_path: Path) -> None:
    """Who answers there works outside the fence: a service manager would start anything for its user."""
    if limits.gpu_devices():
        pointless("a GPU's memory comes by a socket with a path")
    with tempfile.TemporaryDirectory(prefix="kb-") as short, contextlib.ExitStack() as open_ones:
        Path(short).chmod(0o755)
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            place = f"{short}/{int(kind)}"
            listening = open_ones.enter_context(socket.socket(socket.AF_UNIX, kind))
            listening.bind(place)
            Path(place).chmod(0o666)
            if kind == socket.SOCK_STREAM:
                listening.listen()
        told = ground.manifest(SPEAKER.replace("PLACE", repr(f"{short}/")), mode="test")
        report = ground.judged(tmp_path, told, env={"KBSLURM_EVAL_LEVEL": "1"}).told
    assert report.verdict == "passed", report.log[-2000:]


DEVICE = "/dev/tty"  # a character device that every machine and no cage has, in a GPU's place
LOOKER = """
import os


def custom_kernel(data):
    print("SEEN", os.path.exists("DEVICE"))
    return sorted(data)
""".replace("DEVICE", DEVICE)
WITH_A_GPU = """
import sys
sys.path.insert(0, EVAL)
from kbslurm_eval.cage import limits
limits.gpu_devices = lambda: [DEVICE]
from kbslurm_eval import run
raise SystemExit(run.main(sys.argv[1:]))
"""


@needs(USER_NAMESPACES)
@pytest.mark.parametrize(("gpu", "seen"), [("CPU", "SEEN False"), ("H100", "SEEN True")])
def test_a_board_of_processors_shows_no_gpu_of_its_node(tmp_path: Path, gpu: str, seen: str) -> None:
    """Else whoever submits there may use it, and is the only one who does."""
    program = tmp_path / "with_a_gpu.py"
    program.write_text(WITH_A_GPU.replace("EVAL", repr(str(ground.EVAL))).replace("DEVICE", repr(DEVICE)))
    told = ground.manifest(LOOKER, mode="test", gpu=gpu)
    report = ground.judged(tmp_path, told, program=program).told
    assert seen in report.log, report.log[-2000:]


WATCHER = """
import ctypes, fcntl, os

libc = ctypes.CDLL(None, use_errno=True)
if libc.inotify_init1(0) != -1 or libc.syscall(300, 0, 0) != -1:
    raise RuntimeError("sees what others open")
if libc.syscall(206, 65536, ctypes.byref(ctypes.c_ulong())) != -1:
    raise RuntimeError("has what a node has so many of")
for call in (
    (157, 62, 1, 0, 0, 0), (162,), (306, os.open("/eval", os.O_RDONLY)), (64, 0, 32_000, 0o600), (68, 0, 0o600),
    (436, 900, 900, 2), (436, 900, 900, 6), (56, 0x10900, 0, 0, 0, 0),  # a table of descriptors for a thread alone
    (221, os.open("/eval/__main__.py", os.O_RDONLY), 0, 0, 4),  # what others read is in memory
    (157, 22, 2, 0, 0, 0), (317, 1, 0, 0), (445, -1, 1, 0, 0), (446, -1, 0),  # freed by the kernel's own threads
):
    if libc.syscall(*call) != -1 or ctypes.get_errno() != 1:
        raise RuntimeError(f"may make the system call {call}")
reads, writes = os.pipe()
if libc.syscall(278, writes, 0, 0, 0) != -1:
    raise RuntimeError("leaves memory in a pipe")
for asked in ((writes, 1031, 1 << 20), (os.open("/eval", os.O_RDONLY), 1026, 0x8000_001F)):
    try:
        fcntl.fcntl(*asked)
    except PermissionError:
        continue
    raise RuntimeError(f"may call fcntl {asked}")
for folder, _, names in os.walk("/eval"):
    for name in names:
        with open(os.path.join(folder, name), "rb") as file:
            try:
                fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
            except PermissionError as error:
                refused = error.errno
                continue
            raise RuntimeError("others wait for whoever holds a file open")


def custom_kernel(data):
    return sorted(data)
"""
HONEST = "def custom_kernel(data):\n    return sorted(data)\n"
FILLER = """
import os, socket


def fill():
    kept = []
    try:
        while True:
            for one in socket.socketpair():
                one.setblocking(False)
                kept.append(one)
                try:
                    while one.send(bytes(65536)):
                        pass
                except BlockingIOError:
                    pass
    except OSError:
        return kept


one = socket.socketpair()[0]
for option in (socket.SO_SNDBUF, 26, 50):  # and filters, by SO_ATTACH_FILTER and SO_ATTACH_BPF
    try:
        one.setsockopt(socket.SOL_SOCKET, option, 1 << 22)
    except PermissionError:
        pass
    else:
        raise RuntimeError("a buffer as large as it likes, or a filter")
for _ in range(4):
    here, there = os.pipe()
    if os.fork() == 0:
        kept = fill()
        os.write(there, b"x")
        __import__("time").sleep(600)
    os.read(here, 1)


def custom_kernel(data):
    return sorted(data)
"""
COUNTER = """
import re

with open("/proc/self/mountinfo") as file:
    print("AT", *re.findall(r"/([0-9]+)/bell /link", file.read()))


def custom_kernel(data):
    return sorted(data)
"""
RESERVER = """
import ctypes, os

libc = ctypes.CDLL(None, use_errno=True)
libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]


def custom_kernel(data):
    with open("/link/out", "r+b") as file:
        end = os.fstat(file.fileno()).st_size
        for mode in (1, 0x11):
            if libc.fallocate(file.fileno(), mode, end, 1 << 20) == 0:
                raise RuntimeError("memory that no limit counts")
    return sorted(data)
"""
FEW_FILES = """
import resource
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
if soft < hard:
    raise RuntimeError("a runner can have as many files on their way as the judge")
"""


@needs(USER_NAMESPACES)
def test_nobody_keeps_a_file_of_the_harness_or_watches_it(tmp_path: Path) -> None:
    """The files are its own user's where the judge isn't root, and others that open a leased one wait for 45 s."""
    report = ground.judged(tmp_path, ground.manifest(WATCHER, mode="test")).told
    assert report.verdict == "passed", report.reason


@pytest.mark.parametrize("level", [1, 2])
def test_what_lies_in_sockets_is_memory_too(tmp_path: Path, level: int) -> None:
    """It is in no process's own: twelve had 21 of a machine's 23 GiB there, with half of one allowed."""
    need(USER_NAMESPACES if level == 2 else LANDLOCK)
    limits, env = ground.limits(memory_bytes=256 << 20), {"KBSLURM_EVAL_LEVEL": str(level)}
    report = ground.judged(tmp_path, ground.manifest(FILLER, mode="test", limits=limits), env=env).told
    assert report.verdict == "memory", (report.reason, report.log[-500:])


WATCHES = """
import os, select, time


def custom_kernel(data):
    for _ in range(6):
        if os.fork() == 0:
            events = [os.eventfd(0) for _ in range(400)]
            pollers = [select.epoll() for _ in range(400)]
            for poller in pollers:
                for event in events:
                    poller.register(event, select.EPOLLIN)
            time.sleep(600)
    time.sleep(3)
    return sorted(data)
"""


@pytest.mark.parametrize("level", [1, 2])
def test_what_pollers_hold_is_memory_too(tmp_path: Path, level: int) -> None:
    """Fifty megabytes of the kernel's for each process, that is hardly resident itself: others were ended for it."""
    need(USER_NAMESPACES if level == 2 else LANDLOCK)
    limits, env = ground.limits(memory_bytes=256 << 20), {"KBSLURM_EVAL_LEVEL": str(level)}
    told = ground.manifest(WATCHES, mode="test", tests=[{"n": 4, "seed": 1}], limits=limits)
    report = ground.judged(tmp_path, told, env=env).told
    assert report.verdict == "memory", (report.reason, report.log[-500:])


WHO = """
import os

with open("/proc/self/uid_map") as file:
    print("WHO", os.getuid(), file.read().split()[4:5])


def custom_kernel(data):
    return sorted(data)
"""


@pytest.mark.parametrize("level", [1, 2])
def test_a_runners_user_doesnt_tell_which_launch_it_is(tmp_path: Path, level: int) -> None:
    if os.getuid() != 0:
        pointless("only root gives each launch a user of its own")
    need(USER_NAMESPACES if level == 2 else LANDLOCK)
    env = {"KBSLURM_EVAL_LEVEL": str(level)}
    report = ground.judged(tmp_path, ground.manifest(WHO, mode="benchmark"), env=env).told
    found = [max(map(int, re.findall(r"\d+", line))) for line in report.log.splitlines() if line.startswith("WHO")]
    assert len(set(found)) == len(found) >= 3, report.log
    assert min(found) >= users.OWN_UIDS
    assert all(abs(one - another) != 1 for one, another in pairwise(found)), "drawn by lot, not counted"


@needs(USER_NAMESPACES)
def test_a_runners_mounts_dont_tell_which_launch_it_is(tmp_path: Path) -> None:
    """By its number a submission would know when it is timed, and when by whom."""
    report = ground.judged(tmp_path, ground.manifest(COUNTER, mode="benchmark")).told
    numbers = [int(number) for number in re.findall(r"^AT (\d+)$", report.log, flags=re.MULTILINE)]
    assert len(set(numbers)) == len(numbers) >= 3, report.log
    assert min(numbers) > 1_000_000, numbers


CORES = """
import resource

print("CORES", *resource.getrlimit(resource.RLIMIT_CORE))


def custom_kernel(data):
    return sorted(data)
"""


def test_no_handler_is_started_for_a_submissions_cores(tmp_path: Path) -> None:
    """With a limit of 0 the kernel starts the node's own all the same, as root; with 1 it doesn't, and writes none."""
    if resource.getrlimit(resource.RLIMIT_CORE)[1] == 0:
        pointless("this machine's own limit can't be raised to 1")
    report = ground.judged(tmp_path, ground.manifest(CORES, mode="test")).told
    assert report.verdict == "passed", report.reason
    assert set(report.log.split("\n")) - {""} == {"CORES 1 1"}, report.log


@needs(USER_NAMESPACES)
def test_nobody_reserves_memory_past_the_end_of_a_link(tmp_path: Path) -> None:
    """Where /dev/shm is small, the judge's own next file would have no room: a run that is measured again, at will."""
    report = ground.judged(tmp_path, ground.manifest(RESERVER, mode="test")).told
    assert report.verdict == "passed", report.reason


def test_a_judge_may_have_more_files_open_than_a_runner(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard <= 512:
        pointless("nobody may have more files open here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, hard))
    try:
        told = ground.manifest(HONEST, mode="test", files={"reference.py": FEW_FILES + ground.SORTING})
        report = ground.judged(tmp_path, told).told
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert report.verdict == "passed", report.reason


HOG = """
import os, time

started = []


def resident():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def custom_kernel(data):
    if not started:
        started.append(1)
        here, there = os.pipe()
        mine, child = resident(), os.fork()
        if child == 0:
            if os.fork() == 0:
                held = bytearray((236 << 20) - mine - resident())
                held[::4096] = b"x" * len(held[::4096])
                os.write(there, b"x")
                time.sleep(600)
            os._exit(0)
        os.waitpid(child, 0)
        os.read(here, 1)
    return sorted(data)
"""
LARGE = """
held = bytearray(60 << 20)
held[::4096] = b"x" * len(held[::4096])


def custom_kernel(data):
    return sorted(data)
"""


@needs(LANDLOCK)
def test_the_memory_of_a_submissions_orphan_is_not_the_baselines(tmp_path: Path) -> None:
    """Counted as the baseline's it would make the run the machine's trouble, which is measured again."""
    limits = ground.limits(memory_bytes=256 << 20)
    told = ground.manifest(HOG, mode="benchmark", limits=limits, config={"baseline": LARGE})
    report = ground.judged(tmp_path, told, env={"KBSLURM_EVAL_LEVEL": "1"}).told
    assert report.verdict == "passed", report.reason


CROWD = """
import threading, time

waiting = threading.Event()


def custom_kernel(data):
    try:
        while True:
            threading.Thread(target=waiting.wait, daemon=True).start()
    except RuntimeError:
        return sorted(data)
"""
THREADED = """
import threading


def custom_kernel(data):
    threads = [threading.Thread(target=sorted, args=(data,)) for _ in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    return sorted(data)
"""


@needs(ROOT, PYTHON, LANDLOCK)
def test_a_submissions_threads_leave_the_baseline_its_own(tmp_path: Path) -> None:
    """Both count for one user where the judge isn't root: else a run is the machine's trouble, and measured again."""
    told = ground.manifest(CROWD, mode="benchmark", config={"baseline": THREADED})
    report = ground.judged_for_an_ordinary_user(tmp_path, told)
    assert report.verdict == "passed", report.reason


@pytest.mark.parametrize(
    ("changed", "level", "note"),
    [
        ({}, 1, "no mnt namespace of its own"),
        ({"open": ["/dev/shm", "/tmp"]}, 0, "files can be left for the next launch in /dev/shm, /tmp"),
        ({"uid": 1000, "landlock": 2}, 0, "files of its user can be emptied"),
        ({"uid": 1000}, 1, "no mnt namespace of its own"),
        ({"signals": True}, 0, "processes of others can be signalled"),
        ({"landlock": 0}, 0, "files can be left wherever its user may write"),
        ({"landlock": 1}, 1, "no mnt namespace of its own"),
        ({"landlock": 1, "capabilities": "0000000000000004"}, 0, "files of its user can be emptied"),
        ({"open": ["/tmp"], "spaces": {"mnt": 2}}, 1, "no pid namespace of its own"),
        ({"open_devices": [], "spaces": {"mnt": 2, "pid": 2, "ipc": 2, "net": 2}}, 2, ""),
        (
            {"open_devices": ["/dev/full"], "spaces": {"mnt": 2, "pid": 2, "ipc": 2, "net": 2}},
            1,
            "times can be left for the next launch on /dev/full",
        ),
        (
            {"open_node": ["/link"], "spaces": {"mnt": 2, "pid": 2, "ipc": 2, "net": 2}},
            1,
            "what is the node's own is open to it: /link",
        ),
    ],
)
def test_a_level_is_what_was_found(changed: dict[str, object], level: int, note: str) -> None:
    own = {"uid": 1000, "spaces": {"mnt": 1, "pid": 1, "ipc": 1, "net": 1}}
    seen = {
        "uid": users.CAGED_UID, "seccomp": 2, "no_new_privs": 1, "proc": True, "landlock": 7, "open": [],
        "read_only_root": True, "spaces": own["spaces"],
    }  # fmt: skip
    found, notes = seen_inside.level_of({**seen, **changed}, own, container=False)
    assert found == level
    assert any(said.startswith(note) for said in notes) or not note, notes


def test_a_judge_that_cannot_see_who_runs_reaches_no_level() -> None:
    found, notes = seen_inside.level_of(
        {"seccomp": 2, "no_new_privs": 1}, {"blind": "/proc hides processes"}, container=True
    )
    assert (found, notes) == (0, ["/proc hides processes"])
    assert seen_inside.seen_by_judge()["blind"] == ""


@needs(ROOT)
@pytest.mark.parametrize("hidepid", ["0", "1", "2"])
def test_a_proc_that_hides_processes_is_noticed(hidepid: str) -> None:
    told, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            kernel.libc_call("unshare", kernel.NEW_NS)
            kernel.libc_call("mount", None, b"/", None, mounts.MS_REC | mounts.MS_PRIVATE, None)
            kernel.libc_call("mount", b"proc", b"/proc", b"proc", 0, f"hidepid={hidepid}".encode())
            os.setgroups([])
            os.setresgid(12_345, 12_345, 12_345)
            os.setresuid(12_345, 12_345, 12_345)
            kernel.prctl(kernel.PR_SET_DUMPABLE, 1)
            os.write(tell, (seen_inside._blind() or "nothing is hidden").encode())
        except BaseException as error:
            os.write(tell, repr(error).encode())
        finally:
            os._exit(0)
    os.close(tell)
    with os.fdopen(told, encoding="utf-8") as said:
        text = said.read()
    os.waitpid(pid, 0)
    if "Operation not permitted" in text:  # in a container, say
        missing(ROOT, "root may not mount here")
    assert ("hidepid" in text) == (hidepid != "0"), text
    assert "Error" not in text


def test_the_program_says_what_was_found() -> None:
    done = subprocess.run(
        [sys.executable, "-I", str(ground.EVAL), "--probe"],
        env={"PATH": "/usr/bin:/bin", "KBSLURM_EVAL_LEVEL": "1"},
        capture_output=True, text=True, timeout=ground.GENEROUS_S, check=True,
    )  # fmt: skip
    found = json.loads(done.stdout)
    assert found["level"] == (1 if found["seen"]["landlock"] >= landlock.TRUNCATES else 0), found["notes"]


def test_what_others_have_taken_for_the_moment_lowers_nobodys_isolation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever holds a node's pipes while a judge starts would choose the level of others' runs: they wouldn't rank."""
    tried = []

    def short(*given: object) -> None:
        tried.append(given)
        raise Rejected("memory", "the submission holds more pipes than its share of what this node has for one user")

    monkeypatch.setattr("kbslurm_eval.judge.launch.Launch", short)
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    with pytest.raises(run.CantJudge, match="more pipes than its share"):
        run.reachable()
    assert len(tried) == run.TRIED_TIMES
