"""Physical limits: a problem's work against a GPU's peak. Pure, and independent of any measurement.

A problem declares the minimum number of floating-point operations and bytes that a case needs, as formulas over its
parameters; a site declares what its GPUs can do. No submission can be faster than both allow, whatever the clock says.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kbslurm.domain.problem import Problem
from kbslurm.domain.verdict import Verdict
from kbslurm.errors import Invalid
from kbslurm_eval.shared.wire import Params, Report, counted_operation

FORMULA_CAP = 500
DEPTH_CAP = 40
LARGEST_POWER = 64.0
IMPOSSIBLE = 1e-3  # of the minimum time: no imprecise formula explains that
SUSPICIOUS = 0.9
FLAG = "FASTER_THAN_HARDWARE"
FORMULAS = ("flops", "bytes")
SPEED_OF_LIGHT = "speed_of_light"
SHAPES = "shapes"  # instead of a formula for bytes: each array of a case's input is read once, its output written once
MOVED_BYTES = "moved_bytes"  # what that comes to, as the judge has counted it: by phase and case
COUNTED_FLOPS = "counted_flops"  # the same for `flops: shapes(OPERATION)`
TIMED = {"leaderboard": "ranked", "benchmark": "benchmark"}  # the phase whose times count, by mode
_TOKEN = re.compile(r"\s*(?:(\d+\.?\d*(?:[eE][+-]?\d+)?)|([A-Za-z_][A-Za-z0-9_]*)|(\*\*|[-+*/(),]))")
_FUNCTIONS: dict[str, tuple[int, Callable[..., float]]] = {
    "log2": (1, math.log2),
    "sqrt": (1, math.sqrt),
    "min": (2, min),
    "max": (2, max),
}


@dataclass(frozen=True, kw_only=True)
class Peak:
    """What one GPU can do at most; None if unknown."""

    flops_per_s: float | None = None
    bytes_per_s: float | None = None


class _FormulaParser:
    """A formula while it is read: numbers, parameters, + - * / **, parentheses, and a few functions. Nothing is
    executed."""

    def __init__(self, text: str, params: Params) -> None:
        self._text, self._params, self._depth = text, params, 0
        self._tokens = self._split()
        self._now = next(self._tokens)

    def value(self) -> float:
        found = self._sum()
        if self._now != ("end", ""):
            raise self._wrong(f"{self._now[1]!r} isn't expected there")
        if not math.isfinite(found) or found < 0:
            raise self._wrong("its result isn't a valid amount")
        return found

    def _split(self) -> Iterator[tuple[str, str]]:
        at, text = 0, self._text
        if len(text) > FORMULA_CAP:
            raise self._wrong(f"it has more than {FORMULA_CAP} characters")
        while text[at:].strip():
            found = _TOKEN.match(text, at)
            if found is None:
                raise self._wrong(f"{text[at:].strip()[0]!r} isn't allowed in a formula")
            number, name, sign = found.groups()
            at = found.end()
            yield ("number", number) if number else ("name", name) if name else ("sign", sign)
        while True:
            yield ("end", "")

    def _take(self) -> tuple[str, str]:
        taken, self._now = self._now, next(self._tokens)
        return taken

    def _is(self, *signs: str) -> bool:
        return self._now[0] == "sign" and self._now[1] in signs

    def _sum(self) -> float:
        self._depth += 1
        if self._depth > DEPTH_CAP:
            raise self._wrong("it is nested too deep")
        found = self._product()
        while self._is("+", "-"):
            found = found + self._product() if self._take()[1] == "+" else found - self._product()
        self._depth -= 1
        return found

    def _product(self) -> float:
        found = self._power()
        while self._is("*", "/"):
            if self._take()[1] == "*":
                found *= self._power()
                continue
            by = self._power()
            if by == 0:
                raise self._wrong("it divides by zero")
            found /= by
        return found

    def _power(self) -> float:
        base = self._atom()
        if not self._is("**"):
            return base
        self._take()
        exponent = self._atom()
        if abs(exponent) > LARGEST_POWER or (base == 0 and exponent < 0) or base < 0:
            raise self._wrong("a power is too large or undefined")
        try:
            return float(base**exponent)
        except OverflowError:
            raise self._wrong("a power is too large or undefined") from None

    def _atom(self) -> float:
        kind, text = self._take()
        if kind == "number":
            return float(text)
        if kind == "name" and self._is("("):
            return self._called(text)
        if kind == "name":
            value = self._params.get(text)
            if isinstance(value, bool | int | float):
                return float(value)
            raise self._wrong(
                f"{text} isn't a number in this case" if text in self._params else f"there is no parameter {text}"
            )
        if (kind, text) == ("sign", "-"):
            return -self._atom()
        if (kind, text) == ("sign", "("):
            found = self._sum()
            self._close()
            return found
        raise self._wrong(f"{text!r} isn't expected there" if text else "it ends too early")

    def _called(self, name: str) -> float:
        if name not in _FUNCTIONS:
            raise self._wrong(f"there is no {name}(); there are {', '.join(_FUNCTIONS)}")
        count, function = _FUNCTIONS[name]
        self._take()
        given = [self._sum()]
        while self._is(","):
            self._take()
            given.append(self._sum())
        self._close()
        if len(given) != count:
            raise self._wrong(f"{name}() takes {count}, not {len(given)}")
        try:
            return float(function(*given))
        except ValueError:
            raise self._wrong(f"{name}() is undefined there") from None

    def _close(self) -> None:
        if not self._is(")"):
            raise self._wrong("a parenthesis isn't closed")
        self._take()

    def _wrong(self, what: str) -> Invalid:
        return Invalid(f"the formula {self._text[:80]!r} can't be used: {what}")


def amount(formula: str, params: Params) -> float:
    """This formula's value for a case, never negative; Invalid if it has none."""
    try:
        return _FormulaParser(formula, params).value()
    except OverflowError:
        raise Invalid(f"the formula {formula[:80]!r} can't be used: its result is too large") from None


def is_counted(formula: object) -> bool:
    """Whether the judge counts it from the shapes of a case's arrays."""
    return isinstance(formula, str) and (formula == SHAPES or counted_operation(formula) is not None)


def least_s(
    problem: Problem,
    params: Params,
    peak: Peak,
    moved_bytes: float | None = None,
    counted_flops: float | None = None,
) -> float | None:
    """The shortest possible time for this case there; None if nothing is declared or known. `moved_bytes` and
    `counted_flops`: those of its arrays, for a problem whose work is counted by its shapes."""
    found = []
    for name, rate, counted in (
        ("flops", peak.flops_per_s, counted_flops),
        ("bytes", peak.bytes_per_s, moved_bytes),
    ):
        formula = problem.config.get(name)
        if not isinstance(formula, str) or not rate:
            continue
        work = counted if is_counted(formula) else amount(formula, params)
        if work is not None:
            found.append(work / (rate * problem.world_size))
    return max(found) if found else None


def held_to(verdict: Verdict, report: Report, problem: Problem, peak: Peak | None) -> Verdict:
    """The verdict after the physics check: rejected far below the minimum time, flagged with evidence below it."""
    if peak is None or verdict.name != "passed" or verdict.detail is None:
        return verdict
    told = _held(report, problem, peak)
    if not told:
        return verdict
    detail: Mapping[str, Any] = {**verdict.detail, "physics": told}
    if (light := speed_of_light(report, told)) is not None:
        detail = {**detail, SPEED_OF_LIGHT: light}
    worst = max(told, key=lambda row: float(row["share"]))
    if worst["share"] > 1 / IMPOSSIBLE:
        which = f"{worst['phase']} phase: benchmark {worst['index'] + 1}"
        reason = f"{which} took less than a thousandth of the time that the GPU needs at least"
        return Verdict(name="violation", reason=reason, isolation=verdict.isolation, detail=dict(detail))
    if worst["share"] > 1 / SUSPICIOUS:
        flags = [*verdict.detail.get("flags", ()), FLAG]
        return dataclasses.replace(verdict, detail={**detail, "flags": flags})
    return dataclasses.replace(verdict, detail=dict(detail))


def _held(report: Report, problem: Problem, peak: Peak) -> list[dict[str, Any]]:
    told: list[dict[str, Any]] = []
    for result in report.benchmarks:
        if result.median_ns is None:
            continue
        moved, flops = (_counted(report, which, result.phase, result.index) for which in (MOVED_BYTES, COUNTED_FLOPS))
        least = least_s(problem, problem.benchmarks[result.index], peak, moved, flops)
        if not least:
            continue
        share = least / (result.median_ns / 1e9)  # 1: as fast as the hardware allows
        told.append({"phase": result.phase, "index": result.index, "least_s": least, "share": share})
    return told


def _counted(report: Report, which: str, phase: str, index: int) -> float | None:
    by_case = (report.host.get(which) or {}).get(phase) or {}
    found = by_case.get(str(index)) if isinstance(by_case, Mapping) else None
    return float(found) if isinstance(found, int | float) and not isinstance(found, bool) and found > 0 else None


def beyond(report: Report, problem: Problem, peak: Peak) -> list[str]:
    """Each case of the phase that scores which a trusted kernel, or the baseline, ran faster than the problem's
    formulas allow: one sentence each. They count work that can be avoided, or the peak is too low."""
    least = {(row["phase"], row["index"]): float(row["least_s"]) for row in _held(report, problem, peak)}
    found = []
    for one in report.benchmarks:
        limit = least.get((one.phase, one.index))
        if limit is None or one.phase != TIMED.get(report.mode):
            continue
        for who, took_ns in (("it", one.median_ns), ("the baseline", one.baseline_ns)):
            if took_ns is not None and took_ns / 1e9 <= limit:
                found.append(
                    f"benchmark {one.index} ({one.spec}): {who} took {took_ns / 1e9:.3g} s, and the problem's flops "
                    f"and bytes allow no less than {limit:.3g} s"
                )
    return found


def speed_of_light(report: Report, told: Sequence[Mapping[str, Any]]) -> dict[str, float] | None:
    """How near this came to what the hardware allows, in the phase that scores.

    `share` is the geometric mean over the cases, 1 at the limit; where a baseline was measured beside it, `score` is
    0.5 for whoever is as fast as the baseline, and 1 at the limit. None if the phase wasn't timed in full. There is no
    `score` where the baseline itself is beyond the limit: then the formulas count work that can be avoided.
    """
    timed = [one for one in report.benchmarks if one.phase == TIMED.get(report.mode) and one.median_ns is not None]
    least = {row["index"]: float(row["least_s"]) for row in told if row["phase"] == TIMED.get(report.mode)}
    if not timed or any(one.index not in least for one in timed):
        return None
    logs, scores = [], []
    for one in timed:
        limit, took = least[one.index], float(one.median_ns or 0) / 1e9
        logs.append(math.log(limit / took))
        baseline = None if one.baseline_ns is None else one.baseline_ns / 1e9
        if baseline is not None and baseline > limit:
            # below the limit is beyond what can be true, not better than it
            scores.append(1 / (1 + max(0.0, took - limit) / (baseline - limit)))
    found = {"share": math.exp(math.fsum(logs) / len(logs))}
    return {**found, "score": math.fsum(scores) / len(scores)} if len(scores) == len(timed) else found


def light_in_words(detail: Mapping[str, Any] | None) -> str:
    """The same for people; empty if it isn't known."""
    light = (detail or {}).get(SPEED_OF_LIGHT)
    if not isinstance(light, Mapping) or not isinstance(light.get("share"), int | float):
        return ""
    share = f"{100 * light['share']:.3g} % of the speed of light"
    return f"{share} (score {light['score']:.3f})" if isinstance(light.get("score"), int | float) else share


def wrong_formula(detail: Mapping[str, Any] | None) -> str | None:
    """Why the problem's formulas can't be right, if a trusted kernel was faster than they allow."""
    if FLAG not in (detail or {}).get("flags", ()):
        return None
    return (
        "a trusted kernel is faster than the problem's flops and bytes allow on this GPU: they count work that can be "
        "avoided, or the site's peak is too low"
    )
