"""Two hundred submissions at once in one channel: every card ends right, and Discord never has to say: slower."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from kbslurm.domain.run import RunId, SubmissionId
from kbslurm.flow.queue import claim, free_slots
from kbslurm.flow.score import score
from kbslurm_bot import live_cards
from tests.fakes.discord import Discord, User
from tests.flow.puppet import Puppet, sealed_report
from tests.flow.test_bot import api, bot, discord, text_of
from tests.popcorn.served_api import GOOD, ServedApi

__all__ = ["api", "discord"]
MANY = 200
PEOPLE = [User(600 + n, f"p{n}") for n in range(20)]


def judge_all(api: ServedApi) -> dict[RunId, str]:
    """A verdict for each, in the rows; nothing really runs."""
    store, now = api.store, api.now
    ends: dict[RunId, str] = {}
    slots = {"puppet": Puppet(slots={"H100": MANY}).capacity()}
    while (attempt := claim(store.queue, free_slots(slots, store.attempts.open()), now)) is not None:
        work = store.attempts.work(attempt.id)
        verdict = "passed" if attempt.run_id % 2 else "wrong"
        ends[attempt.run_id] = verdict
        score(store, attempt, sealed_report(work, verdict=verdict), now)
    return ends


def test_every_card_ends_right_with_few_edits(
    discord: Discord, api: ServedApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The storm's edits are those that events cause. A slow machine takes minutes for it, in which each waiting card is
    # also looked at every 15 s, and edited if its place has changed: as it should be, and not what is counted here.
    monkeypatch.setattr(live_cards, "LOOK_S", math.inf)
    discord.limits = (40, 1.0)
    with bot(discord, api, tmp_path):
        asked = []
        for n in range(MANY):
            who = PEOPLE[n % len(PEOPLE)]
            asked.append(
                discord.command(who, "submit", file=("k.py", GOOD), leaderboard="transpose", gpu="H100", mode="test")
            )
        refused = {said for one in asked if "is accepted" not in (said := discord.answer(one))}
        assert not refused, refused
        discord.wait_for(lambda: len(discord.shown()) == MANY, "a card for each")
        ends = judge_all(api)
        assert len(ends) == MANY

        def over() -> bool:
            return not any(
                word in text_of(one) for one in discord.shown() for word in ("waiting", "started", "running")
            )

        discord.wait_for(over, "the end of each card")
        for one in discord.shown():
            text = text_of(one)
            number = int(text.split("#")[4].split()[0])
            (run,) = api.store.submissions.get(SubmissionId(number)).runs
            assert ("✓ passed" if ends[run.id] == "passed" else "✗ wrong answer") in text
    assert max(discord.edits.values()) <= 4 and sum(discord.edits.values()) <= 2 * MANY
    assert discord.met["429"] <= 5, "its headers are obeyed before it has to refuse"
    assert not discord.refusals
