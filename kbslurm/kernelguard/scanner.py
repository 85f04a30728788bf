"""A second opinion on a submission's source, for staff: the findings of an external rule-based scanner.

A flag is a reason to look, never a verdict: any rule can be worked around, and only what the harness measured decides.
`kernelguard` isn't part of kbslurm: it runs as a separate program and only reads the source, never runs it. It has no
secret of ours, a limit of its own on time, memory and output, and whoever waits for it loses patience.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kbslurm.errors import Misconfigured
from kbslurm.kernelguard import limited

SCANNER, OPTION = "kernelguard", "--api-mode"
INSTALL = "pip install 'kbslurm[triage]'"
PATIENCE_S = 60.0
EVIDENCE_CAP, WORD_CAP, FLAGS_CAP = 500, 80, 100
ENVIRONMENT = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "SYSTEMROOT")  # nothing else: the rest may be secret


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


def version() -> str | None:
    """The scanner's version; None if it isn't installed. Installing it is noticed without a restart."""
    if importlib.util.find_spec(SCANNER) is None:
        return None
    try:
        return importlib.metadata.version(SCANNER)
    except importlib.metadata.PackageNotFoundError:
        return ""


def not_there() -> Misconfigured:
    """What to say where it isn't installed."""
    return Misconfigured("kernelguard isn't installed, so nothing can be scanned", fix=f"Run: {INSTALL}")


def opinion_of(
    source: str,
    *,
    patience_s: float = PATIENCE_S,
    started: Callable[[subprocess.Popen[bytes]], None] = lambda _: None,
) -> Opinion:
    """Have the scanner read this text. Misconfigured if it isn't installed or gives no answer. `started` is told of its
    process, which may be killed."""
    if version() is None:
        raise not_there()
    argv = [sys.executable, "-I", limited.__file__, str(int(patience_s) + 1), SCANNER, OPTION]
    env = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
    with tempfile.TemporaryDirectory(prefix="kbslurm-triage-") as place:
        text, answer = Path(place, "source"), Path(place, "answer")
        text.write_bytes(source.encode("utf-8", "replace"))
        with text.open("rb") as given, answer.open("wb") as told:
            process = subprocess.Popen(argv, stdin=given, stdout=told, stderr=subprocess.DEVNULL, cwd=place, env=env)
        with process:
            started(process)
            try:
                process.wait(patience_s)
            except subprocess.TimeoutExpired:
                process.kill()
                raise Misconfigured(f"kernelguard gave no answer within {patience_s:.0f} s") from None
        return read(answer.read_text(encoding="utf-8", errors="replace"))


def read(text: str) -> Opinion:
    """The scanner's answer, cut to a displayable length, since it quotes the submission."""
    try:
        told = json.loads(text)
        found = told["matched_patterns"]
        flags = [
            Flag(
                rule=_word(f, "pattern", WORD_CAP),
                severity=_word(f, "severity", WORD_CAP),
                evidence=_word(f, "evidence", EVIDENCE_CAP),
            )
            for f in found[:FLAGS_CAP]
        ]
        return Opinion(opinion=_printable(str(told["classification"]), WORD_CAP), flags=flags)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise Misconfigured(
            "kernelguard's answer can't be read", fix="Install a release that supports --api-mode."
        ) from None


def _word(found: dict[str, Any], name: str, most: int) -> str:
    return _printable(str(found.get(name, "")), most)


def _printable(text: str, most: int) -> str:
    return "".join(c if c.isprintable() else " " for c in text[:most])
