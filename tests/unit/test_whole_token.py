"""What a runner takes for the judge's token: eight bytes that the kernel may copy one by one."""

from __future__ import annotations

import ctypes
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kbslurm_eval.build import c_arrays, cpp_sources
from kbslurm_eval.runner import serve
from kbslurm_eval.shared import runner_link
from kbslurm_eval.shared.runner_link import JudgeEnd, Kind, RunnerEnd
from tests.services import GXX, needs

LAST, TOKEN = 0x13EA80611FA64555, 0x3484F9C856647334
PIECES = (3, 8, 11, 16)  # so many bytes are there, one after another
STUBS = """
extern "C" int kb_call(const kb_array *, int, kb_array *, int, char *, int) { return 0; }
extern "C" int kb_warm(const kb_array *, int, kb_array *, int, char *, int) { return 0; }
"""
Serving = Callable[[], tuple[int, int]]  # until it returns: what it returns, and the token that it has seen last


@pytest.fixture
def judge(tmp_path: Path) -> Iterator[JudgeEnd]:
    end = JudgeEnd(tmp_path / "link")
    end.go(_bytes(LAST))
    yield end
    end.close()


@pytest.fixture
def runner(judge: JudgeEnd) -> RunnerEnd:
    return RunnerEnd(str(judge.folder))


@pytest.fixture
def compiled(tmp_path: Path, judge: JudgeEnd, runner: RunnerEnd) -> Iterator[Serving]:
    """Compiled code that waits for its calls, in a thread of its own, which ends before its memory is gone."""
    source, library = tmp_path / "serve.cpp", tmp_path / "serve.so"
    source.write_text(f"struct kb_array;\n{cpp_sources._SERVE}\n{STUBS}")
    subprocess.run(["g++", "-shared", "-fPIC", "-O2", "-o", library, source], check=True, timeout=60)
    kb_serve, token, found = ctypes.CDLL(str(library)).kb_serve, ctypes.c_ulonglong(), list[int]()
    bell = ctypes.c_char.from_buffer(runner.bell)  # keeps it mapped
    words = ctypes.c_void_p(ctypes.addressof(bell))
    said, mark, none = ctypes.create_string_buffer(64), ctypes.create_string_buffer(b"\1"), ctypes.c_void_p()

    def served() -> None:
        last = ctypes.c_ulonglong(LAST)
        found.append(kb_serve(words, last, none, 0, none, 0, said, 64, ctypes.byref(token), mark))

    asked = judge.ping()
    serving = threading.Thread(target=served, daemon=True)
    serving.start()
    until = time.monotonic() + 30
    while os.pread(judge.bell, 8, runner_link.AWAKE) != asked and time.monotonic() < until:
        time.sleep(0.001)

    def ended() -> tuple[int, int]:
        serving.join(timeout=30)
        assert not serving.is_alive(), "the compiled code still waits for calls"
        return found[0], token.value

    yield ended
    judge.words(Kind.NULL)
    judge.ping()  # another kind of call: back to the runner's own loop
    serving.join(timeout=30)
    assert not serving.is_alive()


def _bytes(token: int) -> bytes:
    return token.to_bytes(8, "little")


def _rung_slowly(judge: JudgeEnd) -> None:
    """The judge rings, and is interrupted again and again while it does."""
    whole, done = _bytes(TOKEN) * 2, 0
    for upto in PIECES:
        os.pwrite(judge.bell, whole[done:upto], runner_link.GO + done)
        done = upto
        time.sleep(0.02)


def test_a_token_counts_once_all_of_its_bytes_are_there(judge: JudgeEnd, runner: RunnerEnd) -> None:
    ringing = threading.Timer(0.02, _rung_slowly, [judge])
    ringing.start()
    assert serve._rung(runner.words, LAST) == TOKEN, "an honest runner answers for a call that wasn't made"
    ringing.join()


@needs(GXX)
def test_so_it_does_for_compiled_code(judge: JudgeEnd, compiled: Serving) -> None:
    _rung_slowly(judge)
    until = time.monotonic() + 30
    while not (answered := int.from_bytes(os.pread(judge.bell, 8, runner_link.DONE), "little")):
        assert time.monotonic() < until, "the compiled code never answers"
        time.sleep(0.001)
    judge.go(_bytes(TOKEN + 1))  # without a ping before it: back to the runner's own loop
    assert compiled() == (c_arrays.BACK, TOKEN)
    assert answered == TOKEN, "an honest kernel answers for a call that wasn't made"


@needs(GXX)
def test_compiled_code_that_nobody_rang_has_seen_what_was_there(judge: JudgeEnd, compiled: Serving) -> None:
    """It came back with an older token, and the runner then took the one that had been answered for a new one."""
    judge.words(Kind.NULL)
    judge.ping()
    assert compiled() == (c_arrays.BACK, LAST)
