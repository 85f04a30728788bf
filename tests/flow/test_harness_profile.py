"""Profile mode: files and a text from where the submission ran, which change nothing, whatever they are."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import sys
from pathlib import Path

import pytest

from kbslurm.domain.profiler import around
from kbslurm_eval.judge import profiling
from kbslurm_eval.shared import wire
from tests.flow import harness_ground as ground
from tests.services import GXX, USER_NAMESPACES, needs
from tests.standin import profilers

RIGHT = "def custom_kernel(data):\n    return sorted(data)\n"
# All of these pass, and misbehave where they are profiled. From Python 3.12 on cProfile is a tool of sys.monitoring,
# and sys.getprofile() knows nothing of it.
ENDS = """
import os, sys

def profiled():
    tools = getattr(sys, "monitoring", None)
    return sys.getprofile() is not None or tools is not None and tools.get_tool(tools.PROFILER_ID) is not None

def custom_kernel(data):
    if profiled():
        os._exit(3)
    return sorted(data)
"""
HANGS = ENDS.replace("os._exit(3)", "while True: pass")
FORGES = """
import struct
from kbslurm_eval.runner import profiling

def traced(call, told, fresh, out):
    (_, first, cap), _, (_, second, _), (_, third, room) = told["slots"]
    struct.pack_into("<Q", out, first, 1 << 63)
    struct.pack_into("<Q", out, second, 6)
    out[second + 8 : second + 14] = b"<html>"
    struct.pack_into("<Q", out, third, room)
    return "\\x1b[2J" + "x" * 100_000

profiling.traced = traced

def custom_kernel(data):
    return sorted(data)
"""


def profiled(tmp_path: Path, source: str, **changed: object) -> tuple[wire.Report, Path]:
    told = ground.manifest(source, mode="profile", **{"benchmarks": [{"n": 300, "seed": 7}], **changed})
    outcome = ground.judged(tmp_path, told)
    return outcome.told, outcome.out / "artifacts"


def refuses_what_no_judge_leaves(report: wire.Report) -> None:
    whole = json.loads(wire.dumps(report))
    assert wire.read_report(json.dumps(whole)).artifacts == report.artifacts
    good = whole["artifacts"][0]
    for bad in (
        [{**good, "name": "../report.json"}], [{**good, "name": ".hidden"}], [good, good], [{**good, "size": 0}],
        [{**good, "size": wire.ARTIFACT_CAP + 1}], [{**good, "sha256": "?"}],
        [{**good, "name": f"n{n}"} for n in range(wire.ARTIFACTS_CAP + 1)],
    ):  # fmt: skip
        with pytest.raises(wire.WireError, match="artifact"):
            wire.read_report(json.dumps({**whole, "artifacts": bad}))
    with pytest.raises(wire.WireError, match="only a profile"):
        wire.read_report(json.dumps({**whole, "mode": "benchmark"}))


def test_what_ran_is_told_and_kept_as_the_report_says(tmp_path: Path) -> None:
    report, folder = profiled(tmp_path, RIGHT)
    assert report.verdict == "passed", report.reason
    assert "NO_PROFILE" not in report.flags
    assert [phase.name for phase in report.phases] == ["test", "benchmark"]
    assert "custom_kernel" in report.profile
    assert report.profile.startswith("benchmark-0 (n: 300; seed: 7): cProfile, 5 calls")
    kept = {file.name: file.read_bytes() for file in folder.iterdir()}
    assert (
        kept.keys() == {one.name for one in report.artifacts} == {"benchmark-0.table.txt", "benchmark-0.functions.json"}
    )
    for one in report.artifacts:
        assert (len(kept[one.name]), hashlib.sha256(kept[one.name]).hexdigest()) == (one.size, one.sha256)
    rows = json.loads(kept["benchmark-0.functions.json"])
    assert [row["calls"] for row in rows if row["function"] == "custom_kernel"] == [5]
    refuses_what_no_judge_leaves(report)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (ENDS, "no profile: the submission's process ended (exit code 3)"),
        (HANGS, "no profile: no answer within 4 s"),
    ],
)
def test_whoever_misbehaves_under_the_profiler_has_no_profile_and_the_same_verdict(
    tmp_path: Path, source: str, said: str
) -> None:
    limits = ground.limits(benchmark_s=4.0) if source is HANGS else ground.limits()
    report, folder = profiled(tmp_path, source, limits=limits, budget=wire.Budget(launches=1, calls=2))
    assert report.verdict == "passed", report.reason
    assert report.score_s is not None
    assert said in report.profile
    assert report.artifacts == [] and not folder.exists()


def test_who_profiles_itself_has_one_profile_or_is_told_why_not(tmp_path: Path) -> None:
    """From Python 3.12 on there is one profiler at a time."""
    report, folder = profiled(tmp_path, f"import cProfile\ncProfile.Profile().enable()\n{RIGHT}")
    assert report.verdict == "passed", report.reason
    if sys.version_info < (3, 12):
        assert "custom_kernel" in report.profile and report.artifacts
    else:
        assert "no profile: the submission runs a profiler of its own" in report.profile
        assert report.artifacts == [] and not folder.exists()


def test_a_forged_profile_is_bytes_under_our_names_and_a_clean_text(tmp_path: Path) -> None:
    report, folder = profiled(tmp_path, FORGES)
    assert report.verdict == "passed", report.reason
    assert [(one.name, one.size) for one in report.artifacts] == [("benchmark-0.functions.json", 6)]
    assert (folder / "benchmark-0.functions.json").read_bytes() == b"<html>"
    assert "\x1b" not in report.profile
    assert report.digests == [], "<html> is no table"
    assert len(report.profile) <= wire.PROFILE_TEXT_CAP


def test_what_a_program_around_the_runner_left_is_read_only_when_it_is_a_plain_file(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"a secret")
    plain, link, hard, pipe, large = (tmp_path / name for name in ("plain", "link", "hard", "pipe", "large"))
    plain.write_bytes(b"a report")
    link.symlink_to(secret)
    os.link(secret, hard)
    os.mkfifo(pipe)
    with large.open("wb") as file:
        file.truncate(wire.ARTIFACT_CAP + 1)
    assert profiling.read_left(plain) == b"a report"
    assert [profiling.read_left(path) for path in (link, hard, pipe, large, tmp_path, tmp_path / "none")] == [b""] * 6


def test_a_site_s_profiler_is_a_prefix_of_the_runner_s_command() -> None:
    assert around("none", "/link") == ()
    assert " ".join(around("rocprof", "/link")) == "python3 -I -B /eval --profiled rocprof /link"


# ------------------------------------------------------------------------- programs around the runner, as stand-ins


def around_it(
    tmp_path: Path, tool: str, *state: str, source: str = RIGHT, **changed: object
) -> tuple[wire.Report, dict[str, bytes]]:
    told = ground.manifest(source, mode="profile", **{"benchmarks": [{"n": 300, "seed": 7}], **changed})
    outcome = ground.judged(tmp_path / "attempt", told, env=profilers.profiler(tmp_path / "toolkit", tool, *state))
    folder = outcome.out / "artifacts"
    return outcome.told, {path.name: path.read_bytes() for path in folder.iterdir()} if folder.exists() else {}


@needs(GXX, USER_NAMESPACES)
def test_nsight_compute_leaves_report_tables_and_a_digest(tmp_path: Path) -> None:
    report, kept = around_it(tmp_path, "ncu")
    assert report.verdict == "passed", report.reason
    assert kept.keys() >= {
        f"benchmark-0.ncu-{one}" for one in ("rep", "details.txt", "details.csv", "raw.csv", "source.csv")
    }, report.profile
    made = json.loads(kept["benchmark-0.ncu-rep"].decode().removeprefix("NVR\n"))
    assert (made["set"], made["source"]) == ("full", "yes"), "warp states, memory tables, and the source view"
    # the launch that took longest, with the author's lines beside the machine's
    assert kept["benchmark-0.ncu-source.csv"].decode().splitlines()[1:] == [
        '"0","cuda,sass","LDG.E R0, [R2.64]","gemm_kernel"'
    ]
    python, counters = report.digests
    assert (python.tool, counters.tool, counters.trouble) == ("cprofile", "ncu", "")
    assert "is bound by memory, which is 91 % busy" in counters.limits[0]
    assert [one.calls for one in counters.kernels] == [2, 1]
    assert counters.hints[0].startswith("Nsight Compute (up to 34.6 %): The memory access pattern")
    assert counters.limits[2] in report.profile
    assert wire.read_report(wire.dumps(report)) == report


@needs(GXX, USER_NAMESPACES)
@pytest.mark.parametrize(
    ("state", "said"),
    [
        ("refused", "the site's admin can set NVreg_RestrictProfilingToAdminUsers=0"),
        ("old", "the image needs version 2021.3 or newer"),
    ],
)
def test_why_nsight_compute_left_nothing_is_said_in_one_sentence(tmp_path: Path, state: str, said: str) -> None:
    report, kept = around_it(tmp_path, "ncu", state)
    assert report.verdict == "passed", report.reason
    assert said in report.digests[-1].trouble and said in report.profile
    assert not any("ncu" in name for name in kept)


@needs(GXX, USER_NAMESPACES)
def test_a_report_that_is_too_large_is_left_out_alone(tmp_path: Path) -> None:
    report, kept = around_it(tmp_path, "ncu", f"size {wire.ARTIFACT_CAP}")
    assert "benchmark-0.ncu-rep" not in kept and "benchmark-0.ncu-raw.csv" in kept
    assert "over the limit of 8388608: left out" in report.profile
    assert report.digests[-1].limits


@needs(GXX, USER_NAMESPACES)
@pytest.mark.parametrize("state", [(), ("nested", "old")])
def test_rocprofv3_leaves_tables_a_trace_for_perfetto_and_a_digest(tmp_path: Path, state: tuple[str, ...]) -> None:
    report, kept = around_it(tmp_path, "rocprof", *state)
    assert report.verdict == "passed", report.reason
    assert kept.keys() >= {f"benchmark-0.{one}" for one in ("kernel_stats.csv", "kernel_trace.csv", "pftrace")}
    told = report.digests[-1]
    assert told.tool == "rocprof" and "ran kernels for 26 % of 1.91 ms" in told.limits[1]


@needs(GXX, USER_NAMESPACES)
def test_without_the_program_the_rest_of_the_profile_is_there(tmp_path: Path) -> None:
    told = ground.manifest(RIGHT, mode="profile")
    outcome = ground.judged(tmp_path, told, env={"KBSLURM_PROFILER": "ncu"})
    assert outcome.told.verdict == "passed", outcome.told.reason
    assert outcome.told.digests[0].tool == "cprofile" and outcome.told.digests[0].limits
    assert outcome.told.digests[1].trouble == "ncu isn't in this image"


@needs(GXX, USER_NAMESPACES)
@pytest.mark.parametrize("source", [ENDS, HANGS, FORGES])
def test_whoever_misbehaves_around_it_keeps_its_verdict(tmp_path: Path, source: str) -> None:
    limits = ground.limits(benchmark_s=4.0) if source is HANGS else ground.limits()
    budget = wire.Budget(launches=1, calls=2)
    report, _ = around_it(tmp_path, "ncu", source=source, limits=limits, budget=budget)
    assert report.verdict == "passed", report.reason
    assert report.score_s is not None


@needs(GXX, USER_NAMESPACES)
def test_one_benchmark_alone_is_profiled_if_it_is_asked_for(tmp_path: Path) -> None:
    three = [{"n": n, "seed": 7} for n in (100, 200, 300)]
    report, kept = around_it(tmp_path, "ncu", benchmarks=three, profile_benchmark=1)
    assert {one.benchmark for one in report.digests} == {1}
    assert {name.split(".")[0] for name in kept} == {"benchmark-1"}
    report, _ = profiled(tmp_path / "all", RIGHT, benchmarks=three)
    assert [one.benchmark for one in report.digests] == [1, 2]


@pytest.mark.torch
@pytest.mark.usefixtures("with_torch")
def test_torchs_profiler_is_used_where_torch_is(tmp_path: Path) -> None:
    source = "import torch\n\ndef custom_kernel(data):\n    torch.tensor(data).sort()\n    return sorted(data)\n"
    report, folder = profiled(tmp_path, source, limits=wire.Limits(), budget=wire.Budget(launches=1, calls=2))
    assert report.verdict == "passed", report.reason
    assert "aten::sort" in report.profile
    trace = json.loads(gzip.decompress((folder / "benchmark-0.trace.json.gz").read_bytes()))
    assert trace["traceEvents"]
