"""One connection to the service: whom it acts for, and how answers are read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import httpx

from kbslurm.client.errors import ServerGone, is_ours, refusal, why_unreachable
from kbslurm.client.trust import trusted
from kbslurm.errors import Invalid

TIMEOUT_S = 30.0
UPLOAD_TIMEOUT_S = 60.0
SYNC_TIMEOUT_S = 150.0
# The feed sends something at least every 20 s; a longer silence means a dead connection.
FEED_SILENCE_S = 70.0


class Connection:
    """A persistent connection to one service, and who calls through it. `close` closes it."""

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        admin: str | None = None,
        timeout_s: float = TIMEOUT_S,
        trust_env: bool = False,
        _shared: httpx.Client | None = None,
        _acting: str | None = None,
        _roles: str | None = None,
    ) -> None:
        self._headers: dict[str, str] = {}
        if token:
            self._headers["X-Popcorn-Cli-Id"] = token
        if admin:
            self._headers["Authorization"] = f"Bearer {admin}"
        if _acting:
            self._headers["X-Kbslurm-Acting-For"] = _acting
        if _roles:
            self._headers["X-Kbslurm-Discord-Roles"] = _roles
        self._admin, self._url, self._timeout_s = admin, url.rstrip("/"), timeout_s
        self._http = _shared or httpx.Client(
            base_url=self._url,
            timeout=timeout_s,
            trust_env=trust_env,
            verify=trusted(self._url, trust_env=trust_env),
        )

    @property
    def url(self) -> str:
        """The service's address."""
        return self._url

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _get(self, path: str, **params: Any) -> Any:
        return self._told("GET", path, params=params)

    def _answered(
        self, method: str, path: str, *, more_headers: Mapping[str, str] | None = None, **more: Any
    ) -> httpx.Response:
        try:
            answer = self._http.request(method, path, headers={**self._headers, **(more_headers or {})}, **more)
        except httpx.HTTPError as error:
            raise self._gone(error) from error
        return self._accepted(answer)

    def _lines(self, method: str, path: str, **more: Any) -> Iterator[str]:
        """The lines of a long answer, as they come."""
        try:
            with self._http.stream(method, path, headers=self._headers, **more) as answer:
                if not answer.is_success:
                    answer.read()
                self._accepted(answer)
                yield from answer.iter_lines()
        except httpx.HTTPError as error:
            raise self._gone(error) from error

    def _gone(self, error: httpx.HTTPError) -> ServerGone:
        return ServerGone(self._url, why_unreachable(error), hint="Check that it is running, or try again soon.")

    def _accepted(self, answer: httpx.Response) -> httpx.Response:
        """The answer, unless it refuses or comes from something else."""
        if answer.is_redirect:
            where = answer.headers.get("Location", "elsewhere")
            raise ServerGone(self._url, f"it redirects to {where}", hint="Use that address, if you trust it.")
        if not answer.is_success:
            if answer.status_code < 500 and not is_ours(answer):
                kind = answer.headers.get("Content-Type", "nothing").partition(";")[0]
                raise self._stranger(f"status {answer.status_code} with {kind}")
            raise refusal(answer)
        return answer

    def _stranger(self, said: str) -> ServerGone:
        return ServerGone(self._url, f"this doesn't seem to be kbslurm: it answers {said}", hint="Check the address.")

    def _told(self, method: str, path: str, **more: Any) -> Any:
        answer = self._answered(method, path, **more)
        try:
            return answer.json()
        except ValueError:
            raise self._stranger("invalid JSON") from None

    def _act(self, path: str, wanted: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self._told("POST", path, json=wanted)
        return found


def part(text: str) -> str:
    """A text as a single path segment. Invalid if it would be none: dots would name another call."""
    if text in ("", ".", ".."):
        raise Invalid(f"there is nothing with the name {text!r}")
    return quote(text, safe="")
