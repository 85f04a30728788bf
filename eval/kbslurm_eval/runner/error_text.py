"""Exceptions of a submission: the trace in its log, once, and one line for its author."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator

unshared = False  # there is no /dev/shm, and little else of the machine's own file system (isolation level 1)
SEEN_MOST = 64  # different traces that are remembered
FRAMES = 20
OURS = "kbslurm_eval"
_entry, _home = "", ""  # the submission's file, and the folder that it lies in with the problem's
_seen: dict[tuple[str, ...], str] = {}


def _refusal(error: BaseException) -> str:
    """What the cage refused, if that is what the error came of."""
    from kbslurm_eval.runner import refusals

    if unshared:
        from kbslurm_eval.runner import isolation_hints

        if why := isolation_hints.said(error):
            return why
    return refusals.said(error)


def knows(entry: str, source: str, home: str) -> None:
    """The submission's file, its text, in which compilers' errors are looked for, and the folder that it lies in."""
    from kbslurm_eval.runner import compile_errors

    global _entry, _home
    _entry, _home, compile_errors.source = entry, os.path.join(os.path.realpath(home), ""), source


def one_line(error: BaseException, entry: str = "", hint: str = "") -> str:
    """One line for the person, the whole trace into the log. `hint`: what is said besides."""
    try:
        _print(error)
    except BaseException:  # noqa: BLE001 - an exception's own methods may be hostile
        pass
    try:
        frames = [f for f in traceback.extract_tb(error.__traceback__) if not is_ours(f.filename)]
        if _home:  # a line of the submission's own says more than one of the library that it called
            own = [f for f in frames if f.filename[:1] != "<" and os.path.realpath(f.filename).startswith(_home)]
            frames = own or frames
        is_syntax = isinstance(error, SyntaxError)
        line = error.lineno if isinstance(error, SyntaxError) else (frames[-1].lineno if frames else None)
        file = entry or (os.path.basename(frames[-1].filename) if frames else "")
        said = error.msg if isinstance(error, SyntaxError) else str(error)
        from kbslurm_eval.runner import compile_errors

        if (found := None if is_syntax else compile_errors.told(error)) is not None:
            why, number, code = found
            return f"{type(error).__name__}: {why} ({_entry or file}, line {number}): {code}"
        where = f" ({file}, line {line})" if file and line else ""
        shown = f": {error.text.strip()[:200]}" if isinstance(error, SyntaxError) and error.text else ""
        hint = hint or ("" if is_syntax else _refusal(error))
        return f"{type(error).__name__}: {said}"[:2000] + where + shown + (f" - {hint}" if hint else "")
    except BaseException:  # noqa: BLE001 - an exception's own methods may be hostile
        return "an exception whose message can't be read"


def _print(error: BaseException) -> None:
    """The trace without the harness's frames; one that was there before, as one line if at all."""
    whole = traceback.TracebackException(type(error), error, error.__traceback__, limit=-FRAMES - 10)
    places: list[str] = []
    for one in _chain(whole):
        kept = [frame for frame in one.stack if not is_ours(frame.filename)][-FRAMES:]
        one.stack = traceback.StackSummary.from_list(kept)
        places += [one.exc_type.__name__ if one.exc_type else "", *(f"{f.filename}:{f.lineno}" for f in kept)]
    text = "".join(whole.format()).rstrip()
    key, last = tuple(places), text.rpartition("\n")[2]
    before = _seen.get(key)
    if before is None:
        print(text, file=sys.stderr)
    elif before != last:
        print(f"{last}  [the trace is above]", file=sys.stderr)
    if before is not None or len(_seen) < SEEN_MOST:
        _seen[key] = last
    sys.stderr.flush()


def _chain(first: traceback.TracebackException) -> Iterator[traceback.TracebackException]:
    waiting, met = [first], set[int]()
    while waiting:
        one = waiting.pop()
        if id(one) not in met:
            met.add(id(one))
            yield one
            behind = (one.__cause__, one.__context__, *(getattr(one, "exceptions", None) or ()))
            waiting += [other for other in behind if other is not None]


def is_ours(file: str) -> bool:
    """Whether a frame is the harness's, or Python's own on the way from there to the submission."""
    return OURS in file or file.startswith("<frozen importlib.")
