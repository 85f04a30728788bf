"""A proxy that loses answers: it passes a call on, and hangs up instead of answering."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx

PASSED_ON = ("authorization", "content-type", "x-kbslurm-who", "x-kbslurm-mac", "x-kbslurm-sum")


class Dropping:
    """`lose` the answers of so many calls whose path ends so; `passed` counts what was passed on."""

    def __init__(self, to: str) -> None:
        self.to, self.url = to, ""
        self.losing: Counter[str] = Counter()
        self.passed: Counter[str] = Counter()

    def lose(self, end: str, calls: int = 1) -> None:
        self.losing[end] += calls


@contextmanager
def dropping(to: str) -> Iterator[Dropping]:
    """One before this service."""
    found = Dropping(to)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            size = int(self.headers.get("content-length") or 0)
            headers = {name: value for name, value in self.headers.items() if name.lower() in PASSED_ON}
            answer = httpx.request(
                self.command, found.to + self.path, content=self.rfile.read(size), headers=headers, timeout=60.0
            )
            end = self.path.rstrip("/").rpartition("/")[2]
            found.passed[end] += 1
            if found.losing[end] > 0:
                found.losing[end] -= 1
                self.close_connection = True
                return
            self.send_response(answer.status_code)
            for name in ("content-type", "x-kbslurm-mac"):
                if name in answer.headers:
                    self.send_header(name, answer.headers[name])
            self.send_header("content-length", str(len(answer.content)))
            self.end_headers()
            self.wfile.write(answer.content)

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        found.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), name="dropping")
        thread.start()
        try:
            yield found
        finally:
            server.shutdown()
            thread.join()
