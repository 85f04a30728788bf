"""Under which conditions a run was timed, for people: caches, clocks, and how narrow its interval had to be; and on a
device how much of its times is the way there. Pure.

All of it is from the report of a harness that may be older than the service, so anything missing or malformed is left
out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kbslurm.domain.amounts import seconds


def in_words(detail: Mapping[str, Any] | None) -> list[str]:
    """One sentence each, without its full stop; none of a run that wasn't timed."""
    host = (detail or {}).get("host")
    if not isinstance(host, Mapping) or not any(row.get("median_ns") for row in (detail or {}).get("benchmarks", ())):
        return []
    device = _table(host.get("device"))
    found = [_caches(_table(host.get("caches"))) if device else "", _clocks(_table(device.get("clocks")))]
    found += [_device_times(device)] if device else []
    found += [_precision(_table(host.get("precision"))), _fewer(_table(host.get("fewer_launches")))]
    return [line for line in found if line]


def _table(found: Any) -> Mapping[str, Any]:
    return found if isinstance(found, Mapping) else {}


def _device_times(device: Mapping[str, Any]) -> str:
    """Medians of the cases that count: what the runner claims of its device, and what the judge saw, without and with
    the way there and the copies. The score is the last, less what no submission has a part in."""
    rows = [_table(row) for row in device.get("times") or ()] if isinstance(device.get("times"), list) else []
    ranked = [row for row in rows if row.get("phase") == "ranked"]
    rows = ranked or [row for row in rows if row.get("phase") == "benchmark"]
    claimed, judged, raw = (_reach(rows, name) for name in ("claimed_ns", "judge_ns", "raw_ns"))
    if not (claimed and judged and raw):
        return ""
    return (
        f"device {claimed} as the runner claims, {judged} by the judge's clock less the way there; "
        f"with launch, wait and copies {raw}"
    )


def _reach(rows: list[Mapping[str, Any]], name: str) -> str:
    """The one time, or the least and the most of several cases."""
    ns = [row.get(name) for row in rows]
    times = [one / 1e9 for one in ns if isinstance(one, (int, float)) and 0 <= one < 1e18]
    if not times or len(times) < len(ns):
        return ""
    least, most = seconds(min(times)), seconds(max(times))
    return least if least == most else f"{least} to {most}"


def _caches(told: Mapping[str, Any]) -> str:
    size, why = told.get("flushed_bytes"), told.get("why")
    if isinstance(size, int) and size > 0:
        return f"the device's caches were flushed before each call ({size >> 20} MiB written)"
    return f"caches weren't flushed: {why}" if isinstance(why, str) and why else ""


def _clocks(told: Mapping[str, Any]) -> str:
    if not told.get("source"):
        why = told.get("why")
        return f"clocks weren't watched: {why}" if isinstance(why, str) and why else ""
    sm, locked, again = told.get("sm_mhz"), told.get("locked_mhz"), told.get("discarded_calls")
    if not isinstance(sm, list) or len(sm) != 3 or not all(isinstance(mhz, int) for mhz in sm):
        return ""
    said = f"clock {sm[1]} MHz" if sm[0] == sm[2] else f"clock {sm[0]} to {sm[2]} MHz"
    if isinstance(locked, list) and locked:
        said += f", set to {locked[0]} MHz"
    if isinstance(again, int) and again > 0:
        said += f"; {again} calls were timed again because it changed or was throttled"
    kept = told.get("kept_batches")
    if isinstance(kept, int) and kept > 0:
        said += "; some of what counts was timed while it changed or was throttled"
    return said


def _fewer(told: Mapping[str, Any]) -> str:
    declared, launches = told.get("declared"), told.get("launches")
    if not isinstance(declared, int) or not isinstance(launches, int):
        return ""
    many = f"{launches} launches" if launches > 1 else "one launch"
    return f"{many} instead of {declared}: the problem's inputs and checks leave no time for more"


def _precision(told: Mapping[str, Any]) -> str:
    asked, reached, launches = told.get("asked"), told.get("reached"), told.get("launches")
    if not isinstance(asked, float) or not isinstance(reached, float) or not isinstance(launches, int):
        return ""
    said = f"±{100 * reached:.2g} % after {launches} launches (±{100 * asked:.2g} % was asked for)"
    return f"{said}: {told['why']}" if isinstance(told.get("why"), str) and told["why"] else said
