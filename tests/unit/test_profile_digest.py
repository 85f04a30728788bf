"""Profiles in short: tables as their programs write them, and worse ones."""

from __future__ import annotations

import dataclasses
import json
import time
from pathlib import Path

import pytest

from kbslurm.domain import profiles
from kbslurm_eval.judge import profile_digest, profile_tables
from kbslurm_eval.shared import wire

DATA = Path(__file__).resolve().parents[1] / "golden/data/profiles"
GEMM = 'void gemm_kernel<(int)128, "row", float>(const float *, const float *, float *, int, int)'


def table(name: str) -> bytes:
    return (DATA / name).read_bytes()


def digest(tool: wire.ProfileTool, **files: bytes) -> wire.ProfileDigest:
    launches, advised = profile_digest.tables_of(tool, {name.replace("__", "."): blob for name, blob in files.items()})
    return profile_digest.digest(benchmark=0, spec="n: 1", tool=tool, launches=launches, advised=advised)


def test_nsight_s_raw_page() -> None:
    first, copy, second = profile_tables.nsight(table("ncu-2025-raw.csv"))
    assert (first.name, first.ns, second.ns) == (GEMM, 1_204_512, 1_195_488)
    assert copy.metrics["memory_pct"] == 88.4 and copy.metrics["dram_read_bytes"] == 33_554_432
    assert first.metrics["stall_long_scoreboard"] == 9.81, "not the ratio of warps that weren't issued"
    assert "stall_long_scoreboard_not_issued" not in first.metrics


def test_nsight_s_details_page_has_a_row_for_each_metric_and_the_rules() -> None:
    first, copy = profile_tables.nsight(table("ncu-2025-details.csv"))
    assert (first.name, first.ns, copy.ns) == (GEMM, 1_204_512, 152_192)
    assert first.metrics["memory_pct"] == 91.27, "the section's rate in byte/s has the same name"
    assert [(one.rule, one.gain_pct) for one in first.advice] == [
        ("CPIStall", 8.73),
        ("MemoryCacheAccessPattern", 34.6),
    ]
    assert '"on average"' in first.advice[1].text


def test_older_names_and_units_and_what_isn_t_available() -> None:
    sgemm, copy = profile_tables.nsight(table("ncu-2020-details.csv"))
    assert sgemm.ns == pytest.approx(83_710) and copy.ns == 1_500_000
    assert (sgemm.metrics["compute_pct"], sgemm.metrics["memory_pct"]) == (88.1, 12.4)
    assert copy.metrics == {}, "n/a is no number"


def test_decimal_commas() -> None:
    first, second = profile_tables.nsight(table("ncu-decimal-comma-raw.csv"))
    assert (first.ns, second.ns) == (1_204_500, 1_195_500)
    assert first.metrics == {"compute_pct": 38.51, "memory_pct": 41.2, "dram_read_bytes": pytest.approx(402_650_000)}


def test_the_author_s_lines_of_the_source_page() -> None:
    lines = profile_tables.nsight_source(table("ncu-2025-source.csv"))
    assert [(one.file, one.number, one.samples) for one in lines] == [
        ("submission.cu", 8, 6020), ("submission.cu", 7, 1204), ("tile.cuh", 4, 475), ("submission.cu", 10, 301),
    ]  # fmt: skip
    assert lines[0].text.endswith('// "strided"')
    assert profile_tables.nsight_source(table("ncu-2025-source-sass.csv")) == [], "machine code only"
    assert profile_tables.nsight_source(b"") == profile_tables.nsight_source(b'\xff,\n"') == []


def test_a_digest_names_the_lines_where_warps_wait() -> None:
    told = profile_digest.digest(
        benchmark=0, spec="n: 1", tool="ncu", launches=profile_tables.nsight(table("ncu-2025-raw.csv")),
        source=profile_tables.nsight_source(table("ncu-2025-source.csv")),
    )  # fmt: skip
    assert [hint for hint in told.hints if "of the samples" in hint] == [
        '75 % of the samples are at submission.cu:8: acc += a[row * K + k] * b[k * N + col]; // "strided"',
        "15 % of the samples are at submission.cu:7: for (int k = 0; k < K; ++k) {",
        "6 % of the samples are at tile.cuh:4: __syncthreads();",
    ]


NO_NUMBERS = ("n/a", "", "nan", "inf", "-", "1e999", "0x10", "1" * 400, "(256, 1, 1)", "\uff11\uff12")


@pytest.mark.parametrize(
    ("text", "commas", "value"),
    [
        ("1,215,000,000.00", False, 1_215_000_000.0),
        ("45.7", False, 45.7),
        ("1 204 512", False, 1_204_512.0),
        ("1\u202f204,5", True, 1204.5),
        ("1'204'512", False, 1_204_512.0),
        ("3.5e+06", False, 3_500_000.0),
        ("12 (1; 2; 9)", False, 12.0),
        ("91.2 %", False, 91.2),
        ("12,34", False, None),
        *((text, False, None) for text in NO_NUMBERS),
    ],
)  # fmt: skip
def test_numbers(text: str, commas: bool, value: float | None) -> None:
    assert profile_tables.number(text, comma_decimal=commas) == value


@pytest.mark.parametrize(
    ("texts", "commas"),
    [
        (["1,204", "38.5"], False), (["1,204", "38,51"], True), (["1.204,5"], True), (["1,204.5", "38,51"], False),
        (["1,204", "2,000,000"], False), (["0,125"], True), ([], False), (["n/a", "(1, 2)"], False),
    ],
)  # fmt: skip
def test_decimal_commas_are_known_by_what_can_t_be_read_otherwise(texts: list[str], commas: bool) -> None:
    assert profile_tables.writes_decimal_commas(texts) is commas


@pytest.mark.parametrize(
    ("name", "kernels", "vgprs"),
    [
        ("rocprofv3-7_kernel_trace.csv", 4, 8),
        ("rocprofv3-6.2_kernel_trace.csv", 1, None),
        ("rocpd_kernel_trace.csv", 1, 16),
    ],
)
def test_rocprofv3_s_traces_by_version(name: str, kernels: int, vgprs: int | None) -> None:
    found = profile_tables.rocprof_trace(table(name))
    assert len(found) == kernels and found[0].metrics.get("vgprs") == vgprs
    assert all(one.ns is not None and one.ns > 0 for one in found)


def test_a_kernel_bound_by_memory_in_three_sentences() -> None:
    told = digest("ncu", raw__csv=table("ncu-2025-raw.csv"), details__csv=table("ncu-2025-details.csv"))
    what, how_much, try_this = told.limits
    assert what == (
        'void gemm_kernel<(int)128, "row", float>(const float *, const float … takes 94 % of the kernels\' time'
        " (2 launches, 1.2 ms each) and is bound by memory, which is 91 % busy; the arithmetic units are 39 %."
    )
    assert how_much == (
        "Moving the same bytes at the full rate would save at most 9 % of its time: more can only be gained by moving"
        " fewer."
    )
    assert try_this == (
        "Try to read and write each byte of DRAM once (L2 has 46 % of what is asked for): fuse neighbouring kernels,"
        " reuse tiles in shared memory or registers, or use a smaller number format."
    )
    assert [hint[:31] for hint in told.hints] == ["Nsight Compute (up to 34.6 %): ", "Nsight Compute (up to 8.73 %): "]
    assert [(one.calls, round(one.share, 2)) for one in told.kernels] == [(2, 0.94), (1, 0.06)]
    assert told.kernels[0].metrics["occupancy_pct"] == 71.02
    assert (told.calls, told.total_ns, told.trouble) == (3, 2_552_192, "")


def counters(**metrics: float) -> wire.ProfileDigest:
    launch = profile_tables.Launch(name="k", ns=1000.0, metrics=metrics)
    return profile_digest.digest(benchmark=0, spec="", tool="ncu", launches=[launch])


WAITING = {"compute_pct": 8, "memory_pct": 12}


@pytest.mark.parametrize(
    ("metrics", "sentence", "words"),
    [
        ({"compute_pct": 88, "memory_pct": 12}, 0, "bound by computing"),
        ({"compute_pct": 88, "memory_pct": 12}, 1, "at most 12 %"),
        ({"compute_pct": 8, "memory_pct": 80, "dram_pct": 20}, 2, "DRAM itself is only 20 % busy"),
        (WAITING, 0, "bound by waiting"),
        (WAITING, 1, "idle for 88 %"),
        ({**WAITING, "waves": 0.2, "grid_size": 26}, 2, "26 blocks fill only 20 % of the GPU"),
        (
            {**WAITING, "theoretical_occupancy_pct": 25, "blocks_by_registers": 2, "blocks_by_shared_memory": 5},
            2,
            "only 25 % fit, limited by registers",
        ),
        ({**WAITING, "stall_barrier": 6, "stall_selected": 1, "stall_wait": 1}, 1, "(75 %) waiting at barriers"),
        ({**WAITING, "stall_barrier": 6, "stall_selected": 1}, 2, "synchronise less often"),
        ({**WAITING, "stall_brand_new": 6}, 1, "waiting for brand_new"),
        ({**WAITING, "theoretical_occupancy_pct": 100, "occupancy_pct": 30}, 2, "even out the work"),
        ({"registers": 32}, 1, "what bounds it isn't known"),
    ],
)
def test_what_bounds_a_kernel_and_what_to_try(metrics: dict[str, float], sentence: int, words: str) -> None:
    found = counters(**metrics)
    assert len(found.limits) == 3
    assert words in found.limits[sentence]


def test_an_amd_trace_says_how_long_the_gpu_was_idle() -> None:
    told = digest("rocprof", kernel_trace__csv=table("rocprofv3-7_kernel_trace.csv"))
    assert "takes 97 % of the kernels' time (2 launches, 239 us each)." in told.limits[0]
    assert "ran kernels for 26 % of 1.91 ms" in told.limits[1]
    assert "fewer and larger kernels" in told.limits[2]
    assert told.kernels[0].metrics["scratch_bytes"] == 64
    by_stats = digest("rocprof", kernel_stats__csv=table("rocprofv3-7_kernel_stats.csv"))
    assert [(one.name, one.calls, one.total_ns) for one in by_stats.kernels] == [
        (one.name, one.calls, one.total_ns) for one in told.kernels
    ]
    assert "isn't in the table" in by_stats.limits[1]


def test_torch_and_python() -> None:
    rows = [{"name": "aten::copy_", "calls": 5, "self_us": 900.0}, {"name": "aten::mul", "calls": 5, "self_us": 100.0}]
    told = digest("torch", operators__json=json.dumps(rows).encode())
    assert told.limits[0] == "aten::copy_ takes 90 % of the operators' own time (5 calls, 180 us each)."
    assert "Copies and conversions take 90 %" in told.limits[2]
    small = [{"name": f"aten::op{n}", "calls": 40, "self_us": 40.0} for n in range(3)]
    assert "starting them costs most" in digest("torch", operators__json=json.dumps(small).encode()).limits[2]
    python = [{"function": "custom_kernel", "file": "submission.py", "line": 3, "calls": 5, "own_s": 0.5}]
    told = digest("cprofile", functions__json=json.dumps(python).encode())
    assert told.limits[0].startswith("custom_kernel (submission.py:3) takes 100 %")
    assert "It is Python" in told.limits[2]


def test_a_program_is_missing_from_an_image_only_where_there_is_one() -> None:
    row = {"benchmark": 0, "spec": "", "tool": "ncu", "trouble": "ncu isn't in this image"}
    for means, where in (
        ("apptainer", "in this image"),
        ("unshare", "on this machine"),
        ("process", "on this machine"),
    ):
        detail = {"isolation": {"means": means}, "digests": [row], "profile": "no profile: ncu isn't in this image"}
        assert profiles.digests(detail)[0]["trouble"] == f"ncu isn't {where}"
        assert profiles.summary(detail) == f"no profile: ncu isn't {where}"
    assert profiles.digests({"digests": [row]})[0]["trouble"] == "ncu isn't in this image"


# ------------------------------------------------------------------------------------------------- what nobody expects

HEAD = b'"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"\n'
EVIL = "\x1b[2J<script>alert(1)</script>\n## [passed](http://x)\n" + "A" * 5000


def test_hostile_names_are_printable_short_and_on_one_line() -> None:
    launch = profile_tables.Launch(name=EVIL, ns=1000.0, metrics={"compute_pct": 1.0, "memory_pct": 1.0})
    launch.advice.append(profile_tables.Advice(rule="r", text=EVIL, gain_pct=5.0))
    told = profile_digest.digest(benchmark=0, spec="", tool="ncu", launches=[launch])
    for text in (*told.limits, *told.hints, told.kernels[0].name):
        assert text.isprintable() and len(text) <= wire.SENTENCE_CAP
    assert len(told.kernels[0].name) <= wire.NAME_CAP
    assert wire._is_too_long(told) is False


def test_thousands_of_kernels_are_counted_and_the_first_are_told() -> None:
    rows = b"".join(b'"%d","kernel_%d","gpu__time_duration.sum","nsecond","%d"\n' % (n, n, n + 1) for n in range(5000))
    told = digest("ncu", raw__csv=HEAD + rows)
    assert (len(told.kernels), told.kernels_left_out, told.calls) == (wire.KERNELS_CAP, 4980, 5000)
    assert told.kernels[0].name == "kernel_4999"
    assert "5000 kernels share the time" in told.hints[-1]


@pytest.mark.parametrize(
    "blob",
    [
        b"", b"\0\0\0", b"==ERROR== nothing\n", b"not,a,table\n1,2\n", HEAD, b'"Kernel Name"\n', b"\xff\xfe" + HEAD,
        HEAD + b'"0","k","gpu__time_duration.sum","nsecond","n/a"',
        HEAD + b'"0","k","gpu__time_duration.sum","furlong","12"',
        HEAD + b'"0","k","gpu__time_duration.sum","nsecond","-12"',
        HEAD + b'"0","' + b"k" * 200_000 + b'","gpu__time_duration.sum","nsecond","12"',
        b'"Kernel_Name","Start_Timestamp","End_Timestamp"\n"k",9,3\n"k",,\n"k",1',
        b"[" * 100_000, b'[{"name": "x"}, 3, null, {"name": "y", "calls": 1e400, "self_us": "z"}]',
        b'{"name": 3}', b'[{"name": ["x"], "calls": 1, "self_us": 1}, {"name": "n", "calls": true}]',
        b'[{"name": "n", "calls": 1%s, "self_us": 1}]' % (b"0" * 4000),
    ],
)  # fmt: skip
def test_tables_without_anything_give_a_digest_without_anything(blob: bytes) -> None:
    read: list[tuple[wire.ProfileTool, str]] = [
        ("ncu", "raw__csv"), ("ncu", "details__csv"),
        ("rocprof", "kernel_trace__csv"), ("rocprof", "kernel_stats__csv"),
        ("torch", "operators__json"), ("cprofile", "functions__json"),
    ]  # fmt: skip
    for tool, name in read:
        told = digest(tool, **{name: blob})
        assert told.total_ns == 0
        assert told.trouble or all(one.total_ns == 0 for one in told.kernels)


REFUSED = """==PROF== Connected to process 7
==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters on 0.
==WARNING== No kernels were profiled.
"""


@pytest.mark.parametrize(
    ("log", "words"),
    [
        (REFUSED, "site's admin can set NVreg_RestrictProfilingToAdminUsers=0"),
        ("==ERROR== Profiling failed because a driver resource was unavailable.", "dcgmi profile --pause"),
        ("==WARNING== No kernels were profiled.", "saw no kernel"),
        ("==ERROR== unrecognised option '--import-source'. Use --help for further details.", "2021.3 or newer"),
        ("rocprofv3: error: unrecognized arguments: --selected-regions", "ROCm 6.2"),
        ("==ERROR== Something else.\n", "Something else."),
        ("kbslurm: ncu isn't in this image\n", "ncu isn't in this image"),
        ("", "left no file and said nothing"),
    ],
)
def test_why_there_is_no_profile(log: str, words: str) -> None:
    assert words in profile_digest.trouble_in(log, "ncu")


def test_numbers_beyond_all_measure_can_t_cost_the_report() -> None:
    """A sum that isn't finite can't be sealed: the run would be repeated, as if the node had failed."""
    rows = [{"name": f"n{n}", "calls": 10**18, "self_us": 1.7e308} for n in range(9)]
    told = [
        digest("torch", operators__json=json.dumps(rows).encode()),
        digest("cprofile", functions__json=b'[{"function": "f", "calls": 1e300, "own_s": 1e308}]'),
        digest("ncu", raw__csv=HEAD + b'"0","k","gpu__time_duration.sum","second","9e307"\n' * 9),
        digest("rocprof", kernel_stats__csv=b'"Name","Calls","TotalDurationNs"\n"k",9e300,9e307\n"l",1,9e307\n'),
    ]
    for one in told:
        json.dumps(dataclasses.asdict(one), allow_nan=False)
        assert one.total_ns < 1e300 and one.calls < 10**30


def test_hostile_columns_make_neither_a_large_digest_nor_a_long_wait() -> None:
    """A report over its limit is no report: the run would be repeated."""
    long = "smsp__average_warps_issue_stalled_" + "x" * 60_000 + "_per_issue_active.ratio"
    wide = [f"smsp__average_warps_issue_stalled_{n}_per_issue_active.ratio" for n in range(20_000)]
    for columns in ([long], wide):
        head = ",".join(["Kernel Name", *columns])
        rows = "".join(f"k{n},{','.join('5' for _ in columns[:100])}\n" for n in range(3_000))
        began = time.process_time()
        told = digest("ncu", raw__csv=f"{head}\n{rows}".encode())
        assert time.process_time() - began < 20
        assert len(json.dumps(dataclasses.asdict(told))) < 60_000
        assert not wire._is_too_long(told)
    named = wire.ProfiledKernel(name="k", calls=1, total_ns=1.0, share=1.0, metrics={"x" * 60_000: 1.0})
    assert wire._is_too_long(dataclasses.replace(told, kernels=[named]))
