"""A script of a host's in a submission's place: run once, in the cage that a submission would get, with no reference.

Nothing of it is measured and nothing can rank. What it wrote is the log as it stands, and its exit status is the
verdict: 0 passed, anything else an error. It has the GPU to itself, so the judge opens no device.
"""

from __future__ import annotations

import re
import time

from kbslurm_eval.cage.runners import CantStart
from kbslurm_eval.judge.launch import Allowance, Launch
from kbslurm_eval.judge.launches import Launches
from kbslurm_eval.judge.replies import Rejected, clean
from kbslurm_eval.judge.run_state import RunState
from kbslurm_eval.shared.runner_link import Status
from kbslurm_eval.shared.scripts import EXIT_STATUS, KILLED_FROM, SCRIPT
from kbslurm_eval.shared.wire import LOG_CAP, PhaseName, PhaseResult, VerdictName

PHASE: PhaseName = "test"  # the only one of its mode


def ran(run: RunState, launches: Launches) -> tuple[VerdictName, str]:
    """Run it, and say how it ended."""
    limit_s = run.manifest.limits.test_s
    allowance = Allowance(left_s=limit_s, whole_s=limit_s)
    run.allowances.append(allowance)
    run.heartbeat.enter(SCRIPT, 1)
    launch = launches.start(PHASE, allowance)
    began = time.time_ns()
    verdict: VerdictName = "infrastructure"
    try:
        verdict, reason, status = _end(launch, run)
    finally:
        run.results.log.text = clean(launch.close(), LOG_CAP)
        run.results.phases.append(
            PhaseResult(name=PHASE, passed=verdict == "passed", started_at_ns=began, ended_at_ns=time.time_ns())
        )
    run.results.facts[SCRIPT] = {EXIT_STATUS: status}
    return verdict, reason


def _end(launch: Launch, run: RunState) -> tuple[VerdictName, str, int | None]:
    try:
        reply = launch.run_script(run.manifest)
    except Rejected as fault:
        if fault.verdict == "timeout":
            return "timeout", f"it was still running after {run.manifest.limits.test_s:g} s and was stopped", None
        return fault.verdict, fault.said, None
    if reply.status == Status.MEMORY:
        return "memory", "the script was killed for want of memory", None
    if reply.status != Status.OK or not re.fullmatch(r"[0-9]{1,3}", reply.text):
        raise CantStart(f"the script's exit status didn't come back: {clean(reply.text, 200)}")
    status = int(reply.text)
    if status == 0:
        return "passed", "exit status 0", 0
    killed = f" (killed by signal {status - KILLED_FROM})" if status > KILLED_FROM else ""
    return "error", f"exit status {status}{killed}", status
