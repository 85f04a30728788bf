"""`kbslurm problem verify`: each submission beside a problem gets the verdict that its folder promises."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from kbslurm.domain.problem import Problem
from kbslurm.domain.source import checked_source
from kbslurm.domain.verdict import FOLDERS
from kbslurm.errors import Invalid
from kbslurm.problems import loading
from kbslurm.trial.run import Heartbeat, run_trial
from kbslurm_eval.wire import (
    Mode,
    VerdictName,
)


@dataclass(frozen=True, kw_only=True)
class Verification:
    """One submission of a problem's folders, and whether it got the verdict that its folder says."""

    file: Path
    expected: VerdictName
    got: VerdictName
    reason: str
    score_s: float | None
    took_s: float

    @property
    def ok(self) -> bool:
        return self.expected == self.got


def fullest_mode(problem: Problem) -> Mode:
    """The mode that judges most of those that the problem offers."""
    modes: tuple[Mode, ...] = ("leaderboard", "benchmark", "test")
    return next(mode for mode in modes if mode in problem.modes)


def expected_verdicts(path: Path) -> list[tuple[Path, VerdictName]]:
    """The submissions that lie beside a problem and the verdicts that their folders promise; Invalid without any."""
    base = path if path.is_dir() else path.parent
    folder = base / "submissions"
    verdicts = {name: verdict for verdict, name in FOLDERS.items()}
    if not folder.is_dir():
        raise Invalid(
            "there is no submissions/ folder, so there is nothing to verify",
            file=base,
            hint=f"Add submissions/{{{','.join(verdicts)}}}/*.py.",
        )
    found: list[tuple[Path, VerdictName]] = []
    for kind in sorted(place for place in folder.iterdir() if place.is_dir()):
        if kind.name.startswith((".", "__")):
            continue
        if kind.name not in verdicts:
            raise Invalid(
                f"submissions/{kind.name} is called after no verdict",
                file=base,
                hint=f"Choose one of: {', '.join(verdicts)}.",
            )
        files = sorted(file for file in kind.iterdir() if file.is_file() and not file.name.startswith((".", "__")))
        found += [(file, verdicts[kind.name]) for file in files]
    if not found:
        raise Invalid("submissions/ holds no submission, so there is nothing to verify", file=base)
    return found


def verify(
    path: Path,
    *,
    work: Path,
    eval_dir: Path,
    problem: Problem | None = None,
    mode: Mode | None = None,
    gpu: str = "cpu",
    on_start: Callable[[Path], None] | None = None,
    on_heartbeat: Heartbeat | None = None,
) -> Iterator[Verification]:
    """Judge each submission in the problem's folders, one after the other, and say what each came to.

    The problem and its folders are read by the call itself, so a fault in them is raised before anything runs.
    """
    judged = problem or loading.load(path)
    chosen = mode or fullest_mode(judged)
    if chosen not in judged.modes:
        raise Invalid(f"problem {judged.name} has no {chosen} mode", hint=f"It has: {', '.join(judged.modes)}.")
    found = expected_verdicts(path)

    def each() -> Iterator[Verification]:
        for file, expected in found:
            if on_start:
                on_start(file)
            source = checked_source(file.name, file.read_bytes())
            trial = run_trial(
                judged, file.name, source.text, chosen, gpu, work=work, eval_dir=eval_dir, on_heartbeat=on_heartbeat
            )
            yield Verification(
                file=file,
                expected=expected,
                got=trial.report.verdict,
                reason=trial.report.reason,
                score_s=trial.report.score_s,
                took_s=trial.took_s,
            )

    return each()
