"""A profile in short: what limits the kernel, by how much, and what to try, in three sentences, and the kernels that
take the time. Pure; the tables are read in `profile_tables`.

The sentences are ours, with the submission's names and numbers in them: names are shortened and made printable.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kbslurm_eval.judge import profile_tables as tables
from kbslurm_eval.judge.profile_tables import STALL, Launch, SourceLine
from kbslurm_eval.judge.replies import as_one_line, clean
from kbslurm_eval.shared.wire import (
    KERNELS_CAP,
    METRICS_CAP,
    NAME_CAP,
    SENTENCE_CAP,
    ProfileDigest,
    ProfiledKernel,
    ProfileTool,
)

BUSY_PCT = 60.0  # Nsight Compute's own bound: below it neither side is what limits a kernel
HINTS_MOST, NAME_SHOWN, STALLS_SHOWN = 4, 70, 5
LINES_MOST, LINE_SHOWN = 3, 100
SMALL_NS, MANY_CALLS = 10_000.0, 50  # operators that are shorter than what it takes to start them
COPIES = re.compile(r"memcpy|copy_|aten::to\b|aten::_to_copy|aten::item|aten::contiguous|dtoh|htod", re.IGNORECASE)

# Why warps wait, and what helps; the names are Nsight Compute's.
_WAITS: Mapping[str, tuple[str, str]] = {
    "long_scoreboard": (
        "for global or local memory",
        "load earlier and keep more loads in flight: wider loads, unrolled loops, asynchronous copies with more stages",
    ),
    "short_scoreboard": (
        "for shared memory or special functions",
        "use shared memory less often: wider accesses, no bank conflicts, values kept in registers",
    ),
    "lg_throttle": ("to issue more global or local loads", "use fewer and wider loads and stores"),
    "mio_throttle": ("to issue more to shared memory", "use fewer and wider shared memory accesses"),
    "tex_throttle": ("to issue more texture reads", "use fewer and wider reads"),
    "barrier": ("at barriers", "synchronise less often, or give a block fewer warps that wait for each other"),
    "membar": ("for memory fences", "use fewer fences"),
    "math_pipe_throttle": (
        "for a busy arithmetic unit",
        "spread the work over other units (tensor cores, say), or do less of it",
    ),
    "wait": ("for fixed latencies", "give each thread more independent work"),
    "no_instruction": ("for instructions", "use smaller loops and less unrolling: the code doesn't fit its cache"),
    "branch_resolving": ("for branches", "use fewer branches in inner loops"),
    "drain": ("for stores at their end", "write results in wider and contiguous stores"),
    "imc_miss": ("for constants", "keep constants in few places"),
    "dispatch_stall": ("for the dispatcher", "give each thread more independent work"),
    "sleeping": ("asleep", "don't let warps sleep"),
    "gmma": ("for the tensor cores' results", "keep several matrix products in flight"),
}
_AT_WORK = ("selected", "not_selected")  # a warp that has something to issue doesn't wait


@dataclass(kw_only=True)
class _Kernel:
    """All launches of one kernel."""

    name: str
    calls: int = 0
    ns: float = 0.0
    sums: dict[str, tuple[float, float]] = field(default_factory=dict)

    def add(self, launch: Launch) -> None:
        self.calls += launch.calls
        self.ns += launch.ns or 0.0
        weight = launch.ns or 1.0
        for key, value in launch.metrics.items():
            total, weights = self.sums.get(key, (0.0, 0.0))
            self.sums[key] = (total + value * weight, weights + weight)

    def metrics(self) -> dict[str, float]:
        """The means, weighted by time."""
        return {key: total / weights for key, (total, weights) in self.sums.items() if weights > 0}

    @property
    def mean_ns(self) -> float:
        return self.ns / max(1, self.calls)


def without(*, benchmark: int, spec: str, tool: ProfileTool, trouble: str) -> ProfileDigest:
    """There is no profile, and why."""
    return ProfileDigest(benchmark=benchmark, spec=spec, tool=tool, trouble=cut(trouble))


def digest(
    *,
    benchmark: int,
    spec: str,
    tool: ProfileTool,
    launches: Sequence[Launch],
    advised: Sequence[Launch] = (),
    source: Sequence[SourceLine] = (),
) -> ProfileDigest:
    """What these launches came to. `advised`: the same launches in a table that carries a profiler's advice. `source`:
    the author's lines with their samples."""
    kernels = _together(launches)
    if not kernels:
        trouble = "the profiler's tables name no kernel: none ran in the profiled calls, or none could be read"
        return without(benchmark=benchmark, spec=spec, tool=tool, trouble=trouble)
    total = sum(kernel.ns for kernel in kernels)
    match tool:
        case "ncu":
            limits, hints = _of_counters(kernels, total), _advice(kernels[0], advised or launches)
            hints += _hot_lines(source)
        case "rocprof":
            limits, hints = _of_trace(kernels, total, launches), []
        case "torch":
            limits, hints = _of_operators(kernels, total), []
        case "cprofile":
            limits, hints = _of_functions(kernels, total), []
    if len(kernels) > 1 and total and kernels[0].ns < 0.5 * total and tool in ("ncu", "rocprof"):
        hints.append(f"{len(kernels)} kernels share the time: fusing some saves launches and trips to memory.")
    return ProfileDigest(
        benchmark=benchmark,
        spec=spec,
        tool=tool,
        calls=sum(kernel.calls for kernel in kernels),
        total_ns=total,
        limits=[cut(text) for text in limits],
        hints=[cut(text) for text in hints],
        kernels=[_told(kernel, total) for kernel in kernels[:KERNELS_CAP]],
        kernels_left_out=max(0, len(kernels) - KERNELS_CAP),
    )


def in_words(told: ProfileDigest) -> str:
    """The digest in a profile's summary."""
    if told.trouble:
        return f"no profile by {told.tool}: {told.trouble}"
    return "\n".join([*told.limits, *(f"hint: {hint}" for hint in told.hints)])


def cut(text: str, most: int = SENTENCE_CAP) -> str:
    """The text on one line, printable, and no longer than that."""
    plain = as_one_line(clean(text[: 4 * most], 4 * most))
    return plain if len(plain) <= most else f"{plain[: most - 2]} …"


def took(ns: float) -> str:
    """A duration for people."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if ns >= size:
            return f"{ns / size:.3g} {unit}"
    return f"{ns:.3g} ns"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _together(launches: Sequence[Launch]) -> list[_Kernel]:
    found: dict[str, _Kernel] = {}
    for launch in launches:
        found.setdefault(launch.name, _Kernel(name=launch.name)).add(launch)
    return sorted(found.values(), key=lambda kernel: (-kernel.ns, -kernel.calls, kernel.name))


def _told(kernel: _Kernel, total: float) -> ProfiledKernel:
    means = kernel.metrics()
    stalls = sorted((k for k in means if k.startswith(STALL)), key=lambda k: (-means[k], k))[:STALLS_SHOWN]
    shown = [*(k for k in means if not k.startswith(STALL)), *stalls][:METRICS_CAP]
    return ProfiledKernel(
        name=cut(kernel.name, NAME_CAP),
        calls=kernel.calls,
        total_ns=kernel.ns,
        share=kernel.ns / total if total else 0.0,
        metrics={key: means[key] for key in shown},
    )


def _takes(kernel: _Kernel, total: float, of: str, unit: str = "call") -> str:
    name = cut(kernel.name, NAME_SHOWN)
    times = f"{kernel.calls} {unit}{'' if kernel.calls == 1 else 'es' if unit.endswith('h') else 's'}"
    if not total:
        return f"{name} ({times})"
    return f"{name} takes {_percent(kernel.ns / total)} of {of} ({times}, {took(kernel.mean_ns)} each)"


def _of_counters(kernels: Sequence[_Kernel], total: float) -> list[str]:
    top, seen = kernels[0], kernels[0].metrics()
    takes = _takes(top, total, "the kernels' time", "launch")
    compute, memory = seen.get("compute_pct"), seen.get("memory_pct")
    if compute is None or memory is None:
        return [
            f"{takes}.",
            "How busy memory and arithmetic units were isn't in the table, so what bounds it isn't known.",
            "Open the report in Nsight Compute; the table may be of a section set without the speed of light.",
        ]
    if max(compute, memory) < BUSY_PCT:
        return [
            f"{takes} and is bound by waiting: memory is {memory:.0f} % busy and the arithmetic units {compute:.0f} %.",
            *_of_waiting(seen),
        ]
    if memory >= compute:
        saved = f"save at most {100 - min(memory, 100.0):.0f} % of its time"
        return [
            f"{takes} and is bound by memory, which is {memory:.0f} % busy; the arithmetic units are {compute:.0f} %.",
            f"Moving the same bytes at the full rate would {saved}: more can only be gained by moving fewer.",
            f"Try to {_fewer_bytes(seen, memory)}.",
        ]
    saved = f"save at most {100 - min(compute, 100.0):.0f} % of its time"
    return [
        f"{takes} and is bound by computing: the arithmetic units are {compute:.0f} % busy, memory {memory:.0f} %.",
        f"The same instructions at the full rate would {saved}: more can only be gained by needing fewer.",
        "Try tensor cores or a smaller number format where the tolerance allows it, and fewer instructions a result.",
    ]


def _fewer_bytes(seen: Mapping[str, float], memory: float) -> str:
    dram = seen.get("dram_pct")
    if dram is not None and dram < 0.7 * memory:
        return (
            f"ease the caches and shared memory (DRAM itself is only {dram:.0f} % busy): wider and neighbouring "
            "accesses in a warp, fewer bank conflicts, more reuse in registers"
        )
    hits = seen.get("l2_hit_pct")
    again = f" (L2 has {hits:.0f} % of what is asked for)" if hits is not None else ""
    return (
        f"read and write each byte of DRAM once{again}: fuse neighbouring kernels, reuse tiles in shared memory or "
        "registers, or use a smaller number format"
    )


def _of_waiting(seen: Mapping[str, float]) -> list[str]:
    stalls = {k.removeprefix(STALL): v for k, v in seen.items() if k.startswith(STALL)}
    waits = {k: v for k, v in stalls.items() if k not in _AT_WORK}
    cause = max(waits, key=lambda k: (waits[k], k)) if waits and max(waits.values()) > 0 else None
    words, remedy = _WAITS.get(cause or "", (f"for {cause}" if cause else "", ""))
    busiest = max(seen.get("compute_pct", 0.0), seen.get("memory_pct", 0.0))
    if cause is not None:
        cycles = sum(stalls.values())
        how_much = (
            f"A warp issues an instruction every {cycles:.3g} cycles and spends {waits[cause]:.3g} of them "
            f"({_percent(waits[cause] / cycles)}) waiting {words}."
        )
    else:
        how_much = f"Its busiest part is idle for {100 - busiest:.0f} % of the time, which is what can be gained."
    return [how_much, f"Try to {_more_at_once(seen) or remedy or 'run more warps at once, with more work each'}."]


def _more_at_once(seen: Mapping[str, float]) -> str:
    waves, grid = seen.get("waves"), seen.get("grid_size")
    if waves is not None and waves < 1:
        blocks = f"its {grid:.0f} blocks fill" if grid is not None else "its blocks fill"
        return (
            f"use more blocks: {blocks} only {_percent(waves)} of the GPU; smaller tiles, or a split along another axis"
        )
    most, got = seen.get("theoretical_occupancy_pct"), seen.get("occupancy_pct")
    if most is not None and most < 50:
        limits = {
            "registers": seen.get("blocks_by_registers"),
            "shared memory": seen.get("blocks_by_shared_memory"),
            "warps": seen.get("blocks_by_warps"),
        }
        known = {name: value for name, value in limits.items() if value is not None and value > 0}
        least = min(known, key=lambda name: known[name]) if known else ""
        why = f", limited by {least}" if least else ""
        return f"have more warps at once: only {most:.0f} % fit{why}"
    if got is not None and most is not None and got < 0.6 * most:
        return f"even out the work: {most:.0f} % of the warps would fit and {got:.0f} % are active"
    return ""


def _advice(top: _Kernel, launches: Sequence[Launch]) -> list[str]:
    """Nsight Compute's own rules about the kernel that takes most, those that promise most first."""
    found: dict[str, tuple[float, str]] = {}
    for launch in launches:
        if launch.name != top.name:
            continue
        for one in launch.advice:
            gain = one.gain_pct if one.gain_pct is not None else -1.0
            if one.rule not in found or gain > found[one.rule][0]:
                found[one.rule] = (gain, one.text)
    ranked = sorted(found.items(), key=lambda item: (-item[1][0], item[0]))[:HINTS_MOST]
    return [f"Nsight Compute{f' (up to {gain:.3g} %)' if gain >= 0 else ''}: {text}" for _, (gain, text) in ranked]


def _hot_lines(source: Sequence[SourceLine]) -> list[str]:
    """The author's lines at which warps were seen most, of the launch that took longest."""
    total = sum(line.samples for line in source)
    return [
        f"{_percent(line.samples / total)} of the samples are at {line.file or 'the source'}:{line.number}: "
        f"{cut(line.text, LINE_SHOWN)}"
        for line in source[:LINES_MOST]
    ]


def _of_trace(kernels: Sequence[_Kernel], total: float, launches: Sequence[Launch]) -> list[str]:
    top = kernels[0]
    told = [_takes(top, total, "the kernels' time", "launch") + "."]
    span = _span(launches)
    busy = min(1.0, total / span) if span else None
    if busy is not None and span is not None:
        told.append(
            f"Between the first and the last kernel the GPU ran kernels for {_percent(busy)} of {took(span)}; "
            f"the rest, {took(max(0.0, span - total))}, is launching, copying and the host's work."
        )
    else:
        told.append("How long the GPU was idle between kernels isn't in the table.")
    scratch, registers = top.metrics().get("scratch_bytes", 0.0), top.metrics().get("vgprs")
    if busy is not None and busy < 0.7:
        told.append("Try fewer and larger kernels, a HIP graph, and no synchronisation or copies between them.")
    elif scratch > 0:
        told.append(
            f"It spills {scratch:.0f} bytes a work-item to memory: try fewer live values, smaller tiles, or "
            "__launch_bounds__."
        )
    elif registers is not None and registers > 128:
        told.append(f"It uses {registers:.0f} vector registers, which leaves room for few waves: try smaller tiles.")
    else:
        told.append("Try that kernel first: measure its memory traffic against what the problem has to move at least.")
    return told


def _span(launches: Sequence[Launch]) -> float | None:
    timed = [(one.started_ns, one.started_ns + (one.ns or 0.0)) for one in launches if one.started_ns is not None]
    return max(end for _, end in timed) - min(began for began, _ in timed) if len(timed) > 1 else None


def _of_operators(kernels: Sequence[_Kernel], total: float) -> list[str]:
    top = kernels[0]
    calls = sum(kernel.calls for kernel in kernels)
    told = [
        _takes(top, total, "the operators' own time") + ".",
        f"All {calls} operators together took {took(total)}; without the first, {took(total - top.ns)}.",
    ]
    copies = sum(kernel.ns for kernel in kernels if COPIES.search(kernel.name))
    small = sum(kernel.calls for kernel in kernels if kernel.mean_ns < SMALL_NS)
    if total and copies > 0.2 * total:
        told.append(
            f"Copies and conversions take {_percent(copies / total)}: try to keep data where it is, in its format."
        )
    elif small > MANY_CALLS and small > calls // 2:
        told.append(
            f"{small} of the operators took less than {took(SMALL_NS)}, where starting them costs most: try to fuse "
            "them (torch.compile, Triton, one kernel of your own)."
        )
    else:
        told.append("Try to replace the first operator by one that does less work, or a kernel made for these shapes.")
    return told


def _of_functions(kernels: Sequence[_Kernel], total: float) -> list[str]:
    top = kernels[0]
    told = [
        _takes(top, total, "the functions' own time") + ".",
        f"Without it {took(total - top.ns)} of {took(total)} would be left.",
    ]
    if top.name.startswith(("<built-in", "<method", "{built-in", "{method")):
        told.append("It is compiled code already: try to call it less often, or on less data.")
    else:
        told.append("It is Python: try to move its inner loops into numpy, torch or compiled code.")
    return told


def tables_of(tool: ProfileTool, files: Mapping[str, bytes]) -> tuple[list[Launch], list[Launch]]:
    """The launches in what a profiler left, and those with its advice. `files`: by their names without the prefix."""
    match tool:
        case "ncu":
            advised = tables.nsight(files.get("details.csv", b""))
            return tables.nsight(files.get("raw.csv", b"")) or advised, advised
        case "rocprof":
            found = tables.rocprof_trace(files.get("kernel_trace.csv", b""))
            return found or tables.rocprof_stats(files.get("kernel_stats.csv", b"")), []
        case "torch":
            return tables.operators(files.get("operators.json", b"")), []
        case "cprofile":
            return tables.operators(files.get("functions.json", b"")), []


# What the programs say, and what the site's admin or the author can do about it.
_SAID = {
    "ERR_NVGPUCTRPERM": "the driver lets only administrators read the GPU's counters here; the site's admin can set "
    "NVreg_RestrictProfilingToAdminUsers=0 for the module nvidia, or take `profiler` out of the site's file",
    "driver resource was unavailable": "another program (often DCGM) holds the GPU's counters; the site's admin can "
    "pause it on these nodes with `dcgmi profile --pause`",
    "No kernels were profiled": "Nsight Compute saw no kernel: none ran in the profiled calls, or it couldn't connect "
    "to the submission's process",
    "unrecognised option": "this Nsight Compute doesn't know one of the options: the image needs version 2021.3 or "
    "newer",
    "unrecognized arguments": "this rocprofv3 doesn't know one of the options: the image needs ROCm 6.2 or newer",
}


def explained(text: str) -> str:
    """What a message of theirs means and who can mend it; empty if it isn't known."""
    return next((sentence for words, sentence in _SAID.items() if words.lower() in text.lower()), "")


def trouble_in(log: str, tool: ProfileTool) -> str:
    """Why a program left no profile, from what it said."""
    if known := explained(log):
        return known
    lines = [line for line in log.splitlines() if line.startswith(("==ERROR==", "kbslurm: ", "Fatal error", "Error"))]
    if lines:
        return cut(lines[-1].removeprefix("==ERROR==").removeprefix("kbslurm: "))
    return f"{tool} left no file and said nothing: it ended before the runner, or with it"
