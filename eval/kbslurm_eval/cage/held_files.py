"""What a runner without a file system of its own keeps in files: they lie in memory, and are in no process's."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from kbslurm_eval.cage.processes import mapped_bytes
from kbslurm_eval.cage.rationed import Rationed
from kbslurm_eval.cage.seen_processes import open_files

MOST = 20_000  # files and folders, each of which takes a kilobyte of the kernel's memory besides
BLOCK, SMALL = 512, 1 << 20
TOO_MANY = f"the submission keeps more than {MOST:,} files"


@contextlib.contextmanager
def _listed(path: str, device: int, number: int) -> Iterator[Iterable[os.DirEntry[str]]]:
    """What is in this folder if it is the one that was seen: meanwhile there may be a link to somebody else's."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        told = os.fstat(fd)
        if (told.st_dev, told.st_ino) != (device, number):
            raise NotADirectoryError(path)
        with os.scandir(fd) as entries:
            yield entries
    finally:
        os.close(fd)


class HeldFiles:
    """The files of one runner: in the folder where it may write, and those that it has open and has removed."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._held, self._looks = 0, Rationed()
        self._device = 0 if folder is None else folder.stat().st_dev
        self.too_many = False

    def beyond_mapped(self, pids: Sequence[int]) -> int:
        """What these processes' memory doesn't contain of it, in bytes: what is mapped is in both."""
        held = self.now(pids)
        return max(0, held - sum(map(mapped_bytes, pids))) if held > SMALL else 0

    def now(self, pids: Iterable[int]) -> int:
        """All of it in bytes, as of the last look."""
        return self.seen(pids) if self._looks.is_due else self._held

    def seen(self, pids: Iterable[int]) -> int:
        """All of it in bytes, now."""
        if self._folder is None:
            return 0
        with self._looks.look():
            self._held = self._below(self._folder) + self._removed(pids)
        return self._held

    def _below(self, folder: Path) -> int:
        held, many, waiting = 0, 0, [(os.fspath(folder), folder.stat().st_ino)]
        seen = set[int]()
        while waiting:
            place, number = waiting.pop()
            with contextlib.suppress(OSError), _listed(place, self._device, number) as entries:
                for entry in entries:
                    many += 1
                    if many > MOST:
                        self.too_many = True
                        return held
                    with contextlib.suppress(OSError):
                        told = entry.stat(follow_symlinks=False)
                        if entry.is_dir(follow_symlinks=False):
                            waiting.append((f"{place}/{entry.name}", told.st_ino))
                        elif told.st_ino not in seen:
                            seen.add(told.st_ino)
                            held += told.st_blocks * BLOCK
        return held

    def _removed(self, pids: Iterable[int]) -> int:
        found = dict[int, int]()
        for pid in pids:
            with contextlib.suppress(OSError):
                place, names = open_files(pid)
                for fd in names:
                    with contextlib.suppress(OSError):
                        told = os.stat(f"{place}/fd/{fd}")
                        if told.st_dev == self._device and told.st_nlink == 0:
                            found[told.st_ino] = told.st_blocks * BLOCK
        return sum(found.values())
