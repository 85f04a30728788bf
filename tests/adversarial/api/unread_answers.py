"""Ask for much and read nothing of it, so that answers pile up and others wait."""

from __future__ import annotations

from tests.adversarial.api_ground import Ground, many, request

PAGES = 60
DEADLINE_S = 300.0  # 18,000 pages in their turns, then an idle connection's 75 s
MOST_TIMES = 60.0
MOST_MIB = 200.0


def attack(ground: Ground) -> None:
    asked = request("GET", "/problem/transpose", {"Accept": "text/html"}) * PAGES
    with ground.elsewhere() as other:
        alone = sorted(ground.answers_s(other, times=15))[7]

        before = ground.sockets()

        def crowd() -> None:
            with many(ground, ground.n(40, 300), lambda n: asked) as held:
                beside = ground.answers_s(other)
                ground.figures |= {
                    "a poll alone, ms": round(alone * 1e3, 1),
                    "beside them, ms": round(max(beside) * 1e3, 1),
                    "the median of five, ms": round(sorted(beside)[2] * 1e3, 1),
                }
                if ground.size == "full" and max(beside) > MOST_TIMES * alone:
                    ground.fault(
                        f"a poll took {max(beside):.2f} s beside clients that read nothing, {alone * 1e3:.0f} ms alone"
                    )
                ground.must_answer("while nobody reads")
                if ground.size == "full" and (left := ground.sockets_left(before, DEADLINE_S)):
                    ground.fault(
                        f"{left} of {len(held)} clients that read nothing are still connected after {DEADLINE_S:.0f} s"
                    )

        grew = ground.peak_mib(crowd)
    ground.figures["grown, MiB"] = round(grew, 1)
    if grew > MOST_MIB:
        ground.fault(f"the service grew by {grew:.0f} MiB")
