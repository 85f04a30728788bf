"""`/design`: every part that pages are made of, with made-up contents, where `server.design_page` says so."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from fastapi import APIRouter, Request
from fastapi.responses import Response

from kbslurm.api.context import Context
from kbslurm.api.pages.charts.lines import Lines, Point, lines
from kbslurm.api.pages.charts.ranges import Range, Ranges, ranges
from kbslurm.api.pages.charts.strip import Strip, strip
from kbslurm.api.pages.charts.waterfall import Waterfall, waterfall
from kbslurm.api.pages.rendering import STYLE, took
from kbslurm.api.pages.visitors import Visitors
from kbslurm.domain.side_by_side import side_by_side
from kbslurm.domain.waterfall import Stage
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
            verdicts=VERDICTS, code=CODE, record=_record(), stages=_stages(), scores=_scores(), samples=_samples(),
            changed=side_by_side("blocks = 32\nrun()", "blocks = 64\nrun()\ncheck()"),
            now=datetime(2026, 1, 12, 9, 30, tzinfo=UTC),
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


def _stages() -> Waterfall:
    at = datetime(2026, 1, 12, 9, 30, tzinfo=UTC)
    return waterfall(
        [
            Stage(name="queue", ended_at=at, took_s=41.0),
            Stage(name="start", ended_at=at, took_s=12.0),
            Stage(name="run", ended_at=at, took_s=73.0),
        ]
    )


def _scores() -> Ranges | None:
    found = [
        Range(name="you", value=1.9e-3, low=1.85e-3, high=1.96e-3, score="1.90 ms"),
        Range(name="ada", value=1.62e-3, low=1.6e-3, high=1.64e-3, score="1.62 ms", kind="other"),
    ]
    return ranges(found, written=took)


def _samples() -> Strip | None:
    found = [[1.6e-3 + 1e-5 * ((7 * n + 3 * launch) % 11) for n in range(20)] for launch in range(3)]
    return strip(found, written=took, median=1.65e-3, low=1.63e-3, high=1.67e-3)
