"""What hosts and creators type: each command once as it should be and once as it mostly goes wrong, over the real
discord.py; and that none of it is anybody else's."""

from __future__ import annotations

import csv
import io
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kbslurm.domain.run import PersonId
from kbslurm.errors import Refused
from kbslurm_bot import confirm
from kbslurm_bot.commands import admin as admin_commands
from tests.fakes import discord as fake
from tests.fakes.discord import Asked, Discord, User, strict
from tests.flow.test_bot import BOT_TOKEN, bot, card, text_of
from tests.flow.test_bot_announce import ranks
from tests.flow.test_bot_rights import CREATOR, HOST, ONE_FILE, TOML, packed
from tests.popcorn.served_api import GOOD, TRANSPOSE, ServedApi, served, working

ROOT = Path(__file__).resolve().parents[2]
OTHER = 70003
HOSTESS, MAKER = User(601, "grace", (int(HOST),)), User(602, "hedy", (int(CREATOR),))
ADA, EVE = User(501, "ada", (OTHER,)), User(502, "eve")
FILES = {"problem": ("reference.py", ONE_FILE), "file": ("k.py", GOOD)}
WORDS = {"leaderboard": "transpose", "leaderboards": "transpose", "person": "ada", "repository": "example/problems"}


@pytest.fixture
def discord() -> Iterator[Discord]:
    with fake.served() as built:
        built.roles = {2000: [int(HOST), int(CREATOR), OTHER], 2001: [80001]}
        built.add_guild(2001, 3100)
        yield built


@pytest.fixture
def api(database_url: str, tmp_path: Path) -> Iterator[ServedApi]:
    with served(database_url, tmp_path / "service", bot=BOT_TOKEN, toml=TOML) as built:
        yield built


def leaves(command: fake.Json, before: str = "") -> Iterator[tuple[str, list[fake.Json]]]:
    name, options = f"{before}{command['name']}", command.get("options") or []
    if any(one["type"] in (1, 2) for one in options):
        for one in options:
            yield from leaves(one, f"{name} ")
    else:
        yield name, options


def filled(options: list[fake.Json]) -> fake.Json:
    """A value for each option that is needed."""
    values = {}
    for one in options:
        if one.get("required"):
            choices = one.get("choices")
            values[one["name"]] = (
                choices[0]["value"]
                if choices
                else FILES[one["name"]]
                if one["type"] == 11
                else 1
                if one["type"] == 4
                else WORDS.get(one["name"], "x")
            )
    return values


def of_staff(discord: Discord) -> dict[str, fake.Json]:
    """Each command for hosts or creators, with values."""
    found = {name: filled(options) for command in discord.commands for name, options in leaves(command)}
    mine = ("admin ", "verify", "leaderboard create", "leaderboard delete")
    return {name: values for name, values in found.items() if name.startswith(mine)}


def said(discord: Discord, who: User, name: str, channel: int = 3000, **values: Any) -> str:
    asked = discord.command(who, name, channel, **values)
    text = discord.answer(asked)
    assert all(one["flags"] & strict.EPHEMERAL for one in asked.said), name
    return text


def file_of(discord: Discord, asked: Asked, number: int = 0) -> str:
    discord.answer(asked)
    url = asked.said[0]["attachments"][number]["url"]
    return discord._files[url.removeprefix(discord.url)].decode()


def answered(discord: Discord, who: User, asked: Asked, label: str) -> str:
    """What is said when a question's button is pressed."""
    discord.answer(asked)
    return discord.answer(discord.press(who, asked.said[-1], label))


def test_nothing_of_it_is_a_plain_members(discord: Discord, api: ServedApi, tmp_path: Path) -> None:
    api.store.people.ensure("ada")
    with bot(discord, api, tmp_path):
        found = of_staff(discord)
        assert len(found) == 21, sorted(found)
        every = [name for command in discord.commands for name, _ in leaves(command)]
        written = (ROOT / "docs" / "discord.md").read_text()
        assert not [name for name in every if f"`/{name}`" not in written], "docs/discord.md lists every command"
        before = api.store.events.last()
        for name, values in found.items():
            for who in (EVE, MAKER) if name != "leaderboard create" else (EVE,):
                text = said(discord, who, name, **values)
                what = (
                    "may not create boards" if name == "leaderboard create" else f"{who.name.capitalize()} isn't a host"
                )
                assert text.startswith(what) or what in text, (name, text)
                assert "\n" not in text and "bug" not in text, text
        added = [one.kind for one in api.store.events.after(before)]
        assert set(added) == {"staff.user.add"}, "nothing was done but that two people became known"
        assert api.store.settings.accepts_jobs() and api.store.boards.names() == ["transpose"]
        assert discord.complete(EVE, "admin ban", "person", "a") == []
        assert discord.complete(EVE, "leaderboard create", "gpu", "") == []
        hidden = {one["name"]: one["default_member_permissions"] for one in discord.commands}
        assert int(hidden["admin"]) == int(hidden["verify"]) == 1 << 5 and hidden["submit"] is None
        plain, maker, host = (discord.command(who, "help") for who in (EVE, MAKER, HOSTESS))
        assert "/admin" not in discord.answer(plain) and "/leaderboard create" not in plain.text
        discord.wait_for(lambda: len(maker.said) == len(host.said) == 2, "a second message")
        assert "/leaderboard create" in maker.text and "/admin" not in maker.text and "/verify" not in maker.text
        assert all(f"`/{name}`" in host.text for name in found)
    assert not discord.refusals


def test_what_hosts_do(discord: Discord, api: ServedApi, tmp_path: Path) -> None:
    store = api.store
    ada, mallory = store.people.ensure("ada"), store.people.ensure("mallory")
    with bot(discord, api, tmp_path):
        assert "until `/admin start`" in said(discord, HOSTESS, "admin stop") and not store.settings.accepts_jobs()
        assert "submissions are paused" in said(discord, HOSTESS, "admin show-stats", leaderboard="transpose")
        assert said(discord, HOSTESS, "admin start") == "Submissions are accepted." and store.settings.accepts_jobs()
        assert "there is no board" in said(discord, HOSTESS, "admin show-stats", leaderboard="sort").lower()

        assert discord.complete(HOSTESS, "admin ban", "person", "MAL") == [f"person:{mallory.id}"]
        asked = discord.command(HOSTESS, "admin ban", person=f"person:{mallory.id}", reason="shared an account")
        assert "Ban **mallory**" in discord.answer(asked) and store.people.find("mallory").banned_at is None  # type: ignore[union-attr]
        assert "nly the person who used the command" in answered(discord, EVE, asked, "Ban")
        assert "is banned" in answered(discord, HOSTESS, asked, "Ban")
        assert store.people.find("mallory").ban_reason == "shared an account"  # type: ignore[union-attr]
        assert "has been answered or has expired" in answered(discord, HOSTESS, asked, "Ban")
        assert "may submit again" in said(discord, HOSTESS, "admin unban", person="mallory")
        assert "no person" in said(discord, HOSTESS, "admin ban", person="nobody")
        discord.answer(discord.command(EVE, "me"))
        discord.answer(mention := discord.command(HOSTESS, "admin ban", person="<@502>"))
        assert "Ban **eve**" in mention.text and "Nothing was done" in answered(discord, HOSTESS, mention, "Cancel")

        until = said(discord, HOSTESS, "admin extend", leaderboard="transpose", person="ada", until="2999-01-01 12:00")
        assert "until 2999" in until
        wrong = said(discord, HOSTESS, "admin extend", leaderboard="transpose", person="ada", until="soon")
        assert "soon" in wrong and "until soon" not in wrong
        assert "is private" in said(discord, HOSTESS, "admin visibility", leaderboard="transpose", visibility="private")
        assert discord.complete(HOSTESS, "admin export", "leaderboard", "") == ["transpose"], "hosts see closed boards"
        assert discord.complete(EVE, "leaderboard show", "leaderboard", "") == []
        assert "popcorn join" in said(discord, HOSTESS, "admin invite", leaderboards="transpose", count=2)
        many = discord.command(HOSTESS, "admin invite", leaderboards="transpose", count=21)
        assert len(file_of(discord, many).splitlines()) == 21
        assert "no board" in said(discord, HOSTESS, "admin invite", leaderboards="sort").lower()
        assert "is public" in said(discord, HOSTESS, "admin visibility", leaderboard="transpose", visibility="public")
        limited: fake.Json = {"leaderboard": "transpose", "category": "test"}
        assert "hour: 4 test" in said(discord, HOSTESS, "admin rate-limit", **limited, per_hour=4)
        assert store.limits.rates("transpose")[0].most_per_hour == 4
        assert "no limit on test" in said(discord, HOSTESS, "admin rate-limit", **limited)
        assert "no rate limit" in said(discord, HOSTESS, "admin rate-limit", **limited).lower()

        discord.command(ADA, "submit", file=("k.py", GOOD), leaderboard="transpose", gpu="H100", mode="test")
        card(discord, "waiting")
        shown = discord.command(HOSTESS, "admin get-submission", submission=1)
        assert "**#1** transpose · test" in discord.answer(shown) and file_of(discord, shown) == GOOD.decode()
        assert "no submission" in said(discord, HOSTESS, "admin get-submission", submission=9).lower()
        assert discord.complete(ADA, "cancel", "submission", "") == ["1"]
        asked = discord.command(HOSTESS, "admin delete-submission", submission=1)
        assert "is deleted" in answered(discord, HOSTESS, asked, "Delete")
        assert store.submissions.get(1).removed_at is not None  # type: ignore[arg-type]
        card(discord, "deleted")

        assert "no matching runs" in said(discord, HOSTESS, "admin rejudge-preview", leaderboard="transpose")
        ranks(api, "bob", 2e-3)
        order: fake.Json = {"leaderboard": "transpose", "filter": "person=bob mode=leaderboard"}
        assert "0 would change, 1 open" in said(discord, HOSTESS, "admin rejudge-preview", **order)
        assert "already being rejudged" in said(discord, HOSTESS, "admin rejudge-preview", **order)
        assert "passed           → open" in said(discord, HOSTESS, "admin rejudge-preview", leaderboard="transpose")
        refused = said(discord, HOSTESS, "admin rejudge-preview", leaderboard="transpose", filter="colour=red")
        assert "isn't a valid filter" in refused
        table = discord.command(HOSTESS, "admin export", leaderboard="transpose")
        head, row = csv.reader(io.StringIO(file_of(discord, table)))
        assert (head[:3], row[:3], row[5]) == (["board", "gpu", "rank"], ["transpose", "H100", "1"], "bob")
        plain = file_of(discord, discord.command(HOSTESS, "admin export", leaderboard="transpose", format="json"))
        assert json.loads(plain)[0]["score_s"] == pytest.approx(2e-3, rel=1e-3)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(admin_commands, "EXPORT_CAP", 20)
            assert "over the limit of 20" in said(discord, HOSTESS, "admin export", leaderboard="transpose")

        plainly = discord.command(HOSTESS, "leaderboard delete", leaderboard="transpose")
        assert "1 submissions by 1 people" in discord.answer(plainly)
        assert "Delete it by force" in answered(discord, HOSTESS, plainly, "Delete")
        asked = discord.command(HOSTESS, "admin delete", leaderboard="transpose", force=True)
        # Who isn't a host any more by the time that they say yes is refused then.
        retired = User(HOSTESS.id, HOSTESS.name)
        assert (
            "isn't a host" in answered(discord, retired, asked, "Delete") and store.boards.find("transpose") is not None
        )
        asked = discord.command(HOSTESS, "admin delete", leaderboard="transpose", force=True)
        assert "is deleted" in answered(discord, HOSTESS, asked, "Delete") and store.boards.find("transpose") is None
        assert "no board" in said(discord, HOSTESS, "admin delete", leaderboard="transpose").lower()

        assert "commands registered again" in said(discord, HOSTESS, "admin resync")
        assert (discord.met["sync"], discord.guild_commands) == (2, {2000: []})
        acts = [event.kind.removeprefix("staff.") for event in store.events.audit_log(limit=100)]
        for act in (
            "ban",
            "unban",
            "extend",
            "invite",
            "visibility",
            "rate_limit",
            "remove_submission",
            "export",
            "resync",
        ):
            assert any(act in one for one in acts), (act, acts)
        assert all(
            str(e.data["by"]).startswith("grace (Discord role")
            for e in store.events.audit_log(limit=100)
            if "user" not in e.kind
        )
        assert store.people.by_id(PersonId(ada.id)) == ada
    assert not discord.refusals


def test_problems_come_from_a_repository(discord: Discord, api: ServedApi, tmp_path: Path) -> None:
    place = tmp_path / "repository"
    shutil.copytree(TRANSPOSE, place / "problems" / "order")
    one = "problems:\n  - {directory: order, gpus: [H100]}\n"
    (place / "problems" / "spring.yaml").write_text(one + "  - {directory: nil}\n")
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "problems"]):
        who = ["-c", "user.name=x", "-c", "user.email=x@x"]
        subprocess.run(["git", "-C", place, *who, *words], check=True)
    local: fake.Json = {"repository": str(place)}
    with bot(discord, api, tmp_path):
        wrong = said(discord, HOSTESS, "admin update-problems", repository=str(place / "nowhere"))
        assert "isn't a valid repository" in wrong
        assert "gives no access to files on the server" in said(discord, HOSTESS, "admin update-problems", **local)
        forced = discord.command(HOSTESS, "admin update-problems", repository="example/problems", force=True)
        assert "Make everything in" in discord.answer(forced)
        assert "Nothing was done" in answered(discord, HOSTESS, forced, "Cancel")
        api.store.people.set_role(api.store.people.find("grace").id, "staff", now=api.now)  # type: ignore[union-attr]
        (place / "problems" / "spring.yaml").write_text(one)
        refused = said(discord, HOSTESS, "admin update-problems", **local)
        assert "nil" in refused and "bug" not in refused
        subprocess.run(["git", "-C", place, *who, "commit", "-qam", "without"], check=True)
        assert "created: order" in said(discord, HOSTESS, "admin update-problems", **local)
        again = discord.command(HOSTESS, "admin update-problems", **local, force=True)
        assert "skipped order" in answered(discord, HOSTESS, again, "Make it live")
    assert not discord.refusals


def test_creators_make_boards(discord: Discord, api: ServedApi, tmp_path: Path) -> None:
    with bot(discord, api, tmp_path):
        assert discord.complete(EVE, "leaderboard create", "gpu", "") == []
        assert discord.complete(MAKER, "leaderboard create", "gpu", "") == ["A100", "H100", "all"]
        made = said(
            discord,
            MAKER,
            "leaderboard create",
            leaderboard="spring",
            problem=("spring.zip", packed(TRANSPOSE)),
            gpu="H100, B200",
            deadline="2999-01-01",
        )
        assert "Board **spring** is created, on H100, B200" in made and "no place offers B200" in made
        assert discord.complete(MAKER, "leaderboard create", "gpu", "h") == ["H100"]
        assert discord.complete(MAKER, "leaderboard create", "gpu", "H100, ") == ["H100, A100"]
        every = said(discord, HOSTESS, "leaderboard create", leaderboard="one", problem=FILES["problem"], gpu="all")
        assert "on A100, H100" in every
        again = said(discord, MAKER, "leaderboard create", leaderboard="one", problem=FILES["problem"], gpu="H100")
        assert "already a board" in again
        faulty = said(discord, MAKER, "leaderboard create", leaderboard="two", problem=("p.zip", b"no zip"), gpu="H100")
        assert "can't be read" in faulty
        large = ("p.zip", b"0" * 4_000_001)
        assert "4,000,001 bytes" in said(discord, MAKER, "leaderboard create", leaderboard="two", problem=large)
        assert "spring" in said(discord, EVE, "leaderboard list")
    assert not discord.refusals


def test_a_try_never_ranks_and_a_canary_tells_which_places_work(
    discord: Discord, api: ServedApi, tmp_path: Path
) -> None:
    with bot(discord, api, tmp_path):
        tried = said(discord, ADA, "run", file=("k.py", GOOD), leaderboard="transpose", gpu="H100", mode="test")
        assert "Submission 1 is accepted" in tried and card(discord, "waiting")
        assert "B200" in said(discord, ADA, "run", file=("k.py", GOOD), leaderboard="transpose", gpu="B200")
        assert "Submission 2" in said(discord, ADA, "run", file=("k.py", GOOD), leaderboard="transpose", gpu="H100")
        assert [api.store.submissions.get(n).mode for n in (1, 2)] == ["test", "benchmark"]  # type: ignore[arg-type]
        api.store.boards.set_visibility("transpose", "closed", by="host", now=api.now)
        assert "no public board" in said(discord, HOSTESS, "verify", leaderboard="transpose")
        api.store.boards.set_visibility("transpose", "public", by="host", now=api.now)
        may, discord.permissions = discord.permissions, "0"
        assert "I lack View Channels, Send Messages" in said(discord, HOSTESS, "verify")
        discord.permissions = may
    with bot(discord, api, tmp_path):  # boards aren't asked for at every word: another bot knows none yet
        assert "B200" in said(discord, HOSTESS, "verify", leaderboard="transpose", gpu="B200")
        assert "<#3000> follows it" in said(discord, HOSTESS, "verify")
        followed = card(discord, "canary on transpose")
        assert "**H100** at local waiting" in text_of(followed) and "**A100** at local waiting" in text_of(followed)
    with working(api, tmp_path / "service"), bot(discord, api, tmp_path):
        last = card(discord, "2 of 2 passed")
        assert last["id"] == followed["id"] and text_of(last).count("at local ✓ works") == 2
        assert api.store.standings.best("transpose", "H100") == []
    assert not discord.refusals


def test_a_role_of_another_server_gives_nothing_and_a_restart_ends_questions(
    discord: Discord, api: ServedApi, tmp_path: Path
) -> None:
    elsewhere = User(701, "eva", (80001,))
    with bot(discord, api, tmp_path):
        assert "isn't a host" in said(discord, elsewhere, "admin stop", 3100)
        # Discord names a member's roles of the server where they type; those of another aren't among that server's.
        assert "isn't a host" in said(discord, User(702, "hal", (int(HOST),)), "admin stop", 3100)
        assert "are paused" in said(discord, HOSTESS, "admin stop") or not api.store.settings.accepts_jobs()
        discord.answer(asked := discord.command(HOSTESS, "admin delete", leaderboard="transpose"))
    with bot(discord, api, tmp_path):
        assert "has expired" in answered(discord, HOSTESS, asked, "Delete")
        assert api.store.boards.find("transpose") is not None
        # Staff by their own row need no role, in any server.
        api.store.people.set_role(api.store.people.find("eva").id, "staff", now=api.now)  # type: ignore[union-attr]
        assert said(discord, elsewhere, "admin start", 3100) == "Submissions are accepted."
        assert api.store.events.audit_log(limit=1)[0].data["by"] == "eva"
    assert not discord.refusals


def test_a_question_is_answered_once_by_whoever_asked_and_soon() -> None:
    now = 0.0
    questions: confirm.Questions[confirm.Act] = confirm.Questions(steady=lambda: now)

    async def act(_: object) -> str:
        return ""

    first, second = questions.put(1, act), questions.put(1, act)
    with pytest.raises(Refused, match="only the person"):
        questions.take(first, 2)
    assert questions.take(first, 1) is act
    with pytest.raises(Refused, match="answered"):
        questions.take(first, 1)
    now = confirm.GOOD_FOR_S
    with pytest.raises(Refused, match="expired"):
        questions.take(second, 1)
    for _ in range(confirm.MOST + 50):
        questions.put(1, act)
    assert len(questions._open) == confirm.MOST
