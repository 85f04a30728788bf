"""The demo's last act where a site allows warm workers: the same submission as a job of its own and in one of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from kbslurm.cli.operator.demo_script import Play, Script
from kbslurm.cli.output import printing
from kbslurm.cli.output.submission import submission_json, waterfall
from kbslurm.domain.amounts import span
from kbslurm.domain.keepers import KeeperEnding, KeeperState
from kbslurm.errors import Invalid

if TYPE_CHECKING:
    from kbslurm.config.settings import Config
    from kbslurm.store.postgres import PostgresStore
    from kbslurm.store.views import SubmissionView

PATIENCE_S = 300.0
WHY = "the demo shows the same submission cold and warm"


def warm_type(config: Config) -> tuple[str, str] | None:
    """A site and one of its GPU types for which it allows warm workers."""
    from kbslurm import wiring

    for site in wiring.sites(config):
        for gpu in site.gpus.values():
            if gpu.warm is not None and gpu.warm.max:
                return site.name, gpu.name
    return None


def chosen(told: Script) -> Play:
    """The first submission that should pass."""
    return next(play for play in told.plays if play.expect == "passed")


def compared(
    store: PostgresStore, told: Script, play: Play, site: str, gpu: str, *, say: Callable[[str], None]
) -> tuple[SubmissionView, SubmissionView]:
    """(cold, warm): this submission, run once in each way."""
    from kbslurm.problems import loading

    board = f"{told.board}-warm"
    if store.boards.find(board) is None:
        problem = loading.load(told.problem, name=board)
        store.boards.add(board, problem, gpus=(gpu,), deadline_at=None, zone=told.zone)
    for keeper in store.keepers.open():
        store.keepers.drain(keeper.id, KeeperEnding.DRAINED, WHY, datetime.now(UTC))
    _wait(store, lambda: not store.keepers.open())
    cold = _judged(store, board, gpu, play)
    made = store.keepers.order(
        site, gpu, life_s=1800, idle_s=300, most=1, why=WHY, now=datetime.now(UTC), by=play.person
    )
    say(f"starting a warm worker that holds a GPU for {gpu}")
    try:
        _wait(store, lambda: any(one.state is KeeperState.HOLDING for one in store.keepers.open()))
        warm = _judged(store, board, gpu, play)
    finally:
        if made is not None:
            store.keepers.drain(made.id, KeeperEnding.DRAINED, "the demo is over", datetime.now(UTC))
    return cold, warm


def show(cold: SubmissionView, warm: SubmissionView) -> None:
    """Both waterfalls, side by side."""
    falls = [dict(waterfall(view.runs[0])) for view in (cold, warm)]
    stages = list(dict.fromkeys(name for fall in falls for name in fall))
    rows = [(name, *(span(fall[name]) if name in fall else "–" for fall in falls)) for name in stages]
    rows.append(("all of it", *(span(sum(fall.values())) for fall in falls)))
    jobs = [view.runs[0].attempts[-1].handle or "–" for view in (cold, warm)]
    rows.append(("Slurm", f"job {jobs[0]}", f"step {jobs[1]}"))
    printing.say("")
    title = f"{warm.person}'s {warm.file_name} ({warm.mode} on {warm.runs[0].gpu}), from accepted to scored"
    printing.table(("", "a job of its own", "in a warm worker"), rows, title=title)
    if told := warm.runs[0].warm:
        printing.say(f"What its author reads of the second one: {told}")


def as_json(cold: SubmissionView, warm: SubmissionView) -> dict[str, Any]:
    return {"cold": submission_json(cold), "warm": submission_json(warm)}


def _judged(store: PostgresStore, board: str, gpu: str, play: Play) -> SubmissionView:
    from kbslurm.flow.submit import accept

    person, now = store.people.ensure(play.person, by="demo"), datetime.now(UTC)
    # the lines that name its own board are left out
    text = b"".join(line for line in play.file.read_bytes().splitlines(True) if not line.startswith(b"#!POPCORN"))
    receipt = accept(store.intake, person.id, board, play.file.name, text, "test", (gpu,), now, via="demo")
    _wait(store, lambda: store.submissions.get(receipt.submission_id).is_done)
    return store.submissions.get(receipt.submission_id)


def _wait(store: PostgresStore, holds: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not holds():
        if time.monotonic() > until:
            raise Invalid("the comparison of cold and warm didn't finish in time", hint="Run the demo again.")
        store.events.wait(0.5)
