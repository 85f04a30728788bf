"""A card in each state as the JSON that Discord is sent. KBSLURM_TEST_GOLDEN=write writes them anew."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from kbslurm.domain import physics, waiting
from kbslurm.domain.placement import BUDGET_SPENT
from kbslurm_bot import cards
from kbslurm_bot.cards import Picture, ScoreContext, Shown
from tests.fakes.discord import strict

DATA = Path(__file__).parent / "data" / "cards"
QUEUE = {"gpu": "H100", "place": 3, "starts_in_s": [240.0, 600.0], "error": None}


def run(state: str, gpu: str = "H100", **more: Any) -> dict[str, Any]:
    return {
        "id": 1,
        "gpu": gpu,
        "state": state,
        "standing": state,
        "reason": "",
        "progress": None,
        "verdict": None,
        "attempts": [],
        **more,
    }


def verdict(name: str, **more: Any) -> dict[str, Any]:
    found = {
        "name": name,
        "reason": "",
        "score_s": None,
        "low_s": None,
        "high_s": None,
        "ranked": False,
        "report": None,
    }
    return {**found, **more}


def full(*runs: dict[str, Any], mode: str = "leaderboard", **more: Any) -> dict[str, Any]:
    told = {
        "id": 412,
        "board": "matmul_v2",
        "mode": mode,
        "file_name": "my_kernel [x](http://evil) @everyone.py",
        "person_id": "7",
        "source": "",
        "done": all(one["state"] in ("scored", "failed", "cancelled") for one in runs),
        "runs": list(runs),
    }
    return {"submission": {**told, **more}, "runner_queue": QUEUE, "message": ""}


RANKED = verdict("passed", score_s=41.8e-6, low_s=41.7e-6, high_s=42.0e-6, ranked=True)
NOISY = verdict("passed", score_s=6e-3, low_s=5.9e-3, high_s=8.4e-3)
HOME = {"backend": "cluster", "why": "cluster had a free slot"}
AWAY = {"backend": "modal", "why": "cluster is down (*no* answer)"}
PROGRESS = {"phase": "test", "done": 12, "of": 17}
LIMIT = "cluster: the limit on our jobs there is reached (QOSMaxSubmitJobPerUserLimit)"
CASES = {
    "waiting": Shown(full=full(run("queued"), run("launching", "A100")), owner=501),
    "unsent": Shown(full=full(run("launching", waits_for=waiting.put_off(LIMIT, together=True))), owner=501),
    "running": Shown(full=full(run("running", progress=PROGRESS, attempts=[HOME])), owner=501),
    "elsewhere": Shown(
        full=full(
            run("running", progress=PROGRESS, attempts=[HOME, AWAY]),
            run("scored", "A100", verdict=RANKED, attempts=[AWAY]),
        ),
        owner=501,
    ),
    "held_up": Shown(
        full={**full(run("queued")), "runner_queue": {**QUEUE, "starts_in_s": None, "waits_for": BUDGET_SPENT}},
        owner=501,
    ),
    "hidden": Shown(full=full(run("running", progress={"phase": "hidden"})), owner=501),
    "record": Shown(
        full=full(run("scored", verdict=RANKED)),
        owner=501,
        contexts={"H100": ScoreContext(rank=3, of=31, best_before_s=44.5e-6, next_s=40.9e-6)},
    ),
    "history": Shown(
        full=full(run("scored", verdict=RANKED)),
        owner=501,
        contexts={"H100": ScoreContext(rank=1, of=1, best_before_s=44.5e-6)},
        pictures=[Picture(name="history-0.png", says="2 own scores on matmul_v2, H100; the best 41.8 µs")],
    ),
    "mixed": Shown(
        full=full(
            run("scored", verdict=RANKED),
            run("scored", "A100", verdict=verdict("wrong", reason="row 3 of the secret case")),
            run("failed", "B200", verdict=verdict("infrastructure")),
            run("cancelled", "T4"),
        ),
        owner=501,
    ),
    "noisy": Shown(
        full=full(
            run("scored", verdict={**NOISY, "ranked": True}),
            run("scored", "A100", verdict={**NOISY, "not_ranked": "it was slower than before"}),
        ),
        owner=501,
    ),
    "tested": Shown(full=full(run("scored", verdict=verdict("passed")), mode="test"), owner=501),
}


def verified(state: str, gpu: str, **more: Any) -> dict[str, Any]:
    found = {"gpu": gpu, "place": None, "state": state, "backend": None, "attempts": 0, "verdict": None, "took_s": None}
    return {**found, **more}


def canary(*runs: dict[str, Any]) -> dict[str, Any]:
    done = all(one["state"] in ("scored", "failed", "cancelled") for one in runs)
    return {"submission_id": 413, "leaderboard": "matmul_v2", "mode": "test", "done": done, "runs": list(runs)}


WORKS = verified("scored", "H100", backend="della", attempts=1, verdict="passed", took_s=42.5)
CANARIES = {
    "canary-going": canary(
        WORKS,
        verified("running", "A100", backend="bunya", attempts=2),
        verified("queued", "B200"),
        verified("queued", "H100", place="modal"),
        verified("queued", "MI300", backend="bunya", attempts=1),
    ),
    "canary-works": canary(WORKS),
    "canary-broken": canary(
        WORKS,
        verified("scored", "A100", backend="bunya", attempts=1, verdict="error", took_s=3.0),
        verified("failed", "B200", backend="github", attempts=3, verdict="infrastructure", took_s=900.0),
        verified("cancelled", "T4"),
    ),
    "canary-beats-its-formulas": canary(
        {**WORKS, "problem": physics.wrong_formula({"flags": [physics.FLAG]})},
    ),
}


@pytest.mark.parametrize("name", [*CASES, *CANARIES])
def test_a_card(name: str) -> None:
    sent = cards.message(CASES[name]) if name in CASES else cards.verification(CANARIES[name])
    strict.message(sent, files=[one.name for one in CASES[name].pictures] if name in CASES else ())
    text = json.dumps(sent, indent=1, ensure_ascii=False) + "\n"
    file = DATA / f"{name}.json"
    if os.environ.get("KBSLURM_TEST_GOLDEN") == "write":
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    assert text == file.read_text()


def test_a_card_tells_the_channel_nothing_of_why() -> None:
    assert "secret case" not in json.dumps(cards.message(CASES["mixed"]))


def test_nobodys_text_is_markup_or_a_mention() -> None:
    text = cards.message(CASES["waiting"])["components"][0]["components"][0]["content"]
    assert "\\[x\\]\\(http" in text and "\\@everyone" in text
    assert cards.message(CASES["waiting"])["allowed_mentions"] == {"parse": []}


def test_a_card_of_many_gpu_types_and_long_names_still_fits() -> None:
    runs = [run("scored", f"GPU-{n:03}-" + "X" * 40, verdict=RANKED) for n in range(80)]
    told = cards.message(Shown(full=full(*runs, file_name="k" * 255), owner=1))
    strict.message(told)
    texts = [one["content"] for one in strict.walked(told["components"]) if "content" in one]
    assert "GPU" in "".join(texts) and 0 < sum(map(len, texts)) <= 4000


def test_each_button_is_known_again_by_its_id() -> None:
    for act in cards.LABELS:
        found = cards.PRESSED.fullmatch(cards.pressed(act, 412))
        assert found and (found["act"], found["submission"]) == (act, "412")
    assert not cards.PRESSED.fullmatch("kb:delete:412")
