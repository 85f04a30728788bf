"""GitHub on loopback: the part of its REST API that a repository's Actions have, with runners that do the real steps.

It answers as the API does: unknown inputs and too much of them are a 422, a missing token a 401, lists come in pages
with ETags, a dispatch is answered as the asked version does, files lie behind a redirect to another origin, which
refuses a token that was sent there. It fails on command: `fake.fail.append(Fault(...))`. As an Enterprise Server
(`enterprise`) its API is below /api/v3 and of the older version, and upload-artifact refuses it as the real one does.

`python -m tests.fakes.github --port P --dir D` serves one repository from the command line.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import secrets
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.fakes.github.expressions import filled
from tests.fakes.github.limits import Creating
from tests.fakes.github.runner import Job, parsed

REPOSITORY = "example-university/kernel-runs"
TOKEN = "ghp_a-token-of-the-test"
INPUTS_CAP = 65_535
VERSIONS = ("2022-11-28", "2026-03-10")


@dataclass
class Fault:
    """What goes wrong, `times` times, with requests of this method whose path has this pattern in it.

    `status`, `headers`, `message`: answered instead. `lose`: it is done, and the connection is cut without an answer.
    `body`: sent instead of the true bytes. `token`: only for who shows this one. `drips_s`: so long a header comes
    before the others, a byte at a time.
    """

    method: str
    path: str
    status: int = 0
    message: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    lose: bool = False
    body: bytes | None = None
    times: int = 1
    token: str | None = None
    drips_s: float = 0.0


@dataclass
class Run:
    """One workflow run."""

    id: int
    title: str
    group: str
    inputs: Mapping[str, str]
    created_at: str
    sha: str
    labels: list[str] = field(default_factory=list)
    status: str = "queued"
    conclusion: str | None = None
    updated_at: str = ""
    started_at: str | None = None
    runner: str = ""
    attempt: int = 1
    job: Job | None = None
    log: bytes = b""
    steps: list[Any] = field(default_factory=list)

    def shown(self, api: str) -> dict[str, Any]:
        return {
            "id": self.id,
            "name": "kbslurm-run",
            "display_title": self.title,
            "event": "workflow_dispatch",
            "status": self.status,
            "conclusion": self.conclusion,
            "created_at": self.created_at,
            "run_started_at": self.created_at,
            "updated_at": self.updated_at or self.created_at,
            "head_sha": self.sha,
            "head_branch": "main",
            "run_attempt": self.attempt,
            "path": ".github/workflows/kbslurm-run.yml",
            "url": f"{api}/actions/runs/{self.id}",
        }


class FakeGithub:
    """One repository, its API and its runners. Everything is done by threads of this process."""

    def __init__(
        self,
        folder: Path,
        files: Mapping[str, bytes],
        *,
        secrets_: Mapping[str, str],
        port: int = 0,
        repository: str = REPOSITORY,
        tokens: tuple[str, ...] = (TOKEN,),
        private: bool = True,
        runners: int = 4,
        labels: tuple[str, ...] = ("ubuntu-latest", "self-hosted", "h100", "cpu"),
        answers_ids: bool = True,
        knows: tuple[str, ...] = VERSIONS,
        enterprise: bool = False,
    ) -> None:
        self.folder, self.files, self.secrets = folder, dict(files), dict(secrets_)
        self.repository, self.tokens, self.private = repository, list(tokens), private
        self.labels, self.answers_ids, self.knows = labels, answers_ids, knows[:1] if enterprise else knows
        self._below = "/api/v3" if enterprise else ""
        self.fail: list[Fault] = []
        self.hold = False
        self.has_old_python = False
        self.creating = Creating()
        self.asked: list[tuple[str, str, int]] = []
        self.seen_versions: set[str] = set()
        self.runs: list[Run] = []
        self.refs: dict[str, str] = {}
        self.blobs: dict[str, bytes] = {}
        self.trees: dict[str, dict[str, str]] = {}
        self.commits: dict[str, str] = {}
        self.artifacts: list[dict[str, Any]] = []
        self.leaked: list[str] = []
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self.room = runners
        self._job_token = "ghs_" + secrets.token_hex(16)
        self._closing = False
        self.etags = 0
        self.api = _server(port, self._api)
        self.files_host = _server(0, self._storage)
        self.url = f"http://127.0.0.1:{self.api.server_address[1]}{self._below}"
        self.storage_url = f"http://127.0.0.1:{self.files_host.server_address[1]}"
        self._threads = [
            threading.Thread(target=one.serve_forever, args=(0.05,), daemon=True) for one in (self.api, self.files_host)
        ]
        self._threads.append(threading.Thread(target=self._schedule, daemon=True))
        for thread in self._threads:
            thread.start()

    # --------------------------------------------------------------------------------------------- for who uses it

    def close(self) -> None:
        """End what runs and stop serving."""
        with self._changed:
            self._closing = True
            going = [run.job for run in self.runs if run.job is not None and run.status != "completed"]
            for job in going:
                job.cancelled.set()
            self._changed.notify_all()
        give_up = time.monotonic() + 30
        while any(run.status == "in_progress" for run in self.runs) and time.monotonic() < give_up:
            time.sleep(0.02)
        for server in (self.api, self.files_host):
            server.shutdown()
            server.server_close()

    def release(self) -> None:
        """Let what was held start."""
        with self._changed:
            self.hold = False
            self._changed.notify_all()

    def run_named(self, name: str) -> Run:
        """The newest run of this attempt."""
        return next(run for run in reversed(self.runs) if run.title == f"kbslurm {name}")

    def cancel_run(self, run: Run) -> None:
        """As somebody does on the web page."""
        with self._changed:
            if run.status == "in_progress" and run.job is not None:
                run.job.cancelled.set()
            elif run.status != "completed":
                self._conclude(run, "cancelled")
            self._changed.notify_all()

    def run_again(self, run: Run) -> None:
        """As somebody presses "Re-run all jobs"."""
        with self._changed:
            run.attempt += 1
            run.status, run.conclusion, run.job, run.steps = "queued", None, None, []
            self._changed.notify_all()

    def kill_runner(self, run: Run) -> None:
        """The machine is gone in mid-run."""
        if run.job is not None:
            run.job.killed.set()

    @property
    def head(self) -> str:
        return hashlib.sha1(b"".join(k.encode() + v for k, v in sorted(self.files.items()))).hexdigest()

    # -------------------------------------------------------------------------------------------------- the schedule

    def _schedule(self) -> None:
        while True:
            with self._changed:
                if self._closing:
                    return
                started = None if self.hold else self._startable()
                if started is None:
                    self._changed.wait(timeout=0.5)
                    continue
                self.room -= 1
                started.status, started.started_at, started.updated_at = "in_progress", _now(), _now()
                started.runner = f"fake runner {started.id}"
            threading.Thread(target=self._work, args=(started,), daemon=True).start()

    def _startable(self) -> Run | None:
        if self.room <= 0:
            return None
        busy = {run.group for run in self.runs if run.status == "in_progress"}
        for run in self.runs:
            if run.status in ("queued", "pending") and run.group not in busy and set(run.labels) <= set(self.labels):
                return run
        return None

    def _work(self, run: Run) -> None:
        run.job = Job(
            run_id=run.id,
            workflow=self._workflow(),
            inputs=run.inputs,
            secrets=self.secrets,
            github={
                "token": self._job_token,
                "repository": self.repository,
                "api_url": self.url,
                "server_url": "https://github.example.edu" if self._below else "https://github.com",
                "sha": run.sha,
                "run_id": run.id,
                "run_attempt": run.attempt,
            },
            files=self.files,
            folder=self.folder / f"run-{run.id}",
            has_old_python=self.has_old_python,
            runner_name=run.runner,
            upload=lambda name, data: self._keep(run, name, data),
        )
        conclusion = "failure"
        try:
            conclusion = run.job.do()
        finally:
            with self._changed:
                run.log, run.steps = bytes(run.job.log), list(run.job.steps)
                self._conclude(run, conclusion)
                self.room += 1
                self._changed.notify_all()

    def _conclude(self, run: Run, conclusion: str) -> None:
        run.status, run.conclusion, run.updated_at = "completed", conclusion, _now()

    def _keep(self, run: Run, name: str, data: bytes) -> None:
        with self._lock:
            number = len(self.artifacts) + 1
            self.artifacts.append({"id": number, "name": name, "data": data, "run": run.id, "expired": False})

    def _workflow(self) -> dict[str, Any]:
        return parsed(self.files[".github/workflows/kbslurm-run.yml"])

    # ------------------------------------------------------------------------------------------------------- the API

    def _api(self, request: _Request) -> _Response:
        with self._lock:
            answer = self._answered(request)
            self.asked.append((request.method, request.path, answer.status))
        return answer

    def _answered(self, request: _Request) -> _Response:
        if request.path == "/_fake":
            return self._told(request.json())
        fault = self._fault(request)
        if fault is not None and fault.status:
            return _problem(fault.status, fault.message, fault.headers)
        version = request.headers.get("x-github-api-version", "")
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        if token not in (*self.tokens, self._job_token):
            return _problem(401, "Bad credentials")
        if token != self._job_token:
            self.seen_versions.add(version)
            if version not in self.knows:
                return _problem(400, f"API version {version} isn't a supported version")
        if token != self._job_token and self.creating.is_too_much(request.method, request.path):
            return _problem(403, "You have exceeded a secondary rate limit.", {"retry-after": "60"})
        prefix = f"{self._below}/repos/{self.repository}"
        if request.path != prefix and not request.path.startswith(prefix + "/"):
            return _problem(404, "Not Found")
        answer = self._route(request, request.path.removeprefix(prefix))
        if request.method == "GET" and answer.status == 200 and isinstance(answer.body, bytes):
            etag = f'W/"{hashlib.sha256(answer.body).hexdigest()[:32]}"'
            if request.headers.get("if-none-match") == etag:
                self.etags += 1
                answer = _Response(304, b"")
            answer.headers["etag"] = etag
        for name, told in (("remaining", "4000"), ("limit", "5000"), ("reset", "1893456000")):
            answer.headers.setdefault(f"x-ratelimit-{name}", told)
        if fault is not None:
            answer.lost, answer.drips_s = fault.lose, fault.drips_s
            answer.body = answer.body if fault.body is None else fault.body
        return answer

    def _told(self, what: Mapping[str, Any]) -> _Response:
        """The one call that the real service lacks: for who started this as a process."""
        self.hold, self.private = bool(what.get("hold", self.hold)), bool(what.get("private", self.private))
        self._changed.notify_all()
        return _json(200, {"hold": self.hold, "private": self.private, "runs": len(self.runs)})

    def _fault(self, request: _Request) -> Fault | None:
        for fault in self.fail:
            who = request.headers.get("authorization", "").removeprefix("Bearer ")
            if fault.method == request.method and re.search(fault.path, request.path) and fault.token in (None, who):
                fault.times -= 1
                if fault.times <= 0:
                    self.fail.remove(fault)
                return fault
        return None

    def _route(self, request: _Request, path: str) -> _Response:
        actions = path.removeprefix("/actions")
        if path == "":
            return _json(200, {"full_name": self.repository, "private": self.private, "default_branch": "main"})
        return self._git(request, path.removeprefix("/git")) if actions == path else self._actions(request, actions)

    def _actions(self, request: _Request, path: str) -> _Response:
        workflow = "/workflows/kbslurm-run.yml"
        if path == f"{workflow}/dispatches":
            return self._dispatch(request)
        if path == f"{workflow}/runs":
            before = request.query.get("created", "").removeprefix("<")
            listed = [run.shown(self._base) for run in reversed(self.runs) if not before or run.created_at < before]
            return self._pages(request, "workflow_runs", listed)
        if path == workflow and ".github/workflows/kbslurm-run.yml" in self.files:
            return _json(200, {"state": "active", "path": ".github/workflows/kbslurm-run.yml"})
        if path == "/artifacts":
            wanted = request.query.get("name")
            found = [self._artifact(one) for one in reversed(self.artifacts) if wanted in (None, one["name"])]
            return self._pages(request, "artifacts", found)
        if path == "/secrets":
            return _json(200, {"total_count": len(self.secrets), "secrets": [{"name": n} for n in self.secrets]})
        if path == "/runners":
            runner = {"name": "fake", "status": "online", "labels": [{"name": label} for label in self.labels]}
            return _json(200, {"total_count": 1, "runners": [runner]})
        kind, _, rest = path.strip("/").partition("/")
        number, _, what = rest.partition("/")
        if (kind, what) == ("artifacts", "zip"):
            return self._redirect(f"artifact/{number}")
        if (kind, what) == ("jobs", "logs"):
            return self._redirect(f"log/{number}")
        run = next((run for run in self.runs if kind == "runs" and str(run.id) == number), None)
        return _problem(404, "Not Found") if run is None else self._one_run(request, run, what)

    def _git(self, request: _Request, path: str) -> _Response:
        kind, _, rest = path.strip("/").partition("/")
        match (request.method, kind):
            case ("POST", "refs"):
                return self._make_ref(request)
            case ("DELETE", "refs"):
                if self.refs.pop(f"refs/{rest}", None) is None:
                    return _problem(422, "Reference does not exist")
                return _Response(204, b"")
            case ("POST", "blobs"):
                told = request.json()
                data = str(told["content"]).encode()
                data = base64.b64decode(data, validate=True) if told.get("encoding") == "base64" else data
                self.blobs[_blob_sha(data)] = data
                return _json(201, {"sha": _blob_sha(data)})
            case ("GET", "blobs") if rest in self.blobs:
                content = base64.encodebytes(self.blobs[rest]).decode()
                return _json(200, {"encoding": "base64", "content": content})
            case ("POST", "trees" | "commits"):
                return self._make_object(request, kind)
            case ("GET", "ref"):
                sha = self.head if rest == "heads/main" else self.refs.get(f"refs/{rest}", "")
                if sha:
                    return _json(200, {"ref": f"refs/{rest}", "object": {"type": "commit", "sha": sha}})
            case ("GET", "matching-refs"):
                return _json(200, [{"ref": ref} for ref in sorted(self.refs) if ref.startswith(f"refs/{rest}")])
            case ("GET", "trees") if rest in self.commits:
                sizes = self.trees[self.commits[rest]].items()
                tree = [{"path": n, "type": "blob", "sha": sha, "size": len(self.blobs[sha])} for n, sha in sizes]
                return _json(200, {"sha": self.commits[rest], "tree": tree, "truncated": False})
            case ("GET", "trees"):
                tree = [{"path": n, "type": "blob", "sha": _blob_sha(data)} for n, data in sorted(self.files.items())]
                return _json(200, {"sha": self.head, "tree": tree, "truncated": False})
            case _:
                pass
        return _problem(404, "Not Found")

    def _make_object(self, request: _Request, kind: str) -> _Response:
        """A tree of blobs, or a commit of a tree."""
        told, sha = request.json(), hashlib.sha1(kind.encode() + request.body).hexdigest()
        if kind == "trees":
            if any(one["sha"] not in self.blobs or one["mode"] != "100644" for one in told["tree"]):
                return _problem(422, "tree.sha isn't a valid object")
            self.trees[sha] = {one["path"]: one["sha"] for one in told["tree"]}
        elif not told.get("message") or told["tree"] not in self.trees:
            return _problem(422, "Tree SHA does not exist")
        else:
            self.commits[sha] = told["tree"]
        return _json(201, {"sha": sha})

    @property
    def _base(self) -> str:
        return f"{self.url}/repos/{self.repository}"

    def _dispatch(self, request: _Request) -> _Response:
        told = request.json()
        if set(told) - {"ref", "inputs", "return_run_details"}:
            return _problem(422, "Invalid request: an unknown key")
        if told.get("ref") not in ("main", "refs/heads/main"):
            return _problem(422, f"No ref found for: {told.get('ref')}")
        if ".github/workflows/kbslurm-run.yml" not in self.files:
            return _problem(404, "Not Found")
        workflow = self._workflow()
        declared, inputs = workflow["on"]["workflow_dispatch"]["inputs"], dict(told.get("inputs") or {})
        if strange := sorted(set(inputs) - set(declared)):
            return _problem(422, f"Unexpected inputs provided: {json.dumps(strange)}")
        if missing := [name for name, one in declared.items() if one.get("required") and not inputs.get(name)]:
            return _problem(422, f"Required input '{missing[0]}' not provided")
        if sum(map(len, inputs.values())) > INPUTS_CAP:
            return _problem(422, "inputs are too large.")
        inputs = {name: inputs.get(name, one.get("default", "")) for name, one in declared.items()}
        context = {"inputs": inputs, "github": {}}
        run = Run(
            id=1_000 + len(self.runs),
            title=filled(workflow["run-name"], context),
            group=filled(workflow["concurrency"]["group"], context),
            inputs=inputs,
            created_at=_now(),
            sha=self.head,
            labels=json.loads(inputs["labels"]),
        )
        for other in self.runs:
            # One run of a group goes, one waits; whoever waited before is cancelled.
            if other.group == run.group and other.status == "pending":
                self._conclude(other, "cancelled")
        if any(other.group == run.group and other.status != "completed" for other in self.runs):
            run.status = "pending"
        self.runs.append(run)
        self._changed.notify_all()
        if request.headers.get("x-github-api-version") == "2022-11-28" or not self.answers_ids:
            return _Response(204, b"")
        url = f"{self._base}/actions/runs/{run.id}"
        return _json(200, {"workflow_run_id": run.id, "run_url": url, "html_url": url})

    def _make_ref(self, request: _Request) -> _Response:
        told = request.json()
        ref = told["ref"]
        if not ref.startswith("refs/") or ref.count("/") < 2:
            return _problem(422, "Reference name must start with 'refs/' and contain at least three slash-parts")
        known = told["sha"] == self.head or told["sha"] in self.commits
        if not known and all(run.sha != told["sha"] for run in self.runs):
            return _problem(422, "Object does not exist")
        if ref in self.refs:
            return _problem(422, "Reference already exists")
        self.refs[ref] = told["sha"]
        return _json(201, {"ref": ref, "object": {"type": "commit", "sha": told["sha"]}})

    def _one_run(self, request: _Request, run: Run, what: str) -> _Response:
        if request.method == "POST" and what in ("cancel", "force-cancel"):
            if run.status == "completed":
                return _problem(409, "Cannot cancel a workflow run that is completed.")
            self.cancel_run(run)
            return _json(202, {})
        if request.method != "GET":
            return _problem(404, "Not Found")
        if what == "jobs":
            steps = run.steps or (run.job.steps if run.job else [])
            job = {
                "id": run.id,
                "run_id": run.id,
                "status": run.status,
                "conclusion": run.conclusion,
                "started_at": run.started_at,
                "runner_name": run.runner or None,
                "steps": [{"name": s.name, "number": s.number, "conclusion": s.conclusion} for s in steps],
            }
            return _json(200, {"total_count": 1, "jobs": [job]})
        return _json(200, run.shown(self._base))

    def _artifact(self, one: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "id": one["id"],
            "name": one["name"],
            "size_in_bytes": one.get("size", len(one["data"])),
            "expired": one["expired"],
            "workflow_run": {"id": one["run"]},
        }

    def _pages(self, request: _Request, name: str, rows: list[Any]) -> _Response:
        size, page = int(request.query.get("per_page", 30)), int(request.query.get("page", 1))
        shown = rows[(page - 1) * size : page * size]
        answer = _json(200, {"total_count": len(rows), name: shown})
        if page * size < len(rows):
            answer.headers["link"] = f'<{self.url}{request.path}?page={page + 1}>; rel="next"'
        return answer

    def _redirect(self, what: str) -> _Response:
        return _Response(302, b"", {"location": f"{self.storage_url}/{what}?sig={secrets.token_hex(8)}"})

    # ------------------------------------------------------------------------------------- where files really lie

    def _storage(self, request: _Request) -> _Response:
        if "authorization" in request.headers:
            self.leaked.append(request.headers["authorization"])
            return _problem(401, "this host is given no token")
        kind, _, number = request.path.removeprefix("/").partition("/")
        if kind == "artifact":
            return _Response(200, self.artifacts[int(number) - 1]["data"])
        run = next(run for run in self.runs if run.id == int(number))
        return _Response(200, run.log)


# ------------------------------------------------------------------------------------------------------------- HTTP


@dataclass
class _Request:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class _Response:
    status: int
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)
    lost: bool = False
    drips_s: float = 0.0


def _json(status: int, data: Any) -> _Response:
    return _Response(status, json.dumps(data).encode(), {"content-type": "application/json; charset=utf-8"})


def _problem(status: int, message: str, headers: Mapping[str, str] | None = None) -> _Response:
    answer = _json(status, {"message": message, "documentation_url": "https://docs.github.com/rest"})
    answer.headers |= headers or {}
    return answer


def _blob_sha(data: bytes) -> str:
    return hashlib.sha1(f"blob {len(data)}\0".encode() + data).hexdigest()


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _server(port: int, answer: Any) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._serve()

        def do_POST(self) -> None:
            self._serve()

        def do_DELETE(self) -> None:
            self._serve()

        def _serve(self) -> None:
            parts = urlsplit(self.path)
            length = int(self.headers.get("content-length") or 0)
            request = _Request(
                method=self.command,
                path=parts.path,
                query={key: values[-1] for key, values in parse_qs(parts.query).items()},
                headers={key.lower(): value for key, value in self.headers.items()},
                body=self.rfile.read(length),
            )
            found: _Response = answer(request)
            if found.lost:
                self.close_connection = True
                return
            self.send_response(found.status)
            if found.drips_s and not self._drip(found.drips_s):
                return
            for key, value in found.headers.items():
                self.send_header(key, value)
            if found.status not in (204, 304):
                self.send_header("content-length", str(len(found.body)))
            self.end_headers()
            if found.status not in (204, 304):
                self.wfile.write(found.body)

        def _drip(self, for_s: float) -> bool:
            """A header that hardly comes; whether whoever asked waited for its end."""
            until = time.monotonic() + for_s
            try:
                self.flush_headers()
                self.wfile.write(b"x-slow: ")
                while time.monotonic() < until:
                    self.wfile.write(b".")
                    time.sleep(0.05)
                self.wfile.write(b"\r\n")
            except OSError:
                self.close_connection = True
                return False
            return True

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    return server
