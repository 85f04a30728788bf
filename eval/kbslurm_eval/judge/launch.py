"""One runner and the judge's conversation with it, call by call, by the judge's own clock."""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import os
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from kbslurm_eval.cage import core_warmer
from kbslurm_eval.cage.runners import TOO_MUCH, Runner, Runners, Unstoppable
from kbslurm_eval.judge import builds, machine
from kbslurm_eval.judge.buffers import BUFFERS
from kbslurm_eval.judge.first_look import places_in, seen_in
from kbslurm_eval.judge.heartbeat import Heartbeat
from kbslurm_eval.judge.reference import NULL_WHOLE_CAP, Prepared, ProblemTrouble
from kbslurm_eval.judge.replies import Rejected, Reply, gone, with_last_line
from kbslurm_eval.shared import bundle, destinations, layouts, remove_tree, runner_link, timing, values
from kbslurm_eval.shared.runner_link import JudgeEnd, Kind, Status
from kbslurm_eval.shared.wire import (
    Manifest,
    PhaseName,
)

# An input up to this size is written within the timed window, to a runner that is already awake. Not where its answer
# is larger than this: what lies in its place is overwritten before the call, and who is awake could write it again.
LATE_CAP = 32_768
# the threads of a BLAS turn for some 30 ms once they were started
REST_MOST_S, REST_LOOK_S, REST_LOOKS = 0.2, 0.002, 3
REST_TIMES = 5  # as long where others have the cores
SETTLED, SETTLE_LEAST_S, SETTLE_MOST_S = 6, 0.06, 0.5  # so many null calls in a row are alike, and when that is asked
SPIN_NS = 400_000
LOOK_NS, LOOK_AGAIN_NS = 1_000_000, 2_000_000  # when it is first seen while one waits whether it is there, and again
BEAT_NS = 3_000_000_000  # from when on the heartbeat goes on meanwhile
WEIGH_TIMES, WEIGH_MOST_NS = 50, 250_000_000  # of what it took last, until what it holds is looked at, and at most
SLEEP_LEAST_S, UNHURRIED_LEAST_S = 5e-6, 5e-4
# no clock stops when these are answered, and a judge that spins meanwhile keeps others from a core
UNHURRIED = frozenset({Kind.HELLO, Kind.LOAD, Kind.BUILD, Kind.COLLECT, Kind.PROFILE})
TURN_NS = 500  # between two looks for an answer
# a runner may take this many times its usual time to be ready, and so long in any case
# a guide for competitors names half of what is free
WAKES_FREE, WAKE_FREE_NS, WAKE_MOST_NS = 8, 2_000_000, 5_000_000
# what a runner is told between calls, and how much time that may take where it isn't woken before the call anyway
TELLS, TELLS_FREE, TELL_FREE_NS, TELLS_SEEN = frozenset({Kind.DECLARE, Kind.AHEAD, Kind.DEVICE}), 3, 100_000, 5
# what it works meanwhile and in a null call, of a processor's time: there is nothing to warm up for
WORKS_FREE, WORK_FREE_NS = 2, 40_000
STOPS_FREE, STOP_FREE_NS = 4, 100_000  # the same of the time that its threads work until they have stopped
LATE = (
    "before {late} of {asked} calls it took longer than {free} ms to be ready, and what was beyond that counts"
    " (`kb_warm_up` is free for a millisecond)"
)
STAYED = (
    "after {late} of {asked} calls it took longer than {free} ms until all its threads had stopped, and what was beyond"
    " that counts (was memory given back or cleared after the answer, or do threads still work?)"
)
ASKED_TWICE = (
    "{} calls were made twice, and both times count: what kind of answer it is, and how long, was known only after the"
    " first (an answer of the reference's own kind is asked for once)"
)
OWN_TASKS = 8  # of a cage's and a runner's own, at most
CROWDED = "it had {} processes and threads, and may have {}"
TAKEN_LEAST = 8 << 20  # whoever has put more bytes than this into the links' memory, large pages' rest aside, took it
LATE_TOLD = 8  # of fewer calls it isn't told how long they took to be ready
START_S = 60.0
PIECE, PIECES = 4096, 16  # what is read of an output at once, and in how many pieces at most, where nobody is stopped
_DICE = random.SystemRandom()
_Call = TypeVar("_Call")
_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")


def takes_its_link(method: Callable[Concatenate[Any, _Given], _Result]) -> Callable[Concatenate[Any, _Given], _Result]:
    """Where there is no room for the link's files, it is the submission that took it, if that can be seen; otherwise
    there is too little for this problem, or somebody else has it."""

    @functools.wraps(method)
    def guarded(self: Any, /, *args: _Given.args, **named: _Given.kwargs) -> _Result:
        try:
            return method(self, *args, **named)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            raise self.without_room() from None

    return guarded


class Patience:
    """How long a runner may take to be ready for a message, or to stop after one, before that counts as part of the
    call.

    Far more than before it had the submission is work that it does while the clock doesn't run: on what the next calls
    have in common, on caches that the baseline then finds cold, or in the kernel, which no signal ends.
    """

    def __init__(self, free_ns: int = WAKE_FREE_NS, times: int = WAKES_FREE, *, unseen_ns: int = 0) -> None:
        self._least_ns, self._times = free_ns, times
        self._unseen_ns = unseen_ns  # what is usual where nothing was seen
        self._seen = list[int]()
        self._free_ns: float | None = None
        self.asked = self.late = 0  # since the submission came

    def end(self) -> None:
        """The submission comes: from here on it is as long as what was seen allows."""
        usual = statistics.median(self._seen) if self._seen else self._unseen_ns
        self._free_ns = min(max(self._least_ns, self._times * usual), WAKE_MOST_NS)

    def counts(self, took_ns: int) -> int:
        """What of this time counts: what is beyond the free part."""
        if self._free_ns is None:
            self._seen.append(took_ns)
            return 0
        beyond_ns = max(0, took_ns - int(self._free_ns))
        self.asked, self.late = self.asked + 1, self.late + (beyond_ns > 0)
        return beyond_ns

    def told(self, sentence: str) -> str:
        """A remark for the author where it was too long again and again; empty otherwise."""
        if self._free_ns is None or self.asked < LATE_TOLD or 4 * self.late < self.asked:
            return ""
        return sentence.format(late=self.late, asked=self.asked, free=f"{self._free_ns / 1e6:.1f}".removesuffix(".0"))


def threads_for(ranks: int) -> int:
    """How many threads a library in each of these has unless it is told otherwise: one core is the judge's, which else
    sees an answer some milliseconds late where threads turn for a while after their work."""
    return max(1, (machine.cores() - 1) // ranks)


@dataclass(frozen=True, kw_only=True)
class _ShortCall:
    """What one of several calls in one go brings, how large its answer is, and how much is copied of it in its time."""

    whole: bytes
    laid: Sequence[tuple[int, memoryview]]
    out_size: int
    copied: int
    null: bool = False


@dataclass(kw_only=True)
class Allowance:
    """A phase's time budget: only time spent in the runner counts, not the judge's own work. What launches need before
    they are timed has a budget of its own, where there is one: loading the submission, and each case's first call."""

    left_s: float
    whole_s: float
    starts_left_s: float | None = None
    starts_s: float = 0.0  # what of that is gone
    cleanup_s: float = 0.0  # the submission's costs outside of calls: ending its processes, removing what they left

    @property
    def theirs_s(self) -> float:
        """All time spent because of the submission."""
        return self.whole_s - self.left_s + self.starts_s + self.cleanup_s

    def left(self, *, start: bool) -> float:
        """What is left for a message; `start`: for one that a launch needs before it is timed."""
        return self.starts_left_s if start and self.starts_left_s is not None else self.left_s

    def spend(self, seconds: float, *, start: bool = False) -> None:
        """Subtract this from what is left."""
        if start and self.starts_left_s is not None:
            self.starts_left_s -= seconds
            self.starts_s += seconds
        else:
            self.left_s -= seconds


class Launch:
    """One runner and the judge's conversation with it. Outside of `ring` every process of the runner is stopped."""

    starts = True  # what is asked now is needed before this launch is timed
    awake = 1  # so many threads turn while they wait for the next message
    has_submission = False
    _open_ns = 0  # for how long a null call's input lay in the runner's reach before its token was there
    _close_ns = 0  # and how long its answer wasn't looked at after it was seen to be there
    _weighed_at_ns = 0  # when what it holds was looked at last
    _weighing_ns = 0  # and how long that took
    _looking_ns = 0  # the same when it last went on meanwhile, and each of its threads was looked at anew
    asked_twice = 0  # calls whose answer's layout wasn't known before
    is_known_input = False  # whether the next call has the input of the one before: nothing before it is free then
    # how long it took since the call before to take in what the next one needs, and for how long of that it had a core
    _told_ns = _told_work_ns = 0

    def __init__(
        self, runners: Runners, allowance: Allowance, heartbeat: Heartbeat, built: builds.Built | None = None
    ) -> None:
        self._allowance, self._heartbeat, self._built = allowance, heartbeat, built
        # where the kernel counts a user's, all submissions' that are there, so that it lets each have more
        self._tasks_most = runners.processes if runners.beside else 0
        folder = runners.prepare()
        self._link = JudgeEnd(folder)
        if built is not None:
            built.lay(folder)
        self._opened(folder)
        place = built.cache(folder) if built is not None and runners.bare else None
        self.runner: Runner = runners.start(folder, place)
        self._ids: dict[str, int] = {}
        self.granted: dict[tuple[int, str], layouts.Layout] = {}  # what this submission's outputs are instead
        # by case, the last of these, and what it is in the place of: other lengths may be drawn for the next call
        self.forms: dict[int, tuple[layouts.Layout, layouts.Layout]] = {}
        self._late_cases: dict[int, bool] = {}
        self.claimed_bytes = 0  # how much larger than asked for, at most
        self.one_by_one = set[int]()  # the cases in which they are too large for several calls in one go
        self.uncounted_ns: dict[int, list[int]] = {}  # by case, how long calls took that don't count
        self.uncounted_alone_ns: dict[int, list[int]] = {}  # those of them that nobody else's calls came before
        self.nulls_ns: dict[int, list[int]] = {}  # and how much longer null calls took than before the submission came
        self.null_took_ns = 0  # the last one, or all of them that were made in one go
        self._awake_from_ns = 0  # in one go: since when it has nothing to do
        self._ahead: dict[bytes, int] = {}
        self._laid_numbers: dict[int, list[tuple[int, bytes]]] = {}  # what a warm-up finds where numbers come late
        self._last = bytes(8)
        self._warmer = runners.warmer
        self._core: int | None = None
        self._turns: list[tuple[int, int]] = []  # how much it had written when the calls of another case came
        self.wrote: list[tuple[int | None, str]] = []
        self._waking, self._stopping = Patience(), Patience(STOP_FREE_NS, STOPS_FREE)
        self._telling = Patience(TELL_FREE_NS, TELLS_FREE, unseen_ns=TELL_FREE_NS)
        self._telling_work = Patience(WORK_FREE_NS, WORKS_FREE, unseen_ns=WAKE_MOST_NS)
        self._null_work: dict[int, Patience] = {}  # by case
        self._beyond_ns = 0  # what counts of the time that it took to stop last
        self._rest_left_s = REST_MOST_S
        try:
            hello = self.ring(Kind.HELLO, values.pack(self._greeting(runners)), limit_s=START_S)
            if hello.status != Status.OK:
                raise Rejected("error", hello.text)
        except Rejected as fault:
            fault.said = with_last_line(fault.said, self.close())
            raise
        except BaseException:
            self.close()
            raise
        self.seen: dict[str, Any] = _plain_dict(hello.text)
        self.seen["furnished"] = self.runner.furnished
        self.seen["outer_pid"] = self.runner.pid

    @property
    def is_native(self) -> bool:
        """Whether what it calls is compiled code that is given addresses."""
        return self._built is not None and self._built.native

    @property
    def leeway_ns(self) -> int:
        """How much of a call's work could be hidden from the clock, as the last null call showed: whoever watches for
        the input begins when its first bytes are there, whoever says "done" too early still writes until the judge
        looks, and whoever takes the place of a runner's loop in Python saves that. Compiled code waits for its token
        itself."""
        return self._open_ns + self._close_ns + TURN_NS + (0 if self.is_native else round(timing.LOOP_NS))

    def facts(self) -> dict[str, Any]:
        """What a report says about launches of this kind."""
        return {}

    def _opened(self, folder: Path) -> None:
        """Put whatever else is needed into the launch's folder before its runner starts."""

    def _greeting(self, runners: Runners) -> dict[str, Any]:
        return {**runners.hello(), "native": self.is_native, "threads": threads_for(1)}

    @takes_its_link
    def ring(
        self,
        kind: Kind,
        payload: bytes | destinations.Payload,
        *,
        layout: layouts.Layout | None = None,
        late: bool = False,
        ahead: int = 0,
        copied: int = 0,
        looked: layouts.Layout | None = None,
        limit_s: float | None = None,
    ) -> Reply:
        """One message and its answer; the time between counts from the moment at which the runner could know the
        input, or, without a call in between, from its token. It ends when the answer has been looked at: whoever says
        "done" too early works in its own time. `ahead`: the text that says what its arrays are, where the runner was
        told it before. `copied`: so much of the answer, or all of it, is copied before the time ends. `looked`: what
        an answer is that is looked at although there is none."""
        out_size = layout.size if layout is not None else 0
        looks = [] if copied else places_in(layout or looked)
        end = self._link
        told = destinations.Payload(parts=((0, payload),), size=len(payload)) if type(payload) is bytes else payload
        assert isinstance(told, destinations.Payload)
        whole = told.joined() if late else b""
        token = end.token().to_bytes(8, "little")
        end.words(
            kind,
            size=told.size,
            layout=self._ids.get(layout.text(), 0) if layout else 0,
            out_size=max(out_size, told.room),
            ahead=ahead,
        )
        if out_size or copied:
            end.room(max(out_size, copied))
        if not end.has_had(out_size):  # all of it is there before the runner could take the memory for it
            end.poison(out_size, told.laid)
        copy = memoryview(bytearray(max(out_size, copied) if copied else 0))
        pieces = _pieces(copy)
        allowed_s = self._allowance.left(start=self.starts) if limit_s is None else limit_s
        before_ns, clocks_ns = time.perf_counter_ns(), self.runner.clocks_ns() if kind in TELLS else {}
        slept_in_ns = 0
        self._leave_its_core()
        if late and ahead:
            self._lay_numbers(ahead)
        if late:
            began_ns = time.perf_counter_ns()
            self._wake(allowed_s)
            self._poison(out_size, told)
            start_ns = time.perf_counter_ns()
            slept_in_ns = self._until_ready(start_ns - began_ns, kind)
            os.pwrite(end.input, whole, 0)
            for at, part in told.laid:
                os.pwrite(end.out, part, at)
            if kind is Kind.NULL:
                opened_ns, start_ns = start_ns, time.perf_counter_ns()
            end.go(token)
            if kind is Kind.NULL:
                self._open_ns = time.perf_counter_ns() - opened_ns
        else:
            if ahead and kind is not Kind.AHEAD:
                end.reach(told.size)
                self._lay_numbers(ahead)
                slept_in_ns = self._make_ahead(kind)
            elif kind is Kind.CALL:
                slept_in_ns = self._until_told()
            before_ns += self._poison(out_size, told)
            end.put_parts(told.parts, told.size)
            end.lay(told.laid)
            end.go(token)
            start_ns = time.perf_counter_ns()
            self._go_on()
        try:
            done_ns = self._answered(token, start_ns, allowed_s, unhurried=kind in UNHURRIED)
            if copied:
                is_whole, done_ns = end.read_pieces(pieces), time.perf_counter_ns()
                first = [(0, bytes(copy[:out_size]))]
                if not is_whole:
                    raise Rejected("violation", "the submission changed the size of the link's files")
            elif looks and kind is Kind.NULL:
                first, first_ns = seen_in(end.out, looks[:1]), time.perf_counter_ns()
                self._close_ns = first_ns - done_ns
                first, done_ns = first + seen_in(end.out, looks[1:]), time.perf_counter_ns()
            elif looks:
                first, done_ns = seen_in(end.out, looks), time.perf_counter_ns()
            else:
                first = []
            self._stop()
            end.wrote("in", 0, len(whole))
        finally:
            if limit_s is None:
                self._allowance.spend((time.perf_counter_ns() - before_ns) / 1e9, start=self.starts)
        reply = self._collected(kind, token, out_size, first if out_size else [], done_ns - start_ns + slept_in_ns)
        self._tells(kind, reply.ns, clocks_ns)
        return reply

    def _poison(self, out_size: int, told: destinations.Payload) -> int:
        """Nothing of an answer is there that was written in nobody's time: after the runner was awake without work.
        How long that took, which is nobody's time either."""
        began = time.perf_counter_ns()
        if out_size:
            self._link.poison(out_size, told.laid)
        return time.perf_counter_ns() - began

    def _worked_since(self, clocks_ns: Mapping[int, int]) -> int:
        """For how long it had a core since its clocks stood so; it is stopped."""
        now = self.runner.clocks_ns()
        return sum(max(0, ns - clocks_ns.get(pid, 0)) for pid, ns in now.items())

    def _tells(self, kind: Kind, ns: int, clocks_ns: Mapping[int, int]) -> None:
        """Whoever works in such a message, which is in no call's time, works in that of the next call."""
        if kind not in TELLS:
            return
        worked_ns = self._worked_since(clocks_ns)
        if self.has_submission:
            self._told_ns, self._told_work_ns = self._told_ns + ns, self._told_work_ns + worked_ns
        else:
            self._telling.counts(ns)
            self._telling_work.counts(worked_ns)

    def _taken_in(self) -> tuple[int, int]:
        told = self._told_ns, self._told_work_ns
        self._told_ns = self._told_work_ns = 0
        return told

    def _until_ready(self, awake_ns: int, kind: Kind) -> int:
        """What counts of the time that it took before this message until all was ready for it: to take in what the call
        needs, to wake, and whatever the judge did beside a runner that was awake, which can hold it up."""
        if kind in (Kind.NULL, Kind.DEVICE_NULL):
            return self._waking.counts(awake_ns)
        took_ns = awake_ns + self._taken_in()[0]
        return took_ns if self.is_known_input else self._waking.counts(took_ns)

    def _until_told(self) -> int:
        """The same where it doesn't wake before."""
        took_ns, worked_ns = self._taken_in()
        if not took_ns:
            return 0
        beyond_ns = max(self._telling.counts(took_ns), self._telling_work.counts(worked_ns))
        return took_ns if self.is_known_input else beyond_ns

    def practise(self, prepared: Prepared) -> None:
        """How long it takes to be told something: seen before a submission is there, which could take longer."""
        self.declare(prepared.layout)
        for _ in range(TELLS_SEEN):
            self.ring(Kind.DECLARE, values.pack(prepared.layout.text()))

    def _collected(self, kind: Kind, token: bytes, out_size: int, first: list[tuple[int, bytes]], ns: int) -> Reply:
        """The answer of a stopped runner, if nothing has changed since it was given."""
        end = self._link
        if kind in (Kind.CALL, Kind.DEVICE_CALL):
            self._weigh()
        self._look_at_link()
        out = end.read_out(BUFFERS.room(out_size))
        if os.pread(end.bell, 8, runner_link.DONE) != token:
            raise Rejected("violation", "the submission answered for a call that wasn't made")
        if len(out) != out_size or any(out[at : at + len(part)] != part for at, part in first):
            raise Rejected("violation", "the output was still being written after it was reported done")
        return self._said(token, self._late(ns), out)

    def _late(self, ns: int) -> int:
        """A call's time, with that in which some of the runner's processes went on after it was told to stop."""
        return ns + self.runner.went_on_ns() + self._beyond_ns

    def _said(self, token: bytes, ns: int, out: bytes | bytearray | memoryview) -> Reply:
        """The answer that was read, with what the runner says of it."""
        self._last = token
        status, text = self._link.status()
        if text:
            self._link.clear_text()
        return Reply(ns=ns, status=status, text=text, out=out)

    def _weigh(self) -> None:
        """Raise if it holds more memory than allowed. What it takes to find that out is the submission's time."""
        with self._theirs():
            if why := self._overdrawn():
                raise Rejected("memory", why)

    def _overdrawn(self) -> str:
        began = time.perf_counter_ns()
        try:
            return self.runner.overdrawn()
        finally:
            self._weighed_at_ns = time.perf_counter_ns()
            self._weighing_ns = self._weighed_at_ns - began

    @contextlib.contextmanager
    def _theirs(self) -> Iterator[None]:
        """The time spent in here is the submission's."""
        began = time.perf_counter_ns()
        try:
            yield
        finally:
            self._allowance.spend((time.perf_counter_ns() - began) / 1e9, start=self.starts)

    def costs(self, seconds: float) -> None:
        """So much of the judge's time went into what this submission chose to make more of than was asked for. It
        counts twice: for itself, and for what could have been done in it. Who has everything made twice uses half of
        the whole, and is to blame where that is too long."""
        self._allowance.cleanup_s += 2 * seconds

    def drags(self, seconds: float) -> None:
        """Its answer made a check take so much longer than usual: that is time of its own, where others stand beside
        it. Rejected if none is left."""
        self._allowance.spend(seconds, start=self.starts)
        if seconds and self._allowance.left(start=self.starts) < 0:
            raise Rejected("timeout", "checking its answers took all of its time", "checking its answers took too long")

    @property
    def _links(self) -> Sequence[JudgeEnd]:
        return (self._link,)

    def without_room(self) -> Rejected | ProblemTrouble:
        """What to say where the link's files have no room."""
        if (taken := self._took_room()) is not None:
            return taken
        if self.claimed_bytes and self._would_have_room():
            more = self.claimed_bytes >> 10
            return Rejected("memory", f"there is no room for answers {more:,} KiB larger than asked for")
        mib, room = sum(link.declared() for link in self._links) >> 20, self._link.room_in_all() >> 20
        return ProblemTrouble(
            f"there is no room for a call's input and answer: this launch's take {mib} MiB, beside those of the other"
            f" launches and what was built, and the memory that they lie in ({self._link.folder.parent}) has {room} MiB"
            " in all"
        )

    def _would_have_room(self) -> bool:
        """Whether what was asked for would have room, without what this submission claims beyond that."""
        asked = sum(link.asked() for link in self._links) - self.claimed_bytes
        return asked <= self._link.free() + sum(link.held() for link in self._links)

    def _took_room(self) -> Rejected | None:
        """The verdict if this submission has put more than was asked for where the links' files are."""
        if not self.has_submission:
            return None
        beyond = sum(link.beyond() for link in self._links)
        if (
            any(link.resized() or link.has_holes() for link in self._links)
            or beyond + self.runner.kept_bytes() > TAKEN_LEAST
        ):
            return Rejected("violation", "the submission took the memory of the link's files away")
        return None

    def hoard(self) -> Rejected | None:
        """The verdict if something else failed for want of memory that this submission holds, or held: where the kernel
        has ended it too, it came first, and what it had taken may have outlived it."""
        if self.runner.ended() is not None:
            return Rejected("memory", TOO_MUCH) if self.runner.killed_by_kernel() else None
        if why := self.runner.overdrawn():
            return Rejected("memory", why)
        return self._took_room() if self._link.is_full() else None

    def _go_on(self) -> None:
        self.runner.thaw()
        self._warmer.rest()

    def _stop(self) -> None:
        """Every process of the runner is stopped when this returns, and its core is kept awake for the next message."""
        try:
            self.runner.freeze()
        except Unstoppable:
            raise self._gone() or Rejected(
                "violation", "a process of the submission kept running when it was stopped"
            ) from None
        self._beyond_ns = self._stopping.counts(self.runner.stopping_ns())
        if self._tasks_most and self.has_submission and (tasks := self.runner.threads()) > self._tasks_most + OWN_TASKS:
            raise Rejected("error", CROWDED.format(tasks, self._tasks_most))
        self._core = self.runner.core()
        self._leave_its_core()

    def _leave_its_core(self) -> None:
        """The core that the runner was last on is its own and stays awake. Done anew before each message: meanwhile the
        judge may have made room for another runner, which chooses its core, and so be in the way of this one."""
        core_warmer.apart(self._core)
        self._warmer.turn(self._core)

    def _wake(self, allowed_s: float, *, awake: bool = False) -> None:
        """Let the runner run without work, waiting for its next message. `awake`: it runs already."""
        word = self._link.ping()
        began = time.perf_counter_ns()
        if not awake:
            self._go_on()
        self._until(runner_link.AWAKE, lambda found: found == word, began, allowed_s, 50_000)

    def _make_ahead(self, kind: Kind) -> int:
        """Let the runner make its next call's arrays, before anything is in them. It is stopped again, and the device
        at rest, when this returns; the time that counts, where it took far longer than that takes or left work on the
        device. All of it is the submission's, which the caller sees to."""
        began_ns = time.perf_counter_ns()
        self._wake(self._allowance.left(start=self.starts))
        slept_in_ns = self._until_ready(time.perf_counter_ns() - began_ns, kind)
        self._stop()
        slept_in_ns = self._late(slept_in_ns)
        self._look_at_link()
        return slept_in_ns + self._rest()

    def _look_at_link(self) -> None:
        if self._link.resized():  # filled up, the memory that links live in would end the judge's run
            raise Rejected("violation", "the submission changed the size of the link's files")

    def _answered(self, token: bytes, start_ns: int, allowed_s: float, *, unhurried: bool = False) -> int:
        spin_ns, least_s = (0, UNHURRIED_LEAST_S) if unhurried else (SPIN_NS, SLEEP_LEAST_S)
        done_ns, found = self._until(
            runner_link.DONE, lambda found: found != self._last, start_ns, allowed_s, spin_ns, least_s
        )
        if found != token:  # the kernel copies a word byte by byte: some of them may be of the one before, at first
            found, done_ns = os.pread(self._link.bell, 8, runner_link.DONE), time.perf_counter_ns()
        if found != token:
            raise Rejected("violation", "the submission answered for a call that wasn't made")
        return done_ns

    def _until(
        self,
        offset: int,
        good: Callable[[bytes], bool],
        start_ns: int,
        allowed_s: float,
        spin_ns: int = SPIN_NS,
        least_s: float = SLEEP_LEAST_S,
    ) -> tuple[int, bytes]:
        """The moment at which the word at this offset became good. Spins first, for precision, and sleeps then.

        A 400th of what it has waited, or the least: on a busy machine a judge that spins keeps the runner from a core.
        """
        fd, pread, now = self._link.bell, os.pread, time.perf_counter_ns
        look_ns = LOOK_NS
        while True:
            for _ in range(24):
                found = pread(fd, 8, offset)
                if good(found):
                    return now(), found
            waited = now() - start_ns
            if waited > spin_ns:
                time.sleep(min(0.02, max(least_s, waited / 400e9)))
                if waited > look_ns:
                    look_ns = waited + LOOK_AGAIN_NS
                    self._look(waited, allowed_s)
            else:
                os.sched_yield()

    def _look(self, waited_ns: int, allowed_s: float) -> None:
        """Raise if waiting no longer makes sense."""
        # where a disk is busy, which a submission could see to, this takes a tenth of a second
        if waited_ns >= BEAT_NS:
            self._heartbeat.beat()
        # no answer is seen meanwhile: many processes or threads, somebody else's too, make what they hold slow to see
        apart_ns = min(WEIGH_MOST_NS, WEIGH_TIMES * max(self._weighing_ns, self._looking_ns))
        is_due = waited_ns >= apart_ns and time.perf_counter_ns() - self._weighed_at_ns >= apart_ns
        if (is_due or self.runner.ended() is not None) and (gone := self._gone()) is not None:
            raise gone
        if waited_ns / 1e9 > allowed_s:
            whole, told = self._allowance.whole_s, "no answer"
            if self.starts and self._allowance.starts_left_s is not None:
                whole = self._allowance.starts_s + self._allowance.starts_left_s
                told = "loading it and calling it on each case for the first time, in all launches, wasn't done"
            raise Rejected("timeout", f"{told} within {whole:g} s", "the time limit was reached")

    def _gone(self) -> Rejected | None:
        """The verdict if the runner has ended, or should end."""
        how = self.runner.ended()
        why = self._overdrawn()
        self._looking_ns = self._weighing_ns
        if why:
            return Rejected("memory", why)
        if how is None:
            return None
        return gone(how)

    def declare(self, layout: layouts.Layout) -> None:
        """Send this layout to the runner."""
        text = layout.text()
        if text not in self._ids:
            self._ids[text] = len(self._ids) + 1
            self._link.room(layout.size)
            self.ring(Kind.DECLARE, values.pack(text), layout=layout)

    def load(self, manifest: Manifest) -> Reply:
        """Hand the submission over. From here on nothing from this runner is believed."""
        self._end_patience()
        self.has_submission = True
        return self.ring(Kind.LOAD, values.pack(self._handed(manifest)))

    def run_script(self, manifest: Manifest) -> Reply:
        """Have it run as a program, to its end or that of the allowance."""
        self._end_patience()
        return self.ring(Kind.SCRIPT, values.pack(self._handed(manifest)))

    def _end_patience(self) -> None:
        """The submission comes: from here on what is beyond its usual time counts."""
        for patience in (self._waking, self._stopping, self._telling, self._telling_work, *self._null_work.values()):
            patience.end()
        for link in self._links:
            link.expects_more = True  # all that is known before has been told

    def _handed(self, manifest: Manifest) -> dict[str, Any]:
        source, own = bundle.parts(manifest.source)
        files = {name: manifest.files[name] for name in manifest.runner_files if name in manifest.files}
        return {
            "entry": manifest.entry,
            "entry_path": bundle.place_of(manifest.entry, own),
            "source": source,
            "files": {**own, **files},
            "call": manifest.config.get("call", "custom_kernel"),
            "wrapper": manifest.config.get("wrapper"),
            "work": None if self.runner.work is None else str(self.runner.work),
            "gpu": manifest.gpu,  # what its texts need on this one is found out there: parsing can be made slow
            **self.built(),
        }

    def built(self) -> dict[str, Any]:
        """What the runner must know about its build."""
        return {} if self._built is None else self._built.told(self.runner.folder, self.runner.work)

    def settle(self, prepared: Prepared) -> None:
        """What a library does on its first use is over when this returns, and its threads, which turn for some 30 ms
        after that, have gone to sleep: while one turns on the judge's core, an answer is seen a slice too late, and so
        is the next, so that null calls are alike and each 3 ms. Nothing of a submission is here yet."""
        left_s = self._allowance.left_s
        took = [self.round_trip(prepared)]
        began, most_s = time.monotonic(), SETTLE_LEAST_S  # with one thread it is a busy machine that makes them differ
        if self.runner.threads() > self.awake:
            self._go_on()
            time.sleep(SETTLE_LEAST_S)  # also on the core that the judge leaves free
            self._stop()
            most_s = SETTLE_MOST_S
        while time.monotonic() - began < most_s:
            took.append(self.round_trip(prepared))
            if len(took) > SETTLED and max(took[-SETTLED:]) <= 2 * min(took):
                break
        self._allowance.left_s = left_s  # a busy machine's delay isn't the submission's fault

    def come_to_rest(self) -> None:
        """The same for what a submission has begun, when it was loaded or called first: threads of its libraries that
        only turn have gone to sleep. They have a bounded time for that, of a processor as far as they get one, which is
        in no limit of its own (but is the submission's where the whole run takes too long). They would turn in its next
        calls, for a time slice of some milliseconds each, where the job has few cores."""
        if self._rest_left_s <= 0 or self.runner.threads() <= self.awake:
            return
        began, ran_ns, calm = time.monotonic(), self.runner.ran_ns(), 0

        def spent_s() -> float:
            took_s = time.monotonic() - began
            return max(min(took_s, (self.runner.ran_ns() - ran_ns) / 1e9), took_s / REST_TIMES)

        self._go_on()
        while calm < REST_LOOKS and spent_s() < self._rest_left_s:
            time.sleep(REST_LOOK_S)
            calm = calm + 1 if self.runner.threads(running=True) <= self.awake else 0
        self._rest_left_s -= spent_s()
        self._stop()
        self._look_at_link()
        self._allowance.cleanup_s += time.monotonic() - began
        with self._theirs():
            self._rest()

    def null(self, prepared: Prepared) -> int:
        """What is taken off a call's time: here its round trip, without the call."""
        return self.round_trip(prepared)

    def null_in_one_go(self, prepared: Prepared, group: int) -> int:
        """The same of calls that are made so many in one go: the fastest of them, which the runner's own loop in Python
        makes hardly longer than any other would."""
        ahead = self._told_ahead(prepared.payload())
        calls = [replace(one, null=True) for one in _short_calls([prepared] * group)]
        clocks_ns = self.runner.clocks_ns()
        replies = self._rung_in_one_go(Kind.NULL, calls, ahead)
        self._took_in_null(prepared, sum(reply.ns for reply in replies), clocks_ns)
        return min(reply.ns for reply in replies)

    def _took_in_null(self, prepared: Prepared, ns: int, clocks_ns: Mapping[int, int]) -> None:
        """How long null calls took, or what it worked from when it was woken for them, beyond what is usual."""
        usual = self._null_work.setdefault(
            prepared.case.index, Patience(WORK_FREE_NS, WORKS_FREE, unseen_ns=WAKE_MOST_NS)
        )
        self.null_took_ns = max(ns, usual.counts(self._worked_since(clocks_ns)))

    def round_trip(self, prepared: Prepared) -> int:
        """A call without the call."""
        return self._null_call(prepared, prepared.null_payload)

    def bare_null(self, prepared: Prepared) -> int:
        """A null call of the same size with nothing to decode: the part of its cost that no submission can save."""
        whole = prepared.null_payload
        text = values.pack(None)
        if len(prepared.packed) <= NULL_WHOLE_CAP:
            text = text.ljust(whole.size, b"\0")
        return self._null_call(
            prepared, destinations.Payload(parts=((0, text),), size=whole.size, laid=whole.laid, room=whole.room)
        )

    def _null_call(self, prepared: Prepared, payload: destinations.Payload) -> int:
        self._link.room(prepared.layout.size)
        late, clocks_ns = self.is_late(prepared), self.runner.clocks_ns()
        self._late_cases[prepared.case.index] = late
        reply = self.ring(Kind.NULL, payload, late=late, ahead=self._told_ahead(payload), looked=prepared.layout)
        self._took_in_null(prepared, reply.ns, clocks_ns)
        return reply.ns

    def tell_ahead(self, prepared: Prepared) -> None:
        """Tell the runner what the arrays of inputs like this one are: it makes them before the clock runs, and only
        what they contain comes late. No submission is there yet, nor will it learn more than earlier calls told it."""
        heads = [bytes(prepared.payload().parts[0][1])]
        if prepared.places:  # without destinations where an answer of another layout may be given
            heads.append(values.head(prepared.packed))
        numbers = values.single_numbers(prepared.packed)
        for head in heads:
            self._laid_numbers[self._tell(head)] = [(len(head) + at, number) for at, number in numbers]

    def _tell(self, head: bytes) -> int:
        self._ahead[head] = self._ahead.get(head, len(self._ahead) + 1)
        self.ring(Kind.AHEAD, head, ahead=self._ahead[head])
        return self._ahead[head]

    def _lay_numbers(self, ahead: int) -> None:
        """Where single numbers of the next call will be, there are those of another input of its case: one of
        anything else would be no size and no divisor for a warm-up."""
        for at, number in self._laid_numbers.get(ahead, ()):
            os.pwrite(self._link.input, number, at)

    def is_late(self, prepared: Prepared) -> bool:
        """Whether its input is written to a runner that is awake."""
        return max(len(prepared.packed), prepared.layout.size) <= LATE_CAP

    def _told_ahead(self, payload: destinations.Payload) -> int:
        """The number of a text that the runner was told, or 0."""
        return self._ahead.get(bytes(payload.parts[0][1]), 0) if self._ahead else 0

    def call(self, prepared: Prepared) -> Reply:
        """One call of the submission."""
        self.declare(prepared.layout)
        late = self._late_cases.get(prepared.case.index, self.is_late(prepared))  # as what is taken off was made
        payload = prepared.payload()
        return self.ring(
            Kind.CALL,
            payload,
            layout=prepared.layout,
            late=late,
            ahead=self._told_ahead(payload),
            copied=prepared.copied_size,
        )

    # ------------------------------------------------------------------------------------------- several in one go

    def calls_in_one_go(self, prepared: Sequence[Prepared]) -> list[Reply] | None:
        """Several calls of one kind, one after another, without stopping the runner in between; up to the first that
        has no answer. None where that can't be: where what a call's arrays are isn't known before. No input is in the
        runner's reach before the answer to the one before has been copied."""
        layout, calls = prepared[0].layout, _short_calls(prepared)
        head = values.head(calls[0].whole)
        if any(values.head(one.whole) != head for one in calls) or any(
            one.layout.text() != layout.text() for one in prepared
        ):
            return None
        if not (ahead := self._ahead.get(head, 0)):
            return None
        self.declare(layout)
        return self._rung_in_one_go(Kind.CALL, calls, ahead, layout)

    @takes_its_link
    def _rung_in_one_go(
        self, kind: Kind, calls: Sequence[_ShortCall], ahead: int, layout: layouts.Layout | None = None
    ) -> list[Reply]:
        end, first = self._link, calls[0]
        size, out_size = len(first.whole), first.out_size
        end.words(kind, size=size, layout=self._ids[layout.text()] if layout else 0, out_size=out_size, ahead=ahead)
        end.room(max(one.copied for one in calls))
        end.put(bytes(size))  # all that will be written to is there before the runner could take the memory for it
        self._lay_numbers(ahead)
        end.poison(out_size)
        return self._in_one_go(kind, self._rung_awake, calls)

    @takes_its_link
    def _in_one_go(self, kind: Kind, rung: Callable[[_Call], Reply], calls: Sequence[_Call]) -> list[Reply]:
        """Each of these in turn, up to the first that has no answer, in a runner that is stopped before and after."""
        replies: list[Reply] = []
        with self._theirs():
            self._leave_its_core()
            self._awake_from_ns = time.perf_counter_ns()
            self._go_on()
        for told in calls:
            with self._theirs():  # also what comes between two calls: a time limit holds for all of them together
                replies.append(rung(told))
            if replies[-1].status != Status.OK:
                break
        with self._theirs():
            self._stop()
            busy_ns = self._rest()
        self._collected(kind, self._last, 0, [], 0)  # nothing else was answered meanwhile
        return [*replies[:-1], replace(replies[-1], ns=self._late(replies[-1].ns) + busy_ns)]

    def _rest(self) -> int:
        """Whatever goes on although its process is stopped has come to rest when this returns; how long that took
        where anything did."""
        return 0

    def _rung_awake(self, told: _ShortCall) -> Reply:
        """One of several calls in one go. Its answer is what was copied when it was reported done: in pieces whose
        order nobody knows, so that whoever still writes then can't keep ahead of the copy. Its time ends with the copy:
        what is written until then isn't for nothing. A null call's does, too, and a call whose answer is smaller than
        the null call's has as much copied."""
        end, token, out = self._link, self._link.token().to_bytes(8, "little"), memoryview(bytearray(told.copied))
        pieces = _pieces(out)
        allowed_s = self._allowance.left(start=self.starts)
        self._wake(allowed_s, awake=True)
        end.poison(told.out_size, told.laid)
        start_ns = time.perf_counter_ns()
        slept_in_ns = self._until_ready(start_ns - self._awake_from_ns, Kind.NULL if told.null else Kind.CALL)
        os.pwrite(end.input, told.whole, 0)
        for at, part in told.laid:
            os.pwrite(end.out, part, at)
        if told.null:
            opened_ns, start_ns = start_ns, time.perf_counter_ns()
        end.go(token)
        if told.null:
            self._open_ns = time.perf_counter_ns() - opened_ns
        seen_ns = self._answered(token, start_ns, allowed_s)
        if told.null:
            is_whole, first_ns = end.read_pieces(pieces[:1]), time.perf_counter_ns()
            self._close_ns = first_ns - seen_ns
            is_whole, ns = is_whole and end.read_pieces(pieces[1:]), time.perf_counter_ns() - start_ns
        else:
            is_whole, ns = end.read_pieces(pieces), time.perf_counter_ns() - start_ns
        self._awake_from_ns = start_ns + ns
        if not is_whole:
            raise Rejected("violation", "the submission changed the size of the link's files")
        return self._said(token, ns + slept_in_ns, out[: told.out_size])

    def by_hand(self, prepared: Prepared) -> bytes:
        """The input for calls that aren't judged."""
        return bytes(prepared.packed)

    def keep(self, index: int, back: int = 1) -> None:
        """The last call counts, or one that was made so many calls ago."""

    def take_back(self, counts: Mapping[int, int]) -> None:
        """Of each case, only so many of the calls that counted until now count."""

    def witness(self, name: PhaseName, times: Mapping[int, timing.LaunchTimes]) -> None:
        """What was observed about the calls that count, besides the judge's clock."""

    def counted(self) -> None:
        """This launch was the submission's."""

    def remark(self) -> str:
        """What its author should know of the calls that were made, or an empty text."""
        twice = ASKED_TWICE.format(self.asked_twice) if self.asked_twice >= LATE_TOLD else ""
        return "; ".join(filter(None, (self._waking.told(LATE), self._stopping.told(STAYED), twice)))

    def turn_to(self, index: int) -> None:
        """The next calls are of this case, and so is what it writes meanwhile. It is stopped."""
        if self._turns and self._turns[-1][1] == index:
            return
        written = self.runner.written()
        if self._turns and self._turns[-1][0] == written:
            self._turns.pop()  # the case before has written nothing
        self._turns.append((written, index))

    def close(self) -> str:
        """End it. Returns what it wrote, which is in `wrote` by case, too."""
        began = time.monotonic()
        self.runner.kill()
        text = self.runner.log()
        parts = self.runner.log_parts([written for written, _ in self._turns])
        self.wrote = list(zip([None, *(index for _, index in self._turns)], parts, strict=True))
        self._link.close()
        remove_tree.remove(self.runner.folder)
        if self._built is not None:
            self._built.clear(self.runner.folder, self.runner.work)
        self._allowance.cleanup_s += time.monotonic() - began
        return text


def _short_calls(prepared: Sequence[Prepared]) -> list[_ShortCall]:
    found = []
    for one in prepared:
        payload = one.payload()
        size = max(one.layout.size, payload.room)
        copied = max(size, one.copied_size)
        found.append(_ShortCall(whole=payload.joined(), laid=payload.laid, out_size=size, copied=copied))
    return found


def _pieces(out: memoryview) -> list[tuple[int, memoryview]]:
    """The parts of this memory, in an order that nobody can know, and where each begins."""
    step = max(PIECE, -(-len(out) // PIECES))
    found = [(at, out[at : at + step]) for at in range(0, len(out), step)]
    _DICE.shuffle(found)
    return found


def _plain_dict(text: str) -> dict[str, Any]:
    found = json.loads(text) if text else {}
    return found if isinstance(found, dict) else {}
