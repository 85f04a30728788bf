"""A grading scheme as hosts write it, in TOML: read, checked key by key, and turned into a value.

```toml
by = "speedup"          # time, speedup, light or rank
points = 100            # full marks
passed = 40             # for anything that passes
between = "line"        # between the steps: steps (the default) or line

[[steps]]
at_least = 4            # times as fast as the baseline
points = 100

[[steps]]
at_least = 1
points = 60
```
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, cast, get_args

from kbslurm.domain.grades import Counts, Measure, Scheme, Step
from kbslurm.errors import Invalid

SCHEME_CAP = 64 * 1024
MOST_STEPS = 1_000
MOST_POINTS = 1_000_000
# What a step's limit is called, and whether larger values are better.
LIMITS: Mapping[Measure, tuple[str, bool]] = {
    "time": ("at_most", False),
    "speedup": ("at_least", True),
    "light": ("at_least", True),
    "rank": ("up_to", False),
}
KEYS = ("by", "points", "passed", "between", "counts", "decimals", "baseline", "gpu", "steps")
_TIME = re.compile(r"([0-9.eE+-]{1,20})\s*(s|ms|us|µs|μs|ns)", re.ASCII | re.IGNORECASE)
_TIME_S = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ns": 1e-9}


def parsed_scheme(text: str, *, counts: Counts = "best") -> Scheme:
    """The scheme in this TOML, or Invalid in one sentence that names the key. `counts`: unless it says so itself."""
    if len(text.encode("utf-8", "replace")) > SCHEME_CAP:
        raise Invalid(f"the scheme is too long: at most {SCHEME_CAP // 1024} KiB")
    try:
        told = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        why = str(error) if isinstance(error, tomllib.TOMLDecodeError) else "it is nested too deeply"
        raise Invalid(f"the scheme isn't valid TOML: {why}") from None
    _known(told, KEYS, "")
    by = cast("Measure", _choice(told, "by", get_args(Measure)))
    most = _amount(told, "points", 100.0, least=0.0, most=MOST_POINTS)
    scheme = Scheme(
        by=by,
        points=most,
        passed=_amount(told, "passed", 0.0, least=0.0, most=most),
        between=cast("Any", _choice(told, "between", ("steps", "line"), "steps")),
        counts=cast("Counts", _choice(told, "counts", get_args(Counts), counts)),
        decimals=_decimals(told),
        baseline_s=_baseline(told, by),
        gpu=_gpu(told),
        steps=_steps(told, by, most),
    )
    if by == "rank" and scheme.between == "line":
        raise Invalid("`between` can't be a line for ranks", hint="Leave it out: bands of ranks are steps.")
    return scheme


def _known(table: Mapping[str, Any], keys: Sequence[str], where: str) -> None:
    for key in table:
        if key not in keys:
            raise Invalid(f"the scheme has no key `{where}{key[:40]}`", hint=f"It may have: {', '.join(keys)}.")


def _choice(table: Mapping[str, Any], key: str, values: Sequence[str], usual: str | None = None) -> str:
    found = table.get(key, usual)
    if found is None:
        raise Invalid(f"the scheme has no `{key}`", hint=f"Choose one of: {', '.join(values)}.")
    if not isinstance(found, str) or found not in values:
        raise Invalid(f"`{key}` can't be {_shown(found)}", hint=f"Choose one of: {', '.join(values)}.")
    return found


def _amount(
    table: Mapping[str, Any], key: str, usual: float | None, *, least: float, most: float, where: str = ""
) -> float:
    found = table.get(key, usual)
    if found is None:
        raise Invalid(f"`{where}{key}` is missing")
    if isinstance(found, bool) or not isinstance(found, int | float) or not math.isfinite(found):
        raise Invalid(f"`{where}{key}` must be a number, not {_shown(found)}")
    if not least <= found <= most:
        raise Invalid(f"`{where}{key}` must be between {least:g} and {most:g}, not {_shown(found)}")
    return float(found)


def _decimals(table: Mapping[str, Any]) -> int:
    found = table.get("decimals", 2)
    if isinstance(found, bool) or not isinstance(found, int) or not 0 <= found <= 6:
        raise Invalid(f"`decimals` must be a whole number between 0 and 6, not {_shown(found)}")
    return found


def _gpu(table: Mapping[str, Any]) -> str | None:
    found = table.get("gpu")
    if found is not None and (not isinstance(found, str) or not 0 < len(found) <= 64):
        raise Invalid(f"`gpu` must be a GPU type of the board, not {_shown(found)}")
    return found


def _baseline(table: Mapping[str, Any], by: Measure) -> float | None:
    if "baseline" not in table:
        return None
    if by != "speedup":
        raise Invalid("`baseline` is only for a scheme by speedup", hint="Leave it out.")
    return _time(table["baseline"], "baseline")


def _time(found: Any, key: str) -> float:
    """A time with its unit, like `2.5 ms`."""
    match = _TIME.fullmatch(found.strip()) if isinstance(found, str) else None
    try:
        value = math.nan if match is None else float(match[1]) * _TIME_S[match[2].lower()]
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise Invalid(f"`{key}` must be a time, not {_shown(found)}", hint='Write it with its unit, like "2.5 ms".')
    return value


def _steps(table: Mapping[str, Any], by: Measure, most: float) -> tuple[Step, ...]:
    told = table.get("steps")
    if not isinstance(told, list) or not told or not all(isinstance(one, dict) for one in told):
        raise Invalid("the scheme has no `steps`", hint="Write each as a table: [[steps]].")
    if len(told) > MOST_STEPS:
        raise Invalid(f"`steps` has {len(told)} entries: at most {MOST_STEPS}")
    limit, more_is_better = LIMITS[by]
    found = []
    for n, one in enumerate(told, 1):
        where = f"steps[{n}]."
        _known(one, (limit, "points"), where)
        if limit not in one:
            raise Invalid(f"`{where}{limit}` is missing", hint=f"A scheme by {by} says from which value on it holds.")
        points = _amount(one, "points", None, least=0.0, most=most, where=where)
        found.append(Step(value=_limit(one[limit], by, f"{where}{limit}"), points=points))
    found.sort(key=lambda step: -step.value if more_is_better else step.value)
    for better, worse in pairwise(found):
        if better.value == worse.value:
            raise Invalid(f"`steps` has {limit} = {better.value:g} twice")
        if better.points < worse.points:
            raise Invalid(
                f"`steps` gives {better.points:g} points for {limit} {better.value:g} and {worse.points:g} for"
                f" {worse.value:g}: a better result can't be worth less"
            )
    return tuple(found)


def _limit(found: Any, by: Measure, key: str) -> float:
    match by:
        case "time":
            return _time(found, key)
        case "rank":
            if isinstance(found, bool) or not isinstance(found, int) or not 1 <= found <= 1_000_000:
                raise Invalid(f"`{key}` must be a rank from 1 on, not {_shown(found)}")
            return float(found)
        case "speedup" | "light":
            return _amount({key: found}, key, None, least=0.0, most=1e9 if by == "speedup" else 1.0)


def _shown(found: Any) -> str:
    return repr(found)[:60]
