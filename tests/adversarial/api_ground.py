"""A service that may be attacked: `kbslurm api` in a process of its own on real Postgres, so that its memory and its
log are its own. Everything goes to loopback."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import httpx

from kbslurm.config import shared_folders
from kbslurm.domain.access import Role
from kbslurm.problems import loading
from kbslurm.store.postgres import PostgresStore
from kbslurm.store.views import Person

Size = Literal["small", "full"]
PATIENCE_S = 120.0
ADMIN, BOT = "the-hosts-own-token", "the-bots-own-token"
BOARD = "transpose"
# What somebody else on this machine calls from: limits by address must not make them pay.
ELSEWHERE = "127.0.0.9"
GOOD = b"def custom_kernel(data):\n    return data\n"


@dataclass
class Account:
    """Somebody with a token and a browser's session."""

    person: Person
    token: str
    session: str

    @property
    def as_host(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    @property
    def as_author(self) -> dict[str, str]:
        return {"X-Popcorn-Cli-Id": self.token}

    @property
    def browser(self) -> dict[str, str]:
        return {"Cookie": f"kbslurm_session={self.session}", "Accept": "text/html"}


@dataclass
class Ground:
    """The service, what attacks it, and what they gained."""

    url: str
    store: PostgresStore
    process: subprocess.Popen[bytes]
    log: Path
    size: Size = "small"
    faults: list[str] = field(default_factory=list)
    figures: dict[str, float] = field(default_factory=dict)

    @property
    def where(self) -> tuple[str, int]:
        host, port = self.url.removeprefix("http://").split(":")
        return host, int(port)

    def n(self, small: int, full: int) -> int:
        """How many, at this size."""
        return small if self.size == "small" else full

    def fault(self, what: str) -> None:
        """Something that the attack gained."""
        self.faults.append(what)

    def account(self, name: str, role: Role = "participant") -> Account:
        person = self.store.people.ensure(name, role)
        self.store.people.unban(person.id)
        token = self.store.tokens.issue(person.id, device="laptop")
        return Account(person, token, self.store.tokens.issue(person.id, kind="web", device="browser"))

    def client(self, **how: object) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=PATIENCE_S, **how)  # type: ignore[arg-type]

    def elsewhere(self) -> httpx.Client:
        """A client at another address than the attacker's."""
        return httpx.Client(
            transport=httpx.HTTPTransport(local_address=ELSEWHERE), base_url=self.url, timeout=PATIENCE_S
        )

    def socket(self) -> socket.socket:
        return socket.create_connection(self.where, timeout=PATIENCE_S)

    def peak_mib(self, act: Callable[[], None]) -> float:
        """How much the service's memory grew at most while this was done."""
        before = self._memory("VmRSS")
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")
        act()
        return self._memory("VmHWM") - before

    def _memory(self, name: str) -> float:
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) / 1024
        raise AssertionError(f"/proc doesn't tell {name}")

    def bugs(self) -> float:
        """How often the service counted a bug of its own."""
        with self.client(headers={"Authorization": f"Bearer {ADMIN}"}) as host:
            lines = host.get("/metrics").text.splitlines()
        return next(
            float(line.split()[-1]) for line in lines if line.startswith('kbslurm_api_trouble_total{kind="bug"}')
        )

    def answers_s(self, client: httpx.Client, path: str = "/leaderboards", times: int = 5) -> list[float]:
        """How long each of a few polls takes."""
        took = []
        for _ in range(times):
            began = time.perf_counter()
            answer = client.get(path)
            took.append(time.perf_counter() - began)
            if answer.status_code != 200:
                self.fault(f"{path} answered {answer.status_code}: {answer.text[:200]}")
        return took

    def sockets(self) -> int:
        """How many connections the service has open. Whoever reads nothing can't see an end that comes after what is
        still unread, and reading it would be what the attack doesn't do."""
        port = f":{urlsplit(self.url).port:04X}"
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        return sum(row[1].endswith(port) and row[3] in ("01", "08") for row in rows)

    def sockets_left(self, but: int, patience_s: float) -> int:
        """How many more than that are open once so much time has passed; 0 as soon as there are none."""
        until = time.monotonic() + patience_s
        while (left := self.sockets() - but) > 0 and time.monotonic() < until:
            time.sleep(0.5)
        return max(0, left)

    def must_answer(self, why: str) -> None:
        """Somebody else must still be served: /health, a poll, and a host."""
        try:
            with self.elsewhere() as other:
                for path, headers in (
                    ("/health", {}),
                    ("/leaderboards", {}),
                    ("/admin/stats", {"Authorization": f"Bearer {ADMIN}"}),
                ):
                    answer = other.get(path, headers=headers)
                    if answer.status_code != 200:
                        self.fault(f"{why}: {path} answers {answer.status_code} to others")
        except httpx.HTTPError as error:
            self.fault(f"{why}: others get no answer ({error!r})")

    def check_log(self) -> None:
        """Each line of the log is JSON, and none is a bug."""
        for line in self.log.read_text(errors="replace").splitlines():
            try:
                told = json.loads(line)
            except ValueError:
                self.fault(f"a line of the log isn't JSON: {line[:200]}")
                return
            if told.get("what") == "a bug" or "traceback" in told or told.get("level") == "error":
                self.fault(f"the log has a bug: {line[:400]}")
                return


@contextmanager
def attacked(url: str, folder: Path, *, size: Size) -> Iterator[Ground]:
    """The service on this database, with one board; stopped at the end."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    folder.mkdir(parents=True, exist_ok=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config, log = folder / "kbslurm.toml", folder / "api.log"
    config.write_text(
        f"[server]\nlisten = '127.0.0.1:{port}'\n[github]\nclient_id = 'Iv1.1'\n[daemon]\nstate_dir = '{folder}'\n"
        "[daemon.local]\nname = 'local'\nslots = { H100 = 1 }\n"
    )
    env = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("KBSLURM_", "PG"))},
        "KBSLURM_CONFIG": str(config),
        "DATABASE_URL": url,
        "POPCORN_ADMIN_TOKEN": ADMIN,
        "KBSLURM_BOT_TOKEN": BOT,
        "CLI_GITHUB_CLIENT_SECRET": "s" * 20,
    }
    with PostgresStore(url) as store, log.open("wb") as out:
        if store.boards.find(BOARD) is None:
            store.boards.add(BOARD, loading.load(shared_folders.path("examples") / BOARD), gpus=("H100",))
        argv = [sys.executable, "-m", "kbslurm", "api", "--log-json"]
        process = subprocess.Popen(argv, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        try:
            ground = Ground(url=f"http://127.0.0.1:{port}", store=store, process=process, log=log, size=size)
            _await(ground)
            yield ground
        finally:
            process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(30)
            process.kill()
            process.wait()
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _await(ground: Ground) -> None:
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until and ground.process.poll() is None:
        with suppress(httpx.HTTPError), ground.client() as client:
            if client.get("/health").status_code == 200:
                return
        time.sleep(0.1)
    raise AssertionError(f"the service didn't start: {ground.log.read_text()}")


@contextmanager
def many(ground: Ground, count: int, say: Callable[[int], bytes]) -> Iterator[list[socket.socket]]:
    """So many connections, each with these bytes sent, held until the end. Those that were refused are missing."""
    held: list[socket.socket] = []
    try:
        for number in range(count):
            with suppress(OSError):
                found = ground.socket()
                held.append(found)
                found.sendall(say(number))
        yield held
    finally:
        for one in held:
            one.close()


def ended(held: list[socket.socket], patience_s: float) -> int:
    """How many of these the service has ended once so much time has passed, or all of them."""
    until, over = time.monotonic() + patience_s, set[int]()
    while len(over) < len(held) and time.monotonic() < until:
        for number, one in enumerate(held):
            if number not in over and _is_over(one):
                over.add(number)
        time.sleep(0.2)
    return len(over)


def _is_over(one: socket.socket) -> bool:
    one.setblocking(False)
    try:
        while one.recv(1 << 16):
            pass
        return True
    except BlockingIOError:
        return False
    except OSError:
        return True


def request(method: str, path: str, headers: Mapping[str, str], body: bytes = b"") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode() + body
