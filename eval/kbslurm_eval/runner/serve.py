"""The runner: the only process that ever imports a submission. Nothing that it says is believed; it is told nothing.

It holds no seed, no reference, no expected value, no clock and no key; it doesn't know which phase it is in or which
call is timed. Before the judge hands it the submission it says what kind of cage it is in: until then it is trusted
code.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import sys
import time

from kbslurm_eval.runner import call_hints, error_text, forked
from kbslurm_eval.runner.answer_places import AnswerPlaces, has_places
from kbslurm_eval.runner.error_text import one_line
from kbslurm_eval.runner.importing import import_submission, takes_out
from kbslurm_eval.shared import claimed_layout, layouts, runner_link, values
from kbslurm_eval.shared.runner_link import Kind, RunnerEnd, Status

TYPE_CHECKING = False  # a runner starts for each launch, and `typing` takes longer to import than all that is ours
if TYPE_CHECKING:
    import socket
    from typing import Any

WARM_UP = "kb_warm_up"
WARM_UP_MOST_NS, WARM_UP_TIMES = 2_000_000, 2  # what is free, and how often it may work longer than that in a launch
SPINS = range(256)
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")  # the first is everybody's
GO, AGAIN = runner_link.GO // 8, runner_link.AGAIN // 8
CALLS = (Kind.CALL, Kind.DEVICE_CALL)
_kernel_type: Any = None
_own: Any = None  # the submission's function as it was imported, whatever is put around it
_wants_out = _out_is_optional = False  # the submission asks for the place where its answer is read; it may go without
_warmed_too_long: dict[int, int] = {}  # how often `kb_warm_up` worked longer than is free, by calls of one kind
_warm_up: Any = None  # what it does with a call's arrays before the clock runs, when nothing of the input is in them
_here = memoryview(b"\1")  # begins with a 0 in children that the submission forked
_line: socket.socket | None = None  # by which the judge lends memory of a device


def serve(folder: str) -> int:
    """Answer the judge's messages until it says QUIT."""
    line = RunnerEnd(folder)
    global _here
    _here = forked.marked()
    # a rank has it from the first process, whose log is no file any more that could be asked where it stands
    if isinstance(sys.stdout, io.TextIOWrapper) and not sys.stdout.line_buffering:
        sys.stdout.reconfigure(line_buffering=True, errors="backslashreplace")  # its end comes without warning
    known: dict[int, AnswerPlaces] = {}
    call: Any = None
    native = False
    unpacked: Any = values.unpack  # what a call of this runner's does with its input before the submission sees it
    made_ahead: Any = values.made_ahead  # the same before anything is in the input's arrays
    texts: dict[int, tuple[Any, int]] = {}
    ahead: Any = None  # the next call's arrays, made before their contents are there
    cache, blob = "", b""
    device: Any = None  # the runner's half of a GPU, where the judge lends one's memory
    words = line.words
    again, ping, awake, kind_at, size_at, layout_at, room_at, ahead_at = (
        runner_link.AGAIN // 8,
        runner_link.PING // 8,
        runner_link.AWAKE // 8,
        runner_link.KIND // 8,
        runner_link.SIZE // 8,
        runner_link.LAYOUT // 8,
        runner_link.OUT_SIZE // 8,
        runner_link.AHEAD // 8,
    )
    last, last_ping, spins = 0, 0, 0
    called: tuple[bytes, int] | None = None  # what the last call was given, and its layout, where nobody knew before
    warm_fault = ""
    while True:
        if words[again] == last:
            spins += 1
            if words[ping] != last_ping:
                last_ping = words[ping]
                if words[ahead_at]:
                    told, places = texts[words[ahead_at]], _places(known, line) if words[layout_at] else None
                    fault = ""
                    if words[kind_at] in CALLS and _warms(words[ahead_at]):
                        warm = _Ahead(made_ahead, told, line, places)
                        fault = _warmed_up(warm, places, device, words[ahead_at])
                    ahead = _Ahead(made_ahead, told, line, places, fault)  # afresh: it may have changed the others
                elif called is not None and words[kind_at] == Kind.CALL:
                    head, number = called
                    warm_fault = _warmed_by_the_last(line, head, made_ahead, _placed(known, line, number), device)
                is_alone = ahead is not None and device is None  # there is nothing left to do but what it is rung for
                waits = is_alone and places is not None and _waits_itself(call, words, places, ahead)
                if not waits:  # otherwise it says so itself, when it is there
                    words[awake] = last_ping
                if is_alone:
                    if waits and places is not None:
                        last, status, text = call.served(words, last, places.layout, places.out, ahead.data)
                        is_answered, last_ping = status == Status.OK, words[awake]
                    else:
                        last, is_answered = _rung(words, last), False
                        status, text = (Status.OK, "") if places is None else _called(call, places, ahead.view, ahead)
                    if not is_answered:
                        line.answer(last, status, text)
                    ahead = None
            elif spins % 64 == 0:
                os.sched_yield()  # where cores are scarce the judge may be waiting for this one
            continue
        last = token = _token(words)
        kind, size = words[kind_at], words[size_at]
        view = line.grow("in", size)
        if kind == Kind.CALL:
            # before it is answered: what comes then may lie where this input does
            called = (values.head(view), words[layout_at]) if ahead is None and _warms() else None
            if warm_fault:
                status, text, warm_fault = Status.RAISED, warm_fault, ""
            else:
                status, text = _called(call, _places(known, line), view, ahead)
            line.answer(token, status, text)
            ahead = None
        elif kind == Kind.NULL:
            if ahead is None:
                unpacked(view, line.grow("out", words[room_at]))
            line.answer(token, Status.OK)
            ahead = None
        elif kind == Kind.DECLARE:
            told = values.unpack(view)
            known[words[layout_at]] = AnswerPlaces(
                layouts.layout_from(told), line.grow("out", words[room_at]), native=native
            )
            line.answer(token, Status.OK)
        elif kind == Kind.AHEAD:
            texts[words[ahead_at]] = values.told_ahead(bytes(view[:size]))
            line.answer(token, Status.OK)
        elif kind == Kind.HELLO:
            told = values.unpack(view)
            native = bool(told.get("native"))
            if native:
                from kbslurm_eval.runner import compiled_kernel

                unpacked, made_ahead = compiled_kernel.flattened, compiled_kernel.flattened_ahead
            status, text = _hello(told, folder)
            if told.get("ranks", 1) > 1:
                from kbslurm_eval.runner import rank_processes

                return rank_processes.serve_ranks(line, token, text, told, folder, serve)
            line.answer(token, status, text)
        elif kind == Kind.DEVICE_CALL:
            status, text = _called(_begun(call, device), _places(known, line), view, ahead)
            line.answer(token, *_ended(device, line, status, text))
            ahead = None
        elif kind == Kind.DEVICE_NULL:
            unpacked(view, line.views["out"])
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
        elif kind == Kind.SCRIPT:
            from kbslurm_eval.runner import script

            line.answer(token, *script.run_script(values.unpack(view)))
        elif kind == Kind.BUILD:
            from kbslurm_eval.build import built_files, compiler

            told = values.unpack(view)
            cache = str(built_files.furnish(told, folder))
            line.answer(token, *compiler.compiled(told, cache))
        elif kind == Kind.COLLECT:
            from kbslurm_eval.build import built_files

            status, text, blob = built_files.collected(cache, values.unpack(view)["cap"])
            line.answer(token, status, text)
        elif kind == Kind.FETCH:
            line.grow("out", words[room_at])[: len(blob)] = blob
            line.answer(token, Status.OK)
        else:
            line.answer(token, Status.OK)
            return 0


def _waits_itself(call: Any, words: memoryview, places: AnswerPlaces, ahead: _Ahead) -> bool:
    """Whether the next message is a call of compiled code, which then waits for its token and answers it: whoever takes
    the place of this loop would be spared the way through it."""
    if ahead.fault or words[runner_link.KIND // 8] != Kind.CALL or type(call) is not _kernel_type:
        return False
    return bool(call.serves(places.layout, places.out))


def _rung(words: memoryview, last: int) -> int:
    """The next token."""
    while True:
        for _ in SPINS:
            if words[AGAIN] != last:
                return _token(words)
        os.sched_yield()  # where cores are scarce the judge may be waiting for this one


def _token(words: memoryview) -> int:
    """The token that has begun to stand there, once all of its bytes do."""
    while True:
        again, token = words[AGAIN], words[GO]  # in this order
        if token == again:
            return token


class _Ahead:
    """One call's arrays over the link's memory, and where its answer belongs if the submission asks for that."""

    __slots__ = ("data", "fault", "given", "view")

    def __init__(
        self, made: Any, text: tuple[Any, int], line: RunnerEnd, places: AnswerPlaces | None, fault: str = ""
    ) -> None:
        self.fault = fault
        self.view = line.grow("in", line.words[runner_link.SIZE // 8])
        self.data = made(text, self.view, line.grow("out", line.words[runner_link.OUT_SIZE // 8]))
        self.given = places.given() if _wants_out and places is not None else None

    def value(self) -> Any:
        """What the submission is given: with the single numbers that are there by now."""
        return self.data.whole() if type(self.data) is values.Late else self.data


def _warms(kind: int = 0) -> bool:
    """Whether it has a `kb_warm_up` that is called before calls of this kind."""
    return _warm_up is not None and _warmed_too_long.get(kind, 0) < WARM_UP_TIMES


def _warmed_up(ahead: _Ahead, places: AnswerPlaces | None, device: Any, kind: int = 0) -> str:
    """Everybody may do before the clock runs what a submission that replaces this runner does anyway: bring its code
    and its tables into the caches, and clear its tables, on a device too. What went wrong with it, or nothing."""
    try:
        began, worked = time.perf_counter_ns(), time.process_time_ns()
        fault = _warm_up(ahead, places)
        if device is not None:
            device.finish()
        else:
            _see_how_long(kind, min(time.perf_counter_ns() - began, time.process_time_ns() - worked))
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is the submission's
        forked.end_if_child(error)
        fault = one_line(error)
    if not _here[0]:
        forked.end()
    return f"{WARM_UP}: {fault}" if fault else ""


def _see_how_long(kind: int, worked_ns: int) -> None:
    """What works longer than is free makes each call longer, and what kernels of milliseconds find in the caches hardly
    shows: it isn't called any more before calls of this kind. Before those that count it is called twice, and whatever
    it makes once for each kind it makes in the first of these."""
    if worked_ns <= WARM_UP_MOST_NS:
        return
    _warmed_too_long[kind] = _warmed_too_long.get(kind, 0) + 1
    if not _warms(kind):
        took = f"{worked_ns / 1e6:.1f} ms, of which 2 are free"
        print(f"{WARM_UP} takes {took}: in this process it isn't called any more before calls of this kind")


def _warmed_by_the_last(line: RunnerEnd, head: bytes, made_ahead: Any, places: AnswerPlaces, device: Any) -> str:
    """The same where an input is told only with its call (a length is drawn, say): with what the call before was given,
    whatever lies there now. Whoever waits in this runner's place has this moment, too."""
    told = values.told_ahead(head)
    return _warmed_up(_Ahead(made_ahead, told, line, places), places, device)


def _warming(call: Any, module: Any) -> Any:
    """What calls the submission's `kb_warm_up` with a call's arrays and the answer's places; None if it has none."""
    if type(call) is _kernel_type:
        if not call.warms:
            return None
        return lambda ahead, places: "" if places is None else call.warmed_up(places.layout, places.out, ahead.data)
    own = getattr(module, WARM_UP, None)
    if not callable(own):
        return None

    takes, is_optional = takes_out(own)  # of several entry points some may ask for it, and this not

    def warm_up(ahead: _Ahead, places: AnswerPlaces | None) -> str:
        given = (ahead.given if _wants_out or places is None else places.given()) if takes else None
        if takes and not (is_optional and not has_places(given)):
            own(ahead.value(), out=given)
        else:
            own(ahead.value())
        return ""

    return warm_up


def _places(known: dict[int, AnswerPlaces], line: RunnerEnd) -> AnswerPlaces:
    """The places of the layout that this message names."""
    line.grow("out", line.words[runner_link.OUT_SIZE // 8])
    return _placed(known, line, line.words[runner_link.LAYOUT // 8])


def _placed(known: dict[int, AnswerPlaces], line: RunnerEnd, number: int) -> AnswerPlaces:
    """The places of this layout; made anew where the output was mapped anew."""
    places, out = known[number], line.views["out"]
    if places.out is not out:
        places = known[number] = AnswerPlaces(places.layout, out, native=places.native)
    return places


def _called(call: Any, places: AnswerPlaces, view: memoryview, ahead: _Ahead | None = None) -> tuple[int, str]:
    found = given = data = None
    if ahead is not None and ahead.fault:
        return Status.RAISED, ahead.fault
    try:
        if type(call) is _kernel_type:  # compiled: it fills the places itself
            return call.answers_with(places.layout, view, places.out, ahead and ahead.data)  # type: ignore[no-any-return]
        data = values.unpack(view, places.out) if ahead is None else ahead.value()
        if _wants_out:
            given = places.given() if ahead is None else ahead.given
            # without arrays there is no place, and a default of its own holds
            found = call(data) if _out_is_optional and not has_places(given) else call(data, out=given)
        else:
            found = call(data)
        if not _here[0]:
            forked.end()
        places.write(found, given)
    except layouts.Misfit as misfit:
        hint = call_hints.unfit(str(misfit), found)
        return (Status.WRONG_SHAPE if misfit.shape else Status.WRONG_TYPE), claimed_layout.with_claim(
            f"{misfit} - {hint}" if hint else str(misfit), found
        )
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is the submission's
        forked.end_if_child(error)
        if isinstance(error, MemoryError):
            return Status.MEMORY, "MemoryError"
        if isinstance(error, SystemExit | KeyboardInterrupt):
            return Status.ENDED, f"{type(error).__name__}: {error}"
        hint = "" if _own is None else call_hints.failed(error, _own, data, is_ours=error_text.is_ours)
        return Status.RAISED, one_line(error, hint=hint)
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
        return (status, text) if status != Status.OK else (Status.RAISED, one_line(error))
    return status, text


def _lent(device: Any, told: dict[str, Any]) -> tuple[Any, int, str]:
    """The judge's device, and memory of its own that it lends; it was sent before this was asked."""
    from kbslurm_eval.runner import device_arrays

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
    from kbslurm_eval.runner import profiling

    try:
        layout = layouts.layout_from(told["layout"])
        room = memoryview(bytearray(layout.size))
        if type(call) is _kernel_type:
            own = functools.partial(_compiled_call, call, layout, room)
            return Status.OK, profiling.traced(own, told, lambda: memoryview(bytearray(told["input"])), out)
        given = layout.places(room) if _wants_out else None
        if _wants_out and (not _out_is_optional or has_places(given)):
            call = functools.partial(call, out=given)
        return Status.OK, profiling.traced(call, told, lambda: values.copied(told["input"]), out)
    except BaseException as error:  # noqa: BLE001 - the submission's, or the profiler's: either is told, no more
        forked.end_if_child(error)
        return Status.RAISED, one_line(error)


def _compiled_call(kernel: Any, layout: layouts.Layout, room: memoryview, view: memoryview) -> None:
    status, text = kernel.answers_with(layout, view, room)
    if status != Status.OK:
        raise RuntimeError(text)


def _hello(told: dict[str, Any], folder: str) -> tuple[int, str]:
    """The cage as it is found from inside; in a container the runner puts on the inner part of it now."""
    from kbslurm_eval.cage import seen_inside

    if told.get("threads") and not any(name in os.environ for name in THREADS):
        os.environ[THREADS[0]] = str(told["threads"])
    if told.get("lent"):
        from kbslurm_eval.runner import device_arrays

        global _line
        with contextlib.suppress(OSError):  # without it nothing can be lent, and the judge sees that
            _line = device_arrays.connected(folder)
    if told.get("supervised"):
        from kbslurm_eval.cage import in_container

        if told.get("profiled"):  # a profiler speaks TCP with its target, which may be only where nobody else is
            from kbslurm_eval.runner import rank_processes

            told = {**told, "inet": rank_processes.interfaces_up() == ["lo"]}
        in_container.put_on_inner_cage(told, folder)
    seen = seen_inside.seen_from_inside()
    seen["open"] = seen_inside.places_left_open(told.get("places") or ())
    seen["open_devices"] = seen_inside.devices_left_open()
    if told.get("supervised"):
        seen["open_node"] = seen_inside.node_left_open(folder)
    if told.get("unshared"):
        from kbslurm_eval.runner import sharing

        error_text.unshared = True
        seen["signals"] = seen_inside.signals_get_out()
        sharing.install(os.environ["TMPDIR"], signals=seen_inside.may_signal_its_own())
    if "rank" in told:
        from kbslurm_eval.runner import rank_processes
        from kbslurm_eval.shared import process_group

        seen["interfaces"] = rank_processes.interfaces_up()
        if told.get("group"):
            try:
                process_group.join_group(rank=told["rank"], world=told["world"])
            except Exception as error:  # noqa: BLE001 - of whatever library; no submission is here yet
                return Status.BROKEN, f"rank {told['rank']} can't join the process group: {one_line(error)}"
    return Status.OK, json.dumps(seen)


def _loaded(told: dict[str, Any], folder: str) -> tuple[int, str, Any, str]:
    cache = ""
    if told.get("place"):
        from kbslurm_eval.build import built_files

        cache = str(built_files.furnish(told, folder))
    global _own, _wants_out, _out_is_optional, _warm_up
    if told.get("place") and told["native"]:
        status, text, call = _loaded_library(built_files.library(folder, told["library"]))
        module = None
    else:
        status, text, call = import_submission(told)
        _own = call
        _wants_out, _out_is_optional = takes_out(call)
        module = sys.modules.get(os.path.splitext(str(told["entry"]))[0])
    _warm_up = _warming(call, module)
    if not _here[0]:
        forked.end()
    return status, text, call, cache


def _loaded_library(path: str) -> tuple[int, str, Any]:
    from kbslurm_eval.runner import compiled_kernel

    global _kernel_type
    _kernel_type = compiled_kernel.Kernel
    try:
        return Status.OK, "", compiled_kernel.Kernel(path)
    except (OSError, AttributeError) as error:
        return Status.LOAD_RAISED, one_line(error), None
