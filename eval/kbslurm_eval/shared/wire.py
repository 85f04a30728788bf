"""The two texts that cross the trust line: a manifest goes to the harness, a report comes back. Nothing else does.

Both are strict JSON: a missing or unknown field, a number that isn't finite, another version or a text over the
cap is refused whole. A report travels sealed: `{"report": "<its JSON text>", "mac": "<HMAC-SHA256 by the attempt's
key>"}`. This module is pure and stands alone; the service imports it, it imports nothing of the service.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import hmac
import json
import math
import re
import types
import typing
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

# 2: raw samples, whether the score is paired, commitments, the budget as spent; 3: digests of profiles;
# 4: which case wrote what of the log; 5: how much of a call could be hidden from the clock
WIRE_VERSION = 6
MANIFEST_CAP = 16_000_000
REPORT_CAP = 8_000_000
LOG_CAP = 65_536
ARTIFACTS_CAP, ARTIFACT_CAP, ARTIFACTS_TOTAL, PROFILE_TEXT_CAP = 24, 8 << 20, 16 << 20, 6_000
DIGESTS_CAP, KERNELS_CAP, METRICS_CAP, SENTENCES_CAP, SENTENCE_CAP, NAME_CAP = 12, 20, 24, 8, 400, 200
METRIC_NAME_CAP = 64
LOG_PARTS_CAP = 1_000
RIVALS_MOST = 10  # submissions that may meet in one final
# how many durations one report may contain; the budget is reduced to it before anything is measured
SAMPLES_CAP = 200_000
FINAL_SAMPLES_CAP = 900_000  # of all finalists, half of it for the phase that they are in: 5 MB at 11 characters each

Mode = Literal["test", "benchmark", "leaderboard", "profile"]
# What `flops: shapes(OPERATION)` may name; `judge/counted_work.py` counts them.
OPERATIONS = ("matmul", "elementwise", "reduction", "attention", "causal_attention", "conv", "conv_transpose")
ProfileTool = Literal["ncu", "rocprof", "torch", "cprofile"]
PhaseName = Literal["test", "benchmark", "ranked", "hidden"]
VerdictName = Literal["passed", "wrong", "error", "timeout", "memory", "violation", "infrastructure"]
Scalar = int | float | str | bool
Params = Mapping[str, "Scalar | list[Scalar]"]
T = TypeVar("T")
_ARTIFACT_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}\Z")
_SHA256 = re.compile(r"[0-9a-f]{64}\Z")

PHASES: dict[str, tuple[PhaseName, ...]] = {
    "test": ("test",),
    "benchmark": ("test", "benchmark"),
    "profile": ("test", "benchmark"),
    "leaderboard": ("test", "benchmark", "ranked", "hidden"),
}


class WireError(ValueError):
    """A text from the other side of the trust line has the wrong type."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one job may use. Seconds are wall-clock by the judge's clock."""

    test_s: float = 180.0
    benchmark_s: float = 180.0
    ranked_s: float = 180.0
    total_s: float = 900.0
    memory_bytes: int = 4 << 30
    processes: int = 256
    file_bytes: int = 256 << 20
    log_bytes: int = LOG_CAP


@dataclass(frozen=True, kw_only=True)
class Budget:
    """How much is measured: fixed before the first call, never shortened by what is seen.

    With a `precision` (a fraction of the score; 0: none is asked for) the ranked phase adds launches until the score's
    interval is that narrow, `most_launches` in all.
    """

    launches: int = 5
    calls: int = 30
    max_calls: int = 300
    target_s: float = 0.5
    precision: float = 0.0
    most_launches: int = 0


@dataclass(frozen=True, kw_only=True)
class Build:
    """What is compiled before the first runner starts, and within what bounds.

    Of a Python submission: whatever it compiles when it is imported and called on dummy inputs; `auto` when its text
    looks like that. A submission in C++ or CUDA is always compiled: `sources` are files of the problem that go into the
    same library. `adapter` says how a reference in C++ is called; it is empty where the reference is Python.
    """

    when: Literal["auto", "always", "never"] = "auto"
    sources: list[str] = field(default_factory=list)
    include_dirs: list[str] = field(default_factory=list)
    defines: list[str] = field(default_factory=list)
    flags: list[str] = field(default_factory=list)
    adapter: Mapping[str, Any] = field(default_factory=dict)
    limit_s: float = 120.0
    output_bytes: int = 64 << 20


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """Everything that the harness needs to judge one attempt. It holds secrets: a file that only the judge can read."""

    version: int
    token: str
    attempt: int
    nonce: str
    mode: Mode
    problem: str
    problem_digest: str
    lang: Literal["py", "cu"]
    gpu: str
    style: Literal["modern", "one-file"] = "modern"
    files: Mapping[str, str]
    runner_files: list[str]
    reference: str = "reference.py"
    entry: str = "submission.py"
    source: str
    tests: list[Params]
    benchmarks: list[Params]
    hidden: list[Params]
    seed: int | None = None
    profile_benchmark: int | None = None  # the only one to profile; None: the last ones
    secret_seed: str
    ranking_by: Literal["last", "mean", "geom"] = "last"
    limits: Limits = field(default_factory=Limits)
    budget: Budget = field(default_factory=Budget)
    build: Build = field(default_factory=Build)
    config: Mapping[str, Any] = field(default_factory=dict)

    @property
    def needs_gpu(self) -> bool:
        """Whether its board is one of a GPU type, and not of processors."""
        return self.gpu.lower() != "cpu"


@dataclass(frozen=True, kw_only=True)
class TestResult:
    """One checked case. `message` never carries anything of a hidden case."""

    phase: PhaseName
    index: int
    spec: str
    status: Literal["pass", "fail", "error", "timeout", "skipped"]
    message: str = ""


@dataclass(frozen=True, kw_only=True)
class BenchmarkResult:
    """One timed case: `launch_medians_ns` are net of the null call, one per launch; the rest is derived from them."""

    phase: PhaseName
    index: int
    spec: str
    status: Literal["pass", "fail", "error", "timeout", "skipped"]
    message: str = ""
    calls: int = 0
    launch_medians_ns: list[float] = field(default_factory=list)
    median_ns: float | None = None
    mean_ns: float | None = None
    std_ns: float | None = None
    best_ns: float | None = None
    worst_ns: float | None = None
    null_ns: float | None = None
    low_ns: float | None = None
    high_ns: float | None = None
    baseline_ns: float | None = None
    flags: list[str] = field(default_factory=list)
    p05_ns: float | None = None
    p95_ns: float | None = None
    sem_ns: float | None = None
    lag1: float | None = None
    outliers: float | None = None
    null_sd_ns: float | None = None
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None


@dataclass(frozen=True, kw_only=True)
class CallTimes:
    """Durations as the judge's clock gave them: calls, and null calls before and after the code was there."""

    calls_ns: list[int]
    trusted_null_ns: list[int]
    null_ns: list[int] = field(default_factory=list)
    bare_null_ns: list[int] = field(default_factory=list)
    leeway_ns: list[int] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class LaunchSamples:
    """All that was measured of one case in one launch, the baseline beside it included where there is one, and some of
    its calls before the submission was there."""

    phase: PhaseName
    index: int
    launch: int
    rival: int = 0
    own: CallTimes
    baseline: CallTimes | None = None
    alone_ns: list[int] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class PhaseResult:
    """One phase of the mode, in order: the API shows each as one run."""

    name: PhaseName
    passed: bool
    started_at_ns: int
    ended_at_ns: int


@dataclass(frozen=True, kw_only=True)
class LogPart:
    """So many characters of the log, from where the part before it ends, were written while this public case ran.

    `index` is None for what was written outside of cases: while building and loading, and by the judge itself.
    """

    phase: PhaseName
    index: int | None
    size: int


@dataclass(frozen=True, kw_only=True)
class Isolation:
    """How well the submission was isolated: as achieved, not as requested."""

    level: int
    means: str
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Artifact:
    """A file that a profile left beside the report: its name is the judge's, its bytes are the submission's."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class ProfiledKernel:
    """One kernel (operator, function) of a profile, all its launches together. `share` is of the profile's time."""

    name: str
    calls: int
    total_ns: float
    share: float
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ProfileDigest:
    """One benchmark under one profiler, in short: at most three sentences on what limits it, and what may be tried.

    It was made by the judge out of tables that came from where the submission ran: names and numbers are its word.
    `trouble` says why there is no profile; the rest is empty then.
    """

    benchmark: int
    spec: str
    tool: ProfileTool
    trouble: str = ""
    calls: int = 0
    total_ns: float = 0.0
    limits: list[str] = field(default_factory=list)
    hints: list[str] = field(default_factory=list)
    kernels: list[ProfiledKernel] = field(default_factory=list)
    kernels_left_out: int = 0


@dataclass(frozen=True, kw_only=True)
class Report:
    """The outcome of one attempt. Times are nanoseconds since the epoch by the node's clock, or durations."""

    version: int
    token: str
    attempt: int
    nonce: str
    mode: Mode
    problem_digest: str
    harness_digest: str
    verdict: VerdictName
    reason: str
    score_s: float | None
    interval_s: list[float] | None
    tests: list[TestResult]
    benchmarks: list[BenchmarkResult]
    phases: list[PhaseResult]
    isolation: Isolation
    started_at_ns: int
    ended_at_ns: int
    log: str = ""
    secret_log: str = ""
    host: Mapping[str, Any] = field(default_factory=dict)
    flags: list[str] = field(default_factory=list)
    samples: list[LaunchSamples] = field(default_factory=list)
    paired: bool = False
    submission_sha256: str = ""
    seed_commitment: str = ""
    budget: Mapping[str, Any] = field(default_factory=dict)
    profile: str = ""
    artifacts: list[Artifact] = field(default_factory=list)
    digests: list[ProfileDigest] = field(default_factory=list)
    log_parts: list[LogPart] = field(default_factory=list)


def commitment(secret_seed: str) -> str:
    """What may be told of a secret seed at once: whoever is told the seed later can see that it was this one."""
    return hashlib.sha256(secret_seed.encode()).hexdigest()


def dumps(value: Manifest | Report) -> str:
    """A value's canonical text: sorted, ASCII, no NaN."""
    try:
        return json.dumps(dataclasses.asdict(value), sort_keys=True, separators=(",", ":"), allow_nan=False)
    except ValueError as error:
        raise WireError(f"a number that isn't finite can't be sent: {error}") from None


def read_manifest(text: str | bytes) -> Manifest:
    """The manifest in this text, or WireError."""
    return _built(Manifest, _of_this_version(_parsed(text, MANIFEST_CAP), "manifest", "harness"), "manifest")


def read_report(text: str | bytes) -> Report:
    """The report in this text (unsealed), or WireError."""
    found = _built(Report, _of_this_version(_parsed(text, REPORT_CAP), "report", "service"), "report")
    _check_sense(found)
    return found


def seal(report: Report, key: bytes) -> str:
    """The report's text with proof that the holder of the attempt's key wrote it."""
    text = dumps(report)
    return json.dumps({"report": text, "mac": _mac(text, key)})


def unseal(text: str | bytes, key: bytes) -> Report:
    """The report, if it is sealed with this key; WireError otherwise."""
    outer = _parsed(text, 2 * REPORT_CAP)
    if not isinstance(outer, dict) or set(outer) != {"report", "mac"}:
        raise WireError("a sealed report has exactly the fields report and mac")
    inner, mac = outer["report"], outer["mac"]
    if not isinstance(inner, str) or not isinstance(mac, str):
        raise WireError("a sealed report's fields must be strings")
    if not hmac.compare_digest(mac.encode(), _mac(inner, key).encode()):
        raise WireError("the report isn't sealed with this attempt's key")
    return read_report(inner)


def _mac(text: str, key: bytes) -> str:
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def _parsed(text: str | bytes, cap: int) -> Any:
    if len(text) > cap:
        raise WireError(f"{len(text)} bytes of text are over the limit of {cap}")
    try:
        decoded = text.decode("utf-8") if isinstance(text, bytes) else text
        return json.loads(decoded, parse_constant=_refused_constant, object_pairs_hook=_without_twins)
    except (ValueError, RecursionError) as error:
        raise WireError(f"not valid JSON: {error}") from None


def _refused_constant(name: str) -> Any:
    raise ValueError(f"{name} isn't a valid number")


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a field appears twice")
    return found


def _of_this_version(raw: Any, what: str, reader: str) -> Any:
    """The same; WireError if it says that it is of another version, which has other fields."""
    version = raw.get("version") if isinstance(raw, dict) else WIRE_VERSION
    if type(version) is int and version != WIRE_VERSION:
        raise WireError(f"{what} of version {version}; this {reader} speaks {WIRE_VERSION}: both need the same release")
    return raw


def _built(kind: type[T], raw: Any, where: str) -> T:
    if not isinstance(raw, dict):
        raise WireError(f"{where}: an object was expected")
    fields = _field_types(typing.cast("Hashable", kind))
    if unknown := sorted(raw.keys() - fields.keys()):
        raise WireError(f"{where}: unknown field {unknown[0]}")
    if missing := sorted(fields.keys() - raw.keys()):
        raise WireError(f"{where}: missing field {missing[0]}")
    return kind(**{name: _value(hint, raw[name], f"{where}.{name}") for name, hint in fields.items()})


@functools.cache
def _field_types(kind: Hashable) -> dict[str, Any]:
    """Each field's type, which is read from its text: once, since a report has hundreds of samples."""
    hints = typing.get_type_hints(kind)
    return {one.name: hints[one.name] for one in dataclasses.fields(kind)}  # type: ignore[arg-type]


def _value(hint: Any, raw: Any, where: str) -> Any:
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return raw
    if dataclasses.is_dataclass(hint):
        return _built(typing.cast("type[Any]", hint), raw, where)
    if origin is Literal:
        if raw in inner and isinstance(raw, str):
            return raw
        raise WireError(f"{where}: {raw!r} isn't one of {', '.join(map(str, inner))}")
    if origin is list:
        if isinstance(raw, list):
            if inner[0] is int and all(type(item) is int for item in raw):
                return raw  # a report has a hundred thousand samples
            return [_value(inner[0], item, f"{where}[{n}]") for n, item in enumerate(raw)]
        raise WireError(f"{where}: a list was expected")
    if origin is not None and isinstance(origin, type) and issubclass(origin, Mapping):
        if isinstance(raw, dict):
            return {str(k): _value(inner[1], v, f"{where}.{k}") for k, v in raw.items()}
        raise WireError(f"{where}: an object was expected")
    if origin is types.UnionType or origin is typing.Union:
        return _one_of(inner, raw, where)
    return _plain(hint, raw, where)


def _one_of(options: tuple[Any, ...], raw: Any, where: str) -> Any:
    if raw is None and type(None) in options:
        return None
    for option in options:
        if option is type(None):
            continue
        try:
            return _value(option, raw, where)
        except WireError:
            continue
    raise WireError(f"{where}: {type(raw).__name__} has the wrong type")


def _plain(hint: Any, raw: Any, where: str) -> Any:
    if hint is float and isinstance(raw, int | float) and not isinstance(raw, bool):
        if not math.isfinite(raw):
            raise WireError(f"{where}: not finite")
        return float(raw)
    if isinstance(hint, typing.ForwardRef):
        hint = {"int": int, "float": float, "str": str, "bool": bool}.get(hint.__forward_arg__, hint)
    if isinstance(hint, type) and type(raw) is hint:
        return raw
    raise WireError(f"{where}: {type(raw).__name__} isn't {getattr(hint, '__name__', hint)}")


def _check_sense(report: Report) -> None:
    """Refuse what no honest harness says: a score without a pass, a negative time, an interval without its score."""
    if (report.score_s is None) != (report.interval_s is None):
        raise WireError("a score needs an interval, and an interval a score")
    if report.score_s is not None:
        if report.verdict != "passed" or report.mode not in ("leaderboard", "benchmark", "profile"):
            raise WireError("only a timed run that passed has a score")
        bounds = report.interval_s or []
        if len(bounds) != 2 or not report.score_s > 0 or not bounds[0] <= report.score_s <= bounds[1]:
            raise WireError("the score must be positive and lie in its interval")
    if report.verdict == "passed":
        want = PHASES[report.mode]
        if tuple(p.name for p in report.phases) != want or not all(p.passed for p in report.phases):
            raise WireError(f"a passed {report.mode} run passes the phases {', '.join(want)}")
    if report.ended_at_ns < report.started_at_ns:
        raise WireError("it ended before it started")
    if (report.artifacts or report.profile or report.digests) and report.mode != "profile":
        raise WireError("only a profile leaves artifacts")
    if len(report.artifacts) > ARTIFACTS_CAP or sum(one.size for one in report.artifacts) > ARTIFACTS_TOTAL:
        raise WireError("more artifacts than a profile may leave")
    names = [one.name for one in report.artifacts]
    if not all(map(_ARTIFACT_NAME.match, names)) or len(set(names)) < len(names):
        raise WireError("an artifact's name isn't valid")
    if any(not 0 < one.size <= ARTIFACT_CAP or not _SHA256.match(one.sha256) for one in report.artifacts):
        raise WireError("an artifact's size or digest isn't valid")
    if len(report.profile) > PROFILE_TEXT_CAP:
        raise WireError("a profile's summary is over its limit")
    if len(report.digests) > DIGESTS_CAP or any(map(_is_too_long, report.digests)):
        raise WireError("a profile's digest is over its limits")
    if len(report.log) > 2 * LOG_CAP or len(report.secret_log) > 2 * LOG_CAP:
        raise WireError("a log is over its limit")
    if report.log_parts and (
        len(report.log_parts) > LOG_PARTS_CAP
        or any(one.phase not in ("test", "benchmark") or one.size < 1 for one in report.log_parts)
        or any(one.index is not None and one.index < 0 for one in report.log_parts)
        or sum(one.size for one in report.log_parts) != len(report.log)
    ):
        raise WireError("the log's parts aren't those of the log")


def _is_too_long(digest: ProfileDigest) -> bool:
    sentences = [*digest.limits, *digest.hints, digest.trouble]
    return (
        len(digest.limits) > 3
        or len(sentences) > SENTENCES_CAP + 4
        or any(len(text) > SENTENCE_CAP for text in sentences)
        or len(digest.kernels) > KERNELS_CAP
        or any(len(one.name) > NAME_CAP or len(one.metrics) > METRICS_CAP for one in digest.kernels)
        or any(len(name) > METRIC_NAME_CAP for one in digest.kernels for name in one.metrics)
    )


def counted_operation(formula: object) -> str | None:
    """The operation of `shapes(OPERATION)`; None for any other formula."""
    if not isinstance(formula, str) or not formula.startswith("shapes(") or not formula.endswith(")"):
        return None
    name = formula[len("shapes(") : -1].strip()
    return name if name in OPERATIONS else None
