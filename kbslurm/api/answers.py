"""How the API says its answers: JSON of ASCII letters only, and for the OpenAPI document what each call may answer.

Answers are not built from the contract's models at run time: a poll is answered far more often than anything else, and
its shape is held by a test instead.
"""

from __future__ import annotations

import json
from typing import Any

from fastapi.responses import JSONResponse

from kbslurm.contract.base import Failure


class Ascii(JSONResponse):
    """JSON without a character that isn't ASCII, on one line: whoever cuts it anywhere cuts no letter."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode()


FAILURES = {
    400: "The request isn't what it must be, or doesn't say who sends it.",
    401: "The token isn't known or was revoked.",
    403: "Not yours, not open to you, or not now.",
    404: "There is no such thing.",
    408: "The upload came too slowly.",
    413: "The upload is too large.",
    422: "A value of the request isn't one.",
    429: "Too much for now; `detail` says when to try again.",
    500: "The server is misconfigured, or has a bug; its log says more.",
    503: "Submissions are paused, or the database can't be reached.",
}


def answers(model: Any, *failures: int, status: int = 200) -> dict[int | str, dict[str, Any]]:
    """What a call may answer, for OpenAPI: its shape, and the failures that it can have beside those of every call."""
    found: dict[int | str, dict[str, Any]] = {status: {"model": model, "description": "As asked."}}
    for code in sorted({*failures, 422, 429, 500, 503}):
        found[code] = {"model": Failure, "description": FAILURES[code]}
    return found
