"""The runner: the only process that ever imports a submission. Nothing that it says is believed; it is told nothing.

It holds no seed, no reference, no expected value, no clock and no key; it doesn't know which phase it is in or which
call is timed. Before the judge hands it the submission it says what kind of cage it is in: until then it is trusted
code.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import os
import sys
import traceback
from typing import TYPE_CHECKING, Any

from kbslurm_eval.shared import runner_link, values
from kbslurm_eval.shared.runner_link import Kind, RunnerEnd, Status

if TYPE_CHECKING:
    import socket

WRITTEN_AT = 1_000_000_000
_kernel_type: Any = None
_line: socket.socket | None = None  # by which the judge lends memory of a device
_unshared = False  # there is no /dev/shm, and little else of the machine's own file system (isolation level 1)


def serve(folder: str) -> int:
    """Answer the judge's messages until it says QUIT."""
    line = RunnerEnd(folder)
    # a rank has it from the first process, whose log is no file any more that could be asked where it stands
    if isinstance(sys.stdout, io.TextIOWrapper) and not sys.stdout.line_buffering:
        sys.stdout.reconfigure(line_buffering=True, errors="backslashreplace")  # its end comes without warning
    layouts: dict[int, values.Layout] = {}
    call: Any = None
    unpacked: Any = values.unpack  # what a call of this runner's does with its input before the submission sees it
    cache, blob = "", b""
    device: Any = None  # the runner's half of a GPU, where the judge lends one's memory
    words = line.words
    go, ping, awake, kind_at, size_at, layout_at, room_at = (
        0,
        runner_link.PING // 8,
        runner_link.AWAKE // 8,
        1,
        2,
        3,
        runner_link.OUT_SIZE // 8,
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
            unpacked(view)
            line.answer(token, Status.OK)
        elif kind == Kind.DECLARE:
            layouts[words[layout_at]] = values.layout_from(values.unpack(view))
            line.grow("out", words[room_at])
            line.answer(token, Status.OK)
        elif kind == Kind.HELLO:
            told = values.unpack(view)
            if told.get("native"):
                from . import compiled_kernel

                unpacked = compiled_kernel.flattened
            status, text = _hello(told, folder)
            if told.get("ranks", 1) > 1:
                from . import rank_processes

                return rank_processes.conduct(line, token, text, told, folder, serve)
            line.answer(token, status, text)
        elif kind == Kind.DEVICE_CALL:
            layout = layouts[words[layout_at]]
            status, text = _called(_begun(call, device), layout, view, line.grow("out", words[room_at]))
            line.answer(token, *_ended(device, line, status, text))
        elif kind == Kind.DEVICE_NULL:
            unpacked(view)
            device.begin()
            line.answer(token, *_ended(device, line, Status.OK, ""))
        elif kind == Kind.DEVICE:
            device, status, text = _lent(device, values.unpack(view))
            line.answer(token, status, text)
        elif kind == Kind.PROFILE:
            status, text = _profiled(call, values.unpack(view), line.grow("out", words[room_at]))
            line.answer(token, status, text)
        elif kind == Kind.LOAD:
            status, text, call, cache = _loaded(values.unpack(view), folder)
            line.answer(token, status, text)
        elif kind == Kind.BUILD:
            from kbslurm_eval.build import compiler

            told = values.unpack(view)
            cache = str(compiler.furnish(told, folder))
            line.answer(token, *compiler.compiled(told, cache))
        elif kind == Kind.COLLECT:
            from kbslurm_eval.build import compiler

            status, text, blob = compiler.collected(cache, values.unpack(view)["cap"])
            line.answer(token, status, text)
        elif kind == Kind.FETCH:
            line.grow("out", words[room_at])[: len(blob)] = blob
            line.answer(token, Status.OK)
        else:
            line.answer(token, Status.OK)
            return 0


def _called(call: Any, layout: values.Layout, view: memoryview, out: memoryview) -> tuple[int, str]:
    try:
        if type(call) is _kernel_type:  # compiled: it fills the places itself
            return call.answers_with(layout, view, out)  # type: ignore[no-any-return]
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


def _begun(call: Any, device: Any) -> Any:
    """The same call, with the device's first event right before it."""
    if type(call) is _kernel_type:
        call.before = device.begin
        return call
    return device.around(call)


def _ended(device: Any, line: RunnerEnd, status: int, text: str) -> tuple[int, str]:
    """The device is done; the claim of how long it took."""
    try:
        line.words[runner_link.CLAIM // 8] = device.end()
    except RuntimeError as error:
        return (status, text) if status != Status.OK else (Status.RAISED, _short(error))
    return status, text


def _lent(device: Any, told: dict[str, Any]) -> tuple[Any, int, str]:
    """The judge's device, and memory of its own that it lends; it was sent before this was asked."""
    from . import device_arrays

    try:
        if device is None:
            device = values.device_side = device_arrays.Side(told["kind"], told["uuid"])
        for name, size in told["maps"]:
            assert _line is not None
            device.map(name, device_arrays.received(_line), size)
    except (OSError, RuntimeError) as error:
        return device, Status.NO_DEVICE, str(error)
    return device, Status.OK, ""


def _profiled(call: Any, told: dict[str, Any], out: memoryview) -> tuple[int, str]:
    from . import profiling

    try:
        return Status.OK, profiling.traced(call, told, lambda: values.copied(told["input"]), out)
    except BaseException as error:  # noqa: BLE001 - the submission's, or the profiler's: either is told, no more
        return Status.RAISED, _short(error)


def _hello(told: dict[str, Any], folder: str) -> tuple[int, str]:
    """The cage as it is found from inside; in a container the runner puts on the inner part of it now."""
    from kbslurm_eval.cage import guard

    if told.get("lent"):
        from . import device_arrays

        global _line
        with contextlib.suppress(OSError):  # without it nothing can be lent, and the judge sees that
            _line = device_arrays.connected(folder)
    if told.get("supervised"):
        guard.caged_from_inside(told, folder)
    seen = guard.seen_from_inside()
    seen["open"] = guard.places_left_open(told.get("places") or ())
    if told.get("unshared"):
        from . import sharing

        global _unshared
        _unshared = True
        seen["signals"] = guard.signals_get_out()
        sharing.install(os.environ["TMPDIR"], signals=guard.may_signal_its_own())
    if "rank" in told:
        from . import rank_processes

        seen["interfaces"] = rank_processes.interfaces_up()
        if told.get("group"):
            try:
                rank_processes.join_group(rank=told["rank"], world=told["world"])
            except Exception as error:  # noqa: BLE001 - of whatever library; no submission is here yet
                return Status.BROKEN, f"rank {told['rank']} can't join the process group: {_short(error)}"
    return Status.OK, json.dumps(seen)


def _loaded(told: dict[str, Any], folder: str) -> tuple[int, str, Any, str]:
    cache = ""
    if told.get("place"):
        from kbslurm_eval.build import compiler

        cache = str(compiler.furnish(told, folder))
        if told["native"]:
            return *_loaded_library(compiler.library(folder, told["library"])), cache
    return *_imported(told), cache


def _loaded_library(path: str) -> tuple[int, str, Any]:
    from . import compiled_kernel

    global _kernel_type
    _kernel_type = compiled_kernel.Kernel
    try:
        return Status.OK, "", compiled_kernel.Kernel(path)
    except (OSError, AttributeError) as error:
        return Status.LOAD_RAISED, _short(error), None


def _imported(told: dict[str, Any]) -> tuple[int, str, Any]:
    entry, work = str(told["entry"]), _workplace(told.get("work"))
    for name, text in told["files"].items():
        _written(os.path.join(work, name), text)
    path = os.path.join(work, entry)
    _written(path, told["source"])
    sys.path.insert(0, work)
    os.chdir(work)
    name = os.path.splitext(entry)[0]
    if told.get("cpu_twin"):
        from kbslurm_eval.device import cuda_on_cpu

        cuda_on_cpu.install()
    if told.get("interpreted"):
        os.environ["TRITON_INTERPRET"] = "1"
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
        said = _short(error)
        if type(error) is ModuleNotFoundError and error.name == "triton":
            said = f"triton isn't installed where this is judged, and {entry} imports it"
        return Status.LOAD_RAISED, said, None
    names = [told["call"]] if isinstance(told["call"], str) else list(told["call"])
    for wanted in names:
        if not callable(getattr(module, wanted, None)):
            return Status.NO_ENTRY, f"{entry} defines no function {wanted}", None
    if isinstance(told["call"], str):
        return Status.OK, "", getattr(module, names[0])
    return Status.OK, "", _each([(wanted, getattr(module, wanted)) for wanted in names])


def _each(functions: list[tuple[str, Any]]) -> Any:
    """Several entry points as one call: each with its own part of the data, a tuple as its arguments."""

    def call(data: dict[str, Any]) -> dict[str, Any]:
        parts = ((name, function, data[name]) for name, function in functions)
        return {name: function(*part) if type(part) is tuple else function(part) for name, function, part in parts}

    return call


def _workplace(given: str | None) -> str:
    """A fresh folder: of the cage's own file system, or the one that the judge made for this launch and removes
    after it."""
    if given is not None:
        return given
    work = os.path.join(os.environ.get("TMPDIR", "/tmp"), f"work{os.environ.get('RANK', '')}")
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
    os.utime(path, (WRITTEN_AT, WRITTEN_AT))  # what was built of it before must not look older


def _why_refused(error: BaseException) -> str:
    if not _unshared:
        return ""
    from . import isolation_hints

    why = isolation_hints.said(error)
    return f" - {why}" if why else ""


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
        return f"{type(error).__name__}: {said}"[:2000] + where + _why_refused(error)
    except BaseException:  # noqa: BLE001 - an exception's own methods may be hostile
        return "an exception that can't be told"
