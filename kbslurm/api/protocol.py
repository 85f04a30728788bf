"""uvicorn's HTTP protocol with an end to every wait: for headers, for a client that reads, and for a close."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from http import HTTPStatus
from typing import ClassVar, Protocol, cast

import h11
from starlette.types import Scope
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from kbslurm.api.connections import Connection, Connections

STATE = "kbslurm.connection"
CLOSE_WITHIN_S = 10.0
MOMENT_S = 0.5  # when many connect at the same time, all are accepted before the first one's headers are read


class Timer(Protocol):
    """A call that is due later."""

    def cancel(self) -> None: ...


def connection_of(scope: Scope) -> Connection | None:
    """The connection that a request came on; None in an app without a server."""
    found = scope.get("state", {}).get(STATE)
    return cast("Connection | None", found)


def protocol_for(connections: Connections) -> type[asyncio.Protocol]:
    """The protocol that counts its connections here."""

    class Counted(WatchedProtocol):
        among = connections

    return Counted


class WatchedProtocol(H11Protocol):
    """One connection."""

    among: ClassVar[Connections]
    peer = ""
    is_direct = False
    is_in_reserve = False
    is_streaming = False
    _is_outside = False
    _head_timer: Timer | None = None
    _read_timer: Timer | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.app_state = {**self.app_state, STATE: self}
        refused = self.among.arrive(self, self.client[0] if self.client else "")
        if refused is not None:
            self._refuse(*refused)
        elif not transport.is_closing():
            self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        self.among.leave(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if not self._is_outside:
            self._look(began=True)

    def handle_events(self) -> None:
        """What has arrived belongs to the request that is being answered, or is another that waits for its turn."""
        request: RequestResponseCycle | None = self.cycle
        arrived = self.conn.trailing_data[0]
        if not arrived or (request is not None and not request.response_complete):
            super().handle_events()
            return
        if self._is_outside or not self.among.entrance.come(self, arrived):
            self._is_outside = True
            self._stop_waiting()  # whoever sent it now waits for us
            self.flow.pause_reading()

    def enter(self) -> bool:
        """Take up the request that has arrived. Whether its answer is now being made, and nothing of it is still to
        come."""
        was_outside, self._is_outside = self._is_outside, False
        if was_outside:
            self.flow.resume_reading()
        super().handle_events()
        if was_outside:
            self._look(began=True)
        request: RequestResponseCycle | None = self.cycle
        return request is not None and not request.response_complete and not request.more_body

    def eof_received(self) -> bool:  # type: ignore[override]
        """Whoever has sent a whole request and says that nothing more comes still gets the answer, and then the close.
        A stream ends: its reader has most likely gone."""
        request: RequestResponseCycle | None = self.cycle
        if request is None or request.response_complete or request.more_body:
            return False
        if request.response_started and self.is_streaming:
            return False
        request.keep_alive = False
        return True

    def on_response_complete(self) -> None:
        self.among.entrance.leave(self)
        super().on_response_complete()
        if not self._is_outside:
            self._look(began=bool(self.conn.trailing_data[0]))

    def send_400_response(self, msg: str) -> None:
        """What came isn't HTTP. A request that it came in the middle of is over, and whoever was answered already, or
        asked by HEAD, is told nothing more."""
        request: RequestResponseCycle | None = self.cycle
        if request is not None and not request.response_complete:
            request.disconnected = True
            request.message_event.set()
        with suppress(h11.LocalProtocolError):
            body = json.dumps({"detail": "this isn't a valid HTTP request"}).encode()
            headers = {"content-type": "application/json", "content-length": str(len(body)), "connection": "close"}
            headers |= {"x-content-type-options": "nosniff", "cache-control": "no-store"}
            answer = h11.Response(status_code=400, headers=[*headers.items()], reason=HTTPStatus(400).phrase)
            for event in (answer, h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self._close()

    def _unsupported_upgrade_warning(self) -> None:
        """Nothing: anybody may ask for an upgrade, and the operator needn't install anything for it."""

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self.loop.call_later(CLOSE_WITHIN_S, self.transport.abort)  # a client that reads nothing never lets it close

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._read_timer is None:
            self._read_timer = self.loop.call_later(self.among.limits.read_within_s, self._unread)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None

    def drop(self) -> None:
        """End it now: what is still to be sent is lost."""
        self._stop_waiting()
        self.among.leave(self)
        self.transport.abort()

    def _look(self, *, began: bool) -> None:
        """Between two requests headers are due as soon as a first byte of them came; within one, nothing is."""
        if self.transport.is_closing():
            return
        request: RequestResponseCycle | None = self.cycle
        if request is not None and not request.response_complete:
            self._stop_waiting()
        elif began:
            self._await_head()

    def _await_head(self) -> None:
        if self._head_timer is None:
            self.among.waits_for_head(self)
            self._head_timer = self.loop.call_later(MOMENT_S, self._head_is_slow)

    def _head_is_slow(self) -> None:
        if (refused := self.among.is_slow(self)) is not None:
            self._refuse(*refused)
            return
        more_s = max(0.0, self.among.limits.head_within_s - MOMENT_S)
        self._head_timer = self.loop.call_later(more_s, self._head_is_late)

    def _stop_waiting(self) -> None:
        self.among.has_head(self)
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_is_late(self) -> None:
        self.among.turned_away("late")
        if self.conn.trailing_data[0]:
            self._refuse(408, f"the headers took longer than {self.among.limits.head_within_s:g} s.")
        else:
            self._close()

    def _unread(self) -> None:
        self.among.turned_away("unread")
        self.drop()

    def _refuse(self, status: int, why: str) -> None:
        body = json.dumps({"detail": why}).encode()
        lines = (
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
            "content-type: application/json",
            f"content-length: {len(body)}",
            "retry-after: 5",
            "connection: close",
        )
        self.transport.write("\r\n".join((*lines, "", "")).encode() + body)
        self._close()

    def _close(self) -> None:
        self._stop_waiting()
        self.transport.close()
        self.loop.call_later(CLOSE_WITHIN_S, self.transport.abort)
