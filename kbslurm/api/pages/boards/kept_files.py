"""Files that are the same for everybody who may have them: made once for each version of what they show."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from fastapi import Request
from fastapi.responses import Response

from kbslurm.api.pages.shared_page import names_version

KEPT_BYTES = 32_000_000


@dataclass(frozen=True, kw_only=True)
class KeptFile:
    """What is in it, and what changes with that."""

    data: bytes
    etag: str

    def answer(self, request: Request, media: str, headers: dict[str, str]) -> Response:
        """It, or that the reader has it already."""
        headers = {**headers, "ETag": self.etag}
        if names_version(request.headers.get("if-none-match"), self.etag):
            return Response(status_code=304, headers=headers)
        return Response(self.data, media_type=media, headers=headers)


@dataclass
class _Known:
    """One file. The thread that makes it holds the lock, so only one does."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    basis: object = None
    file: KeptFile | None = None


class KeptFiles:
    """For any thread. When they are too large together, the ones asked for least recently are dropped."""

    def __init__(self, *, most: int = KEPT_BYTES) -> None:
        self._most = most
        self._known: OrderedDict[Hashable, _Known] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, key: Hashable, basis: object, make: Callable[[], bytes]) -> KeptFile:
        """The file with this key, made anew unless it was made from the same. Standings that have moved aren't equal to
        what they were."""
        with self._lock:
            known = self._known.setdefault(key, _Known())
            self._known.move_to_end(key)
        with known.lock:
            if known.file is None or known.basis != basis:
                data = make()
                known.file = KeptFile(data=data, etag=f'"{hashlib.sha256(data).hexdigest()[:20]}"')
                known.basis = basis
            found = known.file
        with self._lock:
            held = [(one, len(kept.file.data) if kept.file else 0) for one, kept in self._known.items()]
            total = sum(size for _, size in held)
            for one, size in held:
                if total <= self._most or one == key:
                    break
                self._known.pop(one, None)
                total -= size
        return found
