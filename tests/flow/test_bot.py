"""The Discord bot against the real API on real Postgres: what is typed, what a channel sees, and bad days."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from kbslurm.api.rate_limits import Limit, Limits
from kbslurm.api.server import Serving
from kbslurm.cli.operator.bot_process import environment
from kbslurm.client.http import Client
from kbslurm.config import settings as config
from kbslurm.domain.run import PersonId
from kbslurm.domain.secret_names import SECRET_VARIABLES
from kbslurm.errors import Invalid, NotFound, Unauthenticated
from kbslurm.flow.queue import claim, free_slots
from kbslurm.flow.score import score
from kbslurm_bot import announcements, live_cards, state
from kbslurm_bot.discord_client import DiscordClient, connect_to
from kbslurm_bot.service import Service
from kbslurm_bot.settings import Settings
from tests.fakes import discord as fake
from tests.fakes.discord import Discord, User
from tests.flow.puppet import Puppet, sealed_report
from tests.popcorn.served_api import GOOD, WRONG, ServedApi, served, working

ADA, EVE = User(501, "ada"), User(502, "eve")
BOT_TOKEN = "a-bot-token-for-the-tests-0123456789"


@pytest.fixture
def discord() -> Iterator[Discord]:
    with fake.served() as built:
        yield built


@pytest.fixture
def api(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServedApi]:
    with served(database_url, tmp_path / "service", bot=BOT_TOKEN) as built:
        yield built


def settings_of(
    discord: Discord,
    api: ServedApi,
    place: Path,
    channel: int | None = None,
    staff_channel: int | None = None,
    debug_server: int | None = None,
) -> Settings:
    return Settings(
        token=fake.TOKEN,
        bot_token=BOT_TOKEN,
        url=api.url,
        public_url="https://kb.example",
        state_file=place / "bot.sqlite",
        api_url=f"{discord.url}/api/v10",
        gateway_url=discord.gateway_url,
        channel=channel,
        staff_channel=staff_channel,
        debug_server=debug_server,
    )


@contextmanager
def bot(
    discord: Discord, api: ServedApi, place: Path, *, url: str = "", patience_s: float = 75.0, **channels: int
) -> Iterator[DiscordClient]:
    """The bot in a thread of its own; at the end it is gone, and only its memory stays. No hour is the digest's."""
    settings = settings_of(discord, api, place, **channels)
    connect_to(settings)
    loop, clients, failed = asyncio.new_event_loop(), [], []
    before = discord.met["identify"]
    patch = pytest.MonkeyPatch()
    patch.setattr(announcements, "DIGEST_HOUR", None)

    async def live() -> None:
        with state.opened(settings.state_file) as kept, reaching(url or api.url, patience_s) as service:
            client = DiscordClient(settings, kept, service, guild_ready_timeout=0)
            clients.append(client)
            await client.start(fake.TOKEN)

    def run() -> None:
        try:
            loop.run_until_complete(live())
        except BaseException as error:
            failed.append(error)
        finally:
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()

    thread = threading.Thread(target=run, name="bot")
    thread.start()
    try:
        discord.wait_for(lambda: discord.met["identify"] > before or failed, "the bot")
        assert not failed, failed
        discord.wait_for(lambda: clients and clients[0].is_ready(), "a bot that is ready")
        yield clients[0]
    finally:
        if clients and thread.is_alive():
            asyncio.run_coroutine_threadsafe(clients[0].close(), loop)
        thread.join(60)
        patch.undo()
        assert not thread.is_alive()


def reaching(url: str, patience_s: float) -> contextlib.closing[Service]:
    return contextlib.closing(Service(url, BOT_TOKEN, patience_s=patience_s))


def text_of(message: fake.Json) -> str:
    return "\n".join(one["content"] for one in fake.strict.walked(message["components"]) if "content" in one)


def card(discord: Discord, words: str, channel: int = 3000) -> fake.Json:
    """The only card in the channel, once it says these words."""

    def found() -> fake.Json | None:
        shown = discord.shown(channel)
        return shown[-1] if shown and words in text_of(shown[-1]) else None

    try:
        told: fake.Json = discord.wait_for(found, f"a card that says {words!r}")
    except AssertionError as error:
        error.add_note("\n".join(text_of(one) for one in discord.shown(channel)))
        raise
    return told


def test_a_submission_from_the_slash_to_the_verdict_over_a_restart(
    discord: Discord, api: ServedApi, tmp_path: Path
) -> None:
    with bot(discord, api, tmp_path):
        # A busy machine may be too slow for one that the bot waits for: then nothing is shown, and people type on.
        discord.wait_for(
            lambda: discord.complete(ADA, "leaderboard submit ranked", "leaderboard", "tra") == ["transpose"], "boards"
        )
        gpus = discord.complete(ADA, "leaderboard submit ranked", "gpu", "H100, ", leaderboard="transpose")
        assert gpus == ["H100, A100"]
        asked = discord.command(
            ADA, "leaderboard submit ranked", file=("k.py", GOOD), leaderboard="transpose", gpu="H100, A100"
        )
        assert "Submission 1 is accepted" in discord.answer(asked)
        assert all(one["flags"] & fake.strict.EPHEMERAL for one in asked.said)
        first = card(discord, "waiting")
        assert "transpose" in text_of(first) and text_of(first).count("waiting") == 2
    with working(api, tmp_path / "service"), bot(discord, api, tmp_path):
        last = card(discord, "rank 1 of 1")
        assert last["id"] == first["id"] and len(discord.shown()) == 1, "it is the same message"
        assert text_of(last).count("✓") == 2
        assert discord.met["sync"] == 1, "nothing changed, so nothing is synced again"
        assert "cases" not in text_of(last)
        log = discord.press(ADA, last, "Log")
        discord.answer(log)
        foreign = discord.answer(discord.press(EVE, last, "Log"))
        assert "isn't yours" in foreign
        compared = discord.answer(discord.press(ADA, last, "Compare"))
        assert "first" in compared
        again = discord.answer(discord.press(ADA, last, "Again"))
        assert "Submission 2 is accepted" in again
        discord.wait_for(lambda: len(discord.shown()) == 2, "a second card")
        card(discord, "than own best")
    assert not discord.refusals
    assert max(discord.edits.values()) < 12
    assert api.store.submissions.get(1).person == "ada"  # type: ignore[arg-type]


def test_a_wrong_one_is_told_to_the_channel_without_its_reasons(
    discord: Discord, api: ServedApi, tmp_path: Path
) -> None:
    with working(api, tmp_path / "service"), bot(discord, api, tmp_path):
        discord.command(ADA, "submit", file=("k.py", WRONG), leaderboard="transpose", gpu="h100", mode="test")
        last = card(discord, "wrong answer")
        log = discord.press(ADA, last, "Log")
        said = discord.answer(log)
        assert "an answer is wrong: row 0" in said
        assert "row" not in text_of(last), "that is for its owner"


def test_bad_days(discord: Discord, api: ServedApi, tmp_path: Path) -> None:
    with bot(discord, api, tmp_path):
        discord.limit_next(1, globally=True)
        discord.fail_next(502)
        asked = discord.command(ADA, "submit", file=("k.py", GOOD), leaderboard="transpose", gpu="H100", mode="test")
        discord.answer(asked)
        shown = card(discord, "waiting")
        discord.drop()
        discord.wait_for(lambda: discord.met["resume"], "a resumed session")
        assert "Pong" in discord.answer(discord.command(ADA, "ping"))
        discord.invalidate()
        discord.wait_for(lambda: discord.met["identify"] == 2, "a new session")
        assert "isn't yours" in discord.answer(discord.press(EVE, shown, "Cancel"))
        assert "cancelled" in discord.answer(discord.press(ADA, shown, "Cancel"))
        card(discord, "cancelled")
    assert not discord.refusals and len(discord.shown()) == 1


def test_what_is_wrong_is_one_sentence(discord: Discord, api: ServedApi, tmp_path: Path) -> None:
    with bot(discord, api, tmp_path):
        nowhere = discord.command(ADA, "submit", file=("k.py", GOOD), leaderboard="sort", gpu="H100")
        assert "transpose" in discord.answer(nowhere) and "sort" in nowhere.text
        other = discord.command(ADA, "submit", file=("k.py", GOOD), leaderboard="transpose", gpu="B200")
        assert "B200" in discord.answer(other)
        large = discord.command(ADA, "submit", file=("k.py", b"#" * 1_000_001), leaderboard="transpose", gpu="H100")
        assert "1000001 bytes" in discord.answer(large)
        discord.permissions = "0"
        lacking = discord.command(ADA, "submit", file=("k.py", GOOD), leaderboard="transpose", gpu="H100")
        assert "View Channels, Send Messages" in discord.answer(lacking)
        assert not discord.shown()


def test_one_benchmark_is_profiled_where_it_is_chosen(discord: Discord, api: ServedApi, tmp_path: Path) -> None:
    def profiled(name: str, benchmark: int, **more: str) -> str:
        wanted: dict[str, Any] = {"leaderboard": "transpose", "gpu": "H100", "benchmark": benchmark, **more}
        return discord.answer(discord.command(ADA, name, file=("k.py", GOOD), **wanted))

    with bot(discord, api, tmp_path):
        assert "is accepted" in profiled("submit", 1, mode="profile")
        assert "is accepted" in profiled("leaderboard submit profile", 1)
        assert "ranspose has no benchmark 7" in profiled("leaderboard submit profile", 7)
        assert "can't be limited to one benchmark" in profiled("submit", 0)
    kept = api.store.submissions._all("SELECT mode, benchmark FROM submission ORDER BY id", {})
    assert [(row["mode"], row["benchmark"]) for row in kept] == [("profile", 1), ("profile", 1)]
    assert not discord.refusals


def test_boards_are_told(discord: Discord, api: ServedApi, tmp_path: Path) -> None:
    with bot(discord, api, tmp_path):
        assert "**transpose** · H100, A100" in discord.answer(discord.command(ADA, "leaderboard list"))
        empty = discord.answer(discord.command(ADA, "leaderboard show", leaderboard="transpose"))
        assert "Nobody has ranked yet" in empty
        task = discord.answer(discord.command(ADA, "leaderboard task", leaderboard="transpose"))
        assert "**tests**" in task and "seed" in task
        template = discord.command(ADA, "leaderboard template", leaderboard="transpose")
        discord.answer(template)
        assert template.said[0]["attachments"]
        helped = discord.answer(discord.command(ADA, "leaderboard help"))
        for line in ("/submit", "/leaderboard submit ranked", "/leaderboard show", "/ping"):
            assert f"`{line}`" in helped
        discord.command(ADA, "submit", file=("k.py", GOOD), leaderboard="transpose", gpu="H100", mode="test")
        card(discord, "waiting")
        own = discord.command(ADA, "leaderboard get-submission", submission=1)
        assert "waiting" in discord.answer(own) and own.said[0]["attachments"]
        foreign = discord.command(EVE, "leaderboard get-submission", submission=1)
        assert "isn't yours" in discord.answer(foreign)


def test_what_concerns_whoever_asks(discord: Discord, api: ServedApi, tmp_path: Path) -> None:
    with bot(discord, api, tmp_path):
        assert "You are **ada** (participant" in discord.answer(discord.command(ADA, "me"))
        discord.command(ADA, "submit", file=("k.py", GOOD), leaderboard="transpose", gpu="H100")
        card(discord, "waiting")
        assert "`#1` transpose · ranked · pending" in discord.answer(discord.command(ADA, "me"))
        assert "`#1`" not in discord.answer(discord.command(EVE, "me"))
        assert "**H100** 1 waiting" in discord.answer(discord.command(EVE, "queue", leaderboard="transpose"))
        personal = discord.command(ADA, "leaderboard show-personal", leaderboard="transpose", gpu="H100")
        assert "`#1`" in discord.answer(personal) and not personal.said[0]["attachments"]
        with Client(api.url) as device:
            pending = device.pending()
        assert "Linked, ada" in discord.answer(discord.command(ADA, "link", token=pending))
        assert "isn't waiting" in discord.answer(discord.command(EVE, "link", token=pending))
        with Client(api.url, token=pending) as hers:
            assert hers.me().name == "ada"
        assert "isn't yours" in discord.answer(discord.command(EVE, "cancel", submission=1))
        assert "cancelled" in discord.answer(discord.command(ADA, "cancel", submission=1))
        card(discord, "cancelled")
    assert not discord.refusals


def test_questions_are_asked_and_their_answers_told_to_whoever_asked(
    discord: Discord, api: ServedApi, tmp_path: Path
) -> None:
    with bot(discord, api, tmp_path):
        assert "No questions yet" in discord.answer(discord.command(ADA, "answers"))
        assert "Choose a board or a submission" in discord.answer(discord.command(ADA, "ask", text="Why?"))
        asked = discord.command(ADA, "ask", text="May we? @everyone [x](http://x) `y`", leaderboard="transpose")
        assert "Question 1 is sent" in discord.answer(asked)
        foreign = discord.command(ADA, "ask", text="Please.", submission=99, appeal=True)
        assert "There is no submission" in discord.answer(foreign)
        api.store.questions.answer(1, "Yes, *any*.", to_all=False, again=False, by="host", now=api.now)
        told = discord.answer(discord.command(ADA, "answers"))
        assert "`#1` transpose · answered" in told and r"To you: Yes, \*any\*." in told and "@everyone [x]" not in told
        assert "No questions yet" in discord.answer(discord.command(EVE, "answers"))
    assert not discord.refusals


def test_a_history_is_a_picture(
    discord: Discord, api: ServedApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_cards, "GAP_S", 0.2)
    with bot(discord, api, tmp_path):
        for n, score_s in enumerate((0.5, 0.4, 0.6), 1):
            discord.command(ADA, "submit", file=("k.py", GOOD), leaderboard="transpose", gpu="H100")
            number_of_cards(discord, n)
            judge(api, score_s)
            card(discord, "rank 1 of 1")
        first, second, third = discord.shown()
        assert not first["attachments"], "one score is no history"
        (picture,) = second["attachments"]
        assert picture["filename"] == "history-0.png" and discord.file(picture).startswith(b"\x89PNG")
        (gallery,) = [one for one in fake.strict.walked(third["components"]) if one["type"] == fake.strict.GALLERY]
        assert gallery["items"][0]["description"] == "3 own scores on transpose, H100; the best 400 ms"
        personal = discord.command(ADA, "leaderboard show-personal", leaderboard="transpose")
        discord.answer(personal)
        (picture,) = personal.said[0]["attachments"]
        assert picture["filename"] == "history.png" and picture["size"] > 5000
        discord.permissions = str(int(fake.NEEDED) & ~fake.ATTACH)
        discord.command(ADA, "submit", file=("k.py", GOOD), leaderboard="transpose", gpu="H100")
        number_of_cards(discord, 4)
        judge(api, 0.3)
        last = card(discord, "★ 1.33× faster than own best")
        assert not last["attachments"], "without the permission the card is told without its picture"
    assert not discord.refusals and api.store.boards.find("transpose").visibility == "public"  # type: ignore[union-attr]


def number_of_cards(discord: Discord, many: int) -> None:
    discord.wait_for(lambda: len(discord.shown()) == many, f"card {many}")


def judge(api: ServedApi, score_s: float, **changes: Any) -> None:
    """A report for what waits longest, in the rows; nothing really runs."""
    store, now = api.store, api.now
    slots = {"puppet": Puppet(slots={"H100": 9, "A100": 9}).capacity()}
    attempt = claim(store.queue, free_slots(slots, store.attempts.open()), now)
    assert attempt is not None
    told = {"score_s": score_s, "interval_s": [score_s * 0.999, score_s * 1.001], **changes}
    score(store, attempt, sealed_report(store.attempts.work(attempt.id), **told), now)


# ------------------------------------------------------------------------------------------ what the bot's token opens


def test_the_bots_token_opens_no_more_than_the_person_may(api: ServedApi) -> None:
    store, now = api.store, api.now
    with Client(api.url, admin=BOT_TOKEN) as client, Client(api.url, admin=BOT_TOKEN + "x") as wrong:
        ada = client.discord_user("501", "ada")
        assert client.discord_user("501", "somebody else") == ada, "asked for again it is the same person"
        assert client.discord_user("502", "ada").name != "ada", "a name is nobody's account"
        assert client.acting_for("discord:501").me() == ada
        for call in (
            wrong.acting_for("discord:501").me,
            lambda: wrong.discord_user("9", "x"),
            lambda: client.acting_for("person:1").me(),
            lambda: client.acting_for("github:501").me(),
            client.overview,
            lambda: client.person("ada"),
            client.acting_for("discord:501").overview,
            lambda: client.acting_for("discord:501").set_accepting(False),
        ):
            with pytest.raises(Unauthenticated):
                call()
        with pytest.raises(NotFound):
            client.acting_for("discord:77").me()
        store.people.set_role(PersonId(ada.id), "staff", now=now)
        assert client.acting_for("discord:501").set_accepting(False) is False
        assert (store.settings.accepts_jobs(), client.acting_for("discord:501").audit()[0]["by"]) == (False, "ada")
        store.people.ban(PersonId(ada.id), now=now)
        with pytest.raises(Unauthenticated):
            client.acting_for("discord:501").set_accepting(True)


def test_a_discord_account_that_nobody_knows_yet_reads_what_anybody_may(api: ServedApi) -> None:
    with Client(api.url, admin=BOT_TOKEN) as client, Client(api.url) as anybody:
        stranger = client.acting_for("discord:77")
        assert [board.name for board in stranger.boards()] == [board.name for board in anybody.boards()] != []
        assert stranger.ranking("transpose", "H100") == []
        with pytest.raises(NotFound):
            stranger.submissions()


def test_whoever_asks_for_what_only_hosts_may_keeps_nobody_else_out(
    api: ServedApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = Limits(strangers=Limit(burst=3, per_minute=1))
    remote = {"X-Forwarded-For": "203.0.113.9", "X-Kbslurm-Acting-For": "discord:501"}

    def asked(bearer: str, path: str) -> int:
        headers = {**remote, "Authorization": f"Bearer {bearer}"}
        return httpx.post(f"{serving.url}{path}", headers=headers, timeout=60).status_code

    monkeypatch.setattr(Limits, "of", lambda _: few)
    api.store.people.for_account("discord", "501", "ada", by="test", now=api.now)
    with Serving(api.context, host="127.0.0.1", port=0) as serving:
        assert {asked(BOT_TOKEN, "/admin/stop") for _ in range(9)} == {401}, "the bot's address isn't a stranger's"
        assert [asked(BOT_TOKEN + "x", "/admin/stop") for _ in range(4)] == [401, 401, 401, 429]


def test_one_who_tries_tokens_locks_nobody_else_out_of_their_address(
    api: ServedApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = Limits(strangers=Limit(burst=3, per_minute=1))
    monkeypatch.setattr(Limits, "of", lambda _: few)
    ada = api.client().cli_id or ""

    def asked(token: str) -> int:
        headers = {"X-Forwarded-For": "203.0.113.9", "X-Popcorn-Cli-Id": token}
        return httpx.get(f"{serving.url}/user/submissions", headers=headers, timeout=60).status_code

    with Serving(api.context, host="127.0.0.1", port=0) as serving:
        assert asked(ada) == 200
        assert [asked("guess") for _ in range(4)] == [401, 401, 401, 429]
        assert asked(ada) == 200, "a failed poll would end popcorn-cli"
        api.store.tokens.revoke_secret(ada, now=api.now)
        assert [asked(ada) for _ in range(2)] == [401, 429]


def test_a_pending_token_is_linked_once_and_told_to_the_audit(api: ServedApi) -> None:
    with Client(api.url, admin=BOT_TOKEN) as client, Client(api.url) as device:
        client.discord_user("501", "ada")
        pending = device.pending()
        with pytest.raises(Invalid):
            client.link_mine(pending)
        assert client.acting_for("discord:501").link_mine(pending).name == "ada"
        with Client(api.url, token=pending) as theirs:
            assert theirs.me().name == "ada"
        with pytest.raises(Invalid):
            client.acting_for("discord:501").link_mine(pending)
        (added, linked) = sorted(api.store.events.audit_log(limit=2), key=lambda event: event.id)
        assert (added.kind, linked.kind, linked.data["by"]) == ("staff.user.add", "staff.link", "bot")


def test_without_a_bots_token_there_is_no_bot(database_url: str, tmp_path: Path) -> None:
    with served(database_url, tmp_path) as api, Client(api.url, admin="") as client:
        with pytest.raises(Unauthenticated):
            client.discord_user("501", "ada")
        with Client(api.url, admin="None") as other, pytest.raises(Unauthenticated):
            other.discord_user("501", "ada")


def test_the_feed_is_the_bots(api: ServedApi) -> None:
    with Client(api.url, admin=BOT_TOKEN) as client:
        client.discord_user("501", "ada")
        assert [event.kind for event in client.events(stream=False)][-1] == "staff.user.add"


# --------------------------------------------------------------------------------------------------------- its process


def environment_of(
    discord: Discord, api: ServedApi, place: Path, channels: dict[str, int] | None = None, **more: str
) -> dict[str, str]:
    (place / "kbslurm.toml").write_text(
        f"[daemon]\nstate_dir = '{place}'\n"
        f"[discord]\napi_url = '{discord.url}/api/v10'\ngateway_url = '{discord.gateway_url}'\n"
        + "".join(f"{name} = '{number}'\n" for name, number in (channels or {}).items())
    )
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(place),
        "KBSLURM_CONFIG": str(place / "kbslurm.toml"),
        "KBSLURM_URL": api.url,
        "KBSLURM_BOT_TOKEN": BOT_TOKEN,
        "DISCORD_TOKEN": fake.TOKEN,
        **more,
    }


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def checked(env: dict[str, str], place: Path) -> tuple[int, dict[str, fake.Json]]:
    argv = [sys.executable, "-m", "kbslurm", "bot", "check", "--json"]
    said = subprocess.run(argv, env=env, cwd=place, capture_output=True, text=True, timeout=120, check=False)
    assert said.stdout, said.stderr
    return said.returncode, {one["what"]: one for one in json.loads(said.stdout)["checks"]}


def test_check_names_what_is_missing_and_its_remedy(discord: Discord, api: ServedApi, tmp_path: Path) -> None:
    code, found = checked(environment_of(discord, api, tmp_path), tmp_path)
    named = {"[discord] channel", "[discord] staff_channel"}
    assert code == 0 and set(found) == {"token", "intents", "server guild 2000", "service"} | named
    assert "not configured" in found["[discord] channel"]["said"]
    env = environment_of(discord, api, tmp_path)
    del env["KBSLURM_BOT_TOKEN"]
    code, found = checked(env, tmp_path)
    assert code == 0 and "kbslurm up makes the bot's token" in found["service"]["said"], (
        "as docs/discord.md has it checked"
    )
    discord.permissions = str(1 << 10)
    code, found = checked(environment_of(discord, api, tmp_path, KBSLURM_BOT_TOKEN="another"), tmp_path)
    assert code == 2 and not found["service"]["ok"]
    assert "Send Messages, Attach Files" in found["server guild 2000"]["said"]
    assert "client_id=1000&scope=bot+applications.commands&permissions=35840" in found["server guild 2000"]["fix"]
    code, found = checked(environment_of(discord, api, tmp_path, DISCORD_TOKEN="no"), tmp_path)
    assert code == 2 and "Reset it" in found["token"]["fix"]


def test_check_looks_into_both_channels(discord: Discord, api: ServedApi, tmp_path: Path) -> None:
    discord.add_guild(2000, 3001, 3002)
    both = {"channel": 3001, "staff_channel": 3002}
    code, found = checked(environment_of(discord, api, tmp_path, both), tmp_path)
    assert code == 0 and found["[discord] channel"]["said"] == "it may write in #c3001"
    deny = {"id": "2000", "type": 0, "allow": "0", "deny": str(fake.SEND)}
    discord.channels[3001]["permission_overwrites"] = [deny]
    discord.hidden.add(3002)
    code, found = checked(environment_of(discord, api, tmp_path, both), tmp_path)
    assert code == 2 and found["[discord] channel"]["said"] == "in #c3001 it lacks Send Messages"
    assert "allow Send Messages" in found["[discord] channel"]["fix"]
    assert "can't see 3002" in found["[discord] staff_channel"]["said"] and found["[discord] staff_channel"]["fix"]
    discord.channels[3001]["permission_overwrites"] = [
        deny,
        {**deny, "id": "1000", "allow": str(fake.SEND), "deny": "0"},
    ]
    env = environment_of(discord, api, tmp_path, {"channel": 3001, "staff_channel": 77})
    said = subprocess.run(
        [sys.executable, "-m", "kbslurm", "bot", "check"],
        env=env,
        cwd=tmp_path,
        text=True,
        capture_output=True,
        timeout=120,
        check=False,
    )
    lines = said.stdout.splitlines()
    assert "PASS [discord] channel: it may write in #c3001" in lines, "the bot's own overwrite is the last word"
    assert said.returncode == 2 and any(
        line.startswith("FAIL [discord] staff_channel: the bot can't see 77") for line in lines
    )


@pytest.mark.parametrize("late_s", [0.0, 3.0], ids=["at once", "late"])
def test_start_up_names_what_is_missing_and_its_remedy(
    discord: Discord, api: ServedApi, tmp_path: Path, late_s: float
) -> None:
    discord.add_guild(2000, 3001)
    discord.guilds_late_s = late_s  # discord.py waits for two seconds before it says that it is ready
    discord.permissions = str(fake.VIEW)
    env = environment_of(discord, api, tmp_path, {"channel": 3001, "staff_channel": 77})
    argv = [sys.executable, "-m", "kbslurm", "bot", "run"]
    with subprocess.Popen(argv, env=env, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        lines: list[str] = []
        try:
            while not any("staff_channel" in line for line in lines):
                lines.append(running.stderr.readline())
                assert lines[-1], lines
        finally:
            running.send_signal(signal.SIGTERM)
            lines += running.stderr.readlines()
    assert running.returncode == 0
    (server,) = [line for line in lines if "a permission is missing" in line]
    assert "Send Messages, Attach Files" in server and "kbslurm bot check" in server
    (listener,) = [line for line in lines if "can't write in [discord] channel" in line]
    assert "#c3001 of guild 2000" in listener and "Send Messages" in listener and "Allow it" in listener
    (staff,) = [line for line in lines if "can't write in [discord] staff_channel" in line]
    assert "77" in staff and "View Channels" in staff


@pytest.mark.parametrize(("told", "words"), [("token", "Reset it"), ("intents", "kbslurm bot check")])
def test_what_only_an_operator_can_change_ends_the_bot(
    discord: Discord, api: ServedApi, tmp_path: Path, told: str, words: str
) -> None:
    discord.refuses_intents = told == "intents"
    env = environment_of(discord, api, tmp_path) | ({"DISCORD_TOKEN": "no"} if told == "token" else {})
    argv = [sys.executable, "-m", "kbslurm", "bot", "run"]
    said = subprocess.run(argv, env=env, cwd=tmp_path, text=True, capture_output=True, timeout=120, check=False)
    assert said.returncode == 2 and told in said.stderr and words in said.stderr and "Traceback" not in said.stderr


def test_the_bots_process_is_told_no_secret_but_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SECRET_VARIABLES:
        monkeypatch.setenv(name, f"planted-{name}")
    monkeypatch.setenv("PGPASSWORD", "planted-too")
    env = environment(config.load(None, cwd=tmp_path))
    planted = {name for name, value in env.items() if "planted" in value}
    assert planted == {"DISCORD_TOKEN", "KBSLURM_BOT_TOKEN"}


def test_a_bot_whose_token_was_rejected_comes_with_the_rotated_one(
    discord: Discord, database_url: str, tmp_path: Path
) -> None:
    """The service goes on without it; a reload has it started with what the token's file says by then."""
    token = tmp_path / "token"
    token.write_text("an-expired-token\n")
    (tmp_path / "kbslurm.toml").write_text(
        f"[server]\nlisten = '127.0.0.1:{free_port()}'\n"
        f"[daemon]\nstate_dir = '{tmp_path}'\n[daemon.local]\nslots = {{ H100 = 1 }}\n"
        f"[discord]\napi_url = '{discord.url}/api/v10'\ngateway_url = '{discord.gateway_url}'\n"
    )
    env = {
        "PATH": os.environ["PATH"], "HOME": str(tmp_path), "DATABASE_URL": database_url,
        "DISCORD_TOKEN_FILE": str(token),
    }  # fmt: skip
    argv = [sys.executable, "-m", "kbslurm", "up", "--log-json"]
    with subprocess.Popen(argv, env=env, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as up:
        assert up.stderr is not None
        try:
            said = next(line for line in up.stderr if "the bot won't be restarted" in line or "stopping" in line)
            assert "kbslurm place reload" in said and "an-expired-token" not in said
            assert not discord.met["identify"]
            token.write_text(f"{fake.TOKEN}\n")
            up.send_signal(signal.SIGHUP)
            discord.wait_for(lambda: discord.met["identify"], "the bot")
        finally:
            up.send_signal(signal.SIGTERM)
            rest = up.stderr.read()
    assert up.returncode == 0, rest


def test_up_starts_the_bot_and_the_bot_holds_no_database_password(
    discord: Discord, database_url: str, tmp_path: Path
) -> None:
    (tmp_path / "kbslurm.toml").write_text(
        f"[server]\nlisten = '127.0.0.1:{free_port()}'\n"
        f"[daemon]\nstate_dir = '{tmp_path}'\n[daemon.local]\nslots = {{ H100 = 1 }}\n"
        f"[discord]\napi_url = '{discord.url}/api/v10'\ngateway_url = '{discord.gateway_url}'\n"
    )
    (tmp_path / ".env").write_text(f"DATABASE_URL={database_url}\nDISCORD_TOKEN={fake.TOKEN}\n")
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    argv = [sys.executable, "-m", "kbslurm", "up"]
    with subprocess.Popen(argv, env=env, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as up:
        try:
            discord.wait_for(lambda: discord.met["identify"], "the bot")
            children = psutil.Process(up.pid).children()
            (bots,) = [one for one in children if "kbslurm_bot" in one.cmdline()]
            held = bots.environ()
            assert held["DISCORD_TOKEN"] and "DATABASE_URL" not in held and database_url not in held.values()
            discord.wait_for(lambda: discord.commands, "commands")

            def service() -> bool:
                return "service: up" in discord.answer(discord.command(ADA, "ping"))

            discord.wait_for(service, "a service that is up")
        finally:
            up.send_signal(signal.SIGTERM)
            said = up.stderr.read() if up.stderr else ""
    assert up.returncode == 0, said
