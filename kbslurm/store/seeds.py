"""Secret seeds that are made of one another."""

from __future__ import annotations

import hashlib


def derived_seed(seed: str, part: str) -> str:
    """A 128-bit seed for a part of what `seed` stands for, which tells nothing about the other parts."""
    return hashlib.sha256(f"{seed}/{part}".encode()).hexdigest()[:32]
