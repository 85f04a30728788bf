"""popcorn-cli's manners, from the contract: one connection, never tried again, strict JSON, one failed poll ends it.

No User-Agent; an upload's part has a file name and no Content-Type; board and mode are lower-cased, the GPU is not.
"""

from __future__ import annotations

import codecs
import http.client
import json
import threading
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode, urlsplit

UPLOAD_S, ADMIN_S, GPUS_S, STREAM_S, GET_S = 60, 30, 120, 3600, 30
BOUNDARY = "popcornboundary7d1f"
BAD = ("failed", "timed_out", "hacked")


class ClientDied(AssertionError):
    """The client printed this and ended."""

    def __init__(self, said: str, status: int | None = None) -> None:
        super().__init__(said)
        self.said, self.status = said, status


@dataclass(frozen=True)
class Answer:
    """What came back, unread."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """As serde reads it: UTF-8, no NaN, no twice-named field."""
        return json.loads(self.body.decode("utf-8"), parse_constant=_refused, object_pairs_hook=_single)

    def good(self) -> Any:
        """The JSON of a success; whatever else ends the client with the server's `detail`."""
        if 200 <= self.status < 300:
            return self.json()
        told = self.json()
        if set(told) != {"detail"} or not isinstance(told["detail"], str):
            raise ClientDied(f"an error of another shape: {self.body!r}", self.status)
        raise ClientDied(told["detail"], self.status)


@dataclass
class Popcorn:
    """One installed client with its ~/.popcorn.yaml and, for hosts, the admin token."""

    url: str
    cli_id: str | None = None
    admin: str | None = None
    poll_s: float = 0.2
    _connection: http.client.HTTPConnection | None = field(default=None, repr=False)

    # --------------------------------------------------------------------------------------------- commands

    def leaderboards(self) -> list[dict[str, Any]]:
        found = self.call("GET", "/leaderboards").good()
        assert isinstance(found, list)
        for row in found:
            for name, kind in (("name", str), ("description", str), ("task", dict)):
                assert type(row[name]) is kind, f"{name} of {row}"
            assert len(row["name"].encode()) == len(row["name"])
        return found

    def gpus(self, board: str) -> list[str]:
        found = self.call("GET", f"/gpus/{board}", timeout=GPUS_S).good()
        assert isinstance(found, list) and all(type(one) is str and one.isascii() for one in found)
        return found

    def submit(self, board: str, gpu: str, mode: str, name: str, source: bytes) -> int:
        """Send it; the number to poll."""
        path = f"/submission/{board.lower()}/{gpu}/{mode.lower()}"
        answer = self.upload(path, name, source)
        told = answer.good()
        assert answer.status == 202 and told["status"] == "accepted"
        assert type(told["details"]["id"]) is int
        check_queue(told["runner_queue"])
        return int(told["details"]["id"])

    def wait(self, number: int) -> dict[str, Any]:
        """Poll to the end. The client dies at the first poll that fails, and at a job that did."""
        while True:
            told = self.show(number)
            if told["job"]["status"] in BAD:
                raise ClientDied(told["job"]["error"] or "")
            if told["done"]:
                return told
            check_queue(told["runner_queue"])
            threading.Event().wait(self.poll_s)

    def show(self, number: int) -> dict[str, Any]:
        told = self.call("GET", f"/user/submissions/{number}").good()
        check_submission(told)
        assert isinstance(told, dict)
        return told

    def submissions(self, board: str, limit: int = 10) -> list[dict[str, Any]]:
        found = self.call("GET", f"/user/submissions?{urlencode({'leaderboard': board, 'limit': limit})}").good()
        assert isinstance(found, list)
        for row in found:
            assert type(row["id"]) is int and type(row["done"]) is bool
            assert all(type(run["gpu_type"]) is str for run in row["runs"])
        return found

    def delete(self, number: int) -> None:
        self.show(number)
        told = self.call("DELETE", f"/user/submissions/{number}").good()
        assert told["status"] == "ok"

    def join(self, code: str) -> list[str]:
        told = self.call("POST", "/user/join", {"code": code}).good()
        assert told["status"] == "ok"
        return list(told["leaderboards"])

    def register(self, provider: str = "discord") -> str:
        """The state becomes the cli_id at once."""
        told = self.call("GET", f"/auth/init?provider={provider}").good()
        assert type(told["state"]) is str
        self.cli_id = told["state"]
        return self.cli_id

    def stream(
        self, board: str, gpu: str, mode: str, name: str, source: bytes
    ) -> Generator[tuple[str, dict[str, Any]], None, None]:
        """A submission's events, each as (name, data). Only an empty line made of two \\n ends one."""
        connection = self._opened(STREAM_S)
        body, headers = self._multipart(name, source)
        connection.request("POST", f"/{board.lower()}/{gpu}/{mode.lower()}", body=body, headers=headers)
        answer = connection.getresponse()
        if answer.status != 200:
            Answer(answer.status, {}, answer.read()).good()
        assert answer.headers["content-type"].startswith("text/event-stream")
        text = ""
        try:
            while piece := answer.read1(65_536):
                # Each piece off the wire is decoded by itself: a letter of two bytes would break here.
                text += codecs.decode(piece, "ascii")
                assert "\r" not in text
                while "\n\n" in text:
                    event, text = text.split("\n\n", 1)
                    yield _event(event)
        finally:
            self.hang_up()
        assert text == ""

    def profile_brev(self, board: str, name: str, source: bytes, *, index: int | str | None = None) -> dict[str, Any]:
        """`--profile-brev`: a service of its own, which is told no GPU."""
        fields = {"leaderboard": board, **({} if index is None else {"benchmark_index": str(index)})}
        told = self.upload("/profile", name, source, fields).good()
        assert type(told["job_id"]) is str
        assert isinstance(told, dict)
        return told

    def profiled(self, job: str) -> dict[str, Any]:
        """Poll a profile to its end."""
        while True:
            told = self.call("GET", f"/jobs/{job}").good()
            assert told["queue_position"] is None or type(told["queue_position"]) is int
            if told["status"] in ("failed", "timed_out"):
                raise ClientDied(told["error"] or "")
            if told["status"] == "succeeded":
                assert all(type(one["name"]) is str and type(one["url"]) is str for one in told["artifacts"])
                assert isinstance(told, dict)
                return told
            threading.Event().wait(self.poll_s)

    # ---------------------------------------------------------------------------------------------- the wire

    def host(self, method: str, path: str, body: Any = None) -> Any:
        """An admin call."""
        return self.call(method, path, body, timeout=ADMIN_S, admin=True).good()

    def call(self, method: str, path: str, body: Any = None, *, timeout: float = GET_S, admin: bool = False) -> Answer:
        headers = {"Accept": "*/*"}
        if admin:
            headers["Authorization"] = f"Bearer {self.admin}"
        elif self.cli_id is not None:
            headers["X-Popcorn-Cli-Id"] = self.cli_id
        sent = None
        if body is not None:
            sent, headers["Content-Type"] = json.dumps(body).encode(), "application/json"
        return self._sent(method, path, sent, headers, timeout)

    def upload(self, path: str, name: str, source: bytes, fields: Mapping[str, str] | None = None) -> Answer:
        body, headers = self._multipart(name, source, fields)
        return self._sent("POST", path, body, headers, UPLOAD_S)

    def hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _sent(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str], timeout: float) -> Answer:
        connection = self._opened(timeout)
        try:
            connection.request(method, path, body=body, headers=dict(headers))
            answer = connection.getresponse()
            found = Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
        except (OSError, http.client.HTTPException) as error:
            raise ClientDied(f"error sending request: {error!r}") from error
        if found.headers.get("connection", "").lower() == "close":
            self.hang_up()
        return found

    def _opened(self, timeout: float) -> http.client.HTTPConnection:
        if self._connection is None:
            place = urlsplit(self.url)
            self._connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=timeout)
            self._connection.auto_open = 0
            self._connection.connect()
        if self._connection.sock is not None:
            self._connection.sock.settimeout(timeout)
        return self._connection

    def _multipart(
        self, name: str, source: bytes, fields: Mapping[str, str] | None = None
    ) -> tuple[bytes, dict[str, str]]:
        head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'
        headers = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}
        if self.cli_id is not None:
            headers["X-Popcorn-Cli-Id"] = self.cli_id
        more = "".join(
            f'\r\n--{BOUNDARY}\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{value}'
            for key, value in (fields or {}).items()
        )
        return head.encode() + source + f"{more}\r\n--{BOUNDARY}--\r\n".encode(), headers


def check_queue(told: Any) -> None:
    """RQ as the client reads it."""
    assert type(told) is dict, "runner_queue is wanted while waiting"
    assert type(told["runner"]) is str and type(told["gpu"]) is str
    for name in ("queued_jobs", "running_jobs", "available_runners"):
        assert told[name] is None or type(told[name]) is int
    assert told["status"] in ("available", "unavailable")
    assert told["error"] is None or type(told["error"]) is str


def check_submission(told: Any) -> None:
    """A poll's answer as the client reads it."""
    kinds = {"id": int, "leaderboard_id": int, "leaderboard_name": str, "file_name": str, "user_id": str, "code": str}
    for name, kind in {**kinds, "submission_time": str, "done": bool, "runs": list, "job": dict}.items():
        assert type(told[name]) is kind, f"{name}: {told[name]!r}"
    job = told["job"]
    assert job["status"] in ("pending", "running", "succeeded", *BAD)
    assert job["error"] is None or type(job["error"]) is str
    assert "runner_queue" in told
    for run in told["runs"]:
        for name, kind in {"mode": str, "secret": bool, "runner": str, "passed": bool, "result": dict}.items():
            assert type(run[name]) is kind, f"{name}: {run[name]!r}"
        assert all(type(k) is str and type(v) is str for k, v in run["result"].items())
        if run["score"] is not None:
            assert type(run["score"]) is str and "e" not in run["score"].lower() and float(run["score"]) > 0
        if run["secret"]:
            assert run["score"] is None and run["result"] == {}


def _event(text: str) -> tuple[str, dict[str, Any]]:
    name, data = text.split("\n")
    assert name.startswith("event: ") and data.startswith("data: "), text
    told = json.loads(data.removeprefix("data: "), parse_constant=_refused, object_pairs_hook=_single)
    assert isinstance(told, dict)
    return name.removeprefix("event: "), told


def _refused(word: str) -> Any:
    raise ValueError(f"{word} is no JSON")


def _single(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    assert len(found) == len(pairs), "a field stands twice"
    return found
