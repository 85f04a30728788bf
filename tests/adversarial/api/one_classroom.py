"""Not an attack: a course of 500 opens live pages from one address, all of which must stay open and be told."""

from __future__ import annotations

from tests.adversarial.api_ground import PATIENCE_S, Ground, many, request


def attack(ground: Ground) -> None:
    count = ground.n(60, 500)
    asked = request("GET", "/live/transpose", {"X-Forwarded-For": "192.0.2.7"})
    with many(ground, count, lambda n: asked) as held:
        begun = 0
        for one in held:
            one.settimeout(PATIENCE_S)
            begun += one.recv(4096).startswith(b"HTTP/1.1 200")
        if begun != count:
            ground.fault(f"{begun} of {count} streams began")
        ground.must_answer("beside a course's streams")
