"""How long a run may take in total, by the limits of its parts. The service's limit on a job and the judge's plan of
its calls both follow from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kbslurm_eval.shared.wire import PHASES, Build, Limits, Mode, PhaseName

# Phase limits cover the submission's time; inputs, answers and checks are the judge's work and take as long again.
JUDGES_SHARE = 1.5
AROUND_S = 60.0  # before the first phase, and the starts of runners that have no submission yet
# In these phases loading a submission has a limit of its own; so do, where calls are timed, first calls of each case.
STARTS_APART: tuple[PhaseName, ...] = ("benchmark", "ranked", "hidden")


def phases_s(limits: Limits, mode: Mode) -> float:
    """All phases, the judge's work in them included."""
    test_s, benchmark_s, ranked_s = limits.test_s, limits.benchmark_s, limits.ranked_s
    each = {"test": test_s, "benchmark": benchmark_s, "ranked": ranked_s, "hidden": ranked_s}
    more_s = benchmark_s if mode == "profile" else 0.0  # a few more calls, under a profiler
    return JUDGES_SHARE * sum(each[phase] for phase in PHASES[mode]) + more_s + AROUND_S


def starting_s(mode: Mode, lang: str, build: Build, config: Mapping[str, Any]) -> float:
    """What has no place in those: building, and starting what was built. One limit for each source that may be built,
    and one for each phase whose starts are apart, in a final's ranked one for each finalist as well."""
    rivals = len(rivals_of(config)) if "ranked" in PHASES[mode] else 0
    sources = 0
    if lang == "cu" or build.when != "never":
        sources = 1
        if "benchmark" in PHASES[mode]:
            sources += isinstance(config.get("baseline"), str)
        sources += rivals
    reference = 1 if build.adapter else 0
    return build.limit_s * (sources + reference + rivals + sum(phase in STARTS_APART for phase in PHASES[mode]))


def rivals_of(config: Mapping[str, Any]) -> list[str]:
    """The finalists' sources; none in an ordinary run."""
    found = config.get("rivals")
    return [text for text in found if isinstance(text, str)] if isinstance(found, list) else []
