"""A second opinion on a submission's text, for staff: what a rule-based scanner of the field finds in it.

A flag is a reason to look, never a verdict: text can be written around any rule, and what decides is what the harness
measured. `kernelguard` isn't part of kbslurm: it runs as a program of its own, on the text alone, which it never runs.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from kbslurm.errors import Misconfigured

SCANNER, OPTION = "kernelguard", "--api-mode"
PATIENCE_S = 60.0
EVIDENCE_CAP, FLAGS_CAP = 500, 100


@dataclass(frozen=True, kw_only=True)
class Flag:
    """One thing that the scanner found, and what it found it by."""

    rule: str
    severity: str
    evidence: str


@dataclass(frozen=True, kw_only=True)
class Opinion:
    """What the scanner makes of one text. `opinion` is its own word for the whole."""

    opinion: str
    flags: list[Flag]


def opinion_of(source: str, *, patience_s: float = PATIENCE_S) -> Opinion:
    """Have the scanner read this text. Misconfigured where there is none, or it gives no answer."""
    if importlib.util.find_spec(SCANNER) is None:
        raise Misconfigured(
            "kernelguard isn't installed, so nothing can be looked over", fix="pip install 'kbslurm[triage]'"
        )
    argv = [sys.executable, "-I", "-m", SCANNER, OPTION]
    try:
        done = subprocess.run(
            argv, input=source, capture_output=True, text=True, timeout=patience_s, check=False, errors="replace"
        )
    except subprocess.TimeoutExpired:
        raise Misconfigured(f"kernelguard gave no answer within {patience_s:.0f} s") from None
    return read(done.stdout)


def read(text: str) -> Opinion:
    """The scanner's answer, cut to what can be shown: it quotes the submission."""
    try:
        told = json.loads(text)
        found = told["matched_patterns"]
        flags = [
            Flag(rule=_word(f, "pattern"), severity=_word(f, "severity"), evidence=_word(f, "evidence")) for f in found
        ]
        return Opinion(opinion=_printable(str(told["classification"])), flags=flags[:FLAGS_CAP])
    except (ValueError, KeyError, TypeError, AttributeError):
        raise Misconfigured(
            "kernelguard's answer can't be read", fix="Install a release that knows --api-mode."
        ) from None


def _word(found: dict[str, Any], name: str) -> str:
    return _printable(str(found.get(name, "")))


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text[:EVIDENCE_CAP])
