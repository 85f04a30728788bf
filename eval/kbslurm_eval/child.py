"""The runner: the only process that ever imports a submission. Nothing that it says is believed; it is told nothing.

It holds no seed, no reference, no expected value, no clock and no key; it doesn't know which phase it is in or which
call is timed. Before the judge hands it the submission it says what kind of cage it is in: until then it is trusted
code.
"""

from __future__ import annotations

import importlib.util
import io
import json
import os
import sys
import traceback
from typing import Any

from . import link, values
from .link import Kind, RunnerEnd, Status


def serve(folder: str) -> int:
    """Answer the judge's messages until it says QUIT."""
    line = RunnerEnd(folder)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True, errors="backslashreplace")  # its end comes without warning
    layouts: dict[int, values.Layout] = {}
    call: Any = None
    words = line.words
    go, ping, awake, kind_at, size_at, layout_at, room_at = (
        0,
        link.PING // 8,
        link.AWAKE // 8,
        1,
        2,
        3,
        link.OUT_SIZE // 8,
    )
    last, last_ping, spins = 0, 0, 0
    while True:
        token = words[go]
        if token == last:
            spins += 1
            if words[ping] != last_ping:
                last_ping = words[ping]
                words[awake] = last_ping
            elif spins % 64 == 0:
                os.sched_yield()  # where cores are scarce the judge may be waiting for this one
            continue
        last = token
        kind, size = words[kind_at], words[size_at]
        view = line.grow("in", size)
        if kind == Kind.CALL:
            layout = layouts[words[layout_at]]
            status, text = _called(call, layout, view, line.grow("out", words[room_at]))
            line.answer(token, status, text)
        elif kind == Kind.NULL:
            values.unpack(view)
            line.answer(token, Status.OK)
        elif kind == Kind.DECLARE:
            layouts[words[layout_at]] = values.layout_from(values.unpack(view))
            line.grow("out", words[room_at])
            line.answer(token, Status.OK)
        elif kind == Kind.HELLO:
            line.answer(token, Status.OK, _hello(values.unpack(view), folder))
        elif kind == Kind.LOAD:
            status, text, call = _loaded(values.unpack(view))
            line.answer(token, status, text)
        else:
            line.answer(token, Status.OK)
            return 0


def _called(call: Any, layout: values.Layout, view: memoryview, out: memoryview) -> tuple[int, str]:
    try:
        layout.write(call(values.unpack(view)), out)
    except values.Misfit as misfit:
        return (Status.WRONG_SHAPE if misfit.shape else Status.WRONG_TYPE), str(misfit)
    except MemoryError:
        return Status.MEMORY, "MemoryError"
    except (SystemExit, KeyboardInterrupt) as end:
        return Status.ENDED, f"{type(end).__name__}: {end}"
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is the submission's
        return Status.RAISED, _short(error)
    return Status.OK, ""


def _hello(told: dict[str, Any], folder: str) -> str:
    """The cage as it is found from inside; in a container the runner puts on the inner part of it now."""
    from . import guard

    if told.get("supervised"):
        guard.caged_from_inside(told, folder)
    return json.dumps(guard.seen_from_inside())


def _loaded(told: dict[str, Any]) -> tuple[int, str, Any]:
    entry, work = str(told["entry"]), _workplace(told.get("work"))
    for name, text in told["files"].items():
        _written(os.path.join(work, name), text)
    path = os.path.join(work, entry)
    _written(path, told["source"])
    sys.path.insert(0, work)
    os.chdir(work)
    name = os.path.splitext(entry)[0]
    try:
        compile(told["source"], entry, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        return Status.SYNTAX, _short(error, entry), None
    try:
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    except MemoryError:
        return Status.MEMORY, "MemoryError", None
    except (SystemExit, KeyboardInterrupt) as end:
        return Status.ENDED, f"{type(end).__name__}: {end}", None
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is the submission's
        return Status.LOAD_RAISED, _short(error), None
    call = getattr(module, told["call"], None)
    if not callable(call):
        return Status.NO_ENTRY, f"{entry} defines no function {told['call']}", None
    return Status.OK, "", call


def _workplace(given: str | None) -> str:
    """A fresh folder: of the cage's own file system, or the one that the judge made for this launch and removes
    after it."""
    if given is not None:
        return given
    work = os.path.join(os.environ.get("TMPDIR", "/tmp"), "work")
    try:
        os.mkdir(work, 0o700)
    except FileExistsError:  # a container that keeps its /tmp
        import tempfile

        return tempfile.mkdtemp()
    return work


def _written(path: str, text: str) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8", newline="") as file:
        file.write(text)


def _short(error: BaseException, entry: str = "") -> str:
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
        return f"{type(error).__name__}: {said}"[:2000] + where
    except BaseException:  # noqa: BLE001 - an exception's own methods may be hostile
        return "an exception that can't be told"
