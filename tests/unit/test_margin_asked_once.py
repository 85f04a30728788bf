"""How near to wrong an answer is: asked until it is known, or known not to be known."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kbslurm_eval.judge.call_checks import Answer, CallChecks
from kbslurm_eval.judge.check_mark import CheckMark
from kbslurm_eval.judge.reference import Case, Prepared, Reference
from kbslurm_eval.shared import layouts


@pytest.mark.parametrize(("found", "asked"), [(0, 3), (None, 1), (4, 1)])
def test_it_is_asked_until_it_is_told(monkeypatch: pytest.MonkeyPatch, found: int | None, asked: int) -> None:
    """Each time may take half a second that is nobody's."""
    times: list[int] = []

    def margin(*_: Any) -> int | None:
        times.append(1)
        return found

    reference = Reference.__new__(Reference)
    monkeypatch.setattr(Reference, "usual_check_s", lambda *_: 1.0)
    reference._memory = None
    monkeypatch.setattr(Reference, "check", lambda *_, **__: (True, ""))
    monkeypatch.setattr(Reference, "margin", margin)
    results = SimpleNamespace(facts={}, checked=0)
    run = SimpleNamespace(
        reference=reference, results=results, manifest=SimpleNamespace(config={}), check_mark=CheckMark()
    )
    calls = CallChecks(run)  # type: ignore[arg-type]
    layout = layouts.Layout.of(1.0)
    one = Prepared(case=Case(index=0, params={}), packed=b"", layout=layout, expected=None, exact=False)
    for _ in range(3):
        assert calls.fault_of("test", Answer(prepared=one, out=bytes(layout.size), layout=layout, there=None)) is None
    assert len(times) == asked
