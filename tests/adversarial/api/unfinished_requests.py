"""Take all connections by requests whose headers never end, so that nobody else is answered."""

from __future__ import annotations

from tests.adversarial.api_ground import Ground, ended, many

DEADLINE_S = 60.0


def attack(ground: Ground) -> None:
    with many(ground, ground.n(300, 4100), lambda n: b"GET /health HTTP/1.1\r\nX-%d: " % n) as held:
        ground.must_answer("while requests are unfinished")
        turned_away = ended(held, 2.0)
        ground.figures["connections that were made"] = len(held)
        ground.figures["turned away at once"] = turned_away
        if not turned_away:
            ground.fault(f"one address keeps {len(held)} unfinished requests open")
        if ground.size == "full" and (left := len(held) - ended(held, DEADLINE_S)):
            ground.fault(f"{left} unfinished requests are still open after {DEADLINE_S:.0f} s")
