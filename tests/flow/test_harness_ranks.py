"""Problems for several GPUs: every rank a process of one launch, at every level of isolation that there is.

The example's submissions are judged by test_examples; here is what its verdicts don't show.
"""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path
from typing import Any

import pytest

from kbslurm.domain.manifest import manifest_for
from kbslurm.domain.run import new_job_name
from kbslurm.problems.loading import load
from kbslurm_eval.judge import check_memory
from kbslurm_eval.judge.rank_reference import free_port
from kbslurm_eval.shared import wire
from tests import standin
from tests.flow.harness_ground import SECRET, achieved_level, judged, limits
from tests.services import USER_NAMESPACES, missing

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples/allreduce"
# by level; at 2 and above test_examples judges them all
VERDICTS = {
    0: {"accepted/by_rank_zero.py": "passed", "cheat/another_ranks_token.py": "violation"},
    1: {"accepted/by_rank_zero.py": "passed", "crash/one_rank_dies.py": "error", "crash/one_rank_raises.py": "error"},
}


def allreduce(source: str, *, mode: wire.Mode = "test", **changed: Any) -> wire.Manifest:
    told = manifest_for(
        load(EXAMPLE), token=new_job_name(), attempt=1, nonce="n0nce", mode=mode, gpu="cpu", source=source,
        secret_seed=SECRET,
    )  # fmt: skip
    fields = {name: getattr(told, name) for name in told.__dataclass_fields__}
    return wire.Manifest(**{**fields, **changed})


@pytest.mark.parametrize("level", [0, 1])
def test_a_bare_machine_gives_the_same_verdicts(level: int, tmp_path: Path) -> None:
    for name, verdict in VERDICTS[level].items():
        source = (EXAMPLE / "submissions" / name).read_text(encoding="utf-8")
        env = {"KBSLURM_EVAL_LEVEL": str(level)}
        report = judged(tmp_path / Path(name).stem, allreduce(source), env=env).told
        assert report.verdict == verdict, (name, report.reason)
        assert report.isolation.level == level


LOOKS_OUTSIDE = """
import os, socket
from ring import Ring
from task import input_t, output_t

ring = Ring()


def custom_kernel(data):
    assert os.environ["LOCAL_RANK"] == os.environ["RANK"] == str(data[0])
    assert os.environ["WORLD_SIZE"] == str(data[1]) == "2"
    try:
        socket.create_connection(("127.0.0.1", {port}), timeout=5).close()
    except ConnectionRefusedError:
        raise RuntimeError("nobody there, as it should be") from None
    return data[2]
"""


def test_ranks_speak_with_each_other_and_with_nobody_else(tmp_path: Path) -> None:
    if achieved_level() < 2:
        missing(USER_NAMESPACES, "this machine has no network namespace for a run")
    with socket.create_server(("127.0.0.1", 0)) as server:
        source = LOOKS_OUTSIDE.replace("{port}", str(server.getsockname()[1]))
        report = judged(tmp_path, allreduce(source)).told
    assert "nobody there, as it should be" in report.reason
    assert report.verdict == "error"
    assert report.host["interfaces"] == ["lo"]
    assert report.host["ranks"] == 2
    assert report.isolation.level >= 2, report.isolation.notes


def test_the_last_rank_is_timed_and_nothing_is_left(tmp_path: Path) -> None:
    source = (EXAMPLE / "submissions/accepted/early_rank.py").read_text(encoding="utf-8")
    source = source.replace("time.sleep(0.02)", "time.sleep(0.2)")  # longer than a busy machine takes for nothing
    report = judged(tmp_path, allreduce(source, mode="benchmark", budget=wire.Budget(launches=1, calls=3))).told
    assert report.verdict == "passed", report.reason
    assert report.score_s is not None
    assert report.score_s > 0.1, "rank 1 sleeps twice that long after rank 0 is done"
    ours = [p for p in Path("/proc").iterdir() if p.name.isdigit() and _says(p, f"{tmp_path}")]
    assert ours == []


def _says(process: Path, text: str) -> bool:
    try:
        return text.encode() in (process / "cmdline").read_bytes()
    except OSError:
        return False


def test_a_reference_whose_ranks_dont_meet_is_the_problems_trouble(tmp_path: Path) -> None:
    told = allreduce("def custom_kernel(data): return data[2]")
    head = "def ref_kernel(data: input_t) -> output_t:\n"
    alone = f"{head}    if data[0] == 1:\n        raise RuntimeError('alone')\n"
    lonely = told.files["reference.py"].replace(head, alone)
    report = judged(tmp_path, allreduce(told.source, files={**told.files, "reference.py": lonely})).told
    assert report.verdict == "infrastructure"
    assert "RuntimeError: alone" in report.reason
    assert "(rank 1)" in report.reason


def test_cases_of_different_worlds_are_refused(tmp_path: Path) -> None:
    report = judged(tmp_path, allreduce("", tests=[{"world_size": 2, "size": 1}, {"world_size": 3, "size": 1}])).told
    assert report.verdict == "infrastructure"
    assert "differ in world_size" in report.reason


# What a rank finds told before: the seventh of its link's words, where the first of these frames keeps it.
ASKS_AHEAD = """
import sys

calls = 0


def custom_kernel(data):
    global calls
    calls += 1
    frame = sys._getframe()
    while frame is not None and "ahead" not in frame.f_locals:
        frame = frame.f_back
    if frame is None or frame.f_locals["ahead"] is None:
        raise RuntimeError(f"call {calls}: its arrays were made while the clock ran")
    return honest(data)
"""
ARRAYS = {
    "reference.py": """
import numpy as np


def generate_input(rank, world_size, n, seed):
    return np.random.default_rng(seed + rank).random(n), rank


def ref_kernel(data):
    return data[0] * 2


def check_implementation(data, output):
    return bool((data[0] * 2 == output).all()), "not twice"
"""
}


def doubled(source: str, **changed: Any) -> wire.Manifest:
    cases: list[Any] = [{"world_size": 2, "n": 100, "seed": 1}]
    told: dict[str, Any] = {"files": ARRAYS, "tests": [], "benchmarks": cases, "hidden": [], "mode": "benchmark"}
    return allreduce(source, **{**told, "budget": wire.Budget(launches=1, calls=4), **changed})


TWICE = "def custom_kernel(data):\n    return data[0] * 2\n"


def test_ranks_arrays_are_made_before_the_clock(tmp_path: Path) -> None:
    report = judged(tmp_path, doubled(TWICE.replace("custom_kernel", "honest") + ASKS_AHEAD)).told
    assert report.verdict == "passed", report.reason


@pytest.mark.parametrize("cold", [True, False])
def test_every_ranks_device_is_flushed_and_its_clocks_are_read(tmp_path: Path, cold: bool) -> None:
    env = standin.device(tmp_path / "toolkit", devices=2, l2=1 << 20, log=1)
    standin.clocks(tmp_path / "toolkit", second=1200)
    told = doubled(TWICE, gpu="H100", config={"cold": cold})
    report = judged(tmp_path, told, env=env).told
    assert report.verdict == "passed", report.reason
    host = report.host
    assert host["caches"]["flushed_bytes"] == (2 << 20 if cold else 0), host["caches"]
    assert host["device"]["devices"] == ["0000:01:00.0", "0000:02:00.0"]
    assert host["device"]["clocks"]["sm_mhz"] == [1200] * 3, "the slowest one's"
    log = tmp_path / "toolkit" / "device.log"
    acts = [line for line in log.read_text().splitlines() if "fill" in line] if log.exists() else []
    calls = report.host["calls_checked"] // 2
    assert len(acts) >= 2 * calls if cold else not acts
    assert acts == [f"fill {2 << 20}", f"fill@1 {2 << 20}"] * (len(acts) // 2)


def test_a_throttled_second_device_has_the_calls_timed_again(tmp_path: Path) -> None:
    """Readings: one each when the devices are found, then two devices at both ends of each batch."""
    env = standin.device(tmp_path / "toolkit", devices=2)
    standin.clocks(tmp_path / "toolkit", throttled_from=6, throttled_to=6)
    report = judged(tmp_path, doubled(TWICE, gpu="H100", budget=wire.Budget(launches=1, calls=20)), env=env).told
    assert report.verdict == "passed", report.reason
    assert report.host["device"]["clocks"]["discarded_calls"] == 8
    assert [len(one.own.calls_ns) for one in report.samples] == [20]


GLOO = {
    "reference.py": """
import torch
import torch.distributed as dist


def generate_input(rank, world_size, n, seed):
    return (torch.randn(n, generator=torch.Generator().manual_seed(seed + rank)), rank, world_size)


def ref_kernel(data):
    total = data[0].clone()
    dist.all_reduce(total)
    return total


def check_implementation(data, output):
    return bool(torch.allclose(output, ref_kernel(data))), "not the sum"
"""
}
ALL_REDUCE = """
import torch.distributed as dist


def custom_kernel(data):
    total = data[0].clone()
    dist.all_reduce(total)
    return total
"""


@pytest.mark.torch
@pytest.mark.usefixtures("with_torch")
@pytest.mark.parametrize(
    ("source", "verdict"), [(ALL_REDUCE, "passed"), (ALL_REDUCE.replace("dist.all", "#"), "wrong")]
)
def test_torchs_process_group_is_ready(source: str, verdict: str, tmp_path: Path) -> None:
    plain = wire.Limits()
    cases: list[Any] = [{"world_size": 2, "n": 100, "seed": 1}]
    told = allreduce(source, files=GLOO, tests=cases, benchmarks=cases, hidden=[], limits=plain, mode="benchmark",
                     budget=wire.Budget(launches=1, calls=3))  # fmt: skip
    report = judged(tmp_path, told).told
    assert report.verdict == verdict, report.reason
    assert report.host["process_group"] in ("gloo", "nccl")


@pytest.mark.parametrize(
    ("answer", "verdict"), [("data[2] if data[0] == 0 else None", "passed"), ("None", "infrastructure")]
)
def test_what_only_one_rank_answers_is_an_answer(answer: str, verdict: str, tmp_path: Path) -> None:
    """The others of a sum for one of them have none. Where no rank has one, a `return` is missing."""
    reference = (
        "def generate_input(rank, world_size, size, seed):\n    return rank, world_size, [seed + rank] * size\n\n\n"
        f"def ref_kernel(data):\n    return {answer}\n"
    )
    told = allreduce(f"def custom_kernel(data):\n    return {answer}\n")
    report = judged(tmp_path, allreduce(told.source, files={**told.files, "reference.py": reference})).told
    assert report.verdict == verdict, report.reason
    assert verdict == "passed" or "is a `return` missing" in report.reason


def test_a_check_that_goes_down_in_one_rank_says_that_the_answer_is_wrong(tmp_path: Path) -> None:
    """Each rank's check has a process of its own, and the judge lives on."""
    reference = (
        "import ctypes\n\n\ndef generate_input(rank, world_size, size, seed):\n"
        "    return rank, world_size, [seed] * size\n"
        "\n\ndef ref_kernel(data):\n    return data[2]\n\n\ndef check_implementation(data, output):\n"
        "    if output != data[2]:\n        ctypes.string_at(8)\n    return True, ''\n"
    )
    told = allreduce("def custom_kernel(data):\n    return [x + data[0] for x in data[2]]\n")
    report = judged(tmp_path, allreduce(told.source, files={**told.files, "reference.py": reference})).told
    assert (report.verdict, "check didn't survive" in report.reason) == ("wrong", True), report.reason
    assert "rank 1" in report.reason


@pytest.mark.parametrize(
    ("check", "verdict", "total_s", "why"),
    [
        ("output[0] > 1000", "timeout", 90.0, "checking an answer took longer than 1"),
        ("output[0] > 1000", "timeout", 9.0, "the whole run took longer than 9 s"),
        ("True", "infrastructure", 15.0, "the whole run took longer than 15 s, most of it the problem's own code"),
    ],
)
def test_time_that_an_answer_makes_a_ranks_check_take_is_its_authors(
    check: str, verdict: str, total_s: float, why: str, tmp_path: Path
) -> None:
    slow = f"    time.sleep(90 if {check} else 0)\n    return bool"
    reference = ARRAYS["reference.py"].replace("    return bool", slow)
    source = "def custom_kernel(data):\n    return data[0] * 0 + 5000\n"
    told = doubled(source, files={"reference.py": f"import time\n{reference}"}, limits=limits(total_s=total_s))
    report = judged(tmp_path, told).told
    assert (report.verdict, why in report.reason) == (verdict, True), report.reason


ALONE = """
import socket, threading


def met(rank, world_size, port):
    \"\"\"As a collective does: it returns once every rank has come.\"\"\"
    if rank:
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                return
            except OSError:
                pass
    with socket.create_server(("127.0.0.1", port), reuse_port=True) as server:
        for _ in range(world_size - 1):
            server.accept()[0].close()


def generate_input(rank, world_size, n, seed):
    return [seed + rank] * n, rank, world_size, {port}


def ref_kernel(data):
    met(*data[1:])
    return [2 * x for x in data[0]]


def check_implementation(data, output):
    {check}
    good = sum(output) == 2 * sum(data[0]) and len(output) == len(data[0])
    return good, "not twice"
"""
ALLOCATES = """
import os, resource, signal


def told():
    return open("/proc/self/oom_score_adj").read().strip(), resource.getrlimit(resource.RLIMIT_DATA)[0]


def generate_input(rank, world_size, n, seed):
    return [seed + rank] * n, told()


def ref_kernel(data):
    return data[0]


def check_implementation(data, output):
    if output != data[0]:
        {how}
    return output == data[0], f"{told()} then, {data[1]} before"
"""


@pytest.mark.parametrize("how", ["pass", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_a_check_in_ranks_is_bounded_and_goes_before_anybody_elses_runner(how: str, tmp_path: Path) -> None:
    """Each rank's might take all that was left, and where memory was short the kernel ended the finalists' runners."""
    told = doubled(
        "def custom_kernel(data):\n    return [0] * len(data[0])\n",
        files={"reference.py": ALLOCATES.replace("{how}", how)},
    )
    report = judged(tmp_path, told).told
    assert report.verdict == "wrong", report.reason
    if how != "pass":
        assert "the problem's check didn't survive this answer" in report.reason
        return
    (then, limit), (before, _) = re.findall(r"\('(-?\d+)', (-?\d+)\)", report.reason)
    assert 0 < int(limit) < check_memory.left(), "half of what is left"
    assert os.geteuid() != 0 or (then == "1000" != before)


IN_ONE = "None if data[1] else [2 * x for x in data[0]]"
FAILED = "the check failed on this output: TypeError"
ANSWERS = {
    "right": ("[2 * x for x in data[0]]", "pass", "passed", "all phases passed"),
    "none in one rank": (IN_ONE, "pass", "wrong", f"rank 1: an answer is wrong: {FAILED}"),
    "none in any": ("None", "pass", "wrong", FAILED),
    "none, and the others wait": (IN_ONE, "len(output); met(*data[1:])", "wrong", FAILED),
    "whatever it is": (
        "[2 * x for x in data[0]]",
        "raise ValueError('always')",
        "infrastructure",
        "ValueError: always",
    ),
    "short in one rank": ("[0]", "data[1] == 0 or output[5]", "wrong", "not twice"),
}


@pytest.mark.parametrize("which", ANSWERS)
def test_a_check_that_fails_in_one_rank_has_all_ranks_asked_who_is_to_blame(which: str, tmp_path: Path) -> None:
    """It asked that rank's reference alone, which waited for the others until the time limit of the run."""
    answer, check, verdict, why = ANSWERS[which]
    reference = ALONE.replace("{port}", str(free_port())).replace("{check}", check)
    told = doubled(
        f"def custom_kernel(data):\n    return {answer}\n", files={"reference.py": reference},
        config={"ranks": 2, "outputs": "check"}, limits=limits(total_s=60.0),
    )  # fmt: skip
    report = judged(tmp_path, told).told
    assert (report.verdict, why in report.reason) == (verdict, True), report.reason


OWN_FORMS = {
    "a list": "def custom_kernel(data):\n    return [2 * x for x in data[0].tolist()]\n",
    "of rank 1 alone": "def custom_kernel(data):\n    return tuple(2 * data[0]) if data[1] else 2 * data[0]\n",
    "wrong ones": "def custom_kernel(data):\n    return [3 * x for x in data[0].tolist()]\n",
}


@pytest.mark.parametrize("has_answer", [True, False])
def test_a_check_decides_in_several_ranks_what_an_answer_is(has_answer: bool, tmp_path: Path) -> None:
    """With `outputs: check`."""
    reference = ARRAYS["reference.py"].replace("(data[0] * 2 == output)", "(data[0] * 2 == list(output))")
    if not has_answer:
        reference = reference.replace("def ref_kernel", "def unused")
    for form, source in OWN_FORMS.items():
        for outputs in ("check", "reference") if has_answer else ("check",):
            told = doubled(source, files={"reference.py": reference}, config={"ranks": 2, "outputs": outputs})
            report = judged(tmp_path / f"{form} {outputs}", told).told
            right = "passed" if outputs == "check" and form != "wrong ones" else "wrong"
            assert report.verdict == right, (form, outputs, report.reason)


def beside_an_eval(folder: Path, reference: str, source: str) -> wire.Manifest:
    """A problem for two ranks with a check and no answer of its own, as it is loaded from its folder."""
    folder.mkdir()
    (folder / "reference.py").write_text(reference)
    (folder / "eval.py").write_text(
        "from submission import custom_kernel\nfrom reference import check_implementation\n"
    )
    listed = "".join(f"  - {{name: {name}, source: {name}}}\n" for name in ("reference.py", "eval.py"))
    (folder / "task.yml").write_text(
        "lang: py\nmulti_gpu: true\nconfig: {main: eval.py}\nfiles:\n"
        '  - {name: submission.py, source: "@SUBMISSION@"}\n'
        f"{listed}tests:\n  - {{world_size: 2, n: 100, seed: 1}}\nbenchmarks:\n  - {{world_size: 2, n: 200, seed: 2}}\n"
        "kbslurm: {launches: 1, calls: 3, max_calls: 3}\n"
    )
    return manifest_for(
        load(folder), token=new_job_name(), attempt=1, nonce="n0nce", mode="benchmark", gpu="cpu", source=source,
        secret_seed=SECRET,
    )  # fmt: skip


def test_ranks_may_have_a_check_alone(tmp_path: Path) -> None:
    reference = ARRAYS["reference.py"].replace("(data[0] * 2 == output)", "(data[0] * 2 == list(output))")
    reference = reference.replace("def ref_kernel", "def unused")
    for name, (form, source) in enumerate(OWN_FORMS.items()):
        report = judged(tmp_path / f"{name}", beside_an_eval(tmp_path / f"of {name}", reference, source)).told
        assert report.verdict == ("wrong" if form == "wrong ones" else "passed"), (form, report.reason)


GATHER = """
import torch


def generate_input(rank, world_size, n, seed):
    return torch.tensor([rank]).to(f"cuda:{rank}"), rank, world_size


def check_implementation(data, output):
    for n in range(data[2]):
        if output[n].item() != n:
            return False, f"rank {data[1]} has {output[n].item()} as number {n}"
    return True, ""
"""
GATHERS = """
import torch
import torch.distributed as dist


def custom_kernel(data):
    found = [torch.zeros_like(data[0]) for _ in range(data[2])]
    dist.all_gather(found, data[0])
    return found
"""


@pytest.mark.torch
@pytest.mark.usefixtures("with_torch")
@pytest.mark.parametrize(("source", "verdict"), [(GATHERS, "passed"), (GATHERS.replace("dist.all", "#"), "wrong")])
def test_tensors_gathered_from_all_ranks_are_checked(source: str, verdict: str, tmp_path: Path) -> None:
    """As KernelBot's example of that name has it."""
    report = judged(tmp_path / "run", beside_an_eval(tmp_path / "gather", GATHER, source)).told
    assert report.verdict == verdict, report.reason
