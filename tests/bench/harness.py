"""What the harness's own way of measuring costs, how far its figures are to be trusted, and what a start takes.

Run by `make bench-harness` alone: it takes minutes, most of them for 30 whole runs. Every comparison is made in turns,
so that what else the machine does hits both sides. KernelBot's own eval is among them where a checkout is given, as for
`make bench-peer`.
"""

from __future__ import annotations

import contextlib
import copy
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from kbslurm.domain.manifest import manifest_for
from kbslurm.problems import loading
from kbslurm_eval.cage import kernel
from kbslurm_eval.cage.local_runners import LocalRunners
from kbslurm_eval.judge.call_plan import WARM_UPS
from kbslurm_eval.judge.heartbeat import Heartbeat
from kbslurm_eval.judge.launch import Allowance, Launch
from kbslurm_eval.judge.reference import Case, Prepared, Reference
from kbslurm_eval.run import keep_memory, reachable
from kbslurm_eval.shared import timing, values, wire
from kbslurm_eval.shared.runner_link import DONE, JudgeEnd, Kind
from tests.adversarial import trial
from tests.bench import Row, peer, percentile, scaled

APART = True
EXAMPLES = Path(__file__).parents[2] / "examples"
NULLS, CALLS, STARTS, REPEATS, COMPARED, SIMULATED = 400, 200, 12, 30, 20, 2_000
PLAIN_AT_LEAST, PLAIN_AT_MOST, PLAIN_ERROR = 3, 100, 0.001
FEW, WORDS = 2_048, 32_768
SIZES = {"1 KB": 85, "1 MB": 87_381, "64 MB": 5_592_405, "1 GB": 89_478_485}  # of three arrays of so many words each
LAUNCHES, RUNS_OF_SIZE = wire.Budget().launches, 1
SOURCE = """
import numpy as np


def custom_kernel(data):
    a, b, out = data
    for _ in range({times}):
        np.multiply(a, b, out=out)
        np.add(out, np.float32(1), out=out)
    return out
"""
PROBLEM = """
import numpy as np


def generate_input(n, seed):
    r = np.random.default_rng(seed)
    a, b = (r.random(n, dtype=np.float32) for _ in range(2))
    return a, b, np.zeros(n, np.float32)


def ref_kernel(data):
    a, b, out = data
    np.multiply(a, b, out=out)
    np.add(out, np.float32(1), out=out)
    return out


def check_implementation(data, output):
    return bool(np.allclose(output, data[0] * data[1] + 1)), ""
"""
OWN_CLOCK = """
import time

import numpy as np

took = []


def custom_kernel(data, out=None):
    if len(took) == 10:
        print(*took)
        took.clear()
    began = time.perf_counter_ns()
    a, b, _ = data
    for _ in range({times}):
        np.multiply(a, b, out=out)
        np.add(out, np.float32(1), out=out)
    took.append(time.perf_counter_ns() - began)
    return out
"""
SHORT, LONG, LONGER = (SOURCE.format(times=n) for n in (1, 30, 300))


def run() -> list[Row]:
    rows = peer.run() if (why := peer.why_not()) is None else [_not_beside_the_peer(why)]
    level, _ = reachable()
    _as_a_judge()
    reference = Reference(_manifest(SHORT))
    with _ground(level) as ground:
        rows += _null_calls(ground, reference)
    rows += _biases(level)
    rows += [_cost(level, name, source) for name, source in (("long", LONG), ("longer", LONGER))]
    rows += [row for name, words in SIZES.items() for row in _of_size(level, name, words)]
    rows += [_ranked_cost(level, *at) for at in (("transpose", "columns.py"), ("rowsoftmax", "by_row.py"))]
    rows += _starts(level)
    rows += _repeated(level)
    rows += _simulated()
    return rows


def _not_beside_the_peer(why: str) -> Row:
    """Two aims are missing from the table then."""
    return Row(
        name="a whole ranked run beside KernelBot's own eval", value=None, unit="", against=f"not measured: {why}"
    )


def _as_a_judge() -> None:
    """This process keeps its memory and has fine timers, as every judge; with those that it was started with, a
    judge that sleeps would see an answer 50 µs late."""
    keep_memory()
    kernel.prctl(kernel.PR_SET_TIMERSLACK, 1)


def _manifest(source: str, **changed: Any) -> wire.Manifest:
    told = {
        "version": wire.WIRE_VERSION,
        "token": "bench",
        "attempt": 1,
        "nonce": "bench",
        "mode": "benchmark",
        "problem": "bench",
        "problem_digest": "d" * 64,
        "lang": "py",
        "gpu": "cpu",
        "files": {"reference.py": PROBLEM},
        "runner_files": [],
        "source": source,
        "tests": [{"n": WORDS, "seed": 1}],
        "benchmarks": [{"n": WORDS, "seed": 2}],
        "hidden": [],
        "secret_seed": "bench",
        "ranking_by": "geom",
        "limits": wire.Limits(total_s=900, memory_bytes=1 << 30),
        "budget": wire.Budget(launches=5, calls=12),
    }
    return wire.Manifest(**{**told, **changed})


@contextlib.contextmanager
def _ground(level: int) -> Iterator[LocalRunners]:
    ground = LocalRunners(wire.Limits(), level=level)
    try:
        yield ground
    finally:
        ground.close()


@contextlib.contextmanager
def _launched(ground: LocalRunners, source: str | None = None) -> Iterator[Launch]:
    launch = Launch(ground, Allowance(left_s=900, whole_s=900), Heartbeat(None))
    try:
        if source is not None:
            launch.load(_manifest(source))
        yield launch
    finally:
        launch.close()


def _prepared(reference: Reference, n: int, seed: int) -> Prepared:
    return reference.prepare(Case(index=n, params={"n": n, "seed": seed}), seed, exact=True)


# ------------------------------------------------------------------------------------------------------- single calls


def _null_calls(ground: LocalRunners, reference: Reference) -> list[Row]:
    """A call's whole way without the call, as it is taken off each measured one."""
    rows = []
    for name, words in (
        ("24 KiB, written to a runner that is awake", FEW),
        ("384 KiB, written while it stands", WORDS),
    ):
        prepared = _prepared(reference, words, 1)
        with _launched(ground) as launch:
            launch.settle(prepared)
            took = [launch.null(prepared) / 1000 for _ in range(scaled(NULLS, least=40))][10:]
        rows += [
            Row(name=f"null call p{percent}, {name}", value=percentile(took, percent), unit="µs")
            for percent in (50, 95)
        ]
    return rows


def _biases(level: int) -> list[Row]:
    return [
        _bias(level, f"{name}, {size}", words, times)
        for size, words in (("24 KiB", FEW), ("384 KiB", WORDS))
        for name, times in (("short", 1), ("long", 30), ("longer", 300))
    ]


def _bias(level: int, name: str, words: int, times: int) -> Row:
    """A run's figure against the submission's own clock, in the same calls: what is on top of it is the harness's.

    It fills the answer's place itself, so that nothing is copied after its clock has stopped, and tells its times in
    every tenth call.
    """
    budget = wire.Budget(launches=3, calls=scaled(CALLS, least=20), max_calls=CALLS, target_s=60.0)
    run = _judged(level, source=OWN_CLOCK.format(times=times), benchmarks=[{"n": words, "seed": 2}], budget=budget)
    inside = statistics.median(int(word) for word in run.log.split() if word.isdigit()) / 1000
    through = (run.benchmarks[-1].median_ns or 0.0) / 1000
    allowed = max(0.5, 0.03 * inside)
    return Row(
        name=f"bias of an honest call: {name} (× what is allowed: max(0.5 µs, 3 %))",
        value=through - inside,
        unit="µs",
        against=f"{inside:.1f} µs by its own clock, {through:.1f} µs by the harness's",
        ratio=abs(through - inside) / allowed,
        at_most=1.0,
    )


def _function(source: str) -> Callable[[Any], Any]:
    space: dict[str, Any] = {}
    exec(source, space)
    return space["custom_kernel"]  # type: ignore[no-any-return]


def _cost(level: int, name: str, source: str) -> Row:
    """All that a timed call takes, input, call and check, against a loop that does these three in one process."""
    told = _manifest(source)
    return _beside_naive(f"a {name} call, measured and checked, once runners have started", told, _run_of(level, told))


def _of_size(level: int, name: str, words: int) -> list[Row]:
    """A whole run with inputs of this size: what its ranked phase took without its starts, against what of that went
    into kernels and the problem's own code, all by that run's own account."""
    runs = [_judged(level, **_sized(words)) for _ in range(scaled(RUNS_OF_SIZE, least=1))]
    spent = [run.host["spent"]["ranked"] for run in runs]
    kernels = [_in_kernels(run) for run in runs]
    needed = [one + each["generation_s"] + each["checks_s"] for one, each in zip(kernels, spent, strict=True)]
    took = [each["whole_s"] - each["starts_s"] for each in spent]
    last, (calls,) = spent[-1], runs[-1].budget["ranked"]["calls"]
    parts = f"kernels {kernels[-1]:.3g}, generation {last['generation_s']:.3g}, checks {last['checks_s']:.3g}"
    seconds = statistics.median((run.ended_at_ns - run.started_at_ns) / 1e9 for run in runs)
    return [
        Row(
            name=f"the ranked phase with {name} of inputs, without starts: {LAUNCHES} launches of {calls} calls",
            value=statistics.median(took),
            unit="s",
            against=f"{statistics.median(needed):.3g} s that it needs ({parts})",
            ratio=statistics.median(one / other for one, other in zip(took, needed, strict=True)),
            at_most=2.0,
        ),
        Row(name=f"its starts with {name} of inputs", value=statistics.median(e["starts_s"] for e in spent), unit="s"),
        Row(name=f"the whole run with {name} of inputs, all four phases", value=seconds, unit="s"),
    ]


def _in_kernels(run: wire.Report) -> float:
    """All calls of the ranked phase at the mean of those that count, what a null call takes not among it."""
    (ranked,) = (one for one in run.benchmarks if one.phase == "ranked")
    (calls,) = run.budget["ranked"]["calls"]
    return float((ranked.mean_ns or 0.0) / 1e9 * LAUNCHES * (calls + WARM_UPS))


def _sized(words: int) -> dict[str, Any]:
    """A competition's run of the problem above: one benchmark of so many words, within the limits that a problem has
    if it says nothing else."""
    return {
        "mode": "leaderboard",
        "source": SHORT,
        "tests": [{"n": WORDS, "seed": 1}],
        "benchmarks": [{"n": words, "seed": 2}],
        "limits": wire.Limits(),
        "budget": wire.Budget(),
    }


def _ranked_cost(level: int, name: str, file: str) -> Row:
    """The calls of a ranked run of one of the examples, at the sizes that it declares, against a plain loop."""
    problem = loading.load(EXAMPLES / name)
    source = (EXAMPLES / name / "submissions/accepted" / file).read_text(encoding="utf-8")
    told = manifest_for(
        problem, token="bench", attempt=1, nonce="bench", mode="leaderboard", gpu="cpu", source=source, secret_seed="s"
    )
    return _beside_naive(
        f"a call of a ranked run of examples/{name}, once runners have started", told, _run_of(level, told)
    )


def _beside_naive(name: str, told: wire.Manifest, run: wire.Report) -> Row:
    """What a run's last timed phase took without its starts, by its own account, for each of its calls."""
    phase: wire.PhaseName = "ranked" if told.mode == "leaderboard" else "benchmark"
    spent, budget = run.host["spent"][phase], run.budget[phase]
    made = budget["launches"] * sum(calls + WARM_UPS for calls in budget["calls"])
    ours, naive = (spent["whole_s"] - spent["starts_s"]) / made, _naive(told)
    return Row(
        name=name,
        value=ours * 1000,
        unit="ms",
        against=f"{naive * 1000:.2f} ms in a naive loop",
        ratio=ours / naive,
        at_most=2.0,
    )


def _naive(told: wire.Manifest) -> float:
    """How long making an input, calling and checking takes in this process, in the mean of all benchmarks."""
    own = {Path(file).stem for file in told.files}
    kept = {module: sys.modules.pop(module) for module in own & set(sys.modules)}  # of another row's problem
    try:
        reference, call = Reference(told), _function(told.source)
        took = []
        for n in range(scaled(CALLS, least=5)):
            for index, case in enumerate(told.benchmarks):
                began = time.perf_counter()
                data = reference.input(Case(index=index, params=dict(case)), n)
                right = reference._check(copy.deepcopy(data), call(data))
                took.append(time.perf_counter() - began)
                assert right
        return statistics.fmean(took)
    finally:
        for module in own & set(sys.modules):
            del sys.modules[module]
        sys.modules.update(kept)


# -------------------------------------------------------------------------------------------------------------- starts


FORKING = """
import os, time
import numpy
from kbslurm_eval.runner import serve
took = []
for _ in range(20):
    began = time.perf_counter()
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    took.append(time.perf_counter() - began)
print(sorted(took)[10])
"""


def _starts(level: int) -> list[Row]:
    """From nothing to a runner that has answered with numpy in it, and what of that a fork of one that had it saves.

    With a zygote, interpreter and imports give way to a fork; namespaces, limits and filter stay. The second figure is
    reckoned from these parts, measured in turns.
    """
    import numpy as np

    fresh, program = [], []
    payload = values.pack(np.zeros(64, np.float32))
    path = f"import sys; sys.path.insert(0, {str(trial.EVAL)!r})\n"
    argv = [sys.executable, "-I", "-B", "-c", f"{path}import numpy\nfrom kbslurm_eval.runner import serve"]
    with _ground(level) as ground:
        for _ in range(scaled(STARTS, least=3)):
            fresh.append(_started(ground, payload))
            began = time.perf_counter()
            subprocess.run(argv, check=True, timeout=60)
            program.append(time.perf_counter() - began)
    forking = [sys.executable, "-I", "-c", path + FORKING]
    fork_s = float(subprocess.run(forking, capture_output=True, text=True, check=True, timeout=60).stdout)
    plain = statistics.median(fresh)
    # on a busy machine the parts can seem to take longer than the whole: a fork is the least there is
    saved = min(max(0.0, statistics.median(program) - fork_s), plain - fork_s)
    return [
        Row(name="runner start with numpy, a fresh program", value=plain * 1000, unit="ms"),
        Row(
            name="the same from a zygote, reckoned",
            value=(plain - saved) * 1000,
            unit="ms",
            against=f"{plain * 1000:.0f} ms; a fork takes {fork_s * 1000:.1f} ms",
            ratio=(plain - saved) / plain,
        ),
    ]


def _started(ground: LocalRunners, payload: bytes) -> float:
    folder = ground.prepare()
    end = JudgeEnd(folder)
    began = time.perf_counter()
    runner = ground.start(folder)
    try:
        _rung(end, Kind.HELLO, values.pack({**ground.hello(), "native": False}))
        _rung(end, Kind.NULL, payload)
        return time.perf_counter() - began
    finally:
        runner.kill()
        end.close()


def _rung(end: JudgeEnd, kind: Kind, payload: bytes) -> None:
    token = end.token().to_bytes(8, "little")
    end.words(kind, size=len(payload))
    end.put(payload)
    end.go(token)
    deadline = time.monotonic() + 60
    while os.pread(end.bell, 8, DONE) != token:
        if time.monotonic() > deadline:
            raise TimeoutError("the runner doesn't answer")
        os.sched_yield()


# ---------------------------------------------------------------------------------------------------------- whole runs


def _repeated(level: int) -> list[Row]:
    """Whole runs of one submission, and beside each a plain loop that stops once its error seems small."""
    scores, intervals, plain = [], [], []
    for _ in range(scaled(REPEATS, least=3)):
        timed = _whole_run(level)
        assert timed.ratio is not None
        assert timed.ratio_low is not None
        assert timed.ratio_high is not None
        scores.append(timed.ratio)
        intervals.append((timed.ratio_low, timed.ratio_high))
        plain.append(_plain_rule())
    centre = math.exp(statistics.fmean(map(math.log, scores)))
    shares = [sum(low <= truth <= high for low, high in intervals) / len(intervals) for truth in (1.0, centre)]
    ours, theirs = _spread(scores[:COMPARED]), _spread(plain[:COMPARED])
    return [
        Row(
            name=f"coefficient of variation of a score, {len(scores[:COMPARED])} runs",
            value=100 * ours,
            unit="%",
            against=f"{100 * theirs:.2f} % where a loop stops once its error is below 0.1 %",
            ratio=ours / theirs,
            at_most=0.5,
        ),
        Row(
            name=f"95 % intervals that hold the truth, which is 1 beside its own twin, {len(scores)} runs",
            value=100 * shares[0],
            unit="%",
            against=f"the mean of all is {centre:.4f}",
            at_least=80.0,
        ),
        Row(
            name=f"95 % intervals that hold the mean of all, {len(scores)} runs",
            value=100 * shares[1],
            unit="%",
            against=f"median width {100 * statistics.median(h / low - 1 for low, h in intervals):.1f} %",
        ),
    ]


def _whole_run(level: int) -> wire.BenchmarkResult:
    return _judged(level, source=LONG, config={"baseline": LONG}).benchmarks[-1]


def _judged(level: int, **changed: Any) -> wire.Report:
    """A run as the service would have it made: the harness in a process of its own, and its sealed report."""
    return _run_of(level, _manifest(**changed))


def _run_of(level: int, told: wire.Manifest) -> wire.Report:
    with tempfile.TemporaryDirectory(prefix="kbbench-") as place:
        folder = Path(place)
        (folder / "manifest.json").write_text(wire.dumps(told))
        (folder / "key").write_bytes(b"k" * 32)
        argv = [sys.executable, "-I", str(trial.EVAL), str(folder / "manifest.json"), "--key", str(folder / "key")]
        argv += ["--out", str(folder / "out")]
        env = {"PATH": "/usr/bin:/bin", "KBSLURM_EVAL_LEVEL": str(level)}
        subprocess.run(argv, check=True, timeout=1000, env=env)
        report = wire.unseal((folder / "out" / "report.json").read_bytes(), b"k" * 32)
    assert report.verdict == "passed", report.reason
    return report


PLAIN = """
import statistics, sys, time
import numpy as np
space = {}
exec(sys.argv[1], space)
exec(sys.argv[2], space)
call, made, took = space["custom_kernel"], space["generate_input"], []
call(made(int(sys.argv[3]), 0))
while len(took) < int(sys.argv[5]):
    data = made(int(sys.argv[3]), len(took))
    began = time.perf_counter()
    call(data)
    took.append(time.perf_counter() - began)
    if len(took) >= int(sys.argv[4]):
        mean = statistics.fmean(took)
        if statistics.stdev(took) / len(took) ** 0.5 < float(sys.argv[6]) * mean:
            break
print(statistics.fmean(took))
"""


def _plain_rule() -> float:
    """One process that calls until the standard error of its mean is small, at least 3 and at most 100 times."""
    argv = [sys.executable, "-I", "-c", PLAIN, LONG, PROBLEM, str(WORDS)]
    argv += [str(PLAIN_AT_LEAST), str(PLAIN_AT_MOST), str(PLAIN_ERROR)]
    return float(subprocess.run(argv, capture_output=True, text=True, check=True, timeout=300).stdout)


def _spread(found: Sequence[float]) -> float:
    return statistics.stdev(found) / statistics.fmean(found)


def _simulated() -> list[Row]:
    """Launches that differ by 1 %, calls within one by 3 % with a few slow ones, null calls by a twentieth."""
    dice = random.Random(20_260_101)
    truth, null = 100_000.0, 10_000.0
    held = 0
    for _ in range(SIMULATED):
        nets = []
        for _ in range(5):
            # one in fifty calls is half as slow again: what a median leaves out of the launch's figure
            base = truth * math.exp(dice.gauss(0, 0.01))
            calls = [
                null + base * math.exp(dice.gauss(0, 0.03)) * (1.5 if dice.random() < 0.02 else 1) for _ in range(30)
            ]
            nulls = [int(null * math.exp(abs(dice.gauss(0, 0.05)))) for _ in range(16)]
            nets.append(timing.net(timing.LaunchTimes(calls_ns=[int(c) for c in calls], trusted_null_ns=nulls)))
        found = timing.interval([n.median_ns for n in nets])
        held += found.low <= truth <= found.high
    return [
        Row(name=f"95 % intervals that hold the truth, {SIMULATED} simulated", value=100 * held / SIMULATED, unit="%",
            at_least=93.0),
        Row(name="the same, as an upper bound", value=100 * held / SIMULATED, unit="%", at_most=97.0),
    ]  # fmt: skip
