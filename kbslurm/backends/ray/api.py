"""The needed parts of Ray's HTTP API, with its token, a deadline for each call, and a cap for each answer."""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from kbslurm.backends.github.deadline import Deadline, TooSlow
from kbslurm.client.trust import trusted
from kbslurm.errors import BackendRefused, BackendTrouble, BackendUnclear, Misconfigured

ANSWER_CAP = 8 << 20
NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol, httpx.ProxyError)
NO_ANSWER = (httpx.HTTPError, TooSlow, OSError)
SAID_CAP = 300


@dataclass(frozen=True, kw_only=True)
class Answer:
    """An answer. `data` is its JSON, or its text where it isn't JSON."""

    status: int
    data: Any

    @property
    def said(self) -> str:
        """The last line of Ray's own words: its errors are tracebacks."""
        lines = [line for line in str(self.data).splitlines() if line.strip(" .")] if self.data else []
        return lines[-1].strip()[:SAID_CAP] if lines else ""


class Api:
    """Calls one cluster's API. Raises BackendTrouble; `post` BackendRefused or BackendUnclear."""

    def __init__(
        self,
        name: str,
        *,
        url: str,
        token: str,
        timeout_s: float,
        ca_file: Path | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name, self.url, self._timeout_s = name, url.rstrip("/"), timeout_s
        self._deadline = Deadline(monotonic)
        self._client = self._deadline.over(
            httpx.Client(
                timeout=timeout_s,
                follow_redirects=False,
                verify=_accepted(self.url, ca_file),
                headers={"Authorization": f"Bearer {token}"} if token else {},
            )
        )

    def close(self) -> None:
        self._client.close()

    def get(self, path: str) -> Answer:
        """Read this path. 404 is a valid answer; anything else but 200 is raised."""
        try:
            answer = self._asked("GET", path)
        except NO_ANSWER as error:
            raise BackendTrouble(self.name, _silence(error, self._timeout_s), hint=self._hint()) from None
        if answer.status in (200, 404):
            return answer
        if answer.status in (401, 403):
            raise BackendTrouble(self.name, f"Ray rejected the token ({answer.status})", hint=self.token_hint())
        raise BackendTrouble(self.name, f"Ray answered with status {answer.status}: {answer.said}", hint=self._hint())

    def post(self, path: str, body: Any = None) -> Answer:
        """Send this once. BackendRefused: it certainly didn't arrive, or the token was rejected. BackendUnclear: it may
        have."""
        try:
            answer = self._asked("POST", path, body)
        except NOT_SENT as error:
            said = _silence(error, self._timeout_s)
            raise BackendRefused(self.name, said, permanent=False, away=True, hint=self._hint()) from None
        except NO_ANSWER as error:
            raise BackendUnclear(self.name, _silence(error, self._timeout_s)) from None
        if answer.status in (401, 403):
            why = f"Ray rejected the token ({answer.status})"
            raise BackendRefused(self.name, why, permanent=False, away=True, hint=self.token_hint())
        return answer

    def token_hint(self) -> str:
        return "Set the token of its cluster, and run kbslurm ray check."

    def _hint(self) -> str:
        return "Run kbslurm ray check to find out."

    def _asked(self, method: str, path: str, body: Any = None) -> Answer:
        with (
            self._deadline.within(self._timeout_s),
            self._client.stream(method, self.url + path, json=body) as answer,
        ):
            found = bytearray()
            for piece in answer.iter_bytes():
                found += piece
                if len(found) > ANSWER_CAP:
                    raise httpx.DecodingError("the answer is too large")
        try:
            data = json.loads(found)
        except ValueError:
            data = found.decode(errors="replace")
        return Answer(status=answer.status_code, data=data)


def _accepted(url: str, ca_file: Path | None) -> ssl.SSLContext:
    if ca_file is None:
        return trusted(url)
    try:
        return ssl.create_default_context(cafile=str(ca_file))
    except (OSError, ssl.SSLError) as error:
        said = error.strerror or str(error)
        raise Misconfigured(f"the certificates can't be read ({said})", file=ca_file, key="ca_file") from None


def _silence(error: BaseException, timeout_s: float) -> str:
    match error:
        case TooSlow() | httpx.TimeoutException():
            return f"Ray didn't answer within {timeout_s:g} s"
        case httpx.ConnectError():
            return "Ray can't be reached"
        case _:
            return f"Ray gave no answer ({type(error).__name__})"


def mapping_of(answer: Answer) -> Mapping[str, Any]:
    """Its JSON object; empty if it is anything else."""
    return answer.data if isinstance(answer.data, Mapping) else {}
