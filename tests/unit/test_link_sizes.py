"""The files between judge and runner where sizes follow from what is drawn."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from kbslurm_eval.shared import runner_link
from kbslurm_eval.shared.runner_link import JudgeEnd, Kind, RunnerEnd

MIB = 1 << 20


@pytest.mark.parametrize(("expects_more", "most"), [(True, 4), (False, 30)])
def test_what_grows_from_call_to_call_is_mapped_anew_a_few_times_only(
    tmp_path: Path, expects_more: bool, most: int
) -> None:
    """All of the file is mapped and filled then, 100 MB take 30 ms, and that is in a call's time."""
    judge = JudgeEnd(tmp_path / "link")
    try:
        judge.expects_more = expects_more
        runner = RunnerEnd(str(tmp_path / "link"))
        views = [runner.views["out"]]  # all are kept, so that none comes again at the same place
        for number in range(30):
            size = MIB + number * 20_000
            judge.room(size)
            views.append(runner.grow("out", size))
            assert len(views[-1]) >= size
        anew = len(set(map(id, views))) - 1
        assert anew <= most if expects_more else anew == most
        assert not judge.resized() and judge.beyond() == 0
    finally:
        judge.close()


def test_room_to_spare_is_bounded(tmp_path: Path) -> None:
    judge = JudgeEnd(tmp_path / "link")
    try:
        judge.expects_more = True
        before = judge.declared()
        judge.room(1000 * MIB)
        assert judge.declared() - before <= 1000 * MIB + runner_link.SPARE_MOST
        judge.reach(10)
        assert judge.declared() - before <= 1000 * MIB + runner_link.SPARE_MOST, "it had as much already"
    finally:
        judge.close()


def test_whoever_still_holds_its_files_holds_none_of_their_memory(tmp_path: Path) -> None:
    """Descriptors may be on their way through dead sockets for seconds, and the next launch had no room."""
    judge = JudgeEnd(tmp_path / "link")
    judge.room(4 * MIB)
    judge.reach(4 * MIB)
    kept = [os.open(tmp_path / "link" / name, os.O_RDWR) for name in runner_link.FILES]
    try:
        for fd in kept:
            os.pwrite(fd, bytes(64), 0)
        judge.close()
        assert [os.fstat(fd).st_blocks for fd in kept] == [0] * len(kept)
    finally:
        for fd in kept:
            os.close(fd)


def punch(file: Path, at: int, size: int) -> None:
    subprocess.run(["fallocate", "--punch-hole", "-o", str(at), "-l", str(size), file], check=True)


def test_what_was_written_and_given_back_is_a_hole_and_what_never_was_is_none() -> None:
    folder = Path(tempfile.mkdtemp(prefix="kbtest-", dir="/dev/shm"))
    judge = JudgeEnd(folder / "link")
    try:
        judge.room(8 * MIB)
        judge.reach(8 * MIB)
        assert not judge.has_holes()
        judge.words(Kind.CALL)
        judge.put_parts([(0, bytes(100)), (4 * MIB + 64, bytes(MIB))], 6 * MIB)
        judge.poison(3 * MIB + 5)
        judge.poison(8 * MIB, [(MIB, memoryview(bytes(6 * MIB)))])
        assert not judge.has_holes()
        os.pwrite(judge.input, bytes(MIB), 2 * MIB)  # a runner takes room that nobody had written to
        for name, at, size, is_one in (
            ("in", MIB, 2 * MIB, False), ("out", 5 * MIB, 4096, False), ("out", MIB, 4096, True),
            ("out", 7 * MIB, 4096, True), ("bell", 0, 4096, True), ("in", 4 * MIB + 8192, 4096, True),
        ):  # fmt: skip
            punch(folder / "link" / name, at, size)
            assert judge.has_holes() == is_one, (name, at, "where none was written there is none")
            if is_one:
                os.pwrite(judge._fds[name], bytes(size), at)
                assert not judge.has_holes()
    finally:
        judge.close()
        shutil.rmtree(folder)


@pytest.mark.parametrize("name", ["in", "out"])
def test_what_was_given_back_is_a_hole_also_where_as_much_was_taken_elsewhere(name: str) -> None:
    """A runner that maps a whole file has all of its room, most of it beyond what the judge fills."""
    folder = Path(tempfile.mkdtemp(prefix="kbtest-", dir="/dev/shm"))
    judge = JudgeEnd(folder / "link")
    try:
        judge.words(Kind.CALL)
        judge.put_parts([(0, bytes(100)), (128, bytes(4000)), (4160, bytes(36_000))], 41_000)
        judge.poison(40_160)
        os.pwrite({"in": judge.input, "out": judge.out}[name], bytes(20_000), 45_000)
        assert not judge.has_holes()
        punch(folder / "link" / name, 32_768, 4096)
        assert judge.has_holes()
    finally:
        judge.close()
        shutil.rmtree(folder)
