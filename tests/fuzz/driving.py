"""Sends a batch after the other from processes of their own, keeps the world as it was, and collects what is wrong."""

from __future__ import annotations

import logging
import multiprocessing
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from tests.fuzz import answers, requests
from tests.fuzz.answers import Secret
from tests.fuzz.calls import Call
from tests.fuzz.requests import Request
from tests.fuzz.wire import Answer, Broken, Silent, Sockets, filled, framed
from tests.fuzz.world import World

WORKERS = 3
BATCH = 600
MOST_FOUND = 8
PROBE_LINE = b"GET /health HTTP/1.1"


@dataclass(frozen=True, kw_only=True)
class Found:
    """A request and what is wrong with what came of it."""

    request: Request
    why: str


@dataclass
class Tally:
    """What was sent and what came back: statuses by sender, how often each call was answered, and what is wrong."""

    statuses: Counter[tuple[str, int]] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)
    manners: Counter[str] = field(default_factory=Counter)
    accepted: int = 0
    sent: int = 0
    found: list[Found] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        self.statuses += other.statuses
        self.calls += other.calls
        self.manners += other.manners
        self.accepted += other.accepted
        self.sent += other.sent
        self.found += other.found


@dataclass(frozen=True, kw_only=True)
class Part:
    """What one process sends."""

    seed: int
    numbers: Sequence[int]
    calls: Sequence[Call]
    where: tuple[str, int]
    known: Mapping[str, str]
    secrets: Sequence[Secret]


def sent(part: Part) -> Tally:
    """Send these, one after the other."""
    tally, sockets = Tally(), Sockets(*part.where, part.known)
    try:
        for number in part.numbers:
            request = requests.made(part.seed, number, part.calls)
            tally.sent += 1
            tally.manners[request.manner] += 1
            came, why = _asked(sockets, request, part)
            for answer in came[1:2] if request.manner == "pipelined" and len(came) > 1 else came[:1]:
                tally.statuses[request.who, answer.status] += 1
                tally.calls[request.call] += 1
                tally.accepted += request.accepted and answer.status in (200, 202)
            tally.found += [Found(request=request, why=one) for one in why]
            if len(tally.found) >= MOST_FOUND:
                break
    finally:
        sockets.close()
    return tally


def _asked(sockets: Sockets, request: Request, part: Part) -> tuple[list[Answer], list[str]]:
    try:
        came = sockets.ask(request)
    except (Broken, Silent, OSError) as error:
        return [], [f"{type(error).__name__}: {error}"]
    known, nobodys = dict(part.known), _nobodys(request.number)
    senders = [nobodys, request, nobodys] if request.manner == "pipelined" else [request]
    found = [
        why
        for who, answer in zip(senders, came, strict=False)
        for why in answers.faults(who, answer, part.secrets, known)
    ]
    return came, found


def fuzzed(world: World, calls: Sequence[Call], *, seed: int, count: int) -> Tally:
    """Send this many, and stop early where enough is wrong."""
    tally = Tally()
    host, port = world.api.url.removeprefix("http://").split(":")
    with ProcessPoolExecutor(WORKERS, multiprocessing.get_context("spawn")) as pool:
        for start in range(0, count, BATCH):
            known = world.tend()
            numbers = range(start, min(count, start + BATCH))
            secrets = world.secrets(known)
            parts = [
                Part(
                    seed=seed,
                    numbers=numbers[n::WORKERS],
                    calls=calls,
                    where=(host, int(port)),
                    known=known,
                    secrets=secrets,
                )
                for n in range(WORKERS)
            ]
            with overheard() as log:
                for came in pool.map(sent, parts):
                    tally.add(came)
            tally.found += [
                Found(request=_nobodys(start), why=f"in the log of requests {start} to {numbers[-1]}: {line}")
                for line in log
            ]
            if len(tally.found) >= MOST_FOUND:
                break
        # Only what is still wrong when it is sent again, alone, can be made smaller.
        tally.found = [_smaller(one, parts[0]) for one in tally.found[:MOST_FOUND]]
    return tally


def _nobodys(number: int) -> Request:
    return Request(number=number, who="nobody", call="the log", line=PROBE_LINE, headers=[], whole=False)


def _smaller(found: Found, part: Part) -> Found:
    """The same with what isn't needed for it left out."""
    if found.request.line == PROBE_LINE:
        return found

    def still(request: Request) -> bool:
        sockets = Sockets(*part.where, part.known)
        try:
            return any(why[:20] == found.why[:20] for why in _asked(sockets, request, part)[1])
        finally:
            sockets.close()

    request = found.request
    if not still(request):
        return Found(request=request, why=f"{found.why} (not when it was sent again)")
    for header in list(request.headers):
        fewer = replace(request, headers=[one for one in request.headers if one != header])
        request = fewer if still(fewer) else request
    for simpler in (replace(request, manner="alone"), replace(request, framing="plain"), replace(request, body=b"")):
        request = simpler if still(simpler) else request
    return Found(request=request, why=found.why)


def told(one: Found, seed: int, known: Mapping[str, str] | None = None) -> str:
    """What is wrong, and the bytes that show it: secrets stand as `@{name}@`."""
    request = one.request
    if request.line == PROBE_LINE:
        return one.why
    data = framed(filled(request, known)) if known else framed(request)
    cut = f" … {len(data):,} bytes in all" if len(data) > 1500 else ""
    return (
        f"{one.why}\n  request {request.number} of seed {seed}, by {request.who}, {request.manner}, {request.framing}:"
        f"\n  {data[:1500]!r}{cut}"
    )


@contextmanager
def overheard() -> Iterator[list[str]]:
    """What the service's logs have of bugs while this lasts: tracebacks, and lines that are errors."""
    lines: list[str] = []

    class Ear(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            facts: dict[str, Any] = getattr(record, "facts", {})
            if record.exc_info or record.levelno >= logging.ERROR or record.getMessage() == "a bug":
                trace = logging.Formatter().formatException(record.exc_info) if record.exc_info else ""
                lines.append(f"{record.name}: {record.getMessage()} {facts} {trace[-3000:]}")

    ear = Ear()
    loggers = [logging.getLogger(), logging.getLogger("kbslurm"), logging.getLogger("uvicorn.error")]
    before = [(logger.level, logger.propagate) for logger in loggers]
    for logger in loggers:
        logger.addHandler(ear)
        logger.propagate = False
    try:
        yield lines
    finally:
        for logger, (level, propagate) in zip(loggers, before, strict=True):
            logger.removeHandler(ear)
            logger.setLevel(level)
            logger.propagate = propagate
