"""`%load_ext kbslurm`: `%%submit BOARD` and `%%try PROBLEM` in a notebook. The cell is the whole kernel file."""

from __future__ import annotations

import argparse
import html
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, get_args

from kbslurm.cli.competitor.agent_answers import SubmissionTold, TrialTold, submission_told
from kbslurm.cli.output.interval_plot import Timed, svg
from kbslurm.cli.service_in_use import URL, in_use
from kbslurm.domain.amounts import score
from kbslurm.errors import BackendTrouble, Invalid, KbslurmError, NotAccepting
from kbslurm_eval.shared.wire import Mode

if TYPE_CHECKING:
    from kbslurm.cli.competitor.agent_answers import VerdictTold
    from kbslurm.client.http import Client

Tell = Callable[[str], object]
LOOK_S = 1.0
AWAY_S = 900.0
MODES = get_args(Mode)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a cell's submission or trial came to: drawn below the cell, and kept in `_` for later ones."""

    title: str
    told: SubmissionTold | TrialTold

    @property
    def verdicts(self) -> Sequence[VerdictTold]:
        return [self.told.verdict] if isinstance(self.told, TrialTold) else self.told.runs

    @property
    def passed(self) -> bool:
        return all(one.verdict == "passed" for one in self.verdicts)

    @property
    def places(self) -> Sequence[str]:
        """The ranks of a submission, and what they compare with."""
        return [] if isinstance(self.told, TrialTold) else self.told.places

    def __repr__(self) -> str:
        lines = [self.title]
        for one in self.verdicts:
            low, high = one.interval_s or (None, None)
            time_s = f"  {score(one.time_s, low, high)}" if one.time_s is not None else ""
            lines.append(f"{one.gpu:>6}  {one.verdict or one.state}{time_s}  {one.not_ranked or one.reason}".rstrip())
            lines += [f"        {case.phase} {case.case}: {case.message}" for case in one.failures]
        return "\n".join([*lines, *self.places, *self.told.next])

    def _repr_html_(self) -> str:
        parts = [f"<p><b>{html.escape(self.title)}</b></p>"]
        for one in self.verdicts:
            low, high = one.interval_s or (None, None)
            words = [one.gpu, one.verdict or one.state]
            words += [score(one.time_s, low, high)] if one.time_s is not None else []
            words += [one.not_ranked or one.reason] if one.not_ranked or one.reason else []
            parts.append(f"<p>{html.escape('  ·  '.join(words))}</p>")
            parts += [f"<pre>{html.escape(f'{case.phase} {case.case}: {case.message}')}</pre>" for case in one.failures]
            rows = [
                Timed(label=row.case, median_s=row.median_s, low_s=row.low_s, high_s=row.high_s) for row in one.times
            ]
            parts.append(svg(rows))
            if one.log and one.verdict != "passed":
                parts.append(f"<details><summary>its output</summary><pre>{html.escape(one.log)}</pre></details>")
        parts += [f"<p>{html.escape(line)}</p>" for line in [*self.places, *self.told.next]]
        return "".join(parts)


class _Line(argparse.ArgumentParser):
    """A magic's line: what is wrong with it is one sentence, and nothing exits."""

    def error(self, message: str) -> NoReturn:
        raise Invalid(f"%%{self.prog}: {message}", hint=self.format_usage().strip().replace("usage: ", "%%", 1))


def _line(name: str, what: str, mode: str) -> _Line:
    line = _Line(prog=name, add_help=False)
    line.add_argument("what", metavar=what)
    line.add_argument("--mode", "-m", default=mode, choices=MODES)
    line.add_argument("--file-name", default="submission.py")
    return line


def submit(line: str, cell: str) -> Outcome:
    """`%%submit BOARD [--gpu GPU …] [--mode MODE] [--file-name NAME]`: submit the cell, and wait for its verdict.

    Interrupting the kernel stops only the waiting.
    """
    from kbslurm.cli.competitor.connect import reached

    parser = _line("submit", "BOARD", "leaderboard")
    parser.add_argument("--gpu", "-g", action="append", default=[])
    asked = parser.parse_args(shlex.split(line))
    service = in_use()
    if service is None:
        raise Invalid("no service is in use", hint=f"Run: !kbslurm login https://…, or set {URL} and restart.")

    with reached(service.url, service.token) as client, _Progress() as tell:
        taken = client.submit_to_many(asked.what, asked.gpu, asked.mode, asked.file_name, cell.encode())
        number = taken.submission_id
        tell(f"#{number} accepted")
        told = _looked(client, number, tell)
        try:
            while not told["submission"]["done"]:
                tell(f"#{number} {told['message']}")
                time.sleep(LOOK_S)
                told = _looked(client, number, tell)
        except KeyboardInterrupt:
            tell(f"#{number} goes on; !kbslurm watch {number} follows it")
        found = submission_told(told, client)
    return Outcome(title=f"#{number} {found.file_name} on {found.board}, {found.mode}", told=found)


def _looked(client: Client, number: int, tell: Tell) -> Mapping[str, Any]:
    """The submission as it is now; while the service is away, it goes on all the same."""
    until = time.monotonic() + AWAY_S
    while True:
        try:
            return client.full_submission(number)
        except (BackendTrouble, NotAccepting) as error:
            if time.monotonic() > until:
                raise
            tell(f"#{number} goes on; {error.message}; trying again")
            time.sleep(2 * LOOK_S)


def try_(line: str, cell: str) -> Outcome:
    """`%%try PROBLEM [--mode MODE] [--file-name NAME]`: judge the cell on this machine by the problem in that
    folder. Nothing is submitted."""
    from kbslurm.cli.competitor.agent_trial import tried

    asked = _line("try", "PROBLEM", "leaderboard").parse_args(shlex.split(line))
    with _Progress() as tell:
        found = tried(asked.what, cell, asked.mode, asked.file_name, tell)
    return Outcome(title=f"tried here by {asked.what}, {asked.mode}", told=found)


class _Progress:
    """One line below the cell, replaced as it goes on, and empty in the end."""

    def __enter__(self) -> Tell:
        from IPython.display import display

        self._last = ""
        show: Any = display
        self._shown = show(_Words("…"), display_id=True)
        return self._tell

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None or not self._last.endswith("follows it"):
            self._tell("")

    def _tell(self, words: str) -> None:
        if words != self._last and self._shown is not None:
            self._last = words
            self._shown.update(_Words(words))


@dataclass(frozen=True)
class _Words:
    words: str

    def __repr__(self) -> str:
        return self.words


def load(shell: Any) -> None:
    """Give this shell the magics."""
    from IPython.core.error import UsageError

    def told(act: Callable[[str, str], Outcome]) -> Callable[[str, str], Outcome]:
        def magic(line: str, cell: str) -> Outcome:
            try:
                return act(line, cell)
            except KbslurmError as error:  # IPython prints this one without a traceback
                raise UsageError(f"{error.message}. {error.hint}" if error.hint else error.message) from None
            except ValueError as error:
                raise UsageError(f"the line can't be read: {error}") from None

        magic.__doc__ = act.__doc__
        return magic

    shell.register_magic_function(told(submit), magic_kind="cell", magic_name="submit")
    shell.register_magic_function(told(try_), magic_kind="cell", magic_name="try")
