"""Where a change comes from: set once where a request or a command begins, written into each event of the audit log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal

Via = Literal["command", "api", "page", "discord", "daemon"]

_origin: ContextVar[tuple[Via, str] | None] = ContextVar("origin", default=None)


@contextmanager
def acting(via: Via, where: str = "") -> Iterator[None]:
    """Changes in this block come this way; `where` is an address, or an account and its machine."""
    before = _origin.set((via, where))
    try:
        yield
    finally:
        _origin.reset(before)


def narrowed(via: Via) -> None:
    """From here on in this request, a more precise way; the address stays."""
    known = _origin.get()
    if known is not None:
        _origin.set((via, known[1]))


def as_data() -> dict[str, str]:
    """What an event of the audit log says about it."""
    known = _origin.get()
    return {} if known is None else {"via": known[0], "where": known[1]}
