"""A service that hangs: what is sent to it goes on to the real one only while it isn't held."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit


class Held:
    """`hold` and `let_go`; `url` is where it is asked."""

    def __init__(self, host: str, port: int) -> None:
        self.url, self._to, self._free = "", (host, port), asyncio.Event()
        self._free.set()
        self.loop: asyncio.AbstractEventLoop | None = None
        self.over: asyncio.Event | None = None
        self.tasks: set[asyncio.Task[None]] = set()
        self.writers: set[asyncio.StreamWriter] = set()

    def hold(self) -> None:
        """From now on nothing is answered."""
        assert self.loop is not None
        self.loop.call_soon_threadsafe(self._free.clear)

    def let_go(self) -> None:
        """All that waited goes on."""
        assert self.loop is not None
        self.loop.call_soon_threadsafe(self._free.set)

    async def met(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_connection(*self._to)
        self.writers |= {writer, there[1]}
        for source, sink in ((reader, there[1]), (there[0], writer)):
            task = asyncio.create_task(self._moved(source, sink))
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)

    async def _moved(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await source.read(65536):
                await self._free.wait()
                sink.write(data)
                await sink.drain()
        with suppress(OSError):
            sink.close()


@contextmanager
def held(url: str) -> Iterator[Held]:
    """One before this service."""
    told = urlsplit(url)
    assert told.hostname and told.port
    found, started = Held(told.hostname, told.port), threading.Event()

    async def serve() -> None:
        found.loop, found.over = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(found.met, "127.0.0.1", 0)
        found.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        started.set()
        await found.over.wait()
        server.close()
        for task in list(found.tasks):
            task.cancel()
        await asyncio.gather(*found.tasks, return_exceptions=True)
        for writer in found.writers:
            writer.transport.abort()
        await asyncio.gather(*(writer.wait_closed() for writer in found.writers), return_exceptions=True)

    thread = threading.Thread(target=lambda: asyncio.run(serve()), name="held")
    thread.start()
    assert started.wait(60)
    try:
        yield found
    finally:
        assert found.loop is not None and found.over is not None
        found.loop.call_soon_threadsafe(found.over.set)
        thread.join(60)
