"""Compare: two submissions, two GPU types of a board, two versions of its problem; each in a table and a sentence."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from kbslurm.api import published_code
from kbslurm.api.comparison import Interval, Pair, change, check_one_board, measured, pairs
from kbslurm.api.context import Context
from kbslurm.api.lookup import seen_board
from kbslurm.api.pages.boards.board_list import BoardList, seen_boards
from kbslurm.api.pages.charts.ranges import Range, ranges
from kbslurm.api.pages.charts.ratios import ratio_bars
from kbslurm.api.pages.page_files import Table, page_and_files
from kbslurm.api.pages.rendering import took
from kbslurm.api.pages.visitors import Visitors, to_login
from kbslurm.api.standings_cache import StandingsCache
from kbslurm.domain import access, contest
from kbslurm.domain.amounts import score
from kbslurm.domain.board import Entry, separated
from kbslurm.domain.run import SubmissionId
from kbslurm.domain.side_by_side import Diff, side_by_side
from kbslurm.domain.source import files_of
from kbslurm.errors import Invalid, NotFound
from kbslurm.store.past_versions import Version
from kbslurm.store.views import Board, Person, SubmissionView

Word = Annotated[str, Query(max_length=contest.NAME_CAP)]
CASES = ("gpu", "case", "before_s", "before_low_s", "before_high_s", "after_s", "after_low_s", "after_high_s", "ratio")
PEOPLE = ("person", "first_s", "first_low_s", "first_high_s", "last_s", "last_low_s", "last_high_s", "ratio")
SHOWN = 100  # people in a table; the sentence is about all


def comparing_page(
    router: APIRouter, context: Context, visitors: Visitors, standings: StandingsCache, listed: BoardList
) -> None:

    @page_and_files(router, "/compare")
    def compare(
        request: Request,
        a: Word = "",
        b: Word = "",
        board: Word = "",
        gpu: Word = "",
        version: Word = "",
        other: Word = "",
    ) -> Response:
        """Two submissions, `a` and `b`, each one's own or published; or a `board` on two GPU types, `gpu` and `other`,
        or on one of them by two versions of its problem, `version` and `other`; without anything the forms to
        choose."""
        person = visitors.who(request)
        if a.strip() or b.strip():
            first, last = (_side(context, person, _number(text)) for text in (a, b))
            if first is None or last is None:
                if person is None:
                    return to_login(request)
                missing = a if first is None else b
                raise NotFound("submission of yours, or published one,", missing.strip())
            return visitors.page(request, "people/compare_pair.html", person, **shown_pair(first, last))
        if board.strip():
            found = seen_board(context, board, person)
            versions = context.store.past_versions.of_board(found)
            if not gpu.strip() or not other.strip():
                return visitors.page(request, "people/compare.html", person, board=found, boards=[], versions=versions)
            known = contest.known_gpu(gpu, found.gpus)
            if version.strip():
                told = _by_versions(context, found, known, [_version(one, versions) for one in (version, other)])
            else:
                told = _on_both(standings, found, [known, contest.known_gpu(other, found.gpus)])
            return visitors.page(request, "people/compare_people.html", person, board=found, **told)
        names = [one.board.name for one in seen_boards(context, listed, person)]
        return visitors.page(
            request, "people/compare.html", person, board=None, boards=sorted(names, key=str.lower), versions=[]
        )


def _number(text: str) -> int:
    digits = text.strip().removeprefix("#")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 19):
        raise Invalid(f"{contest.shown(text)} isn't a submission's number", hint="Give two numbers, for example 411.")
    return int(digits)


def _side(context: Context, person: Person | None, number: int) -> SubmissionView | None:
    """One's own submission, or what is published of somebody's; None looks the same for all others."""
    try:
        view = context.store.submissions.get(SubmissionId(number))
    except NotFound:
        return None
    if access.may_see_submission(person, view):
        return view
    try:
        board = seen_board(context, view.board, person)
    except NotFound:
        return None
    return _published(context, board, view) if board.id == view.board_id else None


def _published(context: Context, board: Board, view: SubmissionView) -> SubmissionView | None:
    """The submission with nothing but what is published: its code, and its score on the board."""
    runs = []
    for run in view.runs:
        places = published_code.published(context.store, board, run.gpu, context.clock.now())
        entry = next((one.entry for one in places if one.entry.submission_id == view.id), None)
        if entry is not None and run.verdict is not None:
            told = replace(
                run.verdict, score_s=entry.score_s, low_s=entry.low_s, high_s=entry.high_s, reason="", detail=None
            )
            runs.append(replace(run, verdict=told, attempts=()))
    if not runs or view.removed_at is not None:
        return None
    return replace(view, runs=tuple(runs), file_name=f"submission.{view.file_name.rpartition('.')[2]}")


def shown_pair(first: SubmissionView, last: SubmissionView) -> dict[str, Any]:
    """What the page of two submissions to one board needs; Invalid if they are of two."""
    check_one_board(first, last)
    names = (f"#{first.id}", f"#{last.id}")
    found = list(pairs(first, last))
    files = [] if not (first.source and last.source) else _files(first, last)
    runs = [_compared(one, found, names) for one in found if one.case is None]
    return {
        "first": first,
        "last": last,
        "runs": runs,
        "as_files": {"cases": Table(columns=CASES, rows=[row for run in runs for row in run["table"]])},
        "files": files,
        "is_same": bool(files) and not any(diff.added or diff.removed for _, diff in files),
    }


def _compared(whole: Pair, found: Sequence[Pair], names: tuple[str, str]) -> dict[str, Any]:
    cases = [one for one in found if one.gpu == whole.gpu and one.case is not None]
    both = [one for one in cases if one.ratio is not None]
    bars = dict(zip((one.case for one in both), ratio_bars([one.ratio or 1.0 for one in both]), strict=True))
    old, new = names
    drawn = [
        Range(name=name, value=told[0], low=told[1] or told[0], high=told[2] or told[0], score=_score(told))
        for name, told in ((old, whole.before_s), (new, whole.after_s))
        if told is not None
    ]
    return {
        "gpu": whole.gpu,
        "before": whole.before,
        "after": whole.after,
        "before_score": _score(whole.before_s),
        "after_score": _score(whole.after_s),
        "says": _sentence(whole, old, new),
        "ranges": ranges(drawn, written=took),
        "table": [_plain(one) for one in (whole, *cases)],
        "cases": [
            {
                "case": one.case,
                "before": _score(one.before_s),
                "after": _score(one.after_s),
                "change": change(one.ratio, one.separated),
                "bar": bars.get(one.case),
                "slower": one.ratio is not None and one.ratio < 1,
                "is_close": one.separated is False,
            }
            for one in cases
        ],
    }


def _plain(one: Pair) -> dict[str, Any]:
    """A line of the file; of the whole run without a case."""
    ends = {**_ends("before", one.before_s), **_ends("after", one.after_s)}
    return {"gpu": one.gpu, "case": one.case, "ratio": one.ratio, **ends}


def _ends(name: str, told: Interval | None) -> dict[str, float | None]:
    value, low, high = told or (None, None, None)
    return {f"{name}_s": value, f"{name}_low_s": low, f"{name}_high_s": high}


def _score(told: Interval | None) -> str:
    return "–" if told is None else score(*told, ranked=True)


def _sentence(one: Pair, old: str, new: str) -> str:
    """`#12 is 1.31× faster than #11 on H100; the intervals don't overlap.`"""
    if one.before is None or one.after is None:
        return f"{old if one.after is None else new} alone ran on {one.gpu}."
    if one.ratio is None:
        return f"{old}: {one.before}. {new}: {one.after}. There is no time of both to compare."
    first, last = measured(one.before_s), measured(one.after_s)
    if one.separated is False:
        return f"{new} is as fast as {old} on {one.gpu}, within measurement error."
    said = f"{new} is {change(one.ratio, one.separated)} than {old} on {one.gpu}"
    if first is None or last is None:
        return f"{said}; there is no interval of both to say how sure that is."
    apart = first.high_s < last.low_s or last.high_s < first.low_s
    return f"{said}; the intervals {'don’t overlap' if apart else 'overlap, but the difference exceeds both'}."


def _files(first: SubmissionView, last: SubmissionView) -> list[tuple[str, Diff]]:
    """Each file of either; two of one file are compared whatever they are called."""
    old, new = (files_of(view.file_name, view.source or "") for view in (first, last))
    if len(old) == 1 and len(new) == 1:
        ((before, text), (after, changed)) = (*old.items(), *new.items())
        return [(after if before == after else f"{before} → {after}", side_by_side(text, changed))]
    return [(name, side_by_side(old.get(name, ""), new.get(name, ""))) for name in dict.fromkeys((*new, *old))]


def _on_both(standings: StandingsCache, board: Board, gpus: Sequence[str]) -> dict[str, Any]:
    """Whoever the standings that everybody sees have on both, with both scores."""
    rows = [standings.now(board, gpu)[0].entries for gpu in gpus]
    return _of_two(board, rows, gpus, title=" and ".join(gpus), what="GPU types")


def _version(text: str, versions: Sequence[Version]) -> int:
    """The place of a version among those of the board, from 0."""
    wanted = [str(n + 1) for n in range(len(versions))]
    if text.strip() not in wanted:
        raise NotFound("version of the board's problem", text.strip(), known=wanted)
    return wanted.index(text.strip())


def _by_versions(context: Context, board: Board, gpu: str, chosen: Sequence[int]) -> dict[str, Any]:
    """Whoever ranks by both versions, with both scores."""
    versions = context.store.past_versions.of_board(board)
    rows = [context.store.past_versions.best(board, gpu, versions[n].id) for n in chosen]
    names = [f"version {n + 1}" for n in chosen]
    return _of_two(board, rows, names, title=f"{' and '.join(names).capitalize()} on {gpu}", what="versions")


def _of_two(
    board: Board, rows: Sequence[Sequence[Entry]], names: Sequence[str], *, title: str, what: str
) -> dict[str, Any]:
    if names[0] == names[1]:
        raise Invalid(f"both {what} are the same", hint="Choose two different ones.")
    one, other = ({entry.side: entry for entry in found} for found in rows)
    both = [(entry, other[side]) for side, entry in one.items() if side in other]
    shown = access.shows_standings(board.standings)
    return {"title": title, "names": names, "is_hidden": not shown, **compared_entries(both, *names)}


def compared_entries(both: Sequence[tuple[Entry, Entry]], one: str, other: str) -> dict[str, Any]:
    """The same people's scores in two places, as a sentence and the rows of a table with bars."""
    ratios = [first.score_s / last.score_s for first, last in both]
    bars = ratio_bars(ratios[:SHOWN])
    plain = (
        {
            "person": first.person,
            "ratio": ratio,
            **_ends("first", (first.score_s, first.low_s, first.high_s)),
            **_ends("last", (last.score_s, last.low_s, last.high_s)),
        }
        for (first, last), ratio in zip(both, ratios, strict=True)
    )
    return {
        "as_files": {"people": Table(columns=PEOPLE, rows=plain)},
        "many": len(both),
        "says": _of_all(ratios, one, other),
        "rows": [
            {
                "person": first.person,
                "first": score(first.score_s, first.low_s, first.high_s, ranked=True),
                "last": score(last.score_s, last.low_s, last.high_s, ranked=True),
                "change": change(ratio, separated(first, last)),
                "bar": bar,
                "slower": ratio < 1,
            }
            for (first, last), ratio, bar in zip(both[:SHOWN], ratios, bars, strict=False)
        ],
    }


def _of_all(ratios: Sequence[float], one: str, other: str) -> str:
    if not ratios:
        return ""
    faster, many, middle = sum(ratio > 1 for ratio in ratios), len(ratios), statistics.median(ratios)
    if many == 1:
        return f"The only one who ranks on both is {change(middle, None)} on {other} than on {one}."
    word = "faster" if middle >= 1 else "slower"
    told = faster if middle >= 1 else many - faster
    whom = f"All {many}" if told == many else f"{told} of {many}"
    return f"{whom} are {word} on {other} than on {one}; the median is {change(middle, None)}."
