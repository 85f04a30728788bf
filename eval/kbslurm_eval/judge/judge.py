"""The judge: holds seed, reference, hidden cases, clock, key and report, and runs a mode's phases one after another.

It believes nothing that comes from a process that has seen the submission, but bytes of a layout it declared, which it
checks, and the moment at which its own token came back, which it confirms by looking at the output before and after it
stopped that process.

What remains open, and is known: turning the link's bytes into lists and numbers of Python, and copying an answer into
its place, is part of the measured time, so a submission that replaces the runner's own decoder saves that much on
problems whose values aren't arrays. Below isolation level 2 a submission can leave files on the machine. A submission
may say in its run time what it can't say otherwise. What a GPU adds to all of this is in `device.py`.
"""

from __future__ import annotations

import gc
import hashlib
import json
import os
import random
import signal
import statistics
import struct
import time
import traceback
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from kbslurm_eval.cage import core_warmer, guard
from kbslurm_eval.cage.supervisor import CantStart, Runner, Supervisor, Unstoppable
from kbslurm_eval.device import cuda_on_cpu
from kbslurm_eval.shared import clock, remove_tree, runner_link, samples, values
from kbslurm_eval.shared.program import harness_digest
from kbslurm_eval.shared.runner_link import JudgeEnd, Kind, Status
from kbslurm_eval.shared.wire import (
    LOG_CAP,
    PHASES,
    REPORT_CAP,
    SAMPLES_CAP,
    WIRE_VERSION,
    BenchmarkResult,
    Isolation,
    LaunchSamples,
    Manifest,
    PhaseName,
    PhaseResult,
    Report,
    TestResult,
    VerdictName,
    commitment,
    dumps,
)

from . import builds, finals, machine
from .reference import Case, Prepared, ProblemTrouble, Reference, derived_seed

if TYPE_CHECKING:
    from .device_launch import Ground
    from .profiling import Drawn
    from .rank_reference import Chorus

LATE_CAP = 32_768  # an input up to this size is written inside the window, to a runner that is already awake
SMALL_OUTPUT = 16_384
PROBES, PROBE_SIZE = 16, 64
WARM_UPS, NULLS, NULLS_DROPPED = 2, 10, 2
SETTLED, SETTLE_LEAST_S, SETTLE_MOST_S = 6, 0.06, 0.5  # so many null calls in a row are alike, and when that is asked
SPIN_NS = 400_000
WAKES_FREE, WAKE_FREE_NS, WAKE_MOST_NS = 8, 1_000_000, 5_000_000  # so many usual times a runner may take to be awake
START_S = 60.0
NONDETERMINISTIC = "NONDETERMINISTIC"
SECRET: tuple[PhaseName, ...] = ("ranked", "hidden")
MESSAGE_CAP = 1_000
HELD_CAP = 2 << 30  # of inputs and answers that wait for their runner's end to be checked


class Rejected(Exception):
    """The run ends here with this verdict. `said` is for public phases, `plain` says no more than the class."""

    def __init__(self, verdict: VerdictName, said: str, plain: str = "") -> None:
        super().__init__(said)
        self.verdict, self.said, self.plain = verdict, said, plain or said


class OutOfTime(BaseException):
    """The whole attempt's time is over while the judge itself was busy."""


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What one message came to."""

    ns: int
    status: int
    text: str
    out: bytes


@dataclass(kw_only=True)
class Allowance:
    """A phase's time: only what is spent on the runner counts against it, not the judge's own work."""

    left_s: float
    whole_s: float
    aside_s: float = 0.0  # what came of it outside of calls: ending its processes, removing what they left

    @property
    def theirs_s(self) -> float:
        """All time that the submission's own doing took."""
        return self.whole_s - self.left_s + self.aside_s

    def spend(self, seconds: float) -> None:
        """Take this from what is left."""
        self.left_s -= seconds


class Launch:
    """One runner and the judge's conversation with it. Outside of `ring` every process of the runner is stopped."""

    def __init__(
        self, supervisor: Supervisor, allowance: Allowance, pulse: Pulse, built: builds.Built | None = None
    ) -> None:
        self._allowance, self._pulse, self._built = allowance, pulse, built
        folder = supervisor.prepare()
        self._link = JudgeEnd(folder)
        if built is not None:
            built.lay(folder)
        self._opened(folder)
        place = built.cache(folder) if built is not None and supervisor.bare else None
        self.runner: Runner = supervisor.start(folder, place)
        self._ids: dict[str, int] = {}
        self._null_payloads: dict[int, bytes] = {}
        self._last = bytes(8)
        self._warmer = supervisor.warmer
        self._core: int | None = None
        self._awake = 0
        self._wakes: list[int] = []
        self._patience_ns: float | None = None
        try:
            hello = self.ring(Kind.HELLO, values.pack(self._greeting(supervisor)), limit_s=START_S)
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

    def facts(self) -> dict[str, Any]:
        """What a report says of launches of this kind."""
        return {}

    def _opened(self, folder: Path) -> None:
        """Whatever else has to lie in the launch's folder before its runner starts."""

    def _greeting(self, supervisor: Supervisor) -> dict[str, Any]:
        return {**supervisor.hello(), "native": self._built is not None and self._built.native}

    def ring(
        self,
        kind: Kind,
        payload: bytes,
        *,
        layout: values.Layout | None = None,
        late: bool = False,
        limit_s: float | None = None,
    ) -> Reply:
        """One message and its answer; the time between counts from the moment at which the runner could know the
        input."""
        out_size = layout.size if layout is not None else 0
        end = self._link
        token = end.token().to_bytes(8, "little")
        end.words(kind, size=len(payload), layout=self._ids.get(layout.text(), 0) if layout else 0, out_size=out_size)
        if out_size:
            end.room(out_size)
            end.poison(out_size)
        allowed_s = self._allowance.left_s if limit_s is None else limit_s
        before_ns = time.perf_counter_ns()
        slept_in_ns = 0
        self._warmer.turn(self._core)
        if late:
            slept_in_ns = self._slept_in(self._wake(allowed_s))
            start_ns = time.perf_counter_ns()
            os.pwrite(end.input, payload, 0)
            os.pwrite(end.bell, token, runner_link.GO)
        else:
            end.put(payload)
            os.pwrite(end.bell, token, runner_link.GO)
            start_ns = time.perf_counter_ns()
            self._go_on()
        try:
            done_ns = self._answered(token, start_ns, allowed_s)
            first = self._probe(out_size, end)
            self._stop()
        finally:
            if limit_s is None:
                self._allowance.spend((time.perf_counter_ns() - before_ns) / 1e9)
        return self._collected(kind, token, out_size, first, done_ns - start_ns + slept_in_ns)

    def _collected(self, kind: Kind, token: bytes, out_size: int, first: list[tuple[int, bytes]], ns: int) -> Reply:
        """The answer of a runner that is stopped, when nothing of it has moved since it was given."""
        end = self._link
        if kind in (Kind.CALL, Kind.DEVICE_CALL) and self.runner.out_of_memory():
            raise Rejected("memory", "the submission used more memory than allowed")
        if end.resized():  # filled up, the memory that links live in would end the judge's run, which is then repeated
            raise Rejected("violation", "the submission changed the size of the link's files")
        out = end.read_out(out_size)
        if os.pread(end.bell, 8, runner_link.DONE) != token:
            raise Rejected("violation", "the submission answered for a call that wasn't made")
        if len(out) != out_size or any(out[at : at + len(part)] != part for at, part in first):
            raise Rejected("violation", "the output was still being written after it was reported done")
        self._last = token
        status, text = end.status()
        end.clear_text()
        return Reply(ns=ns, status=status, text=text, out=out)

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
        self._core = self.runner.core()
        core_warmer.apart(self._core)
        self._warmer.turn(self._core)

    def _wake(self, allowed_s: float) -> int:
        """A runner that runs, has nothing to work on, and looks for its next message."""
        self._awake += 1
        word = self._awake.to_bytes(8, "little")
        os.pwrite(self._link.bell, word, runner_link.PING)
        began = time.perf_counter_ns()
        self._go_on()
        return self._until(runner_link.AWAKE, lambda found: found == word, began, allowed_s, 50_000)[0] - began

    def _slept_in(self, took_ns: int) -> int:
        """What counts as part of the call of the time that a runner took to be awake.

        Far more than before it had the submission is work that it does before the clock runs: on what the next calls
        have in common, or on caches that the baseline then finds cold.
        """
        if self._patience_ns is None:
            self._wakes.append(took_ns)
            return 0
        return took_ns if took_ns > self._patience_ns else 0

    def _answered(self, token: bytes, start_ns: int, allowed_s: float) -> int:
        done_ns, found = self._until(runner_link.DONE, lambda found: found != self._last, start_ns, allowed_s)
        if found != token:
            raise Rejected("violation", "the submission answered for a call that wasn't made")
        return done_ns

    def _until(
        self, offset: int, good: Callable[[bytes], bool], start_ns: int, allowed_s: float, spin_ns: int = SPIN_NS
    ) -> tuple[int, bytes]:
        """The moment at which the word at this offset became good. Spins first, for precision, and sleeps then.

        At most a 400th of what it has waited: on a busy machine a judge that spins keeps the runner from a core.
        """
        fd, pread, now = self._link.bell, os.pread, time.perf_counter_ns
        while True:
            for _ in range(24):
                found = pread(fd, 8, offset)
                if good(found):
                    return now(), found
            waited = now() - start_ns
            if waited > spin_ns:
                time.sleep(min(0.02, max(5e-6, waited / 400e9)))
                if waited > 1_000_000:
                    self._look(waited, allowed_s)
            else:
                os.sched_yield()

    def _look(self, waited_ns: int, allowed_s: float) -> None:
        """Whether waiting still makes sense."""
        self._pulse.beat()
        if (gone := self._gone()) is not None:
            raise gone
        if waited_ns / 1e9 > allowed_s:
            whole = self._allowance.whole_s
            raise Rejected("timeout", f"no answer within {whole:g} s", "the time limit was reached")

    def _gone(self) -> Rejected | None:
        """The verdict when the runner is no more, or should be."""
        how = self.runner.ended()
        if self.runner.out_of_memory():
            return Rejected("memory", "the submission used more memory than allowed")
        if how is None:
            return None
        return Rejected("error", f"the submission ended itself ({how})", "the submission ended itself")

    def _probe(self, size: int, end: JudgeEnd) -> list[tuple[int, bytes]]:
        """Bytes of the output at once, before the runner is stopped: all of a small one, random places of a large
        one."""
        if size <= SMALL_OUTPUT:
            return [(0, os.pread(end.out, size, 0))] if size else []
        return [(at, os.pread(end.out, PROBE_SIZE, at)) for at in _places(size)]

    def declare(self, layout: values.Layout) -> None:
        """The runner knows this layout from now on."""
        text = layout.text()
        if text not in self._ids:
            self._ids[text] = len(self._ids) + 1
            self._link.room(layout.size)
            self.ring(Kind.DECLARE, values.pack(text), layout=layout)

    def load(self, manifest: Manifest) -> Reply:
        """Hand the submission over. From here on nothing from this runner is believed."""
        self._lose_patience()
        return self.ring(Kind.LOAD, values.pack(self._handed(manifest)))

    def _lose_patience(self) -> None:
        seen = statistics.median(self._wakes) if self._wakes else 0.0
        self._patience_ns = min(max(WAKE_FREE_NS, WAKES_FREE * seen), WAKE_MOST_NS)

    def _handed(self, manifest: Manifest) -> dict[str, Any]:
        files = {name: manifest.files[name] for name in manifest.runner_files if name in manifest.files}
        return {
            "entry": manifest.entry,
            "source": manifest.source,
            "files": files,
            "call": manifest.config.get("call", "custom_kernel"),
            "work": None if self.runner.work is None else str(self.runner.work),
            "cpu_twin": cuda_on_cpu.wanted(manifest.gpu, (manifest.source, *files.values())),
            "interpreted": cuda_on_cpu.interpreted(manifest.gpu, (manifest.source, *files.values())),
            **self.built(),
        }

    def built(self) -> dict[str, Any]:
        """What the runner has to know of what was built for it."""
        return {} if self._built is None else self._built.told(self.runner.folder, self.runner.work)

    def settle(self, prepared: Prepared) -> None:
        """What a library does on its first use is over when this returns, and its threads, which turn for some 30 ms
        after that, have gone to sleep: while one turns on the judge's core, an answer is seen a slice too late, and so
        is the next, so that null calls are alike and each 3 ms. Nothing of a submission is here yet."""
        left_s = self._allowance.left_s
        took = [self.null(prepared)]
        began = time.monotonic()
        self._go_on()
        time.sleep(SETTLE_LEAST_S)  # on the core that the judge leaves free, too
        self._stop()
        while time.monotonic() - began < SETTLE_MOST_S:
            took.append(self.null(prepared))
            if len(took) > SETTLED and max(took[-SETTLED:]) <= 2 * min(took):
                break
        self._allowance.left_s = left_s  # a busy machine's time is not theirs

    def null(self, prepared: Prepared) -> int:
        """A call's way without the call."""
        return self.ring(Kind.NULL, self._null_payload(prepared), late=len(prepared.packed) <= LATE_CAP).ns

    def bare_null(self, prepared: Prepared) -> int:
        """A null call with nothing to decode in as many bytes: what of it no submission can save."""
        payload = values.pack(None).ljust(len(self._null_payload(prepared)), b"\0")
        return self.ring(Kind.NULL, payload, late=len(prepared.packed) <= LATE_CAP).ns

    def _null_payload(self, prepared: Prepared) -> bytes:
        index = prepared.case.index
        if index not in self._null_payloads:
            self._null_payloads[index] = values.pack(values.copied(prepared.packed), arrays_only=True)
        return self._null_payloads[index]

    def call(self, prepared: Prepared) -> Reply:
        """One call of the submission."""
        self.declare(prepared.layout)
        return self.ring(Kind.CALL, prepared.packed, layout=prepared.layout, late=len(prepared.packed) <= LATE_CAP)

    def by_hand(self, prepared: Prepared) -> bytes:
        """The input for calls that aren't judged."""
        return prepared.packed

    def keep(self, index: int) -> None:
        """The last call is one that counts."""

    def witness(self, name: PhaseName, times: Mapping[int, clock.LaunchTimes]) -> None:
        """What else than the judge's clock was seen of the calls that count."""

    def counted(self) -> None:
        """This launch was the submission's own."""

    def close(self) -> str:
        """End it; what it wrote."""
        began = time.monotonic()
        self.runner.kill()
        text = self.runner.log()
        self._link.close()
        remove_tree.remove(self.runner.folder)
        if self._built is not None:
            self._built.clear(self.runner.folder, self.runner.work)
        self._allowance.aside_s += time.monotonic() - began
        return text


def _places(size: int) -> list[int]:
    """Where to look: drawn from the kernel's own numbers, never from the plain module, which is seeded for each input,
    and a submission sees that seed."""
    return [drawn % (size - PROBE_SIZE + 1) for drawn in struct.unpack(f"={PROBES}Q", os.urandom(8 * PROBES))]


def _plain_dict(text: str) -> dict[str, Any]:
    found = json.loads(text) if text else {}
    return found if isinstance(found, dict) else {}


class Pulse:
    """heartbeat.json: which phase, how far; at most once a second."""

    def __init__(self, path: Path | None) -> None:
        self._path, self._last = path, 0.0
        self.phase, self.done, self.of = "start", 0, 0

    def beat(self, *, now: bool = False) -> None:
        """Write it when a second has passed, or now."""
        at = time.monotonic()
        if self._path is None or (at - self._last < 1.0 and not now):
            return
        self._last = at
        told = {"at_ns": time.time_ns(), "phase": self.phase, "done": self.done, "of": self.of}
        try:
            put_file(self._path, json.dumps(told))
        except OSError:
            self._path = None  # a full disk costs the heartbeat, not the run

    def enter(self, phase: str, of: int) -> None:
        """A new phase of so many steps."""
        self.phase, self.done, self.of = phase, 0, of
        self.beat(now=True)

    def step(self) -> None:
        """One step more."""
        self.done += 1
        self.beat()


def put_file(path: Path, text: str) -> None:
    """The file is there whole or not at all."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with aside.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        aside.rename(path)
    except OSError:
        aside.unlink(missing_ok=True)
        raise


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What one call of the submission gave, on the host, not yet looked at."""

    prepared: Prepared
    out: bytes


@dataclass(kw_only=True)
class Held:
    """Answers that are checked when their runner is gone, since the device belongs to it alone until then."""

    answers: list[Answer] = field(default_factory=list)
    size: int = 0

    def room(self, one: Answer) -> bool:
        """Whether this one may wait, too."""
        return self.size + len(one.prepared.packed) + len(one.out) <= HELD_CAP

    def add(self, one: Answer) -> None:
        """It waits."""
        self.answers.append(one)
        self.size += len(one.prepared.packed) + len(one.out)

    def taken(self) -> list[Answer]:
        """All of them, in the order of their calls; none is left."""
        found, self.answers, self.size = self.answers, [], 0
        return found


@dataclass(kw_only=True)
class Course:
    """What has come of the run so far."""

    tests: list[TestResult] = field(default_factory=list)
    benchmarks: list[BenchmarkResult] = field(default_factory=list)
    phases: list[PhaseResult] = field(default_factory=list)
    logs: dict[bool, str] = field(default_factory=lambda: {False: "", True: ""})
    flags: list[str] = field(default_factory=list)
    level: int = 3
    notes: list[str] = field(default_factory=list)
    launches: int = 0
    checked: int = 0
    samples: list[LaunchSamples] = field(default_factory=list)
    budget: dict[str, Any] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    profile: Drawn | None = None


class Judge:
    """Judges one manifest. `judge()` gives the report whatever happens to the submission."""

    def __init__(
        self,
        manifest: Manifest,
        supervisor: Supervisor,
        *,
        heartbeat: Path | None = None,
        artifacts: Path | None = None,
        least_level: int = 0,
        own: dict[str, Any] | None = None,
    ) -> None:
        self._manifest, self._supervisor, self._least_level = manifest, supervisor, least_level
        self._own = own or guard.seen_by_judge()
        self._pulse = Pulse(heartbeat)
        self._artifacts = artifacts
        self._course = Course()
        self._allowances: list[Allowance] = []
        self._random = random.SystemRandom()
        self._repeated = False
        self._reference: Reference | Chorus | None = None
        self._workshop = builds.Workshop(manifest=manifest)
        self._field: finals.Field | None = None
        self._rivals: dict[int, Allowance] = {}
        self._ground: Ground | None = None
        self._held = Held()

    def note(self, notes: Sequence[str]) -> None:
        """Something that the report says about the isolation."""
        self._course.notes += notes

    def judge(self) -> Report:
        """All phases of the mode, up to the first that isn't passed."""
        started = time.time_ns()
        self._pulse.beat(now=True)
        verdict: VerdictName = "infrastructure"
        reason = ""
        try:
            with _alarm(self._manifest.limits.total_s):
                verdict, reason = self._judged()
                if verdict == "passed" and self._manifest.mode == "profile":
                    self._profile()
        except OutOfTime:
            verdict, reason = self._out_of_time()
        except (ProblemTrouble, CantStart) as trouble:
            verdict, reason = "infrastructure", str(trouble)
        except Exception as error:  # noqa: BLE001 - a bug of ours must not cost the report, nor be blamed on anybody
            traceback.print_exc()
            verdict, reason = "infrastructure", f"the harness failed: {type(error).__name__}: {error}"
        finally:
            self._supervisor.close()
            if self._reference is not None:
                self._reference.close()
            if self._ground is not None:
                self._ground.close()
        return self._report(verdict, clean(reason, 2 * MESSAGE_CAP), started)

    def _profile(self) -> None:
        """After the verdict, and without a word in it: whatever goes wrong here is a line of the profile's text."""
        from . import profiling as profile

        assert self._reference is not None
        course, whole = self._course, self._manifest.limits.benchmark_s
        drawn = course.profile = profile.Drawn(folder=self._artifacts)
        level, notes, allowance = course.level, list(course.notes), Allowance(left_s=whole, whole_s=whole)
        cases = [Case(index=n, params=p) for n, p in enumerate(self._manifest.benchmarks)]
        chosen = profile.cases_of(cases, ranks=self._supervisor.ranks > 1)
        tools = ["", *([self._supervisor.profiler] if self._supervisor.profiler else [])]
        self._pulse.enter("profile", len(chosen) * len(tools))
        try:
            for case in chosen:
                for tool in tools:
                    self._profile_one(case, tool, allowance, drawn)
                    self._pulse.step()
        except OutOfTime:
            drawn.say("the job's time was over before the profile was whole")
        except Exception as error:  # noqa: BLE001 - the verdict stands, whatever this is
            traceback.print_exc()
            drawn.say(f"the harness failed to profile: {type(error).__name__}: {error}"[:MESSAGE_CAP])
        course.level, course.notes = level, notes

    def _profile_one(self, case: Case, tool: str, allowance: Allowance, drawn: Drawn) -> None:
        from . import profiling as profile

        assert self._reference is not None
        launch = None
        self._supervisor.profiling = bool(tool)
        try:
            prepared = self._reference.prepare(case, self._seed("benchmark", case, "profile"))
            launch = self._started("benchmark", allowance, self._built("benchmark", self._manifest))
            self._hand_over(launch, self._manifest)
            if tool:
                profile.draw_around(launch, prepared, drawn, tool)
            else:
                profile.draw(launch, prepared, drawn)
        except (Rejected, CantStart, ProblemTrouble) as trouble:
            said = trouble.said if isinstance(trouble, Rejected) else str(trouble)
            drawn.say(f"benchmark-{case.index}: no profile{f' by {tool}' if tool else ''}: {clean(said, MESSAGE_CAP)}")
        finally:
            self._supervisor.profiling = False
            self._ended("benchmark", launch)

    def _out_of_time(self) -> tuple[VerdictName, str]:
        """Whose fault it is that the whole time is over: theirs whose code took most of it."""
        total = self._manifest.limits.total_s
        theirs = sum(a.theirs_s for a in (*self._allowances, *self._rivals.values()))
        if theirs * 2 < total:
            return "infrastructure", f"the whole run took longer than {total:g} s, most of it the problem's own code"
        return "timeout", f"the whole run took longer than {total:g} s"

    def _judged(self) -> tuple[VerdictName, str]:
        manifest = self._manifest
        if manifest.gpu.lower() != "cpu":
            from . import device_launch

            self._ground, why_none = device_launch.ground_of(manifest)
            self._course.notes += [f"no device: {why_none}"] if why_none else []
        self._reference = self._reference_of(manifest)
        for name in PHASES[manifest.mode]:
            began, fault = time.time_ns(), None
            try:
                fault = self._phase(name)
            except Rejected as rejected:
                fault = rejected
            finally:
                passed = fault is None
                self._course.phases.append(
                    PhaseResult(name=name, passed=passed, started_at_ns=began, ended_at_ns=time.time_ns())
                )
            if fault is not None:
                return fault.verdict, _reason(name, fault)
        return "passed", "all phases passed"

    def _reference_of(self, manifest: Manifest) -> Reference | Chorus:
        from . import rank_reference, ranks_launch

        world = ranks_launch.world_of(manifest)
        if world > 1 and manifest.lang == "cu":
            raise ProblemTrouble("a problem of several ranks takes Python submissions; lang cu has one process")
        if world > 1:
            return rank_reference.Chorus(manifest, world)
        exclusive = self._ground is not None and self._ground.facts.exclusive
        return Reference(manifest, self.compiled_reference(), no_device=exclusive)

    def _phase(self, name: PhaseName) -> Rejected | None:
        limits = self._manifest.limits
        whole = {
            "test": limits.test_s,
            "benchmark": limits.benchmark_s,
            "ranked": limits.ranked_s,
            "hidden": limits.ranked_s,
        }[name]
        allowance = Allowance(left_s=whole, whole_s=whole)
        self._allowances.append(allowance)
        if name in ("test", "hidden"):
            return self._check_cases(name, allowance)
        return self._measure(name, allowance)

    # -------------------------------------------------------------------------------------------- checked cases

    def _check_cases(self, name: PhaseName, allowance: Allowance) -> Rejected | None:
        manifest, secret = self._manifest, name in SECRET
        params = [*manifest.hidden, *manifest.tests] if secret else manifest.tests
        cases = [Case(index=n, params=p) for n, p in enumerate(params)]
        if not cases:
            if not secret:  # nothing to check, but it must load
                self._ended(name, self._loaded(name, allowance))
            return None
        self._pulse.enter(name, len(cases))
        results: dict[int, TestResult] = {}
        faults: dict[int, Rejected] = {}
        order = self._random.sample(cases, len(cases)) if secret else cases
        launch = None
        try:
            self._verified(order[0], self._seed(name, order[0]))
            launch = self._loaded(name, allowance)
            for case in order:
                fault = self._checked(name, case, launch)
                results[case.index] = self._result(name, case, fault)
                if fault is not None:
                    faults[case.index] = fault
                self._pulse.step()
        except Rejected as fault:
            unseen = next((c for c in order if c.index not in results), None)
            faults[-1 if unseen is None else unseen.index] = fault
            if unseen is not None:
                results[unseen.index] = self._result(name, unseen, fault)
        except OutOfTime:
            self._held.taken()  # nobody has time to check them
            raise
        finally:
            self._ended(name, launch)
            for case, late in self._checked_late(name):
                if case.index not in faults:
                    faults[case.index] = late
                    results[case.index] = self._result(name, case, late)
            worst = next((faults[n] for n in (*(c.index for c in order), -1) if n in faults), None)
            if secret:
                self._course.tests.append(_one_for_all(worst))
            else:
                rest = {c.index: TestResult(phase=name, index=c.index, spec=c.spec, status="skipped") for c in cases}
                self._course.tests += [results.get(n, rest[n]) for n in sorted(rest)]
        return worst

    def _verified(self, case: Case, seed: int | None) -> None:
        assert self._reference is not None
        prepared = self._reference.prepare(case, seed, exact=True)
        self._look(prepared)
        self._reference.verify(prepared)

    def _look(self, prepared: Prepared) -> None:
        """Whether the device is needed at all."""
        if self._ground is not None and isinstance(self._reference, Reference):
            self._ground.look(prepared)

    def _checked(self, name: PhaseName, case: Case, launch: Launch) -> Rejected | None:
        """One call of one case, judged. What ends the launch is raised; a wrong answer or an exception is returned."""
        fault, _ = self._one_call(name, case, self._seed(name, case), launch)
        if fault is None and name == "test" and not self._repeated:
            fault = self._checked_again(name, case, launch)
        return None if fault is None else self._placed(name, case, fault)

    def _placed(self, name: PhaseName, case: Case, fault: Rejected) -> Rejected:
        """The same, told with the test that it came of where there are several."""
        if len(self._manifest.tests) + len(self._manifest.hidden) > 1 and name == "test":
            fault.said = f"test {case.index + 1} of {len(self._manifest.tests)} ({case.spec}): {fault.said}"
        return fault

    def _checked_late(self, name: PhaseName) -> Iterator[tuple[Case, Rejected]]:
        """What had to wait for the runner's end, checked now that it is gone: what is wrong, in the order of calls."""
        seen: set[int] = set()
        for answer in self._held.taken():
            case = answer.prepared.case
            fault = self._fault_of(name, answer)
            if fault is not None:
                if name == "test" and case.index in seen:
                    self._note_changing(case, fault)
                yield case, self._placed(name, case, fault)
            seen.add(case.index)

    def _checked_again(self, name: PhaseName, case: Case, launch: Launch) -> Rejected | None:
        """The first test's input a second time: a wrong answer now is no question of the input, and staff are told."""
        self._repeated = True
        fault, _ = self._one_call(name, case, self._seed(name, case), launch)
        if fault is not None:
            self._note_changing(case, fault)
        return fault

    def _note_changing(self, case: Case, fault: Rejected) -> None:
        if fault.verdict == "wrong":
            self._course.flags.append(NONDETERMINISTIC)
            said = clean(fault.said, MESSAGE_CAP)
            evidence = self._course.facts.setdefault("evidence", {})
            evidence[NONDETERMINISTIC] = f"{case.spec}: right at first, and then {said}"

    def _one_call(self, name: PhaseName, case: Case, seed: int | None, launch: Launch) -> tuple[Rejected | None, int]:
        assert self._reference is not None
        if not isinstance(self._reference, Reference):
            from . import ranks_launch

            assert isinstance(launch, ranks_launch.RanksLaunch)
            fault, ns, checked = ranks_launch.one_call(self._reference, launch, case, seed)
            self._course.checked += checked
            return fault, ns
        prepared = self._reference.prepare(case, seed)
        reply = launch.call(prepared)
        if reply.status in (Status.WRONG_SHAPE, Status.WRONG_TYPE) and self._reference.layout_moved(prepared):
            again = None if seed is None else seed ^ 1  # a timed call never meets an input twice
            return self._one_call(name, case, again, launch)
        if reply.status != Status.OK:
            return claimed(reply), reply.ns
        answer = Answer(prepared=prepared, out=reply.out)
        if self._ground is not None and self._ground.alone and self._held.room(answer):
            self._held.add(answer)
            return None, reply.ns
        return self._fault_of(name, answer), reply.ns

    def _fault_of(self, name: PhaseName, answer: Answer) -> Rejected | None:
        """Whether this answer is right, by the problem's own check."""
        assert isinstance(self._reference, Reference)
        prepared, case = answer.prepared, answer.prepared.case
        try:
            output = prepared.layout.read(answer.out)
        except values.Misfit as misfit:
            return Rejected("wrong", f"an answer is wrong: {misfit}", "an answer is wrong")
        good, said = self._reference.check(prepared, output)
        self._course.checked += 1
        if good:
            if name == "test" and not self._course.facts.get("tolerance", {}).get("times"):  # of the first that differs
                self._course.facts["tolerance"] = {
                    "case": case.spec,
                    "times": self._reference.margin(prepared, output),
                }
            return None
        return Rejected("wrong", f"an answer is wrong: {said}" if said else "an answer is wrong", "an answer is wrong")

    def _result(self, name: PhaseName, case: Case, fault: Rejected | None) -> TestResult:
        if fault is None:
            return TestResult(phase=name, index=case.index, spec=case.spec, status="pass")
        message = clean(fault.said.partition("): ")[2] or fault.said, MESSAGE_CAP)
        return TestResult(phase=name, index=case.index, spec=case.spec, status=_status(fault), message=message)

    # ---------------------------------------------------------------------------------------------- timed cases

    def _measure(self, name: PhaseName, allowance: Allowance) -> Rejected | None:
        manifest = self._manifest
        cases = [Case(index=n, params=p) for n, p in enumerate(manifest.benchmarks)]
        if not cases:
            return None
        launches = (
            manifest.budget.launches
            if name == "ranked" or manifest.mode != "leaderboard"
            else min(2, manifest.budget.launches)
        )
        calls = {case.index: self._calls(name, case) for case in cases}
        self._course.budget[name] = {"launches": launches, "calls": [calls[case.index] for case in cases]}
        self._pulse.enter(name, launches * (sum(calls.values()) + len(cases) * WARM_UPS))
        at = cases[0]
        fault: Rejected | None = None
        rivals = finals.rivals_of(manifest.config) if name == "ranked" else []
        self._field = finals.Field(sources=rivals) if rivals else None
        try:
            for number in range(launches):
                times, at, fault = self._measured(name, cases, calls, number, allowance)
                if fault is not None:
                    return fault
                self._course.samples += [samples.of_launch(name, n, number, found) for n, found in times.items()]
        except Rejected as rejected:
            fault = rejected
            raise
        finally:
            if self._field is not None:
                self._course.facts["rivals"] = self._field.told()
            for case in cases:
                mine = fault if case.index == at.index else None
                seen = samples.nets(self._course.samples, name, case.index)
                self._course.benchmarks.append(_benchmark(name, case, seen, mine, fault, launches))
        return None

    def _calls(self, name: PhaseName, case: Case) -> int:
        """How many calls per launch: fixed by the budget and the trusted reference's own pace."""
        assert self._reference is not None
        budget = self._manifest.budget
        prepared = self._reference.prepare(case, self._seed(name, case, "pace"), exact=True)
        self._look(prepared)
        self._reference.verify(prepared)
        began = time.perf_counter_ns()
        self._reference.answer_again(prepared)
        pace = (time.perf_counter_ns() - began) / 1e9
        # What can't be archived isn't measured: the service computes every figure again from the samples.
        rows = 2 * 2 * budget.launches * len(self._manifest.benchmarks)
        most = max(1, min(budget.max_calls, SAMPLES_CAP // rows))
        return clock.budgeted_calls(calls=budget.calls, max_calls=most, target_s=budget.target_s, reference_s=pace)

    def _measured(
        self, name: PhaseName, cases: Sequence[Case], calls: dict[int, int], number: int, allowance: Allowance
    ) -> tuple[dict[int, clock.LaunchTimes], Case, Rejected | None]:
        assert self._reference is not None
        patterns = {c.index: self._reference.prepare(c, self._seed(name, c, number, "null")) for c in cases}
        launch, at, fault = None, cases[0], None
        meeting: finals.Round | None = None
        plan = [case for case in cases for _ in range(calls[case.index] + WARM_UPS)]
        self._random.shuffle(plan)
        base, base_times = self._baseline(name, patterns)
        try:
            if base is not None and self._ground is not None and self._ground.alone:
                self._base_alone(name, plan, number, base, base_times)
                base.close()
                base = None
                for _, wrong in self._checked_late(name):
                    raise ProblemTrouble(f"the problem's baseline fails: {wrong.said}")
            launch = self._started(name, allowance, self._built(name, self._manifest))
            times = _nulls(launch, patterns)
            self._hand_over(launch, self._manifest)
            meeting = self._meeting(name, patterns)
            counts = dict.fromkeys(times, 0)
            with _quiet():
                for step, at in enumerate(plan):
                    count = counts[at.index]
                    kept = count >= WARM_UPS
                    if base is not None and step % 2:  # candidate, baseline, baseline, candidate, and so on
                        self._base_call(name, at, (number, count), base, base_times, kept)
                    fault, ns = self._one_call(name, at, self._seed(name, at, number, count), launch)
                    if fault is not None:
                        break
                    if base is not None and not step % 2:
                        self._base_call(name, at, (number, count), base, base_times, kept)
                    if meeting is not None:
                        meeting.step(at, (number, count), kept=kept)
                    counts[at.index] += 1
                    if kept:
                        times[at.index].calls_ns.append(ns)
                        launch.keep(at.index)
                    if step % 8 == 7:
                        times[at.index].null_ns.append(launch.null(patterns[at.index]))
                    self._pulse.step()
            if fault is None:
                launch.witness(name, times)
            if meeting is not None and fault is None:
                self._course.samples += meeting.samples(name, number, base_times)
        finally:
            self._ended(name, launch)
            if base is not None:
                base.close()
            if meeting is not None:
                meeting.close()
        for case, wrong in self._checked_late(name):
            return times, case, wrong
        for index, found in base_times.items():
            times[index].baseline = found
        return times, at, fault

    def _baseline(
        self, name: PhaseName, patterns: dict[int, Prepared]
    ) -> tuple[Launch | None, dict[int, clock.LaunchTimes]]:
        """A runner with the problem's own trusted submission, when it has one: stopped while the candidate runs."""
        source = self._manifest.config.get("baseline")
        if not isinstance(source, str):
            return None, {}
        whole = self._manifest.limits.total_s
        theirs = replace(self._manifest, source=source, config={**self._manifest.config, "role": "baseline"})
        try:
            built = self._built(name, theirs)
        except Rejected as fault:
            raise ProblemTrouble(f"the problem's baseline doesn't compile: {fault.said}") from None
        base = self._started(name, Allowance(left_s=whole, whole_s=whole), built)
        try:
            times = _nulls(base, patterns)
            self._hand_over(base, theirs)
        except Rejected as fault:
            base.close()
            raise ProblemTrouble(f"the problem's baseline doesn't run: {fault.said}") from None
        except BaseException:
            base.close()
            raise
        return base, times

    def _base_alone(
        self,
        name: PhaseName,
        plan: Sequence[Case],
        number: int,
        base: Launch,
        times: dict[int, clock.LaunchTimes],
    ) -> None:
        """All of the baseline's calls before the candidate starts, on a device that only one process may use."""
        counts = dict.fromkeys(times, 0)
        with _quiet():
            for at in plan:
                count = counts[at.index]
                self._base_call(name, at, (number, count), base, times, count >= WARM_UPS)
                counts[at.index] += 1

    def _meeting(self, name: PhaseName, patterns: dict[int, Prepared]) -> finals.Round | None:
        """The rivals' runners for one launch, where this is a final."""
        if self._field is None or name != "ranked":
            return None
        if self._ground is not None and self._ground.alone:
            raise CantStart("a final's kernels take turns, and this device is in exclusive-process mode")
        each_s = self._manifest.limits.ranked_s / finals.many(self._manifest.config)

        def open_one(rival: int, source: str) -> tuple[Launch, dict[int, clock.LaunchTimes]]:
            theirs = replace(self._manifest, source=source, config={**self._manifest.config, "role": f"rival{rival}"})
            if rival not in self._rivals:  # one for all launches, as everybody has in an ordinary run
                self._rivals[rival] = Allowance(left_s=each_s, whole_s=each_s)
            launch = self._started(name, self._rivals[rival], self._built(name, theirs))
            try:
                times = _nulls(launch, patterns)
                self._hand_over(launch, theirs)
            except BaseException:
                launch.close()
                raise
            return launch, times

        def call(launch: Launch, case: Case, parts: tuple[object, ...]) -> tuple[Exception | None, int]:
            return self._one_call(name, case, self._seed(name, case, *parts), launch)

        meeting = finals.Round(found=self._field, open_one=open_one, call=call, fault=Rejected)
        try:
            meeting.begin()
        except BaseException:
            meeting.close()
            raise
        return meeting

    def _base_call(
        self,
        name: PhaseName,
        case: Case,
        parts: tuple[int, int],
        base: Launch,
        times: dict[int, clock.LaunchTimes],
        kept: bool,
    ) -> None:
        try:
            fault, ns = self._one_call(name, case, self._seed(name, case, *parts, "baseline"), base)
        except Rejected as rejected:
            fault, ns = rejected, 0
        if fault is not None:
            raise ProblemTrouble(f"the problem's baseline fails: {fault.said}")
        if kept:
            times[case.index].calls_ns.append(ns)

    # ------------------------------------------------------------------------------------------------- launches

    def _started(self, name: PhaseName, allowance: Allowance, built: builds.Built | None = None) -> Launch:
        try:
            launch = self._launch(allowance, built)
        except Rejected as trouble:  # nothing of the submission was there yet
            raise CantStart(f"a runner ended before it had the submission: {trouble.said}") from None
        course = self._course
        course.launches += 1
        course.facts.update(launch.facts())
        level, notes = guard.level_of(launch.seen, self._own, container=self._supervisor.container)
        level = min(level, self._supervisor.highest)
        if level < course.level:
            course.level = level
        course.notes += [n for n in notes if n not in course.notes]
        if level < self._least_level:
            self._ended(name, launch)
            said = f"; {notes[0]}" if notes else ""
            raise CantStart(f"isolation level {level} was reached, {self._least_level} is needed here{said}")
        return launch

    def _launch(self, allowance: Allowance, built: builds.Built | None = None) -> Launch:
        if self._ground is not None and self._ground.needed:
            from . import device_launch

            return device_launch.DeviceLaunch(self._supervisor, allowance, self._pulse, built, ground=self._ground)
        if built is not None or isinstance(self._reference, Reference):
            return Launch(self._supervisor, allowance, self._pulse, built)
        from . import ranks_launch

        assert self._reference is not None
        return ranks_launch.RanksLaunch(self._supervisor, allowance, self._pulse, group=self._reference.group)

    def _loaded(self, name: PhaseName, allowance: Allowance) -> Launch:
        launch = self._started(name, allowance, self._built(name, self._manifest))
        try:
            self._hand_over(launch, self._manifest)
        except BaseException:
            self._ended(name, launch)
            raise
        return launch

    def _built(self, name: PhaseName, manifest: Manifest) -> builds.Built | None:
        """What a builder made of this source, when it needs one. The builder is gone when this returns."""
        workshop, reference = self._workshop, self._reference
        if not isinstance(reference, Reference) or not workshop.wants(manifest):
            return None  # ranks compile for themselves
        if (done := workshop.done(manifest)) is not None:
            return done
        bench = self._builder(name, manifest)
        try:
            return workshop.build(manifest, bench, reference)
        except builds.Failed as failed:
            raise Rejected(failed.verdict, f"while building: {clean(failed.said, MESSAGE_CAP)}") from None
        except builds.NoCompiler as lacking:
            raise CantStart(str(lacking)) from None
        except Rejected as fault:
            fault.said = f"while building: {fault.said}"
            raise
        finally:
            # a compiler quotes what it complains of: a baseline's lines are for staff only
            self._ended(name if manifest is self._manifest else "hidden", bench)

    def _builder(self, name: PhaseName, manifest: Manifest) -> Launch:
        limit_s = manifest.build.limit_s
        self._allowances.append(Allowance(left_s=limit_s, whole_s=limit_s))
        self._pulse.enter("build", 1)
        return self._started(name, self._allowances[-1], self._workshop.empty(manifest))

    def compiled_reference(self) -> types.ModuleType | None:
        """The problem's own C++, for a problem that has its reference there."""
        from . import compiled_reference as aside

        adapter = self._manifest.build.adapter
        if not adapter:
            return None
        bench = self._builder("test", self._manifest)
        try:
            library = self._workshop.reference(bench)
        except builds.NoCompiler as lacking:
            raise CantStart(str(lacking)) from None
        except Rejected as fault:
            raise ProblemTrouble(f"the problem's reference can't be built: {fault.said}") from None
        finally:
            self._ended("hidden", bench)
        return aside.reference_module(library, "reference", adapter)

    def _hand_over(self, launch: Launch, manifest: Manifest) -> None:
        try:
            reply = launch.load(manifest)
        except Rejected as fault:
            fault.said = f"while loading: {fault.said}"
            raise
        if reply.status != Status.OK:
            said = claimed(reply)
            said.said = f"while loading: {said.said}"
            raise said

    def _ended(self, name: PhaseName, launch: Launch | None) -> None:
        if launch is None:
            return
        launch.counted()
        text = launch.close()
        secret = name in SECRET
        self._course.logs[secret] = (self._course.logs[secret] + clean(text, LOG_CAP))[:LOG_CAP]

    def _seed(self, name: PhaseName, case: Case, *parts: object) -> int | None:
        """The seed of one call: the problem's own in tests, fresh in benchmarks, secret and fresh where it counts."""
        manifest = self._manifest
        if name == "test" and "seed" in case.params:
            return None
        if name in SECRET:
            return derived_seed(manifest.secret_seed, name, manifest.nonce, case.index, *parts)
        return derived_seed(f"public|{manifest.seed}", name, case.index, case.params.get("seed", ""), *parts)

    # --------------------------------------------------------------------------------------------------- report

    def _report(self, verdict: VerdictName, reason: str, started: int) -> Report:
        manifest, course = self._manifest, self._course
        score = self._score() if verdict == "passed" else None
        if self._ground is not None:
            course.flags += self._ground.flags()
            course.facts.update(self._ground.told())
            if found := self._ground.evidence():
                course.facts.setdefault("evidence", {}).update(found)
        launched = course.launches > 0
        report = Report(
            version=WIRE_VERSION,
            token=manifest.token,
            attempt=manifest.attempt,
            nonce=manifest.nonce,
            mode=manifest.mode,
            problem_digest=manifest.problem_digest,
            harness_digest=harness_digest(),
            verdict=verdict,
            reason=reason,
            score_s=None if score is None else score.value / 1e9,
            interval_s=None
            if score is None
            else [min(score.low, score.value) / 1e9, max(score.high, score.value) / 1e9],
            tests=course.tests,
            benchmarks=course.benchmarks,
            phases=course.phases,
            isolation=Isolation(
                level=course.level if launched else 0,
                means=self._supervisor.means if launched else "none",
                notes=course.notes,
            ),
            started_at_ns=started,
            ended_at_ns=max(started, time.time_ns()),
            log=course.logs[False],
            secret_log=course.logs[True],
            host={
                **machine.facts(),
                **self._supervisor.image,
                **course.facts,
                **self._workshop.facts(),
                "launches": course.launches,
                "spread": self._spread(),
                "calls_checked": course.checked,
            },
            flags=self._flags(),
            profile=course.profile.text() if course.profile else "",
            artifacts=course.profile.artifacts if course.profile else [],
            samples=course.samples,
            paired=any(b.baseline_ns is not None for b in course.benchmarks),
            submission_sha256=hashlib.sha256(manifest.source.encode()).hexdigest(),
            seed_commitment=commitment(manifest.secret_seed),
            budget=course.budget,
        )
        self._pulse.enter("done", 0)
        return _fitting(report)

    def _score(self) -> clock.Estimate | None:
        wanted = "ranked" if self._manifest.mode == "leaderboard" else "benchmark"
        found = [b.launch_medians_ns for b in self._course.benchmarks if b.phase == wanted]
        return clock.combined(found, self._manifest.ranking_by) if found else None

    def _spread(self) -> dict[str, list[dict[str, float] | None]]:
        """By timed phase, for each benchmark: the spread between launches and between the calls of one."""
        told: dict[str, list[dict[str, float] | None]] = {}
        for result in self._course.benchmarks:
            if result.status == "pass":
                seen = samples.nets(self._course.samples, result.phase, result.index)
                told.setdefault(result.phase, []).append(samples.components(seen))
        return told

    def _flags(self) -> list[str]:
        found = {flag for b in self._course.benchmarks for flag in b.flags if flag.isupper()}
        return [*self._course.flags, *sorted(found)]


def _fitting(report: Report) -> Report:
    """The report below the cap: a thousand failed tests cost their messages, then the logs, never the report."""
    if len(dumps(report)) < REPORT_CAP // 2:
        return report
    short = replace(report, tests=[replace(t, message=t.message[:60], spec=t.spec[:60]) for t in report.tests])
    if len(dumps(short)) < REPORT_CAP // 2:
        return short
    return replace(short, log=short.log[:1000], secret_log=short.secret_log[:1000])


def _reason(name: PhaseName, fault: Rejected) -> str:
    where = {"test": "test phase", "benchmark": "benchmark phase", "ranked": "ranked phase", "hidden": "hidden cases"}[
        name
    ]
    if fault.verdict == "violation":
        return f"{where}: {fault.said}"
    if name in SECRET:
        return f"{where}: {fault.plain}"
    said = fault.said
    return (
        f"{where}, {said}"
        if said.startswith(("while building", "while loading", "test ", "benchmark "))
        else f"{where}: {said}"
    )


def _nulls(launch: Launch, patterns: dict[int, Prepared]) -> dict[int, clock.LaunchTimes]:
    """What a null call costs in this runner, for each case, before anything of a submission is in it."""
    times = {}
    launch.settle(next(iter(patterns.values())))
    for index, pattern in patterns.items():
        found = [launch.null(pattern) for _ in range(NULLS)]
        bare = [launch.bare_null(pattern) for _ in range(NULLS)]
        times[index] = clock.LaunchTimes(trusted_null_ns=found[NULLS_DROPPED:], bare_null_ns=bare[NULLS_DROPPED:])
    return times


def _one_for_all(worst: Rejected | None) -> TestResult:
    """Of the hidden cases nothing is told but whether all were passed."""
    plain = TestResult(phase="hidden", index=0, spec="hidden cases", status="pass")
    return plain if worst is None else replace(plain, status=_status(worst), message=worst.plain)


def _status(fault: Rejected) -> Literal["fail", "error", "timeout"]:
    return "fail" if fault.verdict == "wrong" else "timeout" if fault.verdict == "timeout" else "error"


def claimed(reply: Reply) -> Rejected:
    """The verdict for a runner's own word that it has no answer: it can only reject."""
    text = _one_line(clean(reply.text, MESSAGE_CAP))
    match reply.status:
        case Status.WRONG_TYPE | Status.WRONG_SHAPE:
            what = "type" if reply.status == Status.WRONG_TYPE else "shape"
            return Rejected("wrong", f"an answer has the wrong {what}: {text}", "an answer is wrong")
        case Status.MEMORY:
            return Rejected(
                "memory", "the submission ran out of memory (MemoryError)", "the submission ran out of memory"
            )
        case Status.ENDED:
            return Rejected("error", f"the submission ended itself ({text})", "the submission ended itself")
        case Status.RAISED | Status.SYNTAX | Status.LOAD_RAISED | Status.NO_ENTRY:
            return Rejected("error", text or "an exception", "the submission raised an error")
        case _:
            return Rejected("violation", "the submission wrote into the link's control words")


def _benchmark(
    name: PhaseName, case: Case, nets: list[clock.Net], mine: Rejected | None, any_fault: Rejected | None, launches: int
) -> BenchmarkResult:
    plain = BenchmarkResult(phase=name, index=case.index, spec=case.spec, status="pass")
    if any_fault is not None or len(nets) < launches:
        if mine is None:
            return replace(plain, status="skipped")
        said = mine.plain if name in SECRET and mine.verdict != "violation" else mine.said
        return replace(plain, status=_status(mine), message=clean(said, MESSAGE_CAP))
    return replace(plain, **samples.figures(nets))


def with_last_line(said: str, log: str) -> str:
    """What a runner that had no submission yet wrote last: the machine's trouble, told to whoever runs it."""
    lines = [line for line in clean(log, LOG_CAP).splitlines() if line.strip()]
    return f"{said}: {_one_line(lines[-1])[:300]}" if lines else said


def _one_line(text: str) -> str:
    """A message stands in lists and reports of others: it can't begin a line there that looks like theirs."""
    return " ".join(text.split())


def clean(text: str, cap: int) -> str:
    """Text of a runner's that can be shown: printable, line breaks and tabs apart; capped."""
    kept = "".join(c if c in "\n\t" or c.isprintable() else "\ufffd" for c in text[:cap])
    return kept if len(text) <= cap else f"{kept[: cap - 2]} …"


@contextmanager
def _quiet() -> Iterator[None]:
    """No collection of garbage while calls are timed."""
    was = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


@contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    """OutOfTime when this much time has passed, wherever the judge is then."""

    def ring(number: int, frame: Any) -> None:
        raise OutOfTime

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, max(0.001, seconds))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
