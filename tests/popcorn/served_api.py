"""A whole service on loopback: real Postgres, real daemon, local backend, uvicorn."""

from __future__ import annotations

import functools
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import psycopg

from kbslurm.api.context import Context
from kbslurm.api.listener import EventListener
from kbslurm.api.server import Serving, context_of
from kbslurm.backends.local.backend import LocalBackend
from kbslurm.config import settings, shared_folders
from kbslurm.daemon.loop import Daemon
from kbslurm.domain.access import Role
from kbslurm.domain.problem import Problem
from kbslurm.flow.place import Place
from kbslurm.ports import Clock
from kbslurm.problems import loading
from kbslurm.store.listening import (
    CHANNEL,
)
from kbslurm.store.postgres import (
    PostgresStore,
)
from tests.flow.stage import PATIENCE_S, QUICK, running
from tests.popcorn.client import Popcorn

ADMIN = "the-hosts-own-token"
TRANSPOSE = shared_folders.path("examples") / "transpose"


def source(path: str) -> bytes:
    """An example's submission without the lines that name its board."""
    lines = (TRANSPOSE / "submissions" / path).read_bytes().splitlines(keepends=True)
    return b"".join(line for line in lines if b"!POPCORN" not in line)


GOOD = source("accepted/columns.py")
WRONG = source("wrong_answer/square_only.py")
GPUS = ("H100", "A100")


@dataclass
class ServedApi:
    """The service, and clients of it."""

    context: Context
    url: str
    clients: list[Popcorn] = field(default_factory=list)

    @property
    def store(self) -> PostgresStore:
        return self.context.store

    @property
    def now(self) -> datetime:
        return self.context.clock.now()

    def client(self, name: str | None = "ada", role: Role = "participant") -> Popcorn:
        """A client of this person, with a token of their own; without a name one of nobody."""
        token = None
        if name is not None:
            person = self.store.people.ensure(name, role)
            token = self.store.tokens.issue(person.id, device="test", now=self.now)
        self.clients.append(Popcorn(url=self.url, cli_id=token))
        return self.clients[-1]

    def host(self) -> Popcorn:
        self.clients.append(Popcorn(url=self.url, admin=ADMIN))
        return self.clients[-1]

    def close(self) -> None:
        for client in self.clients:
            client.hang_up()


@contextmanager
def serving(context: Context, url: str) -> Iterator[Serving]:
    """The service's server. Its listener, which a stop lets finish its wait, is woken then by an empty event."""
    with ExitStack() as last, Serving(context, host="127.0.0.1", port=0) as found:
        try:
            yield found
        finally:
            waker = threading.Thread(target=_wake_when_over, args=(context.listener, url), name="waker")
            waker.start()
            last.callback(waker.join)


def _wake_when_over(listener: EventListener, url: str) -> None:
    until = time.monotonic() + PATIENCE_S
    while not listener.is_over and time.monotonic() < until:
        time.sleep(0.005)
    with suppress(psycopg.Error), psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"NOTIFY {CHANNEL}")


@functools.cache
def _transpose() -> Problem:
    return loading.load(TRANSPOSE)


@contextmanager
def served(
    url: str,
    place: Path,
    *,
    admin: str | None = ADMIN,
    clock: Clock | None = None,
    boards: bool = True,
    bot: str | None = None,
    toml: str = "",
    env: Mapping[str, str] | None = None,
) -> Iterator[ServedApi]:
    """The API alone."""
    slots = ", ".join(f"{gpu} = 1" for gpu in GPUS)
    place.mkdir(parents=True, exist_ok=True)
    file = place / "kbslurm.toml"
    file.write_text(f"[daemon]\nstate_dir = '{place}'\n[daemon.local]\nname = 'local'\nslots = {{ {slots} }}\n{toml}")
    env = {**(env or {}), "DATABASE_URL": url, **({"POPCORN_ADMIN_TOKEN": admin} if admin else {})}
    env |= {"KBSLURM_BOT_TOKEN": bot} if bot else {}
    with PostgresStore(url) as store:
        context = context_of(settings.load(file, env, cwd=place), store, clock=clock)
        if boards:
            store.boards.add("transpose", _transpose(), gpus=GPUS, confirm=False, now=context.clock.now())
        with serving(context, url) as found:
            api = ServedApi(context=context, url=found.url)
            try:
                yield api
            finally:
                api.close()


@contextmanager
def working(api: ServedApi, place: Path) -> Iterator[ServedApi]:
    """The daemon at work beside it, on this machine."""
    backend = LocalBackend(place / "attempts", dict.fromkeys(GPUS, 1), shared_folders.eval_dir(), Path(sys.executable))
    here = Place(backend=backend, poll_s=1.0, grace_s=0.0, sweep_gap_s=0.2, patience_s=300.0)
    with running(Daemon(api.store, [here], timing=QUICK)):
        yield api
