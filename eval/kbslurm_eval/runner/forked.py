"""Children that a submission forks in a call, or while it is imported. They end where its function does, as they would
end anywhere else, and neither answer for their parent nor wait for the next message.

The kernel empties one page of a process in each child of it (since Linux 4.14), whoever forks: Python, a library, or
compiled code, which looks there itself before it answers. Where it doesn't, children that Python forks are still known.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os

from kbslurm_eval.runner import error_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

_WIPE_ON_FORK = 18
_pages: list[mmap.mmap] = []  # the last one is this process's


def marked() -> memoryview:
    """One byte: 1 in this process, and 0 in every child that it has from here on."""
    page = mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):
        page.madvise(_WIPE_ON_FORK)
    page[0] = 1
    if not _pages:
        os.register_at_fork(after_in_child=_unmark)
    _pages.append(page)
    return memoryview(page)


def _unmark() -> None:
    _pages[-1][0] = 0


def mark_at() -> int:
    """Where that byte is."""
    if not _pages:
        marked()
    return ctypes.addressof(ctypes.c_char.from_buffer(_pages[-1]))


def is_child() -> bool:
    """Whether this process was forked by the one that serves."""
    return bool(_pages) and not _pages[-1][0]


def end_if_child(error: BaseException) -> None:
    """If it was, it ends of what its function raised."""
    if is_child():
        end(error)


def end(error: BaseException | None = None) -> NoReturn:
    """This child's end, with the status that Python would give it. Files are closed and handlers run as usual."""
    if isinstance(error, SystemExit | KeyboardInterrupt):
        raise error
    if error is None:
        raise SystemExit(0)
    error_text.one_line(error)
    raise SystemExit(1) from None
