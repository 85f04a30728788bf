"""A second opinion on a submission's source, for staff: the findings of an external rule-based scanner.

A flag is a reason to look, never a verdict: any rule can be worked around, and only what the harness measured decides.
`kernelguard` isn't part of kbslurm: it runs as a separate program and only reads the source, never runs it.
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
    """One finding of the scanner, with its evidence."""

    rule: str
    severity: str
    evidence: str


@dataclass(frozen=True, kw_only=True)
class Opinion:
    """The scanner's result for one file. `opinion` is its own overall classification."""

    opinion: str
    flags: list[Flag]


def opinion_of(source: str, *, patience_s: float = PATIENCE_S) -> Opinion:
    """Have the scanner read this text. Misconfigured if it isn't installed or gives no answer."""
    if importlib.util.find_spec(SCANNER) is None:
        raise Misconfigured(
            "kernelguard isn't installed, so nothing can be scanned", fix="Run: pip install 'kbslurm[triage]'"
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
    """The scanner's answer, cut to a displayable length, since it quotes the submission."""
    try:
        told = json.loads(text)
        found = told["matched_patterns"]
        flags = [
            Flag(rule=_word(f, "pattern"), severity=_word(f, "severity"), evidence=_word(f, "evidence")) for f in found
        ]
        return Opinion(opinion=_printable(str(told["classification"])), flags=flags[:FLAGS_CAP])
    except (ValueError, KeyError, TypeError, AttributeError):
        raise Misconfigured(
            "kernelguard's answer can't be read", fix="Install a release that supports --api-mode."
        ) from None


def _word(found: dict[str, Any], name: str) -> str:
    return _printable(str(found.get(name, "")))


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text[:EVIDENCE_CAP])
