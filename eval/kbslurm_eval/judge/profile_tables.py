"""The tables that profilers write, read: Nsight Compute's (both layouts), rocprofv3's, and our own of torch's operators
and Python's functions. Pure.

They come from where the submission ran and may contain anything. What can't be read is left out: a missing number is
no number, never zero.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

ROWS_MOST = 200_000
CELL_MOST = 16_384
COLUMNS_MOST = 200
NUMBER_MOST = 1e20  # nothing that is measured comes near it, and no sum or product of such overflows
_THOUSANDS = re.compile(r"-?\d{1,3}(?:,\d{3})+\Z", re.ASCII)
_COMMA_DECIMAL = re.compile(r"-?(?:\d{1,3}(?:\.\d{3})+|\d+),\d+\Z", re.ASCII)
_NUMBER = re.compile(r"-?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?\Z", re.ASCII)
_GAPS = re.compile("[ \u00a0\u202f\u2009'\u2019]")
_STALLED = re.compile(
    r"smsp__average_warps_issue_stalled_([a-z0-9_]{1,40}?)(?<!_not_issued)_per_issue_active(?:\.ratio)?\Z"
)

_TO_NS = {
    **dict.fromkeys(("nsecond", "ns", "nanosecond", "nsec"), 1.0),
    **dict.fromkeys(("usecond", "us", "µs", "μs", "microsecond", "usec"), 1e3),
    **dict.fromkeys(("msecond", "ms", "millisecond", "msec"), 1e6),
    **dict.fromkeys(("second", "s", "sec"), 1e9),
}
_TO_BYTES = {"byte": 1.0, "b": 1.0, "bytes": 1.0} | {
    f"{letter}{unit}": 1000.0**power
    for power, letter in enumerate("kmgt", 1)
    for unit in ("byte", "b", "bytes")
}  # fmt: skip
_SHARES = ("%", "pct", "percent", "")

# What a metric is called: by Nsight Compute itself, and on its details page by this and older versions.
_NS, _PCT, _BYTES, _PLAIN = "ns", "pct", "bytes", "plain"
METRICS: Mapping[str, tuple[str, str]] = {
    "gpu__time_duration.sum": ("ns", _NS),
    "gpu__time_duration.avg": ("ns", _NS),
    "duration": ("ns", _NS),
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": ("compute_pct", _PCT),
    "compute (sm) throughput": ("compute_pct", _PCT),
    "sm [%]": ("compute_pct", _PCT),
    "sol sm": ("compute_pct", _PCT),
    "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed": ("memory_pct", _PCT),
    "memory throughput": ("memory_pct", _PCT),
    "memory [%]": ("memory_pct", _PCT),
    "sol memory": ("memory_pct", _PCT),
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": ("dram_pct", _PCT),
    "dram__throughput.avg.pct_of_peak_sustained_elapsed": ("dram_pct", _PCT),
    "dram throughput": ("dram_pct", _PCT),
    "l1tex__t_sector_hit_rate.pct": ("l1_hit_pct", _PCT),
    "l1/tex hit rate": ("l1_hit_pct", _PCT),
    "lts__t_sector_hit_rate.pct": ("l2_hit_pct", _PCT),
    "l2 hit rate": ("l2_hit_pct", _PCT),
    "sm__warps_active.avg.pct_of_peak_sustained_active": ("occupancy_pct", _PCT),
    "achieved occupancy": ("occupancy_pct", _PCT),
    "sm__maximum_warps_per_active_cycle_pct": ("theoretical_occupancy_pct", _PCT),
    "theoretical occupancy": ("theoretical_occupancy_pct", _PCT),
    "launch__registers_per_thread": ("registers", _PLAIN),
    "registers per thread": ("registers", _PLAIN),
    "launch__block_size": ("block_size", _PLAIN),
    "block size": ("block_size", _PLAIN),
    "launch__grid_size": ("grid_size", _PLAIN),
    "grid size": ("grid_size", _PLAIN),
    "launch__waves_per_multiprocessor": ("waves", _PLAIN),
    "waves per sm": ("waves", _PLAIN),
    "launch__occupancy_limit_registers": ("blocks_by_registers", _PLAIN),
    "block limit registers": ("blocks_by_registers", _PLAIN),
    "launch__occupancy_limit_shared_mem": ("blocks_by_shared_memory", _PLAIN),
    "block limit shared mem": ("blocks_by_shared_memory", _PLAIN),
    "launch__occupancy_limit_warps": ("blocks_by_warps", _PLAIN),
    "block limit warps": ("blocks_by_warps", _PLAIN),
    "dram__bytes_read.sum": ("dram_read_bytes", _BYTES),
    "dram__bytes_write.sum": ("dram_written_bytes", _BYTES),
    "smsp__average_warp_latency_per_inst_issued.ratio": ("cycles_per_instruction", _PLAIN),
    "warp cycles per issued instruction": ("cycles_per_instruction", _PLAIN),
}
STALL = "stall_"
SAMPLES = "Warp Stall Sampling (All Samples)"


@dataclass(frozen=True, kw_only=True)
class Advice:
    """What Nsight Compute's own rules say about a launch. `gain_pct`: the speed-up that it estimates."""

    rule: str
    text: str
    gain_pct: float | None = None


@dataclass(kw_only=True)
class Launch:
    """One launch of a kernel, or one row about several."""

    name: str
    calls: int = 1
    ns: float | None = None
    started_ns: float | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    advice: list[Advice] = field(default_factory=list)


def nsight(blob: bytes) -> list[Launch]:
    """Launches in a table of `ncu --csv`: of the page `raw` with a column for each metric, or `details` with a row."""
    head, rows = _table(blob, ("Kernel Name",))
    if not head:
        return []
    return _by_rows(head, rows) if "Metric Name" in head else _by_columns(head, rows)


@dataclass(frozen=True, kw_only=True)
class SourceLine:
    """A line of a submission and how often warps were seen there. `file`: its name, where the table tells it."""

    file: str
    number: int
    text: str
    samples: float


def nsight_source(blob: bytes) -> list[SourceLine]:
    """The author's lines in a table of `ncu --page source --csv`, most samples first; none where there is only machine
    code. The table has a block for each file: its path, then a head, then lines, with machine code between them."""
    found: list[SourceLine] = []
    text = blob.decode("utf-8", "replace").replace("\0", "")
    head: dict[str, int] = {}
    file = ""
    for row in _rows(io.StringIO(text)):
        if row[0].strip().rstrip(":") in ("File Path", "File Name", "Source File") and len(row) > 1:
            file, head = row[1].replace("\\", "/").rpartition("/")[2], {}
        elif "Source" in row and SAMPLES in row:
            head = {name.strip(): at for at, name in reversed(list(enumerate(row)))}
        elif "Line No" in head:
            number_of, samples = number(_cell(row, head, "Line No")), number(_cell(row, head, SAMPLES))
            if number_of is not None and samples:
                line = SourceLine(file=file, number=int(number_of), text=_cell(row, head, "Source"), samples=samples)
                found.append(line)
    return sorted(found, key=lambda one: (-one.samples, one.file, one.number))


def rocprof_trace(blob: bytes) -> list[Launch]:
    """Launches in rocprofv3's `kernel_trace.csv`."""
    head, rows = _table(blob, ("Kernel_Name", "Start_Timestamp", "End_Timestamp"))
    found = []
    for row in rows:
        name, began, ended = _cell(row, head, "Kernel_Name"), *(
            number(_cell(row, head, which)) for which in ("Start_Timestamp", "End_Timestamp")
        )  # fmt: skip
        if not name or began is None or ended is None or ended < began:
            continue
        launch = Launch(name=name, ns=ended - began, started_ns=began)
        for key, columns in (
            ("vgprs", ("VGPR_Count", "Vgpr_Count")),
            ("lds_bytes", ("LDS_Block_Size", "Lds_Block_Size", "Group_Segment_Size")),
            ("scratch_bytes", ("Scratch_Size", "Private_Segment_Size")),
            ("block_size", ("Workgroup_Size_X",)),
        ):
            values = [number(_cell(row, head, column)) for column in columns if column in head]
            if values and values[0] is not None:
                launch.metrics[key] = values[0]
        found.append(launch)
    return found


def rocprof_stats(blob: bytes) -> list[Launch]:
    """Kernels in rocprofv3's `kernel_stats.csv`: all launches of one are a row."""
    head, rows = _table(blob, ("Name", "Calls", "TotalDurationNs"))
    found = []
    for row in rows:
        name, calls, total = _cell(row, head, "Name"), *(
            number(_cell(row, head, which)) for which in ("Calls", "TotalDurationNs")
        )  # fmt: skip
        if name and calls is not None and total is not None and calls >= 1 and total >= 0:
            found.append(Launch(name=name, calls=int(calls), ns=total))
    return found


def operators(blob: bytes) -> list[Launch]:
    """Our own table of torch's operators or Python's functions: rows of `name`, `calls`, `self_us` or `own_s`."""
    try:
        told = json.loads(blob)
    except (ValueError, RecursionError):
        return []
    found = []
    for row in told[:ROWS_MOST] if isinstance(told, list) else ():
        if not isinstance(row, dict):
            continue
        name, calls = row.get("name") or row.get("function"), _plain(row.get("calls"))
        spent = _plain(row.get("own_s"))
        ns = spent * 1e9 if spent is not None else (_plain(row.get("self_us")) or 0.0) * 1e3
        if isinstance(name, str) and calls is not None and calls >= 1 and ns >= 0:
            where = row.get("file")
            at = f" ({where}:{row.get('line')})" if isinstance(where, str) and where not in ("~", "") else ""
            found.append(Launch(name=f"{name[:CELL_MOST]}{at[:CELL_MOST]}", calls=int(calls), ns=ns))
    return found


def number(text: str, *, comma_decimal: bool = False) -> float | None:
    """The number that a cell shows, however it is grouped; None for `n/a`, text, or what isn't finite."""
    plain = _GAPS.sub("", text.split(" (")[0].strip().removesuffix("%"))
    if len(plain) > 64:
        return None
    if comma_decimal:
        plain = plain.replace(".", "").replace(",", ".")
    elif "," in plain:
        if not _THOUSANDS.match(plain.split(".")[0]):
            return None
        plain = plain.replace(",", "")
    if not _NUMBER.match(plain):
        return None
    found = float(plain)
    return found if abs(found) <= NUMBER_MOST else None


def writes_decimal_commas(texts: Iterable[str]) -> bool:
    """Whether these numbers were written where 1.5 is 1,5: one of them must be so, and none the other way round."""
    commas = False
    for text in texts:
        plain = _GAPS.sub("", text.strip().removesuffix("%"))
        if "." in plain and "," in plain:
            return plain.rfind(",") > plain.rfind(".")
        commas = commas or (_COMMA_DECIMAL.match(plain) is not None and not _THOUSANDS.match(plain))
        commas = commas or plain.startswith(("0,", "-0,"))
    return commas


def _plain(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value <= NUMBER_MOST else None


def _by_columns(head: Mapping[str, int], rows: Iterable[Sequence[str]]) -> list[Launch]:
    units: Sequence[str] = ()
    kept: list[Sequence[str]] = []
    for row in rows:
        if _cell(row, head, "Kernel Name"):
            kept.append(row)
        elif not kept and not units:
            units = row  # the line below the head
    known = ((name, at) for name, at in head.items() if name.lower() in METRICS or _STALLED.match(name))
    wanted = dict(itertools.islice(known, COLUMNS_MOST))
    commas = writes_decimal_commas(row[at] for row in kept[:50] for at in wanted.values() if at < len(row))
    found = []
    for row in kept:
        launch = Launch(name=_cell(row, head, "Kernel Name"))
        for name, at in wanted.items():
            if at < len(row):
                _note(launch, name, units[at] if at < len(units) else None, number(row[at], comma_decimal=commas))
        found.append(launch)
    return found


def _by_rows(head: Mapping[str, int], rows: Iterable[Sequence[str]]) -> list[Launch]:
    found: dict[tuple[str, ...], Launch] = {}
    kept = list(rows)
    commas = writes_decimal_commas(_cell(row, head, "Metric Value") for row in kept[:2000])
    which: tuple[str, ...] = ()
    for row in kept:
        name = _cell(row, head, "Kernel Name")
        if name:
            which = (_cell(row, head, "Process ID"), _cell(row, head, "ID"), name)
        if not which:
            continue
        launch = found.setdefault(which, Launch(name=which[2]))
        metric = _cell(row, head, "Metric Name")
        if metric:
            value = number(_cell(row, head, "Metric Value"), comma_decimal=commas)
            _note(launch, metric, _cell(row, head, "Metric Unit"), value)
        elif _cell(row, head, "Rule Type").upper() in ("OPT", "WRN") and (text := _cell(row, head, "Rule Description")):
            gain = number(_cell(row, head, "Estimated Speedup"), comma_decimal=commas)
            launch.advice.append(Advice(rule=_cell(row, head, "Rule Name"), text=text, gain_pct=gain))
    return list(found.values())


def _note(launch: Launch, name: str, unit: str | None, value: float | None) -> None:
    """Keep a metric that is known, in its usual unit. `unit`: None where the table tells none."""
    if value is None or value < 0:
        return
    if stalled := _STALLED.match(name):
        launch.metrics.setdefault(f"{STALL}{stalled.group(1)}", value)
        return
    key, kind = METRICS.get(name.lower(), ("", ""))
    said = (unit or "").strip().lower()
    if kind == _NS:
        factor = 1.0 if unit is None else _TO_NS.get(said)
    elif kind == _BYTES:
        factor = 1.0 if unit is None else _TO_BYTES.get(said)
    elif kind == _PCT:
        factor = 1.0 if said in _SHARES else None  # `Memory Throughput` is also a rate, in another section
    else:
        factor = 1.0 if kind else None
    if factor is None:
        return
    if key == "ns":
        launch.ns = value * factor if launch.ns is None else launch.ns
    else:
        launch.metrics.setdefault(key, value * factor)


def _table(blob: bytes, columns: Sequence[str]) -> tuple[dict[str, int], Iterator[Sequence[str]]]:
    """The head of the first table with these columns, and its rows."""
    text = blob.decode("utf-8", "replace").lstrip("\ufeff").replace("\0", "")
    lines = io.StringIO("".join(line for line in text.splitlines(keepends=True) if not line.startswith("==")))
    rows = _rows(lines)
    for row in rows:
        head = {name.strip(): at for at, name in reversed(list(enumerate(row)))}
        if all(column in head for column in columns):
            return head, rows
    return {}, iter(())


def _rows(lines: Iterable[str]) -> Iterator[list[str]]:
    reader = csv.reader(lines)
    for _ in range(ROWS_MOST):
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error:  # a cell beyond all bounds, say: what came before it counts
            return
        if row:
            yield row


def _cell(row: Sequence[str], head: Mapping[str, int], column: str) -> str:
    at = head.get(column)
    return row[at].strip()[:CELL_MOST] if at is not None and at < len(row) else ""
