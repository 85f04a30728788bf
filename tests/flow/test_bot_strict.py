"""The bot on Discord's bad days and on ours, and before people who mean it no good."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from kbslurm.domain.run import SubmissionId
from kbslurm_bot import live_cards
from kbslurm_bot.discord_client import DiscordClient
from kbslurm_eval.shared import wire
from tests.fakes import discord as fake
from tests.fakes.discord import Discord, User
from tests.flow.held import Held, held
from tests.flow.test_bot import ADA, BOT_TOKEN, EVE, api, bot, card, discord, judge, number_of_cards, text_of
from tests.popcorn.served_api import GOOD, ServedApi

__all__ = ["api", "discord"]
STAFF = 3002
FILE = ("k.py", GOOD)
PLANTED = "planted-secret-5f2c"


@pytest.fixture
def service(api: ServedApi) -> Iterator[Held]:
    with held(api.url) as built:
        yield built


ALSO = {"ask": ("leaderboard",)}  # one of two, without which it asks for one at once


def of_every_command(discord: Discord) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each that can be typed, with something for each option that it needs."""

    def leaves(one: fake.Json, before: str) -> Iterator[tuple[str, dict[str, Any]]]:
        name, options = f"{before} {one['name']}".strip(), one.get("options") or []
        inner = [option for option in options if option["type"] in (1, 2)]
        for option in inner:
            yield from leaves(option, name)
        if not inner:
            wanted = [option for option in options if option.get("required") or option["name"] in ALSO.get(name, ())]
            yield name, {option["name"]: value_of(option) for option in wanted}

    for one in discord.commands:
        yield from leaves(one, "")


def value_of(option: fake.Json) -> Any:
    if option.get("choices"):
        return option["choices"][0]["value"]
    return {3: "transpose", 4: max(1, option.get("min_value") or 1), 5: True, 10: 1.0, 11: FILE}[option["type"]]


def test_whoever_waits_for_the_stand_in_may_ask_it_meanwhile(discord: Discord) -> None:
    def asked() -> int:
        return httpx.get(f"{discord.url}/api/v10/users/@me", timeout=20).status_code

    assert discord.wait_for(asked, "any answer") == 401  # it says who it is to nobody without a token


def test_every_command_is_acknowledged_before_the_service_is_asked(
    discord: Discord, api: ServedApi, service: Held, tmp_path: Path
) -> None:
    with bot(discord, api, tmp_path, url=service.url, patience_s=2.0):
        service.hold()
        asked = {name: discord.command(ADA, name, **values) for name, values in of_every_command(discord)}
        assert len(asked) >= 16
        for name, one in asked.items():
            discord.wait_for(lambda one=one: one.acked_at is not None, f"an acknowledgement of /{name}")  # type: ignore[misc]
            said = discord.answer(one)
            if not name.endswith("help"):
                assert "isn't responding" in said or "not reachable" in said, f"/{name}: {said}"
        lost = discord.answer(discord.command(EVE, "submit", file=FILE, leaderboard="transpose", gpu="H100"))
        assert lost.count(".") <= 3
        service.let_go()
        discord.wait_for(lambda: "You are" in discord.answer(discord.command(ADA, "me")), "a service that is back")
    assert not discord.refusals and not discord.pings


def test_a_card_outlives_a_service_that_was_away(
    discord: Discord, api: ServedApi, service: Held, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_cards, "AWAY_S", 0.2)
    with bot(discord, api, tmp_path, url=service.url, patience_s=3.0):
        discord.answer(discord.command(ADA, "submit", file=FILE, leaderboard="transpose", gpu="H100"))
        card(discord, "waiting")
        service.hold()
        judge(api, 0.5)
        again = discord.command(ADA, "submit", file=FILE, leaderboard="transpose", gpu="H100")
        assert "check `/me` before you submit again" in discord.answer(again), "it may have been taken"
        service.let_go()
        card(discord, "rank 1 of 1")
    assert len(discord.shown()) == 1 and not discord.refusals


def test_what_reaches_discord_too_late_is_said_in_the_channel_and_not_done(
    discord: Discord, api: ServedApi, tmp_path: Path
) -> None:
    discord.add_guild(2001, STAFF)
    with bot(discord, api, tmp_path, staff_channel=STAFF):
        discord.late_next()
        late = discord.command(ADA, "submit", file=FILE, leaderboard="transpose", gpu="H100")
        said = card(discord, "too late for Discord, so nothing was done")
        assert "<@501>" in text_of(said) and not late.said and late.acked_at is None
        discord.command(ADA, "submit", file=FILE, leaderboard="transpose", gpu="H100")
        shown = card(discord, "waiting")
        discord.late_next()
        discord.press(ADA, shown, "Cancel")
        card(discord, "too late")
        (only,) = api.store.submissions.newest()
        assert not only.is_done
        assert "Pong" in discord.answer(discord.command(ADA, "ping"))
    assert not discord.shown(STAFF), "it is no bug of ours"
    assert not discord.refusals and not discord.pings


def test_a_dead_token_costs_the_answer_and_not_the_card(
    database_url: str, service: Held, api: ServedApi, tmp_path: Path
) -> None:
    now = [0.0]
    with fake.served(clock=lambda: now[0]) as discord:
        discord.add_guild(2001, STAFF)
        with bot(discord, api, tmp_path, url=service.url, staff_channel=STAFF):
            service.hold()
            asked = discord.command(ADA, "submit", file=FILE, leaderboard="transpose", gpu="H100")
            discord.wait_for(lambda: asked.acked_at is not None, "an acknowledgement")
            now[0] += fake.TOKEN_S + 1
            service.let_go()
            card(discord, "waiting")
            judge(api, 0.5)
            card(discord, "rank 1 of 1")
            assert "Pong" in discord.answer(discord.command(ADA, "ping"))
        assert not asked.said and not discord.shown(STAFF)
        tried = [path for method, path, _ in discord.calls if method == "POST" and asked.token in path]
        assert len(tried) == 2, "the acknowledgement, and one answer that was refused"


def test_each_way_in_which_the_gateway_ends_is_gone_on_from(discord: Discord, api: ServedApi, tmp_path: Path) -> None:
    with bot(discord, api, tmp_path):

        def met(what: str, many: int) -> None:
            discord.wait_for(lambda: discord.met[what] >= many, f"{many} times {what}")
            assert "Pong" in discord.answer(discord.command(ADA, "ping"))

        discord.reconnect()
        met("resume", 1)
        discord.spoil(resumable=True)
        met("resume", 2)
        discord.drop()
        met("resume", 3)
        assert discord.met["identify"] == 1, "each was the same session"
        discord.spoil(resumable=False)
        met("identify", 2)
    assert not discord.refusals


def test_it_works_in_another_server_and_between_two(discord: Discord, api: ServedApi, tmp_path: Path) -> None:
    discord.add_guild(2001, 3100)
    discord.add_direct(3200)
    with bot(discord, api, tmp_path):
        for channel in (3000, 3100, 3200):
            asked = discord.command(ADA, "submit", channel, file=FILE, leaderboard="transpose", gpu="H100", mode="test")
            assert "its card in this channel" in discord.answer(asked)
            card(discord, "waiting", channel)
        shown = card(discord, "waiting", 3200)
        assert "cancelled" in discord.answer(discord.press(ADA, shown, "Cancel"))
        card(discord, "cancelled", 3200)
    assert not discord.refusals


def test_who_gets_no_card_is_told(discord: Discord, api: ServedApi, tmp_path: Path) -> None:
    with bot(discord, api, tmp_path):
        discord.refuses_writes = True
        asked = discord.command(ADA, "submit", file=FILE, leaderboard="transpose", gpu="H100")
        discord.wait_for(
            lambda: "I'm not allowed to write in this channel, so submission 1 has no card" in asked.text, "a word"
        )
        own = discord.command(ADA, "leaderboard get-submission", submission=1)
        assert "waiting" in discord.answer(own)
    assert not discord.shown()


def test_a_card_in_an_archived_thread_is_left_alone_until_there_is_an_end_to_tell(
    discord: Discord, api: ServedApi, tmp_path: Path
) -> None:
    with bot(discord, api, tmp_path):
        discord.command(ADA, "submit", file=FILE, leaderboard="transpose", gpu="H100")
        before = card(discord, "waiting")
        discord.archived.add(3000)
        judge(api, 0.5)
        after = card(discord, "rank 1 of 1")
    assert len(discord.shown()) == 2 and after["id"] != before["id"], "a message that opens the thread again"
    assert sum(status == 400 for _, _, status in discord.calls) <= 2


def test_a_card_whose_old_message_takes_no_more_edits_goes_on_in_a_fresh_one(
    discord: Discord, api: ServedApi, tmp_path: Path, database_url: str
) -> None:
    with psycopg.connect(database_url) as connection:  # a service that has seen some use
        connection.execute("SELECT setval(pg_get_serial_sequence('submission', 'id'), 1234567)")
    with bot(discord, api, tmp_path) as client:
        discord.command(ADA, "submit", file=FILE, leaderboard="transpose", gpu="H100")
        before = card(discord, "waiting")
        discord.worn.add(int(before["id"]))
        judge(api, 0.5)
        discord.wait_for(lambda: len(discord.shown()) == 2, "a fresh message")
        assert "rank 1 of 1" in text_of(discord.shown()[1]) and "waiting" in text_of(discord.shown()[0])
        tries = discord.met["30046"]
        discord.wait_for(lambda: not client.state.open_cards(), "the end of the card")
    assert 1 <= discord.met["30046"] == tries <= 5, "one edit, as often as the client itself tries it"


def said_a_place(client: DiscordClient) -> bool:
    return any(name.startswith("said:place") for name in client.state._words)


def test_two_bots_with_one_token_do_each_thing_once(discord: Discord, api: ServedApi, tmp_path: Path) -> None:
    discord.add_guild(2001, 3001, STAFF)
    places = [tmp_path / "one", tmp_path / "two"]
    for place in places:
        place.mkdir()
    with (
        bot(discord, api, places[0], channel=3001, staff_channel=STAFF) as one,
        bot(discord, api, places[1], channel=3001, staff_channel=STAFF) as other,
    ):
        for client in (one, other):
            discord.wait_for(lambda client=client: client.state.word("announce:seen_at"), "the first look")  # type: ignore[misc]
        asked = discord.command(ADA, "submit", file=FILE, leaderboard="transpose", gpu="H100")
        discord.answer(asked)
        card(discord, "Two bots are running with one token", STAFF)
        number_of_cards(discord, 1)
        judge(api, 0.5)
        card(discord, "ada leads transpose", 3001)
        card(discord, "rank 1 of 1")
        discord.wait_for(lambda: said_a_place(one) and said_a_place(other), "both have said it")
    assert len(asked.said) == 1 and len(api.store.submissions.newest()) == 1
    assert len(discord.shown(3001)) == 1, "a message with the same nonce is the same message"


# ---------------------------------------------------------------------------------------------------- who means no good


def test_nobodys_words_ping_or_break_out(discord: Discord, api: ServedApi, tmp_path: Path) -> None:
    mallory = User(666, "@everyone `**<@501>**` ](http://evil.example)")
    with bot(discord, api, tmp_path):
        assert "You are **" in discord.answer(discord.command(mallory, "me"))
        name = "@everyone ``` <@&1> [x](evil.example).py"
        asked = discord.command(mallory, "submit", file=(name, GOOD), leaderboard="transpose", gpu="H100")
        assert "is accepted" in discord.answer(asked), asked.text
        shown = card(discord, "waiting")
        assert "\\@everyone" in text_of(shown) and "](" not in text_of(shown)
        judge(api, 0.5, verdict="wrong", reason="@here ``` **x**", log="```\n@everyone")
        shown = card(discord, "wrong answer")
        assert "@here" not in text_of(shown)
        log = discord.press(mallory, shown, "Log")
        discord.answer(log)
        assert log.said[0]["attachments"], "what has a fence in it comes as a file"
        for board in ("@everyone", "x" * 6000, "`" * 50, "kb:cancel:1"):
            asked = discord.command(mallory, "leaderboard show", leaderboard=board)
            assert "There is no board" in discord.answer(asked)
    assert not discord.pings and not discord.refusals


def test_a_forged_button_opens_nothing(discord: Discord, api: ServedApi, tmp_path: Path) -> None:
    with bot(discord, api, tmp_path):
        discord.command(ADA, "submit", file=FILE, leaderboard="transpose", gpu="H100")
        shown = card(discord, "waiting")

        def forged(custom_id: str) -> fake.Asked:
            (row,) = [one for one in fake.strict.walked(shown["components"]) if one.get("label") == "Cancel"]
            return discord.press(EVE, {**shown, "components": [{**row, "custom_id": custom_id}]}, "Cancel")

        for act in ("cancel", "log", "again", "compare"):
            assert "isn't yours" in discord.answer(forged(f"kb:{act}:1"))
        assert "no" in discord.answer(forged("kb:log:999999999999999999")).lower()
        unknown = [forged(one) for one in ("kb:delete:1", "kb:cancel:1 OR 1", "kb:cancel:-1", "kb:cancel:١", "x" * 100)]
        assert "Pong" in discord.answer(discord.command(ADA, "ping"))
        assert not any(one.said for one in unknown)
        assert not api.store.submissions.get(SubmissionId(1)).is_done
    assert not discord.refusals


def test_a_bad_attachment_is_one_sentence(discord: Discord, api: ServedApi, tmp_path: Path) -> None:
    bad = {
        "photo.png": (b"\x89PNG", "must end in one of"),
        "latin.py": (b"# caf\xe9\n", "isn't UTF-8 (line 1)"),
        "nul.py": (b"x = 1\n\x00", "NUL character (line 2)"),
        "empty.py": (b" \n", "is empty"),
        "large.py": (b"#" * 1_000_001, "1000001 bytes"),
    }
    with bot(discord, api, tmp_path):
        for name, (data, words) in bad.items():
            asked = discord.command(ADA, "submit", file=(name, data), leaderboard="transpose", gpu="H100")
            told = discord.answer(asked)
            # What is wrong in one sentence, and what to do in a second one where there is something to say
            assert "\n" not in told and told.endswith("."), told
            sentences = re.split(r"(?<=[.!?]) +(?=[A-Z])", told)
            assert len(sentences) <= 2 and words in sentences[0], told
        assert sorted(discord.loaded) == ["empty.py", "latin.py", "nul.py", "photo.png"], "what is too large isn't read"
    assert not discord.shown() and not api.store.submissions.newest()


def test_no_word_of_the_bots_holds_a_secret(
    discord: Discord, api: ServedApi, tmp_path: Path, database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Planted in the hidden cases and their log; looked for in everything that Discord and the log were told."""
    caplog.set_level(logging.DEBUG, logger="kbslurm")
    hidden = wire.TestResult(phase="hidden", index=0, spec=PLANTED, status="fail", message=PLANTED)
    with bot(discord, api, tmp_path):
        source = b"# of-eves-own-9c1d\n" + GOOD
        asked = [discord.command(EVE, "submit", file=("k.py", source), leaderboard="transpose", gpu="H100")]
        card(discord, "waiting")
        judge(api, 0.5, secret_log=PLANTED, tests=[hidden])
        shown = card(discord, "rank 1 of 1")
        asked += [discord.press(EVE, shown, label) for label in ("Log", "Compare")]
        asked += [discord.command(EVE, "leaderboard get-submission", submission=1)]
        own = [discord.answer(one) for one in asked][-1]
        assert "rank 1 of 1" in own and source in [
            discord.file(one) for said in asked[-1].said for one in said["attachments"]
        ]
        foreign = [discord.press(ADA, shown, label) for label in ("Log", "Compare", "Again")]
        foreign += [discord.command(ADA, "leaderboard get-submission", submission=1)]
        for one in foreign:
            assert discord.answer(one) == "Submission 1 isn't yours."
        for one in [*asked, *foreign]:
            assert all(said["flags"] & fake.strict.EPHEMERAL for said in one.said)
    with psycopg.connect(database_url) as connection:
        seeds = connection.execute("SELECT secret_seed FROM run UNION SELECT secret_seed FROM leaderboard").fetchall()
    told = [json_of(discord, one) for one in [*asked, *foreign]]
    public = repr(discord.messages) + caplog.text
    for secret in [PLANTED, BOT_TOKEN, fake.TOKEN, *(str(seed) for (seed,) in seeds)]:
        assert not any(secret in one for one in told) and secret not in public, secret
    assert "of-eves-own-9c1d" not in public and not any("of-eves-own" in one for one in told[len(asked) :])


def json_of(discord: Discord, asked: fake.Asked) -> str:
    """All that an answer says, what is attached to it included."""
    files = [discord.file(one).decode("utf-8", "replace") for said in asked.said for one in said["attachments"]]
    return repr(asked.said) + "\n".join(files)
