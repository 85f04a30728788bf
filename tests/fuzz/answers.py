"""What is wrong with an answer: a bug's status, an odd shape or size, or something that its reader may not see."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from tests.fuzz import values
from tests.fuzz.requests import Request, may_act_as_host
from tests.fuzz.wire import Answer, filled

LARGEST = 1 << 20
PAUSED = "submissions are paused"
OPEN_TO_ALL = ("/login", "/auth/logout")
JSON = b"application/json"


@dataclass(frozen=True, kw_only=True)
class Secret:
    """Something that only these senders may read; `by_hosts`: and hosts. With `given`, whoever sent it knows it."""

    what: str
    text: str
    readers: frozenset[str] = frozenset()
    by_hosts: bool = True

    def is_for(self, who: str) -> bool:
        return who in self.readers or (self.by_hosts and may_act_as_host(who))


def faults(request: Request, answer: Answer, secrets: Sequence[Secret], known: dict[str, str]) -> list[str]:
    """Each in a sentence; none if all is well."""
    return [
        *_status(answer),
        *_shape(request, answer),
        *_injected(answer),
        *_forged(request, answer),
        *_leaks(request, answer, secrets, known),
    ]


def _status(answer: Answer) -> list[str]:
    if answer.status < 500:
        return []
    if answer.status == 503 and PAUSED in answer.body.decode("utf-8", "replace").lower():
        return []
    return [f"status {answer.status}: {answer.body[:300]!r}"]


def _shape(request: Request, answer: Answer) -> list[str]:
    found = []
    if len(answer.body) > LARGEST:
        found.append(f"an answer of {len(answer.body):,} bytes")
    if answer.header(b"x-content-type-options") != b"nosniff" and not _of_the_server_itself(answer):
        found.append(f"status {answer.status} without the security headers")
    media = answer.header(b"content-type")
    if media.startswith(JSON) and answer.body:
        try:
            told = json.loads(answer.body)
        except ValueError:
            return [*found, "JSON that isn't"]
        if answer.status >= 400 and not (isinstance(told, dict) and isinstance(told.get("detail"), str)):
            found.append(f"an error without its sentence: {answer.body[:200]!r}")
        if not answer.body.isascii() and b"openapi" not in request.line:
            found.append("JSON that isn't ASCII")
    if media.startswith(b"text/html") and b"default-src 'none'" not in answer.header(b"content-security-policy"):
        found.append("a page without a content policy")
    return found


def _of_the_server_itself(answer: Answer) -> bool:
    """What isn't HTTP never reaches the app: uvicorn refuses it."""
    return answer.status == 400 and answer.header(b"content-type") == b"text/plain; charset=utf-8"


def _injected(answer: Answer) -> list[str]:
    found = []
    if answer.header(values.INJECTED.lower().encode()):
        found.append("a header that the request made up")
    where = answer.header(b"location")
    if where and (not where.startswith(b"/") or where.startswith((b"//", b"/\\"))):
        found.append(f"a redirect elsewhere: {where!r}")
    if answer.header(b"content-type").startswith(b"text/html") and values.XSS.encode() in answer.body:
        found.append("a page with somebody's markup in it")
    return found


def _forged(request: Request, answer: Answer) -> list[str]:
    if not request.forged or answer.status >= 400 or answer.status == 308:  # sent on to where it is checked
        return []
    path = request.line.split(b" ")[1].decode("latin-1").partition("?")[0]
    if path == "/logout" and not answer.header(b"set-cookie"):  # of nobody's session, so nothing was done
        return []
    return [] if path in OPEN_TO_ALL else [f"a forged form was taken: status {answer.status}"]


def _leaks(request: Request, answer: Answer, secrets: Sequence[Secret], known: dict[str, str]) -> list[str]:
    said = answer.body + b"\n".join(value for _, value in answer.headers)
    found = []
    for one in secrets:
        if one.text.encode() in said and not one.is_for(request.who):
            sent = filled(request, known)
            if one.text.encode() not in sent.line + sent.body:
                found.append(f"{one.what} is told to {request.who}")
    return found
