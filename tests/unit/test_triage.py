"""The scanner's answer is read with care, and its absence is said plainly."""

from __future__ import annotations

import importlib.util
import json

import pytest

from kbslurm.errors import Misconfigured
from kbslurm.kernelguard import scanner

ANSWER = {
    "matched_patterns": [{"pattern": "TIMER_MONKEYPATCH", "severity": "critical", "evidence": "a\x1b[2J\nb" * 400}],
    "classification": "hacked",
    "should_filter": True,
}


def test_flags_carry_their_evidence_cut_and_printable() -> None:
    found = scanner.read(json.dumps(ANSWER))
    (flag,) = found.flags
    assert (found.opinion, flag.rule, flag.severity) == ("hacked", "TIMER_MONKEYPATCH", "critical")
    assert flag.evidence.isprintable()
    assert 0 < len(flag.evidence) <= scanner.EVIDENCE_CAP


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", '{"matched_patterns": 7, "classification": "x"}'])
def test_any_other_answer_is_one_sentence(text: str) -> None:
    with pytest.raises(Misconfigured, match="can't be read"):
        scanner.read(text)


def test_without_the_scanner_the_way_to_it_is_told() -> None:
    if importlib.util.find_spec(scanner.SCANNER) is not None:
        found = scanner.opinion_of("import torch\ntorch.cuda.Event.elapsed_time = lambda *a: 0.001\n")
        assert any("TIMER" in flag.rule for flag in found.flags)
        return
    with pytest.raises(Misconfigured) as caught:
        scanner.opinion_of("pass\n")
    assert "triage" in str(caught.value.hint or caught.value.fix)
