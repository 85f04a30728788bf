"""`kbslurm demo`: a whole competition on this machine, from scratch: eight submissions by four people, one board."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kbslurm.cli.operator import demo_warm
from kbslurm.cli.operator.demo_script import Play, Script, say_next, script
from kbslurm.cli.output import printing
from kbslurm.cli.output.board import print_standings
from kbslurm.cli.output.submission import submission_json
from kbslurm.cli.service_in_use import say_database
from kbslurm.domain import board as boards
from kbslurm.domain.run import SubmissionId
from kbslurm.errors import EXIT_OK, EXIT_REJECTED, Invalid, Misconfigured

if TYPE_CHECKING:
    from kbslurm.config.settings import Config
    from kbslurm.store.postgres import PostgresStore
    from kbslurm.store.views import SubmissionView

ROUND = "demo.round"
PATIENCE_S = 600.0
LOOK_S = 0.5


def demo(
    once: Annotated[bool, typer.Option("--once", help="Exit when it is done, even on a terminal.")] = False,
    slurm: Annotated[bool, typer.Option("--slurm", help="On a real Slurm started for it (root, checkout).")] = False,
    discord: Annotated[
        bool, typer.Option("--discord", help="Show a conversation with the Discord bot instead; no token (checkout).")
    ] = False,
    overflow: Annotated[
        bool, typer.Option("--overflow", help="Take the only site down and let others run its jobs (checkout).")
    ] = False,
    ray: Annotated[
        bool, typer.Option("--ray", help="On a real Ray started for it; a worker dies, another joins (checkout).")
    ] = False,
    site: Annotated[Path | None, typer.Option("--site", help="On the site of this file, with H100 and A100.")] = None,
    directory: Annotated[
        Path | None, typer.Option("--dir", envvar="KBSLURM_DEMO_DIR", help="Folder for its database and jobs.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object at the end instead of text.")] = False,
    ahead: Annotated[bool, typer.Option("--next/--no-next", hidden=True)] = True,
) -> int:
    """Run a small competition on this machine: no root, Slurm, GPU or account needed. Run it again for another
    round."""
    if slurm:
        from kbslurm.cli.operator.demo_slurm import played_on_slurm

        return played_on_slurm(as_json=as_json)
    if discord:
        from kbslurm.cli.operator.demo_stand_ins import play

        return play("discord", "tests.fakes.discord.play", "stand-in for Discord", as_json=as_json)
    if overflow:
        from kbslurm.cli.operator.demo_stand_ins import play

        return play("overflow", "tests.fakes.overflow_play", "stand-ins for GitHub and Modal", as_json=as_json)
    if ray:
        from kbslurm.cli.operator.demo_stand_ins import play

        return play("ray", "tests.ray_play", "Ray that it starts", as_json=as_json, once=once)
    place = directory or _usual_place()
    stays = not as_json and not once and sys.stdin.isatty() and sys.stdout.isatty()
    with ExitStack() as stack:
        config, store = stack.enter_context(_served(place, site))
        told = script()
        _set_up(store, told)
        url = ""
        if stays:
            from kbslurm.cli.operator import demo_page

            url = stack.enter_context(demo_page.shown(config, store))
            _say(f"{url}/board/{told.board} shows the board live")
        code = _played(config, store, told, as_json)
        if ahead and not as_json:
            say_next(told.problem)
        if stays:
            demo_page.stay(store, place, url, told.board, told.gpus[0])
    return code


@contextmanager
def _served(place: Path, site: Path | None) -> Iterator[tuple[Config, PostgresStore]]:
    """The demo's own database and daemon, while the demo runs."""
    from kbslurm import wiring
    from kbslurm.config import settings as configs
    from kbslurm.daemon.loop import Daemon
    from kbslurm.observe import logs

    _say("starting the database")
    config_file = _configured(place, site)
    logs.set_up(level="error")
    config = configs.load(config_file)
    say_database(config)
    with wiring.opened_store(config) as store:
        daemon = Daemon(store, wiring.places(config))
        stop = threading.Event()
        thread = threading.Thread(target=daemon.run, args=(stop,), name="daemon")
        try:
            thread.start()  # inside the try: ^C in between would leave a daemon that nothing stops
            yield config, store
        finally:
            stop.set()
            daemon.wake.ring()
            if thread.ident is not None:
                thread.join()


def _configured(place: Path, site: Path | None) -> Path:
    """A kbslurm.toml of the demo's own, so that every other command can use it too."""
    from kbslurm.backends.paths import said, write_atomically

    file = place / "kbslurm.toml"
    gpus = ", ".join(f"{json.dumps(gpu)} = 1" for gpu in script().gpus)
    where = (
        f"[sites]\nuse = [{json.dumps(str(site.resolve()))}]\n" if site else f"[daemon.local]\nslots = {{ {gpus} }}\n"
    )
    text = f"[daemon]\nstate_dir = {json.dumps(str(place))}\n\n{where}"
    try:
        place.mkdir(parents=True, exist_ok=True)
        if not file.exists() or file.read_text() != text:
            write_atomically(file, text.encode(), 0o644)
    except OSError as error:
        sentence, fix = said(error, place)
        raise Misconfigured(sentence, fix=fix) from None
    return file


def _usual_place() -> Path:
    """In a checkout a folder inside it, so that a fresh clone starts with round 1; else the user's cache."""
    from kbslurm.config import shared_folders

    checkout = shared_folders.checkout()
    if checkout is not None and os.access(checkout, os.W_OK):
        return checkout / ".kbslurm" / "demo"
    base = os.environ.get("XDG_CACHE_HOME") or (f"{home}/.cache" if (home := os.environ.get("HOME")) else "")
    return Path(base) / "kbslurm" / "demo" if base else Path(tempfile.gettempdir()) / f"kbslurm-demo-{os.getuid()}"


def _played(config: Config, store: PostgresStore, told: Script, as_json: bool) -> int:
    ids = _round(store, told, quiet=as_json)
    views = _watched(store, ids, quiet=as_json)
    pair = _cold_and_warm(config, store, told, quiet=as_json)
    played = list(zip(told.plays, views, strict=True))
    odd = [(play, view) for play, view in played if _verdicts(view) != {play.expect}]
    if as_json:
        more = {} if pair is None else {"ways": demo_warm.as_json(*pair)}
        printing.as_json({"ok": not odd, "submissions": [submission_json(view) for view in views], **more})
    else:
        _tell(store, told, played)
        if pair is not None:
            demo_warm.show(*pair)
    for play, view in odd:
        printing.err().print(
            f"[red]#{view.id} {play.file.name} should be {play.expect}, but is {', '.join(_verdicts(view))}[/]"
        )
    return EXIT_OK if not odd else EXIT_REJECTED


def _cold_and_warm(
    config: Config, store: PostgresStore, told: Script, *, quiet: bool
) -> tuple[SubmissionView, SubmissionView] | None:
    """The same submission in both ways, where a site allows warm workers."""
    where = demo_warm.warm_type(config)
    if where is None:
        return None
    play = demo_warm.chosen(told)
    _say(f"running {play.person}'s {play.file.name} twice more: as a job of its own, then in a warm worker", quiet)
    return demo_warm.compared(store, told, play, *where, say=lambda text: _say(text, quiet))


def _set_up(store: PostgresStore, told: Script) -> None:
    """The people and the board, created if needed."""
    from kbslurm.domain import contest
    from kbslurm.problems import loading

    problem = loading.load(told.problem, name=told.board)
    for name in sorted({play.person for play in told.plays}):
        store.people.ensure(name, by="demo")
    held = store.boards.find(told.board)
    if held is None:
        deadline = contest.parsed_deadline(told.deadline, told.zone)
        store.boards.add(told.board, problem, gpus=told.gpus, deadline_at=deadline, zone=told.zone)
        return
    if held.problem_digest != problem.digest:
        store.boards.set_live(told.board, store.problems.add(problem))


def _round(store: PostgresStore, told: Script, *, quiet: bool) -> list[SubmissionId]:
    """The submissions of this round: existing ones if it was interrupted, plus the missing ones."""
    state = store.settings.get(ROUND, default={"number": 0, "done": True})
    there = {(view.person, view.file_name): view.id for view in reversed(store.submissions.newest())}
    if state["done"] or "after" not in state:
        state = {"number": state["number"] + 1, "after": max(there.values(), default=0), "done": False}
        store.settings.put(ROUND, state)
        _say(f"playing round {state['number']} on board {told.board}", quiet)
    else:
        _say(f"continuing round {state['number']} on board {told.board}", quiet)
    ids: list[SubmissionId] = []
    for play in told.plays:
        known = there.get((play.person, play.file.name), SubmissionId(0))
        ids.append(known if known > state["after"] else _submitted(store, told.board, play))
    return ids


def _submitted(store: PostgresStore, board: str, play: Play) -> SubmissionId:
    from kbslurm.flow.submit import accept

    person, now = store.people.ensure(play.person, by="demo"), datetime.now(UTC)
    text = play.file.read_bytes()
    return accept(
        store.intake, person.id, board, play.file.name, text, "leaderboard", play.gpus, now, via="demo"
    ).submission_id


def _watched(store: PostgresStore, ids: list[SubmissionId], *, quiet: bool) -> list[SubmissionView]:
    """Wait for every verdict, printing each once."""
    told: set[SubmissionId] = set()
    until = time.monotonic() + PATIENCE_S
    with printing.progress(quiet) as tell:
        while True:
            views = [store.submissions.get(one) for one in ids]
            for view in views:
                if view.is_done and view.id not in told:
                    told.add(view.id)
                    if not quiet:
                        _tell_end(view)
            if len(told) == len(ids):
                break
            if time.monotonic() > until:
                raise Invalid(
                    "the demo didn't finish within ten minutes", hint="Run it again: it continues where it stopped."
                )
            running = [f"{v.person} {v.file_name}" for v in views if any(r.state == "running" for r in v.runs)]
            tell(
                {
                    "phase": f"measuring {', '.join(running)}" if running else "waiting",
                    "done": len(told),
                    "of": len(ids),
                }
            )
            store.events.wait(LOOK_S)
    state = store.settings.get(ROUND)
    store.settings.put(ROUND, {**state, "done": True})
    return views


def _tell_end(view: SubmissionView) -> None:
    runs = "; ".join(_short(run) for run in view.runs)
    printing.out().print(
        f"#{view.id} {printing.escape(view.person)} {printing.escape(view.file_name)}: {runs}", soft_wrap=True
    )


def _short(run: Any) -> str:
    found = run.verdict
    if found is None:
        return f"{run.gpu} {printing.coloured(run.state.value)}"
    if found.score_s is None:
        detail = found.reason
    else:
        detail = printing.score(found.score_s, found.low_s, found.high_s, ranked=found.ranked)
        detail += "" if found.ranked else f" (not ranked: {found.reason})"
    return f"{run.gpu} {printing.coloured(found.name)}  {printing.escape(detail)}"


def _tell(store: PostgresStore, told: Script, played: list[tuple[Play, SubmissionView]]) -> None:
    """The leaderboard, then why the other submissions aren't on it, then what to try next."""
    printing.say("")
    standings = {gpu: boards.ranked(store.standings.scored(told.board, gpu)) for gpu in told.gpus}
    print_standings(told.board, standings, limit=10)
    found = [run.verdict for _, view in played for run in view.runs if run.verdict is not None and run.verdict.ranked]
    level = min((verdict.isolation or 0 for verdict in found), default=0)
    printing.say(f"Measured at isolation level {level}, on CPUs that only carry the names of GPUs.")
    printing.say("A real site ranks only from level 2 on.")
    printing.say("")
    rows = [
        (
            f"#{view.id}",
            view.person,
            play.file.name,
            printing.coloured(bad.name),
            printing.escape(f"{bad.reason} ({play.says})"),
        )
        for play, view in played
        for bad in [view.runs[0].verdict]
        if bad is not None and bad.name != "passed"
    ]
    printing.table(("", "person", "file", "verdict", "reason"), rows, title="rejected", wrap=4)


def _verdicts(view: SubmissionView) -> set[str]:
    return {run.verdict.name if run.verdict else run.state.value for run in view.runs}


def _say(text: str, quiet: bool = False) -> None:
    if not quiet:
        printing.err().print(f"[dim]·[/] {printing.escape(text)}")
