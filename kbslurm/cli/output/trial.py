"""The result of `kbslurm try`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kbslurm.cli.output import printing
from kbslurm.cli.output.printing import coloured, escape, out
from kbslurm.domain import failed_tests, profiles
from kbslurm.domain.amounts import counted, score, seconds, span

if TYPE_CHECKING:
    from kbslurm.trial.at_home import AtHome
    from kbslurm.trial.run import Trial
    from kbslurm_eval.shared.timing import RankingBy
    from kbslurm_eval.shared.wire import BenchmarkResult, Report

UNRESOLVED = "UNRESOLVED"  # the harness's flag on a benchmark


def print_trial(found: Trial, *, as_json: bool, ranking_by: RankingBy, home: AtHome | None = None) -> None:
    """The result of `kbslurm try`. `home`: of a board's problem."""
    from kbslurm.domain.verdict import too_short
    from kbslurm.trial import at_home
    from kbslurm.trial import run as trials

    if as_json:
        told = trials.as_try_json(found)
        printing.as_json(told if home is None else {**told, "at_home": at_home.as_json(home)})
        return
    report, console = found.report, out()
    console.print(f"{coloured(report.verdict)}  {escape(report.reason)}".rstrip())
    if report.score_s is not None and report.interval_s:
        note = "" if report.paired else "  (unpaired: the problem has no baseline)"
        no_rank = "  [yellow]wouldn't rank[/]: too short to be timed here" if too_short(report, ranking_by) else ""
        console.print(f"score     {score(report.score_s, *report.interval_s)}{no_rank}{note}")
    for phase in report.phases:
        took = span((phase.ended_at_ns - phase.started_at_ns) / 1e9)
        # A phase that the machine or the problem cut short neither failed nor passed.
        broken_off = report.verdict == "infrastructure" and phase is report.phases[-1]
        came = "[yellow]cut short[/]" if broken_off else "[green]ok[/]" if phase.passed else "[red]no[/]"
        console.print(f"{phase.name:<9} {came}  {took}")
    for result in _timed(report):
        console.print(f"  {escape(result.spec)}: {measured(result)}")
    for line in failed_tests.in_words(map(vars, report.tests), len(report.tests)):
        console.print(f"  {escape(line)}", soft_wrap=True)
    if report.profile:
        console.print(escape(profiles.placed(report.profile, report.isolation.means)), soft_wrap=True)
    console.print(f"isolation {report.isolation.level} ({escape(report.isolation.means)}), took {span(found.took_s)}")
    if report.log.strip():
        console.print("[bold]its output[/]")
        console.print(escape(report.log.rstrip()), soft_wrap=True)
    if home is not None:
        _print_home(home, ranks=report.mode == "leaderboard")


def _timed(report: Report) -> list[BenchmarkResult]:
    """The times that the score is made of; those of the phase before it where there is none."""
    timed = [one for one in report.benchmarks if one.median_ns is not None]
    ranked = [one for one in timed if one.phase == "ranked"]
    return ranked or [one for one in timed if one.phase == "benchmark"]


def _print_home(home: AtHome, *, ranks: bool) -> None:
    """That it isn't official, and how far it is from what the board would say."""
    without = ", without its hidden cases" if home.hidden_left_out else ""
    printing.say(f"unofficial: judged here as board {home.leaderboard} on {home.gpu}, on this machine{without}")
    for packages in home.packages:
        printing.say(f"the board's runs on {home.gpu} have {packages}")
    if home.changed:
        printing.caution(f"changed since it was pulled: {', '.join(home.changed)}; the board judges by its own")
    if home.harness_here and not home.same_harness:
        printing.caution("the harness here isn't the board's: use the service's version of kbslurm to compare times")
    if home.same_image:
        printing.say("the image is the board's")
    elif home.same_image is False:
        printing.caution(f"the image here isn't the board's: {home.image} instead of {', '.join(home.images_there)}")
    if home.ratio is not None:
        say = "as long as" if 0.98 <= home.ratio <= 1.02 else f"{home.ratio:.3g} times as long as"
        printing.say(f"drift: the baseline takes {say} on the board's {home.gpu} ({_spread(home.drift)})")
    elif ranks:
        printing.say("drift: not known, since the board has no time of a baseline to compare this machine with")


def _spread(drift: Sequence[float]) -> str:
    if len(drift) == 1:
        return "1 benchmark"
    return f"{counted(len(drift), 'benchmark')}, {min(drift):.3g} to {max(drift):.3g}"


def measured(result: BenchmarkResult) -> str:
    """A benchmark's time. If this machine can't resolve it, the interval means nothing, so say that instead."""
    median_s = (result.median_ns or 0.0) / 1e9
    low, high = result.low_ns, result.high_ns
    if UNRESOLVED in result.flags:
        return f"at most {seconds(median_s)} (too short to be timed on this machine, so it wouldn't rank)"
    return score(median_s, low and low / 1e9, high and high / 1e9)
