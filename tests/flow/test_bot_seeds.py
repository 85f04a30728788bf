"""What the bot does beside its commands for boards: scripts, files that come with a mention, menus."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kbslurm.cli.operator.bot_process import environment
from kbslurm.config import settings as configs
from kbslurm.domain.source import SOURCE_CAP
from kbslurm.store.migrate import revisions
from kbslurm_bot import menus
from tests.command_line import CommandLine
from tests.fakes import discord as fake
from tests.fakes.discord import Asked, Discord, User, strict
from tests.flow.test_bot import BOT_TOKEN, bot, card, text_of
from tests.flow.test_bot_rights import CREATOR, HOST, ONE_FILE, TOML
from tests.popcorn.served_api import GOOD, ServedApi, served, working

HOSTESS, MAKER = User(601, "grace", (int(HOST),)), User(602, "hedy", (int(CREATOR),))
HOST_THERE = User(603, "joan", (int(HOST),))
ADA, EVE = User(501, "ada"), User(502, "eve")
NAMED = b"#!POPCORN leaderboard transpose\n#!POPCORN gpu H100\n" + GOOD
DIRECT = 3900


@pytest.fixture
def discord() -> Iterator[Discord]:
    with fake.served() as built:
        built.roles = {2000: [int(HOST), int(CREATOR)], 2001: [int(HOST)]}
        built.add_direct(DIRECT)
        yield built


@pytest.fixture
def api(database_url: str, tmp_path: Path) -> Iterator[ServedApi]:
    with served(database_url, tmp_path / "service", bot=BOT_TOKEN, toml=TOML) as built:
        yield built


def numbers(api: ServedApi) -> list[int]:
    return [one.id for one in api.store.submissions.newest(removed=True)]


def last_said(discord: Discord, asked: Asked, words: str) -> fake.Json:
    return discord.wait_for(lambda: next((one for one in asked.said if words in one["content"]), None), words)  # type: ignore[no-any-return]


def shown(discord: Discord, words: str, channel: int = 3000) -> fake.Json:
    """The newest plain message that says this."""

    def found() -> fake.Json | None:
        return next((one for one in reversed(discord.shown(channel)) if words in one["content"]), None)

    return discord.wait_for(found, f"a message that says {words!r}")  # type: ignore[no-any-return]


# --------------------------------------------------------------------------------------------------------- scripts


def test_a_host_runs_a_script_and_gets_its_output(discord: Discord, api: ServedApi, tmp_path: Path) -> None:
    long = b"print('x' * 3000)\n"
    with working(api, tmp_path / "service"), bot(discord, api, tmp_path):
        asked = discord.command(HOSTESS, "run", file=("probe.py", b"print(6 * 7)\n"), gpu="h100")
        done = last_said(discord, asked, "exit status 0")
        assert "```\n42\n```" in done["content"] and "GPU-seconds used" in done["content"]
        asked = discord.command(HOSTESS, "run", file=("long.py", long), gpu="H100", timeout=30)
        done = last_said(discord, asked, "exit status 0")
        assert discord.file(done["attachments"][0]) == b"x" * 3000 + b"\n"
        asked = discord.command(HOSTESS, "run", file=("fails.py", b"raise SystemExit(3)\n"), gpu="H100")
        assert "It wrote nothing." in last_said(discord, asked, "exit status 3")["content"]
        assert all(one["flags"] & strict.EPHEMERAL for one in asked.said)
    assert not discord.refusals and discord.shown() == [], "nobody else sees any of it"


def test_a_board_that_is_named_makes_it_a_try_as_before(discord: Discord, api: ServedApi, tmp_path: Path) -> None:
    with bot(discord, api, tmp_path):
        by_file = discord.command(HOSTESS, "run", file=("k.py", NAMED), gpu="H100", mode="test")
        assert "Submission 1 is accepted" in discord.answer(by_file)
        named = discord.command(HOSTESS, "run", file=("k.py", GOOD), gpu="H100", leaderboard="transpose")
        assert "Submission 2 is accepted" in discord.answer(named)
        assert [one.via for one in api.store.submissions.newest()] == ["api", "api"]
        other = discord.command(ADA, "run", file=("k.py", GOOD), gpu="H100")
        assert "o leaderboard given" in discord.answer(other)
        several = discord.command(HOSTESS, "run", file=("k.py", GOOD), gpu="H100, A100")
        assert "one GPU type" in discord.answer(several)
        compiled = discord.command(HOSTESS, "run", file=("k.cu", b"int main() {}"), gpu="H100")
        assert "isn't a Python file" in discord.answer(compiled)
    assert sorted(numbers(api)) == [1, 2]


def test_over_the_budget_the_refusal_says_how_much_is_left(discord: Discord, api: ServedApi, tmp_path: Path) -> None:
    with bot(discord, api, tmp_path):
        first = discord.command(HOSTESS, "run", file=("p.py", b"pass\n"), gpu="H100", timeout=590)
        assert "is queued" in discord.answer(first)
        said = discord.answer(discord.command(HOSTESS, "run", file=("p.py", b"pass\n"), gpu="H100", timeout=60))
        assert "590 of 600 used" in said and "10 s or less" in said


# -------------------------------------------------------------------------------------------------------- mentions


def test_a_mention_with_a_file_that_names_its_board_is_submitted(
    discord: Discord, api: ServedApi, tmp_path: Path
) -> None:
    with bot(discord, api, tmp_path):
        discord.say(ADA, "please", files=[("k.py", NAMED)])
        assert "transpose" in text_of(card(discord, "waiting"))
        found = api.store.submissions.get(1)  # type: ignore[arg-type]
        assert (found.person, found.mode, [run.gpu for run in found.runs]) == ("ada", "leaderboard", ["H100"])
        discord.say(EVE, "", DIRECT, files=[("k.py", NAMED)], mentions=False)
        assert "transpose" in text_of(card(discord, "waiting", DIRECT)), "to the bot alone, nobody needs mention it"
    assert not discord.refusals and not discord.pings


def test_a_file_without_a_board_gets_a_menu_that_is_its_authors(
    discord: Discord, api: ServedApi, tmp_path: Path
) -> None:
    api.store.boards.add("secret", api.store.boards.get("transpose").problem, gpus=["H100"], visibility="closed")
    with bot(discord, api, tmp_path):
        discord.say(ADA, "", files=[("k.py", GOOD)])
        asked = shown(discord, "Which leaderboard is k.py for?")
        (menu,) = [one for one in strict.walked(asked["components"]) if one["type"] == strict.SELECT]
        assert [one["label"] for one in menu["options"]] == ["transpose"], "everybody here reads it"
        assert numbers(api) == []
        other = discord.answer(discord.choose(EVE, asked, "transpose"))
        assert "nly the person" in other
        assert "Submission 1 is accepted" in discord.answer(discord.choose(ADA, asked, "transpose"))
        card(discord, "waiting")
        discord.wait_for(lambda: not shown(discord, "Which leaderboard")["components"], "a menu that is gone")
        again = discord.answer(discord.choose(ADA, asked, "transpose"))
        assert "has expired" in again and "mention me again" in again
    assert len(numbers(api)) == 1
    assert not discord.refusals and not discord.pings


def test_a_menu_that_nobody_used_says_that_it_expired(
    discord: Discord, api: ServedApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(menus, "GOOD_FOR_S", 0.5)
    with bot(discord, api, tmp_path):
        discord.say(ADA, "", files=[("k.py", GOOD)])
        gone = shown(discord, "This menu has expired; mention me again with the file.")
        assert gone["components"] == []
    assert not discord.refusals


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ([("k.py", b"#" * (SOURCE_CAP + 1))], "The limit is"),
        ([("k.py", NAMED), ("m.py", NAMED)], "one file"),
        ([("k.exe", NAMED)], "must end in one of"),
        ([("k.py", b"#!POPCORN leaderboard nowhere\n")], "no board 'nowhere'"),
        ([("k.py", b"")], "k.py is empty"),
    ],
)
def test_what_cannot_be_submitted_is_answered_in_a_sentence(
    discord: Discord, api: ServedApi, tmp_path: Path, files: list[tuple[str, bytes]], said: str
) -> None:
    with bot(discord, api, tmp_path):
        discord.say(ADA, "", files=files)
        answer = shown(discord, "<@501>")
        if answer["components"]:  # an empty file names no board
            answer = {"content": discord.answer(discord.choose(ADA, answer, "transpose"))}
        assert said in answer["content"] and "\n" not in answer["content"]
    assert numbers(api) == [] and not discord.pings
    if len(files) > 1 or len(files[0][1]) > SOURCE_CAP:
        assert discord.loaded == [], "nothing is fetched that can't be submitted"


def banned(api: ServedApi, name: str) -> None:
    found = api.store.people.find(name)
    assert found is not None
    api.store.people.ban(found.id, "copied from bob, case 17", by="grace")


def test_what_is_personal_of_a_refusal_goes_to_its_author_alone(
    discord: Discord, api: ServedApi, tmp_path: Path
) -> None:
    with bot(discord, api, tmp_path):
        discord.say(ADA, "", files=[("k.py", NAMED)])
        card(discord, "waiting")
        before = len(discord.shown())
        banned(api, "ada")
        told = discord.say(ADA, "", files=[("k.py", NAMED)])
        (said,) = discord.wait_for(lambda: discord.direct(ADA), "a direct message")
        assert "is banned: copied from bob, case 17. Ask a host." in said["content"]
        assert f"/channels/2000/3000/{told['id']}" in said["content"], "which message it is about"
        assert "Pong" in discord.answer(discord.command(EVE, "ping"))
    assert len(discord.shown()) == before and len(numbers(api)) == 1
    assert not discord.refusals and not discord.pings


def test_whoever_takes_no_direct_messages_is_sent_to_the_command(
    discord: Discord, api: ServedApi, tmp_path: Path
) -> None:
    discord.close_direct(ADA)
    with bot(discord, api, tmp_path):
        discord.say(ADA, "", files=[("k.py", NAMED)])
        card(discord, "waiting")
        banned(api, "ada")
        discord.say(ADA, "", files=[("k.py", NAMED)])
        said = shown(discord, "wasn't submitted")["content"]
        assert said.startswith("<@501> ") and "`/submit`" in said and "\n" not in said
        assert "banned" in discord.answer(discord.command(ADA, "submit", file=("k.py", NAMED)))
    assert discord.direct(ADA) == []
    assert not any(word in str(one) for one in discord.shown() for word in ("banned", "case 17"))
    assert not discord.refusals and not discord.pings


def test_a_quota_is_nobody_elses_business_and_a_pause_is_everybodys(
    discord: Discord, api: ServedApi, tmp_path: Path
) -> None:
    api.store.limits.set_rate("transpose", "leaderboard", 1, by="grace", now=api.now)
    with bot(discord, api, tmp_path):
        discord.say(ADA, "", files=[("k.py", NAMED)])
        card(discord, "waiting")
        discord.say(ADA, "", files=[("k.py", NAMED)])
        (said,) = discord.wait_for(lambda: discord.direct(ADA), "a direct message")
        assert "1 of 1 used" in said["content"]
        api.store.settings.set_accepts_jobs(False, by="grace", now=api.now)
        discord.say(EVE, "", files=[("k.py", NAMED)])
        assert "<@502> Submissions are paused" in shown(discord, "paused")["content"]
        discord.say(EVE, "", DIRECT, files=[("k.py", NAMED)], mentions=False)
        shown(discord, "paused", DIRECT)
        assert "Pong" in discord.answer(discord.command(EVE, "ping"))
    assert discord.direct(EVE) == [] and not any("1 of 1" in one["content"] for one in discord.shown())
    assert not discord.refusals and not discord.pings


def test_a_reply_to_a_card_is_talk_unless_its_text_mentions_the_bot(
    discord: Discord, api: ServedApi, tmp_path: Path
) -> None:
    def replied(text: str, file: str) -> None:
        answered = {"message_id": discord.shown()[0]["id"], "channel_id": "3000", "guild_id": "2000"}
        discord.say(EVE, "", files=[(file, NAMED)], content=text, type=19, message_reference=answered)

    with bot(discord, api, tmp_path):
        discord.say(ADA, "", files=[("k.py", NAMED)])
        card(discord, "waiting")
        replied("why is this one slower? ada, look", "talk.py")
        replied("<@501> look", "more.py")
        assert "Pong" in discord.answer(discord.command(EVE, "ping"))
        assert len(numbers(api)) == 1 and "talk.py" not in discord.loaded and "more.py" not in discord.loaded
        replied(f"faster: <@!{fake.BOT_USER}>", "mine.py")
        discord.wait_for(lambda: len(numbers(api)) == 2, "the second submission")
    assert "mine.py" in discord.loaded
    assert not discord.refusals and not discord.pings


def test_nothing_else_that_people_write_matters(discord: Discord, api: ServedApi, tmp_path: Path) -> None:
    with bot(discord, api, tmp_path) as client:
        discord.say(ADA, "hello")
        discord.say(ADA, "not for you", files=[("k.py", NAMED)], mentions=False)
        discord.say(ADA, "", files=[("k.py", NAMED)], author={**User(900, "another").told(), "bot": True})
        discord.say(ADA, "", files=[("k.py", NAMED)], webhook_id="77")
        assert "Pong" in discord.answer(discord.command(ADA, "ping")), "all of it has arrived"
        assert list(client.cached_messages) == [], "no message is kept"
    assert discord.shown() == [] and numbers(api) == [] and discord.loaded == []


def test_the_same_message_twice_is_one_submission(discord: Discord, api: ServedApi, tmp_path: Path) -> None:
    with bot(discord, api, tmp_path):
        told = discord.say(ADA, "", files=[("k.py", NAMED)])
        card(discord, "waiting")
        assert discord._loop is not None
        asyncio.run_coroutine_threadsafe(discord._dispatch("MESSAGE_CREATE", told), discord._loop).result(60)
        discord.wait_for(lambda: discord.loaded.count("k.py") == 2, "the second reading")
        assert "Pong" in discord.answer(discord.command(ADA, "ping"))
    assert len(numbers(api)) == 1


def test_where_it_may_not_write_it_submits_nothing(discord: Discord, api: ServedApi, tmp_path: Path) -> None:
    discord.permissions = str(fake.VIEW)
    with bot(discord, api, tmp_path):
        discord.say(ADA, "", files=[("k.py", NAMED)])
        discord.permissions = fake.NEEDED
        assert "Pong" in discord.answer(discord.command(ADA, "ping"))
    assert numbers(api) == [] and discord.shown() == []


# ------------------------------------------------------------------------------------------------ GPUs after create


def created(discord: Discord, who: User, **more: Any) -> Asked:
    return discord.command(who, "leaderboard create", leaderboard="spring", problem=("reference.py", ONE_FILE), **more)


def test_a_board_without_gpu_types_asks_for_them(discord: Discord, api: ServedApi, tmp_path: Path) -> None:
    with bot(discord, api, tmp_path):
        asked = created(discord, MAKER)
        menu = last_said(discord, asked, "Which GPU types is spring for?")
        assert menu["flags"] & strict.EPHEMERAL and api.store.boards.find("spring") is None
        made = discord.answer(discord.choose(MAKER, menu, "H100", "A100"))
        assert "Board **spring** is created, on H100, A100" in made or "on A100, H100" in made
        found = api.store.boards.find("spring")
        assert found is not None and set(found.gpus) == {"H100", "A100"}
        discord.wait_for(lambda: not asked.said[0]["components"], "a menu that is gone")
    assert not discord.refusals


def test_the_menu_after_create_expires_politely(
    discord: Discord, api: ServedApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(menus, "GOOD_FOR_S", 0.5)
    with bot(discord, api, tmp_path):
        asked = created(discord, MAKER)
        gone = last_said(discord, asked, "This menu has expired, and spring wasn't created.")
        assert gone["components"] == [] and api.store.boards.find("spring") is None
        refused = created(discord, EVE)
        assert "may not create boards" in discord.answer(refused)
    assert not discord.refusals


# -------------------------------------------------------------------------------------------- verifyruns, verifydb


def test_every_open_board_is_verified_or_those_that_are_named(discord: Discord, api: ServedApi, tmp_path: Path) -> None:
    problem = api.store.boards.get("transpose").problem
    api.store.boards.add("other", problem, gpus=["A100"], confirm=False, now=api.now)
    api.store.boards.add("secret", problem, gpus=["A100"], visibility="closed", confirm=False, now=api.now)
    compiled = replace(problem, name="compiled", lang="cu", config={})
    api.store.boards.add("compiled", compiled, gpus=["A100"], confirm=False, now=api.now)
    with bot(discord, api, tmp_path):
        asked = discord.command(HOSTESS, "verifyruns")
        discord.answer(asked)
        assert "on 3 boards" in asked.text and "secret" not in asked.text
        assert numbers(api) == [], "nothing runs before it is confirmed"
        pressed = discord.press(HOSTESS, asked.said[-1], "Verify")
        said = discord.answer(pressed)
        assert "Verifying on 2 boards; <#3000> follows them." in said and "**compiled**: " in said
        assert "no baseline" in said
        discord.wait_for(lambda: len(discord.shown()) == 2, "a card for each")
        boards = {one.board for one in api.store.submissions.newest()}
        assert boards == {"transpose", "other"}
        assert {one.via for one in api.store.submissions.newest()} == {"verify"}
        named = discord.command(HOSTESS, "verifyruns", leaderboards="other, other", mode="benchmark")
        assert "on 1 board (other)" in discord.answer(named)
        assert "no public board 'nowhere'" in discord.answer(
            discord.command(HOSTESS, "verifyruns", leaderboards="nowhere")
        )
        for command in ("verifyruns", "verifydb"):
            assert "isn't a host" in discord.answer(discord.command(EVE, command))
    assert not discord.refusals


def test_the_database_is_checked_from_the_bot(discord: Discord, api: ServedApi, tmp_path: Path) -> None:
    with bot(discord, api, tmp_path):
        said = discord.answer(discord.command(HOSTESS, "verifydb"))
        assert "needs attention" in said and "no daemon is leading" in said
        with working(api, tmp_path / "service"):
            discord.wait_for(lambda: api.store.leases.all(), "a leader")
            said = discord.answer(discord.command(HOSTESS, "verifydb"))
        assert said.startswith("✓ The database is fine.") and "is current" in said and "Last event: " in said
        api.store._do("UPDATE alembic_version SET version_num = %(at)s", {"at": revisions()[-2]})
        said = discord.answer(discord.command(HOSTESS, "verifydb"))
        assert f"behind \\({revisions()[-2]}; this version needs" in said and "kbslurm db upgrade" in said
        api.store._do("UPDATE alembic_version SET version_num = %(at)s", {"at": revisions()[-1]})
    assert not discord.refusals


# --------------------------------------------------------------------------------------------------- a staging bot


def test_a_staging_bot_is_in_its_own_server_and_nowhere_else(discord: Discord, api: ServedApi, tmp_path: Path) -> None:
    discord.add_guild(2001, 3100)
    with bot(discord, api, tmp_path, debug_server=2001):
        discord.wait_for(lambda: discord.guild_commands.get(2001), "commands")
        assert discord.commands == [] and discord.met["sync"] == 0, "nothing is registered for all servers"
        assert set(discord.guild_commands) == {2001}
        assert "Pong" in discord.answer(discord.command(ADA, "ping", 3100))
        assert "`/submit`" in discord.answer(discord.command(ADA, "help", 3100))
        discord.say(ADA, "", files=[("k.py", NAMED)])
        discord.say(ADA, "", DIRECT, files=[("k.py", NAMED)])
        discord.say(ADA, "", 3100, files=[("k.py", NAMED)])
        card(discord, "waiting", 3100)
        assert "again" in discord.answer(discord.command(HOST_THERE, "admin resync", 3100))
    assert len(numbers(api)) == 1 and discord.met["sync"] == 0
    with bot(discord, api, tmp_path):
        discord.wait_for(lambda: discord.commands, "the live bot's commands")


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ({}, "DISCORD_DEBUG_TOKEN isn't set"),
        ({"DISCORD_DEBUG_TOKEN": "live"}, "is the live bot's token"),
        ({"DISCORD_DEBUG_TOKEN": "staging"}, "DISCORD_DEBUG_SERVER isn't set"),
        ({"DISCORD_DEBUG_TOKEN": "staging", "DISCORD_DEBUG_SERVER": "soon"}, "'soon' isn't a Discord ID"),
    ],
)
def test_what_a_staging_bot_lacks_is_said(tmp_path: Path, env: dict[str, str], said: str) -> None:
    run = CommandLine(cwd=tmp_path, env={"DISCORD_TOKEN": "live", "KBSLURM_BOT_TOKEN": "b", **env})
    for words in (("bot", "check", "--debug"), ("bot", "run", "--debug")):
        found = run(*words)
        assert found.code == 2 and said in found.err, found.err


def test_a_staging_bots_process_has_its_own_token_and_no_live_channel(tmp_path: Path) -> None:
    (tmp_path / "kbslurm.toml").write_text('[discord]\nchannel = "1"\nstaff_channel = "2"\n')
    env = {"DISCORD_TOKEN": "live", "DISCORD_DEBUG_TOKEN": "planted-debug", "DISCORD_DEBUG_SERVER": "2001"}
    config = configs.load(None, {**env, "KBSLURM_BOT_TOKEN": "b"}, cwd=tmp_path)
    told, live = environment(config, debug=True), environment(config)
    assert told["DISCORD_TOKEN"] == "planted-debug" and "live" not in told.values()
    assert "planted-debug" not in live.values() and live["KBSLURM_DISCORD_DEBUG_SERVER"] == ""
    assert told["KBSLURM_DISCORD_DEBUG_SERVER"] == "2001"
    assert told["KBSLURM_DISCORD_CHANNEL"] == told["KBSLURM_DISCORD_STAFF_CHANNEL"] == ""
    assert told["KBSLURM_BOT_MEMORY"] != live["KBSLURM_BOT_MEMORY"]
    assert "planted-debug" not in CommandLine(cwd=tmp_path, env=env)("config", "show").out
