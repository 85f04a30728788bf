"""`make demo-discord`: a conversation with the bot, in a terminal, without a token or an account.

The bot is the real one, in a process of its own with the real discord.py; so are the service behind it, its Postgres
and its judge. Only Discord is the stand-in beside this file. What people type goes in, and what each channel then shows
comes out as text, or as one JSON object a line. It exits when it is done or on ^C, and leaves nothing behind.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.panel import Panel

from kbslurm import wiring
from kbslurm.api.server import Serving, context_of
from kbslurm.cli.output import printing
from kbslurm.config import settings as configs
from kbslurm.config import shared_folders
from kbslurm.config.settings import Config
from kbslurm.daemon.loop import Daemon
from kbslurm.domain import contest
from kbslurm.errors import EXIT_BUG, EXIT_INTERRUPTED, EXIT_OK, KbslurmError
from kbslurm.observe import logs
from kbslurm.problems import loading
from kbslurm.store.postgres import PostgresStore
from kbslurm_bot import state
from kbslurm_bot.announcements import SEEN_AT
from tests.fakes import discord as fake
from tests.fakes.discord import Discord, Json, User, strict

ADA, BORIS = User(501, "ada"), User(502, "boris")
LOUNGE, ANNOUNCEMENTS, STAFF = 3000, 3001, 3002
CHANNELS = {LOUNGE: "lounge", ANNOUNCEMENTS: "records", STAFF: "staff"}
BOARD, GPU = "transpose", "H100"
PATIENCE_S = 600.0  # as long as the other demo's
TRIES = 4
UNRANKED = "not ranked"
HOLDS = re.compile(r"\\([\\*_~|`>#\[\]()<@:-])")
COLOURS = {"ada": "green", "boris": "magenta", "host": "yellow"}


@dataclass
class Teller:
    """Says each thing once, as text or as JSON."""

    as_json: bool
    said: list[Json] = field(default_factory=list)

    def tell(self, kind: str, text: str, **more: Any) -> None:
        told = {"kind": kind, **more, "text": text}
        self.said.append(told)
        if self.as_json:
            print(json.dumps(told, ensure_ascii=False), flush=True)
            return
        out, safe = printing.out(), printing.escape(text)
        match kind:
            case "card" | "announcement":
                buttons = "  ".join(f"[reverse] {one} [/]" for one in more["buttons"])
                pictures = "".join(f"\n[dim]▨ {printing.escape(one)}[/]" for one in more["pictures"])
                title = f"#{more['channel']}" + (", edited" if more["edits"] else "")
                shown = f"{safe}{pictures}" + (f"\n\n{buttons}" if buttons else "")
                out.print(Panel(shown, title=title, title_align="left", width=88, border_style="blue"))
            case "command" | "press":
                out.print(f"[bold {COLOURS.get(more['who'], 'white')}]{more['who']}[/] {safe}", soft_wrap=True)
            case "answer":
                files = "".join(f"\n    [dim]▤ {printing.escape(one)}[/]" for one in more["files"])
                lines = safe.replace("\n", "\n    ")
                out.print(f"  [dim]↳ only {more['who']} sees:[/] {lines}{files}", soft_wrap=True)
            case _:
                out.print(f"[dim]· {safe}[/]", soft_wrap=True)


@dataclass
class Play:
    """What people do, and what they see of it."""

    discord: Discord
    teller: Teller
    shown: dict[int, str] = field(default_factory=dict)

    def look(self) -> None:
        """Tell of every message that is new or says something new."""
        for channel, name in CHANNELS.items():
            for one in self.discord.shown(channel):
                text = text_of(one)
                if self.shown.get(int(one["id"])) == text:
                    continue
                edits = int(one["id"]) in self.shown
                self.shown[int(one["id"])] = text
                self.teller.tell(
                    "card" if channel == LOUNGE else "announcement",
                    text,
                    channel=name,
                    edits=edits,
                    buttons=[part["label"] for part in strict.walked(one["components"]) if "label" in part],
                    pictures=[
                        item["description"]
                        for part in strict.walked(one["components"])
                        for item in part.get("items", [])
                    ],
                )

    def until(self, is_so: Callable[[], Any], what: str) -> Any:
        """Look at the channels until it is so."""

        def looked() -> Any:
            self.look()
            return is_so()

        return self.discord.wait_for(looked, what, patience_s=PATIENCE_S)

    def types(self, who: User, name: str, *, file: tuple[str, bytes] | None = None, **values: Any) -> str:
        """A command, and its answer."""
        said = " ".join(f"{key}:{value}" for key, value in values.items())
        attached = f" file:{file[0]}" if file else ""
        self.teller.tell("command", f"/{name} {said}".rstrip() + attached, who=who.name)
        return self._answered(who, self.discord.command(who, name, files={"file": file} if file else None, **values))

    def presses(self, who: User, message: Json, label: str) -> str:
        """A button, and its answer."""
        self.teller.tell("press", f"presses [{label}]", who=who.name)
        return self._answered(who, self.discord.press(who, message, label))

    def _answered(self, who: User, asked: fake.Asked) -> str:
        self.until(lambda: asked.said, "an answer")
        files = [f"{one['filename']}, {one['size']} bytes" for said in asked.said for one in said["attachments"]]
        self.teller.tell("answer", spoken(asked.text), who=who.name, files=files)
        return asked.text

    def card(self, *words: str, number: int = 0) -> Json:
        """The last card of the lounge, or the card of that place, once it says one of these words."""

        def found() -> Json | None:
            cards = self.discord.shown(LOUNGE)
            one = cards[number - 1] if len(cards) >= max(1, number) else None
            return one if one is not None and any(word in text_of(one) for word in words) else None

        told: Json = self.until(found, f"a card that says {' or '.join(map(repr, words))}")
        return told

    def scored(self, who: User, words: str, *, number: int) -> Json:
        """The card of that place once it says these words. Who gets no score that ranks asks again, as people do."""
        for _ in range(TRIES):
            told = self.card(words, UNRANKED, number=number)
            if UNRANKED not in text_of(told):
                return told
            self.teller.tell("stage", "this machine was too busy to time it well, so it is measured again")
            number = len(self.discord.shown(LOUNGE)) + 1
            self.presses(who, told, "Again")
        raise KbslurmError(
            f"no score was good enough to rank in {TRIES} tries", hint="Try again while this machine is less busy."
        )

    def announced(self, words: str) -> None:
        self.until(
            lambda: any(words in text_of(one) for one in self.discord.shown(ANNOUNCEMENTS)),
            f"an announcement, {words!r}",
        )


def text_of(message: Json) -> str:
    """What somebody reads."""
    return spoken("\n".join(one["content"] for one in strict.walked(message["components"]) if "content" in one))


def spoken(text: str) -> str:
    """Discord's Markdown as a terminal shows it."""
    names = {str(one.id): one.name for one in (ADA, BORIS)}
    text = re.sub(r"<@([0-9]+)>", lambda one: f"@{names.get(one[1], one[1])}", text)
    text = re.sub(r" \(<t:[0-9]+:R>(; [^)]*)?\)", "", text)
    text = re.sub(r"<t:([0-9]+):f>", lambda one: f"{datetime.fromtimestamp(int(one[1]), UTC):%Y-%m-%d %H:%M}", text)
    text = re.sub(r"^(### |-# |```$)", "", text, flags=re.MULTILINE).replace("**", "")
    text = re.sub(r"(?<!\\)`([^`\n]+)`", r"\1", text)
    return HOLDS.sub(r"\1", text).strip("\n")


# ------------------------------------------------------------------------------------------------------------ the stage


@contextmanager
def service(place: Path, bot_token: str) -> Iterator[tuple[Config, PostgresStore, str]]:
    """The whole of it: Postgres, daemon, this machine as the place where runs go, and the HTTP API."""
    (place / "kbslurm.toml").write_text(f"[daemon]\nstate_dir = '{place}'\n[daemon.local]\nslots = {{ {GPU} = 1 }}\n")
    logs.set_up(level="error")
    os.environ["KBSLURM_TEST_PG_FAST"] = "1"  # nobody needs these rows after a power cut
    config = configs.load(place / "kbslurm.toml", {"KBSLURM_BOT_TOKEN": bot_token}, cwd=place)
    with wiring.opened_store(config) as store, Serving(context_of(config, store), host="127.0.0.1", port=0) as serving:
        daemon, stop = Daemon(store, wiring.places(config)), threading.Event()
        thread = threading.Thread(target=daemon.run, args=(stop,), name="daemon")
        try:
            thread.start()
            yield config, store, serving.url
        finally:
            stop.set()
            daemon.wake.ring()
            if thread.ident is not None:
                thread.join()


@contextmanager
def bot(discord: Discord, place: Path, url: str, bot_token: str) -> Iterator[subprocess.Popen[bytes]]:
    """The bot's own process, as `kbslurm up` starts it; it ends with us, whatever becomes of us."""
    env = {
        "DISCORD_TOKEN": fake.TOKEN,
        "KBSLURM_BOT_TOKEN": bot_token,
        "KBSLURM_URL": url,
        "KBSLURM_BOT_MEMORY": str(place / "bot.sqlite"),
        "KBSLURM_DISCORD_API": f"{discord.url}/api/v10",
        "KBSLURM_DISCORD_GATEWAY": discord.gateway_url,
        "KBSLURM_DISCORD_CHANNEL": str(ANNOUNCEMENTS),
        "KBSLURM_DISCORD_STAFF_CHANNEL": str(STAFF),
        "KBSLURM_BOT_CHILD": "1",
        "HOME": str(place),
        "PATH": "/usr/bin:/bin",
    }
    met = discord.met["identify"]
    argv = [sys.executable, "-m", "kbslurm_bot"]
    with (place / "bot.log").open("ab") as log:
        child = subprocess.Popen(
            argv,
            env=env,
            cwd=shared_folders.checkout(),
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        discord.wait_for(
            lambda: child.poll() is not None or (discord.met["identify"] > met and discord.commands), "the bot"
        )
        if child.poll() is not None:
            raise KbslurmError("the bot didn't start", hint=(place / "bot.log").read_text()[-2000:])
        yield child
    finally:
        if child.stdin:
            child.stdin.close()
        if child.poll() is None:
            child.send_signal(signal.SIGTERM)
        try:
            child.wait(30)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def played(teller: Teller) -> None:
    """The whole conversation. AssertionError or KbslurmError when it doesn't go as it has to."""
    token = secrets.token_urlsafe(24)
    base = shared_folders.path("examples") / "transpose"
    # By a factor of nine: the record's story ends well on any machine.
    slow, good = (without_lines(base / "submissions" / "accepted" / name) for name in ("columns.py", "slices.py"))
    wrong = without_lines(base / "submissions" / "wrong_answer" / "square_only.py")
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kb-demo-")))
        discord = stack.enter_context(fake.served())
        discord.add_guild(2000, *CHANNELS)
        play = Play(discord, teller)
        teller.tell("stage", "starting the service, its database, and a Discord that is a stand-in on loopback")
        _, store, url = stack.enter_context(service(place, token))
        with bot(discord, place, url, token) as child:
            teller.tell("stage", "the bot is connected")
            _until_it_has_looked(place)
            now = datetime.now(UTC)
            deadline = contest.parsed_deadline("2099-12-31", "UTC")
            problem = loading.load(base)
            store.boards.add(BOARD, problem, gpus=[GPU], deadline_at=deadline, confirm=False, now=now)
            teller.tell("stage", f"a host creates the board {BOARD}")
            play.announced("New board")
            play.types(ADA, "leaderboard list")
            play.types(ADA, "submit", leaderboard="transpsoe", gpu=GPU, file=("kernel.py", good))
            play.types(ADA, "submit", leaderboard=BOARD, gpu=GPU, file=("photo.png", b"\x89PNG\r\n\x1a\n\xff\xfe\x00"))
            play.types(BORIS, "leaderboard submit test", leaderboard=BOARD, gpu=GPU, file=("square.py", wrong))
            play.presses(BORIS, play.card("wrong answer"), "Log")
            play.types(ADA, "leaderboard submit ranked", leaderboard=BOARD, gpu=GPU, file=("kernel.py", slow))
            play.card("ranked")
            child.kill()
            child.wait()
            teller.tell("stage", "the bot is killed; submissions go on without it")
        with bot(discord, place, url, token):
            teller.tell("stage", "the bot is started again, and finds its cards")
            ranked = play.scored(ADA, "rank 1 of 1", number=2)
            play.announced("leads transpose")
            play.presses(BORIS, ranked, "Log")
            play.presses(ADA, ranked, "Log")
            third = len(discord.shown(LOUNGE)) + 1
            play.types(ADA, "leaderboard submit ranked", leaderboard=BOARD, gpu=GPU, file=("kernel.py", good))
            play.card("ranked", number=third)
            # This machine runs one at a time, so this one waits for the one before it.
            play.presses(ADA, ranked, "Again")
            waits = play.card("", number=third + 1)
            play.presses(ADA, waits, "Cancel")
            play.card("cancelled", number=third + 1)
            faster = play.scored(ADA, "than own best", number=third)
            play.presses(ADA, faster, "Compare")
            play.types(BORIS, "leaderboard show", leaderboard=BOARD)
            teller.tell("stage", "the end: everything is stopped and removed")
        assert not discord.refusals, discord.refusals


def _until_it_has_looked(place: Path) -> None:
    """What is there at the bot's first look is not announced."""
    until = time.monotonic() + PATIENCE_S
    with state.opened(place / "bot.sqlite") as kept:
        while kept.word(SEEN_AT) is None:
            assert time.monotonic() < until, "the bot never looked at the boards"
            time.sleep(0.05)


def without_lines(file: Path) -> bytes:
    """An example without the lines that name its board."""
    return b"".join(line for line in file.read_bytes().splitlines(keepends=True) if b"!POPCORN" not in line)


def main() -> int:
    """0: it went as it has to."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="One JSON object a line.")
    teller = Teller(as_json=parser.parse_args().json)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        played(teller)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except (AssertionError, KbslurmError) as error:
        printing.err().print(f"[red]error:[/] {printing.escape(str(error))}", soft_wrap=True)
        return EXIT_BUG
    if not teller.as_json:
        printing.say("")
        printing.say("With a token of your own: docs/discord.md, five steps.")
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
