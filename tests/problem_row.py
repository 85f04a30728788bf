"""What trying one problem of a collection came to."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Row:
    """What one problem came to."""

    problem: str
    loads: bool
    inputs: str = ""
    reference: bool = False
    default: bool = False
    why_not: str = ""
    needs: str = ""  # what isn't here: a GPU, a library, memory
    took_s: float = 0.0


def needed(said: str) -> str:
    """What the machine lacks for it, from what was said; empty if it lacks nothing that is known."""
    if match := re.search(r"(?:No module named '([\w]+)|(\w+) isn't installed)", said):
        return f"the library {match[1] or match[2]}"
    if re.search(r"InterpreterError|triton\.\w+ has no|module 'triton", said):
        return "another version of Triton"
    device = r"cuda|\bhip\b|nccl|\bgpu\b|nvidia|rocm|implemented for 'CPU'|needs a device|scaling configuration"
    if re.search(device, said, re.IGNORECASE):
        return "a GPU"
    if re.search(r"memory", said):
        return "more memory"
    return "more time" if "timeout" in said or "took longer" in said else ""


def short(text: str) -> str:
    return " ".join(text.split())[:160]
