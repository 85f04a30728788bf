"""How much slower another place is with the same submissions: pairs of scores, one from home, one from there. Pure."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

from kbslurm_eval.shared.timing import t95

SHADOW = "shadow"  # `submission.via` of the shadow run; it never ranks


@dataclass(frozen=True, kw_only=True)
class Ranked:
    """A run that ranked recently and has no shadow, where it ran (`warm`: in a warm worker), and a shadow's maximum GPU
    time."""

    run: int
    submission: int
    board: str
    gpu: str
    backend: str
    gpu_s: float
    warm: bool = False


@dataclass(frozen=True, kw_only=True)
class Pair:
    """The same submission's score at home and at the other place, each with its 95 % interval."""

    home_s: float
    home_low_s: float
    home_high_s: float
    there_s: float
    there_low_s: float
    there_high_s: float


@dataclass(frozen=True, kw_only=True)
class Drift:
    """Times there are `ratio` times those at home; between `low` and `high` with 95 % confidence, from `pairs`
    pairs."""

    ratio: float
    low: float
    high: float
    pairs: int

    @property
    def is_drift(self) -> bool:
        """Whether it exceeds measurement error."""
        return not self.low <= 1 <= self.high


def drift(pairs: Sequence[Pair]) -> Drift | None:
    """The geometric mean of the ratios. Its interval uses the single measurements' uncertainty if that is larger than
    their scatter; None without a pair."""
    logs = [math.log(pair.there_s / pair.home_s) for pair in pairs if pair.there_s > 0 and pair.home_s > 0]
    if not logs:
        return None
    mean, many = sum(logs) / len(logs), len(logs)
    doubt = math.sqrt(sum(_doubt(pair) ** 2 for pair in pairs if pair.there_s > 0 and pair.home_s > 0)) / many
    if many > 1:
        spread = math.sqrt(sum((one - mean) ** 2 for one in logs) / (many - 1) / many)
        doubt = max(doubt, spread * t95(many - 1))
    return Drift(ratio=math.exp(mean), low=math.exp(mean - doubt), high=math.exp(mean + doubt), pairs=many)


def coin(run: int) -> float:
    """In [0, 1), and always the same for one run, even after another daemon takes over."""
    return int.from_bytes(hashlib.sha256(f"shadow of {run}".encode()).digest()[:8]) / 2**64


def _doubt(pair: Pair) -> float:
    """Half the 95 % interval of the logarithm of the ratio."""
    return math.hypot(_half(pair.home_low_s, pair.home_high_s), _half(pair.there_low_s, pair.there_high_s))


def _half(low_s: float, high_s: float) -> float:
    return math.log(high_s / low_s) / 2 if 0 < low_s <= high_s else 0.0
