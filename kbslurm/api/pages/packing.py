"""Whether a reader's browser takes what was compressed. Only what holds nobody's secret is compressed: the length of an
answer that has a secret beside what others choose would tell it."""

from __future__ import annotations

from fastapi import Request

PACKED = "gzip"
UNWANTED = ("q=0", "q=0.0", "q=0.00", "q=0.000")


def accepts_packed(request: Request) -> bool:
    """Whether Accept-Encoding names it, with whatever weight but none."""
    for one in request.headers.get("accept-encoding", "").lower().split(","):
        name, _, weight = one.partition(";")
        if name.strip() in (PACKED, "x-gzip"):
            return weight.replace(" ", "") not in UNWANTED
    return False
