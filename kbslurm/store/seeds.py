"""Derived secret seeds."""

from __future__ import annotations

import hashlib


def derived_seed(seed: str, part: str) -> str:
    """A 128-bit seed for one part of what `seed` covers, which reveals nothing about the other parts."""
    return hashlib.sha256(f"{seed}/{part}".encode()).hexdigest()[:32]
