"""Profile mode, after the verdict: some benchmarks again, under the available profilers."""

from __future__ import annotations

import traceback
from pathlib import Path

from kbslurm_eval.cage.runners import CantStart
from kbslurm_eval.judge import profile_digest, profiling
from kbslurm_eval.judge.interrupts import INTERRUPTS, OutOfTime
from kbslurm_eval.judge.launch import Allowance
from kbslurm_eval.judge.launches import Launches
from kbslurm_eval.judge.profiling import ProfileFiles
from kbslurm_eval.judge.reference import Case, ProblemTrouble
from kbslurm_eval.judge.replies import MESSAGE_CAP, Rejected, clean
from kbslurm_eval.judge.run_state import RunState
from kbslurm_eval.shared.wire import ProfileTool


def profile(run: RunState, launches: Launches, artifacts: Path | None) -> None:
    """Runs after the verdict and doesn't affect it: whatever goes wrong becomes a line in the profile's summary."""
    results, whole = run.results, run.manifest.limits.benchmark_s
    files = results.profile = ProfileFiles(folder=artifacts)
    level, notes, allowance = results.level, list(results.notes), Allowance(left_s=whole, whole_s=whole)
    cases = [Case(index=n, params=p) for n, p in enumerate(run.manifest.benchmarks)]
    chosen = profiling.cases_of(cases, ranks=run.runners.ranks > 1, only=run.manifest.profile_benchmark)
    tools: list[ProfileTool | None] = [None]
    if (around := run.runners.profiler) is not None:
        tools.append(around)
    run.heartbeat.enter("profile", len(chosen) * len(tools))
    if not chosen:
        files.say(f"there is no benchmark {run.manifest.profile_benchmark} for this GPU type, so nothing was profiled")
    try:
        for case in chosen:
            for tool in tools:
                _profile_one(run, launches, case, tool, allowance, files)
                run.heartbeat.step()
    except OutOfTime:
        files.say("the job's time limit was reached before the profile was complete")
    except INTERRUPTS:
        raise
    except BaseException as error:  # noqa: BLE001 - the verdict stands, whatever this is
        traceback.print_exc()
        files.say(f"the harness failed to profile: {type(error).__name__}: {error}"[:MESSAGE_CAP])
    results.level, results.notes = level, notes


def _profile_one(
    run: RunState, launches: Launches, case: Case, tool: ProfileTool | None, allowance: Allowance, files: ProfileFiles
) -> None:
    launch = None
    run.runners.profiling = tool is not None
    try:
        prepared = run.reference.prepare(case, run.seed("benchmark", case, "profile"))
        launch = launches.start("benchmark", allowance, launches.built("benchmark", run.manifest))
        launches.hand_over(launch, run.manifest)
        if tool is not None:
            profiling.profile_around(launch, prepared, files, tool)
        else:
            profiling.profile_calls(launch, prepared, files)
    except (Rejected, CantStart, ProblemTrouble) as trouble:
        said = trouble.said if isinstance(trouble, Rejected) else str(trouble)
        said = (profile_digest.explained(said) if tool is not None else "") or clean(said, MESSAGE_CAP)
        files.say(f"benchmark-{case.index}: no profile{f' by {tool}' if tool else ''}: {said}")
        if tool is not None:
            files.tell(profile_digest.without(benchmark=case.index, spec=case.spec, tool=tool, trouble=said))
    finally:
        run.runners.profiling = False
        launches.end("benchmark", launch)
