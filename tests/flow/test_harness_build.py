"""The builder: what compiles is compiled once, in a cage of its own, and nothing else of that process is left."""

from __future__ import annotations

import os
import secrets
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kbslurm_eval.build import archive, compiler, cpp_signatures
from kbslurm_eval.shared import wire
from tests.command_line import CommandLine
from tests.flow import harness_ground as ground
from tests.services import GXX, USER_NAMESPACES, missing, needs, pointless

SCALED = """
import array
import random


def generate_input(n, seed):
    r = random.Random(seed)
    return array.array("f", [r.random() for _ in range(n)]), 2.5, 3, [1, 2, 3, 4, 5]


def ref_kernel(data):
    x, a, b, more = data
    return array.array("f", [v * a + b + sum(more) for v in x]), len(x)


def check_implementation(data, output):
    (want, count), (got, counted) = ref_kernel(data), output
    good = count == counted and all(abs(a - b) < 1e-4 for a, b in zip(want, got, strict=True))
    return good, "" if good else "another answer"
"""
SCALES = """
#include "kbslurm.h"
#include <cstdint>

KB_ENTRY int custom_kernel(const kb_array *in, int inputs, kb_array *out, int outputs) {
  if (inputs != 4 || outputs != 2 || in[0].dtype != KB_F32 || in[3].dtype != KB_I64) return 1;
  const float *x = static_cast<const float *>(in[0].data);
  const double a = *static_cast<const double *>(in[1].data);
  const int64_t b = *static_cast<const int64_t *>(in[2].data);
  int64_t more = 0;
  for (long long i = 0; i < in[3].size; ++i) more += static_cast<const int64_t *>(in[3].data)[i];
  float *y = static_cast<float *>(out[0].data);
  for (long long i = 0; i < in[0].size; ++i) y[i] = static_cast<float>(x[i] * a + b + more);
  *static_cast<int64_t *>(out[1].data) = in[0].size;
  return 0;
}
"""
# Has the compiler make types without end.
GROWS = """
template <class A, class B, int N> struct Grow { Grow<Grow<A, B, 0>, A, N - 1> a; Grow<B, Grow<A, B, 0>, N - 1> b; };
template <class A, class B> struct Grow<A, B, 0> {};
Grow<int, char, 40> never;
"""
# Compiles when it is imported, unless it was compiled before: what load_inline does, without torch.
COMPILES_ONCE = """
import ctypes, os, subprocess
home = os.environ["KBSLURM_CACHE"]
library = os.path.join(home, "add.so")
found = os.path.exists(library)
if not found:
    with open(os.path.join(home, "add.cpp"), "w") as file:
        file.write('extern "C" long add(long a, long b) { return a + b; }')
    subprocess.run(["g++", "-shared", "-fPIC", "-o", library, os.path.join(home, "add.cpp")], check=True)
add = ctypes.CDLL(library).add


def custom_kernel(data):
    print("found:", found, add(40, 2))
    return sorted(data)
"""


@pytest.fixture(scope="module")
def level() -> int:
    return ground.achieved_level()


def _reached(level: int, wanted: int) -> None:
    if level < wanted:
        missing(USER_NAMESPACES, f"the harness reaches isolation level {level} on this machine")


def _compiled(source: str, **changed: Any) -> wire.Manifest:
    told: dict[str, Any] = {
        "lang": "cu",
        "entry": "submission.cu",
        "files": {"reference.py": SCALED},
        "mode": "test",
        **changed,
    }
    return ground.manifest(source, **{**told, **changed})


def _python(source: str, **changed: Any) -> wire.Manifest:
    build = wire.Build(when="always", limit_s=60, output_bytes=1 << 20)
    return ground.manifest(source, **{"mode": "test", "build": build, **changed})


@needs(GXX)
@pytest.mark.parametrize("wanted", [2, 1])
def test_a_compiled_submission_passes_every_phase(tmp_path: Path, level: int, wanted: int) -> None:
    _reached(level, wanted)
    told = _compiled(SCALES, mode="leaderboard")
    report = ground.judged(tmp_path, told, env={"KBSLURM_EVAL_LEVEL": str(wanted)}).told
    assert report.verdict == "passed", report.reason
    assert report.isolation.level == wanted
    built = report.host["build"]
    assert (built["files"], len(built["sha256"])) == (1, 64)
    ranked = next(b for b in report.benchmarks if b.phase == "ranked")
    assert ranked.null_ns is not None
    assert ranked.null_ns > 0


@needs(GXX)
@pytest.mark.parametrize(
    ("change", "verdict", "said"),
    [
        (("y[i] = static", "z[i] = static"), "error", "while building: submission.cu:13:"),
        (("  return 0;", "  return 7;"), "error", "the submission returned an error"),
        (("  return 0;", "  throw 5;"), "error", "an exception of another type"),
        (("+ more", "- more"), "wrong", "another answer"),
        (("  return 0;", "  *(volatile int *)0 = 1; return 0;"), "error", "signal SIGSEGV"),
        (("custom_kernel", "another_kernel"), "error", "custom_kernel"),
        (("  return 0;", "  extern int nowhere(int); return nowhere(1);"), "error", "undefined reference to `nowhere"),
        (("int64_t more = 0;", '#include "reference.py"'), "error", "reference.py: No such file"),
        (("<cstdint>", "<cstdint>\n__global__ void k() {}"), None, "here, and this is device code: submission.cu:4"),
        (("  return 0;", '  return "__global__ <<<"[0] - 95;'), "passed", ""),
        (("  return 0;", "  int enemiesKilled = undeclared;"), "error", "in `int enemiesKilled = undeclared;`"),
        (("  return 0;", '  throw "out of memory"'), "error", 'in `throw "out of memory"`'),
    ],
)
def test_one_verdict_for_compiled_code(tmp_path: Path, change: tuple[str, str], verdict: str | None, said: str) -> None:
    if verdict is None and any(compiler.find(name) for name in ("nvcc", "hipcc")):
        pointless("this machine has a compiler for devices")
    report = ground.judged(tmp_path, _compiled(SCALES.replace(*change))).told
    # Not the machine's fault, which has no device on purpose: else a word in a string would have a run measured again.
    assert report.verdict == (verdict or "error"), report.reason
    assert said in report.reason
    assert len(report.reason.splitlines()) == 1
    if "while building" in said:
        assert "submission.cu" in report.log, "the compiler's whole text is in the log"
        assert [t.status for t in report.tests] == ["error", "skipped"]


@needs(GXX)
def test_an_endless_compilation_has_its_verdict(tmp_path: Path) -> None:
    told = _compiled(SCALES + GROWS, build=wire.Build(limit_s=3))
    report = ground.judged(tmp_path, told).told
    assert report.verdict in ("timeout", "memory"), report.reason
    assert "while building" in report.reason


def test_an_endless_build_and_a_hungry_one_have_their_verdicts(tmp_path: Path) -> None:
    report = ground.judged(tmp_path / "loop", _python("while True: pass\n", build=_build(limit_s=2))).told
    assert (report.verdict, report.reason) == ("timeout", "test phase, while building: no answer within 2 s")
    hungry = "hoard = [bytearray(b'x' * (1 << 26)) for _ in range(99)]\n"
    report = ground.judged(tmp_path / "hungry", _python(hungry)).told
    assert report.verdict == "memory", report.reason


def _build(**changed: Any) -> wire.Build:
    return wire.Build(**{"when": "always", "limit_s": 60, "output_bytes": 1 << 20, **changed})


@needs(GXX)
@pytest.mark.parametrize("wanted", [2, 1, 0])
def test_what_an_import_compiles_is_there_in_every_runner(tmp_path: Path, level: int, wanted: int) -> None:
    _reached(level, wanted)
    told = _python(COMPILES_ONCE, mode="benchmark", limits=ground.limits(memory_bytes=2 << 30))
    report = ground.judged(tmp_path, told, env={"KBSLURM_EVAL_LEVEL": str(wanted)}).told
    assert report.verdict == "passed", report.reason
    seen = report.log.split("found: ")[1:]
    assert "True 42" in report.log
    builders_calls = len(told.tests) + len(told.benchmarks)
    assert [s.split()[0] for s in seen[:builders_calls]] == ["False"] * builders_calls
    assert all(s.startswith("True") for s in seen[builders_calls:]), "a runner compiled again"


def test_a_text_that_compiles_is_told_from_one_that_does_not(tmp_path: Path) -> None:
    plain = ground.judged(tmp_path / "plain", ground.manifest("custom_kernel = sorted\n", mode="test")).told
    assert "build" not in plain.host
    compiles = "# torch.utils.cpp_extension\ndef custom_kernel(data): return sorted(data)\n"
    report = ground.judged(tmp_path / "compiles", ground.manifest(compiles, mode="test")).told
    assert (report.verdict, report.host["build"]["files"]) == ("passed", 0)


# Each is imported by the builder first; what it tries there, and what a runner may find of it.
CHEATS = {
    "writes outside": (
        """
import os
tried = []
for path in ("/built/x", "/eval/x", "/usr/x", "/etc/x", "/x", "/link/x", "/tmp/outside", "/dev/shm/outside"):
    try:
        print("found" if os.path.exists(path) else "missing", path)
        open(path, "w").write("was here")
    except OSError as error:
        tried.append(path)
assert "/usr/x" in tried and "/eval/x" in tried, tried
""",
        "passed",
        "found /",
    ),
    "leaves a process": (
        """
import ctypes, os, time
names = []
for p in filter(str.isdigit, os.listdir("/proc")):
    try:
        names.append(open(f"/proc/{p}/comm").read().strip())
    except OSError:  # it has ended meanwhile
        pass
print("met it" if "LEFT_OVER" in names else "alone")
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        ctypes.CDLL(None).prctl(15, b"LEFT_OVER")  # PR_SET_NAME
        time.sleep(600)
    os._exit(0)
""",
        "passed",
        "met it",
    ),
    "reads secrets": (
        """
import os
for root in ("/link", "/eval", "/tmp", "/proc", "/built", "/etc"):
    for place, _, names in os.walk(root):
        if place.count("/") > 3: continue
        for name in names:
            if not os.path.isfile(os.path.join(place, name)): continue  # its own log is a pipe, and would keep it
            try:
                text = open(os.path.join(place, name), "rb").read(65536)
            except OSError:
                continue
            if b"NOBODY-MAY-" + b"SEE-THIS" in text or b"sealed-" + b"problem" in text:
                print("leaked in", place, name)
""",
        "passed",
        "leaked in",
    ),
    "calls somebody": (
        """
import socket
try:
    socket.socket().connect(("127.0.0.1", 80))
    print("connected")
except OSError as error:
    print(type(error).__name__)
""",
        "passed",
        "connected",
    ),
    "leaves too much": (
        """
import os
with open(os.path.join(os.environ["KBSLURM_CACHE"], "big"), "wb") as file:
    file.write(bytes(2 << 20))
""",
        "error",
        "was here",
    ),
    "leaves links and devices": (
        """
import os
home = os.environ["KBSLURM_CACHE"]
print("seen", sorted(os.listdir(home)))
for make in (lambda: os.symlink("/etc/passwd", home + "/link"), lambda: os.mkfifo(home + "/pipe"),
             lambda: open(home + "/odd name;", "w").close(), lambda: open(home + "/plain", "w").close(),
             lambda: os.chmod(home + "/plain", 0o6777)):
    try: make()
    except OSError: pass
print("mode", oct(os.stat(home + "/plain").st_mode & 0o7000))
""",
        "passed",
        "'link'",
    ),
    "changes what was built": (
        """
import os
home = "/built/own"
if os.path.isdir(home):
    for path in (home + "/kept", home + "/more"):
        try:
            open(path, "w").write("changed")
            print("changed it")
        except OSError as error:
            print(type(error).__name__, error.errno)
else:
    open(os.environ["KBSLURM_CACHE"] + "/kept", "w").write("kept")
""",
        "passed",
        "changed it",
    ),
    "forges the archive": (
        """
import sys, struct
from kbslurm_eval.build import built_files
name = b"../../../../tmp/kbslurm-cheat-was-here"
blob = b"KBBUILD1" + struct.pack("<I", 1) + struct.pack("<HBQQ", len(name), 0, 0, 4) + name + b"evil"
built_files.collected = lambda cache, cap: (0, str(len(blob)), blob)
""",
        "violation",
        "evil",
    ),
    "forges its size": (
        """
from kbslurm_eval.build import built_files
built_files.collected = lambda cache, cap: (0, "99999999999", b"")
""",
        "violation",
        "evil",
    ),
}
# Their places are a container's: at level 1 one has other names, and the other has the whole machine to search.
IN_A_CAGE_ONLY = {"changes what was built", "reads secrets"}
SORTS = "\ndef custom_kernel(data):\n    return sorted(data)\n"


@pytest.mark.parametrize(
    ("name", "wanted"), [(name, at) for name in sorted(CHEATS) for at in ([2] if name in IN_A_CAGE_ONLY else [2, 1])]
)
def test_a_build_leaves_nothing_but_its_output(tmp_path: Path, level: int, name: str, wanted: int) -> None:
    _reached(level, wanted)
    source, verdict, never = CHEATS[name]
    # A name of this test's own: another checkout may run the same test on this machine now.
    left_over = f"kb-{secrets.token_hex(6)}"
    source = source.replace("LEFT_OVER", left_over)
    report = ground.judged(tmp_path, _python(source + SORTS), env={"KBSLURM_EVAL_LEVEL": str(wanted)}).told
    assert report.isolation.level == wanted, report.isolation.notes
    assert report.verdict == verdict, report.reason
    assert never not in report.log
    assert ground.SECRET not in report.log + report.reason
    assert not Path("/tmp/kbslurm-cheat-was-here").exists()
    assert not _running(left_over)


def _running(name: str) -> bool:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if (entry / "comm").read_text().strip() == name:
                    return True
            except OSError:
                continue
    return False


# ------------------------------------------------------------------------------------------------- its small parts


def test_an_archive_comes_back_as_it_went(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "c.so").write_bytes(b"\x7fELF")
    (tmp_path / "a" / "b" / "c.so").chmod(0o755)
    (tmp_path / "d").write_bytes(b"")
    os.utime(tmp_path / "d", ns=(5, 1_234_567_890_123_456_789))
    found = list(archive.read(archive.written(str(tmp_path), 1 << 20), 1 << 20))
    assert [(e.name, e.data, e.program) for e in found] == [("d", b"", False), ("a/b/c.so", b"\x7fELF", True)]
    assert [e.mtime_ns for e in found] == [
        1_234_567_890_123_456_789,
        os.stat(tmp_path / "a" / "b" / "c.so").st_mtime_ns,
    ]
    assert list(archive.read(archive.written(str(tmp_path), 4), 4)) == found, "exactly as many bytes as it may have"
    with pytest.raises(archive.TooLarge):
        archive.written(str(tmp_path), 3)


def test_what_is_gone_or_no_file_is_left_out_of_an_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kept").write_bytes(b"x")
    (tmp_path / "link").symlink_to("kept")
    os.mkfifo(tmp_path / "pipe")
    listed = archive._files

    def with_one_that_is_gone(folder: str) -> Iterator[tuple[str, str]]:
        yield "a.tmp", str(tmp_path / "a.tmp")
        yield from listed(folder)

    monkeypatch.setattr(archive, "_files", with_one_that_is_gone)
    assert [e.name for e in archive.read(archive.written(str(tmp_path), 1 << 20), 1 << 20)] == ["kept"]


UNREADABLE = """
import os
import pathlib

cache = pathlib.Path(os.environ["KBSLURM_CACHE"])
if not (cache / "folder").exists():
    (cache / "file").write_text("x")
    (cache / "file").chmod(0o200)
    (cache / "folder").mkdir()
    (cache / "folder" / "file").write_text("x")
    (cache / "folder").chmod(0o300)


def custom_kernel(data):
    return sorted(data)
"""


@pytest.mark.parametrize("wanted", [2, 1])
def test_a_build_may_leave_what_nobody_can_read(tmp_path: Path, level: int, wanted: int) -> None:
    """It was a violation: the builder had written into the link's control words."""
    _reached(level, wanted)
    report = ground.judged(tmp_path, _python(UNREADABLE), env={"KBSLURM_EVAL_LEVEL": str(wanted)}).told
    assert report.verdict == "passed", report.reason


def _archive(*entries: tuple[bytes, bytes]) -> bytes:
    parts = [struct.pack("<HBQQ", len(name), 0, 0, len(data)) + name + data for name, data in entries]
    return archive.MAGIC + struct.pack("<I", len(entries)) + b"".join(parts)


@pytest.mark.parametrize(
    "blob",
    [
        b"",
        b"KBBUILD2\0\0\0\0",
        archive.MAGIC + struct.pack("<I", 1),
        archive.MAGIC + struct.pack("<I", 1 << 31),
        _archive((b"a", b"1")) + b"x",
        _archive((b"a", b"1"))[:-1],
        _archive((b"/etc/x", b"1")),
        _archive((b"a/../../x", b"1")),
        _archive((b"a//x", b"1")),
        _archive((b".", b"1")),
        _archive((b"", b"1")),
        _archive((b"a\0b", b"1")),
        _archive((b"a\xffb", b"1")),
        _archive((b"a", b"1"), (b"a", b"2")),
        _archive((b"a", b"1"), (b"a/b", b"2")),
        _archive((b"a/b", b"1"), (b"a", b"2")),
        _archive((b"a", b"1" * 2000)),
        _archive((b"n" * 500, b"1")),
        _archive((b"a/" * archive.DEPTH_CAP + b"x", b"")),
        _archive(*((b"/".join(b"%d" % (n + m) for m in range(20)) + b"/x", b"") for n in range(0, 8000, 20))),
        archive.MAGIC + struct.pack("<IHBQQ", 1, 1, 0, 1 << 63, 0) + b"a",
    ],
)
def test_no_other_bytes_are_an_archive(blob: bytes) -> None:
    with pytest.raises(archive.Broken):
        list(archive.read(blob, 1000))


def test_parameters_are_read_off_cpp() -> None:
    text = "// int generate_input(int no) {\nstatic input_t generate_input(int seed, const std::string &kind,\n"
    text += "  double p = .5) {"
    assert cpp_signatures.parameters(text) == [["int", "seed"], ["std::string", "kind"], ["double", "p"]]
    assert cpp_signatures.parameters("input_t generate_input() {") == []
    assert cpp_signatures.parameters("input_t generate_input(int a);") is None


@pytest.mark.parametrize(
    "said",
    [
        "virtual memory exhausted: Cannot allocate memory\n",
        "cc1plus: out of memory allocating 65536 bytes after a total of 1234 bytes\n",
        "g++: fatal error: Killed signal terminated program cc1plus\ncompilation terminated.\n",
        "g++: internal compiler error: Killed (program cc1plus)\n",
        "collect2: fatal error: ld terminated with signal 9 [Killed]\n",
        "/usr/bin/ld: final link failed: memory exhausted\n",
        "/usr/bin/ld: /tmp/a.o: memory exhausted\n",
        "nvcc error   : 'cicc' died due to signal 9 (Kill signal)\n",
        "ptxas fatal   : Memory allocation failure\n",
        "Killed\n",
        "clang++: error: unable to execute command: Killed\n",
        "LLVM ERROR: out of memory\n",
    ],
)
def test_a_compiler_says_itself_that_it_ran_out_of_memory(said: str) -> None:
    before = "submission.cu:3:1: warning: one\n    3 | foo\n"
    assert compiler.ran_out_of_memory(said) and compiler.ran_out_of_memory(before + said)


@needs(GXX)
def test_a_compiler_without_memory_is_known_by_its_words(tmp_path: Path) -> None:
    endless = tmp_path / "endless.cpp"
    endless.write_text(GROWS)
    limited = ["sh", "-c", "ulimit -v 120000; ulimit -t 20; exec g++ -c -o /dev/null endless.cpp"]
    done = subprocess.run(
        limited, cwd=tmp_path, capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"}
    )
    assert done.returncode and compiler.ran_out_of_memory(done.stderr), done.stderr


@pytest.mark.parametrize(
    "said",
    [
        "submission.cu:3:2: error: #error out of memory\n    3 | #error out of memory\n",
        "submission.cu:3:2: error: out of memory\n",
        "submission.cu:9:1: error: expected ';'\n    9 | Killed\n      | ^~~~~~\n",
        "submission.cu(7): error: expected a ;\n    out of memory\n    ^\n",
        "submission.cu:9:1: error: 'Killed' was not declared in this scope\n",
        "submission.cu: In function 'int outOfMemory()':\nsubmission.cu:9: note: virtual memory exhausted\n",
        "g++: error: Killed.cpp: No such file or directory\n",
        "/usr/bin/ld: kernel.o: undefined reference to `enemiesKilled'\n",
    ],
)
def test_what_a_compiler_quotes_is_no_lack_of_memory(said: str) -> None:
    assert not compiler.ran_out_of_memory(said)


def test_the_first_errors_are_what_is_told() -> None:
    said = "In file included from x\nsubmission.cu:3:1: error: one\n  3 | foo\nsubmission.cu:4:1: error: two\n"
    assert compiler.excerpt(said) == "submission.cu:3:1: error: one, in `foo`; submission.cu:4:1: error: two"
    said = 'submission.cu(7): error: identifier "bb" is undefined\n    y = bb;\n        ^\n\n'
    said += '1 error detected in the compilation of "kb_unit.cu".\n'
    assert compiler.excerpt(said) == 'submission.cu(7): error: identifier "bb" is undefined, in `y = bb;`'
    around = "kb_unit.cu:261:9: error: 'custom_kernel' was not declared in this scope\n"
    assert compiler.excerpt(around, "submission.cu", "int custom_kernel()") == (
        "submission.cu doesn't define what is called: 'custom_kernel' was not declared in this scope; "
        "expected is int custom_kernel()"
    )
    assert "kb_unit" not in compiler.excerpt(around + said, "submission.cu", "int custom_kernel()")
    linked = (
        "/usr/bin/ld: /tmp/cc.o: in function `custom_kernel':\nkb_unit.cu:(.text+0x118): undefined reference to `f()'\n"
    )
    linked += "collect2: error: ld returned 1 exit status\n"
    assert compiler.excerpt(linked, "submission.cu", "int custom_kernel()") == "undefined reference to `f()'"
    assert compiler.excerpt("/usr/bin/ld: cannot find -lnone\ncollect2: error: ld returned 1 exit status\n") == (
        "/usr/bin/ld: cannot find -lnone"
    )
    assert compiler.excerpt("nothing known\nlast line\n") == "nothing known; last line"


# ------------------------------------------------------------------------------------------------- what starts take

SLOW_IMPORT = """
import time
time.sleep({seconds})


def custom_kernel(data):
    return sorted(data)
"""
HANGS_ON = """
import time


def custom_kernel(data):
    print("called with", len(data))
    if len(data) == {size}:
        time.sleep(999)
    return sorted(data)
"""


def test_a_builder_begins_with_the_smallest_case_and_a_time_out_names_the_case(tmp_path: Path) -> None:
    told = _python(HANGS_ON.format(size=300), build=_build(limit_s=15))
    report = ground.judged(tmp_path, told).told
    assert report.verdict == "timeout"
    said = "test phase, while building: called on the case n: 300; seed: 7: no answer within 15 s"
    assert report.reason == said
    assert report.log.split("called with ")[1:] == ["0\n", "40\n", "300\n"]


def test_a_time_out_of_a_test_names_the_test(tmp_path: Path) -> None:
    told = _python(HANGS_ON.format(size=40), build=_build(when="never"), limits=ground.limits(test_s=5.0))
    report = ground.judged(tmp_path, told).told
    assert report.reason == "test phase, test 1 of 2 (n: 40; seed: 1): no answer within 5 s"


def test_loading_in_each_launch_is_outside_of_the_ranked_limit(tmp_path: Path) -> None:
    told = ground.manifest(
        SLOW_IMPORT.format(seconds=2.5),
        limits=ground.limits(ranked_s=8.0),
        budget=wire.Budget(launches=4, calls=3),
    )
    report = ground.judged(tmp_path, told).told
    assert report.verdict == "passed", report.reason


def test_loading_has_a_limit_of_its_own(tmp_path: Path) -> None:
    told = ground.manifest(
        SLOW_IMPORT.format(seconds=2.5), mode="benchmark", build=_build(when="never", limit_s=4),
        budget=wire.Budget(launches=3, calls=3),
    )  # fmt: skip
    report = ground.judged(tmp_path, told).told
    assert report.verdict == "timeout"
    assert "loading it and calling it on each case for the first time, in all launches" in report.reason
    assert "within 4 s" in report.reason


FRESH = """
import numpy as np

def generate_input(n, seed):
    draw = np.random.default_rng(seed)
    return draw.random((n, 3), np.float32), draw.random((3, n), np.float32).T[::-1].T if n % 2 else draw.random(n)

def ref_kernel(data):
    return data[0] * 2

def check_implementation(data, output):
    return bool((output == data[0] * 2).all()), "not twice as much"
"""
TWICE = """
#include "kbslurm.h"
KB_ENTRY int custom_kernel(const kb_array *in, int inputs, kb_array *out, int outputs) {
  const float *x = (const float *)in[0].data;
  float *y = (float *)out[0].data;
  for (long long i = 0; i < in[0].size; ++i) y[i] = 2 * x[i];
  return 0;
}
"""


@needs(GXX)
def test_a_compiled_submission_sees_each_calls_own_input(tmp_path: Path) -> None:
    """Its arrays were found before the input was there, in one case, and after that in the other."""
    told = _compiled(
        TWICE,
        files={"reference.py": FRESH},
        mode="leaderboard",
        tests=[{"n": 5, "seed": 1}],
        benchmarks=[{"n": 60, "seed": 2}, {"n": 61, "seed": 2}],
        hidden=[{"n": 7, "seed": 3}],
    )
    report = ground.judged(tmp_path, told).told
    assert report.verdict == "passed", report.reason


ONE_FILE = """// TESTS = [{"size": 5, "seed": 1}]
// HIDDEN = [{"size": 4711, "seed": 9}]
#include <vector>
using input_t = std::vector<float>;
using output_t = std::vector<float>;
input_t generate_input(int size, int seed) { input_t found(size); for (auto &x : found) x = seed; return found; }
output_t ref_kernel(input_t data) { for (auto &x : data) x *= 2; return data; }
bool check_implementation(output_t output, output_t expected) { return output == expected; }
"""
READS_IT = """#include "reference.cu"
#include <cstdio>
__asm__(".section .rodata\\n.global kbtext\\nkbtext:\\n.incbin \\"reference.cu\\"\\n.byte 0\\n.previous\\n");
extern "C" const char kbtext[];
__attribute__((constructor)) static void tell() { std::printf("READ %s\\n", kbtext); std::fflush(stdout); }
output_t custom_kernel(input_t data) { for (auto &x : data) x += x; return data; }
"""


@needs(GXX)
def test_a_reference_that_submissions_include_has_no_hidden_case_in_it(tmp_path: Path) -> None:
    (tmp_path / "doubled.cu").write_text(ONE_FILE)
    (tmp_path / "reads.cu").write_text(READS_IT)
    said = CommandLine(cwd=tmp_path)("try", "doubled.cu", "reads.cu", "--mode", "test")
    assert said.code == 0 and "READ #pragma once" in said.out, said.out
    assert "4711" not in said.out and "HIDDEN = []" in said.out
    assert "hidden" in CommandLine(cwd=tmp_path)("try", "doubled.cu", "reads.cu", "--mode", "leaderboard").out


@needs(GXX)
def test_a_reference_in_one_file_may_report_to_a_reporter(tmp_path: Path) -> None:
    """The types are in it, so each submission is compiled with its check, which uses a class of ours."""
    check = "void check_implementation(TestReporter &r, input_t data, output_t output) {\n"
    check += '  if (r.check_equal("first", 2 * data[0], output[0])) r.pass();\n}\n'
    lines = [line for line in ONE_FILE.splitlines() if not line.startswith("bool check_implementation")]
    (tmp_path / "doubled.cu").write_text("\n".join(lines) + "\n" + check)
    (tmp_path / "plain.cu").write_text("output_t custom_kernel(input_t data) { return ref_kernel(data); }\n")
    said = CommandLine(cwd=tmp_path)("try", "doubled.cu", "plain.cu", "--mode", "test")
    assert said.code == 0 and "passed" in said.out, said.out
    (tmp_path / "other.cu").write_text("output_t custom_kernel(input_t data) { data[0] += 9; return data; }\n")
    said = CommandLine(cwd=tmp_path)("try", "doubled.cu", "other.cu", "--mode", "test")
    assert said.code == 3 and "first (2 and 10)" in said.out, said.out
