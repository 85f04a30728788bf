"""What was found by attacking the harness with its source in hand, each on a problem that it needs."""

from __future__ import annotations

from pathlib import Path

from kbslurm_eval import clock, judge, values
from tests.flow import harness_ground as ground

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


def test_what_a_faster_decoder_could_save_is_not_resolved() -> None:
    """Calls that come back sooner than a null call does: only a replaced runner can do that."""
    nulls = [30_000, 30_100, 30_200, 30_300]
    bare = [n - 8_000 for n in nulls]
    quick = clock.net(clock.LaunchTimes(calls_ns=[26_000] * 9, trusted_null_ns=nulls, bare_null_ns=bare))
    assert quick.median_ns == 8_000
    assert not quick.resolved
    plain = clock.net(clock.LaunchTimes(calls_ns=[60_000] * 9, trusted_null_ns=nulls, bare_null_ns=bare))
    assert plain.resolved
    assert 29_000 < plain.median_ns < 31_000


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


def test_another_answer_to_the_same_input_is_flagged_with_its_evidence(tmp_path: Path) -> None:
    source = (
        "SEEN = set()\ndef custom_kernel(data):\n    key = tuple(data)\n    again = key in SEEN\n    SEEN.add(key)\n"
        "    return list(data) if again and data else sorted(data)\n"
    )
    report = ground.judged(tmp_path, ground.manifest(source, mode="test")).told
    assert (report.verdict, report.flags) == ("wrong", [judge.NONDETERMINISTIC])
    assert "n: 40; seed: 1: right at first, and then an answer is wrong" in report.host["evidence"][report.flags[0]]
