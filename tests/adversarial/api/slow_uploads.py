"""Upload a few bytes at a time on many connections, so that others wait."""

from __future__ import annotations

import threading
from contextlib import suppress

from tests.adversarial.api_ground import Ground, many, request

MOST_TIMES = 60.0


def attack(ground: Ground) -> None:
    ada = ground.account("ada")
    headers = {**ada.as_author, "Content-Type": "multipart/form-data; boundary=b", "Content-Length": "900000"}
    start = request("POST", "/submission/transpose/H100/test", headers)
    over = threading.Event()
    with ground.elsewhere() as other:
        alone = sorted(ground.answers_s(other, times=15))[7]
        with many(ground, ground.n(30, 300), lambda n: start) as held:

            def drip() -> None:
                while not over.wait(0.05):
                    for one in held:
                        with suppress(OSError):
                            one.send(b"a" * 64)

            dripping = threading.Thread(target=drip)
            dripping.start()
            try:
                beside = ground.answers_s(other)
                ground.must_answer("beside slow uploads")
            finally:
                over.set()
                dripping.join()
    ground.figures |= {
        "a poll alone, ms": round(alone * 1e3, 1),
        "beside them, ms": round(max(beside) * 1e3, 1),
        "the median of five, ms": round(sorted(beside)[2] * 1e3, 1),
    }
    if ground.size == "full" and max(beside) > MOST_TIMES * alone:
        ground.fault(f"a poll took {max(beside):.2f} s beside slow uploads, {alone * 1e3:.0f} ms alone")
