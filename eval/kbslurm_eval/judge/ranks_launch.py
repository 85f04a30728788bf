"""Problems for several GPUs: one launch holds all ranks, and a call is over when the last of them is done.

    judge ── link ── the runner's first process
          ├─ link of rank 0 ── rank 0 ─┐
          ├─ link of rank 1 ── rank 1 ─┤ loopback of a network namespace of their own
          └─ …                        ─┘
The submission is one, in however many processes: between its ranks there are no secrets, and who of them answered when
means nothing. What counts is that after the last answer, with every process stopped, each rank's output stands in its
place and is right. A rank that ends, or never answers, ends the launch for all.
"""

from __future__ import annotations

import json
import os
import random
import re
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kbslurm_eval.cage.runners import Runners
from kbslurm_eval.device import driver
from kbslurm_eval.judge.buffers import BUFFERS
from kbslurm_eval.judge.first_look import places_in, seen_in
from kbslurm_eval.judge.heartbeat import Heartbeat
from kbslurm_eval.judge.launch import (
    LATE_CAP,
    LOOK_AGAIN_NS,
    LOOK_NS,
    SPIN_NS,
    START_S,
    TELLS,
    Allowance,
    Launch,
    takes_its_link,
    threads_for,
)
from kbslurm_eval.judge.rank_devices import RankDevices
from kbslurm_eval.judge.rank_reference import PreparedRanks, RankReference, free_port
from kbslurm_eval.judge.reference import Case, Prepared
from kbslurm_eval.judge.replies import Rejected, Reply, claimed, with_last_line
from kbslurm_eval.shared import layouts, runner_link, values
from kbslurm_eval.shared.runner_link import JudgeEnd, Kind, Status, rank_folder
from kbslurm_eval.shared.wire import Manifest

GRACE_NS = 1_000_000_000  # how long the others may take after one rank has failed, before its failure counts for all
_DICE = random.SystemRandom()
_RANK = re.compile(r"rank \d{1,3}\Z")


@dataclass(frozen=True, kw_only=True)
class RankReplies:
    """The outcome of one message to all ranks."""

    ns: int
    parts: tuple[Reply, ...]

    @property
    def failed(self) -> tuple[int, Reply] | None:
        """The first rank that failed, and its claim."""
        return next(((rank, part) for rank, part in enumerate(self.parts) if part.status != Status.OK), None)


class RanksLaunch(Launch):
    """One runner that holds all ranks, and the judge's conversation with each."""

    def __init__(
        self,
        runners: Runners,
        allowance: Allowance,
        heartbeat: Heartbeat,
        *,
        group: str,
        devices: RankDevices | None = None,
    ) -> None:
        self._world, self._group, self._devices = runners.ranks, group, devices
        self.awake = self._world
        if devices is not None:
            devices.prepare()
        self._ends: list[JudgeEnd] = []
        self._lasts = [bytes(8)] * self._world
        self._numbers: list[dict[str, int]] = [{} for _ in range(self._world)]
        self._nothing: dict[int, list[bytes]] = {}
        self._heads: list[dict[bytes, int]] = [{} for _ in range(self._world)]
        self._granted: dict[tuple[int, int, str], layouts.Layout] = {}
        self._unanswered: list[int] = []
        self._failed_at_ns: int | None = None
        super().__init__(runners, allowance, heartbeat)
        try:
            asked = [{"rank": rank, "world": self._world, "group": group} for rank in range(self._world)]
            replies = self.ring_all(
                Kind.HELLO, list(map(values.pack, asked)), limit_s=2 * START_S if group else START_S
            )
            if (failed := replies.failed) is not None:
                raise Rejected("error", failed[1].text)
        except Rejected as fault:
            fault.said = with_last_line(fault.said, self.close())
            raise
        except BaseException:
            self.close()
            raise
        self._agree([json.loads(part.text) for part in replies.parts])

    def facts(self) -> dict[str, Any]:
        """How many ranks, what network they see, and the process group that they find."""
        return {"ranks": self._world, "interfaces": self.seen.get("interfaces"), "process_group": self._group or "none"}

    def _opened(self, folder: Path) -> None:
        self._ends = [JudgeEnd(rank_folder(folder, rank)) for rank in range(self._world)]

    def _greeting(self, runners: Runners) -> dict[str, Any]:
        threads = threads_for(self._world)
        return {**runners.hello(), "ranks": self._world, "port": free_port(), "threads": threads}

    def _agree(self, seen: Sequence[dict[str, Any]]) -> None:
        """Every rank is in the cage that the first process is in; if one isn't, its own is what counts."""
        for rank, mine in enumerate(seen):
            self.seen["interfaces"] = mine.get("interfaces")
            for name in ("spaces", "seccomp", "no_new_privs", "read_only_root", "proc"):
                if mine.get(name) != self.seen.get(name):
                    self.seen[name] = mine.get(name)
                    self.seen["strays"] = f"rank {rank} is isolated differently from the first process ({name})"

    @takes_its_link
    def ring_all(
        self,
        kind: Kind,
        payloads: Sequence[bytes | memoryview],
        *,
        layouts: Sequence[layouts.Layout] = (),
        late: bool = False,
        aheads: Sequence[int] = (),
        looked: Sequence[layouts.Layout] = (),
        limit_s: float | None = None,
    ) -> RankReplies:
        """One message to every rank and all their answers; the time between counts from the first that could know its
        input (without a call in between, from the last one's token) until all that answered were looked at. `aheads`:
        what each rank's arrays are, where all were told that before. `looked`: what answers are that
        are looked at although there are none."""
        sizes = [layout.size for layout in layouts] or [0] * self._world
        looks = [(rank, one) for rank, layout in enumerate(looked or layouts) for one in places_in(layout)]
        _DICE.shuffle(looks)  # the last one has the longest time to keep writing
        tokens = [end.token().to_bytes(8, "little") for end in self._ends]
        for rank, end in enumerate(self._ends):
            known = self._numbers[rank].get(layouts[rank].text(), 0) if layouts else 0
            ahead = aheads[rank] if aheads else 0
            end.words(kind, size=len(payloads[rank]), layout=known, out_size=sizes[rank], ahead=ahead)
            if sizes[rank]:
                end.room(sizes[rank])
            if not end.has_had(sizes[rank]):  # all of it is there before a rank could take the memory for it
                end.poison(sizes[rank])
        allowed_s = self._allowance.left(start=self.starts) if limit_s is None else limit_s
        before_ns, clocks_ns = time.perf_counter_ns(), self.runner.clocks_ns() if kind in TELLS else {}
        slept_in_ns = 0
        if kind in (Kind.CALL, Kind.NULL):
            self._flush()
        self._leave_its_core()
        if late:
            began_ns = time.perf_counter_ns()
            self._wake_all(allowed_s)
            self._poison_all(sizes)
            start_ns = time.perf_counter_ns()
            slept_in_ns = self._until_ready(start_ns - began_ns, kind)
            for end, payload in zip(self._ends, payloads, strict=True):
                os.pwrite(end.input, payload, 0)
            for end, token in zip(self._ends, tokens, strict=True):
                if kind is Kind.NULL and end is self._ends[-1]:
                    opened_ns, start_ns = start_ns, time.perf_counter_ns()
                end.go(token)
            if kind is Kind.NULL:
                self._open_ns = time.perf_counter_ns() - opened_ns
        else:
            before_ns += self._poison_all(sizes)
            for end, payload, token in zip(self._ends, payloads, tokens, strict=True):
                end.put(payload)
                end.go(token)
            if kind is Kind.CALL:
                slept_in_ns = self._until_told()
            start_ns = time.perf_counter_ns()
            self._go_on()
        try:
            done_ns = self._all_done(tokens, start_ns, allowed_s)
            seen = [seen_in(self._ends[rank].out, [place])[0] for rank, place in looks]
            if looks:
                done_ns = time.perf_counter_ns()
            self._stop()
        finally:
            if limit_s is None:
                self._allowance.spend((time.perf_counter_ns() - before_ns) / 1e9, start=self.starts)
        if kind is Kind.CALL:
            self._weigh()
        ns = self._late(done_ns - start_ns + slept_in_ns)
        self._tells(kind, ns, clocks_ns)
        first: list[list[tuple[int, bytes]]] = [[] for _ in self._ends]
        if layouts:
            for (rank, _), found in zip(looks, seen, strict=True):
                first[rank].append(found)
        parts = [self._taken(rank, tokens[rank], sizes[rank], first[rank], ns) for rank in range(self._world)]
        return RankReplies(ns=ns, parts=tuple(parts))

    def _poison_all(self, sizes: Sequence[int]) -> int:
        """Nothing of an answer is there that was written in nobody's time. How long that took, which is nobody's
        either."""
        began = time.perf_counter_ns()
        for end, size in zip(self._ends, sizes, strict=True):
            if size:
                end.poison(size)
        return time.perf_counter_ns() - began

    @property
    def _links(self) -> Sequence[JudgeEnd]:
        return (self._link, *self._ends)

    def _flush(self) -> None:
        """Nothing that a rank left in its device's cache is there any more; all of them are stopped."""
        if self._devices is None:
            return
        try:
            self._devices.flush()
        except driver.DriverError as error:
            raise Rejected("error", f"a device failed: {error}", "a device failed") from None

    def is_late(self, prepared: Prepared) -> bool:
        """Whether its inputs are written to ranks that are awake. Not where caches were flushed: whoever is awake
        could fill them again."""
        assert isinstance(prepared, PreparedRanks)
        flushed = self._devices is not None and not self._devices.why_not
        sizes = [sum(len(part.packed) for part in prepared.parts), sum(part.layout.size for part in prepared.parts)]
        return not flushed and max(sizes) <= LATE_CAP

    def practise(self, prepared: Prepared) -> None:
        """What it is told here is of other kinds."""

    def tell_ahead(self, prepared: Prepared) -> None:
        """Tell each rank what its arrays are."""
        assert isinstance(prepared, PreparedRanks)
        if not self.is_late(prepared):
            return
        heads = [values.head(part.packed) for part in prepared.parts]
        aheads = [known.setdefault(head, len(known) + 1) for known, head in zip(self._heads, heads, strict=True)]
        self.ring_all(Kind.AHEAD, heads, aheads=aheads)

    def _aheads(self, prepared: Prepared) -> list[int]:
        """The numbers by which the ranks know what this call's arrays are; empty if one of them doesn't."""
        assert isinstance(prepared, PreparedRanks)
        if not any(self._heads):
            return []
        each = zip(self._heads, prepared.parts, strict=True)
        found = [known.get(values.head(part.packed), 0) for known, part in each]
        return found if all(found) else []

    def _taken(self, rank: int, token: bytes, size: int, first: list[tuple[int, bytes]], ns: int) -> Reply:
        """One rank's answer, if nothing has changed since it was given."""
        end = self._ends[rank]
        if end.resized():
            raise Rejected("violation", "the submission changed the size of the link's files")
        out = end.read_out(BUFFERS.room(size))
        if os.pread(end.bell, 8, runner_link.DONE) != token:
            raise Rejected("violation", "the submission answered for a call that wasn't made")
        if len(out) != size or any(out[at : at + len(part)] != part for at, part in first):
            raise Rejected("violation", "the output was still being written after it was reported done")
        self._lasts[rank] = token
        status, text = end.status()
        if text:
            end.clear_text()
        return Reply(ns=ns, status=status, text=text, out=out)

    def _wake_all(self, allowed_s: float) -> None:
        words = {end: end.ping() for end in self._ends}
        began = time.perf_counter_ns()
        self._go_on()
        left = list(self._ends)
        self._wait(
            lambda: _drop(left, lambda end: os.pread(end.bell, 8, runner_link.AWAKE) == words[end]), began, allowed_s
        )

    def _all_done(self, tokens: Sequence[bytes], start_ns: int, allowed_s: float) -> int:
        left = list(range(self._world))
        lasts, bells = self._lasts, [end.bell for end in self._ends]

        def is_done(rank: int) -> bool:
            found = os.pread(bells[rank], 8, runner_link.DONE)
            if found == lasts[rank]:
                return False
            if found != tokens[rank]:  # some of its bytes may be of the one before, at first
                found = os.pread(bells[rank], 8, runner_link.DONE)
            if found != tokens[rank]:
                raise Rejected("violation", "the submission answered for a call that wasn't made")
            return True

        self._unanswered = left
        try:
            return self._wait(lambda: _drop(left, is_done), start_ns, allowed_s)
        finally:
            self._unanswered = []

    def _wait(self, over: Callable[[], bool], start_ns: int, allowed_s: float) -> int:
        """The moment at which nothing was left to wait for. Others' turns come early: ranks work on other cores."""
        now = time.perf_counter_ns
        self._failed_at_ns = None
        look_ns = LOOK_NS
        while True:
            for _ in range(24):
                if over():
                    return now()
            waited = now() - start_ns
            if waited > SPIN_NS:
                time.sleep(min(0.02, max(5e-6, waited / 400e9)))
                if waited > look_ns:
                    look_ns = waited + LOOK_AGAIN_NS
                    self._look(waited, allowed_s)
            else:
                os.sched_yield()

    def _look(self, waited_ns: int, allowed_s: float) -> None:
        left = self._unanswered
        if left and len(left) < self._world:
            self._fail_with_one(left)
        try:
            super()._look(waited_ns, allowed_s)
        except Rejected as fault:
            if fault.verdict == "timeout" and left and len(left) < self._world:
                fault.said += f" from {_listed(left)}"
            raise

    def _fail_with_one(self, left: Sequence[int]) -> None:
        """A rank that raised leaves the others waiting for it: that is its error, not a time-out."""
        for rank in range(self._world):
            if rank in left:
                continue
            status, text = self._ends[rank].status()
            if status == Status.OK:
                continue
            if self._failed_at_ns is None:
                self._failed_at_ns = time.perf_counter_ns()
            elif time.perf_counter_ns() - self._failed_at_ns > GRACE_NS:
                raise in_rank(rank, claimed(Reply(ns=0, status=status, text=text, out=b"")))
            return

    def _gone(self) -> Rejected | None:
        fault = super()._gone()
        if fault is not None and fault.verdict == "error":
            text = self._link.status()[1]
            if _RANK.match(text):
                fault.said = fault.said.replace("the submission's process ended", f"{text} ended itself", 1)
        return fault

    def declare_all(self, prepared: PreparedRanks) -> None:
        """Send every rank the layout of its output."""
        layouts = [part.layout for part in prepared.parts]
        if all(layout.text() in known for layout, known in zip(layouts, self._numbers, strict=True)):
            return
        for layout, known, end in zip(layouts, self._numbers, self._ends, strict=True):
            known.setdefault(layout.text(), len(known) + 1)
            end.room(layout.size)
        self.ring_all(Kind.DECLARE, [values.pack(layout.text()) for layout in layouts], layouts=layouts)

    def load(self, manifest: Manifest) -> Reply:
        """Hand the submission to every rank. The first failure stands for all."""
        self._end_patience()
        self.has_submission = True
        asked = []
        for rank in range(self._world):
            told = self._handed(manifest)
            if told["work"] is not None:
                told["work"] = f"{told['work']}/rank{rank}"
            asked.append(values.pack(told))
        replies = self.ring_all(Kind.LOAD, asked)
        if (failed := replies.failed) is not None:
            return replace(failed[1], text=f"rank {failed[0]}: {failed[1].text}")
        return replies.parts[0]

    def round_trip(self, prepared: Prepared) -> int:
        """The round trip to all ranks, without the call."""
        return self._null_in_all(prepared, self._nothings(prepared))

    def bare_null(self, prepared: Prepared) -> int:
        """The same, with the same number of bytes but nothing to decode."""
        payloads = [values.pack(None).ljust(len(payload), b"\0") for payload in self._nothings(prepared)]
        return self._null_in_all(prepared, payloads)

    def _null_in_all(self, prepared: Prepared, payloads: Sequence[bytes | memoryview]) -> int:
        assert isinstance(prepared, PreparedRanks)
        late = self.is_late(prepared)
        aheads = self._aheads(prepared) if late and prepared.ahead else ()
        looked = [part.layout for part in prepared.parts]
        for end, layout in zip(self._ends, looked, strict=True):
            end.room(layout.size)
        self.null_took_ns = self.ring_all(Kind.NULL, payloads, late=late, aheads=aheads, looked=looked).ns
        return self.null_took_ns

    def _nothings(self, prepared: Prepared) -> Sequence[bytes | memoryview]:
        assert isinstance(prepared, PreparedRanks)
        if prepared.ahead:
            return [part.packed for part in prepared.parts]
        index = prepared.case.index
        if index not in self._nothing:
            self._nothing[index] = prepared.reference.nothings(prepared)
        return self._nothing[index]

    def as_granted(self, prepared: PreparedRanks) -> PreparedRanks:
        """The same call, with the layouts that this submission's outputs have instead of the reference's."""
        parts = [
            replace(part, layout=self._granted.get(_of_part(rank, part), part.layout))
            for rank, part in enumerate(prepared.parts)
        ]
        return replace(prepared, parts=tuple(parts))

    def grant(self, prepared: PreparedRanks, claimed: Sequence[layouts.Layout | None]) -> bool:
        """Remember what outputs are instead, each rank's only once. Whether that changes a call."""
        news = False
        for rank, (part, other) in enumerate(zip(prepared.parts, claimed, strict=True)):
            if other is not None and _of_part(rank, part) not in self._granted:
                self._granted[_of_part(rank, part)] = other
                self.claimed_bytes += max(0, other.size - part.layout.size)
                news = True
        return news

    def call_all(self, prepared: PreparedRanks) -> RankReplies:
        """One call of the submission in every rank."""
        self.declare_all(prepared)
        layouts = [part.layout for part in prepared.parts]
        late = self.is_late(prepared)
        packed = [part.packed for part in prepared.parts]
        aheads = self._aheads(prepared) if late else ()
        return self.ring_all(Kind.CALL, packed, layouts=layouts, late=late, aheads=aheads)

    def close(self) -> str:
        """End it. Returns what it wrote."""
        try:
            return super().close()
        finally:
            for end in self._ends:
                end.close()
            self._ends = []


def _of_part(rank: int, part: Prepared) -> tuple[int, int, str]:
    return part.case.index, rank, part.layout.text()


def _drop(left: list[Any], good: Callable[[Any], bool]) -> bool:
    """Remove what is done by now from the list; whether nothing is left."""
    left[:] = [one for one in left if not good(one)]
    return not left


def _listed(ranks: Sequence[int]) -> str:
    return (
        ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(map(str, ranks[:8])) + (" …" if len(ranks) > 8 else "")
    )


def in_rank(rank: int, fault: Rejected) -> Rejected:
    """The same verdict, naming the rank where that may be told."""
    return Rejected(fault.verdict, f"rank {rank}: {fault.said}", fault.bare_reason)


def one_call(
    reference: RankReference,
    launch: RanksLaunch,
    case: Case,
    seed: int | None,
    bounded: Callable[[], AbstractContextManager[None]],
) -> tuple[Rejected | None, int, int]:
    """One call in all ranks, judged: the fault, the time, and how many outputs were checked. `bounded`: what a check
    runs in, which may reject."""
    declared = reference.prepare(case, seed)
    prepared = launch.as_granted(declared)
    replies = launch.call_all(prepared)
    ns = replies.ns
    if launch.grant(declared, reference.granted(prepared, replies.parts)):
        # with the same inputs, and both calls' times count, and all between: whoever remembers an answer gains nothing
        prepared = launch.as_granted(declared)
        launch.is_known_input = True
        try:
            replies = launch.call_all(prepared)
        finally:
            launch.is_known_input = False
        ns += replies.ns
    if (failed := replies.failed) is not None:
        return in_rank(failed[0], claimed(failed[1])), ns, 0
    for rank, said in enumerate(reference.misfits(prepared, [part.out for part in replies.parts])):
        if said:
            return in_rank(rank, Rejected("wrong", f"an answer is wrong: {said}", "an answer is wrong")), ns, 0
    try:
        with bounded():
            found = reference.check(prepared)
    except Rejected as fault:
        return fault, ns, 0
    bad = sorted((not said, rank, said) for rank, (good, said) in enumerate(found) if not good)
    if not bad:
        return None, ns, len(found)
    _, rank, said = bad[0]  # the first that says what is wrong
    told = f"an answer is wrong: {said}" if said else "an answer is wrong"
    return in_rank(rank, Rejected("wrong", told, "an answer is wrong")), ns, len(found)
