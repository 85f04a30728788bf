"""Memory hoarded by many small processes: whoever holds it is ended and blamed, neither the judge nor the baseline. The
control group that runs out of memory is a real one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbslurm_eval.shared import wire
from tests.flow import harness_ground as ground
from tests.services import LANDLOCK, MEMORY_GROUPS, PYTHON, ROOT, USER_NAMESPACES, memory_group, need, needs

MANY, EACH_MB = 40, 12
# The judge is the largest process by far.
LARGE = f"ballast = bytearray(b'x' * (220 << 20))\n{ground.SORTING}"
HOARD = f"""
import os
import time

held = []


def hoard():
    for _ in range({MANY}):
        ready, tell = os.pipe()
        pid = os.fork()
        if pid == 0:
            mine = bytearray(b"x" * ({EACH_MB} << 20))
            os.write(tell, b"y")
            time.sleep(600)
            os._exit(0)
        os.close(tell)
        os.read(ready, 1)
        os.close(ready)
        held.append(pid)
"""
AT_ONCE = HOARD + "\n\ndef custom_kernel(data):\n    if not held:\n        hoard()\n    return sorted(data)\n"
HUNGRY = """
def custom_kernel(data):
    mine = bytearray(b"x" * (170 << 20))
    return sorted(data)
"""


PERMUTATION = """
import random


def generate_input(n, seed):
    return random.Random(seed).sample(range(n), n)


def ref_kernel(data):
    return data[::-1]


def check_implementation(data, output):
    seen = bytearray(max(output) + 1)
    for one in output:
        seen[one] = 1
    return len(output) == len(data) and all(seen[one] for one in data), "no permutation"
"""
REVERSED = "def custom_kernel(data):\n    return data[::-1]\n"
FAR_AWAY = "def custom_kernel(data):\n    return [2_000_000_000, *data[1:]]\n"


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group of one's own."""
    need(MEMORY_GROUPS)
    with memory_group(f"kbslurm-test-{os.getpid()}") as place:
        yield place


def judged_within(group: Path, limit_mb: int, folder: Path, told: wire.Manifest, level: int) -> ground.Outcome:
    """The harness on this manifest, with no more memory than this for it and all its processes."""
    for name in ("memory.limit_in_bytes", "memory.max"):
        if (group / name).exists():
            (group / name).write_text(str(limit_mb << 20))
    if (group / "memory.swap.max").exists():
        (group / "memory.swap.max").write_text("0")
    inside = folder / "inside.py"
    inside.write_text(
        "import runpy, sys\n"
        f"open({str(group / 'cgroup.procs')!r}, 'w').write('0')\n"
        f"sys.argv[0] = {str(ground.EVAL)!r}\n"
        f"runpy.run_path({str(ground.EVAL)!r}, run_name='__main__')\n"
    )
    env = {"KBSLURM_EVAL_LEVEL": str(level)}
    return ground.judged(folder, told, env=env, program=inside)


def killed(group: Path) -> int:
    """How many processes of it the kernel has ended for want of memory."""
    name = "memory.events" if (group / "memory.events").exists() else "memory.oom_control"
    found = dict(line.split() for line in (group / name).read_text().splitlines())
    return int(found["oom_kill"])


@pytest.mark.parametrize("level", [1, 2])
def test_a_hoard_of_small_processes_is_ended_and_not_the_judge(tmp_path: Path, group: Path, level: int) -> None:
    """Each of them is far smaller than the judge, which the kernel used to end: a free retry at will."""
    told = ground.manifest(AT_ONCE, mode="test", files={"reference.py": LARGE})
    outcome = judged_within(group, 480, tmp_path, told, level)
    assert killed(group) > 0, outcome.stderr
    assert outcome.report is not None, outcome.stderr
    assert outcome.report.verdict != "infrastructure", outcome.report.reason


@pytest.mark.parametrize("level", [1, 2])
def test_a_hoard_of_small_processes_is_ended_and_not_the_baseline(tmp_path: Path, group: Path, level: int) -> None:
    told = ground.manifest(
        AT_ONCE, mode="benchmark", tests=[], config={"baseline": HUNGRY}, budget=wire.Budget(launches=1, calls=3)
    )
    outcome = judged_within(group, 600, tmp_path, told, level)
    assert killed(group) > 0, outcome.stderr
    assert outcome.report is not None, outcome.stderr
    assert outcome.report.verdict != "infrastructure", outcome.report.reason


OUTLIVED = """
calls = 0


def custom_kernel(data):
    global calls
    calls += 1
    if calls == 3:
        with open("/tmp/held", "wb") as file:
            for _ in range(HELD_MB):
                file.write(bytes(1 << 20))
    return sorted(data)
"""


def test_who_was_ended_before_the_baseline_starved_it(tmp_path: Path, group: Path) -> None:
    """What outlives the submission (here its files) had the kernel end the baseline next: machine trouble, a free retry
    at will."""
    need(USER_NAMESPACES)
    told = ground.manifest(
        OUTLIVED.replace("HELD_MB", "450"), mode="benchmark", tests=[], config={"baseline": HUNGRY},
        budget=wire.Budget(launches=1, calls=4),
        limits=ground.limits(memory_bytes=2 << 30, file_bytes=1 << 30),
    )  # fmt: skip
    outcome = judged_within(group, 600, tmp_path, told, 2)
    assert killed(group) > 1, outcome.stderr
    assert outcome.report is not None, outcome.stderr
    assert outcome.report.verdict == "memory", outcome.report.reason


FILLS_THE_LINK = """
import os

import numpy as np
from kbslurm_eval.runner import serve

folder = next(line.split()[-1] for line in open("/proc/self/maps") if line.rstrip().endswith("/in")).rpartition("/")[0]
own, asked = serve._Ahead.__init__, 0


def ahead(*given):
    global asked
    asked += 1
    if asked == 20:
        files = [os.open(f"{folder}/{name}", os.O_RDWR) for name in ("in", "out")]
        size, at = os.fstat(files[0]).st_size, os.fstat(files[1]).st_size
        os.ftruncate(files[0], 0)
        os.ftruncate(files[0], size)
        for step in (1 << 20, 4096):
            try:
                while True:
                    os.posix_fallocate(files[1], at, step)
                    at += step
            except OSError:
                pass
    own(*given)


serve._Ahead.__init__ = ahead


def custom_kernel(data):
    return np.array([data.sum()])
"""
SUMMING = """
import numpy as np


def generate_input(n, seed):
    return np.random.default_rng(seed).random(n)


def ref_kernel(data):
    return np.array([data.sum()])
"""


@needs(ROOT, USER_NAMESPACES)
@pytest.mark.parametrize("n", [50_000, 2_000], ids=["before a call", "between calls"])
def test_who_takes_the_links_memory_between_calls_is_to_blame(tmp_path: Path, n: int) -> None:
    """It was machine trouble, a free retry at will: the judge had no room to write the next input."""
    inside = tmp_path / "inside.py"
    inside.write_text(
        "import ctypes, os, runpy, sys\n"
        "libc = ctypes.CDLL(None)\n"
        "assert libc.unshare(0x20000) == 0 and libc.mount(b'none', b'/', None, 0x44000, None) == 0\n"
        "assert libc.mount(b'small', b'/dev/shm', b'tmpfs', 0, b'size=64m') == 0\n"
        f"sys.argv[0] = {str(ground.EVAL)!r}\n"
        f"runpy.run_path({str(ground.EVAL)!r}, run_name='__main__')\n"
    )
    told = ground.manifest(
        FILLS_THE_LINK, files={"reference.py": SUMMING}, mode="benchmark", tests=[], hidden=[],
        benchmarks=[{"n": n, "seed": 7}], budget=wire.Budget(launches=2, calls=20),
    )  # fmt: skip
    report = ground.judged(tmp_path / "run", told, program=inside, env={"KBSLURM_EVAL_LEVEL": "2"}).told
    assert report.verdict == "violation", report.reason


UNDER = """
import os


def custom_kernel(data):
    if os.fork() == 0:
        with open("/proc/self/oom_score_adj") as file:
            before = file.read().strip()
        try:
            with open("/proc/self/oom_score_adj", "w") as file:
                file.write("0")
            said = "lowered"
        except OSError as error:
            said = type(error).__name__
        print("score", before, said, flush=True)
        os._exit(0)
    os.wait()
    return sorted(data)
"""


@pytest.mark.parametrize("level", [1, 2])
def test_whoever_a_submission_starts_goes_first_and_cant_change_that(tmp_path: Path, level: int) -> None:
    need(USER_NAMESPACES if level == 2 else LANDLOCK)
    told = ground.manifest(UNDER, mode="test", tests=[{"n": 4, "seed": 1}])
    report = ground.judged(tmp_path, told, env={"KBSLURM_EVAL_LEVEL": str(level)}).told
    assert report.verdict == "passed", report.reason
    assert set(report.log.split("\n")) <= {"score 1000 PermissionError", "score 1000 OSError", ""}, report.log
    assert "score 1000" in report.log


@needs(ROOT, PYTHON)
def test_neither_can_one_of_an_ordinary_users_judge(tmp_path: Path) -> None:
    told = ground.manifest(UNDER, mode="test", tests=[{"n": 4, "seed": 1}])
    report = ground.judged_for_an_ordinary_user(tmp_path, told)
    assert report.verdict == "passed", report.reason
    assert set(report.log.split("\n")) <= {"score 1000 PermissionError", "score 1000 OSError", ""}, report.log
    assert "score 1000" in report.log


KEEPS = """
import os
import tempfile
import time

held = []


def keep(file, size):
    for _ in range(size >> 20):
        file.write(bytes(1 << 20))
    file.flush()


def custom_kernel(data):
    HOW
    return sorted(data)
"""
IN_MANY_FILES = """
    for _ in range(5):
        with tempfile.NamedTemporaryFile(delete=False) as file:
            keep(file, 30 << 20)
"""
REMOVED = """
    for _ in range(5):
        held.append(tempfile.TemporaryFile())
        keep(held[-1], 30 << 20)
"""
EMPTY_ONES = """
    for number in range(9_000):
        open(os.path.join(tempfile.gettempdir(), f"{len(held)}-{number}"), "w").close()
    held.append(0)
    time.sleep(1)  # a busy judge looks again only when that takes a tenth of the time
"""
MAPPED = """
    import mmap
    if not held:
        file = tempfile.TemporaryFile()
        keep(file, 30 << 20)
        held.append(mmap.mmap(file.fileno(), 0))
    assert not sum(held[0][::4096])
"""


@needs(LANDLOCK)
@pytest.mark.parametrize(
    ("how", "verdict"),
    [(IN_MANY_FILES, "memory"), (REMOVED, "memory"), (EMPTY_ONES, "memory"), (MAPPED, "passed")],
    ids=["in many files", "removed and open", "empty ones", "mapped, which counts once"],
)
def test_files_at_level_1_lie_in_memory_and_count_as_such(tmp_path: Path, how: str, verdict: str) -> None:
    """Each was bounded, their number wasn't: 1.4 GiB were written and passed where 1 GiB was allowed."""
    told = ground.manifest(
        KEEPS.replace("    HOW\n", how.lstrip("\n")), mode="test", tests=[{"n": 40, "seed": n} for n in range(4)],
        limits=ground.limits(memory_bytes=256 << 20),
    )  # fmt: skip
    report = ground.judged(tmp_path, told, env={"KBSLURM_EVAL_LEVEL": "1"}).told
    assert report.isolation.level == 1
    assert report.verdict == verdict, report.reason


SMALL_MB = 64
ARRAYS = """
import numpy as np


def generate_input(n, seed):
    r = np.random.default_rng(seed)
    return r.random(n), r.random(n)


def ref_kernel(data):
    return data[0] * data[1]
"""
MULTIPLIES = "def custom_kernel(data):\n    return data[0] * data[1]\n"
TAKES_ROOM = """
import os, tempfile


def custom_kernel(data):
    with tempfile.NamedTemporaryFile(delete=False) as file:
        os.posix_fallocate(file.fileno(), 0, 12 << 20)
    return data[0] * data[1]
"""
LEAVES = (
    """
import os

where = os.environ.get("KBSLURM_CACHE")  # torch's load_inline would leave as much
if where and not os.path.exists(f"{where}/table"):
    with open(f"{where}/table", "wb") as file:
        file.write(bytes(50 << 20))
"""
    + MULTIPLIES
)


def judged_in_small_memory(folder: Path, told: wire.Manifest, level: int) -> wire.Report:
    """The harness on this manifest where the memory that links lie in is as small as a container's."""
    inside = folder / "inside.py"
    inside.write_text(
        "import ctypes, os, runpy, subprocess, sys\n"
        "assert ctypes.CDLL(None).unshare(0x20000) == 0\n"
        "subprocess.run(['mount', '--make-rprivate', '/'], check=True)\n"
        f"subprocess.run(['mount', '-t', 'tmpfs', '-o', 'size={SMALL_MB}m,mode=1777', 'kb', '/dev/shm'], check=True)\n"
        f"sys.argv[0] = {str(ground.EVAL)!r}\n"
        f"runpy.run_path({str(ground.EVAL)!r}, run_name='__main__')\n"
    )
    return ground.judged(folder, told, env={"KBSLURM_EVAL_LEVEL": str(level)}, program=inside).told


@needs(ROOT, LANDLOCK, USER_NAMESPACES)
@pytest.mark.parametrize("level", [1, 2])
@pytest.mark.parametrize(
    ("source", "n", "verdict"),
    [
        (MULTIPLIES, 500_000, "passed"),
        (MULTIPLIES, 2_000_000, "infrastructure"),
        (LEAVES, 500_000, "infrastructure"),
    ],
    ids=["what fits", "large inputs", "a large build"],
)
def test_where_links_have_too_little_memory_nobody_took_it_who_left_nothing_there(
    tmp_path: Path, level: int, source: str, n: int, verdict: str
) -> None:
    """It was a violation of the submission's."""
    told = ground.manifest(
        source, files={"reference.py": ARRAYS}, mode="benchmark", tests=[{"n": 10, "seed": 1}],
        benchmarks=[{"n": n, "seed": 1}], hidden=[], config={"baseline": MULTIPLIES},
        budget=wire.Budget(launches=1, calls=3), build=wire.Build(when="auto", limit_s=60, output_bytes=64 << 20),
        limits=ground.limits(memory_bytes=2 << 30, file_bytes=256 << 20),
    )  # fmt: skip
    report = judged_in_small_memory(tmp_path, told, level)
    assert report.verdict == verdict, report.reason
    assert verdict == "passed" or f"has {SMALL_MB} MiB in all" in report.reason, report.reason


@needs(ROOT, LANDLOCK, USER_NAMESPACES)
@pytest.mark.parametrize("lead", ["the problem's own", "a finalist", "who left it"])
def test_a_large_build_ends_no_final_for_the_others(tmp_path: Path, lead: str) -> None:
    """It passed alone, and every final that it was in was the machine's trouble."""
    leaves, others = LEAVES.replace("50 << 20", "40 << 20"), [f"{MULTIPLIES}# {n}\n" for n in range(2)]
    first = {"the problem's own": MULTIPLIES, "a finalist": others[0], "who left it": leaves}[lead]
    told = ground.manifest(
        first, files={"reference.py": ARRAYS}, tests=[{"n": 10, "seed": 1}], benchmarks=[{"n": 250_000, "seed": 1}],
        hidden=[], config={"rivals": [leaves, *others], **({"baseline": MULTIPLIES} if first == MULTIPLIES else {})},
        budget=wire.Budget(launches=2, calls=3), build=wire.Build(when="auto", limit_s=60, output_bytes=64 << 20),
        limits=ground.limits(memory_bytes=2 << 30, file_bytes=256 << 20),
    )  # fmt: skip
    report = judged_in_small_memory(tmp_path, told, 2)
    rows = report.host["rivals"]
    assert [one["verdict"] for one in rows] == ["memory", "passed", "passed"], (report.reason, rows)
    assert "there is no room for the 40 MiB that its build left" in rows[0]["reason"]
    assert report.verdict == ("memory" if lead == "who left it" else "passed"), report.reason
    measured = {n: sum(s.phase == "ranked" and s.rival == n for s in report.samples) for n in range(4)}
    assert measured == {0: 0 if lead == "who left it" else 2, 1: 0, 2: 2, 3: 2}


@needs(ROOT, LANDLOCK)
def test_whoever_takes_the_memory_of_the_links_is_to_blame(tmp_path: Path) -> None:
    told = ground.manifest(
        TAKES_ROOM, files={"reference.py": ARRAYS}, mode="benchmark", tests=[{"n": 10, "seed": 1}],
        benchmarks=[{"n": 500_000, "seed": 1}], hidden=[], config={"baseline": MULTIPLIES},
        budget=wire.Budget(launches=1, calls=9), limits=ground.limits(memory_bytes=2 << 30, file_bytes=256 << 20),
    )  # fmt: skip
    report = judged_in_small_memory(tmp_path, told, 1)
    assert report.verdict in ("violation", "error", "memory"), report.reason


TAKES_UNSEEN = """
import ctypes, os

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]
calls = 0


def take():
    for fd in map(int, os.listdir("/proc/self/fd")):
        try:
            name = os.readlink(f"/proc/self/fd/{fd}")
        except OSError:
            continue
        if name.endswith(("/in", "/out")):
            libc.fallocate(fd, 3, 0, os.fstat(fd).st_size)
    size = 1 << 20
    while size >= 4096:  # files that are removed, closed, mapped and in no page table
        path = f"{os.environ['TMPDIR']}/file"
        fd = os.open(path, os.O_RDWR | os.O_CREAT)
        try:
            done = os.write(fd, bytes(size))
        except OSError:
            done = 0
        at = libc.mmap(None, size, 3, 1, fd, 0)
        os.unlink(path)
        os.close(fd)
        libc.madvise(at, size, 4)
        size = size if done == size else size // 16


def kb_warm_up(data):
    if calls == 5:
        take()


def custom_kernel(data):
    global calls
    calls += 1
    return data[0] * data[1]
"""


@needs(ROOT, LANDLOCK)
def test_whoever_gives_the_memory_of_the_links_back_and_takes_it_unseen_is_to_blame(tmp_path: Path) -> None:
    """It was machine trouble, and a run that is measured again."""
    told = ground.manifest(
        TAKES_UNSEEN, files={"reference.py": ARRAYS}, mode="benchmark", tests=[],
        benchmarks=[{"n": 500_000, "seed": 1}], hidden=[], config={"baseline": MULTIPLIES},
        budget=wire.Budget(launches=1, calls=9), limits=ground.limits(memory_bytes=2 << 30, file_bytes=256 << 20),
    )  # fmt: skip
    report = judged_in_small_memory(tmp_path, told, 1)
    assert report.verdict == "violation", report.reason
    assert "memory of the link's files" in report.reason


# Everything else is taken in a call, and after the last one of a go the page with which the next one begins.
TAKES_AFTER_A_GO = (
    TAKES_UNSEEN.replace("    for fd in map", "    for fd in [] and map").replace(
        "if calls == 5:", "if calls == 5 and not spare:"
    )
    + """

from kbslurm_eval.shared.runner_link import RunnerEnd

answer, spare, link = RunnerEnd.answer, [], None
take_all = take


def take():
    global link
    take_all()
    spare.append(os.open(f"{os.environ['TMPDIR']}/spare", os.O_RDWR | os.O_CREAT))
    there = [fd for fd in range(100) if os.path.exists(f"/proc/self/fd/{fd}")]
    link = next(fd for fd in there if os.readlink(f"/proc/self/fd/{fd}").endswith("/in"))


def answers(*given):
    answer(*given)
    if spare and calls % 9 == 2:  # the last one of a go; on a busy machine it is often stopped before this
        libc.fallocate(link, 3, 0, 8192)
        try:
            os.pwrite(spare[0], bytes(16384), 0)
        except OSError:
            pass


RunnerEnd.answer = answers
"""
)


@needs(ROOT, LANDLOCK)
def test_whoever_takes_it_between_two_goes_is_to_blame_too(tmp_path: Path) -> None:
    """It was a failure of the harness, so a free try."""
    told = ground.manifest(
        TAKES_AFTER_A_GO, files={"reference.py": ARRAYS}, mode="benchmark", tests=[],
        benchmarks=[{"n": 1_000, "seed": 1}], hidden=[], budget=wire.Budget(launches=1, calls=96),
        limits=ground.limits(memory_bytes=2 << 30, file_bytes=256 << 20),
    )  # fmt: skip
    report = judged_in_small_memory(tmp_path, told, 1)
    assert report.verdict == "violation", report.reason
    assert "memory of the link's files" in report.reason


REPEATED = """
import numpy as np


def generate_input(n, seed):
    return np.random.default_rng(seed).random(n, dtype=np.float32)


def ref_kernel(data):
    return np.repeat(data[:, None], 1000, 1)


def check_implementation(data, output):
    return bool(output.ndim == 2 and (output == data[:, None]).all()), ""
"""
REPEATS = """
import numpy as np

calls = 0


def custom_kernel(data):
    global calls
    calls += 1
    return np.repeat(data[:, None].astype(KIND), 4000 if calls > 5 else 1000, 1)
"""


@needs(ROOT, LANDLOCK, USER_NAMESPACES)
@pytest.mark.parametrize(
    ("kind", "n", "verdict"),
    [("np.float64", 3_000, "memory"), ("np.float32", 200, "passed"), ("np.float32", 20_000, "infrastructure")],
    ids=["has no room", "has room", "its reference's has none either"],
)
def test_a_claim_that_has_no_room_is_its_authors_where_what_was_asked_for_has(
    tmp_path: Path, kind: str, n: int, verdict: str
) -> None:
    """Whoever had been unlucky in a launch claimed more than there is, and everything was measured again."""
    told = ground.manifest(
        REPEATS.replace("KIND", kind), files={"reference.py": REPEATED}, mode="benchmark",
        tests=[{"n": 10, "seed": 1}], benchmarks=[{"n": n, "seed": 1}], hidden=[],
        budget=wire.Budget(launches=1, calls=9), config={"outputs": "check"},
        limits=ground.limits(memory_bytes=2 << 30, file_bytes=256 << 20),
    )  # fmt: skip
    report = judged_in_small_memory(tmp_path, told, 2)
    assert report.verdict == verdict, report.reason
    assert verdict != "memory" or "larger than asked for" in report.reason


SENT = """
import array, os, socket, tempfile, time

kept = []


def custom_kernel(data):
    for _ in range(40 if not kept else 0):
        kept.append(socket.socketpair())
        with tempfile.TemporaryFile() as file:
            file.write(bytes(1 << 14))
            file.flush()
            kept[-1][0].sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [file.fileno()]))])
    time.sleep(0.3)
    return sorted(data)
"""


@needs(LANDLOCK, USER_NAMESPACES)
@pytest.mark.parametrize("level", ["1", "2"])
def test_files_on_their_way_through_sockets_are_in_nobodys_list_and_not_allowed(tmp_path: Path, level: str) -> None:
    """Sixteen of 250 MB were held where 1 GiB was allowed."""
    report = ground.judged(tmp_path, ground.manifest(SENT, mode="test"), env={"KBSLURM_EVAL_LEVEL": level}).told
    assert report.verdict == "memory", report.reason
    assert "on their way through sockets" in report.reason


def test_an_answer_that_makes_a_check_allocate_without_bound_is_wrong(tmp_path: Path, group: Path) -> None:
    """The kernel ended the judge: machine trouble, so a free retry at will."""
    files = {"reference.py": PERMUTATION}
    right = ground.manifest(REVERSED, mode="test", files=files, tests=[{"n": 40, "seed": 1}])
    (tmp_path / "right").mkdir()
    assert judged_within(group, 700, tmp_path / "right", right, 2).told.verdict == "passed"
    outcome = judged_within(
        group, 700, tmp_path, ground.manifest(FAR_AWAY, mode="test", files=files, tests=[{"n": 40, "seed": 1}]), 2
    )
    assert killed(group) == 0, outcome.stderr
    assert outcome.report is not None, outcome.stderr
    assert outcome.report.verdict == "wrong", outcome.report.reason
    assert "MemoryError" in outcome.report.reason, outcome.report.reason


TABLE_OF_ALL = """
import multiprocessing

table = bytearray(160 << 20)
for at in range(0, len(table), 4096):
    table[at] = 1


def part(number):
    return table[number * 4096]


def custom_kernel(data):
    with multiprocessing.get_context("fork").Pool(4) as pool:
        assert sum(pool.map(part, range(40))) == 40
    return sorted(data)
"""


TABLE_OF_EACH = (
    TABLE_OF_ALL.replace("def part(number):", "def part(number):\n    own = bytes(range(256)) * (4 << 18)")
    .replace("    return table[", "    time.sleep(0.2)\n    assert own\n    return table[")
    .replace("import multiprocessing", "import multiprocessing\nimport time")
)


def test_what_each_of_a_pool_has_for_itself_counts(tmp_path: Path) -> None:
    told = ground.manifest(
        TABLE_OF_EACH, mode="test", tests=[{"n": 40, "seed": 1}], limits=ground.limits(memory_bytes=320 << 20)
    )
    report = ground.judged(tmp_path, told).told
    assert report.verdict == "memory", report.reason


@pytest.mark.parametrize("ordinary", [False, True])
def test_a_pool_that_ends_within_a_call_holds_a_table_once(tmp_path: Path, ordinary: bool) -> None:
    """While its processes end they can't be looked at, nor can the keeper be by an ordinary user: then each of them
    counted with all that they share."""
    if ordinary:
        need(ROOT, PYTHON, USER_NAMESPACES)
    told = ground.manifest(
        TABLE_OF_ALL,
        mode="test",
        tests=[{"n": 40, "seed": seed} for seed in range(10)],
        limits=ground.limits(memory_bytes=320 << 20),
    )
    if ordinary:
        report = ground.judged_for_an_ordinary_user(tmp_path, told, level=2)
    else:
        report = ground.judged(tmp_path, told).told
    assert report.verdict == "passed", report.reason


DEAD = """
import os, socket


def on_its_way():
    here, there = socket.socketpair()
    name = os.environ.get("TMPDIR", "/tmp") + "/large"
    fd = os.open(name, os.O_RDWR | os.O_CREAT)
    os.unlink(name)
    os.write(fd, bytes(2 << 20))
    socket.send_fds(there, [b"x"], [here.fileno(), fd])
    os.close(fd)
    there.close()
    return here


kept = [on_its_way() for _ in range(12)] if DO else []


def custom_kernel(data):
    if kept:
        kept.pop().close()
    return sorted(data)
"""


@needs(USER_NAMESPACES)
def test_what_the_kernel_lets_go_of_in_somebody_elses_turn_is_billed(tmp_path: Path) -> None:
    """Its own threads free a dead socket's files some milliseconds later, beside the baseline's calls: these seemed to
    be longer now and then, which excuses a submission's own."""
    took = []
    for do in ("True", "False"):
        told = ground.manifest(
            DEAD.replace("DO", do), mode="benchmark", tests=[], hidden=[], benchmarks=[{"n": 50, "seed": 2}],
            budget=wire.Budget(launches=1, calls=8),
        )  # fmt: skip
        report = ground.judged(tmp_path / do, told, env={"KBSLURM_EVAL_LEVEL": "2"}).told
        assert report.verdict == "passed", report.reason
        took.append(min(report.samples[0].own.calls_ns))
    assert took[0] > 1_000_000 > took[1], took
