"""`kbslurm diff`: what changed between two submissions, in code and results."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kbslurm.cli.arguments import As, Json, submission_number
from kbslurm.cli.competitor.connect import service
from kbslurm.cli.competitor.service import Service
from kbslurm.cli.output import printing
from kbslurm.domain import access
from kbslurm.domain import board as boards
from kbslurm.errors import EXIT_OK, Invalid, NotFound

if TYPE_CHECKING:
    from kbslurm.domain.verdict import Verdict
    from kbslurm.store.views import RunView, SubmissionView

LOOK_BACK = 1000


@dataclass(frozen=True, kw_only=True)
class Pair:
    """One GPU type, or one timed case of it, before and after. `separated`: whether the difference exceeds measurement
    error; None if unknown. `ratio` over one: the newer is faster."""

    gpu: str
    case: str | None
    before: str | None
    after: str | None
    before_s: tuple[float, float | None, float | None] | None
    after_s: tuple[float, float | None, float | None] | None

    @property
    def ratio(self) -> float | None:
        return self.before_s[0] / self.after_s[0] if self.before_s and self.after_s and self.after_s[0] > 0 else None

    @property
    def separated(self) -> bool | None:
        one, other = _measured(self.before_s), _measured(self.after_s)
        return None if one is None or other is None else boards.separated(one, other)


def diff(
    older: Annotated[
        int,
        typer.Argument(
            help="A submission's number; if alone, compared with the one before it.",
            parser=submission_number,
        ),
    ],
    newer: Annotated[
        int | None, typer.Argument(help="The other submission's number.", parser=submission_number)
    ] = None,
    code: Annotated[bool, typer.Option("--code/--no-code", help="Show the changed lines.")] = True,
    as_: As = None,
    as_json: Json = False,
) -> int:
    """Compare two of your submissions: changed lines, verdicts, scores, and each timed case.

    With one number, it is compared with your previous submission to the same board.
    """
    with service(as_) as found:
        if newer is None:
            last = found.look(older).view
            first = found.look(_before(found, last)).view
        else:
            first, last = found.look(older).view, found.look(newer).view
    if first.board_id != last.board_id:
        raise Invalid(
            f"#{first.id} was submitted to {first.board} and #{last.id} to {last.board}: two boards can't be compared",
            hint="Give two submissions to the same board.",
        )
    pairs = list(_pairs(first, last))
    lines = list(_changed(first, last))
    if as_json:
        told = {"from": first.id, "to": last.id, "diff": "".join(lines), "changes": [_as_json(one) for one in pairs]}
        printing.as_json(told)
        return EXIT_OK
    printing.say(f"#{first.id} ({first.board}, {first.mode}) → #{last.id} ({last.board}, {last.mode})")
    if code:
        _say_code(lines)
    rows = [(one.gpu, one.case or "", *_sides(one), _change(one)) for one in pairs]
    if rows:
        printing.table(("GPU", "case", f"#{first.id}", f"#{last.id}", "change"), rows, wrap=1)
    return EXIT_OK


def _before(found: Service, last: SubmissionView) -> int:
    """The number of the submission before it, to the same board."""
    for line in found.mine(last.board, limit=LOOK_BACK):
        if line["id"] < last.id:
            return int(line["id"])
    raise NotFound(
        "submission before", f"#{last.id}", hint=f"It is your first submission to {last.board}; give two numbers."
    )


def _changed(first: SubmissionView, last: SubmissionView) -> Iterator[str]:
    if first.source is None or last.source is None:
        raise Invalid("the source of one submission was deleted", hint="Compare other submissions.")
    old, new = ([f"{line}\n" for line in view.source.splitlines()] for view in (first, last) if view.source is not None)
    return difflib.unified_diff(old, new, f"#{first.id}/{first.file_name}", f"#{last.id}/{last.file_name}")


def _say_code(lines: list[str]) -> None:
    if not lines:
        printing.say("the code is the same")
    colours = {"+": "green", "-": "red", "@": "cyan"}
    for line in lines:
        colour = colours.get(line[0])
        text = printing.escape(line.rstrip("\n"))
        printing.out().print(f"[{colour}]{text}[/]" if colour else text, soft_wrap=True)


def _pairs(first: SubmissionView, last: SubmissionView) -> Iterator[Pair]:
    for gpu in dict.fromkeys(run.gpu for view in (first, last) for run in view.runs):
        old, new = _run_on(first, gpu), _run_on(last, gpu)
        yield Pair(
            gpu=gpu,
            case=None,
            before=_word(old),
            after=_word(new),
            before_s=_score(old.verdict if old else None),
            after_s=_score(new.verdict if new else None),
        )
        before, after = _cases(old), _cases(new)
        for case in dict.fromkeys((*before, *after)):
            yield Pair(gpu=gpu, case=case, before=None, after=None, before_s=before.get(case), after_s=after.get(case))


def _run_on(view: SubmissionView, gpu: str) -> RunView | None:
    return next((run for run in view.runs if run.gpu == gpu), None)


def _word(run: RunView | None) -> str | None:
    return None if run is None else run.verdict.name if run.verdict else run.shown_state


def _score(verdict: Verdict | None) -> tuple[float, float | None, float | None] | None:
    return None if verdict is None or verdict.score_s is None else (verdict.score_s, verdict.low_s, verdict.high_s)


def _cases(run: RunView | None) -> dict[str, tuple[float, float | None, float | None]]:
    """The visible timed cases by their spec, from the ranked phase if there is one."""
    detail: Mapping[str, Any] = (run.verdict.detail if run and run.verdict else None) or {}
    rows = access.shown_cases(detail, "benchmarks")
    phase = "ranked" if any(row["phase"] == "ranked" for row in rows) else "benchmark"
    found: dict[str, tuple[float, float | None, float | None]] = {}
    for row in rows:
        if row["phase"] == phase and row.get("median_ns") is not None:
            low, high = (None if row.get(f"{end}_ns") is None else row[f"{end}_ns"] / 1e9 for end in ("low", "high"))
            found[str(row["spec"])] = (row["median_ns"] / 1e9, low, high)
    return found


def _measured(told: tuple[float, float | None, float | None] | None) -> boards.Measured | None:
    if told is None or told[1] is None or told[2] is None or told[0] <= 0 or told[2] <= 0:
        return None
    return boards.Measured(score_s=told[0], low_s=told[1], high_s=told[2])


def _sides(one: Pair) -> tuple[str, str]:
    def side(word: str | None, told: tuple[float, float | None, float | None] | None) -> str:
        parts = (printing.coloured(word) if word else "", printing.score(*told) if told else "")
        return " ".join(part for part in parts if part)

    return side(one.before, one.before_s) or "–", side(one.after, one.after_s) or "–"


def _change(one: Pair) -> str:
    if one.ratio is None:
        return ""
    if one.separated is False:
        return "[dim]within measurement error[/]"
    times = one.ratio if one.ratio >= 1 else 1 / one.ratio
    word, colour = ("faster", "green") if one.ratio >= 1 else ("slower", "red")
    return f"[{colour}]{times:.3g}× {word}[/]"


def _as_json(one: Pair) -> dict[str, Any]:
    return {
        "gpu": one.gpu,
        "case": one.case,
        "from": {"verdict": one.before, "score_s": one.before_s and one.before_s[0]},
        "to": {"verdict": one.after, "score_s": one.after_s and one.after_s[0]},
        "ratio": one.ratio,
        "separated": one.separated,
    }
