"""How the API sends its answers: ASCII-only JSON, and for the OpenAPI document what each call may answer.

Answers are not built from the contract's models at run time: polls are answered far more often than anything else, and
a test checks their shape instead.
"""

from __future__ import annotations

import json
from typing import Any

from fastapi.responses import JSONResponse

from kbslurm.contract.base import Failure


class Ascii(JSONResponse):
    """ASCII-only JSON on one line, so that cutting it anywhere never splits a character."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode()


FAILURES = {
    400: "The request isn't valid, or doesn't identify its sender.",
    401: "The token is unknown or was revoked.",
    403: "Not yours, not open to you, or not now.",
    404: "Not found.",
    408: "The upload was too slow.",
    413: "The upload is too large.",
    422: "A value in the request isn't valid.",
    429: "Too many requests; `detail` says when to try again.",
    500: "The server is misconfigured or has a bug; see its log.",
    503: "Submissions are paused, or the database can't be reached.",
}


def answers(model: Any, *failures: int, status: int = 200) -> dict[int | str, dict[str, Any]]:
    """What a call may answer, for OpenAPI: its shape, and its possible failures in addition to those of every call."""
    found: dict[int | str, dict[str, Any]] = {status: {"model": model, "description": "Success."}}
    for code in sorted({*failures, 422, 429, 500, 503}):
        found[code] = {"model": Failure, "description": FAILURES[code]}
    return found
