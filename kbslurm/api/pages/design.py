"""`/design`: every part that pages are made of, with made-up contents, where `server.design_page` says so."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from fastapi import APIRouter, Request
from fastapi.responses import Response

from kbslurm.api.context import Context
from kbslurm.api.pages.charts.lines import Lines, Point, lines
from kbslurm.api.pages.rendering import STYLE, took
from kbslurm.api.pages.visitors import Visitors
from kbslurm.errors import NotFound

SIZES = ("tiny", "small", "body", "lead", "h3", "h2", "h1", "figure")
SPACES = ("s1", "s2", "s3", "s4", "s5", "s6", "s7")
VERDICTS = (
    "queued", "launching", "running", "passed", "wrong", "error", "timeout", "memory", "violation", "infrastructure",
    "cancelled",
)  # fmt: skip
CODE = """#include <cuda_fp16.h>

// One row per block
__global__ void scale(const half *x, half *y, float by) {
  int at = blockIdx.x * blockDim.x + threadIdx.x;
  y[at] = __float2half(2.0f * by * __half2float(x[at]));  // "exact"
}
"""
_COLOUR = re.compile(r"--([\w-]+): (#[0-9a-f]{6})")


def design_page(router: APIRouter, context: Context, visitors: Visitors) -> None:
    @router.get("/design")
    def design(request: Request) -> Response:
        """The parts that pages are made of."""
        if not context.config.server.design_page:
            raise NotFound("page", "/design")
        return visitors.page(
            request, "design.html", visitors.who(request), colours=list(_colours()), sizes=SIZES, spaces=SPACES,
            verdicts=VERDICTS, code=CODE, record=_record(), now=datetime(2026, 1, 12, 9, 30, tzinfo=UTC),
        )  # fmt: skip


def _colours() -> Iterator[str]:
    """The names of all colours, once each."""
    yield from dict.fromkeys(name for name, _ in _COLOUR.findall(str(STYLE)))


def _record() -> Lines:
    start = datetime(2026, 1, 5, 8, tzinfo=UTC)
    values = (4.1e-3, 3.2e-3, 3.1e-3, 1.9e-3, 1.62e-3)
    points = [
        Point(at=start + timedelta(hours=31 * n), value=value, said=f"{took(value)}, person {n + 1}")
        for n, value in enumerate(values)
    ]
    return lines([points], written=took, steps=True)
