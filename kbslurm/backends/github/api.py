"""The needed parts of GitHub's REST API: tokens in turn, conditional requests, back-off, redirects.

One `Api` serves one repository. It caches what it read (by ETag, so that repeating a request doesn't count towards the
limit) and each token's remaining calls; a new process starts without either.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import httpx

from kbslurm.backends.github.deadline import Deadline, TooSlow
from kbslurm.client.trust import trusted
from kbslurm.errors import BackendRefused, BackendTrouble, BackendUnclear, KbslurmError
from kbslurm.ports import LimitReport

VERSION = "2026-03-10"
OLDER = "2022-11-28"
REFUSED_TOKEN_S = 300.0
RENEW_EVERY_S = 10.0
LONGEST_BACK_OFF_S = 300.0
LONGEST_LIMIT_S = 3_600.0  # its limits are hourly, so a longer wait is a mistake and the request is repeated after this
ANSWER_CAP, ANSWER_S = 32 << 20, 60.0
FILE_S = 300.0
KEPT, KEPT_CAP = 256, 1 << 20  # how many answers, and the longest that is worth caching
TIMEOUT = httpx.Timeout(30.0, connect=10.0)


# Its secondary limits for calls that create something: how many within how many seconds.
CREATING = ((80, 60.0), (500, 3600.0))


@dataclass(kw_only=True)
class Token:
    """One token, and its limits from the last answers. Never printed."""

    text: str = field(repr=False)
    left: int = 1 << 30
    most: int = 0  # as the last answer said; 0 before the first
    resets_at: float = 0.0  # by GitHub's clock
    ready_at: float = 0.0
    why: str = ""
    limited: int = 0
    refused: bool = False


@dataclass(frozen=True, kw_only=True)
class Answer:
    """An answer that isn't a redirect, a rate limit or a server error, which are raised."""

    status: int
    data: Any
    more: bool = False
    etag: str = ""

    @property
    def said(self) -> str:
        """The API's own message."""
        found = self.data.get("message", "") if isinstance(self.data, Mapping) else ""
        return str(found)[:300]


class Api:
    """Calls one repository's API. Raises BackendTrouble (reading), BackendRefused or BackendUnclear (`act`)."""

    def __init__(
        self,
        name: str,
        *,
        url: str,
        repository: str,
        tokens: Sequence[str],
        renew: Callable[[], Sequence[str]] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.name, self.url, self.repository = name, url.rstrip("/"), repository
        self.tokens = [Token(text=text) for text in tokens]
        self._renew, self._renewed_at = renew, float("-inf")
        self.version = VERSION
        self.calls = 0
        self._monotonic, self._wall = monotonic, wall
        self._kept: dict[tuple[str, str], Answer] = {}
        self._created: list[float] = []
        self._troubles = 0
        self._quiet_until = 0.0
        self._deadline = Deadline(monotonic)
        self._client = self._deadline.over(
            httpx.Client(timeout=TIMEOUT, follow_redirects=False, verify=trusted(self.url))
        )
        # A redirect may lead to another host, which doesn't get our headers.
        self._stranger = self._deadline.over(httpx.Client(timeout=TIMEOUT, follow_redirects=False, verify=trusted()))

    def close(self) -> None:
        self._client.close()
        self._stranger.close()

    # ------------------------------------------------------------------------------------------------------- reading

    def get(self, path: str, **params: Any) -> Answer:
        """Read this path with a conditional request. 404 is a valid answer."""
        self._still()
        try:
            return self._asked("GET", path, params=params)
        except NO_ANSWER as error:
            raise self._trouble(error) from None

    def bytes_of(self, path: str, cap: int) -> bytes | None:
        """Download the file at this address, following one redirect; None if it is missing or larger than `cap`."""
        self._still()
        for _ in range(len(self.tokens) + 1):
            try:
                with self._deadline.within(FILE_S):
                    return self._file(path, cap)
            except _NotThisToken:
                continue
            except NO_ANSWER as error:
                raise self._trouble(error) from None
        raise self._all_tokens_out()

    def _file(self, path: str, cap: int) -> bytes | None:
        token = self._token()
        self.calls += 1
        with self._client.stream("GET", self._at(path), headers=self._headers(token)) as answer:
            self._note(token, answer)
            if answer.status_code == 200:
                return self._capped(answer, cap)
            if answer.status_code in (404, 410):
                return None
            if answer.status_code not in (302, 303, 307):
                said = self._capped(answer, ANSWER_CAP)
                self._look_at(token, answer.status_code, answer.headers, said or b"")
                raise _ServerTrouble(f"it answered with status {answer.status_code}")
            target = answer.url.join(answer.headers.get("location", ""))
        if urlsplit(self.url).scheme == "https" and target.scheme != "https":
            raise _ServerTrouble("its files are at an address that isn't https")
        with self._stranger.stream("GET", target) as answer:
            if answer.status_code in (404, 410):
                return None
            if answer.status_code != 200:
                raise _ServerTrouble(f"the host of its files answered with status {answer.status_code}")
            return self._capped(answer, cap)

    # -------------------------------------------------------------------------------------------------------- acting

    def act(self, method: str, path: str, body: Any = None) -> Answer:
        """Change something. BackendRefused: certainly nothing was changed; BackendUnclear: perhaps."""
        if (wait_s := self._quiet_until - self._monotonic()) > 0:
            raise BackendRefused(
                self.name, f"it had errors and isn't called for {wait_s:.0f} s", permanent=False, away=True
            )
        self._pace(method, path)
        try:
            return self._asked(method, path, body=body)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            self._trouble(error)
            said = f"it can't be reached ({type(error).__name__})"
            raise BackendRefused(self.name, said, permanent=False, away=True) from None
        except NO_ANSWER as error:
            self._trouble(error)
            raise BackendUnclear(self.name, f"{_said(error)}; it may have worked anyway") from None
        except BackendRefused:
            raise
        except BackendTrouble as error:
            raise BackendRefused(
                self.name, error.message.removeprefix(f"{self.name}: "), permanent=False, away=True, hint=error.hint
            ) from None

    # -------------------------------------------------------------------------------------------------------- inside

    def limits(self) -> list[LimitReport]:
        """What is left of GitHub's limits: of the calls an hour, by its last answers, and of those that create."""
        told = [token for token in self.tokens if token.most and not token.refused]
        found = []
        if told:
            left = sum(token.left for token in told)
            first = datetime.fromtimestamp(min(token.resets_at for token in told), UTC)
            found.append(LimitReport(what="API calls", left=left, most=sum(t.most for t in told), resets_at=first))
        now, created = self._monotonic(), list(self._created)
        for most, within_s in CREATING:
            recent = sum(1 for at in created if at > now - within_s)
            what = f"creating calls per {'minute' if within_s == 60.0 else 'hour'}"
            found.append(LimitReport(what=what, left=max(0, most - recent), most=most))
        return found

    def _pace(self, method: str, path: str) -> None:
        """GitHub counts what creates something by the minute and by the hour, tells neither, and locks out who exceeds
        them: the next one waits instead. Nothing was sent."""
        if method != "POST" or path.startswith("/actions/runs/"):  # cancelling creates nothing
            return
        now = self._monotonic()
        self._created = [at for at in self._created if at > now - 3600.0]
        for most, within_s in CREATING:
            recent = [at for at in self._created if at > now - within_s]
            if len(recent) >= most:
                wait_s = recent[-most] + within_s - now
                said = (
                    f"GitHub takes {most} creating calls in {within_s / 60:.0f} min; the next can go in {wait_s:.0f} s"
                )
                raise BackendRefused(self.name, said, permanent=False, away=True)
        self._created.append(now)

    def _asked(self, method: str, path: str, *, params: Any = None, body: Any = None) -> Answer:
        """One answer, using any token that has calls left. A refused or rate-limited token is tried at most once."""
        for _ in range(len(self.tokens) + 1):
            token = self._token()
            key = (token.text, str(httpx.URL(self._at(path), params=params or {})))
            headers = self._headers(token)
            kept = self._kept.get(key) if method == "GET" else None
            if kept is not None:
                headers["If-None-Match"] = kept.etag
            self.calls += 1
            with (
                self._deadline.within(ANSWER_S),
                self._client.stream(method, key[1], headers=headers, json=body) as answer,
            ):
                self._note(token, answer)
                said = self._capped(answer, ANSWER_CAP)
            if said is None:
                raise _ServerTrouble("its answer is too long")
            if answer.status_code == 304 and kept is not None:
                self._troubles = 0
                return kept
            if answer.status_code == 400 and self.version != OLDER and b"version" in said.lower():
                self.version = OLDER  # an older self-hosted server
                continue
            try:
                self._look_at(token, answer.status_code, answer.headers, said)
            except _NotThisToken:
                continue
            return self._read(key, answer, said)
        raise self._all_tokens_out()

    def _read(self, key: tuple[str, str], answer: httpx.Response, said: bytes) -> Answer:
        try:
            data = json.loads(said) if said.strip() else None
        except (ValueError, RecursionError):
            raise _ServerTrouble("its answer isn't valid JSON") from None
        self._troubles = 0
        more = 'rel="next"' in answer.headers.get("link", "")
        found = Answer(status=answer.status_code, data=data, more=more, etag=answer.headers.get("etag", ""))
        if found.etag and found.status == 200 and answer.request.method == "GET" and len(said) <= KEPT_CAP:
            while len(self._kept) >= KEPT:
                del self._kept[next(iter(self._kept))]
            self._kept[key] = found
        return found

    def _token(self) -> Token:
        """The usable token with the most calls left."""
        now = self._monotonic()
        ready = [token for token in self.tokens if token.ready_at <= now]
        if not ready and self._renewed(now):
            ready = list(self.tokens)
        if not ready:
            raise self._all_tokens_out()
        return max(ready, key=lambda token: token.left)

    def _renewed(self, now: float) -> bool:
        """Whether there are other tokens by now, after all of ours were rejected: somebody may have rotated them."""
        rejected = all(token.refused for token in self.tokens)
        if self._renew is None or not rejected or now < self._renewed_at + RENEW_EVERY_S:
            return False
        self._renewed_at = now
        try:
            fresh = self._renew()
        except KbslurmError:
            return False  # the rejection is what is told; a reload tells this
        if set(fresh) <= {token.text for token in self.tokens}:
            return False
        self.tokens = [Token(text=text) for text in fresh]
        return True

    def _all_tokens_out(self) -> BackendTrouble:
        first = min(self.tokens, key=lambda token: token.ready_at)
        wait_s = max(1.0, first.ready_at - self._monotonic())
        hint = "Create a new token and set GITHUB_TOKEN." if all(token.refused for token in self.tokens) else None
        return BackendTrouble(self.name, first.why, retry_after_s=wait_s, hint=hint)

    def _note(self, token: Token, answer: httpx.Response) -> None:
        told = {name: answer.headers.get(f"x-ratelimit-{name}", "") for name in ("remaining", "limit", "reset")}
        if told["remaining"].isdecimal():
            token.left = int(told["remaining"][:9])
        if told["limit"].isdecimal() and told["reset"].isdecimal():
            token.most, token.resets_at = int(told["limit"][:9]), float(told["reset"][:12])

    def _look_at(self, token: Token, status: int, headers: httpx.Headers, said: bytes) -> None:
        """Set aside a refused or rate-limited token; raise for server errors or a moved repository."""
        if status >= 500:
            raise _ServerTrouble(f"it answered with status {status}")
        if status in (301, 302, 307, 308):
            raise BackendTrouble(
                self.name,
                f"{self.repository} was renamed or isn't at {self.url}: it answered with status {status}",
                hint="Put its current name into [github] repository.",
            )
        now = self._monotonic()
        if status == 401:
            token.ready_at, token.why = (
                now + REFUSED_TOKEN_S,
                "its token was rejected: it expired, was revoked or is wrong",
            )
            token.refused = True
            raise _NotThisToken
        if status == 429 or (status == 403 and self._limits(headers, said)):
            token.limited += 1
            token.ready_at = now + min(LONGEST_LIMIT_S, self._limited_s(token, headers))
            token.why = f"its rate limit is reached, for another {token.ready_at - now:.0f} s"
            raise _NotThisToken
        token.limited, token.refused = 0, False

    def _limits(self, headers: httpx.Headers, said: bytes) -> bool:
        if "retry-after" in headers or headers.get("x-ratelimit-remaining") == "0":
            return True
        return b"rate limit" in said.lower()

    def _limited_s(self, token: Token, headers: httpx.Headers) -> float:
        after, reset = headers.get("retry-after", ""), headers.get("x-ratelimit-reset", "")
        if after.isdecimal():
            return max(1.0, float(after))
        if headers.get("x-ratelimit-remaining") == "0" and reset.isdecimal():
            return max(1.0, float(reset) - self._wall())
        return min(LONGEST_BACK_OFF_S, 60.0 * 2.0 ** min(8, token.limited - 1))

    def _still(self) -> None:
        """Back off from a failing service."""
        if (wait_s := self._quiet_until - self._monotonic()) > 0:
            raise BackendTrouble(self.name, "it had errors and isn't called for a while", retry_after_s=wait_s)

    def _trouble(self, error: Exception) -> BackendTrouble:
        self._troubles += 1
        wait_s = min(LONGEST_BACK_OFF_S, 2.0 ** min(9, self._troubles - 1)) if self._troubles > 1 else 0.0
        self._quiet_until = self._monotonic() + wait_s
        return BackendTrouble(self.name, _said(error), retry_after_s=wait_s or None)

    def _capped(self, answer: httpx.Response, cap: int) -> bytes | None:
        """The answer's body, or None over the cap."""
        found = bytearray()
        for chunk in answer.iter_bytes():
            found += chunk
            if len(found) > cap:
                return None
        return bytes(found)

    def _headers(self, token: Token) -> dict[str, str]:
        return {
            "Authorization": f"Bearer {token.text}",
            "Accept": "application/vnd.github+json",
            "X-GitHub-Api-Version": self.version,
            "User-Agent": "kbslurm",
        }

    def _at(self, path: str) -> str:
        return f"{self.url}/repos/{self.repository}{path}"


class _ServerTrouble(Exception):
    """The service gave an unexpected answer."""


class _NotThisToken(Exception):
    """Another token may work."""


NO_ANSWER = (httpx.HTTPError, httpx.InvalidURL, TooSlow, _ServerTrouble)


def _said(error: Exception) -> str:
    if isinstance(error, _ServerTrouble):
        return str(error)
    if isinstance(error, TooSlow):
        return "its answer doesn't end"
    return f"it isn't responding ({type(error).__name__})"
