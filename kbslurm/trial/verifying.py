"""`kbslurm problem verify`: check that each of a problem's example submissions gets its folder's verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from kbslurm.domain.physics import Peak, beyond
from kbslurm.domain.problem import Problem
from kbslurm.domain.source import checked_source
from kbslurm.domain.verdict import FOLDERS
from kbslurm.errors import Invalid
from kbslurm.problems import loading
from kbslurm.trial.folder_source import folder_source
from kbslurm.trial.run import Heartbeat, run_trial
from kbslurm_eval.shared.wire import Mode, VerdictName


@dataclass(frozen=True, kw_only=True)
class Verification:
    """One example submission, and whether it got its folder's verdict."""

    file: Path
    expected: VerdictName
    got: VerdictName
    reason: str
    score_s: float | None
    took_s: float
    beyond: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether it got its folder's verdict, and no faster than the problem's formulas allow."""
        return self.expected == self.got and not self.beyond


def fullest_mode(problem: Problem) -> Mode:
    """The most thorough mode that the problem offers."""
    modes: tuple[Mode, ...] = ("leaderboard", "benchmark", "test")
    return next(mode for mode in modes if mode in problem.modes)


def expected_verdicts(path: Path) -> list[tuple[Path, VerdictName]]:
    """A problem's example submissions with the verdicts expected by their folders; Invalid if there are none."""
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
                f"submissions/{kind.name} isn't named after a verdict",
                file=base,
                hint=f"Choose one of: {', '.join(verdicts)}.",
            )
        files = sorted(file for file in kind.iterdir() if not file.name.startswith((".", "__")))
        found += [(file, verdicts[kind.name]) for file in files]
    if not found:
        raise Invalid("submissions/ contains no submissions, so there is nothing to verify", file=base)
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
    peak: Peak | None = None,
) -> Iterator[Verification]:
    """Judge each example submission, one after the other, and yield the results.

    The problem and its folders are read first, so errors in them are raised before anything runs. `peak`: what this
    machine can do, which the formulas of the problem's work are held to by its accepted submissions.
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
            source = folder_source(file) if file.is_dir() else checked_source(file.name, file.read_bytes())
            trial = run_trial(
                judged,
                source.file_name,
                source.text,
                chosen,
                gpu,
                work=work,
                eval_dir=eval_dir,
                on_heartbeat=on_heartbeat,
            )
            yield Verification(
                file=file,
                expected=expected,
                got=trial.report.verdict,
                reason=trial.report.reason,
                score_s=trial.report.score_s,
                took_s=trial.took_s,
                beyond=tuple(beyond(trial.report, judged, peak)) if peak and trial.report.verdict == "passed" else (),
            )

    return each()
