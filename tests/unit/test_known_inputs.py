"""Nothing is free between two calls with the same input: the runner knows it by then."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kbslurm_eval.judge import call_checks, launch, replies
from kbslurm_eval.judge.reference import Case, Reference
from kbslurm_eval.shared.layouts import Layout
from kbslurm_eval.shared.runner_link import Kind, Status

MS = 1_000_000


class Bare(launch.Launch):
    """A launch with a submission, and no runner."""

    def __init__(self) -> None:
        self._waking, self._telling = launch.Patience(), launch.Patience(launch.TELL_FREE_NS)
        self._telling_work = launch.Patience(launch.WORK_FREE_NS, launch.WORKS_FREE)
        self._null_work = {0: launch.Patience(launch.WORK_FREE_NS, launch.WORKS_FREE)}
        for patience in (self._waking, self._telling, self._telling_work, self._null_work[0]):
            patience.end()
        self.has_submission = True
        self.clocks_ns = {7: MS}
        self.runner: Any = SimpleNamespace(clocks_ns=lambda: self.clocks_ns)


def test_being_ready_is_free_for_a_while_and_for_a_known_input_never() -> None:
    bare = Bare()
    assert bare._until_ready(MS, Kind.CALL) == 0
    bare.is_known_input = True
    assert bare._until_ready(MS, Kind.CALL) == MS
    assert bare._until_ready(MS, Kind.NULL) == 0
    bare._tells(Kind.DECLARE, 90_000, {7: MS})
    assert bare._until_told() == 90_000
    bare.is_known_input = False
    bare._tells(Kind.DECLARE, 90_000, {7: MS})
    assert bare._until_told() == 0


def test_what_is_told_before_a_call_counts_together_with_waking() -> None:
    bare = Bare()
    bare._tells(Kind.DECLARE, 30 * MS, {7: MS})
    assert bare._until_ready(MS, Kind.NULL) == 0
    assert bare._until_ready(MS, Kind.CALL) == 31 * MS - launch.WAKE_FREE_NS
    assert bare._until_ready(MS, Kind.CALL) == 0


def test_what_it_works_when_told_and_before_null_calls_counts_however_busy_the_machine_is() -> None:
    """There was nothing to warm up for, and a third of a millisecond and more for each call to work in."""
    bare, case = Bare(), SimpleNamespace(case=Case(index=0, params={}))
    bare.clocks_ns = {
        7: MS + 60_000,
        8: 15_000,
    }  # a new one has all that it ever worked, one that has gone none
    bare._tells(Kind.DECLARE, 90_000, {7: MS, 9: 50 * MS})
    assert bare._until_told() == 75_000 - launch.WORK_FREE_NS
    assert bare._until_told() == 0
    bare._tells(Kind.DECLARE, 150_000, bare.clocks_ns)
    assert bare._until_told() == 150_000 - launch.TELL_FREE_NS, "by the clock on the wall"
    bare._took_in_null(case, 20_000, {7: 60_000, 8: 15_000})  # type: ignore[arg-type]
    assert bare.null_took_ns == MS - launch.WORK_FREE_NS
    bare._took_in_null(case, 20_000, bare.clocks_ns)  # type: ignore[arg-type]
    assert bare.null_took_ns == 20_000


def test_where_nothing_was_told_before_the_submission_came_three_times_the_least_is_free() -> None:
    """Several ranks, and devices, are told other things."""
    telling = launch.Patience(launch.TELL_FREE_NS, launch.TELLS_FREE, unseen_ns=launch.TELL_FREE_NS)
    telling.end()
    assert [telling.counts(us * 1000) for us in (250, 300, 350)] == [0, 0, 50_000]


class Claims(Bare):
    """Its first answer to an input is of another type."""

    def __init__(self) -> None:
        super().__init__()
        self.granted: dict[tuple[int, str], Layout] = {}
        self.forms: dict[int, tuple[Layout, Layout]] = {}
        self.known: list[bool] = []
        self.claimed_bytes = 0

    def call(self, prepared: Any) -> replies.Reply:
        """Notes whether the input was known before."""
        self.known.append(self.is_known_input)
        status = Status.WRONG_TYPE if len(self.known) % 2 else Status.OK
        return replies.Reply(ns=MS, status=status, text="", out=b"")


def test_the_call_after_a_claim_is_one_with_a_known_input(monkeypatch: Any) -> None:
    class Asked(Reference):
        def __init__(self) -> None:
            """It only has one input."""

        def prepare(self, *args: Any, **named: Any) -> Any:
            """The same for each seed."""
            return Prepared()

        def layout_moved(self, prepared: Any) -> bool:
            """Its answers are all alike."""
            return False

        def granted(self, prepared: Any, text: str) -> Any:
            """Whatever is claimed."""
            return LAYOUT

        def in_that_form(self, told: Any, like: Any, prepared: Any) -> None:
            """Each is asked for."""

    checks = call_checks.CallChecks.__new__(call_checks.CallChecks)
    checks._run = SimpleNamespace(  # type: ignore[assignment]
        reference=Asked(), results=SimpleNamespace(called_ns=0), device_alone=False
    )
    monkeypatch.setattr(call_checks, "replace", lambda one, **changed: one)
    monkeypatch.setattr(call_checks, "Answer", lambda **named: None)
    monkeypatch.setattr(checks, "fault_of", lambda *_: None)
    claims = Claims()
    claims.costs = lambda seconds: None  # type: ignore[method-assign]
    for _ in range(2):
        fault, ns = checks.one_call("benchmark", Case(index=0, params={}), 1, claims)
        assert (fault, ns) == (None, 2 * MS)
    assert claims.known == [False, True, False, True]
    assert not claims.is_known_input


LAYOUT = SimpleNamespace(text=lambda: "a layout", size=8)


class Prepared:
    """An input."""

    layout = LAYOUT
