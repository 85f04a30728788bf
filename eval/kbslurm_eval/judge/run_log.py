"""What a run's processes wrote, as its author reads it: a trace that several of them met stands there once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from kbslurm_eval.judge.replies import clean
from kbslurm_eval.shared.wire import LOG_CAP, LOG_PARTS_CAP, LogPart, PhaseName

HEAD = "Traceback (most recent call last):"
NOTE_CAP = 4_000  # of what the judge adds to a log


@dataclass(kw_only=True)
class RunLog:
    """What public phases wrote, and which case each part of it is of."""

    text: str = ""
    parts: list[LogPart] = field(default_factory=list)
    _traces: set[str] = field(default_factory=set)  # that stand in it

    def add(self, phase: PhaseName, wrote: Iterable[tuple[int | None, str]]) -> None:
        """What one launch wrote, case by case: a case's pieces come together."""
        by_case: dict[int | None, str] = {}
        for index, piece in wrote:
            if piece:
                by_case[index] = by_case.get(index, "") + piece
        for index, piece in by_case.items():
            if len(self.text) < LOG_CAP:
                self._append(phase, index, _told_once(clean(piece, LOG_CAP), self._traces))

    def note(self, text: str) -> None:
        """A remark of the judge's on what was written, at its end, for which there is always room."""
        if self.text:
            self.remark("test", text)

    def remark(self, phase: PhaseName, text: str) -> None:
        """A remark of the judge's on this phase, also where nothing was written."""
        text = text[:NOTE_CAP]
        if text:
            gap = "" if not self.text or self.text.endswith("\n") else "\n"
            size = LOG_CAP - len(text) - 2
            self.text, self.parts = self.text[:size], cut(self.parts, size)
            self._traces = _traces_in(self.text)
            self._append(phase, None, f"{gap}{text}\n")

    def _append(self, phase: PhaseName, index: int | None, text: str) -> None:
        before = len(self.text)
        self.text = (self.text + text)[:LOG_CAP]
        size = len(self.text) - before
        last = self.parts[-1] if self.parts else None
        is_full = len(self.parts) >= LOG_PARTS_CAP
        if size and last is not None and (is_full or (last.phase, last.index) == (phase, index)):
            self.parts[-1] = replace(last, size=last.size + size)
        elif size:
            if len(self.parts) == LOG_PARTS_CAP - 1:
                index = None  # whatever comes later is in this one, too
            self.parts.append(LogPart(phase=phase, index=index, size=size))


def cut(parts: Sequence[LogPart], size: int) -> list[LogPart]:
    """The parts of the log's first characters."""
    found = list[LogPart]()
    for one in parts:
        if size > 0:
            found.append(replace(one, size=min(one.size, size)))
        size -= one.size
    return found


def without_repeats(text: str, before: str = "") -> str:
    """This text with one line in place of each trace that was already there, or that follows an equal one."""
    return _told_once(text, _traces_in(before))


def _traces_in(text: str) -> set[str]:
    return {block for is_trace, block in _blocks(text) if is_trace}


def _told_once(text: str, seen: set[str]) -> str:
    """The same, for these traces. Those that stay in full are `seen` from then on."""
    kept, again = list[str](), ""
    for is_trace, block in _blocks(text):
        if is_trace and block in seen:
            last = block.rstrip("\n").rpartition("\n")[2]
            if block != again:
                kept.append(f"{last}  [the trace is above]\n")
            again = block
            continue
        if is_trace:
            seen.add(block)
        again = block if is_trace else ""
        kept.append(block)
    return "".join(kept)


def _blocks(text: str) -> list[tuple[bool, str]]:
    """The text in pieces: traces, and what lies between them."""
    found: list[tuple[bool, list[str]]] = []
    inside = False
    for line in text.splitlines(keepends=True):
        if line.rstrip("\n") == HEAD:
            found.append((True, [line]))
            inside = True
        elif inside:
            found[-1][1].append(line)
            inside = line[:1].isspace()
        elif found and not found[-1][0]:
            found[-1][1].append(line)
        else:
            found.append((False, [line]))
    return [(is_trace, "".join(lines)) for is_trace, lines in found]
