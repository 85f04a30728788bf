"""The link between judge and runner: three files in a private shared-memory folder, and nothing else.

`bell`  16 KiB  words of 64 bits. The judge writes GO, KIND, SIZE, LAYOUT, AHEAD and PING; the runner writes DONE,
                STATUS, TEXT, AWAKE, CLAIM and, behind them, at most 8 KiB of text. Every GO is a random token of 63
                bits; DONE is its echo. GO is there twice, written in one piece: the kernel may copy it byte by byte,
                and who reads the same twice, the second one first, has all of it. AHEAD is the number of a text that
                the runner was told before: what the next input's arrays are, not what they contain. It makes them
                before it answers PING.
`in`            what the judge packed (`values.pack`), always complete before GO.
`out`           bytes of the declared layout.

The judge reads and writes with pread and pwrite only, never through a mapping: a runner that cuts a file short then
costs itself its life, not the judge. The runner maps all three.

A launch of several ranks has one such folder more for each of them, with tokens of their own. Where a GPU is there is a
fourth, `lent`: a socket by which the judge hands over descriptors of memory of the device's. It never reads from it.
"""

from __future__ import annotations

import contextlib
import enum
import mmap
import os
import struct
import threading
from collections.abc import Iterable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

BELL_SIZE = 16_384
GO, AGAIN, KIND, SIZE, LAYOUT, PING, OUT_SIZE, AHEAD = 0, 8, 16, 24, 32, 40, 48, 56
DONE, STATUS, TEXT_SIZE, AWAKE, CLAIM = 2048, 2056, 2064, 2072, 2080
TEXT_AT, TEXT_CAP = 4096, 8192
FIRST_SIZE = 65_536
MASK = (1 << 63) - 1
POISON = PAGE = 4096
FULL = 1 << 20
SPARE_MOST, APART_MOST = 16 << 20, 1_000
FILES = ("bell", "in", "out")
LENT = "lent"
BUILT_SUFFIX = ".built"  # beside a launch's folder: its build results


def rank_folder(folder: Path, rank: int) -> Path:
    """Where the link of one rank is, in the folder of its launch."""
    return folder / f"rank{rank}"


def lent_socket(folder: str, above: int) -> str:
    """The socket's path; by the folder's descriptor where it would be longer than a socket's may be."""
    path = f"{folder}/{LENT}"
    return path if len(path) < 100 else f"/proc/self/fd/{above}/{LENT}"


class Kind(enum.IntEnum):
    """The judge's requests."""

    CALL = 1
    NULL = 2
    LOAD = 3
    DECLARE = 4
    QUIT = 5
    HELLO = 6
    BUILD = 7
    COLLECT = 8
    FETCH = 9
    PROFILE = 10
    DEVICE = 11
    DEVICE_CALL = 12
    DEVICE_NULL = 13
    AHEAD = 14
    SCRIPT = 15


class Status(enum.IntEnum):
    """What the runner claims. Anything but OK can only reject; OK proves nothing."""

    OK = 0
    WRONG_TYPE = 1
    WRONG_SHAPE = 2
    RAISED = 3
    MEMORY = 4
    SYNTAX = 5
    LOAD_RAISED = 6
    NO_ENTRY = 7
    ENDED = 8
    BROKEN = 9
    NOT_BUILT = 10
    NO_COMPILER = 11
    TOO_LARGE = 12
    NO_DEVICE = 13


class JudgeEnd:
    """The judge's half of one launch's link. It creates the files; `close` removes them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._fds = {name: self._made(folder / name) for name in FILES}
        self._sizes = {"bell": BELL_SIZE, "in": FIRST_SIZE, "out": FIRST_SIZE}
        for name, size in self._sizes.items():
            os.ftruncate(self._fds[name], size)
        self.bell, self.input, self.out = self._fds["bell"], self._fds["in"], self._fds["out"]
        self._pinged = 0
        self._spare = {"in": 0, "out": 0}  # so much of each was asked for by nobody
        # what of each has been written to, and had room: so much from its beginning on, and what lies apart
        self._whole = {"bell": 0, "in": 0, "out": 0}
        self._apart = {name: set[tuple[int, int]]() for name in FILES}
        self.expects_more = False  # sizes follow from what is drawn: what grows has some room to spare

    @staticmethod
    def _made(path: Path) -> int:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        os.fchmod(fd, 0o666)  # the folder is private; in its own user namespace the runner is another user
        return fd

    def token(self) -> int:
        """A number that no runner can guess: 63 random bits, never 0."""
        return (int.from_bytes(os.urandom(8), "little") & MASK) or 1

    def words(self, kind: Kind, *, size: int = 0, layout: int = 0, out_size: int = 0, ahead: int = 0) -> None:
        """Write the next message, except its token."""
        # in one piece, with the word between them as it is
        os.pwrite(self.bell, struct.pack("<6Q", kind, size, layout, self._pinged, out_size, ahead), KIND)

    def go(self, token: bytes) -> None:
        """The token of the message that was written: the runner may begin."""
        os.pwrite(self.bell, token + token, GO)

    def ping(self) -> bytes:
        """Ask whether the runner is awake; what it answers then."""
        self._pinged += 1
        word = self._pinged.to_bytes(8, "little")
        os.pwrite(self.bell, word, PING)
        return word

    def put(self, payload: bytes | memoryview) -> None:
        """The payload into `in`, which grows as needed."""
        self.put_parts(((0, payload),), len(payload))

    def put_parts(self, parts: Iterable[tuple[int, bytes | memoryview]], size: int) -> None:
        """The same in parts, each at its place in as much room."""
        self._grow("in", size)
        for at, part in parts:
            _written(self._fds["in"], part, at)
            self.wrote("in", at, at + len(part))
        self._whole["bell"] = PAGE

    def lay(self, parts: Iterable[tuple[int, memoryview]]) -> None:
        """What destinations contain before the call, into `out`."""
        for at, part in parts:
            _written(self.out, part, at)
            self.wrote("out", at, at + len(part))

    def reach(self, size: int) -> None:
        """`in` holds at least this many bytes."""
        self._grow("in", size)

    def room(self, size: int) -> None:
        """`out` holds at least this many bytes."""
        self._grow("out", size)

    def _grow(self, name: str, size: int) -> None:
        if self._sizes[name] < size:
            self._spare[name] = min(size // 4, SPARE_MOST) if self.expects_more else 0
            size += self._spare[name]  # a runner maps all of it anew each time
            os.ftruncate(self._fds[name], size)
            self._sizes[name] = size

    def resized(self) -> bool:
        """Whether someone else changed a file's size."""
        return any(os.fstat(self._fds[name]).st_size != size for name, size in self._sizes.items())

    def declared(self) -> int:
        """How many bytes its files have, as far as the judge made them."""
        return sum(self._sizes.values())

    def asked(self) -> int:
        """How many of these somebody asked for."""
        return self.declared() - sum(self._spare.values())

    def wrote(self, name: str, begin: int, end: int) -> None:
        """This part of a file was written to."""
        if begin // PAGE * PAGE <= self._whole[name]:
            self._whole[name] = max(self._whole[name], end)
        elif begin < end and len(self._apart[name]) < APART_MOST:
            self._apart[name].add((begin, end))

    def beyond(self) -> int:
        """How many bytes of memory its files have more than that: room behind their ends can be taken, too."""
        return sum(
            max(0, os.fstat(self._fds[name]).st_blocks * 512 - (size + PAGE - 1) // PAGE * PAGE)
            for name, size in self._sizes.items()
        )

    def room_in_all(self) -> int:
        """How many bytes the memory has that its files lie in, used or not."""
        told = os.fstatvfs(self.bell)
        return told.f_blocks * told.f_frsize

    def held(self) -> int:
        """How many bytes of that its files hold."""
        return sum(os.fstat(fd).st_blocks * 512 for fd in self._fds.values())

    def has_holes(self) -> bool:
        """Whether somebody gave some of what was written to back. There may be as much elsewhere: a runner that maps a
        file may take all of its room."""
        return any(
            os.lseek(fd, begin // PAGE * PAGE, os.SEEK_HOLE) < end
            for name, fd in self._fds.items()
            for begin, end in ((0, self._whole[name]), *self._apart[name])
        )

    def free(self) -> int:
        """How many bytes of it nobody uses."""
        told = os.fstatvfs(self.bell)
        return told.f_bavail * told.f_frsize

    def is_full(self) -> bool:
        """Whether hardly anything of that is left."""
        return self.free() < FULL

    def poison(self, size: int, laid: Iterable[tuple[int, memoryview]] = ()) -> None:
        """Fill the output with random bytes, so that an earlier call's output is of no use; not where it is `laid`."""
        block = os.urandom(min(size, POISON))
        block *= min(1 + size // POISON, 64) if size > POISON else 1
        at = 0
        for low, high in [*sorted((low, low + len(part)) for low, part in laid), (size, size)]:
            begin = at
            while at < low:
                at += os.pwrite(self.out, memoryview(block)[: low - at], at)
            self.wrote("out", begin, at)
            at = high

    def has_had(self, size: int) -> bool:
        """Whether so much of the output was written to before, and had room."""
        return self._whole["out"] >= size

    def read_pieces(self, pieces: Iterable[tuple[int, memoryview]]) -> bool:
        """The output's bytes at these places into this memory, in this order; False if the file was cut short."""
        return all(os.preadv(self.out, [piece], at) == len(piece) for at, piece in pieces)

    def read_out(self, whole: memoryview) -> memoryview:
        """The output's bytes into this memory; fewer if the runner truncated the file."""
        at = 0
        while at < len(whole) and (read := os.preadv(self.out, [whole[at:]], at)):
            at += read
        return whole[:at]

    def status(self) -> tuple[int, str]:
        """The claim of the last DONE: a number, and a text that is capped here and sanitised by whoever shows it."""
        raw = os.pread(self.bell, 16, STATUS)
        if len(raw) < 16:
            return Status.BROKEN, ""
        number, length = struct.unpack("<QQ", raw)
        text = os.pread(self.bell, min(length, TEXT_CAP), TEXT_AT) if length else b""
        return number if number < len(Status) else Status.BROKEN, text.decode("utf-8", "replace")

    def claim(self) -> int:
        """The device time of the last call, as the runner claims it."""
        raw = os.pread(self.bell, 8, CLAIM)
        return int.from_bytes(raw, "little") if len(raw) == 8 else 0

    def clear_text(self) -> None:
        """The next answer comes with its own text or none."""
        os.pwrite(self.bell, bytes(8), TEXT_SIZE)

    def close(self) -> None:
        """Close and remove the files, once nobody should use them any more. Whoever still holds one, as sockets do that
        are themselves on their way through others until the kernel finds that nobody waits for them, holds none of its
        memory, which the next launch needs."""
        for name, fd in self._fds.items():
            with contextlib.suppress(OSError):
                os.ftruncate(fd, 0)
            os.close(fd)
            # a runner that sees the folder may have put anything in their place
            with contextlib.suppress(OSError):
                (self.folder / name).unlink(missing_ok=True)


def _written(fd: int, part: bytes | memoryview, at: int) -> None:
    done, view = 0, memoryview(part)
    while done < len(view):
        done += os.pwrite(fd, view[done:], at + done)


class RunnerEnd:
    """The runner's half: everything mapped."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._sizes = {"in": 0, "out": 0}
        self._fds = {name: os.open(f"{folder}/{name}", os.O_RDWR | os.O_CLOEXEC) for name in FILES}
        self.bell = memoryview(mmap.mmap(self._fds["bell"], BELL_SIZE))
        self.words = self.bell.cast("Q")
        self.views: dict[str, memoryview] = {}
        self._fence = threading.Lock()
        self.grow("in", FIRST_SIZE)
        self.grow("out", FIRST_SIZE)

    def grow(self, name: str, size: int) -> memoryview:
        """A mapping of at least this size; an older one stays as long as somebody holds a view of it."""
        if size > self._sizes[name]:
            found = os.fstat(self._fds[name]).st_size
            flags = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)
            self.views[name] = memoryview(mmap.mmap(self._fds[name], found, flags=flags))
            self._sizes[name] = found
        return self.views[name]

    def answer(self, token: int, status: int, text: str = "") -> None:
        """Text first, status then, the token last."""
        if text:
            self.say(text)
        self.words[STATUS // 8] = status
        with self._fence:  # a lock is a memory barrier: on aarch64 the token must not overtake the output
            self.words[DONE // 8] = token

    def say(self, text: str) -> None:
        """A text beside the next answer, or after the last one."""
        blob = text.encode("utf-8", "replace")[:TEXT_CAP]
        self.bell[TEXT_AT : TEXT_AT + len(blob)] = blob
        self.words[TEXT_SIZE // 8] = len(blob)
