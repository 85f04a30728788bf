"""A log by case: what the judge marks, within its caps, and what people are shown of it."""

from __future__ import annotations

import os
import select
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbslurm.domain import log_parts
from kbslurm_eval.cage.runner_log import RunnerLog
from kbslurm_eval.judge import run_log
from kbslurm_eval.judge.run_log import RunLog
from kbslurm_eval.shared.wire import LOG_CAP, LOG_PARTS_CAP, LogPart

TRACE = 'Traceback (most recent call last):\n  File "submission.py", line 3, in f\nValueError: boom\n'


def pieces(log: RunLog) -> list[tuple[str, int | None, str]]:
    found, at = list[tuple[str, int | None, str]](), 0
    for one in log.parts:
        found.append((one.phase, one.index, log.text[at : at + one.size]))
        at += one.size
    assert at == len(log.text)
    return found


def test_a_cases_pieces_come_together_and_launches_follow_each_other() -> None:
    log = RunLog()
    log.add("test", [(None, "loading\n"), (0, "a\n"), (1, ""), (2, "c\n")])
    log.add("benchmark", [(None, ""), (1, "x"), (0, "y"), (1, "z\n")])
    assert pieces(log) == [
        ("test", None, "loading\n"), ("test", 0, "a\n"), ("test", 2, "c\n"),
        ("benchmark", 1, "xz\n"), ("benchmark", 0, "y"),
    ]  # fmt: skip


def test_a_trace_stands_once_and_its_second_case_says_where() -> None:
    log = RunLog()
    log.add("test", [(0, TRACE), (1, TRACE)])
    assert pieces(log)[1] == ("test", 1, "ValueError: boom  [the trace is above]\n")


def test_a_remark_has_room_at_the_end_and_is_no_cases() -> None:
    log = RunLog()
    log.add("test", [(0, "x" * LOG_CAP), (1, "no room for this")])
    log.note("tests 1 and 2 failed")
    assert len(log.text) <= LOG_CAP
    assert pieces(log)[-1] == ("test", None, "\ntests 1 and 2 failed\n")
    assert [one.index for one in log.parts] == [0, None]


def test_whoever_takes_back_what_it_wrote_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    read_end, write_end = os.pipe()
    selected, robbed = select.select, threading.Event()

    def rob(watched: list[int], *others: Any) -> Any:
        ready = selected(watched, *others)
        if read_end in ready[0] and not robbed.is_set():
            os.read(read_end, 1 << 16)
            robbed.set()
        return ready

    monkeypatch.setattr(select, "select", rob)
    log = RunnerLog(read_end, LOG_CAP)
    os.write(write_end, b"taken back")
    assert robbed.wait(10)
    threading.Event().wait(0.1)  # it goes on to read
    said: list[int] = []
    asking = threading.Thread(target=lambda: said.append(log.written()), name="asks", daemon=True)
    asking.start()
    asking.join(5)
    os.write(write_end, b"kept")
    asking.join(5)
    os.close(write_end)
    assert (said, log.text()) == ([0], "kept")


def test_what_was_written_before_is_taken_apart_once(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []
    blocks = run_log._blocks

    def counted(text: str) -> list[tuple[bool, str]]:
        taken.append(len(text))
        return blocks(text)

    monkeypatch.setattr(run_log, "_blocks", counted)
    log = RunLog()
    log.add("test", [(None, "\n" * 50_000), *((n, f"{n}\n{TRACE}") for n in range(200))])
    assert sum(taken) < 2 * LOG_CAP
    assert log.text.count(TRACE) == 1 and log.text.count("[the trace is above]") == 199


def test_what_is_over_the_number_of_parts_is_of_no_case() -> None:
    log = RunLog()
    log.add("test", [(n, f"{n}\n") for n in range(LOG_PARTS_CAP + 50)])
    found = pieces(log)
    assert len(found) == LOG_PARTS_CAP
    assert found[-2][:2] == ("test", LOG_PARTS_CAP - 2)
    assert found[-1][1] is None and found[-1][2].endswith(f"{LOG_PARTS_CAP + 49}\n")


@given(st.lists(st.integers(1, 9), max_size=8), st.integers(0, 80))
def test_parts_are_cut_as_their_log_is(sizes: list[int], size: int) -> None:
    parts = [LogPart(phase="test", index=n, size=one) for n, one in enumerate(sizes)]
    cut = run_log.cut(parts, size)
    assert sum(one.size for one in cut) == min(size, sum(sizes)) and all(one.size > 0 for one in cut)


def test_a_runners_log_is_cut_where_it_had_written_so_much() -> None:
    """Also while nobody has read yet what is on its way, and beyond what is kept."""
    read, write = os.pipe()
    drain, cuts = RunnerLog(read, 10), []
    for text in (b"loading ", "é".encode(), b"1234567"):
        cuts.append(drain.written())
        os.write(write, text)
    cuts.append(drain.written())
    os.close(write)
    assert cuts == [0, 8, 10, 17]
    assert drain.text() == "loading é\n[7 bytes more were dropped]"
    assert drain.parts(cuts[1:]) == ["loading ", "é", "", "\n[7 bytes more were dropped]"]


def detail(**changed: Any) -> dict[str, Any]:
    told: dict[str, Any] = {
        "log": "hi\nboom\nagain\n",
        "log_parts": [part(None, 3), part(1, 5), part(0, 6, "benchmark")],
        "tests": [row("test", 0, "pass"), row("test", 1, "fail"), row("hidden", 1, "pass")],
        "benchmarks": [row("benchmark", 0, "skipped")],
    }
    return {**told, **changed}


def part(index: int | None, size: int, phase: str = "test") -> dict[str, Any]:
    return {"phase": phase, "index": index, "size": size}


def row(phase: str, index: int, status: str) -> dict[str, Any]:
    return {"phase": phase, "index": index, "status": status, "spec": f"n: {index}", "message": ""}


def test_people_see_each_cases_log_with_its_outcome() -> None:
    found = log_parts.by_case(detail())
    assert [(one.title, one.status, one.text, one.failed) for one in found] == [
        ("tests, outside of their cases", None, "hi\n", False),
        ("test 2 (n: 1)", "fail", "boom\n", True),
        ("benchmark 1 (n: 0)", "skipped", "again\n", False),
    ]


def test_a_log_without_marks_is_one_block_and_an_empty_one_none() -> None:
    old = detail()
    del old["log_parts"]
    assert [(one.title, one.text) for one in log_parts.by_case(old)] == [("", old["log"])]
    assert [one.text for one in log_parts.by_case(detail(log="cut"))] == ["cut"]
    assert log_parts.by_case(detail(log=" \n", log_parts=[part(0, 2)])) == []
