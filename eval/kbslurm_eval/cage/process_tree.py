"""Stopping and continuing every process of a runner."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping

from kbslurm_eval.cage.processes import (
    TICK_NS,
    ProcessPages,
    Threads,
    are_stopped,
    began_at_ns,
    goes_on,
    namespace_numbers,
    ran_ns,
    send_signal,
    state_and_threads,
)
from kbslurm_eval.cage.runners import CALL_STOP_S, Unstoppable

LOOKS_AT_ONE = 2  # where there is one process; one would do
STOPS_WITHIN_NS, SPINS_NS = 50_000_000, 200_000  # on a busy machine it is stopped once it gets a core
THREAD_STOPS_NS = 7_000  # of a core's time, on a busy machine
PASSES = 4  # how often in a row a tree must be found completely stopped: a process that seems alone may be forking
GOES_ON_S, MOST_GOES_ON_S = 0.0005, 0.05  # so long a child goes on at first, until it has its own program; at most
_PROCESSOR = 36  # of the words behind the name in /proc/PID/stat


class _Worked:
    """What processes that weren't found stopped at once did until they were: who slept, or was kept from its core,
    needs one to stop, too, and waits for it on a busy machine, but doesn't work."""

    def __init__(self) -> None:
        self._before: dict[int, int | None] = {}
        self._seen: set[int] = set()
        self._in_turns: set[int] = set()

    def told(self, pid: int) -> None:
        """This one was told to stop. The look at all of them that follows may take long."""
        if pid not in self._before:
            self._before[pid] = ran_ns(pid)

    def unknown(self, pid: int, since_ns: int) -> None:
        """This one was known to nobody until all were looked at: it may have worked since this moment."""
        if pid not in self._before and (ran := ran_ns(pid)) is not None:
            self._before[pid] = max(0, ran - (time.perf_counter_ns() - since_ns))

    def look(self, pid: int, *, waits: bool = False) -> None:
        """This one isn't stopped yet; `waits` for something in the kernel."""
        if pid in self._seen or waits:
            self._in_turns.add(pid)
        self._seen.add(pid)
        self.told(pid)

    def of(self, waited_ns: int, threads: Callable[[int], int], *, looked_ns: int = 0) -> int:
        """How much of the time that was waited for them they worked, beyond what their threads take to stop; all of it
        where that can't be told. `looked_ns`: how much longer they could, until they were found stopped.

        Who works side by side works no longer than one of them, and is found stopped a look later. Who still isn't, or
        waits at first, may do so for another's turn to end: what these work is added up.
        """
        longest = in_turns = 0
        for pid, before in self._before.items():
            now = ran_ns(pid)
            if before is None or now is None:
                return waited_ns
            worked = max(0, now - before - THREAD_STOPS_NS * threads(pid))
            longest = max(longest, worked)
            in_turns += worked if pid in self._in_turns else 0
        return min(waited_ns + looked_ns, max(longest, in_turns))


class ProcessTree:
    """Stopping and continuing a tree of processes below some roots.

    With `inner` only those in a PID namespace below ours are stopped, where there are any: what a container program
    runs beside its payload (the server of its image's file system, say) has to go on, or the payload can't even stop.
    """

    def __init__(
        self,
        roots: list[int],
        main: int | None,
        *,
        inner: bool = False,
        orphans: Callable[[], list[int]] | None = None,
        others: Callable[[], list[int]] | None = None,
    ) -> None:
        self.roots, self.main, self._inner, self._orphans = roots, main, inner, orphans
        self._others = others  # those of the orphans that came from another launch
        self._thawed_ns = 0  # since the machine started
        self._inside: set[int] = set()
        self._firsts: set[int] = set()  # of those, the first of their PID namespace
        self._held: list[int] = []
        self._still: list[int] | None = None
        self._known = set[int]()  # all that were found when it was stopped last
        self._called: int | None = None
        self.went_on_ns = 0  # how long some of its processes went on while it was stopped last
        self.stopping_ns = 0  # how long it took before that until all were found stopped, that last look aside
        self._waited_ns = 0
        self._pages = ProcessPages()

    def all(self) -> list[int]:
        """Its processes now, each once."""
        return list(self._look())

    def known(self) -> list[int]:
        """While it is stopped, the processes found then; otherwise its processes now."""
        return self.all() if self._still is None else self._still

    def threads(self, spare: int | None = None, *, running: bool = False) -> int:
        """How many threads its processes have now, or how many of those don't wait for anything. Not counted are
        `spare`, and what runs a container: outside of it, and as its first process."""
        found = self._look()
        states = [state for pid in self._without_containers(found, spare) for _, state in found[pid]]
        return sum(state == b"R" for state in states) if running else len(states)

    def ran_ns(self, spare: int | None = None) -> int:
        """How long the same processes have had a core."""
        return sum(ran_ns(pid) or 0 for pid in self._without_containers(self._look(), spare))

    def clocks_ns(self) -> dict[int, int]:
        """The same of each that was found when it was stopped last, and doesn't stand still of itself; of who runs now
        as of the last tick."""
        return {pid: ran_ns(pid) or 0 for pid in self._held}

    def _without_containers(self, found: Iterable[int], spare: int | None) -> list[int]:
        return [pid for pid in self._members(found, spare) if pid == self._called or pid not in self._firsts]

    def _look(self) -> dict[int, Threads]:
        """Its processes, and the state of their threads."""
        found: dict[int, Threads] = {}
        for root in (*self.roots, *(self._orphans() if self._orphans else ())):
            waiting = [root]
            while waiting:
                if (pid := waiting.pop()) not in found:
                    found[pid], below = self._pages.look(pid)
                    waiting += reversed(below)
        return found

    def _members(self, found: Iterable[int], spare: int | None) -> list[int]:
        mine = [p for p in found if p != spare]
        if not self._inner:
            return mine
        depth = len(namespace_numbers(os.getpid()))
        for pid in mine:
            # only a process known to be inside is remembered: a pid from outside may come again inside
            if pid not in self._inside and len(numbers := namespace_numbers(pid)) > depth:
                self._inside.add(pid)
                if numbers[-1] == 1:
                    self._firsts.add(pid)
        return [p for p in mine if p in self._inside] or mine

    def freeze(self, spare: int | None) -> None:
        """Stop all but `spare` (the keeper, which is ours), and check that they stopped.

        Who starts a program by vfork waits for the child's exec, and until then no signal stops it: a child that was
        stopped before goes on for a moment, and is stopped again.
        """
        self.went_on_ns, went_on_at = 0, 0
        began_ns = time.perf_counter_ns()
        worked = _Worked()
        ours: set[int] = set()  # those that are ours to continue, although they are found stopped
        called = self._called if self.main is None else self.main
        known = {*self._known, *(pid for pid in (self.main, spare) if pid is not None)}
        if called is not None:
            if self.main is not None:
                send_signal(self.main, signal.SIGSTOP)
                if self._known:  # those of all its threads may take long to read
                    self._tell(self._pages.of_its_first_thread(self.main), known, worked, ours, began_ns)
            elif self._pages.stop_if_it_goes_on(called):  # no child of ours: its number may be another one's by now
                ours.add(called)
            worked.look(called)
            for pid in self._held:  # nobody has more time than the first
                if pid != called and self._pages.stop_if_it_goes_on(pid):
                    ours.add(pid)
                    worked.told(pid)
            self._waited_ns = 0
        # children of one that had some are stopped while it is waited for
        main = self.main if len(self._held) <= 1 else None
        if main is not None and all(self._is_alone(main, spare) for _ in range(LOOKS_AT_ONE)):
            self._held, self._still = [main], list(self.roots)
            self._known = {*self.roots}
            self.stopping_ns = worked.of(self._waited_ns, self._pages.threads)
            return
        if called is not None and self._known:
            self._tell_new_ones(known, worked, ours, began_ns)
        deadline = time.monotonic() + CALL_STOP_S
        seen: set[int] = set() if self.main is None else {self.main}
        idle: set[int] = set()
        passes = -1  # the first look doesn't count
        pause_s, patient_until = GOES_ON_S, time.monotonic() + 2 * GOES_ON_S
        last: dict[int, Threads] = {}
        stood, waited_ns, looked_ns = False, 0, 0
        while True:
            if not stood:
                waited_ns = time.perf_counter_ns() - began_ns
            found = self._look()
            if not stood:
                looked_ns = time.perf_counter_ns() - began_ns - waited_ns
            members = self._members(found, spare)
            last, before = {p: found[p] for p in members}, last
            stood = all(map(are_stopped, last.values()))
            new = [pid for pid in last if pid not in known] if self._known else []
            for pid in self._of_this_call(new):
                worked.unknown(pid, began_ns)
            for pid, threads in last.items():
                # a container's own first process passes signals on, and waits for others
                if not are_stopped(threads) and (pid == called or pid not in self._firsts):
                    worked.look(pid, waits=any(state == b"D" for _, state in threads))
            fresh = [p for p in members if p not in seen]
            for pid in fresh:
                # not ours to continue: it stopped itself, or is another runner's orphan
                if are_stopped(found[pid]) and pid not in ours:
                    idle.add(pid)
                send_signal(pid, signal.SIGSTOP)
            seen.update(fresh)
            if not fresh and stood and (last == before or passes < 0):
                # Processes that come and go, or wake each other, can look stopped one after another while one of them
                # always runs. Whoever slips past one look has to slip past each of these, and changes nothing that they
                # see: who ends a stopped process above himself, to be its parent's, whose children were read, does.
                passes += 1
                if passes >= PASSES:
                    self._held, self._still = [p for p in members if p not in idle], list(found)
                    self._known = {*found}
                    self._pages.know([p for p in self._held if p != self.main])
                    self.went_on_ns = time.perf_counter_ns() - went_on_at if went_on_at else 0
                    waited_ns = max(0, waited_ns - self.went_on_ns)
                    self.stopping_ns = worked.of(waited_ns, self._pages.threads, looked_ns=looked_ns)
                    return
                continue
            passes = 0
            if time.monotonic() > deadline:
                raise Unstoppable("one of its processes doesn't stop")
            if not fresh:
                time.sleep(2e-5)
                for pid, threads in last.items():  # a sibling continued it in between
                    if not are_stopped(threads):
                        send_signal(pid, signal.SIGSTOP)
                if time.monotonic() > patient_until and (waited_for := self._waited_for(last)):
                    went_on_at = went_on_at or time.perf_counter_ns()
                    for pid in waited_for:
                        send_signal(pid, signal.SIGCONT)
                    time.sleep(pause_s)
                    seen -= waited_for
                    ours |= waited_for
                    idle -= waited_for
                    pause_s, patient_until = min(2 * pause_s, MOST_GOES_ON_S), time.monotonic() + 2 * GOES_ON_S

    def _of_this_call(self, new: list[int]) -> list[int]:
        """Those of these, which weren't there when it was stopped last, that it has started since. Without a PID
        namespace others' orphans are looked at, too, which may have become the judge's children by now only."""
        if not new or self._orphans is None:
            return new
        others, waiting = set[int](), list(self._others() if self._others else ())
        while waiting:
            others.add(pid := waiting.pop())
            waiting += [child for child in self._pages.children(pid) or () if child not in others]
        return [pid for pid in new if pid not in others and began_at_ns(pid) >= self._thawed_ns - TICK_NS]

    def _tell_new_ones(self, known: set[int], worked: _Worked, ours: set[int], began_ns: int) -> None:
        """Tell those to stop that came in this call, generation by generation: the look at all of them takes long where
        there are many, and meanwhile they would go on. They have until now, since the stop began."""
        waiting = [pid for pid in (self.main, *self._held, *self.roots) if pid is not None]
        while waiting:
            waiting += self._tell(self._pages.children(waiting.pop(0)) or (), known, worked, ours, began_ns)

    def _tell(
        self, children: Iterable[int], known: set[int], worked: _Worked, ours: set[int], began_ns: int
    ) -> list[int]:
        """Tell those of these to stop that aren't known; they are then. Who sleeps hasn't worked since it began."""
        new = [child for child in children if child not in known]
        known.update(new)
        depth = len(namespace_numbers(os.getpid())) if new and self._inner else 0
        for child in new:
            if not self._inner or len(namespace_numbers(child)) > depth:
                state, threads = state_and_threads(child)
                if state == "S" and threads == 1:
                    worked.told(child)
                else:
                    worked.unknown(child, began_ns)
                if goes_on(state, threads) and send_signal(child, signal.SIGSTOP):
                    ours.add(child)
        return new

    def _waited_for(self, members: Mapping[int, Threads]) -> set[int]:
        """The stopped children of those that wait in the kernel where no signal reaches them."""
        waiting = [pid for pid, threads in members.items() if any(state == b"D" for _, state in threads)]
        below = {child for pid in waiting for child in self._pages.look(pid)[1]}
        return {pid for pid in below if pid in members and are_stopped(members[pid])}

    def _is_alone(self, main: int, spare: int | None) -> bool:
        """Whether it has stopped, and there is no other process of this tree.

        One process can be told for certain. The kernel tells its parent that it has stopped once none of its threads
        runs, and then it has no new ones and no new children until somebody continues it, for which there would have to
        be another. Whoever isn't below it is below the keeper, or the judge's orphan; nobody comes from there to be
        below it. So the order matters: its own children first, those places after that.
        """
        if not self._has_stopped(main) or self._pages.children(main) != []:
            return False
        if spare is not None and self._pages.children(spare) not in ([], [main]):  # the runner may be the judge's child
            return False
        return not self._inner and {*self.roots} <= {main, spare} and not (self._orphans and self._orphans())

    def _has_stopped(self, pid: int) -> bool:
        """Whether this child of ours was stopped and none of its threads runs any more; waits a moment for that, unless
        it has children, who run meanwhile."""
        began = time.perf_counter_ns()
        with contextlib.suppress(ChildProcessError):
            while (waited := time.perf_counter_ns() - began) < STOPS_WITHIN_NS:
                found = os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOHANG | os.WNOWAIT)
                if found is not None:
                    self._waited_ns += waited
                    return found.si_code == os.CLD_STOPPED
                if waited < SPINS_NS:
                    os.sched_yield()
                elif self._pages.children(pid):
                    return False
                else:
                    time.sleep(2e-5)
        return False

    def core(self) -> int | None:
        """Where the one that is called was last.

        Which one that is shows when this is first asked, before a submission is there: the runner itself, what a
        container's first process started, or the last of several ranks.
        """
        if self._called is None:
            below = [p for p in self._held if p in self._inside or not self._inside]
            self._called = below[-1] if below else self.main
        if self._called is not None:
            with contextlib.suppress(IndexError, ValueError):
                return int(self._pages.stat(self._called).rpartition(b")")[2].split()[_PROCESSOR])
        return None

    def thaw(self) -> None:
        """Continue the called process first, if it is known."""
        self._still, self._thawed_ns = None, time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        called = self._called if self.main is None else self.main
        if called is not None and (called == self.main or called in self._held):
            send_signal(called, signal.SIGCONT)
        for pid in self._held:
            if pid != called:
                send_signal(pid, signal.SIGCONT)

    def resident(self, pid: int) -> int:
        """The memory of one of its processes."""
        return self._pages.resident(pid)

    def close(self) -> None:
        """It has ended."""
        self._pages.close()
