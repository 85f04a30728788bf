"""The judge: holds seed, reference, hidden cases, clock, key and report, and runs a mode's phases one after another.

It believes nothing that comes from a process that has seen the submission, but bytes of a layout it declared, which it
checks, and the moment at which its own token came back, which it confirms by looking at the output before and after it
stopped that process.

What remains open, and is known: turning the link's bytes into lists and numbers of Python, and copying an answer into
its place, is part of the measured time, so a submission that replaces the runner's own decoder saves that much on
problems whose values aren't arrays. Below isolation level 2 a submission can leave files on the machine. A submission
may say in its run time what it can't say otherwise. What a GPU adds to all of this is in `device_launch.py`.
"""

from __future__ import annotations

import gc
import signal
import time
import traceback
import types
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbslurm_eval.cage import seen_inside, user_counts
from kbslurm_eval.cage.judge_children import own_processes
from kbslurm_eval.cage.runners import CantStart, Runners
from kbslurm_eval.judge import finals
from kbslurm_eval.judge.builds import Builds
from kbslurm_eval.judge.call_checks import CallChecks
from kbslurm_eval.judge.check_mark import NAME, CheckMark
from kbslurm_eval.judge.checked_phase import CheckedPhase
from kbslurm_eval.judge.heartbeat import Heartbeat
from kbslurm_eval.judge.interrupts import INTERRUPTS, OutOfTime, forget, note
from kbslurm_eval.judge.launch import Allowance
from kbslurm_eval.judge.launches import Launches
from kbslurm_eval.judge.reference import ProblemTrouble, Reference
from kbslurm_eval.judge.replies import MESSAGE_CAP, Rejected, clean
from kbslurm_eval.judge.report import report_of
from kbslurm_eval.judge.run_state import SECRET, RunState
from kbslurm_eval.judge.timed_phase import TimedPhase
from kbslurm_eval.shared import scripts
from kbslurm_eval.shared.time_limits import STARTS_APART
from kbslurm_eval.shared.wire import LOG_CAP, PHASES, Manifest, PhaseName, PhaseResult, Report, VerdictName

if TYPE_CHECKING:
    from kbslurm_eval.judge.rank_reference import RankReference

LET_GO_S = 5.0  # the kernel lets go of what a submission had when its workers get to it


class Judge:
    """Judges one manifest. `judge()` returns a report whatever the submission does."""

    def __init__(
        self,
        manifest: Manifest,
        runners: Runners,
        *,
        heartbeat: Path | None = None,
        artifacts: Path | None = None,
        least_level: int = 0,
        own: dict[str, Any] | None = None,
    ) -> None:
        self._run = RunState(
            manifest=manifest,
            runners=runners,
            heartbeat=Heartbeat(heartbeat),
            least_level=least_level,
            own=own or seen_inside.seen_by_judge(),
            builds=Builds(manifest=manifest),
            check_mark=CheckMark(None if heartbeat is None else heartbeat.with_name(NAME)),
        )
        self._artifacts = artifacts
        self._launches = Launches(self._run)
        calls = CallChecks(self._run)
        self._checked = CheckedPhase(self._run, self._launches, calls)
        self._timed = TimedPhase(self._run, self._launches, calls)

    def note(self, notes: Sequence[str]) -> None:
        """Add a note about the isolation to the report."""
        self._run.results.notes += notes

    def judge(self) -> Report:
        """Run the mode's phases, up to the first that fails."""
        started = time.time_ns()
        forget()
        self._run.heartbeat.beat(now=True)
        verdict: VerdictName = "infrastructure"
        reason = ""
        try:
            with _alarm(self._run.manifest.limits.total_s):
                verdict, reason = _whose_fault(*self._judged())
                if verdict == "passed" and self._run.manifest.mode == "profile":
                    self._profile()
        except OutOfTime:
            forget()
            verdict, reason = self._out_of_time()
        except (ProblemTrouble, CantStart) as trouble:
            verdict, reason = "infrastructure", str(trouble)
        except Exception as error:  # noqa: BLE001 - a bug of ours must not cost the report, nor be blamed on anybody
            traceback.print_exc()
            verdict, reason = "infrastructure", f"the harness failed: {type(error).__name__}: {error}"
        except INTERRUPTS:
            raise
        except BaseException as error:  # noqa: BLE001 - so that there always is a report
            traceback.print_exc()  # it may say anything, and came from anywhere: its name alone is told
            verdict, reason = "infrastructure", f"the harness failed: {type(error).__name__}"
        finally:
            self._run.close()
        self.note([note for note in self._run.runners.notes if note not in self._run.results.notes])
        return report_of(self._run, verdict, clean(reason, 2 * MESSAGE_CAP), started)

    def _profile(self) -> None:
        from kbslurm_eval.judge.profile_phase import profile

        profile(self._run, self._launches, self._artifacts)

    def _out_of_time(self) -> tuple[VerdictName, str]:
        """Who is to blame when the total time is used up: whoever's code used most of it."""
        total = self._run.manifest.limits.total_s
        theirs = sum(a.theirs_s for a in (*self._run.allowances, *self._run.rival_allowances.values()))
        if self._run.loaded_reference is not None:
            theirs += self._run.loaded_reference.spent.dragged_s
        if theirs * 2 < total:
            return "infrastructure", f"the whole run took longer than {total:g} s, most of it the problem's own code"
        return "timeout", f"the whole run took longer than {total:g} s"

    def _judged(self) -> tuple[VerdictName, str]:
        manifest = self._run.manifest
        if scripts.is_script(manifest.config):
            from kbslurm_eval.judge import script_phase

            return script_phase.ran(self._run, self._launches)
        if manifest.needs_gpu:
            from kbslurm_eval.judge import rank_devices, ranks, run_device

            if (world := ranks.world_of(manifest)) > 1:  # ranks copy their tensors themselves
                self._run.rank_devices, why_none = rank_devices.devices_of(manifest, world)
            else:
                self._run.device, why_none = run_device.device_of(manifest)
            self._run.results.notes += [f"no device: {why_none}"] if why_none else []
        self._run.loaded_reference = self._reference_of(manifest)
        gc.freeze()  # modules stay, and looking through them before each launch takes longer than some phases
        ended: tuple[VerdictName, str] | None = None
        for name in PHASES[manifest.mode]:
            if ended is not None and name != "ranked":
                continue
            began, fault, passed = time.time_ns(), None, False
            try:
                fault = self._phase(name)
                passed = fault is None
            except Rejected as rejected:
                fault = rejected
            except Exception as error:
                if name != "hidden" or isinstance(error, CantStart):
                    raise
                raise self._withheld(error) from error
            finally:
                self._run.results.phases.append(
                    PhaseResult(name=name, passed=passed, started_at_ns=began, ended_at_ns=time.time_ns())
                )
            if fault is not None:
                ended = ended or (fault.verdict, _reason(name, fault))
                if name in SECRET or not finals.lead_is_finalist(manifest.config):
                    break
                self._timed.without_lead(fault)
        return ended or ("passed", "all phases passed")

    def _withheld(self, error: Exception) -> Exception:
        """The same trouble for whoever may not know hidden cases: what it says may name one, or what is in it."""
        results = self._run.results
        results.secret_log = f"{results.secret_log}[hidden cases: {clean(str(error), MESSAGE_CAP)}]\n"[-LOG_CAP:]
        if isinstance(error, ProblemTrouble):
            return ProblemTrouble("the problem itself failed on a hidden case; a host can read how in this run's log")
        return RuntimeError("on a hidden case")

    def _reference_of(self, manifest: Manifest) -> Reference | RankReference:
        from kbslurm_eval.judge import rank_reference, ranks

        world = ranks.world_of(manifest)
        if world > 1 and manifest.lang == "cu":
            raise ProblemTrouble("a problem with several ranks needs Python submissions; lang cu runs in one process")
        if world > 1:
            return rank_reference.RankReference(manifest, world)
        device = self._run.device
        exclusive = device is not None and device.facts.exclusive
        memory = None if device is None or exclusive else device.memory
        return Reference(
            manifest,
            self._launches.compiled_reference(),
            no_device=exclusive,
            memory=memory,
            mark=self._run.check_mark,
            around=own_processes if self._run.runners.bare else nullcontext,
        )

    def _phase(self, name: PhaseName) -> Rejected | None:
        limits = self._run.manifest.limits
        whole = {
            "test": limits.test_s,
            "benchmark": limits.benchmark_s,
            "ranked": limits.ranked_s,
            "hidden": limits.ranked_s,
        }[name]
        starts_s = self._run.manifest.build.limit_s if name in STARTS_APART else None
        allowance = Allowance(left_s=whole, whole_s=whole, starts_left_s=starts_s)
        self._run.allowances.append(allowance)
        if name in ("test", "hidden"):
            return self._checked.check(name, allowance)
        return self._timed.measure(name, allowance)

    def compiled_reference(self) -> types.ModuleType | None:
        """The problem's own C++, for a problem that has its reference there."""
        return self._launches.compiled_reference()


def _reason(name: PhaseName, fault: Rejected) -> str:
    where = {"test": "test phase", "benchmark": "benchmark phase", "ranked": "ranked phase", "hidden": "hidden cases"}[
        name
    ]
    if fault.verdict == "violation":
        return f"{where}: {fault.said}"
    if name in SECRET:
        return f"{where}: {fault.bare_reason}"
    said = fault.said
    return (
        f"{where}, {said}"
        if said.startswith(("while building", "while loading", "test ", "benchmark "))
        else f"{where}: {said}"
    )


def _whose_fault(verdict: VerdictName, reason: str) -> tuple[VerdictName, str]:
    """Not this submission's, if its node has too little of something now that its own processes are gone."""
    if verdict not in ("error", "timeout"):
        return verdict, reason
    until = time.monotonic() + LET_GO_S
    while (kind := user_counts.short()) is not None and time.monotonic() < until:
        time.sleep(0.1)
    if kind is None:
        return verdict, reason
    return "infrastructure", f"another run on this node has all {user_counts.LEFT[kind]} of its user; {reason}"


@contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    """Raise OutOfTime after this much time, wherever the judge is then."""

    def ring(number: int, frame: Any) -> None:
        raise note(OutOfTime())

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, max(0.001, seconds))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
