"""The demo's web page, when run in a terminal: a live board, and what to type next."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from kbslurm.cli.competitor.kept_tokens import DATABASE
from kbslurm.cli.output import printing
from kbslurm.cli.service_in_use import in_use
from kbslurm.errors import Misconfigured

if TYPE_CHECKING:
    from pathlib import Path

    from kbslurm.api.context import Context
    from kbslurm.api.server import Serving
    from kbslurm.config.settings import Config
    from kbslurm.store.postgres import PostgresStore

GUEST = "you"
TOKEN_LASTS = timedelta(days=1)


@contextmanager
def shown(config: Config, store: PostgresStore) -> Iterator[str]:
    """The API server, at the usual address or, if that is in use, at any free port. Yields its URL."""
    from kbslurm.api.server import context_of

    with _served(context_of(config, store), config.server.listen) as serving:
        yield serving.url


def _served(context: Context, listen: str) -> Serving:
    from kbslurm.api.server import Serving

    host, _, port = listen.rpartition(":")
    try:
        return Serving(context, host=host.strip("[]"), port=int(port))
    except Misconfigured:
        return Serving(context, host=host.strip("[]"), port=0)


def stay(store: PostgresStore, place: Path, url: str, board: str, gpu: str, *, again: str = "demo") -> None:
    """Print what to open and type, and stay until ^C."""
    now = datetime.now(UTC)
    guest = store.people.ensure(GUEST, by="demo")
    token = store.tokens.issue(guest.id, kind="cli", device="demo", expires_at=now + TOKEN_LASTS, now=now)
    kbslurm = printing.command()
    if in_use() is not None:  # what is typed next is meant for the demo, not for that service
        kbslurm += f" --context {DATABASE}"
    printing.say("")
    printing.say(f"It stays up until ^C: {url}/board/{board} shows the board live.")
    printing.say("In another terminal, with kbslurm:")
    printing.say(f"  export KBSLURM_CONFIG={place / 'kbslurm.toml'}")
    printing.say(f"  {kbslurm} status; {kbslurm} board {board}")
    printing.say(f"  {kbslurm} submit YOUR_KERNEL.py --leaderboard {board} --watch")
    printing.say(f"or with popcorn-cli, as {GUEST!r} (it reads ~/.popcorn.yaml; back up what you have there):")
    printing.say(f"  export POPCORN_API_URL={url}")
    printing.say(f"  echo 'cli_id: {token}' > ~/.popcorn.yaml")
    printing.say(f"  popcorn submit --no-tui --leaderboard {board} --gpu {gpu} --mode leaderboard YOUR_KERNEL.py")
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        printing.say(f"stopped; {kbslurm} {again} plays another round")
