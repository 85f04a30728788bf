"""What was found by attacking the harness with its source in hand, each on a problem that it needs."""

from __future__ import annotations

from pathlib import Path

from kbslurm_eval import clock, judge, values, wire
from tests.flow import harness_ground as ground

CHECKSUM = """
import array, random, zlib


def generate_input(n, seed):
    return array.array("d", random.Random(seed).randbytes(8 * n)).tolist() if n < 0 else [
        float(x) for x in random.Random(seed).choices(range(1 << 30), k=n)
    ]


def ref_kernel(data):
    return zlib.crc32(array.array("d", data))


def check_implementation(data, output):
    return output == ref_kernel(data)
"""
FASTER_DECODER = """
import gc, struct, zlib
from kbslurm_eval import values

plain = values.unpack


class Raw:
    def __init__(self, view):
        length, start = struct.unpack_from("<QQ", view, 0)
        told = bytes(view[16 : 16 + length])
        self.count = int(told.split(b",")[2][:-1]) if told[:4] == b'["f"' else 0
        self.view, self.start = view, start


values.unpack = lambda view: Raw(view) if bytes(view[16:20]) == b'["f"' else plain(view)


def custom_kernel(data):
    return zlib.crc32(data.view[data.start : data.start + 8 * data.count])
"""
LAX = """
import random


def generate_input(n, seed):
    r = random.Random(seed)
    return [1 + r.random() for _ in range(n)]


def ref_kernel(data):
    return [2 * x for x in data]


def check_implementation(data, output):
    for got, want in zip(output, ref_kernel(data), strict=True):
        if abs(got - want) / max(abs(got), abs(want)) > 1e-6:
            return False, "too far off"
    return True, ""
"""
SLOPPY = """
def generate_input(n, seed):
    return n + seed


def ref_kernel(data):
    return data


def check_implementation(data, output):
    return output and output == data
"""


def test_what_a_faster_decoder_hides_is_not_resolved(tmp_path: Path) -> None:
    told = ground.manifest(
        FASTER_DECODER,
        files={"reference.py": CHECKSUM},
        tests=[{"n": 40, "seed": 1}],
        benchmarks=[{"n": 60_000, "seed": 2}],
        hidden=[],
        budget=wire.Budget(launches=2, calls=6),
    )
    report = ground.judged(tmp_path, told).told
    assert report.verdict == "passed", report.reason
    assert report.score_s is not None
    assert clock.UNRESOLVED in report.flags or report.score_s > 2e-5
    assert report.score_s > 2e-6  # the sum over 480 KB alone takes longer; 50 ns were reported for it once


def test_numbers_that_are_none_are_wrong_whatever_the_check_says(tmp_path: Path) -> None:
    for n, forged in enumerate(("nan", "inf")):
        told = ground.manifest(
            f"def custom_kernel(data):\n    return [float('{forged}')] * len(data)\n",
            files={"reference.py": LAX},
            mode="test",
        )
        report = ground.judged(tmp_path / str(n), told).told
        assert report.verdict == "wrong", report.reason


def test_a_check_that_gives_no_verdict_on_an_answer_rejects_it(tmp_path: Path) -> None:
    told = ground.manifest(
        "def custom_kernel(data):\n    return 0\n",
        files={"reference.py": SLOPPY.replace("output and output == data", "output == data if output else 0")},
        mode="test",
    )
    report = ground.judged(tmp_path, told).told
    assert report.verdict == "wrong", report.reason  # as 'infrastructure' it would have been tried again


def test_where_the_judge_looks_first_is_in_no_seed() -> None:
    import random

    random.seed(5)
    first = list(judge._places(1 << 20))
    random.seed(5)
    assert list(judge._places(1 << 20)) != first


def test_finite_sees_every_kind_of_number() -> None:
    assert values.finite([1, 2.0, {"a": (True, None, "nan", b"x")}, 1j])
    for bad in (float("nan"), [0.0, float("inf")], {"a": [1, float("nan")]}, complex(0, float("inf"))):
        assert not values.finite(bad)
