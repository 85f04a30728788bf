"""A GPU in a run: the judge owns the memory that inputs and outputs lie in, and lends it to the runner.

The judge allocates, fills from its own layout, exports each piece as a file descriptor (SCM_RIGHTS over the launch's
socket, on which it never reads) and looks at its own mapping afterwards; the runner maps the same memory. So nothing
that a submission says of an output counts, only what stands in memory that the judge holds.

Three things differ from a call on a CPU. Work on a device goes on while its process is stopped: therefore an input is
staged in memory that nobody else has, and is moved to the lent one by a copy on the device when the clock has started;
the clock ends when the judge's own look at the output is back, so that whatever had to be waited for is in the time;
and after every call the device must come to rest before anything else happens. Null calls go the same way.

Where the device belongs to one process only (exclusive mode), or memory can't be exported, a call's arrays travel
through the link and the runner copies them itself: the run is flagged HOST_COPIES. In exclusive mode the judge makes no
context at all, the reference runs on the CPU, and answers are checked from their copies when the runner has ended.
"""

from __future__ import annotations

import contextlib
import os
import random
import socket
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kbslurm_eval.cage.runners import CantStart, Runners
from kbslurm_eval.device import call_parts, driver
from kbslurm_eval.judge import builds
from kbslurm_eval.judge.device_memory import Piece
from kbslurm_eval.judge.first_look import END_SHARE, PROBE_SIZE, PROBES, SMALL_OUTPUT, places_in, seen_in
from kbslurm_eval.judge.heartbeat import Heartbeat
from kbslurm_eval.judge.launch import LATE_CAP, Allowance, Launch, takes_its_link
from kbslurm_eval.judge.reference import Prepared
from kbslurm_eval.judge.replies import Rejected, Reply
from kbslurm_eval.judge.run_device import RunDevice
from kbslurm_eval.shared import layouts, runner_link, timing, values
from kbslurm_eval.shared.runner_link import Kind, Status
from kbslurm_eval.shared.wire import Manifest, PhaseName

LOOKS, REST_S = 5, 2.0
SMALL_COPY = 4096
POISON = 1 << 16
MOST_AHEAD = 64  # so many kinds of calls are known to a runner before they come
MOST_PIECES = 4  # each of them is a command of its own
MOST_PITCH = (1 << 31) - 1
LEAST_FREE = 512 << 20  # of the device's memory; a fiftieth where that is less
_DICE = random.SystemRandom()


@dataclass(kw_only=True)
class _LentMemory:
    """A launch's device memory: what was lent to it."""

    input: driver.Memory | None = None
    output: driver.Memory | None = None
    scratch: driver.Memory | None = None  # never lent
    old: list[driver.Memory] = field(default_factory=list)

    def all(self) -> list[driver.Memory]:
        """All its pieces."""
        return [*self.old, *(m for m in (self.input, self.output, self.scratch) if m is not None)]


@dataclass(frozen=True, kw_only=True)
class Sources:
    """Where the judge has an input on the device: of what was made there, and, behind it, of what the host had. `laid`:
    what of it belongs into the output instead (where in the input, where in the output, how much)."""

    image: Piece | None
    staged: Piece | None
    away: int
    size: int
    laid: Sequence[tuple[int, int, int]] = ()

    def copies(self, into: int, out: int) -> list[tuple[int, int, int]]:
        """What is to be copied when the clock has started: to where, from where, how much. One piece where nothing is
        left out."""
        gone = sorted((at, at + size) for at, _, size in self.laid)
        found = []
        for low, high, piece in ((0, self.away, self.image), (self.away, self.size, self.staged)):
            if piece is None:
                continue
            at = low
            for begin, end in [*((b, e) for b, e in gone if low <= b < high), (high, high)]:
                found.append((into + at, piece.at + at - low, begin - at))
                at = end
            found += [(out + to, piece.at + at - low, size) for at, to, size in self.laid if low <= at < high]
        return [one for one in found if one[2]]


@dataclass(frozen=True, kw_only=True)
class _SplitCall:
    """One call, split in two."""

    payload: bytes
    in_size: int
    layout: layouts.Layout
    placed: call_parts.SplitLayout
    sources: Sources | None = None

    @property
    def out_size(self) -> int:
        """The part of the output that is on the device."""
        return self.placed.size


class DeviceLaunch(Launch):
    """One runner that has been lent device memory."""

    def __init__(
        self,
        runners: Runners,
        allowance: Allowance,
        heartbeat: Heartbeat,
        built: builds.Built | None = None,
        *,
        run_device: RunDevice,
    ) -> None:
        self._run_device, self._lent, self._loaded = run_device, _LentMemory(), False
        self._ear: socket.socket | None = None
        self._line: socket.socket | None = None
        self._layouts: dict[str, call_parts.SplitLayout | None] = {}
        self._claims: dict[int, list[int]] = {}
        self._nothings: dict[int, bytes] = {}
        self._heads: set[bytes] = set()
        self._trips: dict[int, list[int]] = {}
        self._claims_made: list[int] = []
        self._calls = self._busy = self._busy_call = self._free_before = 0
        super().__init__(runners, allowance, heartbeat, built)
        try:
            self._meet()
        except BaseException:
            self.close()
            raise

    def _opened(self, folder: Path) -> None:
        self._ear = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        above = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._ear.bind(runner_link.lent_socket(str(folder), above))
        finally:
            os.close(above)
        (folder / runner_link.LENT).chmod(0o666)
        self._ear.listen(1)

    def _greeting(self, runners: Runners) -> dict[str, Any]:
        return {**super()._greeting(runners), "lent": True}

    def _meet(self) -> None:
        """The runner's end of the socket, and its device: nothing of the submission is there yet."""
        assert self._ear is not None
        self._ear.settimeout(1.0)
        try:
            self._line = self._ear.accept()[0]
            self._line.setblocking(False)
            self.runner.meets(self._line)
        except OSError:
            if self._run_device.shares:
                self._run_device.copies("the runner's cage lets no descriptor through")
        finally:
            self._ear.close()
            (self.runner.folder / runner_link.LENT).unlink(missing_ok=True)
        facts = self._run_device.facts
        reply = self.ring(Kind.DEVICE, values.pack({"kind": facts.kind, "uuid": facts.uuid, "maps": []}), limit_s=60.0)
        if reply.status != Status.OK:
            raise CantStart(f"a runner can't use the device: {reply.text}")
        if self._run_device.shares:
            free, whole = self._run_device.device().free_bytes()
            self._least = min(LEAST_FREE, whole // 50, free // 2)
            self._reserve()
            self._room(*self._run_device.sizes)

    def _reserve(self) -> None:
        """What the judge needs of the device's memory besides what it lends, before a submission could take it."""
        try:
            self._run_device.reserve()
            self._scratch(self._run_device.device())
        except driver.DriverError as error:
            raise self._failed(error) from None

    def load(self, manifest: Manifest) -> Reply:
        """Hand the submission over."""
        self._loaded = True
        if self._run_device.shares:
            self._free_before = self._run_device.device().free_bytes()[0]
        return super().load(manifest)

    # -------------------------------------------------------------------------------------------------- messages

    def call(self, prepared: Prepared) -> Reply:
        """One call of the submission."""
        told = self._call_of(prepared)
        if told is None:
            return super().call(prepared)
        self._calls += 1
        self.declare(told.placed.layout)
        if not self._run_device.shares:
            self._flush()
            return self.ring(Kind.CALL, told.payload, layout=told.placed.layout, late=self._is_late(told))
        return self._ring_there(Kind.DEVICE_CALL, told)

    def null(self, prepared: Prepared) -> int:
        """What is taken off a call's time: where memory is lent, only what the judge does by itself.

        A runner may have work on the device that waits for the input to change, and may answer before its work is done:
        then the way there and back costs it nothing, and taking it off would be a gift.
        """
        if (told := self._lent_call(prepared)) is None:
            return super().null(prepared)
        if not self._loaded:
            trip = self.round_trip(prepared)
            alone = self._alone(told)
            self._trips.setdefault(prepared.case.index, []).append(trip + self._copying(told.in_size))
            return alone
        return self._alone(told)

    def null_in_one_go(self, prepared: Prepared, group: int) -> int:
        """The same of calls that are made so many in one go: nothing of them is the runner's."""
        return super().null_in_one_go(prepared, group) if self._lent_call(prepared) is None else self.null(prepared)

    def round_trip(self, prepared: Prepared) -> int:
        """A call without the call."""
        return self._nothing_there(prepared, bare=False)

    def bare_null(self, prepared: Prepared) -> int:
        """The same, with the same number of bytes but nothing to decode."""
        told = self._lent_call(prepared)
        return self._nothing_there(prepared, bare=True) if told is None else self._alone(told)

    def _lent_call(self, prepared: Prepared) -> _SplitCall | None:
        """The call in its parts where its arrays are in lent memory."""
        told = self._call_of(prepared, bare=True)
        return told if self._run_device.shares else None

    def _alone(self, told: _SplitCall) -> int:
        """A copy that is too small to take time, to nowhere that a runner sees, and a look as at an output.

        As before a call, the device has just worked for this process. To change over from another one takes it longer
        than all of this (0.14 ms on an H200), and within a call that is the runner's, who could have it sooner.
        """
        device = self._run_device.device()
        scratch, out = self._scratch(device), 0 if self._lent.output is None else self._lent.output.at
        self._run_device.flush()
        device.touch(scratch)
        device.synchronize()
        began = time.perf_counter_ns()
        device.copy(scratch, scratch, min(told.in_size, SMALL_COPY))
        self._look_at(out, _strided(told.out_size))
        self._look_at_all(out, _in_pieces(told.placed))
        return time.perf_counter_ns() - began

    def _copying(self, size: int) -> int:
        """How long a copy of that size takes within the device, right after other work of this process's."""
        lent = self._lent.input
        half = 0 if lent is None else min(size, lent.size) // 2
        if lent is None or half < SMALL_COPY:
            return 0
        began = time.perf_counter_ns()
        self._run_device.device().copy(lent.at, lent.at + half, half)
        return (time.perf_counter_ns() - began) * size // half

    def _nothing_there(self, prepared: Prepared, *, bare: bool) -> int:
        told = self._call_of(prepared, bare=True)
        if told is None:
            return super().bare_null(prepared) if bare else super().round_trip(prepared)
        mark = "G" if self._run_device.shares else "H"
        payload = self._arrays_of(prepared, mark)
        if bare:
            payload = values.pack(None).ljust(len(payload), b"\0")
        if not self._run_device.shares:
            self._flush()
            self._link.room(told.placed.layout.size)
            reply = self.ring(Kind.NULL, payload, late=self._is_late(told), looked=told.placed.layout)
            self.null_took_ns = reply.ns
            return reply.ns
        nothing = _SplitCall(payload=payload, in_size=told.in_size, layout=told.layout, placed=told.placed)
        return self._ring_there(Kind.DEVICE_NULL, nothing).ns

    def _is_late(self, told: _SplitCall) -> bool:
        """Whether an input that travels through the link is written to a runner that is awake. Not where caches were
        flushed: whoever is awake could fill them again."""
        return max(len(told.payload), told.placed.layout.size) <= LATE_CAP and not self._run_device.flushed

    def _arrays_of(self, prepared: Prepared, mark: str) -> bytes:
        """What a null call carries: the arrays of an input, whatever they contain."""
        index = prepared.case.index
        if index not in self._nothings:
            whole, away = prepared.packed, prepared.away if mark == "G" else 0
            if call_parts.is_made_there(whole):  # what isn't an array is left out without looking at arrays
                whole = call_parts.arrays_only(whole if mark == "G" else _on_host(prepared))
            else:
                whole = values.pack(values.unpack(memoryview(whole)), arrays_only=True)
            found = call_parts.split_input(whole, self._run_device.choice, mark, away=away)
            self._nothings[index] = bytes(whole) if found is None else found.payload
        return self._nothings[index]

    def by_hand(self, prepared: Prepared) -> bytes:
        """The input for a call that isn't judged: the runner puts its arrays onto the device."""
        packed = _on_host(prepared)
        found = call_parts.split_input(packed, self._run_device.choice, "H")
        return bytes(packed) if found is None else found.payload

    def _call_of(self, prepared: Prepared, *, bare: bool = False) -> _SplitCall | None:
        """The call in its two parts, with the memory that it needs; None where nothing is the device's. `bare`: without
        what arrays contain."""
        mark, layout = "G" if self._run_device.shares else "H", prepared.layout
        packed, away = (prepared.packed, prepared.away) if mark == "G" else (_on_host(prepared), 0)
        found = call_parts.split_input(packed, self._run_device.choice, mark, away=away)
        text = layout.text()
        if text not in self._layouts:
            self._layouts[text] = call_parts.split_layout(layout, self._run_device.choice, mark)
        place = self._layouts[text]
        if found is None and place is None:
            return None
        size = 0 if found is None else found.size
        placed = place or call_parts.SplitLayout(layout=layout, pieces=(), size=0)
        if self._run_device.shares and not self._room(size, placed.size):
            self._layouts.clear()
            self._nothings.clear()
            return self._call_of(prepared, bare=bare)
        sources = None
        if found is not None and size and not bare:
            found, laid = call_parts.with_destinations(found, prepared.places, placed.pieces)
            staged = self._staged(prepared, found)
            sources = Sources(image=prepared.image, staged=staged, away=away, size=size, laid=laid)
        payload = bytes(packed) if found is None else found.payload
        return _SplitCall(payload=payload, in_size=size, layout=layout, placed=placed, sources=sources)

    def _staged(self, prepared: Prepared, found: call_parts.SplitInput) -> Piece | None:
        try:
            return self._run_device.staged(prepared, found)
        except driver.DriverError as error:
            raise self._failed(error) from None

    # ---------------------------------------------------------------------------------------------------- memory

    def _room(self, in_size: int, out_size: int) -> bool:
        """Lend at least this much memory. False if it can't be lent at all: from then on arrays are copied."""
        device, lent, line = self._run_device.device(), self._lent, self._line
        maps: list[list[Any]] = []
        assert line is not None
        try:
            for name, size in (("in", in_size), ("out", out_size)):
                held = lent.input if name == "in" else lent.output
                if size == 0 or (held is not None and held.size >= size):
                    continue
                fresh, fd = device.share(size)
                try:
                    lent.old += [] if held is None else [held]
                    if name == "in":
                        lent.input = fresh
                    else:
                        lent.output = fresh
                    device.cover(fresh.at, os.urandom(POISON), fresh.size)  # don't leak what was there before
                    socket.send_fds(line, [b"m"], [fd])
                finally:
                    os.close(fd)
                maps.append([name, fresh.size])
        except (driver.DriverError, OSError) as error:
            raise self._failed(error) from None
        if not maps:
            return True
        reply = self.ring(Kind.DEVICE, values.pack({"maps": maps}), limit_s=None if self._loaded else 60.0)
        if reply.status == Status.OK:
            return True
        if self._loaded:
            raise Rejected("error", f"the submission's process can't map its memory: {reply.text}")
        self._run_device.copies(f"the runner can't map the judge's memory: {reply.text}")
        return False

    def _failed(self, error: Exception) -> Exception:
        """Whose fault a failing device is: before the submission was loaded, the machine's."""
        if isinstance(error, driver.OutOfDeviceMemory):
            if not self._loaded:
                return CantStart("the device has too little memory free for this problem's arrays")
            return Rejected("memory", "the submission left too little of the device's memory free")
        if not self._loaded:
            return CantStart(f"the device can't be used: {error}")
        if isinstance(error, driver.Stuck):
            return Rejected("timeout", f"the device hangs: {error}", "the time limit was reached")
        return Rejected("error", f"the device failed: {error}", "the device failed")

    # ------------------------------------------------------------------------------------------------------ ring

    def _ring_there(self, kind: Kind, told: _SplitCall) -> Reply:
        """One message whose arrays are on the device."""
        try:
            return self._rung_there(kind, told)
        except driver.DriverError as error:
            raise self._failed(error) from None

    def practise(self, prepared: Prepared) -> None:
        """What it is told here is of other kinds."""

    def tell_ahead(self, prepared: Prepared) -> None:
        """Of calls that have nothing on the device. What the arrays of others are is told once two had the same."""
        if self._call_of(prepared, bare=True) is None:
            super().tell_ahead(prepared)

    def _known_ahead(self, payload: bytes) -> int:
        """The number of what this call's arrays are, for a runner that was told it. It is, from the second time on."""
        head = values.head(payload)
        if head in self._ahead:
            return self._ahead[head]
        if head not in self._heads:
            self._heads.add(head)
            return 0
        if len(self._ahead) < MOST_AHEAD and values.is_arrays(values.tree(head), native=self.is_native):
            return self._tell(head)
        return 0

    @takes_its_link
    def _rung_there(self, kind: Kind, told: _SplitCall) -> Reply:
        end, device, lent = self._link, self._run_device.device(), self._lent
        ahead = self._known_ahead(told.payload) if kind is Kind.DEVICE_CALL else 0
        host = told.placed.layout if kind is Kind.DEVICE_CALL else None
        host_size = host.size if host is not None else 0
        token = end.token().to_bytes(8, "little")
        number = self._ids.get(host.text(), 0) if host is not None else 0
        end.words(kind, size=len(told.payload), layout=number, out_size=host_size, ahead=ahead)
        end.reach(len(told.payload))
        if host_size:
            end.room(host_size)
        with self._theirs():
            slept_in_ns = self._make_ahead(kind) if ahead else 0
        if kind is Kind.DEVICE_CALL and not ahead:
            slept_in_ns = self._until_told()
        if host_size:
            end.poison(host_size)
        into = 0 if lent.input is None else lent.input.at
        out = 0 if lent.output is None else lent.output.at
        copies = [] if told.sources is None else told.sources.copies(into, out)
        if told.out_size and host is not None:
            device.cover(out, os.urandom(POISON), told.out_size)
        self._run_device.flush()  # the input is on the device by now, and the clock doesn't run yet
        device.synchronize()  # nothing of our own is left on it
        with self._theirs():  # and of the runner's nothing that waited for what was just written there
            slept_in_ns += self._idle() if kind is Kind.DEVICE_CALL else 0
        before_ns = time.perf_counter_ns()
        self._leave_its_core()
        end.put(told.payload)
        # nothing of the runner's is awake before the clock runs: it could put work onto the device that waits there
        start_ns = time.perf_counter_ns()
        device.copy_all(copies)
        end.go(token)
        self._go_on()
        try:
            self._answered(token, start_ns, self._allowance.left(start=self.starts))
            places = _strided(told.out_size)
            pieces = _in_pieces(told.placed)
            seen = self._look_at(out, places) + self._look_at_all(out, pieces)
            done_ns = time.perf_counter_ns()  # what the look had to wait for counts as time
            at_ends = _at_both_ends(told.out_size)
            seen_there = self._look_at(out, at_ends)
            first = seen_in(end.out, places_in(host))
            self._stop()
        finally:
            self._allowance.spend((time.perf_counter_ns() - before_ns) / 1e9, start=self.starts)
        with self._theirs():
            busy_ns = self._rest() if kind is Kind.DEVICE_CALL else 0
        ns = done_ns - start_ns + slept_in_ns + busy_ns
        if host is None:
            return self._collected(kind, token, 0, [], ns)
        there = self._taken_there(out, told.placed)
        # the bytes that the look saw, where they stand now
        now = b""
        if there is not None:
            now = self._look_at(there.at, places) + self._look_at_all(there.at, pieces)
            now += self._look_at(there.at, at_ends)
        if seen + seen_there != now:
            raise Rejected("violation", "the output was still being written after it was reported done")
        reply = self._collected(kind, token, host_size, first, ns)
        self._claims_made.append(end.claim() + slept_in_ns)  # it is of the call alone
        return replace(reply, layout=host, there=self._run_device.memory.answered(there))

    @takes_its_link
    def calls_in_one_go(self, prepared: Sequence[Prepared]) -> list[Reply] | None:
        """The same for arrays on the device; None also where not all of a call's are there."""
        told = [self._call_of(one) for one in prepared]
        first = told[0]
        if first is None:
            return super().calls_in_one_go(prepared)
        if not self._run_device.shares or self._run_device.flushed or first.placed.layout.size:
            return None
        calls = [one for one in told if one is not None and one.payload == first.payload]
        if len(calls) != len(prepared):
            return None
        self.declare(first.placed.layout)
        ahead = self._known_ahead(first.payload)
        if not ahead:
            return None
        try:
            number, size = self._ids[first.placed.layout.text()], len(first.payload)
            self._link.words(Kind.DEVICE_CALL, size=size, layout=number, out_size=0, ahead=ahead)
            self._link.put(first.payload)  # it says nothing that the runner wasn't told before
            return self._in_one_go(Kind.DEVICE_CALL, self._rung_awake_there, calls)
        except driver.DriverError as error:
            raise self._failed(error) from None

    def _rung_awake_there(self, told: _SplitCall) -> Reply:
        """One of several calls in one go. The answer that counts is what stands there when its look is back."""
        self._calls += 1
        end, device = self._link, self._run_device.device()
        into = 0 if self._lent.input is None else self._lent.input.at
        out = 0 if self._lent.output is None else self._lent.output.at
        copies = [] if told.sources is None else told.sources.copies(into, out)
        allowed_s, token = self._allowance.left(start=self.starts), end.token().to_bytes(8, "little")
        self._wake(allowed_s, awake=True)
        busy_ns = self._idle()
        device.cover(out, os.urandom(POISON), told.out_size)
        device.synchronize()
        busy_ns += self._idle()
        start_ns = time.perf_counter_ns()
        slept_in_ns = busy_ns + self._until_ready(start_ns - self._awake_from_ns - busy_ns, Kind.DEVICE_CALL)
        device.copy_all(copies)
        end.go(token)
        self._answered(token, start_ns, allowed_s)
        places, at_ends, pieces = _strided(told.out_size), _at_both_ends(told.out_size), _in_pieces(told.placed)
        seen = self._look_at(out, places) + self._look_at_all(out, pieces)
        self._awake_from_ns = time.perf_counter_ns()
        ns = self._awake_from_ns - start_ns + slept_in_ns
        there = self._taken_there(out, told.placed)
        now = b"" if there is None else self._look_at(there.at, places) + self._look_at_all(there.at, pieces)
        if seen != now or (there is not None and self._look_at(out, at_ends) != self._look_at(there.at, at_ends)):
            raise Rejected("violation", "the output was still being written after it was reported done")
        self._claims_made.append(end.claim() + slept_in_ns)  # it is of the call alone
        answered = self._run_device.memory.answered(there)
        return replace(self._said(token, ns, b""), layout=told.placed.layout, there=answered)

    def _taken_there(self, out: int, placed: call_parts.SplitLayout) -> Piece | None:
        """An answer's bytes on the device, in memory that nobody else has."""
        if not placed.pieces:
            return None
        piece = self._run_device.memory.room(max(placed.size, call_parts.ALIGN))
        self._run_device.device().copy(piece.at, out, placed.size)
        return piece

    def _flush(self) -> None:
        try:
            self._run_device.flush()
        except driver.DriverError as error:
            raise self._failed(error) from None

    def _look_at(self, out: int, places: tuple[int, int, int, int]) -> bytes:
        start, pitch, width, rows = places
        return self._run_device.device().gather(out + start, pitch, width, rows) if rows else b""

    def _look_at_all(self, out: int, pieces: Sequence[tuple[int, int]]) -> bytes:
        return b"".join(self._look_at(out, (at, width, width, 1)) for at, width in pieces)

    def _rest(self) -> int:
        """Check that the device is idle and that enough of its memory is free. How long it took to come to rest, where
        work was still on it: that belongs to the call, whatever it was good for."""
        run_device = self._run_device
        if not self._is_watched():
            return 0
        busy_ns = self._idle()
        device = run_device.device()
        free, _ = device.free_bytes()
        if free < self._least:  # what the judge keeps for later isn't the submission's
            run_device.memory.give_back()
            free, _ = device.free_bytes()
        if free < self._least:
            said = f"the submission left {free >> 20} MiB of the device's memory free; {self._least >> 20} MiB must be"
            raise Rejected("memory", said, "the submission used more of the device's memory than allowed")
        return busy_ns

    def _is_watched(self) -> bool:
        """Whether anything of this launch's was on the device, and it isn't the submission's alone."""
        return (self._lent.output or self._lent.input) is not None and self._run_device.shares

    def _idle(self) -> int:
        """The device has nothing to do when this returns. How long that took where it had."""
        if not self._is_watched():
            return 0
        run_device = self._run_device
        device = run_device.device()
        began = time.perf_counter_ns()
        scratch = self._scratch(device)
        if any(device.touch(scratch) <= run_device.idle_ns for _ in range(LOOKS)):
            return 0
        self._busy += self._busy_call != self._calls  # each call once
        self._busy_call = self._calls
        until = time.monotonic() + REST_S
        while device.touch(scratch) > run_device.idle_ns:
            if time.monotonic() > until:
                said = f"work of the submission was still on the device {REST_S:g} s after it was reported done"
                raise Rejected("violation", said)
        return time.perf_counter_ns() - began

    def _scratch(self, device: driver.Device) -> int:
        if self._lent.scratch is None:
            self._lent.scratch = device.allocate(POISON)
        return self._lent.scratch.at

    def hoard(self) -> Rejected | None:
        """The same of the device's memory: what becomes free when this runner ends was its own."""
        if (found := super().hoard()) is not None or not self._loaded or not self._run_device.shares:
            return found
        try:
            device = self._run_device.device()
            free, whole = device.free_bytes()
            self.runner.kill()
            held = device.free_bytes()[0] - free
        except (driver.DriverError, CantStart):
            return None
        if 2 * held <= self._free_before:
            return None
        said = f"the submission held {held >> 20} of the device's {whole >> 20} MiB, and other work on it failed"
        return Rejected("memory", said, "the submission used more of the device's memory than allowed")

    # ------------------------------------------------------------------------------------------------- witnesses

    def keep(self, index: int, back: int = 1) -> None:
        """The last call counts, or one that was made so many calls ago."""
        claim = self._claims_made[-back] if back <= len(self._claims_made) else 0
        self._claims.setdefault(index, []).append(claim)

    def take_back(self, counts: Mapping[int, int]) -> None:
        """Of each case, only so many of the calls that counted until now count."""
        for index, claims in self._claims.items():
            del claims[counts.get(index, 0) :]

    def witness(self, name: PhaseName, times: Mapping[int, timing.LaunchTimes]) -> None:
        """What the runner claims about its calls, next to what the judge saw."""
        if not self._run_device.shares:
            return
        for index, claims in self._claims.items():
            # a claim is of the device alone, so it is compared with a call's time less its whole round trip and the
            # judge's own copy of the input
            trips = self._trips.get(index) or times[index].trusted_null_ns
            paired = timing.net(replace(times[index], trusted_null_ns=trips, null_ns=[], bare_null_ns=[]))
            seen, said = statistics.median(paired.samples_ns), statistics.median(claims)
            agreed = timing.agrees(seen, said, paired.null_sd_ns, paired.null_ns)
            row = {"phase": name, "index": index, "claimed_ns": said, "judge_ns": seen, "agreed": agreed}
            row |= {"raw_ns": statistics.median(times[index].calls_ns), "trip_ns": paired.null_ns}
            self._run_device.times.append(row)

    def counted(self) -> None:
        """This launch was the submission's: its calls are in the report."""
        self._run_device.calls += self._calls
        self._run_device.busy += self._busy

    def close(self) -> str:
        """End it and take its memory back. Returns what it wrote."""
        for one in (self._ear, self._line):
            if one is not None:
                one.close()
        text = super().close()
        with contextlib.suppress(driver.DriverError, CantStart):
            for memory in self._lent.all():
                self._run_device.device().free(memory)
        self._lent = _LentMemory()
        return text


def _strided(size: int) -> tuple[int, int, int, int]:
    """Where the judge looks at an output at once: all of a small one; of a large one places at a random distance from a
    random one, so that one command brings them all. Start, distance, width, how many."""
    if size == 0:
        return 0, 0, 0, 0
    if size <= SMALL_OUTPUT:
        return 0, size, size, 1
    pitch = min(_DICE.randint(size // (2 * PROBES), size // PROBES), MOST_PITCH)
    room = size - pitch * (PROBES - 1) - PROBE_SIZE
    return _DICE.randint(0, max(0, room)), pitch, PROBE_SIZE, PROBES


def _in_pieces(placed: call_parts.SplitLayout) -> list[tuple[int, int]]:
    """Where the judge looks at each array of an output beside that: a small one may be what takes the time. Nowhere
    where there is one array alone. Where and how wide; of many arrays, at so many in each call."""
    if len(placed.pieces) < 2 or placed.size <= SMALL_OUTPUT:
        return []
    chosen = placed.pieces if len(placed.pieces) <= MOST_PIECES else _DICE.sample(placed.pieces, MOST_PIECES)
    found = []
    for _, size, at in chosen:
        width = min(size, PROBE_SIZE)
        found.append((at + _DICE.randrange(size - width + 1), width))
    _DICE.shuffle(found)
    return found


def _at_both_ends(size: int) -> tuple[int, int, int, int]:
    """A second look, at a place near each end of a large output, where work that is cut short is missing. Outside of
    the time."""
    if size <= SMALL_OUTPUT:
        return 0, 0, 0, 0
    reach = size // END_SHARE
    start, last = _DICE.randint(0, reach), size - PROBE_SIZE - _DICE.choice((0, _DICE.randint(0, reach)))
    return (start, last - start, PROBE_SIZE, 2) if last - start <= MOST_PITCH else (last, PROBE_SIZE, PROBE_SIZE, 1)


def _on_host(prepared: Prepared) -> bytes | memoryview:
    """The packed input with everything on the host; of one that only says what its arrays are, nothing in them."""
    if prepared.image is not None:
        return prepared.image.hosted(prepared.packed)
    if not prepared.away:
        return prepared.packed
    return call_parts.hosted(prepared.packed, lambda node: bytes(call_parts.packed_size(node)))
