"""How many times faster, as bars to both sides of one: what is twice as fast is as long as what is half as fast."""

from __future__ import annotations

import math
from collections.abc import Sequence

LEAST = 1.25  # the axis reaches at least that far to both sides


def ratio_bars(ratios: Sequence[float]) -> list[tuple[float, float]]:
    """Of each ratio where its bar begins and how wide it is, in percent; one stands in the middle."""
    reach = math.log(max([LEAST, *(max(one, 1 / one) for one in ratios)]))
    ends = [50 + 50 * math.log(one) / reach for one in ratios]
    return [(round(min(50.0, end), 2), round(abs(end - 50), 2)) for end in ends]
