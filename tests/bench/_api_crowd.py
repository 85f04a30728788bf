"""Those who use the API beside the one who measures: processes of their own, so that only the server is shared.

`python -m tests.bench._api_crowd watch|storm|compete` reads one line of JSON, prints a line when all is ready, and ends
with its input.
"""

from __future__ import annotations

import http.client
import itertools
import json
import re
import resource
import selectors
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from time import monotonic, perf_counter
from typing import IO, Any
from urllib.parse import urlsplit

from kbslurm.flow.queue import claim, free_slots
from kbslurm.flow.score import score
from kbslurm.flow.submit import accept
from kbslurm.store.postgres import PostgresStore
from tests.flow.puppet import Puppet, sealed_report

SOURCE = b"def custom_kernel(data):\n    return data\n" * 50
BOUNDARY = "benchboundary"
FORM = (
    f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="k.py"\r\n\r\n'.encode()
    + SOURCE
    + f"\r\n--{BOUNDARY}--\r\n".encode()
)
FORM_TYPE = f"multipart/form-data; boundary={BOUNDARY}"


def allow_many_files() -> None:
    """Raise the limit of open files, as far as this process may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 16_384)), hard))


class Crowd:
    """One of these processes, from here."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def told(self) -> Any:
        """The next line that it prints."""
        line = self._out.readline()
        assert line, "it ended early"
        return json.loads(line)

    def go(self) -> None:
        """What is waited for."""
        self._in.write("go\n")
        self._in.flush()

    def end(self) -> None:
        """It says what it found, and ends."""
        self._in.close()

    @property
    def _in(self) -> IO[str]:
        assert self._process.stdin is not None
        return self._process.stdin

    @property
    def _out(self) -> IO[str]:
        assert self._process.stdout is not None
        return self._process.stdout


@contextmanager
def crowd(what: str, **told: Any) -> Iterator[Crowd]:
    """Begin one, and wait until it is ready; it ends here."""
    command = [sys.executable, "-m", "tests.bench._api_crowd", what]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    try:
        process.stdin.write(json.dumps(told) + "\n")
        process.stdin.flush()
        found = Crowd(process)
        assert found.told() == "ready"
        yield found
    finally:
        with suppress(BrokenPipeError):
            process.stdin.close()
        process.wait(60)


def watch(url: str, page: str, count: int, headers: dict[str, str]) -> None:
    """So many open pages of a board: each follows what the page's script follows, and reads what it is sent."""
    place = urlsplit(url)
    found = re.search(r'data-live="([^"]+)"', _fetched(place.netloc, page, headers))
    assert found is not None, "the page has no stream"
    more = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    asked = f"GET {found[1].replace('&amp;', '&')} HTTP/1.1\r\nHost: {place.netloc}\r\n{more}\r\n".encode()
    reading, left = selectors.DefaultSelector(), count
    for _ in range(count):
        one = socket.create_connection((place.hostname or "", place.port or 0), 120)
        one.sendall(asked)
        one.setblocking(False)
        reading.register(one, selectors.EVENT_READ, [b""])
    over = threading.Event()
    _at_end_of_input(over)
    events = size = 0
    while not over.is_set():
        for key, _ in reading.select(0.2):
            piece = key.fileobj.recv(1 << 18)  # type: ignore[union-attr]
            assert piece, "a stream was ended"
            if key.data[0] is not None:  # until its beginning was read
                key.data[0] += piece
                if b": here" in key.data[0]:
                    assert key.data[0].startswith(b"HTTP/1.1 200"), key.data[0]
                    key.data[0] = None
                    left -= 1
                    if not left:
                        print(json.dumps("ready"), flush=True)
            events += piece.count(b"\nevent: ") + piece.startswith(b"event: ")
            size += len(piece)
    print(json.dumps({"events": events, "bytes": size}), flush=True)


def _at_end_of_input(over: threading.Event) -> None:
    def wait() -> None:
        sys.stdin.read()
        over.set()

    threading.Thread(target=wait, daemon=True).start()


def storm(url: str, path: str, count: int) -> None:
    """So many requests at once, on connections that are already open; prints how long until all were answered."""
    place = urlsplit(url)
    asked = f"GET {path} HTTP/1.1\r\nHost: {place.netloc}\r\nAccept: text/html\r\n\r\n".encode()
    ones = []
    for _ in range(count):
        one = http.client.HTTPConnection(place.hostname or "", place.port, timeout=120)
        one.request("GET", "/health")
        one.getresponse().read()
        ones.append(one)
    print(json.dumps("ready"), flush=True)
    while sys.stdin.readline().strip() == "go":
        reading, left, each = selectors.DefaultSelector(), count, []
        for one in ones:
            reading.register(one.sock, selectors.EVENT_READ, one)
        began = perf_counter()
        for one in ones:
            one.sock.sendall(asked)
        while left:
            for key, _ in reading.select(120):
                answer = http.client.HTTPResponse(key.data.sock, method="GET")
                answer.begin()
                answer.read()
                assert answer.status == 200, answer.status
                reading.unregister(key.fileobj)
                each.append(perf_counter() - began)
                left -= 1
        print(json.dumps({"whole_s": perf_counter() - began, "each_s": each}), flush=True)


def compete(url: str, database: str, path: str, tokens: list[str], per_second: float) -> None:
    """Submissions at a steady rate, by these people in turn, and a verdict for each."""
    senders = [submitter(url, path, token) for token in tokens]
    over = threading.Event()
    with PostgresStore(database) as store:
        judging = threading.Thread(target=_judge, args=(Judge(store), over))
        judging.start()
        print(json.dumps("ready"), flush=True)
        _at_end_of_input(over)
        due, sent = monotonic(), 0
        for send in itertools.cycle(senders):
            if over.wait(max(0.0, due - monotonic())):
                break
            send()
            sent += 1
            due += 1 / per_second
        judging.join()
    print(json.dumps({"sent": sent}), flush=True)


def _judge(judge: Judge, over: threading.Event) -> None:
    while not over.wait(0.05):
        judge.go()


class Judge:
    """Gives every queued run a verdict, each faster than all before."""

    def __init__(self, store: PostgresStore) -> None:
        self._store, self._done = store, 0
        self._slots = free_slots({"puppet": Puppet(slots={"H100": 4}).capacity()}, ())

    def go(self) -> None:
        while (attempt := claim(self._store.queue, self._slots, datetime.now(UTC))) is not None:
            self._done += 1
            report = sealed_report(self._store.attempts.work(attempt.id), score_s=0.05 / (1 + self._done))
            assert score(self._store, attempt, report, datetime.now(UTC))

    def next_first(self) -> None:
        """Somebody submits and takes the lead."""
        someone = self._store.people.ensure(f"leader-{self._done % 20}")
        accept(self._store.intake, someone.id, "main", "k.py", SOURCE, "leaderboard", ["H100"], datetime.now(UTC))
        self.go()


def submitter(url: str, path: str, token: str) -> Callable[[], None]:
    """Sends a file, on a connection of its own."""
    place = urlsplit(url)
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=120)
    headers = {"X-Popcorn-Cli-Id": token, "Content-Type": FORM_TYPE}

    def send() -> None:
        connection.request("POST", path, body=FORM, headers=headers)
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 202, answer.status

    return send


def _fetched(netloc: str, path: str, headers: dict[str, str]) -> str:
    connection = http.client.HTTPConnection(netloc, timeout=120)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    assert answer.status == 200, answer.status
    text = answer.read().decode()
    connection.close()
    return text


def main(asked: Sequence[str]) -> None:
    acts: dict[str, Callable[..., None]] = {"watch": watch, "storm": storm, "compete": compete}
    acts[asked[0]](**json.loads(sys.stdin.readline()))


if __name__ == "__main__":
    allow_many_files()
    main(sys.argv[1:])
