"""Profile mode: after all phases were passed, some more calls under a profiler, and files of it for the author.

What comes of it was made where the submission ran. So it is bytes under names of the judge's, capped in size and count,
and a text that nobody reads for truth: it changes neither the verdict nor a score, whatever it says.
"""

from __future__ import annotations

import hashlib
import os
import stat
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbslurm_eval.judge import profile_digest, profile_tables
from kbslurm_eval.judge.rank_reference import PreparedRanks
from kbslurm_eval.judge.ranks_launch import RanksLaunch
from kbslurm_eval.judge.reference import Case, Prepared
from kbslurm_eval.judge.replies import clean
from kbslurm_eval.shared import layouts, values
from kbslurm_eval.shared.profile_files import LEFT, LOG, short
from kbslurm_eval.shared.runner_link import Kind, Status
from kbslurm_eval.shared.wire import (
    ARTIFACT_CAP,
    ARTIFACTS_CAP,
    ARTIFACTS_TOTAL,
    DIGESTS_CAP,
    PROFILE_TEXT_CAP,
    Artifact,
    ProfileDigest,
    ProfileTool,
)

if TYPE_CHECKING:
    from kbslurm_eval.judge.launch import Launch

CALLS = 5
SOURCE_VIEW = "profile.source.csv"
COUNTED_CALLS = 1  # a kernel is run again for each group of counters, some forty times
CASES = 2  # the last ones, since the last counts in most problems
RANKS = 2
ENDS_S = 240.0  # the profiler's own conversions included
SLOTS = {
    "table.txt": 256 << 10,
    "operators.json": 1 << 20,
    "functions.json": 1 << 20,
    "trace.json.gz": 6 << 20,
}
LOG_READ = 16_384
# Files that are worth more than they take: the small ones first, so that a large report leaves only itself out.
PREFIX = {"ncu": "ncu-", "rocprof": ""}


@dataclass(kw_only=True)
class ProfileFiles:
    """The results of profiling so far."""

    folder: Path | None
    artifacts: list[Artifact] = field(default_factory=list)
    digests: list[ProfileDigest] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    def tell(self, digest: ProfileDigest) -> None:
        """Add a digest, if there is room."""
        if len(self.digests) < DIGESTS_CAP:
            self.digests.append(digest)

    def say(self, text: str) -> None:
        """Add lines to the summary."""
        self.lines.append(text)

    def text(self) -> str:
        """The summary, capped."""
        return "\n\n".join(self.lines)[:PROFILE_TEXT_CAP]

    def keep(self, name: str, blob: bytes) -> None:
        """Add a file, if there is room."""
        held = sum(one.size for one in self.artifacts)
        if self.folder is None or not blob:
            return
        if len(self.artifacts) >= ARTIFACTS_CAP or len(blob) > ARTIFACT_CAP or held + len(blob) > ARTIFACTS_TOTAL:
            self.say(f"{name} ({len(blob)} bytes) was left out: it is over the size limit")
            return
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (self.folder / name).write_bytes(blob)
        self.artifacts.append(Artifact(name=name, size=len(blob), sha256=hashlib.sha256(blob).hexdigest()))


def cases_of(cases: Sequence[Case], *, ranks: bool, only: int | None = None) -> list[Case]:
    """Which benchmarks are profiled: `only` that one, or the last ones."""
    if only is not None:
        return [case for case in cases if case.index == only]
    return list(cases)[-1:] if ranks else list(cases)[-CASES:]


def profile_calls(launch: Launch, prepared: Prepared, files: ProfileFiles) -> None:
    """Calls of a loaded submission under the matching profiler: torch's or Python's."""
    name = f"benchmark-{prepared.case.index}"
    layout, slots = _layout()
    if isinstance(launch, RanksLaunch):
        assert isinstance(prepared, PreparedRanks)
        asked = [_asked(part.packed, part.layout, slots, "auto") for part in prepared.parts]
        replies = launch.ring_all(Kind.PROFILE, asked, layouts=[layout] * len(asked))
        for rank, reply in list(enumerate(replies.parts))[:RANKS]:
            _kept(files, f"{name}.rank{rank}", prepared.case, reply, slots)
        return
    reply = launch.ring(Kind.PROFILE, _asked(launch.by_hand(prepared), prepared.layout, slots, "auto"), layout=layout)
    _kept(files, name, prepared.case, reply, slots)


def profile_around(launch: Launch, prepared: Prepared, files: ProfileFiles, tool: ProfileTool) -> None:
    """The same calls in a runner that was started by a profiler: its files are written when the runner ends."""
    asked = _asked(launch.by_hand(prepared), prepared.layout, [], tool)
    try:
        launch.ring(Kind.PROFILE, asked, layout=layouts.Layout(tree=["0"], size=8))
        launch.ring(Kind.QUIT, b"")
        launch.runner.thaw()
        deadline = time.monotonic() + ENDS_S
        while launch.runner.ended() is None and time.monotonic() < deadline:
            time.sleep(0.05)
    finally:
        log = clean(read_left(launch.runner.folder / LOG)[:LOG_READ].decode("utf-8", "replace"), LOG_READ)
        _say_what_it_said(files, log, tool)
    case = prepared.case
    found = {name: read_left(launch.runner.folder / name) for name in LEFT[tool] if name != LOG}
    for name, blob in found.items():
        files.keep(f"benchmark-{case.index}.{_artifact(tool, name)}", blob)
    launches, advised = profile_digest.tables_of(tool, {short(name): blob for name, blob in found.items()})
    if not launches and not any(blob for name, blob in found.items() if name.endswith(".csv")):
        trouble = profile_digest.trouble_in(log, tool)
        digest = profile_digest.without(benchmark=case.index, spec=case.spec, tool=tool, trouble=trouble)
    else:
        source = profile_tables.nsight_source(found.get(SOURCE_VIEW, b""))
        digest = profile_digest.digest(
            benchmark=case.index, spec=case.spec, tool=tool, launches=launches, advised=advised, source=source
        )
    files.tell(digest)
    files.say(f"benchmark-{case.index} ({case.spec}), {tool}:\n{profile_digest.in_words(digest)}")


def _say_what_it_said(files: ProfileFiles, log: str, tool: str) -> None:
    """Lines of our own half of the program: what it left out, and why."""
    for line in log.splitlines():
        if line.startswith("kbslurm: ") and "over the limit" in line:
            files.say(f"{tool}: {line.removeprefix('kbslurm: ')}: left out")


def _artifact(tool: str, name: str) -> str:
    told = short(name)
    return told if told.startswith("ncu") else f"{PREFIX[tool]}{told}"


def read_left(path: Path) -> bytes:
    """A file that the runner may have replaced with anything: read only if it is a regular file and not too large."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        seen = os.fstat(fd)
        if not stat.S_ISREG(seen.st_mode) or seen.st_nlink != 1 or seen.st_size > ARTIFACT_CAP:
            return b""
        with os.fdopen(os.dup(fd), "rb") as file:
            return file.read(ARTIFACT_CAP)
    finally:
        os.close(fd)


def _layout() -> tuple[layouts.Layout, list[tuple[str, int, int]]]:
    slots, end = [], 0
    for name, cap in SLOTS.items():
        slots.append((name, end, cap))
        end += cap
    return layouts.Layout(tree=["0"], size=end), slots


def _asked(packed: bytes | memoryview, answer: layouts.Layout, slots: list[tuple[str, int, int]], tool: str) -> bytes:
    calls = COUNTED_CALLS if tool == "ncu" else CALLS
    told: dict[str, Any] = {"tool": tool, "calls": calls, "slots": [list(slot) for slot in slots]}
    told["input"] = bytes(packed)
    return values.pack({**told, "layout": answer.text()})


def _kept(files: ProfileFiles, name: str, case: Case, reply: Any, slots: list[tuple[str, int, int]]) -> None:
    told = clean(reply.text, PROFILE_TEXT_CAP)
    if reply.status != Status.OK:
        files.say(f"{name} ({case.spec}): no profile: {told or 'the runner gave none'}")
        return
    left = {}
    for slot, at, cap in slots:
        length = struct.unpack_from("<Q", reply.out, at)[0]
        if length <= cap - 8:  # our own runner never says more
            left[slot] = bytes(reply.out[at + 8 : at + 8 + length])
            files.keep(f"{name}.{slot}", left[slot])
    tool: ProfileTool = "torch" if left.get("operators.json") else "cprofile"
    launches, _ = profile_digest.tables_of(tool, left)
    if launches:
        digest = profile_digest.digest(benchmark=case.index, spec=case.spec, tool=tool, launches=launches)
        files.tell(digest)
        title, _, table = told.partition("\n")
        told = "\n".join([title, profile_digest.in_words(digest), *([table] if table else [])])
    files.say(f"{name} ({case.spec}): {told}")
