"""What a runner's processes have open: looked at in /proc, or, where the kernel doesn't let the judge (containers side
by side, each with a user namespace of its own), by the job script, which is above both."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Literal

from kbslurm_eval.cage.processes import GONE, is_ending, namespace_numbers, proc_folder

Word = Literal["lock", "scm_fds", "tfd", "pipe", "Pss"]

ANSWER_S = 20.0  # the script itself gives a look 15 s, and 5 s of a processor
OF_KIND: dict[Word, str] = {"scm_fds": "socket:", "tfd": "anon_inode:[eventpoll]"}  # only theirs has such lines
LEFT_OUT = 2  # of grep and find: something couldn't be read
MOST_BYTES = 8 << 20  # of an answer
CANT_LOOK = "what its processes have open can't be seen here: locks, pollers and files in sockets aren't counted"


class CantSee(Exception):
    """Nobody here can look, or had the time for it. What isn't known is nobody's guilt."""


class Lookout:
    """Has the job script look at one runner's processes: see the protocol of `look N`."""

    def __init__(self, folder: Path, number: int, say: Callable[[str], None], *, answers: bool) -> None:
        self._folder, self._number, self._say, self._answers = folder, number, say, answers
        self.asked = 0
        self.was_cut = False  # the last answer: there was more than anybody would read

    def look(self, pids: Iterable[int], word: Word) -> dict[int, list[bytes]]:
        """What was found of each, without those that the script can't see either."""
        if not self._answers:
            raise CantSee
        self.asked += 1
        answer = f"seen.{self._number}.{self.asked}"
        within = {"pipe": "fd", "Pss": "smaps_rollup"}.get(word, "fdinfo")
        places = (f"{proc_folder(pid).removeprefix('/proc/')}/{within}" for pid in pids)
        try:
            (self._folder / f"look.{self._number}").write_text(f"{answer} {word} {' '.join(places)}\n")
            self._say(f"look {self._number}")
            found = self._awaited(self._folder / answer)
        except OSError:
            raise CantSee from None
        return self._told(found, word)

    def _awaited(self, file: Path) -> bytes:
        until = time.monotonic() + ANSWER_S
        while time.monotonic() < until:
            with contextlib.suppress(FileNotFoundError):
                found = file.read_bytes()
                file.unlink()
                return found
            time.sleep(0.0005)
        raise CantSee

    def _told(self, answer: bytes, word: Word) -> dict[int, list[bytes]]:
        lines = answer.splitlines()
        try:
            status = int(lines.pop().removeprefix(b"end "))
        except (IndexError, ValueError):
            raise CantSee from None
        self.was_cut = len(answer) >= MOST_BYTES
        if word == "Pss" and status > LEFT_OUT:
            raise CantSee
        found: dict[int, list[bytes]] = {}
        for line in lines:
            place, _, rest = line.partition(b":")
            if (pid := place.partition(b"/")[0]).isdigit():
                told = found.setdefault(int(pid), [])
                if rest:
                    told.append(rest)
        return found

    def shares(self, pids: Iterable[int]) -> dict[int, int]:
        """What each holds of memory in bytes, its share alone of pages that it shares; nothing of whom nobody sees."""
        try:
            found = self.look(pids, "Pss")
        except CantSee:
            return {}
        return {pid: sum(int(line.split()[1]) * 1024 for line in told) for pid, told in found.items() if told}


def is_hidden(pid: int) -> bool:
    """Whether the kernel doesn't let this process look at that one."""
    try:
        os.stat(f"{proc_folder(pid)}/ns/mnt")
    except PermissionError:
        return not is_ending(pid)
    except OSError:
        pass
    return False


def lines(pids: Iterable[int], word: Word, lookout: Lookout | None = None, *, strict: bool = False) -> Iterator[bytes]:
    """The lines of this kind of whatever these processes have open; their number in each if `tfd`, what a descriptor
    stands for if `pipe`.

    `strict`: PermissionError where one of them hides, CantSee where nobody can look; otherwise those have none."""
    hidden: list[int] = []
    for pid in pids:
        try:
            yield from _lines_of(pid, word)
        except PermissionError:
            hidden.append(pid)
        except OSError:
            if strict:
                raise
    if strict:
        hidden = [pid for pid in hidden if not is_ending(pid)]
    if not hidden or (lookout is None and not strict):
        return
    if lookout is None:
        raise PermissionError
    found: dict[int, list[bytes]] = {}
    try:
        found = lookout.look(hidden, word)
    except CantSee:
        if strict:
            raise
    if strict and not found:
        raise CantSee
    for told in found.values():
        yield from told
    if strict and any(pid not in found and not is_ending(pid) and is_inside(pid) for pid in hidden):
        raise PermissionError


def _lines_of(pid: int, word: Word) -> Iterator[bytes]:
    beginning = f"{word}:"
    place, names = open_files(pid)
    for fd in names:
        with contextlib.suppress(*GONE):
            if word == "pipe":
                if (told := os.readlink(f"{place}/fd/{fd}")).startswith(beginning):
                    yield told.encode()
                continue
            if (kind := OF_KIND.get(word)) and not os.readlink(f"{place}/fd/{fd}").startswith(kind):
                continue
            with open(f"{place}/fdinfo/{fd}", "rb") as file:
                if word == "tfd":
                    yield b"%d" % file.read().count(b"tfd:")
                    continue
                for line in file:
                    if line.startswith(beginning.encode()):
                        yield line.removesuffix(b"\n")


def open_files(pid: int) -> tuple[str, list[str]]:
    """Where its descriptors are shown, and their numbers: where its first thread has ended, at one that hasn't."""
    place, names = f"/proc/{pid}", list[str]()
    with contextlib.suppress(*GONE):
        if not (names := os.listdir(f"{place}/fd")) and (other := proc_folder(pid)) != place:
            place, names = other, os.listdir(f"{other}/fd")
    return place, names


def is_inside(pid: int) -> bool:
    """Whether it is in a PID namespace below, and not its first process: those of the container's program hide, too."""
    numbers = namespace_numbers(pid)
    return len(numbers) > 1 and numbers[-1] != 1
