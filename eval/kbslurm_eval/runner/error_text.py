"""Exceptions of a submission, told in one line."""

from __future__ import annotations

import os
import sys
import traceback

unshared = False  # there is no /dev/shm, and little else of the machine's own file system (isolation level 1)


def _isolation_hint(error: BaseException) -> str:
    if not unshared:
        return ""
    from kbslurm_eval.runner import isolation_hints

    why = isolation_hints.said(error)
    return f" - {why}" if why else ""


def one_line(error: BaseException, entry: str = "") -> str:
    """One line for the person, the whole trace into the log."""
    try:
        trace = error.__traceback__
        while trace is not None and "kbslurm_eval" in trace.tb_frame.f_code.co_filename:
            trace = trace.tb_next
        traceback.print_exception(error.with_traceback(trace), limit=-20)
        sys.stderr.flush()
    except BaseException:  # noqa: BLE001 - an exception's own methods may be hostile
        pass
    try:
        frames = [f for f in traceback.extract_tb(error.__traceback__) if "kbslurm_eval" not in f.filename]
        line = (
            getattr(error, "lineno", None)
            if isinstance(error, SyntaxError)
            else (frames[-1].lineno if frames else None)
        )
        file = entry or (os.path.basename(frames[-1].filename) if frames else "")
        said = error.msg if isinstance(error, SyntaxError) else str(error)
        where = f" ({file}, line {line})" if file and line else ""
        return f"{type(error).__name__}: {said}"[:2000] + where + _isolation_hint(error)
    except BaseException:  # noqa: BLE001 - an exception's own methods may be hostile
        return "an exception whose message can't be read"
