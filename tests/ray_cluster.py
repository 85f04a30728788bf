"""A real Ray on loopback: a head, workers with cores and resources of their own, and the ways in which they die.

    with RayCluster() as ray:
        node = ray.add_worker(resources={"H100": 2})
        node.kill()

Each node is a process of its own address (127.0.0.2, 127.0.0.3, …), so that Ray takes them for machines. Whatever they
start carries a mark in its environment, by which it is found and ended again, also after a test has failed. Nothing
here reaches beyond loopback or tells anybody that it is used.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx

from tests.services import RAY, RAY_CLUSTER, need

MARK = "KBSLURM_TEST_RAY"
READY_S = 120.0
LOOK_S = 0.05
OBJECT_STORE = 100_000_000
HANDED_ON = ("PATH", "LANG", "LC_ALL")


class Node:
    """A head or a worker: what was started there, found by its mark."""

    def __init__(self, mark: str, address: str, process: subprocess.Popen[bytes], log: Path) -> None:
        self.mark, self.address, self.process, self.log = mark, address, process, log

    def pids(self) -> list[int]:
        """Every process of this node."""
        return marked(self.mark)

    def kill(self) -> None:
        """The machine is gone: all its processes die by SIGKILL, jobs included."""
        self.process.kill()  # Redis writes its title over its environment
        end(self.mark)
        self.process.wait()

    def kill_ray(self) -> None:
        """Ray's own processes die by SIGKILL; what a job has started has to notice that itself."""
        found = [pid for pid in self.pids() if _is_rays(pid)]
        for pid in found:
            _signal(pid)
        self.process.wait()
        wait_until(f"the Ray of {self.address} is gone", lambda: not any(_is_rays(pid) for pid in self.pids()))


class RayCluster:
    """One cluster with token authentication. `redis`: the head keeps its state there, and a new head finds it."""

    def __init__(self, *, token: str | None = None, redis: bool = False) -> None:
        need(RAY_CLUSTER)
        self.token = token or secrets.token_hex(32)
        self.id = secrets.token_hex(6)
        self.folder = Path(tempfile.mkdtemp(prefix="kbray-", dir=_place()))
        self.port, self.dashboard_port = free_port("127.0.0.2"), free_port("127.0.0.1")
        self.redis_port = free_port("127.0.0.1") if redis else None
        self.url = f"http://127.0.0.1:{self.dashboard_port}"
        self.workers: list[Node] = []
        self.head: Node | None = None
        self.redis: Node | None = None
        self._heads = 0

    def __enter__(self) -> RayCluster:
        try:
            if self.redis_port is not None:
                self._start_redis(self.redis_port)
            self.start_head()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End everything and remove its files."""
        started = [*self.workers, *filter(None, [self.head, self.redis])]
        for node in started:
            node.process.kill()
        end(self.id)
        _end_all(f"whoever has a file of {self.folder} open has ended", lambda: holding(self.folder))
        for node in started:
            node.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    # ------------------------------------------------------------------------------------------------------- the head

    def start_head(self) -> Node:
        """A head, at the same addresses as any before it. It runs no jobs. Returns when it takes orders."""
        self._heads += 1
        (self.folder / "ray" / "ray_current_cluster").unlink(missing_ok=True)  # else it takes the workers for a head
        argv = [
            *("--head", "--node-ip-address=127.0.0.2", f"--port={self.port}", "--num-cpus=0", "--num-gpus=0"),
            *("--include-dashboard=true", "--dashboard-host=127.0.0.1", f"--dashboard-port={self.dashboard_port}"),
            *(f"--ray-client-server-port={free_port('127.0.0.2')}", f"--temp-dir={self.folder / 'ray'}"),
        ]
        self.head = self._start(f"head-{self._heads}", "127.0.0.2", argv)
        head = self.head
        self._wait(f"the head takes orders at {self.url}", head, lambda: self._get("/api/jobs/") is not None)
        # Until its own agent is there, it refuses every job.
        self._wait("the head's agent is there", head, lambda: "127.0.0.2" in self.alive())
        return head

    def kill_head(self) -> None:
        """The head's machine is gone."""
        assert self.head is not None
        self.head.kill()

    def replace_head(self) -> Node:
        """Kill it, and start a new one. Without Redis the new one knows nothing."""
        self.kill_head()
        return self.start_head()

    def _start_redis(self, port: int) -> None:
        argv = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(self.folder)]
        log = self.folder / "redis.log"
        node = self.redis = Node(self._mark("redis"), "127.0.0.1", self._process("redis", argv, log), log)

        def answers() -> bool:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(64).startswith(b"+PONG")
            return False

        self._wait("Redis answers", node, answers)

    # ---------------------------------------------------------------------------------------------------- the workers

    def add_worker(
        self,
        *,
        cpus: int = 1,
        gpus: int = 0,
        resources: Mapping[str, float] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Node:
        """A worker, of which the head knows when this returns."""
        taken = {node.address for node in self.workers}
        address = next(one for n in range(3, 250) if (one := f"127.0.0.{n}") not in taken)
        argv = [
            *(f"--address=127.0.0.2:{self.port}", f"--node-ip-address={address}"),
            *(f"--num-cpus={cpus}", f"--num-gpus={gpus}", f"--resources={json.dumps(resources or {})}"),
        ]
        node = self._start(f"worker-{address.rpartition('.')[2]}", address, argv, env or {})
        self.workers.append(node)
        self._wait(f"the worker {address} has joined", node, lambda: address in self.alive())
        return node

    def alive(self) -> set[str]:
        """The addresses of the nodes that the head takes for alive and that have an agent."""
        told = self._get("/nodes?view=summary")
        rows = told["data"]["summary"] if told else []
        return {row["ip"] for row in rows if row.get("raylet", {}).get("state") == "ALIVE" and row.get("agent")}

    def job(self, name: str) -> dict[str, Any] | None:
        """What Ray says about this job; None if it doesn't know it, or can't be reached."""
        found = self._get(f"/api/jobs/{name}")
        assert found is None or isinstance(found, dict)
        return found

    def stored(self) -> str:
        """All that whoever has the token may read of the jobs: their list, and their logs."""
        jobs = self._get("/api/jobs/") or []
        logs = [self._get(f"/api/jobs/{one['submission_id']}/logs") for one in jobs if one.get("submission_id")]
        return json.dumps([jobs, logs])

    def call(self, method: str, path: str, **told: Any) -> httpx.Response:
        """A call of Ray's API with its token."""
        return httpx.request(
            method, self.url + path, headers={"Authorization": f"Bearer {self.token}"}, timeout=30.0, **told
        )

    def _get(self, path: str) -> Any:
        try:
            answer = self.call("GET", path)
        except httpx.HTTPError:
            return None
        return answer.json() if answer.status_code == 200 else None

    # ---------------------------------------------------------------------------------------------------- processes

    def _mark(self, name: str) -> str:
        return f"{self.id}/{name}/"

    def _start(self, name: str, address: str, argv: list[str], env: Mapping[str, str] | None = None) -> Node:
        log = self.folder / f"{name}.log"
        common = [
            *("--block", "--disable-usage-stats", "--include-log-monitor=false"),
            *(f"--object-store-memory={OBJECT_STORE}", f"--dashboard-agent-listen-port={free_port(address)}"),
        ]
        process = self._process(name, [str(RAY), "start", *argv, *common], log, env)
        return Node(self._mark(name), address, process, log)

    def _process(
        self, name: str, argv: list[str], log: Path, env: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        home, temporary = self.folder / "home", self.folder / "tmp"
        for folder in (home, temporary):
            folder.mkdir(exist_ok=True)
        environment = {key: os.environ[key] for key in HANDED_ON if key in os.environ}
        environment |= {
            "HOME": str(home),  # where nobody's token is
            "TMPDIR": str(temporary),  # what is killed leaves its files there
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": self.token,
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_DISABLE_IMPORT_WARNING": "1",
            "NO_PROXY": "*",
            MARK: self._mark(name),
        }
        if self.redis_port is not None and name != "redis":
            environment["RAY_REDIS_ADDRESS"] = f"127.0.0.1:{self.redis_port}"
        with log.open("ab") as output:
            return subprocess.Popen(
                argv,
                env={**environment, **(env or {})},
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _wait(self, what: str, node: Node, holds: Callable[[], bool]) -> None:
        def held() -> bool:
            code = node.process.poll()
            assert code is None, f"it ended with {code} before {what}: {node.log.read_text()[-2_000:]}"
            return holds()

        wait_until(what, held)


# ------------------------------------------------------------------------------------------------------------- pieces


def wait_until(what: str, holds: Callable[[], bool], *, most_s: float = READY_S) -> None:
    """Look until it holds."""
    give_up = time.monotonic() + most_s
    while not holds():
        assert time.monotonic() < give_up, f"waited {most_s:g} s in vain until {what}"
        time.sleep(LOOK_S)


def _place() -> str:
    """Where temporary files go, if its path is short: that of a socket below it may have 107 characters."""
    return next(place for place in (tempfile.gettempdir(), "/tmp") if len(place) <= 20)


def free_port(address: str) -> int:
    with socket.socket() as listener:
        listener.bind((address, 0))
        return int(listener.getsockname()[1])


def marked(mark: str) -> list[int]:
    """The processes whose environment has a mark that begins so, and what these started: Ray's agents write their
    titles over their environment."""
    wanted = f"\0{MARK}={mark}".encode()
    found: set[int] = set()
    children: dict[int, list[int]] = {}
    for pid in _others():
        with contextlib.suppress(OSError):
            stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
            children.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(pid)
            if wanted in b"\0" + Path(f"/proc/{pid}/environ").read_bytes():
                found.add(pid)
    new = list(found)
    while new:
        new = [child for pid in new for child in children.get(pid, ()) if child not in found]
        found.update(new)
    return sorted(found)


def holding(folder: Path) -> list[int]:
    """The processes that have a file below this folder open: each of Ray's has its log."""
    found = []
    for pid in _others():
        with contextlib.suppress(OSError):
            for name in os.listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    if os.readlink(f"/proc/{pid}/fd/{name}").startswith(f"{folder}/"):
                        found.append(pid)
                        break
    return found


def _others() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]


def end(mark: str) -> None:
    """Kill all of them, and those that they start meanwhile, until none is left."""
    _end_all(f"all of {mark} have ended", lambda: marked(mark))


def _end_all(what: str, find: Callable[[], list[int]]) -> None:
    def none_left() -> bool:
        pids = find()
        for pid in pids:
            _signal(pid)
        return not pids

    wait_until(what, none_left)


def _signal(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _is_rays(pid: int) -> bool:
    """Whether this is a process of Ray's own, not what a job runs: its command says so."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return command.startswith((b"ray::", b"ray-")) or str(RAY.parent.parent).encode() in command
