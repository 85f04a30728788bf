"""Several tests by their numbers, counted from 1."""

from __future__ import annotations

from collections.abc import Iterable


def in_words(tests: Iterable[int]) -> str:
    """`test 3`, `tests 1-4, 7`: of ascending numbers."""
    spans: list[list[int]] = []
    for n in tests:
        if spans and n == spans[-1][1] + 1:
            spans[-1][1] = n
        else:
            spans.append([n, n])
    told = ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in spans)
    return f"{'test' if len(spans) == 1 and spans[0][0] == spans[0][1] else 'tests'} {told}"
