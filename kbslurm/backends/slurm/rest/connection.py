"""Requests to one slurmrestd: by TCP, TLS or a unix socket, with a token, in a version of its API that both know."""

from __future__ import annotations

import errno
import json
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import httpx

from kbslurm.backends.slurm.rest.token import NoToken, TokenSource
from kbslurm.domain.site import Submission

Query = Mapping[str, str | list[str]]  # a list is repeated: slurmrestd splits nothing at commas, whatever it documents
# Newest first. 24.05 has v0.0.41, 24.11 v0.0.42, 25.05 v0.0.43, 25.11 v0.0.44, 26.05 v0.0.45; each also some elders.
VERSIONS = ("v0.0.45", "v0.0.44", "v0.0.43", "v0.0.42", "v0.0.41")
CONNECT_S = 10.0
ANSWER_CAP = 256_000_000
UNIX = "unix:"
AUTHENTICATION = (401, 511)
# Slurm's own numbers for it, where slurmrestd passes on what the controller said.
BAD_TOKEN = (1007, 6000, 6001, 6002, 6003)


class Unreached(Exception):
    """Certainly nothing was done; the text says why and what to do."""


class Unanswered(Exception):
    """It may have been done: the request was sent, and no whole answer came."""

    def __init__(self, why: str, *, in_time: bool) -> None:
        self.in_time = in_time
        super().__init__(why)


@dataclass(frozen=True, kw_only=True)
class Reply:
    """An answer. `errors` are Slurm's, each a number and a text; there may be some beside a result. A field that it
    doesn't know it ignores, with one of `warnings`."""

    status: int
    data: Mapping[str, Any]
    errors: tuple[tuple[int, str], ...] = ()
    warnings: tuple[str, ...] = ()
    text: str = field(default="", repr=False)

    @property
    def complaint(self) -> str:
        """Its first error, or empty."""
        if self.errors:
            return self.errors[0][1]
        if self.status < 400:
            return ""
        return f"HTTP {self.status}{f': {self.text.strip()[:200]}' if self.text.strip() else ''}"


class Connection:
    """One site's slurmrestd. Thread-safe; what it remembers is the version that they agreed on."""

    def __init__(
        self, submit: Submission, tokens: TokenSource, *, probed: Callable[[float], None] = lambda _: None
    ) -> None:
        self._submit, self._tokens, self._probed = submit, tokens, probed
        self._version = submit.api
        self._is_known = False
        self.release = ""

    @property
    def version(self) -> str:
        """The version of the API in use; empty before the first request."""
        return self._version

    def user(self) -> str:
        """Whose jobs these are; empty if the token doesn't say."""
        try:
            return self._submit.user or self._tokens.current().user
        except NoToken:
            return self._submit.user

    def ask(
        self,
        method: str,
        path: str,
        *,
        timeout_s: float,
        query: Query | None = None,
        body: Mapping[str, Any] | None = None,
        service: str = "slurm",
    ) -> Reply:
        """One request below `/slurm/VERSION`. Unreached or Unanswered if there is no answer of Slurm's."""
        self._agree(timeout_s)
        return self._asked(method, f"/{service}/{self._version}/{path}", timeout_s, query, body)

    def _agree(self, timeout_s: float) -> None:
        """The newest version that both know, or the one that the site's file names."""
        if self._is_known:
            return
        tried = (self._submit.api,) if self._submit.api else VERSIONS
        for version in tried:
            began = time.monotonic()
            reply = self._asked("GET", f"/slurm/{version}/ping/", timeout_s, None, None)
            self._probed(time.monotonic() - began)
            if reply.status != 404:
                self._version, self._is_known = version, True
                told = reply.data.get("meta") or {}
                slurm = (told.get("slurm") or told.get("Slurm") or {}) if isinstance(told, Mapping) else {}
                self.release = str(slurm.get("release", "")) if isinstance(slurm, Mapping) else ""
                return
        if self._submit.api:
            raise Unreached(
                f"slurmrestd at {self._submit.url} doesn't know its API's version {tried[0]}; correct `api`"
            )
        raise Unreached(
            f"slurmrestd at {self._submit.url} knows no version of its API from {VERSIONS[-1]} to {VERSIONS[0]}"
            " (Slurm 24.05 or newer); use via = \"ssh\" or \"local\" there"
        )  # fmt: skip

    def _asked(
        self,
        method: str,
        path: str,
        timeout_s: float,
        query: Query | None,
        body: Mapping[str, Any] | None,
    ) -> Reply:
        if self._submit.exposes_token:
            raise Unreached(f"the token would cross the network to {self._submit.url} in clear text; use https")
        try:
            token = self._tokens.current()
        except NoToken as why:
            raise Unreached(str(why)) from None
        headers = {"X-SLURM-USER-TOKEN": token.text, "Accept": "application/json", "Connection": "close"}
        if self._submit.user:
            headers["X-SLURM-USER-NAME"] = self._submit.user
        status, raw = self._exchanged(method, path, timeout_s, query, body, headers)
        reply = _read(status, raw)
        if reply.status in AUTHENTICATION or any(number in BAD_TOKEN for number, _ in reply.errors):
            self._tokens.refused()
            raise Unreached(
                f"slurmrestd at {self._submit.url} refused the token from {self._tokens.named}"
                f" ({reply.complaint}); get a new one (scontrol token), and check `user`"
            )
        if 300 <= reply.status < 400:
            raise Unreached(f"{self._submit.url} redirects elsewhere (HTTP {reply.status}); correct `url`")
        return reply

    def _exchanged(
        self,
        method: str,
        path: str,
        timeout_s: float,
        query: Query | None,
        body: Mapping[str, Any] | None,
        headers: Mapping[str, str],
    ) -> tuple[int, bytes]:
        url, until = self._submit.url, time.monotonic() + timeout_s
        try:
            with (
                self._client(timeout_s) as client,
                client.stream(method, self._base() + path, params=query, json=body, headers=headers) as response,
            ):
                found = bytearray()
                for part in response.iter_bytes():
                    found += part
                    if len(found) > ANSWER_CAP:
                        raise Unanswered(f"slurmrestd's answer is over {ANSWER_CAP // 1_000_000} MB", in_time=True)
                    if time.monotonic() > until:
                        raise Unanswered(f"slurmrestd didn't answer in {timeout_s:.0f} s", in_time=False)
                return response.status_code, bytes(found)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise Unreached(f"slurmrestd at {url} can't be reached: {_why(error)}") from None
        except httpx.TimeoutException:
            raise Unanswered(f"slurmrestd didn't answer in {timeout_s:.0f} s", in_time=False) from None
        except httpx.HTTPError as error:
            raise Unanswered(
                f"the connection to slurmrestd broke: {str(error) or type(error).__name__}", in_time=True
            ) from None
        except (OSError, ssl.SSLError) as error:
            raise Unreached(f"slurmrestd at {url} can't be reached: {error}") from None

    def _base(self) -> str:
        return "http://localhost" if self._submit.url.startswith(UNIX) else self._submit.url.rstrip("/")

    def _client(self, timeout_s: float) -> httpx.Client:
        limits = httpx.Timeout(timeout_s, connect=min(CONNECT_S, timeout_s))
        if self._submit.url.startswith(UNIX):
            pipe = httpx.HTTPTransport(uds=self._submit.url.removeprefix(UNIX))
            return httpx.Client(transport=pipe, timeout=limits, trust_env=False)
        if urlsplit(self._submit.url).scheme != "https":
            return httpx.Client(timeout=limits, trust_env=False)
        known = ssl.create_default_context(cafile=self._submit.ca_file or None)
        return httpx.Client(verify=known, timeout=limits, trust_env=False)


def _read(status: int, raw: bytes) -> Reply:
    """Slurm's answer, or that of something before it. A success that isn't whole JSON is no answer."""
    text = raw[:2_000].decode(errors="replace")
    try:
        data = json.loads(raw)
    except (ValueError, RecursionError):
        if status < 300:
            raise Unanswered("slurmrestd's answer isn't valid JSON", in_time=True) from None
        return Reply(status=status, data={}, text=text)
    if not isinstance(data, dict):
        return Reply(status=status, data={}, text=text)
    return Reply(status=status, data=data, errors=tuple(_errors(data)), warnings=_warnings(data), text=text)


def _errors(data: Mapping[str, Any]) -> list[tuple[int, str]]:
    found = []
    for one in data.get("errors") or []:
        if isinstance(one, Mapping):
            number = one.get("error_number")
            said = str(one.get("error") or one.get("description") or f"error {number}").strip()
            found.append((number if isinstance(number, int) else 0, said[:300]))
    return found


def _warnings(data: Mapping[str, Any]) -> tuple[str, ...]:
    told = data.get("warnings") or []
    return tuple(str(one.get("description") or "")[:300] for one in told if isinstance(one, Mapping))


def _why(error: Exception) -> str:
    """httpx's words for it, without a number that nobody needs; a certificate's with what to do."""
    text = str(error)
    if "CERTIFICATE_VERIFY_FAILED" in text:
        reason = text.partition("certificate verify failed: ")[2].partition(" (_ssl")[0] or "it isn't trusted"
        return f"its certificate isn't valid here ({reason}); name its authority's file in `ca_file`"
    for number in (errno.ECONNREFUSED, errno.ENOENT, errno.EACCES, errno.EHOSTUNREACH, errno.ENETUNREACH):
        if f"[Errno {number}]" in text:
            return text.partition("] ")[2]
    return text or "no connection in time"
